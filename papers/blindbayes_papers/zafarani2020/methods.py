"""The methods that Zafarani and Clifton's paper compares, and those a joint release is measured against, as simulations.

Nothing here is private in the sense of the package: noise is drawn from a seeded generator in floating point, so that
thousands of fits run in minutes, and two of the methods do not keep the epsilon they claim. They exist to be compared with.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.stats import norm

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.statistics import MISSING, CodedRows

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
Generator = np.random.Generator
DELTA = 1e-8  # below a tenth of one over the rows of the largest table (1.7 million), as `PrivateNaiveBayes` asks
_WINDOWS = 2000


@dataclass(frozen=True)
class Table:
    """Rows as numbers: z in [-1, 1] between the declared bounds (NaN: missing) and positions of categories (-1: missing)."""

    labels: Codes
    classes: int
    numbers: Floats
    widths: tuple[int, ...]  # grid points of each number
    categories: tuple[Codes, ...]
    sizes: tuple[int, ...]
    _memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    _cells: dict[tuple[int, int], Codes] = field(default_factory=dict, repr=False, compare=False)

    def remembered(self, train: Codes, key: Any, make: Callable[[], Any]) -> Any:
        """Return what was made for these training rows under this key; forgotten when the rows change."""
        if self._memo.get("train") is not train:
            self._memo.clear()
            self._memo["train"] = train
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    @classmethod
    def from_block(cls, codebook: Codebook, block: CodedRows) -> Table:
        """Make a table from codes of the declared codebook."""
        labels = block.known_labels
        numbers, widths, categories, sizes = [], [], [], []
        for feature in codebook.features:
            codes = block.columns[feature.name]
            if isinstance(feature, Categorical):
                categories.append(codes)
                sizes.append(feature.size)
            elif isinstance(feature, Numeric):
                z = 2 * (codes - feature.code_low) / (feature.width - 1) - 1
                numbers.append(np.where(codes == MISSING, np.nan, z))
                widths.append(feature.width)
        matrix = np.stack(numbers, axis=1) if numbers else np.zeros((block.rows, 0))
        return cls(labels, len(codebook.classes), matrix, tuple(widths), tuple(categories), tuple(sizes))

    def cells(self, column: int, bins: int) -> tuple[Codes, int]:
        """Positions of a number among equal-width bins, never more than it has grid points."""
        bins = min(bins, self.widths[column])
        if (column, bins) not in self._cells:
            z = self.numbers[:, column]
            cell = np.minimum((np.nan_to_num(z) + 1) / 2 * bins, bins - 1).astype(np.int64)
            self._cells[column, bins] = np.where(np.isnan(z), -1, cell)
        return self._cells[column, bins], bins


@dataclass
class Model:
    """ln prior, tables of ln P with the codes they score, and normal laws for the numbers."""

    log_prior: Floats
    tables: list[tuple[Codes, Floats]]
    mean: Floats | None = None
    variance: Floats | None = None

    def accuracy(self, table: Table, rows: Codes) -> float:
        """Share of rows classified as labelled."""
        scores = np.tile(self.log_prior, (len(rows), 1))
        for codes, log in self.tables:
            at = codes[rows]
            scores += np.where((at >= 0)[:, None], log.T[np.maximum(at, 0)], 0)
        if self.mean is not None and self.variance is not None:
            z = table.numbers[rows]
            seen = ~np.isnan(z)
            gap = (np.where(seen, z, 0)[:, None, :] - self.mean) ** 2
            scores += np.where(seen[:, None, :], -0.5 * np.log(self.variance) - 0.5 * gap / self.variance, 0).sum(axis=2)
        return float((scores.argmax(axis=1) == table.labels[rows]).mean())


def _log(cells: Floats) -> Floats:
    smoothed = np.maximum(cells, 0) + 1
    return np.asarray(np.log(smoothed / smoothed.sum(axis=1, keepdims=True)))


def _prior(counts: Floats) -> Floats:
    positive = np.maximum(counts, 1.0)
    return np.asarray(np.log(positive / positive.sum()))


def _count(table: Table, codes: Codes, size: int, rows: Codes) -> Floats:
    def make() -> Floats:
        at, labels = codes[rows], table.labels[rows]
        known = at >= 0
        flat = np.bincount(labels[known] * size + at[known], minlength=table.classes * size)
        return flat.reshape(table.classes, size).astype(np.float64)

    return np.array(table.remembered(rows, ("count", id(codes)), make))


def _class_counts(table: Table, rows: Codes) -> Floats:
    return np.bincount(table.labels[rows], minlength=table.classes).astype(np.float64)


@dataclass(frozen=True)
class Sorted:
    """Sorted numbers of a class."""

    values: Floats
    mean: float
    deviation: float

    @property
    def count(self) -> int:
        """Number of records."""
        return len(self.values)


def _lists(table: Table, column: int, rows: Codes) -> list[Sorted]:
    def make() -> list[Sorted]:
        z, labels = table.numbers[rows, column], table.labels[rows]
        known = ~np.isnan(z)
        parts = [np.sort(z[known & (labels == label)]) for label in range(table.classes)]
        return [Sorted(part, float(part.mean()), float(part.std())) if len(part) else Sorted(part, 0.0, 0.0) for part in parts]

    lists: list[Sorted] = table.remembered(rows, ("list", column), make)
    return lists


# -- the paper's comparison ------------------------------------------------------------------------------------------------


def majority(table: Table, train: Codes, test: Codes) -> float:
    """Always the most frequent class."""
    return float((table.labels[test] == _class_counts(table, train).argmax()).mean())


def plain(table: Table, train: Codes, epsilon: float, generator: Generator) -> Model:
    """Naive Bayes without privacy: Laplace smoothing by one, maximum-likelihood normal laws."""
    tables = [
        (codes, _log(_count(table, codes, size, train))) for codes, size in zip(table.categories, table.sizes, strict=True)
    ]
    model = Model(_prior(_class_counts(table, train)), tables)
    if table.numbers.shape[1]:
        lists = [_lists(table, column, train) for column in range(table.numbers.shape[1])]
        model.mean = np.array([[part.mean for part in column] for column in lists]).T
        variance = np.array([[part.deviation**2 if part.count else 1.0 for part in column] for column in lists]).T
        model.variance = np.maximum(variance, 1e-9 * max(1e-12, float(variance.max())))
    return model


def printed_mean_bound(ordered: Floats, beta: float) -> float:
    """Theorem 4 as printed: the largest change over k replacements, times e^-(beta k), largest over k. Interval [-1, 1]."""
    n = len(ordered)
    k = np.arange(1, n + 1)
    up, down = np.cumsum(1 - ordered) / n, np.cumsum(ordered[::-1] + 1) / n
    return float((np.exp(-beta * k) * np.maximum(up, down)).max())


def printed_variance_bound(ordered: Floats, beta: float, *, every: bool = False) -> float:
    """Theorem 7 as printed: for each k, windows of k numbers sent to the bounds, or the k outermost to the mean of the rest.

    O(n^2) with `every`; otherwise k runs over a geometric grid and windows over 2,000 places, which is enough for a simulation.
    """
    n = len(ordered)
    if n < 2:
        return 1.0
    sums, squares = np.concatenate([[0], np.cumsum(ordered)]), np.concatenate([[0], np.cumsum(ordered**2)])
    variance = squares[n] / n - (sums[n] / n) ** 2
    steps = (
        np.arange(1, n)
        if every
        else np.unique(np.concatenate([np.arange(1, min(n, 33)), np.geomspace(1, n - 1, 60)]).astype(int))
    )
    best = 0.0
    for k in steps:
        if math.exp(-beta * k) <= best:  # no variance in [-1, 1] changes by more than 1
            break
        start = np.arange(n - k + 1) if every or n - k < _WINDOWS else np.linspace(0, n - k, _WINDOWS).astype(int)
        inside, inside_squares = sums[start + k] - sums[start], squares[start + k] - squares[start]
        rest, rest_squares = sums[n] - inside, squares[n] - inside_squares
        lows = np.clip(np.floor((k + rest) / 2 + 0.5), 0, k)  # of the k, to the lower bound: the mean goes to the middle
        largest = (rest_squares + k) / n - ((rest + k - 2 * lows) / n) ** 2
        # The n - k kept are consecutive: the k outermost go to their mean.
        first = np.arange(k + 1) if every or k < _WINDOWS else np.linspace(0, k, _WINDOWS).astype(int)
        middle, middle_squares = sums[first + n - k] - sums[first], squares[first + n - k] - squares[first]
        lowest = (middle_squares - middle**2 / (n - k)) / n
        change = max(float(largest.max()) - variance, variance - float(lowest.min()))
        best = max(best, math.exp(-beta * k) * change)
    return best


def defined_mean_bound(ordered: Floats, beta: float) -> float:
    """Definition 8 for a mean of n numbers of [-1, 1], n fixed: one replaced now, or after k >= 1 others were (2 / n)."""
    now = max(1 - float(ordered[0]), float(ordered[-1]) + 1) / len(ordered)
    return max(now, math.exp(-beta) * 2 / len(ordered))


def defined_variance_bound(ordered: Floats, beta: float) -> float:
    """An upper bound of Definition 8 for the variance of n numbers of [-1, 1], n fixed: its global sensitivity."""
    return 4 * (len(ordered) - 1) / len(ordered) ** 2 if len(ordered) > 1 else 1.0


def _per_parameter(
    table: Table,
    train: Codes,
    epsilon: float,
    allocation: tuple[int, int],
    number: Callable[[Sorted, float], tuple[float, float]],
    generator: Generator,
    count_noise: Callable[[float, tuple[int, ...]], Floats],
) -> Model:
    columns = table.numbers.shape[1]
    unit = epsilon / (allocation[0] * columns + allocation[1] * (len(table.sizes) + 1))
    share, each = unit * allocation[1], unit * allocation[0] / 2
    tables = []
    for codes, size in zip(table.categories, table.sizes, strict=True):
        cells = _count(table, codes, size, train)
        tables.append((codes, _log(cells + generator.laplace(size=cells.shape) / share)))
    counts = _class_counts(table, train)
    model = Model(_prior(counts + count_noise(share, counts.shape)), tables)
    if columns:
        numbers = [[number(part, each) for part in _lists(table, column, train)] for column in range(columns)]
        model.mean = np.clip([[mean for mean, _ in column] for column in numbers], -1, 1).T
        model.variance = (
            np.maximum(np.array([[max(deviation, 0.0) for _, deviation in column] for column in numbers]).T, 1e-3) ** 2
        )
    return model


def vaidya(table: Table, train: Codes, epsilon: float, generator: Generator) -> Model:
    """Vaidya et al. 2013 as the paper describes it: Laplace noise, global sensitivities that treat class sizes as public."""

    def number(part: Sorted, each: float) -> tuple[float, float]:
        noise = generator.laplace(size=2) / each
        wide = 2 / (part.count + 1)
        return part.mean + noise[0] * wide, part.deviation + noise[1] * wide * math.sqrt(part.count)

    def laplace(share: float, shape: tuple[int, ...]) -> Floats:
        return generator.laplace(size=shape) / share

    return _per_parameter(table, train, epsilon, (2, 1), number, generator, laplace)


class Printed:
    """Algorithm 1 of the paper as printed, at the epsilon it claims; beta = epsilon' / 6 (its Theorem 2 with gamma = 2).

    Sensitivities are those of Theorems 4 and 7 to the letter or, `by_definition`, what Definition 8 gives with class sizes
    fixed, which is kinder to the paper: the theorems measure k replacements where the definition measures one.

    Means are held to the bounds and deviations to at least 0.05% of the range, where the paper truncates at zero and is silent
    about a deviation of zero. Bounds on sensitivity are remembered by list.
    """

    def __init__(self, allocation: tuple[int, int] = (2, 1), *, by_definition: bool = False) -> None:
        self.allocation = allocation
        self._mean = defined_mean_bound if by_definition else printed_mean_bound
        self._variance = defined_variance_bound if by_definition else printed_variance_bound
        self._bounds: dict[tuple[int, float, float, float], tuple[float, float]] = {}

    def __call__(self, table: Table, train: Codes, epsilon: float, generator: Generator) -> Model:
        """One fit."""

        def number(part: Sorted, each: float) -> tuple[float, float]:
            beta = each / 6
            key = (round(50 * math.log(part.count + 1)), round(part.mean, 2), round(part.deviation, 2), beta)
            if key not in self._bounds:  # lists of other folds with the same summary share a bound
                ordered = part.values
                bounds = (self._mean(ordered, beta), self._variance(ordered, beta)) if part.count else (1.0, 1.0)
                self._bounds[key] = bounds
            noise = generator.standard_cauchy(size=2) * math.sqrt(2) / each
            return part.mean + noise[0] * self._bounds[key][0], part.deviation + noise[1] * self._bounds[key][1]

        def cauchy(share: float, shape: tuple[int, ...]) -> Floats:
            return generator.standard_cauchy(size=shape) * math.sqrt(2) / share

        return _per_parameter(table, train, epsilon, self.allocation, number, generator, cauchy)


# -- what a joint release is measured against ------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def gaussian_deviation(epsilon: float, delta: float = DELTA) -> float:
    """Analytic Gaussian mechanism (Balle and Wang 2018) for sensitivity one."""

    def excess(deviation: float) -> float:
        near, far = 1 / (2 * deviation) - epsilon * deviation, -1 / (2 * deviation) - epsilon * deviation
        return float(norm.cdf(near) - math.exp(epsilon + norm.logcdf(far)) - delta)

    return float(brentq(excess, 1e-2, 1e6))


def _cross(generator: Generator, size: int, radius: float) -> Floats:
    """Uniform in the cross-polytope."""
    draws = generator.exponential(size=size + 1)
    return np.asarray(generator.choice([-1.0, 1.0], size) * draws[:size] / draws.sum() * radius)


def _bins_rule(rows: int, epsilon: float, classes: int, features: int) -> int:
    signal = rows * epsilon / (classes * features)
    return 4 if signal < 3 else 8 if signal < 100 else 16 if signal < 300 else 32


class Bins:
    """Histograms of everything, numbers in 4 to 32 bins by public facts, `max(0, .) + 1`: "laplace", "knorm" or "gauss"."""

    def __init__(self, noise: str, bins: int | None = None) -> None:
        self.noise, self.bins = noise, bins

    def __call__(self, table: Table, train: Codes, epsilon: float, generator: Generator) -> Model:
        """One fit."""
        features = len(table.sizes) + table.numbers.shape[1]
        bins = self.bins or _bins_rule(len(train), epsilon, table.classes, features)
        coded = list(zip(table.categories, table.sizes, strict=True))
        coded += [table.cells(column, bins) for column in range(table.numbers.shape[1])]  # made once: `cells` remembers
        cells = [_count(table, codes, size, train) for codes, size in coded]
        if self.noise == "laplace":
            cells = [part + generator.laplace(size=part.shape) * features / epsilon for part in cells]
        elif self.noise == "gauss":
            deviation = gaussian_deviation(epsilon) * math.sqrt(features)
            cells = [part + generator.normal(size=part.shape) * deviation for part in cells]
        else:  # one K-norm per class, max over attributes of the L1 norm
            dimension = sum(part.shape[1] for part in cells)
            for label in range(table.classes):
                radius = generator.gamma(dimension + 1) / epsilon
                for part in cells:
                    part[label] += _cross(generator, part.shape[1], radius)
        counts = np.mean([part.sum(axis=1) for part in cells], axis=0)
        return Model(_prior(counts), [(codes, _log(part)) for (codes, _), part in zip(coded, cells, strict=True)])


class Sums:
    """Gaussian sums and category counts in one release, "laplace" or "knorm" (per class), shrunk to the pooled values."""

    def __init__(self, noise: str) -> None:
        self.noise = noise

    def __call__(self, table: Table, train: Codes, epsilon: float, generator: Generator) -> Model:
        """One fit."""
        z, labels, rows = np.nan_to_num(table.numbers[train]), table.labels[train], len(train)
        member = np.eye(table.classes)[labels].T
        count, first, second = member.sum(axis=1), member @ z, member @ (2 * z * z - 1)
        cells = [_count(table, codes, size, train) for codes, size in zip(table.categories, table.sizes, strict=True)]
        columns = z.shape[1]
        if self.noise == "laplace":
            scale = (1 + 2 * columns + len(cells)) / epsilon
            count, first, second = (part + generator.laplace(size=part.shape) * scale for part in (count, first, second))
            cells = [part + generator.laplace(size=part.shape) * scale for part in cells]
            deviation = scale * math.sqrt(2)
        else:
            dimension = 1 + 2 * columns + sum(table.sizes)
            for label in range(table.classes):
                radius = generator.gamma(dimension + 1) / epsilon
                count[label] += generator.uniform(-radius, radius)
                first[label] += generator.uniform(-radius, radius, columns)
                second[label] += generator.uniform(-radius, radius, columns)
                for part in cells:
                    part[label] += _cross(generator, part.shape[1], radius)
            deviation = math.sqrt((dimension + 1) * (dimension + 2) / 3) / epsilon
        size = np.maximum(count, max(1.0, 0.02 * rows))
        size *= rows / size.sum()
        model = Model(
            np.asarray(np.log(size / rows)), [(codes, _log(part)) for codes, part in zip(table.categories, cells, strict=True)]
        )
        if columns:
            model.mean, model.variance = _shrunk(first, second, size, deviation)
        return model


def _shrunk(first: Floats, second: Floats, size: Floats, deviation: float) -> tuple[Floats, Floats]:
    rows, share = size.sum(), (size / size.sum())[:, None]
    mean, noise = first / size[:, None], (deviation / size[:, None]) ** 2
    centre = np.clip(first.sum(axis=0) / rows, -1, 1)
    away = mean - centre
    spread = np.maximum(0, (away**2 * share).sum(axis=0) - (noise * share).sum(axis=0))
    weight = spread / (spread + noise + 1e-15)
    pooled = np.maximum(np.clip((second.sum(axis=0) / rows + 1) / 2, 0, 1) - centre**2 - spread, 0.01)
    own = np.clip((second / size[:, None] + 1) / 2, 0, 1) - np.clip(mean, -1, 1) ** 2
    error = (deviation / size[:, None] / 2) ** 2 + 4 * mean**2 * noise
    between = np.maximum(0, ((own - pooled) ** 2 - error).mean(axis=0))
    variance = np.maximum(pooled + between / (between + error + 1e-15) * (own - pooled), np.maximum(0.05 * pooled, 1e-4))
    return np.clip(centre + weight * away, -1, 1), variance + weight * noise
