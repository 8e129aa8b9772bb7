"""The audit of one mechanism on one integer vector: loss and low bits, with a control that must be refuted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.sensitivity import Sensitivity
from blindbayes.dp.audit.empirical import Check, Claim, describe_bound
from blindbayes.dp.audit.lower_bounds import ALPHA, Bound, epsilon_lower, low_bits
from blindbayes.dp.noise import gaussian
from blindbayes.dp.noise.mechanisms import DiscreteGaussian, Mechanism
from blindbayes.dp.noise.pld import composed_delta

LESS_NOISE = Fraction(5, 4)
"""The control spends this multiple of epsilon: a fifth less noise. An attack that cannot see that shows nothing."""
DRAWS = 150_000


def worst_changes(sensitivity: Sensitivity) -> dict[str, npt.NDArray[np.int64]]:
    """Return the costliest changes that one unit can make: one cell of every block, with equal and mixed signs, and of one."""
    starts = np.cumsum([0, *[block.size for block in sensitivity.blocks]])[:-1]
    bounds = np.array([block.bound * sensitivity.rows_per_unit for block in sensitivity.blocks])
    up = np.zeros(sensitivity.size, dtype=np.int64)
    up[starts] = bounds
    changes = {"every block up": up}
    if len(bounds) > 1:
        mixed, single = up.copy(), np.zeros_like(up)
        mixed[starts[1::2]] *= -1
        single[starts[0]] = bounds[0]
        changes |= {"blocks up and down": mixed, "one block": single}
    return changes


Outputs = npt.NDArray[np.float64]


def sample(mechanism: Mechanism, vector: npt.NDArray[np.int64], coins: Coins, draws: int) -> Outputs:
    """Return releases of one vector, one per row."""
    return np.asarray(mechanism.releases(vector, coins, draws), dtype=np.float64)


def attack(
    mechanism: Mechanism, at_zero: Outputs, moved: Outputs, change: npt.NDArray[np.int64], delta: float, alpha: float
) -> Bound:
    """Return a lower bound on epsilon from releases of zero and of `change`."""
    names, first = _geometry(at_zero, change, mechanism.sensitivity)
    _, second = _geometry(moved, change, mechanism.sensitivity)
    names = [*[f"cell {index}" for index in range(change.size)], *names]
    pair = np.hstack([at_zero, first]), np.hstack([moved, second])
    return epsilon_lower(*pair, delta=delta, alpha=alpha, names=names, learn=False)


def claims(mechanism: Mechanism) -> list[Claim]:
    """Return the promises of a mechanism that samples can test.

    Gaussian noise at a small delta loses nearly all of its epsilon in events too rare to be sampled, so its promise is also
    tested at a tenth of epsilon, with the delta that sound noise of this price has there.
    """
    promised = Claim(float(mechanism.epsilon), mechanism.delta)
    if not isinstance(mechanism, DiscreteGaussian) or mechanism.sensitivity.rows_per_unit > 1:
        return [promised]
    small = mechanism.epsilon / 10
    sound = DiscreteGaussian(mechanism.sensitivity, mechanism.epsilon, mechanism.delta)  # not what the mechanism reports
    cells = len(sound.sensitivity.blocks)
    if sound.variance >= gaussian.SMALLEST_VARIANCE:
        return [promised, Claim(float(small), gaussian.delta_of(sound.variance, small, cells, sound.reach))]
    weights = np.exp(-(np.arange(-60.0, 61.0) ** 2) / (2 * float(sound.variance)))
    return [promised, Claim(float(small), composed_delta(weights / weights.sum(), sound.reach, cells, float(small)))]


def _geometry(
    outputs: npt.NDArray[np.float64], change: npt.NDArray[np.int64], sensitivity: Sensitivity
) -> tuple[list[str], Any]:
    """Return what an attacker who knows the neighbours looks at: distances to both, in the norms of the mechanisms."""
    sizes = [block.size for block in sensitivity.blocks]
    weights = np.repeat([float(block.bound / block.share) for block in sensitivity.blocks], sizes)
    cuts = np.cumsum(sizes)[:-1]

    def block_norm(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(np.max([np.abs(part).sum(axis=1) for part in np.split(x / weights, cuts, axis=1)], axis=0))

    moved = outputs - change
    columns = {
        "projection on the change": (outputs / weights) @ (change / weights),
        "gain in L1": np.abs(outputs / weights).sum(axis=1) - np.abs(moved / weights).sum(axis=1),
        "gain in block norm": block_norm(outputs) - block_norm(moved),
        "distance from the first input": block_norm(outputs),
        "distance from the second input": block_norm(moved),
    }
    return list(columns), np.column_stack(list(columns.values()))


def audit_mechanism(mechanism: Mechanism, coins: Coins, draws: int = DRAWS, where: str = "") -> Iterator[Check]:
    """Run parts 2 and 3 for one mechanism, with the control that must be refuted."""
    label = f"{mechanism.name}{', ' + where if where else ''}"
    changes, promised = worst_changes(mechanism.sensitivity), claims(mechanism)
    alpha = ALPHA / (len(changes) * len(promised))
    zero = np.zeros(mechanism.sensitivity.size, dtype=np.int64)
    at_zero = sample(mechanism, zero, coins, draws)

    def look(noisy: Mechanism, change: npt.NDArray[np.int64], claim: Claim) -> Bound:
        first, second = (sample(noisy, vector, coins, draws) for vector in (zero, change))
        return attack(noisy, first, second, change, claim.delta, alpha)

    for name, change in changes.items():
        moved = sample(mechanism, change, coins, draws)
        for claim in promised:
            first = attack(mechanism, at_zero, moved, change, claim.delta, alpha)
            yield loss_check(f"{label}: {name}", claim, partial(look, mechanism, change, claim), first)
    weak, change, claim = replace(mechanism, epsilon=mechanism.epsilon * LESS_NOISE), next(iter(changes.values())), promised[-1]
    yield control_check(f"{label}: control with a fifth less noise is refuted", claim, partial(look, weak, change, claim))
    yield _audit_low_bits(mechanism, coins, draws // 10, label)


def _audit_low_bits(mechanism: Mechanism, coins: Coins, draws: int, label: str) -> Check:
    change = next(iter(worst_changes(mechanism.sensitivity).values()))
    outputs = [mechanism.releases(vector, coins, draws) for vector in (np.zeros_like(change), change)]
    if all(output.dtype == object or np.issubdtype(output.dtype, np.integer) for output in outputs):
        return Check("low bits", label, True, "outputs are integers")
    bits = [low_bits(np.asarray(output, dtype=np.float64)) for output in outputs]
    bound, claim = epsilon_lower(bits[0], bits[1], delta=mechanism.delta), claims(mechanism)[0]
    return Check("low bits", label, bound.epsilon <= claim.epsilon, describe_bound(bound, claim), bound.epsilon, claim.epsilon)


def loss_check(name: str, claim: Claim, look: Callable[[], Bound], bound: Bound | None = None) -> Check:
    """Check a claim. It is refuted by an attack that succeeds twice: of many at 99.9% one may succeed by chance."""
    bound = bound or look()
    if bound.epsilon > claim.epsilon:
        bound = min(bound, look(), key=lambda each: each.epsilon)
    return Check("loss", name, bound.epsilon <= claim.epsilon, describe_bound(bound, claim), bound.epsilon, claim.epsilon)


def control_check(name: str, claim: Claim, look: Callable[[], Bound]) -> Check:
    """Check that a planted fault is detected. Missing it twice is a blind spot: of many one may be missed by chance."""
    bound = look()
    if bound.epsilon <= claim.epsilon:
        bound = max(bound, look(), key=lambda each: each.epsilon)
    return Check(
        "loss", name, bound.epsilon > claim.epsilon, describe_bound(bound, claim), bound.epsilon, claim.epsilon, control=True
    )
