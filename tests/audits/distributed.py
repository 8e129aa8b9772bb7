"""The audit of noise that several parties add together: the smallest sum that the plan counts on, with a record and without.

Part 2 adds up the shares of as many honest parties as the noise is planned for; the shares of all others are taken as known.
The control lacks one of them, and must be refuted. Of noise that every party brings whole the sum counts on that of the
record's own party; the control brings only what would do if two parties' noise were added. A person at several sites, whose
pseudonyms a server compares, counts at one of them; the control's server has the person count at all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import TypeAlias

import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.dp.audit.empirical import Check, Claim
from blindbayes.dp.audit.lower_bounds import Bound, epsilon_lower
from blindbayes.dp.distributed.noise_shares import DistributedNoise, Mechanism
from blindbayes.dp.distributed.whole_noise import WholeNoise
from blindbayes.dp.noise.exact_events import Number, budget_floor
from blindbayes.dp.noise.knorm_histograms import Classwise, ReleasePart
from blindbayes.dp.noise.pld import composed_delta
from blindbayes.protocols.deduplicated_sum.roles import Places, choose
from blindbayes.wire import U64Array
from blindbayes_papers.mechanism_audit import DRAWS, control_check, loss_check
from support.mechanisms import many_shares, noise_by

HONEST, TOUCHED, SITES = 2, 2, 3
PURE_DRAWS = 60_000
Choice: TypeAlias = Callable[[Sequence[U64Array], Coins], tuple[list[Places], dict[tuple[int, ...], int]]]
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
    whole, claim, count = plan_whole(epsilon), Claim(float(budget_floor(epsilon)), 0.0), min(draws, PURE_DRAWS)
    yield loss_check("whole noise of one party", claim, partial(attack_whole, whole, claim, coins, count))
    weak = partial(attack_whole, shared_out(whole), claim, coins, count)
    yield control_check(f"whole noise: control with 1/{HONEST} of its variance is refuted", claim, weak)
    yield loss_check(f"a matched person at {SITES} sites", claim, partial(attack_matched, whole, coins, count))
    everywhere = partial(attack_matched, whole, coins, count, everywhere_kept)
    yield control_check("a matched person: control whose server has all count everywhere is refuted", claim, everywhere)


def plan_whole(epsilon: Number) -> WholeNoise:
    """Whole noise of a class count and a histogram of two cells, in one class."""
    parts = (ReleasePart("class counts", 2, number=True), ReleasePart("x", 2))
    return WholeNoise(Classwise(parts, budget_floor(epsilon)), 1, "record")


def shared_out(noise: WholeNoise) -> WholeNoise:
    """Noise that would have the planned variance in a sum of `HONEST` parties: what shares do, and a K-norm must not."""
    more = noise.epsilon * Fraction(math.sqrt(HONEST)).limit_denominator(1000)
    return replace(noise, law_of_one=replace(noise.law_of_one, epsilon=more))


def attack_matched(noise: WholeNoise, coins: Coins, count: int, choice: Choice = choose) -> Bound:
    """A lower bound on epsilon of a person with a row at each of several sites, whose pseudonyms the server compares."""
    names = np.stack([np.arange(count, dtype=np.uint64), coins.words(count)], axis=1)  # `count` persons: as many runs
    kept, _ = choice([names] * SITES, coins)
    rows, outputs = np.sum(kept, axis=0), []
    for record in (0, 1):
        cells = (record * rows)[:, None, None]
        exact = noise.words([cells, np.concatenate([cells, 0 * cells], axis=2)])
        seen = (exact + noise.repeated(count).share(coins).reshape(count, -1)) / [block.step for block in noise.blocks]
        gain = np.abs(seen).max(axis=1) - np.abs(seen - [1, -1]).max(axis=1)
        outputs.append(np.column_stack([seen, gain]))
    return epsilon_lower(*outputs, delta=0.0, names=["class count", "difference of the cells", "gain in the norm"], learn=False)


def everywhere_kept(lists: Sequence[U64Array], coins: Coins) -> tuple[list[Places], dict[tuple[int, ...], int]]:
    """What a server does that ignores the choice: everybody counts at each of their sites."""
    return [np.ones(len(each), np.int64) for each in lists], {}


def attack_whole(noise: WholeNoise, claim: Claim, coins: Coins, count: int) -> Bound:
    """A lower bound on epsilon of the vector of the record's own party; all other parties' noise is known."""
    outputs = []
    for record in (0, 1):
        exact = noise.words([np.array([[record]]), np.array([[record, 0]])])
        seen = (exact + noise.repeated(count).share(coins).reshape(count, -1)) / [block.step for block in noise.blocks]
        gain = np.abs(seen).max(axis=1) - np.abs(seen - [1, -1]).max(axis=1)
        outputs.append(np.column_stack([seen, gain]))
    return epsilon_lower(*outputs, delta=0.0, names=["class count", "difference of the cells", "gain in the norm"], learn=False)
