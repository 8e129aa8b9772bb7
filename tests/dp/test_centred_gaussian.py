"""Gaussian noise in the quotient: what it costs by enumeration, that the audit sees its faults, and when `auto` takes it."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from audits.releases import HARD_BOOK, audit_plan_loss, audit_plan_sensitivity
from blindbayes import Categorical, Codebook, Numeric, PrivateNaiveBayes, Text
from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.dp.noise import centred_gaussian as quotient
from blindbayes.dp.noise import gaussian
from blindbayes.dp.noise import knorm_histograms as classwise
from blindbayes.dp.noise.centred_gaussian import CentredGaussian
from blindbayes.dp.noise.knorm_histograms import ReleasePart
from blindbayes.dp.release import release_plan as released
from blindbayes.dp.release.planner import plan_release, signal_of
from blindbayes.dp.release.private_fit import plan_fit
from blindbayes.dp.release.release_plan import ReleasePlan
from blindbayes.errors import ConfigError
from blindbayes.naive_bayes.load import load

COINS = Coins.seeded(b"\x0c" * 32)


def law(variance: float, reach: int) -> np.ndarray[Any, Any]:
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * variance))
    return weights / weights.sum()


def excess(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any], epsilon: float) -> float:
    """The exact delta of two laws."""
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


def moved(cells: np.ndarray[Any, Any], by: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.roll(cells, by, axis=tuple(range(len(by))))  # the ends hold nothing that a float can tell from 0


# -- the price -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.1, 0.7, 2.0])
@pytest.mark.parametrize("change", [(1, 0), (3, 0), (2, -1), (-4, 3)])
@pytest.mark.parametrize("variance", [6.0, 20.0])
def test_the_length_of_a_change_bounds_the_loss_of_discrete_noise(
    epsilon: float, change: tuple[int, int], variance: float
) -> None:
    one = law(variance, 60)
    pair = np.outer(one, one)
    exact = excess(pair, moved(pair, change), epsilon)
    length = math.hypot(*change)
    assert exact <= gaussian.length_delta(length / math.sqrt(variance - gaussian.ROUNDING), epsilon)
    assert exact > gaussian.length_delta(length / math.sqrt(1.5 * variance), epsilon)  # less than it costs is seen


def test_the_length_of_a_change_is_priced_tightly() -> None:
    deviation, shift, epsilon = 2000, 700, 0.4
    one = law(deviation**2, 30_000)
    exact = excess(one, moved(one, (shift,)), epsilon)
    claimed = gaussian.length_delta(shift / math.sqrt(deviation**2 - gaussian.ROUNDING), epsilon)
    assert exact <= claimed <= exact * 1.001
    for price, delta in ((0.01, 1e-7), (1.0, 1e-6), (20.0, 1e-12)):
        length = gaussian.length_for(price, delta)
        assert gaussian.length_delta(length, price) <= delta < gaussian.length_delta(length * 1.001, price)


def test_several_rows_of_a_person_cost_no_more_than_before() -> None:
    exact, concentrated = Fraction(1), []
    for rows in (2, 5):
        variance = gaussian.variance_for(exact, 1e-6, 10, rows, cells=False)
        concentrated.append(float(variance) / (rows * rows * 10))
        assert gaussian.zcdp_delta(float(gaussian.rho_of(variance, 10, rows)), 1.0) > 1e-6  # what zCDP alone would refuse
    assert all(17.8 < each < 18 for each in concentrated)  # against 20.5 by zCDP


@pytest.mark.parametrize(("cells", "epsilon"), [(2, 0.3), (2, 1.0), (3, 0.3), (3, 1.0)])
def test_the_law_of_differences_costs_the_shortest_change(cells: int, epsilon: float) -> None:
    """All cells with noise, a record in the first, and only differences to the first cell told: by enumeration."""
    step, variance, reach = 2 * cells, 36.0, 40
    one = law(variance, reach)
    whole = one if cells == 1 else np.multiply.outer(one, one) if cells == 2 else np.einsum("i,j,k->ijk", one, one, one)
    places = np.indices(whole.shape) - reach
    differences = places[1:] - places[0]
    width = 4 * reach + 4 * step + 1

    def told(change: int) -> np.ndarray[Any, Any]:
        at = [part - change + width // 2 for part in differences]
        flat = np.ravel_multi_index([part.ravel() for part in at], (width,) * (cells - 1))
        return np.bincount(flat, whole.ravel(), width ** (cells - 1))

    exact = excess(told(step), told(0), epsilon)
    square = step**2 * (1 - 1 / cells)
    assert exact <= gaussian.length_delta(math.sqrt(square / (variance - gaussian.ROUNDING)), epsilon)
    assert exact > gaussian.length_delta(math.sqrt(square / (1.05 * variance)), epsilon)
    assert exact < gaussian.length_delta(step / math.sqrt(variance), epsilon)  # less than if all cells were told


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("sizes", [(2,), (3, 5), (2, 7, 300), ()])
def test_the_noise_covers_the_change_that_records_make_on_the_grids(rows: int, sizes: tuple[int, ...]) -> None:
    parts = (ReleasePart("n", 2, True, weight=3.0), *(ReleasePart(f"h{r}", r, weight=float(r)) for r in sizes))
    noise = CentredGaussian(parts, Fraction(1, 2), rows, 1e-6)
    change = [float(noise.steps[0])]
    for part, step in zip(parts[1:], noise.steps[1:], strict=True):
        assert step % part.size == 0  # what is taken off all cells is a whole number
        change += [step - step / part.size] + [-step / part.size] * (part.size - 1)
    assert noise.squared_length == pytest.approx(np.square(change).sum())
    length = rows * math.sqrt(noise.squared_length / (noise.variance - gaussian.ROUNDING))
    assert gaussian.length_delta(length, 0.5) <= 1e-6 < gaussian.length_delta(1.001 * length, 0.5)
    covered = (noise.variance - gaussian.ROUNDING) * Fraction(noise._length) ** 2  # in floats a variance of 4 less passes
    assert covered >= rows**2 * noise.squared_length
    assert noise.rho >= rows**2 * noise.squared_length / 2 / noise.variance


def test_released_numbers_have_the_noise_that_the_plan_says() -> None:
    plan = plan_release(HARD_BOOK, epsilon=1, delta=1e-6, mechanism="centred_gaussian", rows=10**6)
    exact = [np.full((1, item.cells), 50) for item in plan.items]
    tables = plan.noise.releases(exact, [1] * 3, COINS, 4000)  # type: ignore[union-attr]
    for item, table, deviation in zip(plan.items, tables, plan.deviations, strict=True):
        assert table.std() == pytest.approx(deviation, rel=0.04)
        assert table.mean() == pytest.approx(50 if item.number else 0, abs=0.5)
        if not item.number:
            assert np.abs(table.sum(axis=2)).max() < 1e-9  # of a histogram its differences are told, and nothing else


# -- the audit -------------------------------------------------------------------------------------------------------------


def hard(**fields: Any) -> ReleasePlan:
    return plan_release(HARD_BOOK, epsilon=1, delta=1e-6, mechanism="centred_gaussian", rows=10**6, **fields)


def failed(plan: ReleasePlan, draws: int) -> list[str]:
    checks = [*audit_plan_sensitivity(plan), *audit_plan_loss(plan, COINS, draws)]
    return [check.name for check in checks if not check.passed]


def test_the_audit_does_not_refute_gaussian_noise_in_the_quotient() -> None:
    assert failed(hard(), 90_000) == []  # and its control, with a fifth less noise, is refuted


class _NoClassCount(CentredGaussian):
    """A fault: the class count is forgotten in the length."""

    @property
    def squared_length(self) -> int:
        return super().squared_length - self.steps[0] ** 2


class _Squared(CentredGaussian):
    """A fault: only the record's own cell is counted, (1 - 1/r)^2."""

    @property
    def squared_length(self) -> int:
        pairs = list(zip(self.parts, self.steps, strict=True))
        return round(sum(step**2 * (1.0 if part.number else (1 - 1 / part.size) ** 2) for part, step in pairs))


class _Deviation(CentredGaussian):
    """A fault: half of the deviation, and the length as it should be."""

    @property
    def variance(self) -> int:
        return super().variance // 4


@pytest.mark.parametrize("fault", [_NoClassCount, _Squared, _Deviation])
def test_the_audit_sees_planted_faults_in_the_quotient(fault: type[CentredGaussian], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(released.CENTRED, "centred_gaussian", fault)
    found = [name for name in failed(hard(), 12_000) if "control" not in name]
    assert found


def test_the_audit_sees_a_histogram_that_is_told_with_its_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(self: Any, tables: Any, bounds: Any, coins: Coins, count: int) -> list[Any]:
        out: list[Any] = [None] * len(tables)
        for index, drawn, step in self.noise(coins, count * len(tables[0])):
            out[index] = (tables[index] * step + drawn.reshape(count, len(tables[0]), -1)).astype(float) / step
        return out

    monkeypatch.setattr(classwise.Centred, "releases", told)
    assert failed(hard(), 1000)[0] == "centred_gaussian plan: histograms up to a constant"


# -- choice ----------------------------------------------------------------------------------------------------------------


def book(features: int, values: int) -> Codebook:
    names = tuple(map(str, range(values)))
    return Codebook("y", ("a", "b"), tuple(Categorical(f"u{at}", names) for at in range(features)), max_rows=10**6)


def test_a_plan_takes_the_quotient_only_where_it_has_less_noise() -> None:
    taken = set()
    for features, values in ((3, 2), (40, 2), (120, 2), (30, 4), (1, 200)):
        for epsilon in (0.1, 1.0, 8.0):
            public: dict[str, Any] = {"epsilon": epsilon, "rows": 10**6, "delta": 1e-7}
            plans = {name: plan_release(book(features, values), mechanism=name, **public) for name in released.CENTRED}
            chosen = plan_release(book(features, values), **public)
            noise = {name: 1 / signal_of(replace(plan, encodings=chosen.encodings), 10**6) for name, plan in plans.items()}
            pure, spent = noise["knorm"], noise["centred_gaussian"]
            assert noise[chosen.mechanism] == min(spent, pure)  # a delta has to buy something
            assert (chosen.price.delta > 0) == (chosen.mechanism in released.WITH_DELTA)
            taken.add(chosen.mechanism)
    assert {"knorm", "centred_gaussian"} <= taken
    many = Codebook("y", ("a", "b"), (*book(80, 3).features, Text("t", ("p", "q"), max_words=3)), max_rows=10**6)
    assert plan_release(many, epsilon=1, delta=1e-7).mechanism == "discrete_gaussian"  # it has no form for text
    assert plan_release(book(80, 3), epsilon=1).mechanism == "knorm"


def test_a_plan_compares_noise_on_the_features_that_are_left_in() -> None:
    """Noise would bury most of 120 features: on the few that are left K-norm has less, though not on all of them."""
    public: dict[str, Any] = {"epsilon": 0.1, "rows": 1000, "delta": 1e-6}
    assert plan_release(book(120, 2), **public).mechanism == "centred_gaussian"
    staged = plan_fit(book(120, 2), **public)
    assert staged.name == "knorm"
    assert staged.price.delta == 0
    assert plan_fit(book(120, 2), epsilon=1, rows=10**6, delta=1e-7).name == "centred_gaussian"


def test_it_fails_closed() -> None:
    with pytest.raises(ConfigError, match="centred_gaussian needs delta"):
        plan_release(book(3, 2), epsilon=1, mechanism="centred_gaussian")
    with pytest.raises(ConfigError, match="delta"):
        CentredGaussian((ReleasePart("n", 2, True),), Fraction(1))
    words = Codebook("y", ("a",), (Text("t", ("p", "q"), max_words=3),))
    with pytest.raises(ConfigError, match="no form for text"):
        _ = plan_release(words, epsilon=1, delta=1e-6, mechanism="centred_gaussian").noise


def test_a_fit_takes_it_pays_delta_and_says_so(tmp_path: Any) -> None:
    rng = np.random.default_rng(4)
    label = rng.random(3000) < 0.5
    columns: dict[str, Any] = {f"u{at}": np.where(rng.random(3000) < 0.4 + 0.2 * label, "1", "0") for at in range(60)}
    columns["x"] = np.round(rng.normal(50 + 10 * label, 12, 3000).clip(0, 100))
    table = pa.table({**columns, "y": np.where(label, "b", "a")})
    declared = Codebook("y", ("a", "b"), (*book(60, 2).features, Numeric("x", 0, 100)), max_rows=10**5)
    Ledger.create(tmp_path / "l.json", epsilon=2, delta=1e-4, composition="zcdp")
    model = PrivateNaiveBayes(declared, epsilon=1.0, delta=1e-5, expected_rows=3000, ledger=tmp_path / "l.json").fit(table)
    assert model.privacy_["mechanism"] == "centred_gaussian"
    assert model.privacy_["delta"] == 1e-5
    assert "1e-05" in model.statement_.text
    assert model.privacy_["sampler"] == quotient.CentredGaussian.sampler
    assert (model.predict(table.drop_columns(["y"])) == np.array(table["y"])).mean() > 0.85
    model.save(tmp_path / "m.json")
    again = load(tmp_path / "m.json")
    assert again._noise_interval() is not None  # drawn by the law that the file names
