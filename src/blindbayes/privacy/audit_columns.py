"""The audit of noise in shares: what whoever knows everything but one party's noise sees of one of that party's records.

Part 2 draws the noise of a party many times and looks at counters with and without a record, before they are held to bounds:
more than any answer shows. The control draws a quarter of the noise, and must be refuted: rounding to
whole counts hides less than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.primitives.coins import Coins
from blindbayes.privacy.audit import Check, Claim, told
from blindbayes.privacy.column_noise import ColumnNoise, Drawn, draw
from blindbayes.privacy.column_noise import Join as Way
from blindbayes.privacy.evidence import Bound, epsilon_lower
from blindbayes.privacy.exact_events import Number
from blindbayes.privacy.released import ReleasePlan

DRAWS = 1000
LESS_NOISE = Fraction(4)
HARD = Codebook(
    "y", ("a",), (Categorical("u", ("p", "q")), Numeric("x", 0, 8, bins=3), Categorical("v", ("r", "s"), optional=True))
)
"""One class and few cells: the loss of a single record shows best."""
OWNERS = {"class holder": ("u",), "other": ("x", "v")}


def plan_columns(epsilon: Number, delta: float = 0.0, way: Way = "aligned") -> ColumnNoise:
    """The noise of a small study whose loss is easy to see."""
    return ColumnNoise.make(HARD, OWNERS, "class holder", epsilon=epsilon, delta=delta, rows=10**6, join=way)


def record_of(plan: ReleasePlan) -> Drawn:
    """What one record adds: one to its class, and to the first value of each feature that the plan has tables of."""
    tables = {}
    for feature in plan.codebook.features:
        table = np.zeros((len(plan.codebook.classes), feature.size), dtype=object)
        table[0, 0] = 1
        tables[feature.name] = table
    return Drawn((1, *(0 for _ in plan.codebook.classes[1:])), tables)


def attack_columns(
    plan: ReleasePlan, claim: Claim, coins: Coins, draws: int, drawing: Callable[[ReleasePlan, Coins], Drawn] = draw
) -> Bound:
    """A lower bound on epsilon of all counters that one party's noise is in, with one of its records and without."""
    record = _flat(record_of(plan))
    outputs = []
    for change in (record, np.zeros_like(record)):
        noisy = np.array([_flat(drawing(plan, coins)) + change for _ in range(draws)], dtype=np.float64)
        touched = noisy[:, record > 0]
        against = noisy[:, record == 0]
        sums = [touched.sum(axis=1), touched.min(axis=1), touched[:, 1:].sum(axis=1) - against.sum(axis=1)]
        outputs.append(np.column_stack([noisy, *sums]))
    names = [*(f"counter {at}" for at in range(len(record))), "sum of the record's", "least of them", "difference"]
    return epsilon_lower(*outputs, delta=claim.delta, names=names, learn=False)


def audit_columns(
    coins: Coins, *, epsilon: Number = 1, delta: float = 0.0, way: Way = "aligned", draws: int = DRAWS
) -> Iterator[Check]:
    """Part 2 for both parties' noise."""
    noise = plan_columns(epsilon, delta, way)
    claim = Claim(float(noise.tables.epsilon), noise.price.delta)
    for party in OWNERS:
        plan, label = noise.plan_of(party), f"noise in shares ({noise.tables.mechanism}, {way}): {party}'s record"
        bound = attack_columns(plan, claim, coins, draws)
        yield Check("loss", label, bound.epsilon <= claim.epsilon, told(bound, claim), bound.epsilon, claim.epsilon)
        bound = attack_columns(replace(plan, epsilon=plan.epsilon * LESS_NOISE), claim, coins, draws)
        name = f"{label}, control with a quarter of the noise is refuted"
        yield Check("loss", name, bound.epsilon > claim.epsilon, told(bound, claim), bound.epsilon, claim.epsilon, control=True)


def _flat(drawn: Drawn) -> npt.NDArray[np.int64]:
    parts = [np.array(drawn.class_counts, dtype=np.int64), *(table.astype(np.int64).ravel() for table in drawn.tables.values())]
    return np.concatenate(parts)
