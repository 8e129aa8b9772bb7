"""The noisy overlap: what either party sees of the other costs epsilon at most, and less noise than that is caught."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import msgspec
import numpy as np
import pytest

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.garbling.circuits import from_bits, to_bits
from blindbayes.crypto.garbling.garbling import Plain
from blindbayes.dp.accounting.overlap import OverlapNoise
from blindbayes.dp.audit.lower_bounds import epsilon_lower
from blindbayes.dp.noise.exact_events import SMALLEST_BUDGET
from blindbayes.errors import ConfigError, LocalProtocolError, PeerProtocolError, PrivacyError
from blindbayes.protocols.memory import Replace, run_in_memory
from blindbayes.protocols.private_join.sums.counts import NOISY_LABEL, noisy, noisy_total
from blindbayes.protocols.private_join.sums.inputs import merge
from blindbayes.protocols.private_join.sums.messages import NoiseChosen, OverlapNoised
from blindbayes.wire import Message
from support.two_party import coins, count_pair

Draw = Callable[[OverlapNoise, Coins], int]


def exchange(matches: int, noises: tuple[int, int]) -> tuple[int, int]:
    """One estimate by the real roles; what either party opened."""
    mine, theirs = count_pair(matches, 41)
    roles = {"rows": noisy(mine, noises[0], 48, False, coins("r")), "labels": noisy(theirs, noises[1], 48, True, coins("l"))}
    outcome = run_in_memory(roles)
    assert outcome.opened == {"rows": (NOISY_LABEL,), "labels": (NOISY_LABEL,)}
    return outcome.outputs["rows"], outcome.outputs["labels"]


def test_the_opened_number_is_the_overlap_and_the_noise_of_both() -> None:
    for rows, noises in ((0, (0, 0)), (5, (-9, 2)), (2**40, (3, 4)), (0, (-(2**30), 1))):
        assert exchange(rows, noises) == (rows + sum(noises), rows + sum(noises))


def seen(law: OverlapNoise, rows: int, draws: int, source: Coins, mine: Draw, theirs: Draw) -> np.ndarray:
    """What the two parties know after each of many estimates, when each has taken its own noise off, (draws, 2). The roles'
    circuit, in clear."""
    noises = np.array([(mine(law, source), theirs(law, source)) for _ in range(draws)], dtype=np.int64)
    own, other = (to_bits(np.ascontiguousarray(column).view(np.uint64), 64) for column in noises.T)
    total = to_bits(np.full(draws, rows, dtype=np.uint64), 20)
    opened = np.array(from_bits(noisy_total(Plain(), total, own, other)), dtype=np.uint64).view(np.int64)
    return np.stack([opened - noises[:, 0], opened - noises[:, 1]], axis=1)


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
    with pytest.raises(PrivacyError, match="lies between"):  # the noise would drown any number of identifiers
        OverlapNoise(Fraction(1, 2**41))
    assert OverlapNoise(SMALLEST_BUDGET).scale <= 1 << 40  # so what is not refused fits the circuit


@pytest.mark.parametrize("kind", [NoiseChosen, OverlapNoised])
@pytest.mark.parametrize("field", ["mark", "words"])
@pytest.mark.parametrize("sender", ["rows", "labels"])
def test_a_message_of_another_place_or_length_is_refused(kind: type[Message], field: str, sender: str) -> None:
    def changed(message: Message) -> Message:
        name = "mark" if field == "mark" else message.__struct_fields__[1]
        return msgspec.structs.replace(message, **{name: message.mark + 1 if field == "mark" else getattr(message, name)[1:]})

    mine, theirs = count_pair(7)
    roles = {"rows": noisy(mine, 1, 30, False, coins("r")), "labels": noisy(theirs, 2, 30, True, coins("l"))}
    fault = Replace(lambda entry: entry.kind is kind and entry.sender == sender, changed)
    outcome = run_in_memory(roles, faults=[fault], check=False)
    assert isinstance(outcome.error, PeerProtocolError)
    assert outcome.error.party == sender


def test_an_estimate_is_never_told_without_noise() -> None:
    from blindbayes.protocols.private_join.joined import require_noise

    for noise in (None, {"telecom": 3}):
        with pytest.raises(LocalProtocolError, match="without noise"):
            require_noise(noise, "bank")
