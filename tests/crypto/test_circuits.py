"""Circuits against Python integers, their gate counts, and the error bound of the logarithm."""

import numpy as np
import pytest

from blindbayes.crypto.garbling import circuits
from blindbayes.crypto.garbling.garbling import Plain
from support.two_party import coins

SHAPES = [(1, 1), (1, 7), (7, 1), (8, 8), (20, 13), (13, 20), (33, 64)]


def draw(name, bits, count=200):
    source = coins(name)
    return [0, (1 << bits) - 1, 1] + [source.bits(bits) for _ in range(count - 3)]


def run(function, *numbers, **options):
    """(result as integers, AND gates per lane) of a circuit on (values, bits) pairs."""
    g = Plain()
    out = function(g, *[circuits.to_bits(values, bits) for values, bits in numbers], **options)
    lanes = len(numbers[0][0])
    assert g.and_count % lanes == 0
    return circuits.from_bits(np.atleast_2d(out)), g.and_count // lanes


@pytest.mark.parametrize(("n", "m"), SHAPES)
def test_add_subtract_multiply(n, m):
    a, b = draw("a", n), draw("b", m)
    got, gates = run(circuits.add, (a, n), (b, m))
    assert got == [x + y for x, y in zip(a, b, strict=True)]
    assert gates == max(n, m)
    got, gates = run(circuits.add, (a, n), (b, m), bits=n)
    assert got == [(x + y) % 2**n for x, y in zip(a, b, strict=True)]
    assert gates == n - 1 if n <= m else gates <= n
    bits = max(n, m) + 1
    got, gates = run(circuits.subtract, (a, n), (b, m), bits=bits)
    assert got == [(x - y) % 2**bits for x, y in zip(a, b, strict=True)]
    assert gates == bits - 1
    got, gates = run(circuits.multiply, (a, n), (b, m))
    assert got == [x * y for x, y in zip(a, b, strict=True)]
    assert gates <= 2 * n * m + n + m


@pytest.mark.parametrize("n", [1, 2, 5, 16, 45])
def test_square_is_half_a_product(n):
    a = draw("a", n)
    got, gates = run(circuits.square, (a, n))
    assert got == [x * x for x in a]
    assert gates == {1: 0, 2: 3, 5: 30, 16: 333, 45: 2429}[n]


@pytest.mark.parametrize("factor", [1, 2, 3, 1000, 0b10110111, 2**30 - 1])
def test_times_a_public_factor(factor):
    a = draw("a", 21)
    got, gates = run(circuits.times, (a, 21), factor=factor, bits=40)
    assert got == [x * factor % 2**40 for x in a]
    assert gates <= (factor.bit_count() - 1) * 23 + 25
    assert gates or factor.bit_count() == 1


@pytest.mark.parametrize(("n", "d", "q"), [(20, 14, 20), (8, 8, 8), (60, 20, 45), (5, 9, 5), (100, 70, 64)])
def test_divide_is_exact(n, d, q):
    divisors = [max(1, value) for value in draw("d", d)]
    numerators = [value % min(2**n, divisor << q) for value, divisor in zip(draw("n", n), divisors, strict=True)]
    got, gates = run(circuits.divide, (numerators, n), (divisors, d), bits=q)
    assert got == [x // y for x, y in zip(numerators, divisors, strict=True)]
    assert gates == d * q


def test_divide_exhaustively_at_toy_size():
    pairs = [(x, y) for x in range(64) for y in range(1, 16)]
    got, _ = run(circuits.divide, ([x for x, _ in pairs], 6), ([y for _, y in pairs], 4), bits=6)
    assert got == [x // y for x, y in pairs]


def test_compare_select_negate():
    a, b = draw("a", 9), draw("b", 9)
    a[5] = b[5]
    got, gates = run(circuits.is_less, (a, 9), (b, 9))
    assert got == [int(x < y) for x, y in zip(a, b, strict=True)]
    assert gates == 9
    got, _ = run(circuits.is_less, (a, 9), (b, 9), signed=True)
    assert got == [int((x + 256) % 512 < (y + 256) % 512) for x, y in zip(a, b, strict=True)]
    condition = [x & 1 for x in a]
    got, gates = run(lambda g, c, x, y: circuits.select(g, c[0], x, y), (condition, 1), (a, 9), (b, 9))
    assert got == [x if c else y for c, x, y in zip(condition, a, b, strict=True)]
    assert gates == 9
    got, gates = run(lambda g, c, x: circuits.negate_if(g, c[0], x), (condition, 1), (a, 9))
    assert got == [(-x if c else x) % 512 for c, x in zip(condition, a, strict=True)]
    assert gates == 8
    got, gates = run(circuits.is_zero, (a, 9))
    assert got == [int(x == 0) for x in a]
    assert gates == 8


def test_sign_of_shares():
    values = [0, 1, -1, 127, -128, 5, -77]
    shares = draw("share", 8, len(values))
    others = [(value - share) % 256 for value, share in zip(values, shares, strict=True)]
    got, gates = run(circuits.sign_of_sum, (shares, 8), (others, 8))
    assert got == [int(value < 0) for value in values]
    assert gates == 7


@pytest.mark.parametrize("n", [1, 2, 3, 8, 21, 64])
def test_normalise(n):
    a = [max(1, value >> (index % n)) for index, value in enumerate(draw("a", n))]
    g = Plain()
    mantissa, shift = circuits.normalise(g, circuits.to_bits(a, n)) if n > 1 else (circuits.to_bits(a, n), None)
    if shift is not None:
        shifts = circuits.from_bits(shift)
        assert shifts == [n - x.bit_length() for x in a]
        assert circuits.from_bits(mantissa) == [x << s for x, s in zip(a, shifts, strict=True)]
        stages = (n - 1).bit_length()
        assert g.and_count == len(a) * (n * stages + 2**stages - 1 - stages)


@pytest.mark.parametrize("classes", [2, 3, 4, 5, 7])
def test_argmax_takes_the_first_of_equals(classes):
    lanes = 400
    source = coins("scores")
    scores = np.array([[source.below(7) - 3 for _ in range(lanes)] for _ in range(classes)])
    expected = scores.argmax(axis=0).tolist()
    g = Plain()
    behind = np.stack([(scores[i] < scores[j]).astype(np.uint8) for i, j in circuits.pairs_of(classes)])
    assert circuits.from_bits(circuits.argmax_by_pairs(g, behind, classes)) == expected
    assert g.and_count == lanes * (classes - 1) * (classes - 2)
    g = Plain()
    index = circuits.argmax_by_turns(g, [circuits.to_bits(list(map(int, row)), 5) for row in scores])
    assert circuits.from_bits(index) == expected
    assert g.and_count <= lanes * (classes - 1) * (10 + (classes - 1).bit_length())
