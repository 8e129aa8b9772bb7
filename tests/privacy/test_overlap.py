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
from support.two_party import coins

Draw = Callable[[OverlapNoise, Coins], int]


def exchange(rows: int, noises: tuple[int, int], source: Coins) -> tuple[int, int, int]:
    """One exchange over random shares of `rows`: what the first and the second know when each has taken its own noise off,
    and the opened number. A role is a generator, so its messages are carried by hand."""
    cut = source.words(2)
    shares = np.array([cut, np.array([rows, 0], dtype=np.uint64) - cut])
    roles = [noisy_overlap(other, share, noise) for other, share, noise in zip("ba", shares, noises, strict=True)]
    sent = [next(role) for role in roles]
    assert all(isinstance(effect, Send) and effect.message.trust.value == "noisy" for effect in sent)
    assert all(isinstance(next(role), Receive) for role in roles)
    opened = [role.send(effect.message) for role, effect in zip(roles, reversed(sent), strict=True)]
    assert all(isinstance(effect, Open) and effect.label == NOISY_LABEL for effect in opened)
    assert opened[0].value == opened[1].value
    known = [int((sent[1 - at].message.share + shares[at].sum()).view(np.int64)[0]) for at in (0, 1)]
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
    """The planted bug: noise for half of the sensitivity, as if the other's half protected too."""
    return OverlapNoise(2 * law.epsilon, law.most).draw(source)


def none(law: OverlapNoise, source: Coins) -> int:
    """The planted bug: one party forgets its noise."""
    return 0


@pytest.mark.parametrize(("most", "draws"), [(2, 2000), pytest.param(1, 10_000, marks=pytest.mark.slow)])
def test_each_party_sees_no_more_than_epsilon_of_the_other(most: int, draws: int) -> None:
    """Neighbours whose overlap differs by the sensitivity. At 99.9% each (eight bounds): within epsilon for either party; half
    the noise at one party, or none, is refuted at the other party and only there."""
    law, source = OverlapNoise(Fraction(1), most), coins(f"audit {most}")
    for mine, theirs, caught in ((full, full, ()), (half, full, (1,)), (full, half, (0,)), (full, none, (0,))):
        near = seen(law, 40, draws, source, mine, theirs)
        far = seen(law, 40 + law.sensitivity, draws, source, mine, theirs)
        for party in (0, 1):
            found = epsilon_lower(near[:, party], far[:, party], learn=False).epsilon
            if party in caught:
                assert found > 1.15
            else:
                assert 0.5 < found <= 1  # the attack comes close to the claim, so it would see a little too little noise


def test_noise_has_the_law_of_its_scale() -> None:
    """Mean of |x|: 2a / (1 - a^2), a = e^(-1/scale); within five standard errors, and not at 0.8 or 1.25 times."""
    law, source = OverlapNoise(Fraction(1, 2), 2), coins("law")
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


def joined(first: list[bytes | None], second: list[bytes | None], policy: str, most: int) -> int:
    """Rows of the join of two columns of identifiers, counted as the parties count them."""
    tables = [
        {bytes(item): int(words[0]) for item, words in zip(found.items, found.words, strict=True)}
        for found in (merge(rows, np.ones((len(rows), 1), dtype=np.uint64), policy, most) for rows in (first, second))
    ]
    return sum(count * tables[1].get(item, 0) for item, count in tables[0].items())


@pytest.mark.parametrize(("policy", "most"), [("join", 1), ("join", 2), ("join", 3), ("first", 1)])
def test_one_identifier_moves_the_overlap_by_at_most_the_sensitivity(policy: str, most: int) -> None:
    """Every pair of tables of three identifiers with up to `most` rows each, less one identifier; the bound is reached."""
    names = [bytes([at]) * 16 for at in range(3)]
    rows = most if policy == "join" else 2  # under `first` more rows of an identifier count once
    worst = 0
    for left, right in itertools.product(itertools.product(range(rows + 1), repeat=3), repeat=2):
        if sorted(left) != list(left):  # the order of identifiers does not matter: one order of the first table is enough
            continue
        first = [name for name, count in zip(names, left, strict=True) for _ in range(count)]
        second = [name for name, count in zip(names, right, strict=True) for _ in range(count)]
        whole = joined(first, second, policy, most)
        for gone in names:
            worst = max(worst, abs(whole - joined([name for name in first if name != gone], second, policy, most)))
    assert worst == OverlapNoise(Fraction(1), most).sensitivity


def test_the_price_of_several_joins_adds_up() -> None:
    assert OverlapNoise(Fraction("0.1")).price.epsilon == 0.1
    assert OverlapNoise(Fraction("0.1"), 4, 3).price.epsilon == 0.3
    assert OverlapNoise(Fraction("0.1"), 4, 3).price.unit == "one person with at most 4 records"
    assert OverlapNoise(Fraction("0.1")).price.unit == "one record"
    assert OverlapNoise(Fraction(1, 2), 4).scale == 32


def test_a_law_that_makes_no_sense_is_refused() -> None:
    for epsilon, most, joins in ((Fraction(0), 1, 1), (Fraction(-1), 1, 1), (Fraction(1), 0, 1), (Fraction(1), 1, 0)):
        with pytest.raises(ConfigError):
            OverlapNoise(epsilon, most, joins)
    with pytest.raises(ConfigError, match="drowns"):
        OverlapNoise(Fraction(1, 10**9), 2**12)


def test_a_share_of_a_wrong_length_is_refused() -> None:
    role = noisy_overlap("bank", np.zeros(2, dtype=np.uint64), 0)
    next(role)
    next(role)
    with pytest.raises(PeerProtocolError, match="one word") as caught:
        role.send(OverlapNoised(np.zeros(2, dtype=np.uint64)))
    assert caught.value.party == "bank"
    from blindbayes.protocol.joined import _noise

    for noise in (None, {"telecom": 3}):
        with pytest.raises(LocalProtocolError, match="without noise"):
            _noise(noise, "bank")
