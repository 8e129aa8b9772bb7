"""Kikuchi et al. 2011: Tables 3 to 5, Figures 2 and 3 and the crossover N*, theirs beside ours.

`reproduce(folder)` writes operations.csv, comparisons.csv (Tables 3 and 4, Figure 2), scaling.csv (Figure 3), figure2.png,
figure3.png, posterior.png where matplotlib is installed, and index.html. Times are CPU seconds of both parties in one process.
Points of a curve beyond what was run are extrapolated linearly, and say so.
"""

from __future__ import annotations

import csv
import html
import importlib.util
import math
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from blindbayes.papers import kikuchi2011_measure as measure
from blindbayes.papers.kikuchi2011_measure import Operations
from blindbayes.primitives.coins import Coins
from blindbayes.protocol.distorted_intersection import entropy, error, posterior
from blindbayes.protocol.distorted_intersection.comparison import Comparison
from blindbayes.protocol.set_intersection import RISTRETTO, SAFE_PRIME

DENSITY = 0.03  # EachMovie
ATTRIBUTES, VALUES, CLASSES = 10, 100, 2  # what one run of joined_sums counts: 10 attributes of 10 values
PAPER = Operations(1.1, 1.6, 0.15)  # Section 4.1 gives no unit
PAPER_SFE1, PAPER_SFE2 = 2.03, 23.76  # seconds, Table 4 at 10 bits
SCHEMES = {
    "scalar": "scalar product (Vaidya and Clifton), Paillier 1,024",
    "polynomial": "polynomials (Freedman et al.), Paillier 1,024",
    "distorted_prime": "distorted intersection, 2,048-bit safe prime",
    "distorted": "distorted intersection, ristretto255",
    "joined": f"joined_sums: all {VALUES} x {CLASSES} counts at once",
}


def crossover(used: Operations, sfe1: float, sfe2: float, density: float = DENSITY) -> float:
    """N*, from which the distorted intersection is cheaper than the scalar product; infinite if it never is."""
    per_row = used.encrypt - 2 * used.power * density
    return (sfe2 - sfe1 - used.decrypt) / per_row if per_row > 0 else math.inf


def all_counts(one_run: float) -> float:
    """Seconds of the distorted intersections of every (value, class), from those of one run of two sets of n.

    An identifier of Alice's stands in one set per attribute, each of which meets every class; one of Bob's in the set of its
    class, which meets every value.
    """
    return one_run / 2 * (ATTRIBUTES * CLASSES + VALUES)


def paper_sfe(kind: str, bits: float) -> float:
    """The fits of Table 4."""
    return 0.97 + 0.106 * bits if kind == "sums" else 1.77 + 0.003 * math.exp(0.89 * bits)


def reproduce(out: pathlib.Path, *, quick: bool = False) -> pathlib.Path:
    """Measure, plot and write the page; returns its path. About a minute of CPU time, or 10 seconds with `quick`."""
    out.mkdir(parents=True, exist_ok=True)
    coins = Coins.system()
    key = measure.paper_key(coins)
    used = {group.name: measure.operations(key, group, coins) for group in (SAFE_PRIME, RISTRETTO)}
    compared = _comparisons(coins, 2 if quick else 8, quick)
    scaling = _scaling(key, coins, quick)
    _write(
        out / "operations.csv", ["group", "encrypt", "decrypt", "power"], [[name, *_fields(one)] for name, one in used.items()]
    )
    _write(out / "comparisons.csv", list(compared[0]), [list(row.values()) for row in compared])
    _write(out / "scaling.csv", list(scaling[0]), [list(row.values()) for row in scaling])
    pictures = _plots(out, compared, scaling) if importlib.util.find_spec("matplotlib") else []
    path = out / "index.html"
    path.write_text(_page(used, compared, scaling, pictures), encoding="utf-8")
    return path


def _comparisons(coins: Coins, repeat: int, quick: bool) -> list[dict[str, Any]]:
    ready = measure.link(coins)
    rows = []
    for bits in (4, 10, 16) if quick else (2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 32):
        for kind in ("sums", "products"):
            alice, bob = measure.comparison_seconds(kind, bits, ready, coins, repeat)
            gates = Comparison(kind, 2, bits, bits).gates()
            rows.append({"kind": kind, "bits": bits, "alice": alice, "bob": bob, "and_gates": gates})
    return rows


def _scaling(key: Any, coins: Coins, quick: bool) -> list[dict[str, Any]]:
    """Seconds against N, the number of all identifiers; each party has n = 0.03 N of them."""
    scalar_size, polynomial_size, group_size, joined_size = (200, 20, 50, 4096) if quick else (2000, 200, 500, 60_000)
    scalar = measure.scalar_seconds(key, scalar_size, coins) / scalar_size
    polynomial = measure.polynomial_seconds(key, polynomial_size, coins) / polynomial_size
    prime = measure.distorted_seconds(group_size, coins, SAFE_PRIME) / group_size
    point = measure.distorted_seconds(group_size, coins, RISTRETTO) / group_size
    least = measure.joined_seconds(4096, VALUES, CLASSES, coins)
    large = measure.joined_seconds(joined_size, VALUES, CLASSES, coins) / joined_size
    rows = []
    for exponent in range(2, 9):
        whole = 10**exponent
        own = DENSITY * whole
        rows.append(
            {
                "N": whole,
                "scalar": scalar * whole,
                "polynomial": polynomial * own,
                "distorted_prime": prime * own,
                "distorted": point * own,
                "joined": max(least, large * own),
            }
        )
    return rows


def _fields(used: Operations) -> list[float]:
    return [used.encrypt, used.decrypt, used.power]


def _write(path: pathlib.Path, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows)


def at_bits(compared: Sequence[dict[str, Any]], kind: str, bits: int) -> dict[str, Any]:
    """One row of the comparisons."""
    return next(row for row in compared if row["kind"] == kind and row["bits"] == bits)


# -- pictures and page -------------------------------------------------------------------------------------------------------


def _plots(out: pathlib.Path, compared: Sequence[dict[str, Any]], scaling: Sequence[dict[str, Any]]) -> list[str]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    for kind, name in (("sums", "SFE1 (sum)"), ("products", "SFE2 (product)")):
        rows = [row for row in compared if row["kind"] == kind]
        axes.plot([row["bits"] for row in rows], [row["alice"] + row["bob"] for row in rows], "o-", label=f"{name}, ours")
        grid = np.linspace(2, 16, 60)
        axes.plot(grid, [paper_sfe(kind, x) for x in grid], "--", label=f"{name}, the paper's fit")
    axes.set(yscale="log", xlabel="bits of a share", ylabel="seconds", title="Figure 2: comparison of shared values")
    axes.legend(fontsize=8)
    _save(figure, out / "figure2.png")
    figure, axes = plt.subplots(figsize=(7, 4.5))
    for scheme, title in SCHEMES.items():
        axes.plot([row["N"] for row in scaling], [row[scheme] for row in scaling], "o-", label=title)
    axes.set(xscale="log", yscale="log", xlabel=f"N, with n = {DENSITY} N identifiers at each party", ylabel="CPU seconds")
    axes.set_title("Figure 3: one count (joined_sums: all of them)")
    axes.legend(fontsize=7)
    _save(figure, out / "figure3.png")
    figure, axes = plt.subplots(figsize=(7, 4.5))
    for thinned in (5, 20, 40):
        for given, style in (({"keep": 0.5}, "-"), ({"bob_items": 100}, "--")):
            label = f"s_A = {thinned}, " + ("p = 0.5 known" if "keep" in given else "p unknown")
            axes.plot(posterior(thinned, 100, **given), style, label=label)
    axes.set(xlabel="z, the size of the intersection", ylabel="Pr(z | s_A)", title="What Alice learns from one thinned size")
    axes.legend(fontsize=8)
    _save(figure, out / "posterior.png")
    return ["figure2.png", "figure3.png", "posterior.png"]


def _save(figure: Any, path: pathlib.Path) -> None:
    from matplotlib import pyplot as plt

    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["<table><tr>" + "".join(f"<th>{html.escape(cell)}</th>" for cell in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return "\n".join([*lines, "</table>"])


def _star(found: float) -> str:
    return "never" if math.isinf(found) else f"{max(0.0, found):,.0f}"


def _page(
    used: dict[str, Operations], compared: Sequence[dict[str, Any]], scaling: Sequence[dict[str, Any]], pictures: Sequence[str]
) -> str:
    one, many = at_bits(compared, "sums", 16), at_bits(compared, "sums", 10)
    product = at_bits(compared, "products", 10)
    sfe1, sfe2 = many["alice"] + many["bob"], product["alice"] + product["bob"]
    per_run = [[f"{row['N']:,}", *(f"{row[scheme]:.3g}" for scheme in SCHEMES)] for row in scaling]
    whole = scaling[-1]
    known, unknown = posterior(20, 100, keep=0.5), posterior(20, 100, bob_items=100)
    stars = [
        ["paper, operations in seconds", f"{crossover(PAPER, PAPER_SFE1, PAPER_SFE2):,.1f}"],
        [
            "paper, operations in milliseconds",
            f"{crossover(Operations(0.0011, 0.0016, 0.00015), PAPER_SFE1, PAPER_SFE2):,.0f}",
        ],
        *([f"ours, {name}", _star(crossover(own, sfe1, sfe2))] for name, own in used.items()),
    ]
    parts = [
        "<h1>Kikuchi et al. 2011, regenerated</h1>",
        "<p>CPU seconds of both parties in one process; Paillier with the paper's 1,024-bit modulus, which is too small for "
        "use. Figure 3 scales measured costs per identifier.</p>",
        "<h2>Operations, seconds</h2>",
        _table(
            ["", "encrypt", "decrypt", "power"],
            [
                ["paper (no unit given)", *(f"{value:g}" for value in _fields(PAPER))],
                *([name, *(f"{value:.2g}" for value in _fields(own))] for name, own in used.items()),
            ],
        ),
        "<h2>Table 3: SFE1, 16 bits, seconds</h2>",
        _table(["", "Alice", "Bob"], [["paper", "0.80", "0.82"], ["ours", f"{one['alice']:.2g}", f"{one['bob']:.2g}"]]),
        "<h2>Table 4: comparison at 10 bits, seconds</h2>",
        _table(
            ["circuit", "paper's fit", "paper", "ours", "AND gates"],
            [
                ["SFE1 (addition)", "0.97 + 0.106 x", "2.03", f"{sfe1:.2g}", str(many["and_gates"])],
                ["SFE2 (multiplication)", "1.77 + 0.003 e^(0.89 x)", "23.76", f"{sfe2:.2g}", str(product["and_gates"])],
            ],
        ),
        "<p>A multiplication circuit grows with the square of the width: the paper's exponential fit is one of its tool.</p>",
        "<h2>Table 5: the schemes</h2>",
        _table(
            ["", "scalar product", "distorted intersection", "joined_sums"],
            [
                ["input", "N-dimensional binary vectors", "sets of n identifiers", "sets of n identifiers"],
                [
                    "cost of all counts",
                    "values x classes x (t_E N + t_D)",
                    "values x classes x 2 t_P n",
                    "one run, linear in n",
                ],
                ["answer", "exact", f"binomial error, e.g. +-{error(1000, 0.5):.0f} at z = 1,000, p = 0.5", "exact"],
                [
                    "Alice learns",
                    "nothing",
                    f"a thinned size each time: of {math.log2(101):.1f} bits {entropy(known):.1f} are left (n = 100, s_A = 20) "
                    f"if she knew p, {entropy(unknown):.1f} as she does not",
                    "nothing but padded sizes",
                ],
            ],
        ),
        "<h2>Crossover N*</h2>",
        _table(["", "N*"], stars),
        "<p>With circuits that take milliseconds N* is small where an encryption is dearer than 2 alpha powers, and does not "
        "exist where it is not: here encryption uses tables of a fixed base, which a power of any element cannot.</p>",
        f"<h2>Figure 3: seconds against N, density {DENSITY}</h2>",
        _table(["N", *SCHEMES.values()], per_run),
        f"<p>All counts at N = {whole['N']:,}: distorted intersections {all_counts(whole['distorted']):,.0f} s, joined_sums "
        f"{whole['joined']:,.0f} s.</p>",
        *(f'<p><img src="{name}" alt="{name}" width="700"></p>' for name in pictures),
    ]
    style = "<style>body{font:15px sans-serif;max-width:60em;margin:2em auto}td,th{padding:.2em .8em;text-align:left}</style>"
    return f"<!doctype html><meta charset=utf-8><title>Kikuchi et al. 2011</title>{style}\n" + "\n".join(parts) + "\n"
