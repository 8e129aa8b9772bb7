"""Weights of features from one noisy gradient of the rows' log-likelihood.  [weighing]

Features that repeat each other say less than their sum, and classes may be more or less likely than the evidence says. A
model with weights w and shifts b scores class k of a row by ln P(k) + b_k + sum_j w_j z_j(value, k), where z_j are the released
log-probabilities less their mean over classes. At w = `WEIGHT_START`, b = 0 the gradient of ln P(class | row), summed over the
rows, has one number per feature, sum_k z_j(value, k) r_k, and one per class, r_k = [k is the row's class] - P(k | row).

**What a row adds** are integers that depend on the row alone: q_k = round(GRID r_k), with P(k | row) from look-ups and
operations that IEEE 754 rounds alike in every row; and z_j, clipped to a public width about the middle of the classes and
rounded, |z_j| <= GRID. So a row adds |q_k| <= GRID to a class's number, and to a feature's at most
GRID sum |q_k| <= GRID (2 GRID + K) for K classes, since sum |r_k| = 2 (1 - P(own class)) <= 2. A missing value adds 0.

**Privacy.** Each number, divided by its bound, moves by at most 1, so the largest of all moves by at most R for R rows.
[classwise], for one class whose parts are numbers, hides that for its epsilon.

The rest is postprocessing: a Newton step, with the Hessian of rows sampled from the released model, shrunk by what the noise
leaves open. How far to go, if at all, is a candidate of the model selection (`selection`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.stage import Stage
from blindbayes.dp.noise.knorm_histograms import Classwise, ReleasePart
from blindbayes.dp.release.constants import MAX_WIDTH, SHIFT_SPREAD, WEIGHT_SPREAD, WEIGHT_START, WEIGHT_STEPS
from blindbayes.statistics import CodedRows
from blindbayes.statistics.parameters import Histogram, Parameters, Term

Floats = npt.NDArray[np.float64]
GRID = 1 << 10
MADE_UP = 1000
_FALL = np.exp(-np.arange(1025) / 64)  # e^-x in steps of 1/64


def weighed(parameters: Parameters, weights: Sequence[float] | Floats, shifts: Floats | float = 0.0) -> Parameters:
    """Return the model with the contrast of classes in each informative feature multiplied by its weight.

    Probabilities are normalised again, and what that takes from a class its prior gives back, so that scores stay the same.
    """
    names = informative(parameters)
    terms: dict[str, Term] = dict(parameters.terms)
    prior = parameters.log_prior + shifts
    for name, weight in zip(names, weights, strict=True):
        base, away = apart(parameters, name)
        log = base + weight * away
        lost = np.log(np.exp(log).sum(axis=1))
        terms[name] = Histogram(log - lost[:, None])
        prior = prior + lost
    return replace(parameters, log_prior=to_one(prior), terms=terms)


def tempered(parameters: Parameters, scale: float) -> Parameters:
    """Return the model with its evidence multiplied by `scale`."""
    return weighed(parameters, [scale] * len(informative(parameters)))


def odds(scores: Floats) -> tuple[Floats, Floats]:
    """Return P(class | row) over that of the best class, which is exactly 1, and its sum over classes.

    Only look-ups and single operations, so that a row's numbers do not depend on other rows, not even in their last bit.
    """
    best = reduce(np.maximum, scores.T)  # a third of the time of max(axis=1), for few classes
    behind = np.minimum((best[:, None] - scores) * 64, len(_FALL) - 1)
    chance = _FALL.take(np.rint(behind).astype(np.int64))
    total = chance[:, 0].copy()
    for index in range(1, chance.shape[1]):
        total += chance[:, index]
    return chance, total


def to_one(log: Floats) -> Floats:
    """Normalise logarithms of probabilities."""
    top = log.max()
    return np.asarray(log - top - np.log(np.exp(log - top).sum()))


def table_of(parameters: Parameters, name: str) -> Floats:
    """Return ln P(value | class) of a feature that is a table, (classes, values)."""
    term = parameters.terms[name]
    assert isinstance(term, Histogram)
    return term.log_prob


def informative(parameters: Parameters) -> list[str]:
    """Return the features that are tables in which classes differ."""
    return [
        name
        for name, term in parameters.terms.items()
        if isinstance(term, Histogram) and bool((np.ptp(term.log_prob, axis=0) > 1e-12).any())
    ]


def apart(parameters: Parameters, name: str) -> tuple[Floats, Floats]:
    """Return the mean of a table over classes, and the difference of each class from it."""
    table = table_of(parameters, name)
    base = (np.exp(parameters.log_prior)[:, None] * table).sum(axis=0)
    return base, table - base


@dataclass(frozen=True)
class Gradient:
    """The gradient at one released model, and its noise."""

    parameters: Parameters
    epsilon: Fraction
    rows_per_unit: int

    @cached_property
    def features(self) -> list[str]:
        """Features that get a weight."""
        return informative(self.parameters)

    @cached_property
    def start(self) -> Parameters:
        """The model at which the gradient is taken."""
        return weighed(self.parameters, [WEIGHT_START] * len(self.features))

    @cached_property
    def tables(self) -> list[tuple[Floats, Floats, float]]:
        """Per feature: z, z clipped and rounded to integers, and the value of one unit of these."""
        out = []
        for name in self.features:
            away = apart(self.parameters, name)[1]
            share = np.exp(self.parameters.log_prior) @ np.exp(table_of(self.parameters, name))
            middle = (away.max(axis=0) + away.min(axis=0)) / 2
            half = min(MAX_WIDTH * float(np.sqrt(share @ np.ptp(away, axis=0) ** 2)), float(np.ptp(away, axis=0).max())) / 2
            out.append((away, np.rint(np.clip((away - middle) / half, -1, 1) * GRID), half / GRID))
        return out

    @property
    def bounds(self) -> list[int]:
        """Largest absolute value that one row adds to each number."""
        classes = len(self.parameters.log_prior)
        return [GRID * (2 * GRID + classes)] * len(self.features) + [GRID] * classes

    def residuals(self, rows: CodedRows) -> Floats:
        """Return integers q, (rows, classes), 0 where the class is not known."""
        chance, total = odds(self.start.joint_log_likelihood(rows))
        sums = chance / -total[:, None]
        known = np.flatnonzero(rows.known_labels >= 0)
        sums[known, rows.known_labels[known]] += 1
        sums = np.rint(sums * GRID)
        sums[rows.known_labels < 0] = 0
        return np.asarray(sums)

    def sums(self, rows: CodedRows) -> list[int]:
        """Return the exact sums over the rows: a number per feature, then one per class."""
        sums = self.residuals(rows)
        out = []
        for name, (_, clipped, _) in zip(self.features, self.tables, strict=True):
            codes = rows.columns[name] + 1  # 0: missing
            total = 0
            for index, own in enumerate(clipped):
                cells = np.bincount(codes, sums[:, index], minlength=clipped.shape[1] + 1)[1:]
                total += int(own.astype(np.int64) @ cells.astype(np.int64))
            out.append(total)
        return out + [int(value) for value in sums.sum(axis=0)]

    @cached_property
    def noise(self) -> Classwise:
        """Noise of one class with these numbers."""
        parts = tuple(ReleasePart(f"number {index}", 2, True, True) for index in range(len(self.bounds)))
        return Classwise(parts, self.epsilon, self.rows_per_unit)

    def releases(self, sums: Sequence[int], coins: Coins, count: int) -> Floats:
        """Return `count` independent releases, one per row, in units of the bounds. Each costs epsilon."""
        tables: list[npt.NDArray[Any]] = [np.array([[value]], dtype=object) for value in sums]
        return np.stack([sums[:, 0, 0] for sums in self.noise.releases(tables, self.bounds, coins, count)], axis=1)


@dataclass(frozen=True)
class FeatureWeights:
    """Weights of features, for epsilon, in a table of about `rows` rows."""

    epsilon: Fraction
    rows_per_unit: int
    rows: int

    def stage(self, unit: str) -> Stage:
        """Return the facts of this stage: what a row adds is computed in floating point and rounded by itself."""
        return Stage(
            name="weights of features",
            mechanism="knorm",
            epsilon=self.epsilon,
            unit=unit,
            sensitivity="one row moves each entry of a gradient, an integer, by at most its bound",
            sampler=Classwise.sampler,
            floating_point=True,
        )

    def models(self, parameters: Parameters, rows: CodedRows, coins: Coins) -> list[Parameters]:
        """Return the models that a noisy gradient suggests, nearest first."""
        gradient = Gradient(parameters, self.epsilon, self.rows_per_unit)
        if not gradient.features:
            return []
        sums = gradient.releases(gradient.sums(rows), coins, 1)[0]
        step = self._step(gradient, sums, coins)
        count = len(gradient.features)
        return [
            weighed(parameters, np.maximum(WEIGHT_START + far * step[:count], 0), far * step[count:]) for far in WEIGHT_STEPS
        ]

    def _step(self, gradient: Gradient, sums: Floats, coins: Coins) -> Floats:
        """Return the posterior mean of the step, given a released gradient, noise, sampling error and the prior."""
        units = np.array([worth for _, _, worth in gradient.tables] + [1.0] * len(gradient.parameters.log_prior)) / GRID
        scale = units * np.array(gradient.bounds, dtype=np.float64)
        rows = self.rows
        full, clipped = self._made_up(gradient, coins)
        cross, own = (rows / MADE_UP) * clipped @ full.T, (rows / MADE_UP) * clipped @ clipped.T
        spread = np.where(np.arange(len(scale)) < len(gradient.features), WEIGHT_SPREAD, SHIFT_SPREAD) ** 2
        noise = scale**2 * np.array(gradient.noise.variances())
        reach = cross * spread  # what usual steps would show: cross @ diag(spread)
        return np.asarray(reach.T @ np.linalg.solve(reach @ cross.T + own + np.diag(noise + 1e-9), sums * scale))

    @staticmethod
    def _made_up(gradient: Gradient, coins: Coins) -> tuple[Floats, Floats]:
        """Sample rows from the released model.

        Return z of features and classes, centred and weighted by P(class | row), unclipped and clipped, each shaped
        (numbers, rows x classes).
        """
        parameters = gradient.parameters
        prior = np.exp(parameters.log_prior)
        classes, edges = len(prior), np.cumsum(prior)

        def points() -> Floats:
            return (coins.words(MADE_UP).astype(np.float64) + 0.5) / 2.0**64

        label = np.sort(np.minimum(np.searchsorted(edges, points() * edges[-1]), classes - 1))
        starts = np.searchsorted(label, np.arange(classes + 1))
        full = np.empty((len(gradient.features) + classes, MADE_UP, classes))
        full[-classes:] = np.eye(classes)[:, None, :]
        clipped = full.copy()
        for index, (name, (away, whole, worth)) in enumerate(zip(gradient.features, gradient.tables, strict=True)):
            below = np.cumsum(np.exp(table_of(parameters, name)), axis=1)
            u, cell = points(), np.empty(MADE_UP, dtype=np.int64)
            for k in range(classes):
                part = slice(starts[k], starts[k + 1])
                cell[part] = np.searchsorted(below[k], u[part] * below[k, -1])
            full[index], clipped[index] = away[:, cell].T, worth * whole[:, cell].T
        score = parameters.log_prior + WEIGHT_START * full[:-classes].sum(axis=0)
        chance = np.exp(score - score.max(axis=1, keepdims=True))
        chance /= chance.sum(axis=1, keepdims=True)
        root = np.sqrt(chance)
        for each in (full, clipped):
            each -= (each * chance).sum(axis=2, keepdims=True)
            each *= root
        return full.reshape(len(full), -1), clipped.reshape(len(clipped), -1)
