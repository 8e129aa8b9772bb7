"""Huai et al. 2015: Figure 1 (a) and (b), Algorithm 1 as printed and corrected, and the attacks on the printed encryption.

`reproduce(folder)` writes figure1a.csv, figure1b.csv, algorithm1.csv, attacks.csv, decryption.csv, the plots, and index.html
with the paper's statements beside ours. The paper averages 2,000 runs and prints no numbers, only curves; the standard
errors here are in the CSV.
"""

from __future__ import annotations

import html
import importlib.util
import pathlib
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes_papers import REFERENCES
from blindbayes_papers.huai2015.attacks import Attack, Decryption, counts_from_products, decryption_times, run_attacks
from blindbayes_papers.huai2015.columns import COLUMN_METHODS, column_figure
from blindbayes_papers.huai2015.figure import DELTA, EPSILONS, METHODS, READINGS, Churn, Point, Table, churn, figure, load_car
from blindbayes_papers.huai2015.primitives.joye_libert import deal_modulus
from blindbayes_papers.pages import document, pyplot, table, write_page, write_records
from blindbayes_papers.quotations import quote

PARTIES = (200, 400, 600, 800, 1000, 1200, 1400, 1600, 1728)
RUNS = 2000
SHORT = (
    "Figure 1 (a) has 3 of 9 numbers of parties, (b) 3 of 6, both with fewer runs per point; Algorithm 1 takes 1,000 steps in "
    "place of 10,000; our keys have 2,048 bits, and sums above 2^20 are left out."
)
VERTICAL_TITLES = {name: method.title for name, method in COLUMN_METHODS.items()}


def reproduce(out: pathlib.Path, *, quick: bool = False) -> pathlib.Path:
    """Measure, plot and write the page; return its path."""
    out.mkdir(parents=True, exist_ok=True)
    car = load_car()
    points = figure(car, (400, 1000, 1728) if quick else PARTIES, 10 if quick else RUNS)
    vertical = column_figure(car, (1, 3, 6) if quick else tuple(range(1, 7)), 40 if quick else RUNS)
    churns = [churn(reading, start, 1000 if quick else 10_000) for start in (5, 10, 100) for reading in READINGS]
    our_bits = 2048 if quick else 3072
    attacks = run_attacks(Coins.system(), prime_bits=1024, our_bits=our_bits)
    asked = products(car)
    sizes = (8, 16, 20) if quick else (8, 16, 20, 24, 28, 32)
    times = decryption_times(Coins.system(), sizes, deal_modulus(our_bits, Coins.system()))
    write_records(out / "figure1a.csv", points)
    write_records(out / "figure1b.csv", vertical)
    write_records(out / "algorithm1.csv", churns)
    write_records(out / "attacks.csv", attacks)
    write_records(out / "decryption.csv", times)
    pictures = []
    if importlib.util.find_spec("matplotlib"):
        titles = {name: method.title for name, method in METHODS.items()}
        text = "Figure 1 (a): SNB and HDPNB on Car Evaluation"
        pictures.append(_plot(points, titles, text, "parties, one sample each", out / "figure1a.png"))
        text = "Figure 1 (b): SNB and VDPNB on Car Evaluation"
        pictures.append(_plot(vertical, VERTICAL_TITLES, text, "parties, one attribute each", out / "figure1b.png"))
    page = _page(points, vertical, churns, attacks, asked, times, pictures, our_bits)
    return write_page(out / "index.html", page, SHORT if quick else "")


def products(car: Table) -> tuple[int, int, int]:
    """Section 5.4 with ideal encryption: counts read from products of counts. Returns (read, all counts, products asked)."""
    read = cells = asked = 0
    cuts = np.cumsum((1, *car.sizes))
    for label in range(car.classes):
        counts = car.columns[car.labels == label].sum(axis=0).astype(int)
        truth = [counts[low:high].tolist() for low, high in pairwise(cuts)]

        def product(query: Sequence[int], truth: list[list[int]] = truth) -> int:
            total = 1
            for values, at in zip(truth, query, strict=True):
                total *= values[at]
            return total

        guesses, needed = counts_from_products(product, car.sizes, int(counts[0]))
        asked += needed
        cells += sum(car.sizes)
        read += sum(a == b for mine, theirs in zip(guesses, truth, strict=True) for a, b in zip(mine, theirs, strict=True))
    return read, cells, asked


def _plot(points: list[Point], titles: Mapping[str, str], text: str, parties: str, path: pathlib.Path) -> str:
    """One panel per epsilon, accuracy against the number of parties. Returns the file's name."""
    plt = pyplot()
    grid, panels = plt.subplots(2, 2, figsize=(10, 8.5), sharex=True, sharey=True)
    for axes, epsilon in zip(panels.flat, EPSILONS, strict=True):
        for name, title in titles.items():
            line = [point for point in points if point.method == name and point.epsilon == epsilon]
            axes.errorbar(
                [point.parties for point in line],
                [point.accuracy for point in line],
                [2 * point.standard_error for point in line],
                color=f"C{list(METHODS).index(name)}",  # the same method, the same colour in (a) and (b)
                marker="o",
                markersize=3,
                label=title,
            )
        axes.set_title(f"epsilon = {epsilon}")
        axes.set_xlabel(parties)
        axes.set_ylabel("accuracy, ten-fold")
    handles, labels = panels.flat[-1].get_legend_handles_labels()
    grid.legend(handles, labels, loc="lower center", ncols=2, fontsize=10)
    grid.suptitle(text)
    grid.tight_layout(rect=(0, 0.1, 1, 1))
    grid.savefig(path, dpi=100)
    plt.close(grid)
    return path.name


def _point_rows(points: list[Point], titles: Mapping[str, str]) -> list[list[str]]:
    return [
        [str(one.parties), str(one.epsilon), titles[one.method], f"{one.accuracy:.4f}", f"{one.standard_error:.4f}"]
        for one in points
    ]


def _page(
    points: list[Point],
    vertical: list[Point],
    churns: list[Churn],
    attacks: list[Attack],
    asked: tuple[int, int, int],
    times: list[Decryption],
    pictures: list[str],
    our_bits: int,
) -> str:
    largest = max(point.parties for point in points)

    def at(method: str, epsilon: float) -> float:
        return next(one.accuracy for one in points if (one.method, one.epsilon, one.parties) == (method, epsilon, largest))

    def span(method: str) -> str:
        return ", ".join(f"{at(method, epsilon):.3f}" for epsilon in EPSILONS)

    split = max(point.parties for point in vertical)

    def across(method: str) -> str:
        accuracies = {one.epsilon: one.accuracy for one in vertical if (one.method, one.parties) == (method, split)}
        return ", ".join(f"{accuracies[epsilon]:.3f}" for epsilon in EPSILONS)

    broken = {one.attack: f"{one.read} of {one.tried}" for one in attacks if one.scheme != "ours"}
    plain = {one.parties: one.accuracy for one in points if one.method == "snb"}
    hdpnb = [one for one in points if one.method == "printed"]
    better = sum(one.accuracy > plain[one.parties] for one in hdpnb)
    statements = [
        [
            "accuracy of HDPNB against SNB",
            quote("huai2015", "accuracy"),
            f"at {largest} parties and epsilon {', '.join(map(str, EPSILONS))}: SNB {at('snb', 0.1):.3f}; with one copy of the "
            f"noise, as the text has it, {span('one_copy')}: comparable from epsilon 0.2 on; with beta = ln(1/delta) / "
            f"(gamma n) at gamma = 1 (Definition 3 prints 1 / gamma^n, under which every party adds a whole copy; we read "
            f"gamma n, as Shi et al. have it), and delta = {DELTA:g}, {span('printed')}; better than SNB in {better} of "
            f"{len(hdpnb)} points. Either gives a record epsilon for each of the 7 counts it touches, so 7 epsilon in all (14 "
            "if a record is replaced, as 5.1 has sensitivity). At the stated epsilon and delta: the paper's mechanism "
            f"{span('composed')}; ours {span('ours')}",
        ],
        [
            "accuracy of VDPNB against SNB",
            quote("huai2015", "larger_epsilon"),
            f"at {split} parties with one attribute each and epsilon {', '.join(map(str, EPSILONS))}: SNB "
            f"{across('snb').split(',')[0]}; as printed {across('printed')}. One person stands in all n tables, so its loss is "
            f"n epsilon, and the class counts are open besides. At the stated epsilon: the paper's mechanism, class counts "
            f"still open, {across('composed')}; ours, class counts noisy too, {across('ours')}",
        ],
        [
            "noise in a count",
            f"{quote('huai2015', 'one_copy')}; {quote('huai2015', 'beta')}",
            "ln(1/delta) = 13.8 copies at delta = 1e-6 and gamma = 1 (the paper prints no delta; 3.0 copies at 0.05); Polya "
            "shares add up to exactly one",
        ],
        [
            "Algorithm 1: every u in (n/2, n] after any join or leave",
            quote("huai2015", "views"),
            f"as printed the invariant breaks in up to {100 * max(one.violated for one in churns):.0f}% of the steps; "
            f"corrected (one possible reading: the leaver's view is handed on) in none of {churns[0].steps:,}. "
            "The table below has every reading",
        ],
        [
            "Theorem 2: at most twice the noise",
            quote("huai2015", "theorem_2"),
            f"corrected: between {min(one.min_copies for one in churns if one.reading == 'corrected'):.2f} and "
            f"{max(one.max_copies for one in churns if one.reading == 'corrected'):.2f} copies",
        ],
        [
            "encryption (1 + xp) H(t)^sk with a prime p",
            quote("huai2015", "encryption"),
            f"one known plaintext reads {broken['known plaintext']} others; two ciphertexts and no known plaintext read "
            f"{broken['no known plaintext']}; a repeated label gives differences without any key",
        ],
        [
            "time to decrypt a sum",
            quote("huai2015", "decryption"),
            f"{min(one.milliseconds for one in times):.1f} to {max(one.milliseconds for one in times):.1f} ms; a table of "
            "schemes and ranges stands below",
        ],
        [
            "products n_ij H(t)^sk of the vertical variant",
            quote("huai2015", "products"),
            "falls to a dictionary, shows quadratic residues and zeros; and with ideal encryption the products themselves give "
            f"{asked[0]} of {asked[1]} counts of Car after {asked[2]} products",
        ],
    ]
    shown = {name: f'<img src="{name}" alt="{name}">' for name in pictures}
    absent = "<p>matplotlib is not installed: no plots.</p>"
    attack_rows = [[one.attack, one.scheme, f"{one.read} of {one.tried}", f"{one.seconds:.2f}"] for one in attacks]
    churn_rows = [
        [
            one.reading,
            str(one.start),
            f"{one.violated:.3f}",
            f"{one.too_little:.3f}",
            f"{one.min_copies:.3f} to {one.max_copies:.3f}",
            "never" if one.first is None else str(one.first),
        ]
        for one in churns
    ]
    decrypted = [
        [f"2^{bits}", *(f"{one.milliseconds:.1f}" for one in times if one.bits == bits)]
        for bits in dict.fromkeys(one.bits for one in times)
    ]
    rows_a = _point_rows(points, {name: method.title for name, method in METHODS.items()})
    rows_b = _point_rows(vertical, VERTICAL_TITLES)
    churn_head = [
        "reading",
        "parties at start",
        "steps broken",
        "steps with too little noise",
        "copies, least to most",
        "first broken",
    ]
    point_head = ["parties", "epsilon", "method", "accuracy", "standard error"]
    runs = max(one.runs for one in points)
    body = f"""<h1>Huai et al. 2015: Figure 1, Algorithm 1, and the encryption</h1>
<p>{html.escape(REFERENCES["huai2015"])}</p>
<p>Car Evaluation, ten folds, {runs} runs per point (the paper: 2,000, section 6.2). In (a) one sample per party and gamma = 1.
In (b) one attribute per party, all samples, and every choice of n of the six attributes equally often: the paper does not say
(6.2) which it takes. It does not print delta, its treatment of negative counts, or numbers behind its curves either; here
delta = {DELTA:g}, negative counts become 0, and alpha = 1. As printed, probabilities are divided by the noisy (in (b): the
public) class count; our estimator divides by the sum over the attribute's values, so that they are probabilities.</p>
<h2>The paper and ours</h2>{table(["what", "the paper", "here"], statements)}
<h2>Figure 1 (a)</h2>{shown.get("figure1a.png", absent)}
<h2>Figure 1 (b)</h2>{shown.get("figure1b.png", absent)}
<p>Ours is <code>noisy_histograms</code>: discrete Laplace noise of scale n / epsilon in every count, class counts from the
margins of the noisy histograms. n is the number of parties.</p>
<h2>Attacks</h2>
<p>Key sizes: the printed schemes 1,024 bits, ours {our_bits} bits. Against ours the quadratic residue is a coin toss, of
which the better of two guesses is shown. Seconds of CPU time, the victim's encryptions included.</p>
{table(["attack", "scheme", "read", "seconds"], attack_rows)}
<h2>Time to decrypt a sum, milliseconds</h2>
<p>The modulus has {our_bits} bits. ristretto255, the default here, has no dealer; its time grows with the
square root of the range.</p>
{table(["totals up to", *dict.fromkeys(one.scheme for one in times)], decrypted)}
<h2>Algorithm 1</h2>
<p>Copies: the sum of 1/u over the parties; below 1 the noise is less than privacy needs.</p>
{table(churn_head, churn_rows)}
<h2>All points of Figure 1 (a)</h2>
{table(point_head, rows_a)}
<h2>All points of Figure 1 (b)</h2>
<p>The standard error is that of the noise: choices of attributes and folds are the same for all methods.</p>
{table(point_head, rows_b)}"""
    return document("Huai et al. 2015, reproduced", body)
