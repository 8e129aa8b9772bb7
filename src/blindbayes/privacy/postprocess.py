"""From noisy statistics to parameters: everything here is post-processing, costs nothing and may look at all that was released.

Noise of known variance is treated as what it is, a source of error to be weighed, never as data:

- class sizes: posterior mean under the noise and a flat prior, never below half a row;
- histograms: deviations from the pooled (class-free) histogram are shrunk by the positive-part James-Stein factor of the
  whole attribute, so that an attribute that shows nothing above its noise says nothing;
- ordered cells: a normal law for each class is fitted to the noisy cells by Bayes' rule on a grid of means and deviations,
  with a hierarchical prior that pulls the classes together, and *integrated over* what the noise leaves open. A few wide
  cells then score a number at full resolution. With more signal the fit gives way to the cells themselves.
- moments: class means and variances are shrunk to the pooled ones, the noise variance of a mean is added to the variance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from blindbayes.lazy import lazy

special = lazy("scipy.special")

Floats = npt.NDArray[np.float64]

_TINY = 1e-300
_LEAST_CELL = 1e-12


@dataclass(frozen=True, slots=True)
class ClassSizes:
    """Estimated rows per class, their noise left after estimation, and the prior probabilities that follow."""

    rows: Floats
    deviation: float

    @property
    def total(self) -> float:
        """All rows."""
        return float(self.rows.sum())

    @property
    def log_prior(self) -> Floats:
        """ln P(class)."""
        return np.asarray(np.log(self.rows / self.rows.sum()))


def positive_mean(mean: Floats, deviation: Floats | float) -> Floats:
    """Mean of a normal variable given that it is positive."""
    ratio = np.clip(mean / deviation, -8.0, None)
    return np.asarray(ratio * deviation + deviation * np.exp(-0.5 * ratio**2) / (math.sqrt(2 * math.pi) * special.ndtr(ratio)))


def class_sizes(counts: Floats, deviation: float, rows: int | None) -> ClassSizes:
    """Posterior mean of the class sizes from noisy counts; `rows` is the declared size of the table, believed to 10%."""
    classes = len(counts)
    deviation = max(deviation, 1e-6)
    total, noise = float(counts.sum()), deviation * math.sqrt(classes)
    if rows is not None:
        belief = 0.1 * rows
        total = (total * belief**2 + rows * noise**2) / (belief**2 + noise**2)
    total = max(total, 1.0)
    if classes == 1:
        return ClassSizes(np.array([total]), deviation)
    even = total / classes
    spread = total * math.sqrt((classes - 1) / (classes + 1)) / classes  # of a class under a flat prior on the shares
    left = deviation * math.sqrt((classes - 1) / classes)  # noise of a count once the total is known
    weight = spread**2 / (spread**2 + left**2)
    centred = counts - (counts.sum() - total) / classes
    sizes = positive_mean(even + weight * (centred - even), left * math.sqrt(weight))
    sizes = np.maximum(sizes, 0.5)
    return ClassSizes(np.asarray(sizes * total / sizes.sum()), left * math.sqrt(weight))


def chance_of(sizes: ClassSizes) -> Floats:
    """Per class, the share of a cell's noise variance that is left in its difference from the pooled shape.

    With w the class's part of all rows, noise Z becomes Z_c - w_c (sum of all Z): variance 1 - 2 w_c + K w_c^2.
    """
    part = sizes.rows / sizes.total
    return np.asarray(1 - 2 * part + len(part) * part**2)


# -- histograms --------------------------------------------------------------------------------------------------------


def shrink_histogram(cells: Floats, sizes: ClassSizes, deviation: float, alpha: float) -> Floats:
    """P(cell | class) from noisy counts (classes, cells) that add up to the class sizes.

    No cell falls below alpha / 2 counts, nor, where noise is large against an average cell, below a part of its deviation.
    """
    classes, width = cells.shape
    if width == 1:
        return np.ones((classes, 1))
    total, rows = sizes.total, sizes.rows[:, None]
    pooled = cells.sum(axis=0) / total
    noise = deviation * math.sqrt(classes) / total
    offset = pooled - 1 / width
    weight = max(0.0, 1 - width * noise**2 / max(float((offset**2).sum()), _TINY))
    pooled = 1 / width + weight * offset
    pooled = np.maximum(pooled, min(0.25 * noise * weight + 0.5 * alpha / total, 0.5 / width))
    pooled = pooled / pooled.sum()
    base = rows * pooled
    away = cells - base
    # A wrong class size moves uneven cells as if the class differed; that is noise too.
    variance = max(deviation, 1e-9) ** 2 + (sizes.deviation * (pooled - 1 / width)) ** 2
    part = chance_of(sizes)[:, None]
    # Cells differ from the pooled shape by a share of what they hold: one that holds little cannot show much.
    effect = max(0.0, float((away**2 - part * variance).sum()) / float((base**2).sum()))
    # A small class may differ by more than the large ones, if it shows so beyond a deviation of chance.
    chance = part[:, 0] * variance.sum() * (1 + math.sqrt(2 / (width - 1)))
    own = ((away**2).sum(axis=1) - chance) / (base**2).sum(axis=1)
    told = np.maximum(own, effect)[:, None] * base**2
    weight = told / (told + variance)
    kept = positive_mean(base + weight * away, np.sqrt(weight * variance) + 1e-9 * base + _LEAST_CELL)
    kept = np.maximum(kept, np.minimum(0.5 * alpha, base))
    return np.asarray(kept / kept.sum(axis=1, keepdims=True))


# -- ordered cells -----------------------------------------------------------------------------------------------------

_MEANS = np.linspace(-1.2, 1.2, 49)
_DEVIATIONS = np.geomspace(0.03, 0.8, 9)
_CLASS_SPREADS = (0.01, 0.1, 0.25, 0.6)  # of class means about their centre
_RATIO_SPREADS = (0.02, 0.5)  # of log deviations about their centre
_POWERS = (1.0, 0.5)  # the number itself, or its square root above the lower bound (skewed attributes)


def _rows_to_one(table: Floats) -> Floats:
    return np.asarray(table / table.sum(axis=-1, keepdims=True))


_MEAN_PRIOR = np.stack(
    [_rows_to_one(np.exp(-0.5 * ((_MEANS[None, :] - _MEANS[:, None]) / spread) ** 2)) for spread in _CLASS_SPREADS]
)
_LOGS = np.log(_DEVIATIONS)
_DEVIATION_PRIOR = np.stack(
    [_rows_to_one(np.exp(-0.5 * ((_LOGS[None, :] - _LOGS[:, None]) / spread) ** 2)) for spread in _RATIO_SPREADS]
)


@lru_cache(maxsize=64)
def _law(power: float, fine: int) -> Floats:
    """P(fine cell) for each mean and deviation of the grid; the outer cells take the tails (values are held to the bounds)."""
    edges = 2 * (np.arange(fine + 1) / fine) ** power - 1
    edges[0], edges[-1] = -np.inf, np.inf
    below = special.ndtr((edges[None, None, :] - _MEANS[:, None, None]) / _DEVIATIONS[None, :, None])
    return np.asarray(np.maximum(np.diff(below, axis=2), _LEAST_CELL))


@lru_cache(maxsize=256)
def _coarse_law(power: float, fine: int, edges: tuple[int, ...]) -> Floats:
    return np.asarray(np.add.reduceat(_law(power, fine), edges[:-1], axis=2))


@dataclass(frozen=True, slots=True)
class Ordered:
    """Attributes cut alike: noisy cells (attributes, classes, cells), rows (attributes, classes), deviations (attributes,)."""

    cells: Floats
    rows: Floats
    deviations: Floats
    edges: tuple[int, ...]


def fit_normal(parts: Sequence[Ordered], size_deviation: float) -> list[Floats]:
    """P(fine cell | class), integrated over normal laws, of each part: (attributes, classes, fine).

    Two families (`_POWERS`) are weighed by their evidence, attribute by attribute.
    """
    ends = np.cumsum([len(part.rows) for part in parts])[:-1]
    laws: list[list[Floats]] = [[] for _ in parts]
    evidences = []
    for power in _POWERS:
        log = np.concatenate([_log_likelihood(part, power, size_deviation) for part in parts])
        top = log.max(axis=(2, 3), keepdims=True)
        likelihood = np.exp(log - top)  # (attributes, classes, means, deviations)
        posteriors, logs = [], []
        for ratio in _DEVIATION_PRIOR:
            blurred = likelihood @ ratio.T
            evidence = np.einsum("tom,acmu->atocu", _MEAN_PRIOR, blurred, optimize=True) + _TINY
            joint = np.log(evidence).sum(axis=3)  # over classes: (attributes, spreads, centres, deviations)
            peak = joint.max(axis=(1, 2, 3), keepdims=True)
            weight = np.exp(joint - peak)
            mass = weight.sum(axis=(1, 2, 3), keepdims=True)
            logs.append((peak + np.log(mass))[:, 0, 0, 0])
            pull = np.einsum("atocu,tom->acmu", (weight / mass)[:, :, :, None, :] / evidence, _MEAN_PRIOR, optimize=True)
            posterior = (pull @ ratio) * likelihood
            posteriors.append(posterior / posterior.sum(axis=(2, 3), keepdims=True))
        mixed, log_evidence = _mix(posteriors, logs)
        evidences.append(log_evidence + top.sum(axis=1)[:, 0, 0])
        for found, part, own in zip(laws, parts, np.split(mixed, ends), strict=True):
            fine = part.edges[-1]
            found.append(own.reshape(*own.shape[:2], -1) @ _law(power, fine).reshape(-1, fine))
    shares = [np.split(evidence, ends) for evidence in evidences]
    return [_mix(found, own)[0] for found, own in zip(laws, zip(*shares, strict=True), strict=True)]


def _log_likelihood(part: Ordered, power: float, size_deviation: float) -> Floats:
    """Of each mean and deviation of the grid, up to a constant: (attributes, classes, means, deviations)."""
    width = part.cells.shape[2]
    p = _coarse_law(power, part.edges[-1], part.edges)
    size, noise = part.rows[:, :, None, None, None], part.deviations[:, None, None, None, None]
    variance = noise**2 + size * p * (1 - p) + (size_deviation * (p - 1 / width)) ** 2 + 1.0 + (0.01 * size) ** 2 * np.sqrt(p)
    gap = part.cells[:, :, None, None, :] - size * p
    return np.asarray(-0.5 * (gap**2 / variance + np.log(variance)).sum(axis=4) * ((width - 1) / width))


def _mix(laws: Sequence[Floats], logs: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Mixture of laws by their log evidence, attribute by attribute, and the log evidence of the mixture."""
    log = np.stack(logs)
    top = log.max(axis=0)
    weight = np.exp(log - top)
    total = weight.sum(axis=0)
    shaped = (weight / total).reshape(weight.shape + (1,) * (laws[0].ndim - 1))
    return np.asarray((shaped * np.stack(laws)).sum(axis=0)), np.asarray(top + np.log(total))


def blend_cells(fitted: Floats, cells: Floats, rows: Floats, deviation: float, edges: Sequence[int], alpha: float) -> Floats:
    """The fitted law, corrected by the cells where they contradict it beyond noise and sampling: (classes, fine)."""
    classes, width = cells.shape
    starts, widths = np.asarray(edges[:-1]), np.diff(edges)
    coarse = np.add.reduceat(fitted, starts, axis=1)
    size = rows[:, None]
    away = cells - size * coarse
    freedom = classes * (width - 1)
    misfit = float((away**2 / (deviation**2 + size * coarse * (1 - coarse) + 1e-9)).sum())
    weight = max(0.0, 1 - (freedom + 2 * math.sqrt(2 * freedom)) / max(misfit, _TINY))  # two deviations of chance are free
    kept = size * coarse + weight * away
    kept = np.maximum(kept, np.minimum(0.1 * deviation * weight + 0.5 * alpha, size * coarse))
    kept = kept / kept.sum(axis=1, keepdims=True)
    inner = fitted / np.repeat(coarse, widths, axis=1)
    flat = np.repeat(1 / widths, widths)
    return np.asarray(np.repeat(kept, widths, axis=1) * (weight * flat + (1 - weight) * inner))


def spread_cells(probabilities: Floats, edges: Sequence[int]) -> Floats:
    """Cell probabilities spread evenly over the fine cells."""
    widths = np.diff(edges)
    return np.repeat(probabilities / widths, widths, axis=1)


# -- moments -----------------------------------------------------------------------------------------------------------


def shrink_moments(first: Floats, second: Floats, sizes: ClassSizes, deviation: float) -> tuple[Floats, Floats]:
    """Class means and variances in units of the half range, from noisy sums of z and of 2 z^2 - 1, z in [-1, 1].

    Means go to the pooled mean by the share of their spread that is noise; the variance of what is left is added to the
    variance. Variances go to the pooled one likewise; the pooled one leans on 0.06 where noise hides it.
    """
    rows, share = sizes.rows, sizes.rows / sizes.total
    classes = len(rows)
    noise = (deviation / rows) ** 2
    means = first / rows
    centre = float(np.clip(first.sum() / sizes.total, -1, 1))
    away = means - centre
    spread = max(0.0, float((away**2 * share).sum() - (noise * share).sum() * (classes - 1) / classes))
    weight = spread / (spread + noise + _TINY)
    kept = np.clip(centre + weight * away, -1, 1)
    square = min(max((float(second.sum()) / sizes.total + 1) / 2, 0.0), 1.0)
    error = (deviation * math.sqrt(classes) / sizes.total / 2) ** 2 + 1e-12
    belief = 0.08**2
    pooled = ((square - centre**2 - spread) * belief + 0.06 * error) / (belief + error)
    pooled = max(pooled, 1e-6, 0.02 * min(1.0, math.sqrt(error) / 0.08))
    own = np.clip((second / rows + 1) / 2, 0, 1) - np.clip(means, -1, 1) ** 2 + noise
    errors = (deviation / rows / 2) ** 2 + 4 * means**2 * noise
    gap = own - pooled
    between = max(0.0, float((gap**2 - errors).mean()))
    variance = pooled + between / (between + errors + _TINY) * gap
    variance = np.maximum(variance, np.maximum(0.02 * pooled, np.sqrt(errors) * 0.25))
    return np.asarray(kept), np.asarray(variance + weight * noise)
