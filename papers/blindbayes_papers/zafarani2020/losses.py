"""Exact privacy losses of the steps of Algorithm 1 of the paper, computed, not quoted.

The loss between Cauchy laws is the hyperbolic distance of their (location, scale) points (`privacy.smooth`, [cauchy]). A step
that claims epsilon' is tried on neighbouring lists in [-1, 1]; the ratio of the worst loss to epsilon' is what it overspends.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blindbayes_papers.zafarani2020.methods import printed_mean_bound
from blindbayes_papers.zafarani2020.smooth import variance_sensitivity

Floats = npt.NDArray[np.float64]
_GRID = (-1.0, -0.5, 0.0, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Loss:
    """A step of the algorithm, the epsilon' it claims and how many times that it costs."""

    error: str
    where: str
    claimed: float
    times: float


def distance(location: float, scale: float, other: float, other_scale: float) -> float:
    """Privacy loss between two Cauchy laws."""
    return math.acosh(1 + ((location - other) ** 2 + (scale - other_scale) ** 2) / (2 * scale * other_scale))


def _mean_loss(one: Floats, other: Floats, claimed: float) -> float:
    beta, factor = claimed / 6, math.sqrt(2) / claimed
    scales = [factor * printed_mean_bound(np.sort(part), beta) for part in (one, other)]
    return distance(float(one.mean()), scales[0], float(other.mean()), scales[1])


def replaced(claimed: float, longest: int = 5) -> float:
    """Theorem 4 with class sizes fixed, as the paper takes them: the worst of all small lists and replacements."""
    worst = 0.0
    for size in range(1, longest + 1):
        for chosen in itertools.combinations_with_replacement(_GRID, size):
            one = np.array(chosen)
            for at, value in itertools.product(range(size), _GRID):
                other = one.copy()
                other[at] = value
                worst = max(worst, _mean_loss(one, other, claimed))
    return worst / claimed


def left_class(count: int, claimed: float) -> float:
    """Theorem 4 when a record leaves the class: half of the numbers at each bound, one of them goes."""
    one = np.repeat([-1.0, 1.0], [count // 2, count - count // 2])
    return _mean_loss(one, one[:-1], claimed) / claimed


def left_small_class(claimed: float) -> float:
    """The same for a class of two that becomes a class of one."""
    return _mean_loss(np.array([-1.0, 1.0]), np.array([-1.0]), claimed) / claimed


def deviation_step(count: int, claimed: float) -> float:
    """Line 15: the deviation released with a *correct* bound of the variance. All numbers at -1, then one of them at 1."""
    one = np.full(count, -1.0)
    other = one.copy()
    other[-1] = 1.0
    factor = math.sqrt(2) / claimed
    scales = [factor * variance_sensitivity(np.sort(part), -1.0, 1.0, claimed / 6) for part in (one, other)]
    return distance(float(one.std()), scales[0], float(other.std()), scales[1]) / claimed


def true_losses() -> list[Loss]:
    """The table of the page."""
    seeds = 0.1 / 15  # epsilon' of Seeds at total epsilon 0.1: seven numeric attributes, the class counts
    change = "the change of f over k steps is maximised, not the local sensitivity at distance k"
    moves = "class sizes are taken as fixed, but a record can leave its class"
    line = "line 15 releases sigma with the sensitivity of the variance (here with a correct one)"
    return [
        Loss(change, "worst of all lists of up to five numbers", 0.1, replaced(0.1)),
        Loss(moves, "a class of 70 loses one, as in Seeds", seeds, left_class(70, seeds)),
        Loss(moves, "a class of two loses one", seeds, left_small_class(seeds)),
        Loss(line, "n = 100", 0.1, deviation_step(100, 0.1)),
        Loss(line, "n = 1,000", 0.1, deviation_step(1000, 0.1)),
        Loss(line, "n = 10,000", 0.1, deviation_step(10_000, 0.1)),
    ]
