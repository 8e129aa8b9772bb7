"""The paper's diluted geometric noise, with delta split over the cells that a unit can move."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from blindbayes.crypto.coins import Coins
from blindbayes.dp.noise import pld as losses
from blindbayes.errors import ConfigError
from blindbayes_papers.huai2015.diluted import DilutedNoise

NOISE = DilutedNoise(Fraction(1), 1e-4, 5, 3, 8)


def test_the_sum_of_the_shares_has_the_claimed_law_and_another_scale_is_rejected() -> None:
    """Total variation distance: about 0.01 for 40,000 draws of the law itself, far more for a scale 20% off."""
    coins, size = Coins.seeded(bytes(32)), 40_000
    draws = sum((NOISE.share(coins, size) for _ in range(5)), np.zeros(size, np.int64))

    def distance(table: np.ndarray) -> float:
        reach = (len(table) - 1) // 2
        seen = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=len(table)) / size
        return float(np.abs(seen - table).sum() / 2)

    assert distance(NOISE.table(5)) < 0.03
    assert distance(DilutedNoise(Fraction(5, 4), 1e-4, 5, 3, 8).table(5)) > 0.06


def test_the_price_is_kept_by_the_exact_law() -> None:
    assert losses.composed_delta(NOISE.table(5), 1, 3, 1.0) <= 1e-4
    assert (1 - NOISE.beta) ** 5 * 3 <= Fraction(1e-4)


@pytest.mark.parametrize(("touched", "deviation"), [(1, 5.04), (7, 39.3), (23, 134)])
def test_the_deviations_are_those_of_the_science_notes(touched: int, deviation: float) -> None:
    assert DilutedNoise(Fraction(1), 1e-6, 50, touched, 64).deviation() == pytest.approx(deviation, rel=6e-3)


@pytest.mark.parametrize(("touched", "cells", "reach"), [(1, 50, 50), (3, 40, 5), (3, 12, 100), (4, 8, 1)])
def test_noise_covers_every_cell_that_a_party_can_move(touched: int, cells: int, reach: int) -> None:
    """delta was split over the cells of one row, but the rows of a party may lie in as many cells as there are rows."""
    delta, honest = 0.01, 40
    noise = DilutedNoise(Fraction(1), delta, honest, touched, cells, reach)
    bare = (1 - float(noise.beta)) ** honest  # a cell without any honest noise shows its exact change
    assert 1 - (1 - bare) ** min(touched * reach, cells) <= delta


def test_pure_noise_cannot_be_diluted() -> None:
    with pytest.raises(ConfigError, match="delta above 0"):
        DilutedNoise(Fraction(1), 0.0, 5, 1, 8)
