"""Zafarani and Clifton 2020, regenerated: accuracy against epsilon, theirs beside ours (Figures 4 to 12 and our table).

Their 1940 census extracts cannot be had; synthetic censuses of the same sizes stand in for Figures 8, 9, 11 and 12. Curves of
published methods are drawn at the epsilon those methods *claim*: two of them do not keep it (the page says by how much).
"""

from __future__ import annotations

import html
import importlib.util
import itertools
import logging
import math
import pathlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.naive_bayes.private import PrivateNaiveBayes
from blindbayes_papers import REFERENCES
from blindbayes_papers.datasets import local_path
from blindbayes_papers.pages import document, images, pyplot, table, write_csv, write_page, write_records
from blindbayes_papers.zafarani2020.data import STATES, Rows, load_rows, synthetic_census
from blindbayes_papers.zafarani2020.losses import true_losses
from blindbayes_papers.zafarani2020.methods import (
    DELTA,
    Bins,
    Model,
    Printed,
    Sums,
    Table,
    majority,
    plain,
    printed_variance_bound,
    vaidya,
)
from blindbayes_papers.zafarani2020.smooth import plan_parameters, variance_sensitivity

_log = logging.getLogger(__name__)
Codes = npt.NDArray[np.int64]
SHORT = (
    "One iteration of 3 folds in place of five of ten; synthetic censuses of a fiftieth of the size; the comparison with other "
    "joint releases on 3 of 9 tables and 5 of 20 splits."
)
EPSILONS = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0)
FIGURES = {"4": "adult", "5": "mushroom", "6": "seeds", "7": "skin"}
CENSUS_FIGURES = {"8": "Wyoming", "9": "Nevada", "11": "Oregon", "12": "Washington"}
ALLOCATIONS = ((1, 2), (1, 1), (2, 1), (4, 1))
TABLE = ("seeds", "iris", "pima", "wdbc", "dermatology", "car", "mushroom", "adult", "skin")
_TEST_ROWS = 5000
_SMOOTH_ROWS = 60_000
Simulated = Callable[[Table, Codes, float, np.random.Generator], Model]


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a figure: mean accuracy over iterations of ten-fold cross-validation, and its spread over them."""

    figure: str
    dataset: str
    method: str
    epsilon: float
    accuracy: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ours against the best of the other methods, paired over splits. `methods` is "pure" or "(epsilon, delta)"."""

    dataset: str
    privacy: str
    epsilon: float
    ours: float
    best: str
    theirs: float
    difference: float
    standard_error: float

    @property
    def verdict(self) -> str:
        """Better or worse by more than two standard errors, or neither."""
        if abs(self.difference) <= 2 * self.standard_error:
            return "same"
        return "better" if self.difference > 0 else "worse"


# -- running -----------------------------------------------------------------------------------------------------------------


def our_accuracies(rows: Rows, epsilon: float, delta: float, folds: Sequence[tuple[Codes, Codes, Codes]]) -> list[float]:
    """Fit `PrivateNaiveBayes` as a user does, fold by fold. It takes no seed: figures differ from run to run by the noise."""
    target = rows.codebook.target
    accuracies = []
    for train, test, _ in folds:
        model = PrivateNaiveBayes(rows.codebook, epsilon=epsilon, delta=delta, expected_rows=len(train))
        with warnings.catch_warnings():  # the figures go down to an epsilon that drowns small tables
            warnings.filterwarnings("ignore", "the noisy counts are no larger than their noise")
            model.fit(rows.frame.take(train))
        left_out = rows.frame.take(test)
        labels = left_out.column(target).to_numpy(zero_copy_only=False).astype(str)
        accuracies.append(float((model.predict(left_out.drop_columns([target])).astype(str) == labels).mean()))
    return accuracies


def smooth_accuracies(
    rows: Rows, epsilon: float, folds: Sequence[tuple[Codes, Codes, Codes]], seed: int, allocation: tuple[int, int] = (2, 1)
) -> list[float]:
    """The corrected smooth mechanism of the package, fold by fold."""
    plan = plan_parameters(rows.codebook, epsilon=epsilon, allocation=allocation)
    accuracies = []
    for at, (train, test, _) in enumerate(folds):
        stem = f"smooth {rows.name} {epsilon} {allocation} {seed} {at}"
        coins = Coins.seeded(bytes(32)).derive(stem)
        parameters = plan.fit(rows.block.take(train), coins)
        there = rows.block.take(test)
        accuracies.append(float((parameters.joint_log_likelihood(there).argmax(axis=1) == there.labels).mean()))
    return accuracies


def _folds(count: int, seed: int, folds: int = 10) -> list[tuple[Codes, Codes, Codes]]:
    order = np.random.default_rng(seed).permutation(count)
    cuts = np.linspace(0, count, folds + 1).astype(int)
    out = []
    for low, high in itertools.pairwise(cuts):
        left_out = order[low:high]
        out.append((np.concatenate([order[:low], order[high:]]), left_out[:_TEST_ROWS], left_out))
    return out


def _splits(count: int, splits: int) -> list[tuple[Codes, Codes, Codes]]:
    """Random 70/30 splits."""
    out = []
    for seed in range(splits):
        order = np.random.default_rng(seed).permutation(count)
        cut = int(0.7 * count)
        out.append((order[:cut], order[cut:][:_TEST_ROWS], order[cut:]))
    return out


def _simulated(
    table: Table, method: Simulated, folds: Sequence[tuple[Codes, Codes, Codes]], seed: int
) -> dict[float, list[float]]:
    """Accuracy by epsilon; the folds outside, so that counts of a fold are made once."""
    accuracies: dict[float, list[float]] = {epsilon: [] for epsilon in EPSILONS}
    for at, (train, test, _) in enumerate(folds):
        for epsilon in EPSILONS:
            generator = np.random.default_rng([seed, at, round(1000 * epsilon)])
            accuracies[epsilon].append(method(table, train, epsilon, generator).accuracy(table, test))
    return accuracies


def figure(name: str, rows: Rows, *, iterations: int, quick: bool) -> Iterator[Point]:
    """The points of one of the paper's figures, with ours."""
    table = rows.table()
    runs: dict[tuple[str, float], list[float]] = {}

    def add(method: str, accuracies: dict[float, list[float]]) -> None:
        for epsilon, values in accuracies.items():
            runs.setdefault((method, epsilon), []).append(float(np.mean(values)))

    printed, defined = Printed(), Printed(by_definition=True)
    for seed in range(iterations):
        folds = _folds(rows.size, seed)
        if quick:
            folds = folds[:3]
        flat = [majority(table, train, test) for train, test, _ in folds]
        add("majority class", dict.fromkeys(EPSILONS, flat))
        base = [plain(table, train, 1.0, np.random.default_rng(0)).accuracy(table, test) for train, test, _ in folds]
        add("not private", dict.fromkeys(EPSILONS, base))
        add("Vaidya et al. 2013, claimed epsilon", _simulated(table, vaidya, folds, seed))
        add("as printed, claimed epsilon", _simulated(table, printed, folds, seed))
        add("by its Definition 8, claimed epsilon", _simulated(table, defined, folds, seed))
        few = folds if rows.size <= _SMOOTH_ROWS else folds[:1]  # one fold of millions of rows is as informative
        add("smooth, corrected", {e: smooth_accuracies(rows, e, few, seed) for e in EPSILONS})
        add("ours, pure", {e: our_accuracies(rows, e, 0.0, few) for e in EPSILONS})
        add(f"ours, delta = {DELTA:g}", {e: our_accuracies(rows, e, DELTA, few) for e in EPSILONS})
    for (method, epsilon), values in runs.items():
        yield Point(name, rows.name, method, epsilon, float(np.mean(values)), float(np.std(values)))


def allocations(rows: Rows, *, iterations: int, quick: bool) -> Iterator[Point]:
    """Figure 10: shares of the budget for numeric and categorical attributes, as printed and corrected."""
    table = rows.table()
    for allocation in ALLOCATIONS:
        words = f"{allocation[0]}:{allocation[1]}"
        runs: dict[tuple[str, float], list[float]] = {}
        for seed in range(iterations):
            folds = _folds(rows.size, seed)[: 2 if quick else 10]
            for epsilon, values in _simulated(table, Printed(allocation), folds, seed).items():
                runs.setdefault((f"as printed, {words}", epsilon), []).append(float(np.mean(values)))
            for epsilon in EPSILONS:
                values = smooth_accuracies(rows, epsilon, folds[:1] if quick else folds[:3], seed, allocation)
                runs.setdefault((f"corrected, {words}", epsilon), []).append(float(np.mean(values)))
        for (method, epsilon), means in runs.items():
            yield Point("10", rows.name, method, epsilon, float(np.mean(means)), float(np.std(means)))


def compare(rows: Rows, splits: int) -> Iterator[Comparison]:
    """Ours against the best of the other joint releases in hindsight: every bin count, sums and bins, on the same splits.

    The best is chosen by a run of its own with other noise: the best of fourteen by the same run would be chosen by its luck.
    """
    table, parts = rows.table(), _splits(rows.size, splits)
    numeric = table.numbers.shape[1] > 0
    others: dict[str, Simulated] = {}
    for bins in (4, 8, 16, 32) if numeric else (0,):
        for noise in ("laplace", "knorm", "gauss"):
            others[f"{bins} bins {noise}" if numeric else f"counts {noise}"] = Bins(noise, bins)
    if numeric:
        others |= {f"sums {noise}": Sums(noise) for noise in ("laplace", "knorm")}
    trial = {name: _simulated(table, method, parts, 100 + at) for at, (name, method) in enumerate(others.items())}
    accuracies = {name: _simulated(table, method, parts, at) for at, (name, method) in enumerate(others.items())}
    for privacy, delta in (("pure", 0.0), ("(epsilon, delta)", DELTA)):
        for epsilon in EPSILONS:
            mine = np.array(our_accuracies(rows, epsilon, delta, parts))
            allowed = [name for name in others if delta or not name.endswith("gauss")]
            best = max(allowed, key=lambda name: float(np.mean(trial[name][epsilon])))
            theirs = np.array(accuracies[best][epsilon])
            gap = mine - theirs
            error = float(gap.std(ddof=1) / math.sqrt(len(gap))) if len(gap) > 1 else math.inf
            yield Comparison(
                rows.name, privacy, epsilon, float(mine.mean()), best, float(theirs.mean()), float(gap.mean()), error
            )


def timings() -> list[tuple[str, int, float]]:
    """CPU seconds of the variance's smooth sensitivity: Theorem 7 as printed in O(n^2), and ours."""
    generator = np.random.default_rng(7)
    out = []
    for count, printed in ((500, True), (1000, True), (2000, True), (100_000, False), (1_700_000, False)):
        values = np.clip(generator.normal(0.1, 0.2, count), -1, 1)
        if printed:
            started = time.process_time()
            printed_variance_bound(np.sort(values), 1e-4, every=True)
            out.append(("as printed", count, time.process_time() - started))
        started = time.process_time()
        variance_sensitivity(np.sort(values), -1.0, 1.0, 1e-4)
        out.append(("ours", count, time.process_time() - started))
    return out


# -- writing -----------------------------------------------------------------------------------------------------------------


def reproduce(out: pathlib.Path, *, quick: bool = False) -> pathlib.Path:
    """Measure, plot and write the page; return its path."""
    out.mkdir(parents=True, exist_ok=True)
    iterations = 1 if quick else 5
    points: list[Point] = []
    left_out = [name for name in dict.fromkeys(FIGURES.values()) if quick and local_path(name) is None]
    for name, dataset in FIGURES.items():
        if dataset not in left_out:
            _log.info("figure %s: %s", name, dataset)
            points += figure(name, load_rows(dataset), iterations=iterations, quick=quick)
    if "adult" not in left_out:
        points += allocations(load_rows("adult"), iterations=iterations, quick=quick)
    for name, state in CENSUS_FIGURES.items():
        _log.info("figure %s: synthetic census, %s", name, state)
        rows = synthetic_census(state, STATES[state] // 50 if quick else None)
        points += figure(name, rows, iterations=iterations, quick=quick)
    comparisons: list[Comparison] = []
    for dataset in ("seeds", "iris", "car") if quick else TABLE:
        _log.info("comparison: %s", dataset)
        comparisons += compare(load_rows(dataset), 5 if quick else 20)
    timed = timings()
    write_records(out / "figures.csv", points)
    write_records(out / "comparison.csv", comparisons)
    write_csv(out / "timings.csv", ("method", "n", "cpu_seconds"), timed)
    pictures = plot(points, out) if importlib.util.find_spec("matplotlib") else []
    short = SHORT if quick else ""
    if left_out:
        short += f" Left out, since it is not on this machine and the quick form downloads nothing: {', '.join(left_out)}."
    return write_page(out / "index.html", _page(points, comparisons, timed, pictures), short)


_STYLES = {
    "majority class": ("0.6", ":", ""),
    "not private": ("0.2", "--", ""),
    "Vaidya et al. 2013, claimed epsilon": ("tab:orange", "-", "s"),
    "as printed, claimed epsilon": ("tab:red", "-", "v"),
    "by its Definition 8, claimed epsilon": ("tab:brown", "-", "P"),
    "smooth, corrected": ("tab:purple", "-", "d"),
    "ours, pure": ("tab:blue", "-", "o"),
    f"ours, delta = {DELTA:g}": ("tab:cyan", "-", "^"),
}


def plot(points: Sequence[Point], out: pathlib.Path) -> list[str]:
    """One picture per figure, in the paper's form: accuracy over epsilon with error bars over the iterations."""
    plt = pyplot()
    names = []
    for name in sorted({point.figure for point in points}, key=int):
        chosen = [point for point in points if point.figure == name]
        drawing, axes = plt.subplots(figsize=(7.2, 5.4), layout="constrained")
        colours = dict(
            zip((f"{a}:{b}" for a, b in ALLOCATIONS), ("tab:blue", "tab:orange", "tab:green", "tab:red"), strict=True)
        )
        for method in dict.fromkeys(point.method for point in chosen):
            line = [point for point in chosen if point.method == method]
            colour, style, marker = _STYLES.get(method, ("", "", ""))
            if not colour:
                colour, marker = colours[method.split(", ")[1]], "o"
                style = "-" if method.startswith("corrected") else "--"
            axes.errorbar(
                [point.epsilon for point in line],
                [point.accuracy for point in line],
                yerr=[point.deviation for point in line],
                label=method,
                color=colour,
                linestyle=style,
                marker=marker,
                markersize=4,
                linewidth=1.3,
                capsize=2,
            )
        axes.set_xscale("log")
        axes.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
        axes.minorticks_off()
        axes.set_xlabel("total epsilon")
        axes.set_ylabel("accuracy")
        axes.set_title(f"Figure {name}: {chosen[0].dataset}")
        axes.grid(visible=True, alpha=0.25)
        axes.legend(fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=3, frameon=False)
        path = f"figure{name}.png"
        drawing.savefig(out / path, dpi=110)
        plt.close(drawing)
        names.append(path)
    return names


_READINGS = {  # of the paper's mechanism, by how the page calls them: its curves
    "Theorems 4 and 7 to the letter": "as printed, claimed epsilon",
    "its Definition 8, class sizes fixed": "by its Definition 8, claimed epsilon",
    "corrected, at its true epsilon": "smooth, corrected",
}


def _wins(points: Sequence[Point]) -> dict[str, dict[str, tuple[int, int]]]:
    """Count the points of each figure that lie above those of Vaidya et al. 2013, and all points, reading by reading."""
    accuracies = {(one.method, one.figure, one.epsilon): one.accuracy for one in points}
    baseline = {at[1:]: accuracy for at, accuracy in accuracies.items() if at[0] == "Vaidya et al. 2013, claimed epsilon"}
    counted: dict[str, dict[str, tuple[int, int]]] = {}
    for figure in sorted({figure for figure, _ in baseline}, key=int):
        for words, method in _READINGS.items():
            shared = [at for at in baseline if at[0] == figure and (method, *at) in accuracies]
            ahead = sum(accuracies[method, *at] > baseline[at] for at in shared)
            counted.setdefault(figure, {})[words] = ahead, len(shared)
    return counted


def _claims(points: Sequence[Point]) -> list[list[str]]:
    """The paper's statements, one a row: what it says, what comes out here, why."""
    wins = _wins(points)
    counted = "; ".join(
        f"{words}: {sum(row[words][0] for row in wins.values())} of {sum(row[words][1] for row in wins.values())}"
        for words in _READINGS
    )
    return [
        [
            "smooth sensitivity beats the global sensitivity of Vaidya et al. 2013 (abstract)",
            "accuracy has improved significantly",
            f"points where it is ahead, by reading: {counted}. The next table has every figure",
            "the claim holds on large tables if sensitivities are those of Definition 8; the theorems as printed bound k "
            "changes instead of one, and none of these readings keeps the claimed epsilon but the corrected one",
        ],
        [
            "while preserving epsilon-differential privacy (abstract)",
            "epsilon",
            f"up to {max(loss.times for loss in true_losses()):.0f} times the claimed epsilon' in a step; see the losses below",
            "class sizes, the standard deviation and the scale of the noise (its smooth bound) are treated as public",
        ],
        [
            "beta (3.1 against Theorem 2)",
            "beta = epsilon in 3.1; at most epsilon / (2 (gamma + 1)) in Theorem 2",
            "epsilon' / 6 everywhere",
            "with beta = epsilon the noise would not be admissible; the theorem's value is the one that can be private",
        ],
        [
            "allocation of the budget between numbers and categories matters little (6.3)",
            "inconclusive but for 1:2",
            "figure 10 has four allocations, as printed and corrected",
            "",
        ],
    ]


_TABLE_1 = (  # as the paper prints it, and what stands for it here
    ("Adult", "48K", "14", "2", "48,842 rows, the file of UCI"),
    ("Mushroom", "8K", "22", "2", "8,124 rows"),
    ("Seed", "210", "7", "3", "210 rows"),
    ("Skin", "245K", "3", "2", "245,057 rows, 51,444 of them distinct: random folds repeat training rows"),
    ("Wyoming", "250K", "13", "2", "synthetic"),
    ("Nevada", "110K", "13", "2", "synthetic"),
    ("Washington", "1.7M", "13", "2", "synthetic"),
    ("Oregon", "1M", "13", "2", "synthetic"),
)


def _page(
    points: Sequence[Point],
    comparisons: Sequence[Comparison],
    timed: Sequence[tuple[str, int, float]],
    pictures: Sequence[str],
) -> str:
    worse = [row for row in comparisons if row.verdict == "worse"]
    better = [row for row in comparisons if row.verdict == "better"]
    datasets = list(dict.fromkeys(row.dataset for row in comparisons))
    accuracy_rows = []
    for dataset in datasets:
        for privacy in ("pure", "(epsilon, delta)"):
            line = [row for row in comparisons if row.dataset == dataset and row.privacy == privacy]
            mark = {"better": " +", "worse": " -", "same": ""}
            accuracy_rows.append([dataset, privacy, *(f"{row.ours:.3f} / {row.theirs:.3f}{mark[row.verdict]}" for row in line)])
    loss_rows = [(loss.error, loss.where, f"{loss.claimed:.3g}", f"{loss.times:.1f}") for loss in true_losses()]
    claims, tables = _claims(points), {point.figure: point.dataset for point in points}
    won = [
        [figure, tables[figure], *(f"{ahead} of {count}" for ahead, count in row.values())]
        for figure, row in _wins(points).items()
    ]
    figure_rows = [
        [point.figure, point.dataset, point.method, f"{point.epsilon:g}", f"{point.accuracy:.3f}", f"{point.deviation:.3f}"]
        for point in points
    ]
    body = f"""<h1>Differentially private Naive Bayes using smooth sensitivity</h1>
<p>{html.escape(REFERENCES["zafarani2020"])}</p>
<p>Accuracy against total epsilon, five times ten-fold with the spread over iterations as error bars, in the form of the paper's
figures. Bounds of numbers are declared from public knowledge, not read from the data, and are the same for every method.
Figures 8, 9, 11 and 12 are on <b>synthetic</b> censuses of the size of the paper's extracts, which cannot be had.
The curves of Vaidya et al. and of the paper as printed are drawn at the epsilon they claim (beta = epsilon' / 6); means are
held to the bounds and deviations to at least .05% of the range, a step that its Algorithm 1 lacks. Ours is <code>fit</code> and
<code>predict</code> of <code>PrivateNaiveBayes</code> as it is installed, with the number of training rows as
<code>expected_rows</code>; its noise has no seed, so its points differ a little from run to run. Seeds has 70 rows of each of
three classes: the largest class of a training part is the rarest of the test part, so its majority line lies below a third.</p>
<h2>The paper and here</h2>
{table(["claim", "the paper", "here", "why"], claims)}
<p>Points at which smooth sensitivity is ahead of Vaidya et al. 2013, by reading:</p>
{table(["figure", "table", *_READINGS], won, "numbers")}
<h2>Table 1 of the paper</h2>
{table(["dataset", "records, the paper", "attributes, the paper", "classes, the paper", "here"], _TABLE_1)}
<h2>What is wrong in print</h2>
<p>The privacy loss of its steps, computed: how many times the epsilon' that a step claims. Besides, replacing a record touches
two classes (histograms then have L1 sensitivity 2), and the interval [L, U] and empty classes are left undefined. Lines 20 to
23 of Algorithm 1 stand inside the loop over attributes: the class counts are released once per attribute and charged once, so
their loss is up to the number of attributes times what is claimed; S in line 21 is not defined.</p>
{table(["error", "where", "claimed epsilon'", "true loss / claimed"], loss_rows)}
<h2>Figures</h2>{images(pictures)}
<h2>PrivateNaiveBayes against the best joint release of others</h2>
<p>Each cell: ours / the best of Laplace, K-norm and Gaussian histograms with 4, 8, 16 or 32 bins and Gaussian sums, chosen
<i>in hindsight</i> for that cell by a run with other noise, on the same 70/30 splits.
+ and -: better or worse by more than two paired standard errors.
Better in {len(better)}, worse in {len(worse)} of {len(comparisons)}.</p>
{table(["dataset", "privacy", *(f"{epsilon:g}" for epsilon in EPSILONS)], accuracy_rows)}
<h2>Smooth sensitivity of the variance</h2>
{table(["method", "n", "CPU seconds"], [(name, f"{count:,}", f"{seconds:.4f}") for name, count, seconds in timed])}
<h2>All points</h2>{table(["figure", "table", "method", "epsilon", "accuracy", "spread"], figure_rows)}"""
    return document("Zafarani and Clifton 2020, regenerated", body, "@media(min-width:40rem){img{width:49%}}")
