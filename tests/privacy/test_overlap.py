"""The noisy overlap: what either party sees of the other costs epsilon at most, and less noise than that is caught."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from blindbayes.errors import ConfigError, LocalProtocolError, PeerProtocolError
from blindbayes.primitives.coins import Coins
from blindbayes.privacy.evidence import epsilon_lower
from blindbayes.privacy.overlap import OverlapNoise
from blindbayes.protocol.core import Open, Receive, Send
from blindbayes.protocol.joined_sums import merge
from blindbayes.protocol.joined_sums.counts import NOISY_LABEL, noisy_overlap
from blindbayes.protocol.joined_sums.messages import OverlapNoised
from blindbayes.protocol.transfer import mark
from blindbayes.transport.memory import local_runs
from support.two_party import coins

Draw = Callable[[OverlapNoise, Coins], int]
RUNS = local_runs(["a", "b"], coins=coins("runs"), signed=False)


def exchange(rows: int, noises: tuple[int, int], source: Coins) -> tuple[int, int, int]:
    """One exchange over random shares of `rows`: what the first and the second know when each has taken its own noise off,
    and the opened number. A role is a generator, so its messages are carried by hand."""
    cut = source.words(1)
    shares = np.array([cut, np.array([rows], dtype=np.uint64) - cut])
    roles = [
        noisy_overlap(RUNS[me], other, share, noise) for me, other, share, noise in zip("ab", "ba", shares, noises, strict=True)
    ]
    sent = [next(role) for role in roles]
    assert all(isinstance(effect, Send) and effect.message.trust.value == "noisy" for effect in sent)
    assert all(isinstance(next(role), Receive) for role in roles)
    opened = [role.send(effect.message) for role, effect in zip(roles, reversed(sent), strict=True)]
    assert all(isinstance(effect, Open) and effect.label == NOISY_LABEL for effect in opened)
    assert opened[0].value == opened[1].value
    known = [int((sent[1 - at].message.share + shares[at]).view(np.int64)[0]) for at in (0, 1)]
    return known[0], known[1], opened[0].value


def test_the_opened_number_is_the_overlap_and_the_noise_of_both() -> None:
    source = coins("exchange")
    for rows, noises in ((0, (0, 0)), (5, (-9, 2)), (2**40, (3, 4)), (0, (-(2**30), 1))):
        first, second, opened = exchange(rows, noises, source)
        assert opened == rows + sum(noises)
        assert (first, second) == (rows + noises[1], rows + noises[0])


def seen(law: OverlapNoise, rows: int, draws: int, source: Coins, mine: Draw, theirs: Draw) -> np.ndarray:
    """What the two parties know after each of many exchanges, (draws, 2)."""
    noises = [(mine(law, source), theirs(law, source)) for _ in range(draws)]
    return np.array([exchange(rows, noise, source)[:2] for noise in noises])


def full(law: OverlapNoise, source: Coins) -> int:
    return law.draw(source)


def half(law: OverlapNoise, source: Coins) -> int:
    """The planted bug: half of the noise, as if the other's half protected too."""
    return OverlapNoise(2 * law.epsilon).draw(source)


def none(law: OverlapNoise, source: Coins) -> int:
    """The planted bug: one party forgets its noise."""
    return 0


@pytest.mark.parametrize("draws", [2000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_each_party_sees_no_more_than_epsilon_of_the_other(draws: int) -> None:
    """Neighbours whose overlap differs by one. At 99.9% each (eight bounds): within epsilon for either party; half
    the noise at one party, or none, is refuted at the other party and only there."""
    law, source = OverlapNoise(Fraction(1)), coins(f"audit {draws}")
    for mine, theirs, caught in ((full, full, ()), (half, full, (1,)), (full, half, (0,)), (full, none, (0,))):
        near = seen(law, 40, draws, source, mine, theirs)
        far = seen(law, 41, draws, source, mine, theirs)
        for party in (0, 1):
            found = epsilon_lower(near[:, party], far[:, party], learn=False).epsilon
            if party in caught:
                assert found > 1.15
            else:
                assert 0.5 < found <= 1  # the attack comes close to the claim, so it would see a little too little noise


def test_noise_has_the_law_of_its_scale() -> None:
    """Mean of |x|: 2a / (1 - a^2), a = e^(-1/scale); within five standard errors, and not at 0.8 or 1.25 times."""
    law, source = OverlapNoise(Fraction(1, 8)), coins("law")
    drawn = np.abs([law.draw(source) for _ in range(4000)])

    def distance(scale: float) -> float:
        a = math.exp(-1 / scale)
        mean, square = 2 * a / (1 - a * a), 2 * a / (1 - a) ** 2
        return abs(drawn.mean() - mean) / math.sqrt((square - mean * mean) / len(drawn))

    assert law.scale == 8
    assert distance(8) < 5
    assert distance(0.8 * 8) > 5
    assert distance(1.25 * 8) > 5
    assert abs(np.sqrt((drawn.astype(float) ** 2).mean()) / law.deviation - 1) < 0.1


@pytest.mark.parametrize("policy", ["join", "first"])
def test_one_identifier_moves_the_overlap_by_at_most_one(policy: str) -> None:
    """Every pair of tables of three identifiers with up to two rows each, less one identifier, or less one row."""
    names = [bytes([at]) * 16 for at in range(3)]
    ones = np.ones((6, 1), dtype=np.uint64)

    def joined(first: list[bytes], second: list[bytes]) -> int:
        one, other = (merge(rows, ones[: len(rows)], policy, 2).items.tolist() for rows in (first, second))
        return sum(item in other for item in one)

    worst = 0
    for left, right in itertools.product(itertools.product(range(3), repeat=3), repeat=2):
        first, second = (
            [name for name, count in zip(names, rows, strict=True) for _ in range(count)] for rows in (left, right)
        )
        whole = joined(first, second)
        assert whole == len(set(first) & set(second))
        smaller = [[name for name in first if name != gone] for gone in names]
        smaller += [first[:at] + first[at + 1 :] for at in range(len(first))]
        worst = max(worst, *[abs(whole - joined(table, second)) for table in smaller])
    assert worst == 1


def test_the_price_of_several_joins_adds_up() -> None:
    assert OverlapNoise(Fraction("0.1")).price.epsilon == 0.1
    assert OverlapNoise(Fraction("0.1"), 3).price.epsilon == 0.3
    assert OverlapNoise(Fraction("0.1"), 3).scale == 10


def test_a_law_that_makes_no_sense_is_refused() -> None:
    for epsilon, joins in ((Fraction(0), 1), (Fraction(-1), 1), (Fraction(1), 0)):
        with pytest.raises(ConfigError):
            OverlapNoise(epsilon, joins)
    with pytest.raises(ConfigError, match="drowns"):
        OverlapNoise(Fraction(1, 2**41))


def test_a_share_of_a_wrong_length_is_refused() -> None:
    nothing, own = np.zeros(2, dtype=np.uint64), RUNS["b"].context(NOISY_LABEL, "b", "a")
    for words, due, reason in ((2, own, "one word"), (1, own + b"!", "another session")):
        role = noisy_overlap(RUNS["a"], "b", nothing[:1], 0)
        next(role)
        next(role)
        with pytest.raises(PeerProtocolError, match=reason) as caught:
            role.send(OverlapNoised(mark(due, OverlapNoised, 0), nothing[:words]))
        assert caught.value.party == "b"
    from blindbayes.protocol.joined import _noise

    for noise in (None, {"telecom": 3}):
        with pytest.raises(LocalProtocolError, match="without noise"):
            _noise(noise, "bank")
