"""What tests know of protocols and laws from the outside: bounds, shapes and counts that the software itself never asks for."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from blindbayes.crypto import limbs as lm
from blindbayes.dp.distributed.noise_shares import DistributedNoise
from blindbayes.dp.noise.pld import composed_delta, renyi_log_delta
from blindbayes.protocols.shared_inference.compare_all import argmax_circuit
from blindbayes.protocols.shared_training.shared_model.score_layout import HistogramLayout, ScoreLayout
from blindbayes.protocols.shared_training.shared_model.tables import Tables


def renyi_delta(variance: float, l1: float, l2_squared: float, epsilon: float) -> float:
    """Delta of Skellam noise; 0 where it is below every float."""
    return math.exp(renyi_log_delta(variance, l1, l2_squared, epsilon))


def layer_count(parties: int, bits: int, classes: int) -> int:
    """Rounds of the argmax by all parties: layers of AND gates."""
    return argmax_circuit(parties, bits, classes).depth


def plain_error(plan: ScoreLayout, name: str) -> float:
    """Bound what rounding a value and a mean to floats may move a plain Gaussian score by.

    It is large where values lie far from 0 and close together. The shared scores have no such error: their codes and sums are
    whole numbers.
    """
    own = plan.features[name]
    floor = max(plan.codebook.variance_floor or 0.0, dict(plan.guard.floors).get(name, 0.0))
    if isinstance(own, HistogramLayout):
        return 0.0
    reach = max(abs(own.feature.low), abs(own.feature.high)) * 2.0**-52
    return reach * (own.feature.high - own.feature.low + reach) / floor


def near_tie(plan: ScoreLayout, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Rows (of plain scores, rows x K) whose two best lie within `tie_bound`, plus what the plain scores' own floating
    point is off: 2^-46 of the largest, and `plain_error`."""
    best = np.sort(scores, axis=1)
    finite = np.where(np.isfinite(scores), np.abs(scores), 0.0).max(axis=1)
    slack = plan.tie_bound + 2 * sum(plain_error(plan, name) for name in plan.features) + finite * 2.0**-46
    return best[:, -1] - best[:, -2] <= slack


def is_normal(tables: Tables, plan: ScoreLayout) -> bool:
    """Whether score tables have the plan's shape, no entry for the first choice, and no bits beyond its width."""
    return all(
        table.shape == (own.selectors, own.entries, plan.classes - 1, plan.limbs)
        and not table[:, 0].any()
        and np.array_equal(table, lm.cut(table, plan.bits))
        for table, own in ((table, plan.features[name]) for name, table in tables.items())
    )


def remaining_epsilon(noise: DistributedNoise, parties: int, *, delta: float = 1e-6, ceiling: float = 64.0) -> float:
    """The smallest epsilon (to 0.1%) at `delta` if only `parties` honest shares are in the sum, for a unit at full reach.

    The other shares were withheld or revealed, which is the same. Infinity past the ceiling.
    """
    if parties < 1:
        return math.inf
    table = noise.table(parties)

    def is_private(epsilon: float) -> bool:
        return composed_delta(table, noise.reach, noise.touched, epsilon) <= delta

    low, high = 0.0, ceiling
    if not is_private(high):
        return math.inf
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if is_private(middle) else (middle, high)
    return high
