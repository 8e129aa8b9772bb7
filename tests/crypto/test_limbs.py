"""Arithmetic on limbs against Python's integers."""

from __future__ import annotations

import numpy as np
import pytest

from blindbayes.crypto import limbs as lm

EDGES = [0, 1, -1, 2**63, 2**64 - 1, 2**64, -(2**64), 2**127 - 1, 2**128 - 1, 3**50, -(7**40)]


def integers(values: lm.Limbs) -> list[int]:
    return [sum(int(limb) << (64 * at) for at, limb in enumerate(row)) for row in values]


@pytest.mark.parametrize("limbs", [1, 2])
def test_sums_and_differences_are_those_of_integers_modulo_the_word(limbs: int) -> None:
    modulus, left = 1 << (64 * limbs), lm.from_integers(EDGES, limbs)
    for shift in range(len(EDGES)):
        other = EDGES[shift:] + EDGES[:shift]
        right = lm.from_integers(other, limbs)
        assert integers(lm.add(left, right)) == [(a + b) % modulus for a, b in zip(EDGES, other, strict=True)]
        assert integers(lm.subtract(left, right)) == [(a - b) % modulus for a, b in zip(EDGES, other, strict=True)]
    assert integers(lm.total(left[:, None, :], axis=0)) == [sum(EDGES) % modulus]
    assert integers(lm.cut(left, 5)) == [value % 32 for value in EDGES]


@pytest.mark.parametrize("limbs", [1, 2])
def test_bits_and_whole_floats_are_exact(limbs: int) -> None:
    bits = lm.to_bits(lm.from_integers(EDGES, limbs), 64 * limbs)
    assert [sum(int(bit) << at for at, bit in enumerate(row)) for row in bits.T] == [
        value % (1 << (64 * limbs)) for value in EDGES
    ]
    floats = np.array([0.0, -1.0, 2.0**53 + 2, -(2.0**62), 1e18] + [2.0**100, -(2.0**90)] * (limbs == 2))
    assert integers(lm.from_floats(floats, limbs)) == [int(value) % (1 << (64 * limbs)) for value in floats]
