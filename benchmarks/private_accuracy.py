"""Accuracy and calibration of private fits on many tables.

python benchmarks/private_accuracy.py [--part tuning|untouched|all] [--splits 10] [--draws 10] [--packages FOLDER]
    [--folder CSV_FOLDER] [--tree old=SOURCE_TREE] [--vary CONSTANT=VALUE] [--csv out.csv] [--predicted]

Each table is split --splits times into 70% to learn from and 30% to score; each split is counted once and released --draws
times. The share closed is (accuracy - majority) / (best - majority), best being the better of the plain model and one with
equally full cells, both without privacy, by their means over the splits. Beside it stand the area under the ROC curve, the
log-loss, also less that of the noisy class shares alone (Laplace noise for the same epsilon), and the expected calibration
error of the predicted class's probability, in ten equal bins over all splits and draws of a table. Standard errors are over
splits, so that they hold what the choice of rows and the noise do together. Means are printed for small tables (up to
`SMALL` rows) and larger ones apart. `--tree` measures another version of this package by its sources, `--vary` another value
of a tuned constant (`dp/release/constants.py`). `--predicted` compares what `blindbayes plan` predicts with what fits reach,
in place of all this: from a public sample (`--proxy`), a third of each table, and by a release of the private table itself
(`--private`); the rest of the table is private. Tables, and which of them are untouched: `_private_tables.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import importlib
import importlib.util
import json
import math
import os
import pkgutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small matrices: threads cost more than they save

import msgspec
import numpy as np
from _measured import Options
from _private_tables import Table, from_frame, part_of, sources

from blindbayes import statistics
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp import release
from blindbayes.dp.distributed.noisy_sum import NoisySum
from blindbayes.dp.release import constants, forecast
from blindbayes.dp.release.private_fit import plan_fit
from blindbayes.errors import BlindbayesError
from blindbayes.statistics.parameters import Parameters, estimate

EPSILONS = (0.1, 0.3, 1.0, 3.0)
DELTA = 1e-6
LEAST_GAP = 0.05
"""A table on which no model beats the majority class by this much says nothing about privacy."""
SMALL = 600
"""Rows of a table up to which it counts as small."""
BINS = 10
PREDICTIONS = 5
"""Releases on a public sample for each draw of a fit."""
MEASURES = ("accuracy", "auc", "log_loss", "beside_shares")
Scores = dict[Any, np.ndarray]  # (splits, draws, measures and then count, confidence and right answers of each bin)


def _accuracy(parameters: Parameters, block: Any) -> float:
    return float((parameters.joint_log_likelihood(block).argmax(axis=1) == block.labels).mean())


def _measured(scores: np.ndarray, labels: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Measures of joint log-likelihoods; `shares` are noisy class shares to compare the log-loss with."""
    log = scores - scores.max(axis=1, keepdims=True)
    log = log - np.log(np.exp(log).sum(axis=1, keepdims=True))
    answer = log.argmax(axis=1)
    right = answer == labels
    confidence = np.exp(log.max(axis=1))
    places = np.minimum((confidence * BINS).astype(int), BINS - 1)
    bins = np.stack([np.bincount(places, weight, minlength=BINS) for weight in (np.ones(len(labels)), confidence, right)], 1)
    loss = -float(log[np.arange(len(labels)), labels].mean())
    auc = forecast.Quality.measure(scores, labels).auc
    return np.concatenate([[right.mean(), auc, loss, loss + float(np.log(shares)[labels].mean())], bins.ravel()])


def _noisy_shares(labels: np.ndarray, classes: int, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    counts = np.maximum(np.bincount(labels, minlength=classes) + rng.laplace(0, 1 / epsilon, classes), 1.0)
    return np.asarray(counts / counts.sum())


def _calibration_error(found: np.ndarray) -> float:
    """Expected calibration error over all fits in `found`."""
    count, confidence, right = found[..., len(MEASURES) :].reshape(-1, BINS, 3).sum(axis=0).T
    return float(np.abs(confidence - right).sum() / count.sum())


def _splits(table: Table, splits: int) -> list[tuple[np.ndarray, np.ndarray]]:
    orders = [np.random.default_rng(1000 + split).permutation(table.block.rows) for split in range(splits)]
    cut = round(0.3 * table.block.rows)
    return [(order[cut:], order[:cut]) for order in orders]


@contextlib.contextmanager
def varied(settings: Sequence[str]) -> Iterator[None]:
    """Give tuned constants other values, NAME=VALUE, in every module that took them from the table."""
    modules = [importlib.import_module(f"{release.__name__}.{each.name}") for each in pkgutil.iter_modules(release.__path__)]
    before: list[tuple[Any, str, Any]] = []
    try:
        for setting in settings:
            name, text = setting.split("=", 1)
            old = getattr(constants, name)
            value = tuple(map(type(old[0]), text.split(","))) if isinstance(old, tuple) else type(old)(text)
            for module in modules:
                if getattr(module, name, None) is old:
                    before.append((module, name, old))
                    setattr(module, name, value)
        yield
    finally:
        for module, name, old in reversed(before):
            setattr(module, name, old)


# -- methods -----------------------------------------------------------------------------------------------------------------


def without_privacy(table: Table, train: np.ndarray, test: np.ndarray) -> tuple[float, float, float]:
    """Accuracy of the majority class, of the plain model, and of one that takes every number in equally full cells."""
    labels = table.block.labels
    most = float((labels[test] == np.bincount(labels[train]).argmax()).mean())
    count = statistics.count_block
    plain = _accuracy(estimate(count(statistics.Layout(table.codebook), table.block.take(train))), table.block.take(test))
    coded, book = _quantile_cells(table, train)
    cells = _accuracy(estimate(count(statistics.Layout(book), coded.take(train))), coded.take(test))
    return most, plain, cells


def _quantile_cells(table: Table, train: np.ndarray) -> tuple[Any, Codebook]:
    features, columns = [], {}
    cells = int(np.clip(round(len(train) ** (1 / 3)), 4, 20))
    for feature in table.codebook.features:
        codes = table.block.columns[feature.name]
        if isinstance(feature, Numeric) and feature.bins is None:
            present = codes != np.iinfo(np.int64).min
            known = codes[train][present[train]]
            edges = np.unique(np.quantile(known, np.arange(1, cells) / cells)) if len(known) else np.zeros(0)
            codes = np.where(present, np.searchsorted(edges, codes, side="right"), -1)
            feature = Categorical(feature.name, tuple(str(at) for at in range(len(edges) + 1)), optional=True)
        features.append(feature)
        columns[feature.name] = codes
    return statistics.CodedRows(table.block.labels, columns, table.block.rows), table.codebook.with_features(features)


def ours(table: Table, method: str, epsilons: tuple[float, ...], splits: int, draws: int) -> Scores:
    """The release of `PrivateNaiveBayes(epsilon=...)`: counted once per split, released `draws` times for every epsilon."""
    parts = _splits(table, splits)
    book = msgspec.structs.replace(table.codebook, expected_rows=None)
    rows = None if "undeclared" in method else len(parts[0][0])
    delta = DELTA if "delta" in method else 0.0
    plans = {each: plan_fit(book, epsilon=each, rows=rows, delta=delta, select_model=True) for each in epsilons}
    out: Scores = {(method, each): np.zeros((splits, draws, len(MEASURES) + 3 * BINS)) for each in epsilons}
    rng, classes = np.random.default_rng(11), len(book.classes)
    counted: dict[str, list[tuple[Any, Any]]] = {}
    for epsilon, found in plans.items():
        key = found.codebook.sha256
        if key not in counted:
            coded = forecast.in_cells(table.block, found.declared, found.codebook)
            layout = statistics.Layout(found.codebook)
            counted[key] = [
                (statistics.count_block(layout, coded.take(train)), coded.take(train), coded.take(test))
                for train, test in parts
            ]
        for split, (exact, there, test) in enumerate(counted[key]):
            for draw in range(draws):
                seed = f"{table.name} {split} {draw} {method} {epsilon}"
                coins = Coins.seeded(hashlib.sha256(seed.encode()).digest())
                parameters = found.fit(exact, there, coins).parameters
                shares = _noisy_shares(there.labels, classes, epsilon, rng)
                out[method, epsilon][split, draw] = _measured(parameters.joint_log_likelihood(test), test.labels, shares)
    return out


def sites(table: Table, method: str, epsilons: tuple[float, ...], splits: int, draws: int) -> Scores:
    """A study over the rows of three sites, of which two are honest: the same pooled rows, and noise in three shares."""
    out: Scores = {(method, each): np.zeros((splits, draws, len(MEASURES) + 3 * BINS)) for each in epsilons}
    book = msgspec.structs.replace(table.codebook, expected_rows=None)
    rng, classes, parts = np.random.default_rng(11), len(book.classes), _splits(table, splits)
    for epsilon in epsilons:
        plan = NoisySum.make(book, epsilon=epsilon, honest=2, parties=3, rows=len(parts[0][0]))
        coded = forecast.in_cells(table.block, book, plan.codebook)
        for split, (train, test) in enumerate(parts):
            exact = plan.vector(statistics.count_block(statistics.Layout(plan.codebook), coded.take(train))).astype(object)
            labels, there = coded.take(train).labels, coded.take(test)
            for draw in range(draws):
                seed = hashlib.sha256(f"{table.name} {split} {draw} {method} {epsilon}".encode()).digest()
                coins = Coins.seeded(seed)
                total = exact + sum(np.array(plan.noise.share(coins), dtype=object) for _ in range(3))
                parameters = plan.fit(total, shares=3, alpha=1.0)[0]
                shares = _noisy_shares(labels, classes, epsilon, rng)
                out[method, epsilon][split, draw] = _measured(parameters.joint_log_likelihood(there), there.labels, shares)
    return out


def counts(table: Table, method: str, epsilons: tuple[float, ...], splits: int, draws: int) -> Scores:
    """Histograms in equal cells, independent noise, max(0, .) + 1: what a textbook does. Floating point; utility only."""
    out: Scores = {(method, each): np.zeros((splits, draws, len(MEASURES) + 3 * BINS)) for each in epsilons}
    features = len(table.codebook.features)
    rng = np.random.default_rng(7)
    for epsilon in epsilons:
        signal = 0.7 * table.block.rows * epsilon / len(table.codebook.classes) / features
        cells = next((n for limit, n in ((4, 4), (16, 8), (64, 16)) if signal < limit), 32)
        book = table.codebook.with_features(
            Numeric(f.name, f.low, f.high, f.precision, bins=min(cells, f.width), optional=f.optional)
            if isinstance(f, Numeric) and f.bins is None
            else f
            for f in table.codebook.features
        )
        coded = forecast.in_cells(table.block, table.codebook, book)
        scale = (features + 1) / epsilon
        if method == "gauss":
            scale = math.sqrt(features + 1) * math.sqrt(2 * math.log(1.25 / DELTA)) / epsilon
        noise = rng.normal if method == "gauss" else rng.laplace
        for split, (train, test) in enumerate(_splits(table, splits)):
            exact = statistics.count_block(statistics.Layout(book), coded.take(train))
            there = coded.take(test)
            for draw in range(draws):
                own = np.maximum(exact.class_counts.astype(float) + noise(0, scale, len(book.classes)), 1)
                scores = np.tile(np.log(own), (len(test), 1))
                for name, table_ in exact.counts.items():
                    noisy = np.maximum(table_.astype(float) + noise(0, scale, table_.shape), 0) + 1
                    log = np.vstack([np.log(noisy / noisy.sum(axis=1, keepdims=True)).T, np.zeros(len(own))])
                    scores += log[there.columns[name]]
                out[method, epsilon][split, draw] = _measured(scores, there.labels, own / own.sum())
    return out


def predicted_less_measured(table: Table, epsilons: tuple[float, ...], splits: int, draws: int) -> np.ndarray:
    """Accuracy predicted from a public sample, and by a private forecast, less that of fits: (2, splits, epsilons)."""
    book, out = msgspec.structs.replace(table.codebook, expected_rows=None), np.zeros((2, splits, len(epsilons)))
    for split in range(splits):
        order = np.random.default_rng(2000 + split).permutation(table.block.rows)
        public, private = np.split(order, [table.block.rows // 3])
        train, test = np.split(private, [round((1 - forecast.TEST_SHARE) * len(private))])
        coins = Coins.seeded(hashlib.sha256(f"{table.name} {split} predicted".encode()).digest())
        plans = forecast.plan_fits(book, epsilons, rows=len(train))
        sample = forecast.forecast(plans, table.block.take(public), coins=coins, repetitions=PREDICTIONS * draws)
        released = forecast.private_forecast(book, epsilons=epsilons, rows=len(train)).run(table.block.take(train), coins)
        for at, plan in enumerate(plans):
            coded = forecast.in_cells(table.block, book, plan.codebook)
            exact = statistics.count_block(statistics.Layout(plan.codebook), coded.take(train))
            fits = [plan.fit(exact, coded.take(train), coins).parameters for _ in range(draws)]
            measured = np.mean([_accuracy(each, coded.take(test)) for each in fits])
            out[:, split, at] = sample.lines[at].mean - measured, released.lines[at].mean - measured
    return out


def diffprivlib(table: Table, method: str, epsilons: tuple[float, ...], splits: int, draws: int) -> Scores:
    """Its GaussianNB, where every column is a number without gaps."""
    from diffprivlib.models import GaussianNB

    values = np.column_stack([table.block.columns[name] for name in table.codebook.names]).astype(float)
    bounds, labels = (values.min(axis=0), values.max(axis=0)), table.block.labels
    out: Scores = {(method, each): np.zeros((splits, draws, len(MEASURES) + 3 * BINS)) for each in epsilons}
    rng, classes = np.random.default_rng(11), len(table.codebook.classes)
    for epsilon in epsilons:
        for split, (train, test) in enumerate(_splits(table, splits)):
            for draw in range(draws):
                model = GaussianNB(epsilon=epsilon, bounds=bounds).fit(values[train], labels[train])
                shares = _noisy_shares(labels[train], classes, epsilon, rng)
                scores = np.log(np.maximum(model.predict_proba(values[test]), 1e-300))
                out[method, epsilon][split, draw] = _measured(scores, labels[test], shares)
    return out


def _fits_diffprivlib(table: Table) -> bool:
    numbers = all(isinstance(each, Numeric) and not each.optional for each in table.codebook.features)
    return numbers and importlib.util.find_spec("diffprivlib") is not None


def other_tree(name: str, tree: str, options: argparse.Namespace) -> dict[str, Scores]:
    """The same tables, splits and draws by the sources of another version."""
    command = [sys.executable, __file__, "--worker", name, "--part", options.part, "--splits", str(options.splits)]
    command += ["--draws", str(options.draws), "--epsilons", options.epsilons, "--tables", options.tables]
    command += ["--most-rows", str(options.most_rows)]
    command += [f"--{key}={value}" for key in ("folder", "packages") if (value := getattr(options, key))]
    environment = {**os.environ, "PYTHONPATH": tree}
    lines = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.splitlines()
    found: dict[str, Scores] = {}
    for line in lines:
        entry = json.loads(line)
        found.setdefault(entry["table"], {})[name, entry["epsilon"]] = np.array(entry["measures"])
    return found


@dataclass(frozen=True)
class Line:
    """Measures of one method on one table at one epsilon."""

    table: str
    part: str
    rows: int
    method: str
    epsilon: float
    majority: float
    best: float
    accuracy: float
    share: float  # of the gap
    error: float  # standard error of the share
    auc: float
    log_loss: float
    beside_shares: float  # log-loss less that of the noisy class shares
    beside_error: float
    calibration_error: float
    gain: float  # accuracy less that of the majority class
    gain_error: float

    @classmethod
    def of(cls, table: Table, method: str, epsilon: float, found: np.ndarray, majority: np.ndarray, best: float) -> Line:
        """Average over draws and splits."""
        means = dict(zip(MEASURES, np.nanmean(found[..., : len(MEASURES)], axis=(0, 1)), strict=True))
        gain, beside = found[..., 0].mean(axis=1) - majority, found[..., 3].mean(axis=1)
        errors = [float(np.std(each, ddof=1)) / math.sqrt(len(each)) if len(each) > 1 else math.inf for each in (gain, beside)]
        gap = best - float(majority.mean())
        gap = gap if gap > 0 else math.nan
        return cls(
            table.name,
            part_of(table.name),
            table.block.rows,
            method,
            epsilon,
            float(majority.mean()),
            best,
            means["accuracy"],
            float(gain.mean()) / gap,
            errors[0] / gap,
            means["auc"],
            means["log_loss"],
            means["beside_shares"],
            errors[1],
            _calibration_error(found),
            float(gain.mean()),
            errors[0],
        )

    @property
    def below(self) -> bool:
        """Whether it is right less often than the majority class, beyond two standard errors."""
        return self.gain < -2 * self.gain_error - 1e-12


def _print_means(label: str, method: str, lines: list[Line], epsilons: tuple[float, ...]) -> None:
    """Print the means over tables: shares of those with a gap, the other measures of all."""
    rows: dict[str, list[str]] = {}
    tables = {line.table for line in lines}
    for epsilon in epsilons:
        own = [line for line in lines if line.epsilon == epsilon]
        counted = [line for line in own if line.best - line.majority >= LEAST_GAP]
        if not counted:
            continue
        error = math.sqrt(sum(line.error**2 for line in counted)) / len(counted)
        rows.setdefault("share, mean", []).append(f"{np.mean([line.share for line in counted]):.3f} ±{error:.3f}")
        rows.setdefault("share, median", []).append(f"{np.median([line.share for line in counted]):.3f}")
        for name in ("auc", "log_loss", "beside_shares", "calibration_error"):
            rows.setdefault(name, []).append(f"{np.nanmean([getattr(line, name) for line in own]):.3f}")
    for name, cells in rows.items():
        print(f"{len(tables):>4} tables, {label:<18}{name:<20}{method:<17}" + "".join(f"{cell:>14}" for cell in cells))


def _print_predictions(found: dict[str, tuple[int, np.ndarray]], epsilons: tuple[float, ...]) -> None:
    """Print mean differences of predicted and measured accuracy, signed and absolute, of small tables and larger ones."""
    print(
        f"{'predicted less measured accuracy: mean, mean of absolute differences':<70}" + "".join(f"{e:>16g}" for e in epsilons)
    )
    for label, small in (("all", None), (f"up to {SMALL} rows", True), ("larger", False)):
        own = [each for rows, each in found.values() if small is None or (rows <= SMALL) == small]
        for kind, name in enumerate(("public sample", "private forecast")):
            if own:
                away = np.array([each[kind].mean(axis=0) for each in own])
                off = np.array([np.abs(each[kind]).mean(axis=0) for each in own])
                cells = [f"{one:>+9.3f} {two:.3f}" for one, two in zip(away.mean(axis=0), off.mean(axis=0), strict=True)]
                print(f"{len(own):>4} tables, {label:<20}{name:<38}" + "".join(f"{cell:>16}" for cell in cells))


# -- the run -----------------------------------------------------------------------------------------------------------------


def _tables(options: argparse.Namespace) -> Any:
    only = set(options.tables.split(",")) - {""}
    for name, source in sources(options.folder, options.packages):
        if (only and name not in only) or (options.part != "all" and part_of(name) != options.part):
            continue
        if isinstance(source, str):
            print(f"{name}: left out, {source}", file=sys.stderr)
            continue
        try:
            table = from_frame(name, *source())
        except BlindbayesError as reason:  # names that no codebook takes
            print(f"{name}: left out, {reason}", file=sys.stderr)
            continue
        if table.block.rows <= options.most_rows:
            yield table


def main() -> None:
    """Print shares per table and their means, with standard errors."""
    parser = Options(__doc__)
    parser.add_argument("--part", choices=("tuning", "untouched", "all"), default="all")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--tables", default="", help="only these, separated by commas")
    parser.add_argument("--methods", default="ours,ours undeclared,ours delta,laplace,gauss,diffprivlib")
    parser.add_argument("--epsilons", default=",".join(map(str, EPSILONS)))
    parser.add_argument("--folder", type=Path, help="CSV files whose last column is the class")
    parser.add_argument("--packages", type=Path, help="where packages with tables were unpacked")
    parser.add_argument("--most-rows", type=int, default=35_000)
    parser.add_argument("--tree", action="append", default=[], help="name=sources of another version, measured too")
    parser.add_argument("--vary", action="append", default=[], help="NAME=VALUE of a tuned constant, for every method")
    parser.add_argument("--csv")
    parser.add_argument("--predicted", action="store_true", help="compare forecasts with fits")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="one small table, to see that it runs")
    options = parser.parse_args()
    if options.quick:
        options.tables, options.splits, options.draws, options.epsilons = "wine", 2, 2, "0.3,3"
    with varied(options.vary):
        predict(options) if options.predicted else measure(options)


def predict(options: argparse.Namespace) -> None:
    """Print how far forecasts are off; splits are counted one by one in the absolute differences."""
    epsilons = tuple(float(value) for value in options.epsilons.split(","))
    found = {
        table.name: (table.block.rows, predicted_less_measured(table, epsilons, options.splits, options.draws))
        for table in _tables(options)
    }
    _print_predictions(found, epsilons)


def measure(options: argparse.Namespace) -> None:
    """Measure and print what the options ask for."""
    epsilons = tuple(float(value) for value in options.epsilons.split(","))
    if options.worker:
        for table in _tables(options):
            try:
                scores = ours(table, options.worker, epsilons, options.splits, options.draws)
            except BlindbayesError as reason:  # an older version may refuse a table
                print(f"{table.name}: {options.worker} refuses it, {reason}", file=sys.stderr)
                continue
            for (_, epsilon), found in scores.items():
                print(json.dumps({"table": table.name, "epsilon": epsilon, "measures": found.tolist()}), flush=True)
        return
    methods = [*options.methods.split(","), *(each.split("=")[0] for each in options.tree)]
    others = [other_tree(*each.split("=", 1), options) for each in options.tree]
    lines: list[Line] = []
    head = f"{'table':<16}{'rows':>7}{'feat':>5}{'cls':>4}{'major':>7}{'best':>7}  "
    print(f"{head}{'method':<17}" + "".join(f"{each:>13g}" for each in epsilons))
    for table in _tables(options):
        started = time.process_time()
        base = np.array([without_privacy(table, *each) for each in _splits(table, options.splits)])
        majority, best = float(base[:, 0].mean()), float(base[:, 1:].mean(axis=0).max())
        found: Scores = {}
        for method in methods:
            run = ours if method.startswith("ours") else {"laplace": counts, "gauss": counts, "sites": sites}.get(method)
            if method == "diffprivlib" and _fits_diffprivlib(table):
                run = diffprivlib
            if run is not None:
                found |= run(table, method, epsilons, options.splits, options.draws)
        for other in others:
            found |= other.get(table.name, {})
        has_gap = best - majority >= LEAST_GAP
        shape = f"{table.block.rows:>7}{len(table.codebook.features):>5}{len(table.codebook.classes):>4}"
        print(f"{table.name:<16}{shape}{majority:>7.3f}{best:>7.3f}{'' if has_gap else '  gap too small to count'}")
        for (method, epsilon), each in found.items():
            line = Line.of(table, method, epsilon, each, base[:, 0], best)
            lines.append(line)
        for method in methods:
            own = [line for line in lines if (line.table, line.method) == (table.name, method)]
            cells = [f"{line.share:>6.2f} ±{line.error:.2f}{'!' if line.below else ' '}" for line in own]
            print(f"{'':<46}  {method:<17}" + "".join(f"{cell:>13}" for cell in cells), flush=True)
        print(f"{'':<48}{time.process_time() - started:.1f} CPU s", file=sys.stderr)
    for label, members in (
        ("all", lines),
        (f"up to {SMALL} rows", [line for line in lines if line.rows <= SMALL]),
        ("larger", [line for line in lines if line.rows > SMALL]),
    ):
        for method in methods:
            _print_means(label, method, [line for line in members if line.method == method], epsilons)
    print("below the majority class beyond two standard errors (method, epsilon, table, accuracy less majority, error):")
    print(
        *([f"    {x.method} {x.epsilon} {x.table} {x.gain:.4f} {x.gain_error:.4f}" for x in lines if x.below] or ["    none"]),
        sep="\n",
    )
    print("log-loss above that of the noisy class shares beyond two standard errors (method, epsilon, table, excess, error):")
    worse = [x for x in lines if x.beside_shares > 2 * x.beside_error + 1e-12]
    print(
        *([f"    {x.method} {x.epsilon} {x.table} {x.beside_shares:.4f} {x.beside_error:.4f}" for x in worse] or ["    none"]),
        sep="\n",
    )
    if options.csv:
        with open(options.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([each.name for each in fields(Line)])
            writer.writerows([astuple(line) for line in lines])


if __name__ == "__main__":
    main()
