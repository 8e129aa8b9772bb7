"""Packed bit strings: adding chunks adds fields, up to the bounds and not past them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes.errors import ConfigError, DataError, PeerProtocolError
from blindbayes_papers.primitives.packing import GUARD_BITS, Packing

runs = st.lists(
    st.tuples(st.integers(-(2**70), 0), st.integers(1, 2**70), st.integers(1, 9)),
    min_size=1,
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(runs, st.integers(136, 700), st.integers(1, 5), st.data())
def test_sums_of_chunks_unpack_to_sums_of_fields(
    shape: list[tuple[int, int, int]], bits: int, parties: int, data: st.DataObject
) -> None:
    packing = Packing(shape, bits)
    bounds = [(low, high) for low, high, count in shape for _ in range(count)]
    vectors = [[data.draw(st.integers(-(-low // parties), high // parties)) for low, high in bounds] for _ in range(parties)]
    chunks = [sum(parts) for parts in zip(*(packing.pack(vector) for vector in vectors), strict=True)]
    assert len(chunks) == packing.chunks
    assert all(abs(chunk) < 2**bits for chunk in chunks)
    assert packing.unpack(chunks) == [sum(values) for values in zip(*vectors, strict=True)]


@pytest.mark.parametrize("end", [0, 1])
def test_totals_at_their_bounds_do_not_carry(end: int) -> None:
    shape = [(0, 1, 5), (-3, 12, 4), (-(2**63), 2**63 - 1, 3), (0, 1023, 30)]
    packing = Packing(shape, 400)
    extreme = [(low, high)[end] for low, high, count in shape for _ in range(count)]
    assert packing.unpack(packing.pack(extreme)) == extreme
    mixed = [bound if index % 2 else 0 for index, bound in enumerate(extreme)]
    assert packing.unpack(packing.pack(mixed)) == mixed


def test_the_number_of_chunks_is_what_the_widths_say() -> None:
    assert Packing([(0, 768, 2510)], 2046).chunks == -(-2510 // ((2046 - GUARD_BITS) // 10)) == 13
    assert Packing([(0, 366, 1140)], 2046).chunks == 6
    assert Packing([(0, 150, 372)], 2046).chunks == 2


def test_a_value_outside_its_bounds_is_not_packed() -> None:
    packing = Packing([(0, 5, 2), (-1, 1, 1)], 128)
    for bad in ([6, 0, 0], [-1, 0, 0], [0, 0, 2], [0, 0], [0, 0, 0, 0]):
        with pytest.raises(DataError) as caught:
            packing.pack(bad)
        assert not any(character.isdigit() for character in str(caught.value))


def test_a_total_that_no_honest_parties_reach_is_refused() -> None:
    packing = Packing([(0, 5, 3)], 128)
    good = packing.pack([5, 5, 5])[0]
    bad = [good + 1, good + (1 << 9), -1, 1 << 127, 6, 7 << 3]
    for total in bad:
        with pytest.raises(PeerProtocolError) as caught:
            packing.unpack([total], party="mallory")
        assert caught.value.party == "mallory"
    for wrong in ([], [good, good]):
        with pytest.raises(PeerProtocolError):
            packing.unpack(wrong)


def test_a_uniform_total_is_refused_by_the_guard_bits() -> None:
    from blindbayes.crypto.coins import Coins

    coins = Coins.seeded(bytes(32))
    packing = Packing([(0, 2**60 - 1, 3)], 3 * 60 + GUARD_BITS)  # every field value is allowed: only the guard can refuse
    assert packing.chunks == 1
    for _ in range(1000):
        with pytest.raises(PeerProtocolError):
            packing.unpack([coins.bits(3 * 60 + GUARD_BITS)])


@pytest.mark.parametrize(
    "shape",
    [[], [(1, 2, 1)], [(-2, -1, 1)], [(0, 0, 1)], [(0, 1, 0)], [(0, 2**64, 1)]],
    ids=["none", "low", "high", "point", "empty", "wide"],
)
def test_bad_shapes_are_refused(shape: list[tuple[int, int, int]]) -> None:
    with pytest.raises(ConfigError):
        Packing(shape, 128)
