"""The paper's diluted geometric noise, with delta split over the cells that a unit can move."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes import Codebook, Estimation, Privacy, RowStudy, load
from blindbayes.codebook import Categorical, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.statement import code_digest
from blindbayes.dp.distributed.noise_shares import DistributedNoise, PrivacyUnit
from blindbayes.dp.distributed.noisy_sum import NoisySum
from blindbayes.dp.noise import pld as losses
from blindbayes.errors import ConfigError
from blindbayes_papers.huai2015.diluted import DilutedNoise
from support.mechanisms import many_shares


def plan(epsilon: float, delta: float, honest: int, touched: int, cells: int, reach: int = 1) -> DilutedNoise:
    unit = PrivacyUnit("party", reach) if reach > 1 else PrivacyUnit()
    return DilutedNoise.plan(touched=touched, bounds=[1] * cells, epsilon=epsilon, delta=delta, honest=honest, unit=unit)


NOISE = plan(1, 1e-4, 5, 3, 8)


def test_the_sum_of_the_shares_has_the_claimed_law_and_another_scale_is_rejected() -> None:
    """Total variation distance: about 0.01 for 40,000 draws of the law itself, far more for a scale 20% off."""
    coins, size = Coins.seeded(bytes(32)), 40_000
    draws = sum((many_shares(NOISE, coins, size) for _ in range(5)), np.zeros(size, np.int64))

    def distance(table: np.ndarray) -> float:
        reach = (len(table) - 1) // 2
        seen = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=len(table)) / size
        return float(np.abs(seen - table).sum() / 2)

    assert distance(NOISE.table(5)) < 0.03
    assert distance(plan(1.25, 1e-4, 5, 3, 8).table(5)) > 0.06


def test_the_price_is_kept_by_the_exact_law() -> None:
    assert losses.composed_delta(NOISE.table(5), 1, 3, 1.0) <= 1e-4
    assert (1 - NOISE.beta) ** 5 * 3 <= Fraction(1e-4)


@pytest.mark.parametrize(("touched", "deviation"), [(1, 5.04), (7, 39.3), (23, 134)])
def test_the_deviations_are_those_of_the_science_notes(touched: int, deviation: float) -> None:
    assert plan(1, 1e-6, 50, touched, 64).deviation() == pytest.approx(deviation, rel=6e-3)


@pytest.mark.parametrize(("touched", "cells", "reach"), [(1, 50, 50), (3, 40, 5), (3, 12, 100), (4, 8, 1)])
def test_noise_covers_every_cell_that_a_party_can_move(touched: int, cells: int, reach: int) -> None:
    """delta was split over the cells of one row, but the rows of a party may lie in as many cells as there are rows."""
    delta, honest = 0.01, 40
    noise = plan(1, delta, honest, touched, cells, reach)
    bare = (1 - float(noise.beta)) ** honest  # a cell without any honest noise shows its exact change
    assert 1 - (1 - bare) ** min(touched * reach, cells) <= delta


def test_pure_noise_cannot_be_diluted() -> None:
    with pytest.raises(ConfigError, match="delta above 0"):
        plan(1, 0.0, 5, 1, 8)


def test_one_draw_in_beta_is_not_zero_and_wide_cells_have_wide_noise() -> None:
    """A cell of bound 10 is scaled by it: the deviation of 4,000 draws lies within a tenth, far from that of bound 1."""
    noise = DilutedNoise.plan(touched=2, bounds=[1] * 4000 + [10] * 4000, epsilon=1.0, delta=1e-4, honest=40)
    coins = Coins.seeded(bytes(32))
    draws = sum((noise.share(coins.derive(str(at))) for at in range(40)), np.zeros(8000, np.int64))
    for part, bound in ((draws[:4000], 1), (draws[4000:], 10)):
        assert part.std() == pytest.approx(noise.deviation(40, bound), rel=0.1)
        assert np.abs(part).max() <= noise.tail(2.0**-40, 40, bound)
    one = noise.share(coins.derive("one"))
    assert noise.moved == 8000  # a text may move every cell
    expected = float(noise.beta) * (1 - np.tanh(float(noise.rate()) / 2))
    assert np.mean(one[:4000] != 0) == pytest.approx(expected, abs=5 * (0.25 / 4000) ** 0.5)


def test_tails_are_bounds_and_no_loose_ones() -> None:
    """The exact law has less than the stated chance beyond the bound, and more at half of it."""
    table, chance = NOISE.table(5), 1e-6
    reach = len(table) // 2
    outside = np.abs(np.arange(-reach, reach + 1))
    assert table[outside > NOISE.tail(chance, 5)].sum() <= chance
    assert table[outside > NOISE.tail(chance, 5) // 2].sum() > chance


def test_parties_with_views_of_their_own_still_cover_every_cell() -> None:
    """The 1 / h of the honest add up to 1: no cell is without noise but with a chance of delta over the moved cells."""
    noise = plan(1, 1e-3, 6, 3, 40)
    bare = 1.0
    for view in (3, 4, 5, 7, 9, 12):  # 1/3 + ... + 1/12 = 1.12
        bare *= 1 - float(noise.at(view).beta)
    assert 3 * bare <= 1e-3
    assert type(noise.at(3)) is DilutedNoise


PLAN: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "honest": 40}
BOOK = Codebook("y", ("a", "b"), (Categorical("u", ("p", "q")), Numeric("x", 0, 9, bins=3)), max_rows=2000)


def tables() -> dict[str, pd.DataFrame]:
    rng, parts = np.random.default_rng(3), {}
    for name in ("north", "south", "west"):
        ill = rng.random(300) < 0.5
        noisy = rng.random(300) < 0.1
        x = np.clip(rng.normal(3 + 3 * ill, 1.5), 0, 9).round()
        parts[name] = pd.DataFrame({"u": np.where(ill ^ noisy, "p", "q"), "x": x, "y": np.where(ill, "a", "b")})
    return parts


def study(**changes: object) -> RowStudy:
    given = {"protocol": "oblivious_sum", "privacy": Privacy(epsilon=4.0, delta=1e-6), "options": {"noise": "diluted"}}
    return RowStudy(BOOK, **{**given, **changes})  # type: ignore[arg-type]


def test_a_study_trains_with_it_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[type] = []
    for kind in (DilutedNoise, DistributedNoise):
        monkeypatch.setattr(kind, "share", lambda self, *a, real=kind.share: drawn.append(type(self)) or real(self, *a))
    result = study().simulate(tables())
    assert set(drawn) == {DilutedNoise}
    assert len(drawn) == 3
    pooled = pd.concat(tables().values())
    exact = study(privacy=Privacy(), options={}).simulate(tables()).model
    features = pooled[["u", "x"]]
    assert (result.model.predict(features) == exact.predict(features)).mean() > 0.9
    assert "no noise at all is below 1e-06" in DilutedNoise.plan(touched=2, bounds=[1] * 9, **PLAN).law
    assert "two-sided geometric" in str(result.statement)
    assert "explain.html gives" not in str(result.statement)  # the model has no intervals
    assert result.model.privacy_["mechanism"] == "diluted"
    assert result.model.privacy_["delta"] == 1e-6
    result.model.save(tmp_path / "model.json")
    assert "released" not in load(tmp_path / "model.json").privacy_  # readers of models do not know this law


def test_a_statement_names_the_sources_of_a_law_from_outside() -> None:
    """The digest of the sources that drew the noise left out the module that drew it."""
    plans = [NoisySum.make(BOOK, parties=50, law=law, **PLAN) for law in (DistributedNoise, DilutedNoise)]
    digests = [plan.statement(trust="all", composition="one").sources for plan in plans]
    assert digests[0] == code_digest()
    assert digests[1] == code_digest((DilutedNoise.__module__,)) != digests[0]


def test_an_evaluation_has_the_noise_that_the_study_names() -> None:
    """It had the usual noise, whatever the study said."""
    held = study(estimation=Estimation(held_out=0.5))
    result = held.evaluate(held.simulate(tables()), tables())
    assert "Mechanism" in result.statement
    assert "diluted" in result.statement
    assert "two-sided geometric" in result.statement
    assert result.figures["accuracy"]


@pytest.mark.parametrize(
    ("privacy", "message"), [(Privacy(epsilon=4.0), "needs delta above 0"), (Privacy(), "with epsilon, 'diluted'")]
)
def test_it_needs_epsilon_and_delta(privacy: Privacy, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        study(privacy=privacy).simulate(tables())
