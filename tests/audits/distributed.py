"""The audit of noise that several parties add together: the smallest sum that the plan counts on, with a record and without.

Part 2 adds up the shares of as many honest parties as the noise is planned for; the shares of all others are taken as known.
The control lacks one of them, and must be refuted.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.dp.audit.empirical import Check, Claim
from blindbayes.dp.audit.lower_bounds import Bound, epsilon_lower
from blindbayes.dp.distributed.noise_shares import DistributedNoise, Mechanism
from blindbayes.dp.noise.exact_events import Number, budget_floor
from blindbayes.dp.noise.pld import composed_delta
from blindbayes_papers.mechanism_audit import DRAWS, control_check, loss_check
from support.mechanisms import many_shares, noise_by

HONEST, TOUCHED = 2, 2
PURE_DRAWS = 60_000
AUDITED: tuple[Mechanism, ...] = ("polya", "skellam")


def plan_shares(name: Mechanism, epsilon: Number, delta: float) -> DistributedNoise:
    """Noise of a small sum whose loss is easy to see: a record moves each of its cells."""
    return noise_by(name, touched=TOUCHED, bounds=[1] * TOUCHED, epsilon=budget_floor(epsilon), delta=delta, honest=HONEST)


def claims_of(noise: DistributedNoise) -> list[Claim]:
    """What the noise promises, and where a small delta hides the loss in rare events, what the law of its sum has at a tenth
    of epsilon."""
    promised, tenth = Claim(float(noise.epsilon), noise.delta), float(noise.epsilon) / 10
    if not noise.delta:
        return [promised]
    return [promised, Claim(tenth, composed_delta(noise.table(noise.honest), noise.reach, noise.touched, tenth))]


def attack_shares(noise: DistributedNoise, claim: Claim, coins: Coins, count: int, shares: int = HONEST) -> Bound:
    """A lower bound on epsilon of a sum with so many honest shares in it."""
    outputs = []
    for record in (0, 1):
        drawn = [many_shares(noise, coins, count * TOUCHED) for _ in range(shares)]
        cells = np.sum(drawn, axis=0).reshape(count, TOUCHED) + record
        gain = np.abs(cells).sum(axis=1) - np.abs(cells - 1).sum(axis=1)
        outputs.append(np.column_stack([cells, cells.sum(axis=1), gain]))
    names = [*(f"cell {at}" for at in range(TOUCHED)), "sum of the cells", "gain in L1"]
    return epsilon_lower(*outputs, delta=claim.delta, names=names, learn=False)


def audit_distributed(coins: Coins, *, epsilon: Number = 1, delta: float = 1e-6, draws: int = DRAWS) -> Iterator[Check]:
    """Part 2 for every mechanism that a study takes by itself. Pure noise shows its loss in fewer draws."""
    for name in AUDITED:
        noise = plan_shares(name, epsilon, delta)
        label, promised = f"shares of {name} noise, {HONEST} honest", claims_of(noise)
        count = draws if noise.delta else min(draws, PURE_DRAWS)
        for claim in promised:
            yield loss_check(label, claim, partial(attack_shares, noise, claim, coins, count))
        weak = partial(attack_shares, noise, promised[-1], coins, count, HONEST - 1)
        yield control_check(f"{label}: control that lacks one of them is refuted", promised[-1], weak)
