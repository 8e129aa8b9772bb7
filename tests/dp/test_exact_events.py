"""Exact probabilities: digits against MPFR, ties decided by further bits, and the path of ties under statistics."""

from __future__ import annotations

from fractions import Fraction

import gmpy2
import numpy as np
import pytest

from blindbayes.crypto.coins import Coins
from blindbayes.dp.noise import exact_events
from blindbayes.errors import ConfigError
from support.fit import ALPHA, chi_square
from support.scripted import scripted

EXPONENTS = [Fraction(1, 10**9), Fraction(1, 3), Fraction(1), Fraction(22, 7), Fraction(0.1), Fraction(99), Fraction(10**6, 3)]


def mpfr(value: Fraction) -> gmpy2.mpfr:
    return gmpy2.mpfr(value.numerator) / gmpy2.mpfr(value.denominator)


@pytest.mark.parametrize("x", EXPONENTS)
@pytest.mark.parametrize("bits", [16, 80, 400])
def test_digits_equal_those_of_mpfr(x: Fraction, bits: int) -> None:
    with gmpy2.context(gmpy2.get_context(), precision=4000):
        t = gmpy2.exp(-mpfr(x))
        scale = gmpy2.mpfr(2) ** bits
        assert exact_events.exponential(x)(bits) == int(gmpy2.floor(t * scale))
        assert exact_events.logistic(x)(bits) == int(gmpy2.floor(t / (1 + t) * scale))
        assert exact_events.twice_logistic(x)(bits) == int(gmpy2.floor(2 * t / (1 + t) * scale))
        assert exact_events.odds(x, Fraction(2**31))(bits) == int(gmpy2.floor(t / (1 - t) / gmpy2.mpfr(2) ** 31 * scale))


@pytest.mark.parametrize("x", EXPONENTS)
def test_exp_is_enclosed_within_two_units(x: Fraction) -> None:
    for bits in (10, 64, 200):
        low, high = exact_events.exp_minus(x, bits)
        with gmpy2.context(gmpy2.get_context(), precision=4000):
            exact = gmpy2.exp(-mpfr(x)) * gmpy2.mpfr(2) ** bits
            assert low <= exact <= high
        assert high - low <= 2


@pytest.mark.parametrize(("last", "happens"), [(-1, True), (1, False)])
def test_a_tie_is_decided_by_the_next_bits(last: int, happens: bool) -> None:
    digits = exact_events.exponential(Fraction(1))
    first, second, third = digits(16), digits(80) & (2**64 - 1), (digits(144) & (2**64 - 1)) + last
    coins = scripted(first.to_bytes(2, "little"), second.to_bytes(8, "little"), third.to_bytes(8, "little"))
    assert exact_events.happens(coins, [digits], 1)[0, 0] == happens


def test_ties_keep_the_law() -> None:
    """Decided by the rule for ties alone, from no digit known: the same law must come out."""
    coins, n = Coins.seeded(b"ties".ljust(32)), 20_000
    for x in (Fraction(1, 3), Fraction(2)):
        digits, p = exact_events.exponential(x), float(np.exp(-float(x)))
        hits = sum(exact_events._undecided(coins, digits, 0) for _ in range(n))
        assert abs(hits - n * p) < 4 * np.sqrt(n * p * (1 - p))
        assert abs(hits - n * p * 0.85) > 4 * np.sqrt(n * p * (1 - p))


def test_certain_and_impossible_events() -> None:
    coins = Coins.seeded(b"edge".ljust(32))
    assert exact_events.happens(coins, [exact_events.rational(Fraction(1))], 70_000).all()
    assert not exact_events.happens(coins, [exact_events.rational(Fraction(0))], 70_000).any()


def test_below_is_uniform_and_within_its_bounds() -> None:
    coins = Coins.seeded(b"below".ljust(32))
    bounds = np.tile(np.array([1, 2, 7, 2**40 + 3], dtype=np.int64), 20_000)
    drawn = exact_events.below(coins, bounds)
    assert (drawn >= 0).all()
    assert (drawn < bounds).all()
    assert chi_square(drawn[2::4], lambda k: 1 / 7, range(7)) > ALPHA
    assert chi_square(drawn[3::4] * 16 // (2**40 + 3), lambda k: 1 / 16, range(16)) > ALPHA


def test_survival_is_the_exponential_of_each_exponent() -> None:
    coins, n = Coins.seeded(b"survive".ljust(32)), 30_000
    for exponent in (0, 1, 5, 12, 3 * 2**40):
        unit = Fraction(1, 7) if exponent < 100 else Fraction(1, 2**41)
        p = float(np.exp(-float(exponent * unit)))
        for kind in (np.int64, object):
            kept = int(exact_events.survives(coins, np.full(n, exponent, dtype=kind), unit).sum())
            assert abs(kept - n * p) <= 4 * np.sqrt(n * p * (1 - p))


def test_a_float_is_never_rounded_up() -> None:
    for value in (0.1, 0.3, 1e-9, 2.5):
        assert exact_events.fraction(value) <= Fraction(value)
    for bad in (float("nan"), float("inf"), "x"):
        with pytest.raises(ConfigError):
            exact_events.fraction(bad)
