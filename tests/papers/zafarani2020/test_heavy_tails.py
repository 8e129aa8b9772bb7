"""The heavy-tailed noises on a grid: each fits its law, and not that of another scale."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import pytest
from scipy.integrate import quad

from audits import fits
from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError
from blindbayes_papers.zafarani2020 import heavy_tails

DRAWS = 10_000


def admissible_law(gamma: float) -> Callable[[float], Callable[[int], float]]:
    total = 2 * math.pi / gamma / math.sin(math.pi / gamma)

    def law(scale: float) -> Callable[[int], float]:
        return lambda x: quad(lambda z: 1 / (1 + abs(z) ** gamma), (x - 0.5) / scale, (x + 0.5) / scale)[0] / total

    return law


@pytest.mark.parametrize(
    ("gamma", "scale"), [(Fraction(2), Fraction(3)), (Fraction(4), Fraction(5)), (Fraction(7, 2), Fraction(9, 2))]
)
def test_the_sampler_fits_its_law_and_no_other(gamma: Fraction, scale: Fraction) -> None:
    case = fits.Case(lambda c, s, n: heavy_tails.admissible(c, gamma, s, n), admissible_law(float(gamma)), scale)
    right, smaller, larger = fits.three_arms(case, Coins.seeded(f"heavy {gamma}".encode().ljust(32)), DRAWS)
    assert right > fits.ALPHA
    assert max(smaller, larger) < fits.ALPHA


def test_cauchy_noise_is_that_of_exponent_two() -> None:
    first, second = (Coins.seeded(b"cauchy".ljust(32)) for _ in range(2))
    assert (heavy_tails.cauchy(first, 3, 50) == heavy_tails.admissible(second, 2, 3, 50)).all()


def test_an_exponent_below_two_is_refused() -> None:
    with pytest.raises(ConfigError):
        heavy_tails.admissible(Coins.seeded(bytes(32)), Fraction(3, 2), 1, 1)
