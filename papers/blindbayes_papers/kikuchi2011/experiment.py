"""Kikuchi et al. 2011: Tables 3 to 5, Figures 2 and 3 and the crossover N*, theirs beside ours.

`reproduce(folder)` writes operations.csv, comparisons.csv (Tables 3 and 4, Figure 2), measured.csv and scaling.csv (Figure 3),
changed.csv (how often thinned sizes change the class), figure2.png, figure3.png and posterior.png where matplotlib is
installed, and index.html. Times are CPU seconds of both parties in one process. Lines of Figure 3 are measured costs scaled
linearly; what was run is in measured.csv and marked in the figure.
"""

from __future__ import annotations

import importlib.util
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blindbayes.crypto.coins import Coins
from blindbayes.protocols.private_join.sums.roles import MIN_BOUND
from blindbayes_papers.kikuchi2011 import measure
from blindbayes_papers.kikuchi2011 import page as written
from blindbayes_papers.kikuchi2011.distorted_intersection.comparison import ComparisonSetup
from blindbayes_papers.kikuchi2011.formulas import (
    ATTRIBUTES,
    CLASSES,
    DENSITY,
    PAPER,
    PAPER_MILLISECONDS,
    PAPER_SFE1,
    PAPER_SFE2,
    PRINTED,
    TABLES,
    VALUES,
    all_counts,
    at_bits,
    crossover,
)
from blindbayes_papers.kikuchi2011.measure import Operations
from blindbayes_papers.kikuchi2011.set_intersection import RISTRETTO, SAFE_PRIME
from blindbayes_papers.pages import write_csv, write_page

SHORT = (
    "Figure 2 has 3 of 11 widths, each measured twice; costs grow from smaller sets, those of joined_sums from one size; "
    "changes of class are counted in 200 trials in place of 4,000."
)


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds per row or identifier, measured at the sizes in `points`."""

    scalar: float  # per row
    printed: float  # per row, encryption as the paper has it
    decrypt: float
    alice_roots: float  # polynomials, per identifier of Alice
    bob_roots: float  # and of Bob
    prime: float  # distorted intersection, per identifier of one of the two sets
    point: float
    joined: float
    smallest: float  # joined_sums at the smallest padded size
    points: tuple[tuple[str, int, float], ...]  # scheme, size, seconds, as run

    def one(self, whole: int, sfe1: float, sfe2: float) -> dict[str, float]:
        """One count and one comparison at N, n = 0.03 N; joined_sums: all counts."""
        own = DENSITY * whole
        return {
            "scalar_printed": self.printed * whole + self.decrypt + sfe1,
            "scalar": self.scalar * whole + self.decrypt + sfe1,
            "polynomial": (self.alice_roots + self.bob_roots) * own,
            "distorted_prime": self.prime * own + sfe2,
            "distorted": self.point * own + sfe2,
            "joined": max(self.smallest, self.joined * own),
        }

    def every(self, whole: int) -> dict[str, float]:
        """All counts. What Alice encrypts for a value serves every class; an attribute's sets hold each identifier once."""
        own, pairs = DENSITY * whole, VALUES * CLASSES
        return {
            "scalar_printed": VALUES * self.printed * whole + pairs * self.decrypt,
            "scalar": VALUES * self.scalar * whole + pairs * self.decrypt,
            "polynomial": (ATTRIBUTES * self.alice_roots + VALUES * self.bob_roots) * own,
            "distorted_prime": all_counts(self.prime * own),
            "distorted": all_counts(self.point * own),
            "joined": max(self.smallest, self.joined * own),
        }


def reproduce(out: pathlib.Path, *, quick: bool = False) -> pathlib.Path:
    """Measure, plot and write the page; return its path."""
    out.mkdir(parents=True, exist_ok=True)
    coins = Coins.system()
    key = measure.paper_key(coins)
    printed, tables, decrypt = measure.paillier_seconds(key, coins)
    powers = {group.name: measure.power_seconds(group, coins) for group in (SAFE_PRIME, RISTRETTO)}
    used = {
        (how, group): Operations(encrypt, decrypt, power)
        for how, encrypt in ((PRINTED, printed), (TABLES, tables))
        for group, power in powers.items()
    }
    compared = _comparisons(coins, 2 if quick else 40, quick)
    costs = _costs(key, printed, decrypt, coins, quick)
    sfe1, sfe2 = (sum(at_bits(compared, kind, 10)[who] for who in ("alice", "bob")) for kind in ("sums", "products"))
    fine = [round(10 ** (step / 8)) for step in range(8, 65)]
    one, every = (
        [{"N": float(whole), **cost(whole)} for whole in fine]
        for cost in (lambda whole: costs.one(whole, sfe1, sfe2), costs.every)
    )
    write_csv(
        out / "operations.csv",
        ["encryption", "group", "encrypt", "decrypt", "power"],
        [[*names, own.encrypt, own.decrypt, own.power] for names, own in used.items()],
    )
    write_csv(out / "comparisons.csv", list(compared[0]), [list(row.values()) for row in compared])
    write_csv(out / "measured.csv", ["scheme", "size", "seconds"], costs.points)
    write_csv(
        out / "scaling.csv",
        [*one[0], *(f"all_{name}" for name in every[0] if name != "N")],
        [[*row.values(), *list(whole.values())[1:]] for row, whole in zip(one[::8], every[::8], strict=True)],
    )
    stars = _stars(used, sfe1, sfe2)
    trials = 200 if quick else 4000
    changed = {
        (attributes, rows): measure.changed_classes(attributes, rows, trials)
        for attributes in (1, 5, 10)
        for rows in (100, 1000, 10_000)
    }
    write_csv(out / "changed.csv", ["attributes", "rows", "changed"], [[*case, share] for case, share in changed.items()])
    there = importlib.util.find_spec("matplotlib") is not None
    if there:
        written.draw(out, compared, one, every, costs.points)
    page = written.page(used, compared, one[::8], every[::8], stars, changed, pictures=there)
    return write_page(out / "index.html", page, SHORT if quick else "")


def _stars(used: Mapping[tuple[str, str], Operations], sfe1: float, sfe2: float) -> list[tuple[str, float]]:
    words = {PRINTED: "encryption as printed", TABLES: "encryption with tables"}
    return [
        ("paper, operations in seconds", crossover(PAPER, PAPER_SFE1, PAPER_SFE2)),
        ("paper, operations in milliseconds", crossover(PAPER_MILLISECONDS, PAPER_SFE1, PAPER_SFE2)),
        *((f"ours, {words[how]}, {group}", crossover(own, sfe1, sfe2)) for (how, group), own in used.items()),
    ]


def _comparisons(coins: Coins, repeat: int, quick: bool) -> list[dict[str, Any]]:
    ready = measure.link(coins)
    rows = []
    for bits in (4, 10, 16) if quick else (2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 32):
        for kind in ("sums", "products"):
            alice, bob = measure.comparison_seconds(kind, bits, ready, coins, repeat)
            gates = ComparisonSetup(kind, 2, bits, bits).gates()
            rows.append({"kind": kind, "bits": bits, "alice": alice, "bob": bob, "and_gates": gates})
    return rows


def _costs(key: Any, printed: float, decrypt: float, coins: Coins, quick: bool) -> Costs:
    """Every scheme at two sizes; the larger one gives the cost per row or identifier."""
    scalar_sizes, root_sizes, group_sizes = ((50, 200), (10, 20), (20, 50)) if quick else ((500, 5000), (50, 300), (200, 1000))
    points: list[tuple[str, int, float]] = []

    def last(scheme: str, measured: Sequence[tuple[int, float]]) -> float:
        points.extend((scheme, size, seconds) for size, seconds in measured)
        size, seconds = measured[-1]
        return seconds / size

    scalar = last("scalar", [(size, measure.scalar_seconds(key, size, coins)) for size in scalar_sizes])
    roots = [(size, measure.polynomial_seconds(key, size, coins)) for size in root_sizes]
    last("polynomial", [(size, first + second) for size, (first, second) in roots])
    size, (first, second) = roots[-1]
    prime = last("distorted_prime", [(n, measure.distorted_seconds(n, coins, SAFE_PRIME)) for n in group_sizes])
    point = last("distorted", [(n, measure.distorted_seconds(n, coins, RISTRETTO)) for n in group_sizes])
    joined_sizes = (MIN_BOUND,) if quick else (MIN_BOUND, 100_000)
    joined = last("joined", [(n, measure.joined_seconds(n, VALUES, CLASSES, coins)) for n in joined_sizes])
    smallest = next(seconds for scheme, _, seconds in points if scheme == "joined")
    return Costs(scalar, printed, decrypt, first / size, second / size, prime, point, joined, smallest, tuple(points))
