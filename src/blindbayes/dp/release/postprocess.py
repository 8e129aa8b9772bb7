"""Postprocessing of noisy statistics into parameters: it costs no epsilon and may use all that was released.

Noise of known variance is a source of error to be weighed, never data:

- class sizes: posterior mean under the noise and a flat prior, never below half a row;
- histograms: deviations from the pooled (class-free) histogram are shrunk by an empirical Bayes estimate of how much classes
  differ in the feature (its effect); all features together show how common an effect is. A feature that shows nothing above
  its noise says nothing, least of all in a table of such features;
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

from blindbayes._lazy import lazy

special = lazy("scipy.special")

Floats = npt.NDArray[np.float64]

_TINY = 1e-300
_MIN_CELL = 1e-12


def _rows_to_one(table: Floats) -> Floats:
    return np.asarray(table / table.sum(axis=-1, keepdims=True))


@dataclass(frozen=True, slots=True)
class ClassSizes:
    """Estimated rows per class, their noise left after estimation, and the prior probabilities that follow."""

    rows: Floats
    deviation: float

    @property
    def total(self) -> float:
        return float(self.rows.sum())

    @property
    def log_prior(self) -> Floats:
        """Logarithms of P(class)."""
        return np.asarray(np.log(self.rows / self.rows.sum()))


def positive_mean(mean: Floats, deviation: Floats | float) -> Floats:
    """Return the mean of a normal variable given that it is positive."""
    ratio = np.clip(mean / np.maximum(deviation, _MIN_CELL), -8, 8)
    hazard = np.exp(-0.5 * ratio**2) / (math.sqrt(2 * math.pi) * special.ndtr(ratio))
    return np.asarray(np.maximum(mean, -8 * deviation) + deviation * hazard)


def class_sizes(counts: Floats, deviation: float, rows: int | None) -> ClassSizes:
    """Return the posterior mean of the class sizes from noisy counts; `rows` is the declared size.

    A declaration that the counts contradict by more than their noise is believed that much less: it would take the same number
    of rows from every class, and so distort their shares.
    """
    classes = len(counts)
    deviation = max(deviation, 1e-6)
    total, noise = float(counts.sum()), deviation * math.sqrt(classes)
    if rows is not None:
        error = max(0.0, (total - rows) ** 2 - noise**2)
        total = (total * error + rows * noise**2) / (error + noise**2)
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


# -- histograms --------------------------------------------------------------------------------------------------------

_EFFECTS = np.array([0.0, *np.geomspace(0.004, 5.0, 7)])
"""A grid of how much classes may differ in a feature: variance of P(cell | class) / P(cell) between classes."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """A feature's noisy cells (classes, cells) beside what they would be if classes did not differ (`base`).

    `noise` is the variance of their difference where classes are alike; `reach`, times an effect, the variance that classes
    add to it. Classes that deviate alike from a common centre deviate by 1 - 2 w + sum w^2 from the pooled shape, w being a
    class's part of all rows, since the pooled shape holds the class itself; their noise likewise by 1 - 2 w + K w^2.
    """

    cells: Floats
    base: Floats
    noise: Floats
    reach: Floats
    log_likelihood: Floats  # of each effect

    @classmethod
    def estimate(cls, cells: Floats, sizes: ClassSizes, deviation: float, alpha: float) -> Contrast:
        """Compare noisy counts, which add up to the class sizes, with the pooled histogram."""
        classes, width = cells.shape
        total, part = sizes.total, sizes.rows[:, None] / sizes.total
        pooled = cells.sum(axis=0) / total
        noise = deviation * math.sqrt(classes) / total
        offset = pooled - 1 / width
        weight = max(0.0, 1 - width * noise**2 / max(float((offset**2).sum()), _TINY))
        pooled = positive_mean(1 / width + weight * offset, noise * math.sqrt(weight))
        pooled = np.maximum(pooled, min(0.5 * alpha / total, 0.5 / width))
        pooled = pooled / pooled.sum()
        base = total * part * pooled
        # A wrong class size moves uneven cells as if the class differed; that is noise too.
        variance = max(deviation, 1e-9) ** 2 + (sizes.deviation * (pooled - 1 / width)) ** 2
        variance = np.maximum(1 - 2 * part + classes * part**2, 1e-9) * variance
        reach = (1 - 2 * part + (part**2).sum()) * base**2
        spread = _EFFECTS[:, None, None] * reach + variance
        free = (classes - 1) / classes * (width - 1) / width
        log = -0.5 * free * ((cells - base) ** 2 / spread + np.log(spread)).sum(axis=(1, 2))
        return cls(cells, base, variance, reach, log - log.max())

    def belief(self, weights: Floats) -> Floats:
        """Return the posterior of this feature's effect under the prior `weights`."""
        return _rows_to_one(np.exp(self.log_likelihood) * weights)


def learn_effects(contrasts: Sequence[Contrast]) -> Floats:
    """Estimate how often features of this table have each effect, from the prior and from all features.

    If all features look like noise, "classes do not differ" is learned for each, and the model predicts the largest class.
    """
    return _learned(np.exp([each.log_likelihood for each in contrasts]).reshape(-1, len(_EFFECTS)))


def _learned(likelihood: Floats) -> Floats:
    """Estimate the weights of a mixture by EM from likelihoods (features, parts), with an even prior worth one feature."""
    weights = prior = np.full(likelihood.shape[1], 1 / likelihood.shape[1])
    for _ in range(12):
        responsibility = _rows_to_one(likelihood * weights).sum(axis=0)
        weights = (responsibility + prior) / (len(likelihood) + 1)
    return weights


def shrink_histogram(contrast: Contrast, weights: Floats, alpha: float) -> Floats:
    """Return the posterior mean of P(cell | class) given the noisy cells, over effects with these weights.

    Counts are positive, and no cell falls below alpha / 2 of them.
    """
    cells, base, noise = contrast.cells, contrast.base, contrast.noise
    width = cells.shape[1]
    if width == 1:
        return np.ones(cells.shape)
    effects = _EFFECTS[:, None, None] * contrast.reach
    weight = (contrast.belief(weights)[:, None, None] * (effects / (effects + noise))).sum(axis=0)
    mean = positive_mean(base + weight * (cells - base), np.sqrt(noise * weight))
    return _rows_to_one(np.maximum(mean, np.minimum(0.5 * alpha, base)))


# -- ordered cells -----------------------------------------------------------------------------------------------------

_MEANS = np.linspace(-1.2, 1.2, 49)
_DEVIATIONS = np.geomspace(0.03, 0.8, 9)
_CLASS_SPREADS = (0.01, 0.1, 0.25, 0.6)  # of class means about their centre
_RATIO_SPREADS = (0.02, 0.5)  # of log deviations about their centre
_POWERS = (1.0, 0.5)  # the number itself, or its square root above the lower bound (skewed attributes)


_MEAN_PRIOR = np.stack(
    [_rows_to_one(np.exp(-0.5 * ((_MEANS[None, :] - _MEANS[:, None]) / spread) ** 2)) for spread in _CLASS_SPREADS]
)
_LOGS = np.log(_DEVIATIONS)
_DEVIATION_PRIOR = np.stack(
    [_rows_to_one(np.exp(-0.5 * ((_LOGS[None, :] - _LOGS[:, None]) / spread) ** 2)) for spread in _RATIO_SPREADS]
)


@lru_cache(maxsize=64)
def _law(power: float, fine: int) -> Floats:
    """Return P(fine cell) for each mean and deviation of the grid; the outer cells take the tails, as values are clipped."""
    edges = 2 * (np.arange(fine + 1) / fine) ** power - 1
    edges[0], edges[-1] = -np.inf, np.inf
    below = special.ndtr((edges[None, None, :] - _MEANS[:, None, None]) / _DEVIATIONS[None, :, None])
    return np.asarray(np.maximum(np.diff(below, axis=2), _MIN_CELL))


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
    """Return P(fine cell | class), integrated over normal laws, of each part: (attributes, classes, fine).

    Two families (`_POWERS`) and two priors of deviations are weighted by their evidence, attribute by attribute; the distance
    of classes (`_CLASS_SPREADS`) also by the evidence of all attributes.
    """
    ends = np.cumsum([len(part.rows) for part in parts])[:-1]
    forms, logs = [], []
    for power in _POWERS:
        log = np.concatenate([_log_likelihood(part, power, size_deviation) for part in parts])
        top = log.max(axis=(2, 3), keepdims=True)
        likelihood = np.exp(log - top)  # (attributes, classes, means, deviations)
        for ratio in _DEVIATION_PRIOR:
            evidence = np.einsum("tom,acmu->atocu", _MEAN_PRIOR, likelihood @ ratio.T, optimize=True) + _TINY
            joint = np.log(evidence).sum(axis=3)  # over classes: (attributes, spreads, centres, deviations)
            peak = joint.max(axis=(2, 3), keepdims=True)
            weight = np.exp(joint - peak)
            mass = weight.sum(axis=(2, 3), keepdims=True)
            logs.append((peak + np.log(mass))[:, :, 0, 0] + top.sum(axis=1)[:, :, 0])
            forms.append((power, ratio, likelihood, evidence, weight / mass))
    log = np.stack(logs)  # (forms, attributes, spreads)
    shown = np.exp(log - log.max(axis=(0, 2), keepdims=True))
    belief = shown * _learned(shown.sum(axis=0))
    belief /= belief.sum(axis=(0, 2), keepdims=True)
    laws: list[Floats] = [np.zeros(()) for _ in parts]
    for own, (power, ratio, likelihood, evidence, weight) in zip(belief, forms, strict=True):
        weight = weight * own[:, :, None, None]
        pull = np.einsum("atocu,tom->acmu", weight[:, :, :, None, :] / evidence, _MEAN_PRIOR, optimize=True)
        for at, (part, posterior) in enumerate(zip(parts, np.split((pull @ ratio) * likelihood, ends), strict=True)):
            fine = part.edges[-1]
            laws[at] = laws[at] + posterior.reshape(*posterior.shape[:2], -1) @ _law(power, fine).reshape(-1, fine)
    return laws


def _log_likelihood(part: Ordered, power: float, size_deviation: float) -> Floats:
    """Return the log-likelihood of the grid up to a constant: (attributes, classes, means, deviations)."""
    width = part.cells.shape[2]
    p = _coarse_law(power, part.edges[-1], part.edges)
    size, noise = part.rows[:, :, None, None, None], part.deviations[:, None, None, None, None]
    variance = noise**2 + size * p * (1 - p) + (size_deviation * (p - 1 / width)) ** 2 + 1.0
    gap = part.cells[:, :, None, None, :] - size * p
    return np.asarray(-0.5 * (gap**2 / variance + np.log(variance)).sum(axis=4) * ((width - 1) / width))


def blend_cells(fitted: Floats, cells: Floats, rows: Floats, deviation: float, edges: Sequence[int], alpha: float) -> Floats:
    """Correct the fitted distribution towards the noisy cells if they differ by more than noise explains: (classes, fine)."""
    classes, width = cells.shape
    starts, widths = np.asarray(edges[:-1]), np.diff(edges)
    coarse = np.add.reduceat(fitted, starts, axis=1)
    size = rows[:, None]
    away = cells - size * coarse
    freedom = classes * (width - 1)
    misfit = float((away**2 / (deviation**2 + size * coarse * (1 - coarse) + 1e-9)).sum())
    weight = max(0.0, 1 - (freedom + 2 * math.sqrt(2 * freedom)) / max(misfit, _TINY))  # two deviations of chance are free
    blended = size * coarse + weight * away
    blended = np.maximum(blended, np.minimum(0.5 * alpha, size * coarse))
    blended = blended / blended.sum(axis=1, keepdims=True)
    inner = fitted / np.repeat(coarse, widths, axis=1)
    flat = np.repeat(1 / widths, widths)
    return np.asarray(np.repeat(blended, widths, axis=1) * (weight * flat + (1 - weight) * inner))


def temper_law(law: Floats, shrunk: Floats, sizes: ClassSizes, edges: Sequence[int]) -> Floats:
    """Temper a fitted distribution (classes, fine) so that classes differ no more than in the shrunk cells.

    A normal law reads more into two or three cells than they say; over many weak features that adds up.
    """
    part = sizes.rows[:, None] / sizes.total

    def difference(table: Floats) -> float:
        log = np.log(table)
        return float((part * (part * table).sum(axis=0) * (log - (part * log).sum(axis=0)) ** 2).sum())

    coarse = np.add.reduceat(law, edges[:-1], axis=1)
    ratio = min(1.0, math.sqrt(difference(shrunk) / max(difference(coarse), _TINY)))
    log = np.log(law)
    base = (part * log).sum(axis=0)
    return _rows_to_one(np.exp(base + ratio * (log - base)))


def spread_cells(probabilities: Floats, edges: Sequence[int]) -> Floats:
    """Spread cell probabilities evenly over the fine cells."""
    widths = np.diff(edges)
    return np.repeat(probabilities / widths, widths, axis=1)


# -- moments -----------------------------------------------------------------------------------------------------------


def shrink_moments(first: Floats, second: Floats, sizes: ClassSizes, deviation: float) -> tuple[Floats, Floats]:
    """Estimate class means and variances in units of the half range, from noisy sums of z and of 2 z^2 - 1, z in [-1, 1].

    Means are shrunk to the pooled mean by the share of their spread that is noise; the remaining noise variance is added to
    the variance. Variances are shrunk to the pooled one likewise, and the pooled one, where noise hides it, to that of a number
    whose range is four deviations to each side.
    """
    rows, share = sizes.rows, sizes.rows / sizes.total
    classes = len(rows)
    noise = (deviation / rows) ** 2
    means = first / rows
    centre = float(np.clip(first.sum() / sizes.total, -1, 1))
    away = means - centre
    spread = max(0.0, float((away**2 * share).sum() - (noise * share).sum() * (classes - 1) / classes))
    weight = spread / (spread + noise + _TINY)
    shrunk = np.clip(centre + weight * away, -1, 1)
    square = min(max((float(second.sum()) / sizes.total + 1) / 2, 0.0), 1.0)
    error = (deviation * math.sqrt(classes) / sizes.total / 2) ** 2 + 1e-12
    likely = 1 / 16
    weight_of_all = likely**2 / (likely**2 + error)  # before the noise is seen the variance errs by as much as it is
    pooled = likely + weight_of_all * (square - centre**2 - spread - likely)
    pooled = max(float(positive_mean(np.array(pooled), math.sqrt(error * weight_of_all))), 1e-6)
    own = np.clip((second / rows + 1) / 2, 0, 1) - np.clip(means, -1, 1) ** 2 + noise
    errors = (deviation / rows / 2) ** 2 + 4 * means**2 * noise
    gap = own - pooled
    between = max(0.0, float((gap**2 - errors).mean()))
    belief = between / (between + errors + _TINY)
    variance = np.maximum(positive_mean(pooled + belief * gap, np.sqrt(errors * belief)), 1e-6)
    return np.asarray(shrunk), np.asarray(variance + weight * noise)
