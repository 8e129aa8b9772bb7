"""A private release in stages: what each costs, what a record moves, and what it buys."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from audits.releases import STAGED_BOOK, audit_stages, spent_by
from blindbayes import Categorical, Codebook, NaiveBayes, Numeric, Privacy, PrivateNaiveBayes, RowStudy
from blindbayes.codebook import Feature
from blindbayes.crypto.coins import Coins
from blindbayes.data import count
from blindbayes.data.table import read_block
from blindbayes.dp.accounting.accountant import pure_rho
from blindbayes.dp.distributed.noise_shares import DistributedNoise
from blindbayes.dp.distributed.noisy_sum import NoisySum
from blindbayes.dp.release import planner
from blindbayes.dp.release import private_fit as stages
from blindbayes.dp.release.cells import fine_cells, joined, likely_shape, look_edges, public_shape, seen_shape
from blindbayes.dp.release.coarse_histograms import CoarseHistograms
from blindbayes.dp.release.constants import STAGE_SHARE
from blindbayes.dp.release.intervals import Released, noise_interval, record_of
from blindbayes.dp.release.noisy_parameters import fit_parameters
from blindbayes.dp.release.planner import plan_release
from blindbayes.dp.release.private_fit import plan_fit
from blindbayes.dp.release.release_plan import FeatureEncoding
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.statistics import Layout, Statistics, count_block
from blindbayes.statistics.parameters import Histogram
from support.mechanisms import plan_by

COINS = Coins.seeded(b"\x07" * 32)


def heavy(rows: int, seed: int = 7) -> pa.Table:
    """Amounts over five orders of magnitude, many of them zero."""
    rng = np.random.default_rng(seed)
    label = rng.random(rows) < 0.43
    columns: dict[str, Any] = {}
    for at in range(5):
        amount = np.exp(rng.normal(3 + 1.2 * label * (at % 3), 1.6, rows))
        amount[rng.random(rows) < 0.25 + 0.15 * label * (at % 2)] = 0
        columns[f"x{at}"] = np.round(np.minimum(amount, 99_999), 2)
    return pa.table({**columns, "y": np.where(label, "b", "a")})


def heavy_book(make: Any = Numeric, **fields: Any) -> Codebook:
    features: list[Feature] = [make(f"x{at}", 0, 100_000, 0.01, **fields) for at in range(5)]
    return Codebook("y", ("a", "b"), tuple(features), max_rows=10**6)


def accuracy(model: NaiveBayes, table: pa.Table) -> float:
    return float((model.predict(table.drop_columns(["y"])) == np.array(table["y"])).mean())


# -- what it costs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [None, 1, 30, 2000, 10**6])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 7.3])
@pytest.mark.parametrize("mechanism", [None, "discrete_laplace", "discrete_gaussian", "centred_gaussian"])
def test_the_stages_of_every_release_cost_the_price_together(rows: int | None, epsilon: float, mechanism: str | None) -> None:
    delta = 1e-7 if (mechanism or "").endswith("gaussian") else 0.0
    plan = plan_by(mechanism, STAGED_BOOK, epsilon=epsilon, delta=delta, rows=rows)
    assert spent_by(plan, COINS) == plan.epsilon
    assert plan.price.epsilon == pytest.approx(epsilon)
    assert plan.price.delta == delta
    assert float(plan.epsilon) <= epsilon


def test_a_record_moves_one_class_count_and_one_cell_of_each_look() -> None:
    checks = list(audit_stages(COINS, 1, draws=30_000))
    assert [check.name for check in checks if not check.passed] == []
    assert {check.part for check in checks} == {"sensitivity", "loss"}


class _Doubled(CoarseHistograms):
    """A fault: every row is counted twice."""

    def tables(self, statistics: Statistics) -> list[npt.NDArray[Any]]:
        return [2 * table for table in super().tables(statistics)]


class _Quiet(CoarseHistograms):
    """A fault: too little noise, by half."""

    @property
    def noise(self) -> Any:  # type: ignore[override]
        return replace(CoarseHistograms(self.features, self.epsilon, self.rows_per_unit).noise, epsilon=2 * self.epsilon)


@pytest.mark.parametrize("fault", [_Doubled, _Quiet])
def test_the_audit_sees_planted_faults_in_the_stages(fault: type[CoarseHistograms]) -> None:
    assert any(not check.passed and not check.control for check in audit_stages(COINS, 1, draws=3000, look=fault))


def test_the_audit_sees_stages_that_spend_more_than_the_price(monkeypatch: pytest.MonkeyPatch) -> None:
    last = stages.FitPlan.tables
    monkeypatch.setattr(stages.FitPlan, "tables", lambda self, epsilon, *rest: last(self, self.epsilon, *rest))
    failed = [check.name for check in audit_stages(COINS, 1, draws=500) if not check.passed and not check.control]
    assert any("epsilons" in name for name in failed)


def test_the_plan_hangs_on_public_facts_and_noise_alone() -> None:
    """Two tables that differ in everything but that get the same noise and the same noisy counts would get the same cells."""
    plan = plan_fit(heavy_book(), epsilon=1.0, rows=4000)
    again = plan_fit(heavy_book(), epsilon=1.0, rows=4000)
    assert plan == again
    assert plan.codebook == plan_fit(heavy_book(), epsilon=0.01).codebook  # fixed before the first stage
    assert "first look" in plan.describe()["stages"]
    assert any("first look" in reason for reason in plan.reasons)


def test_several_rows_per_person_widen_the_noise_of_every_stage() -> None:
    one, four = (plan_fit(STAGED_BOOK, epsilon=1.0, rows=50_000, rows_per_unit=each) for each in (1, 4))
    looks = [plan.look(50_000) for plan in (one, four)]
    assert looks[0] is not None
    assert looks[1] is not None
    assert looks[1].deviations()[0] == pytest.approx(4 * looks[0].deviations()[0], rel=0.05)
    assert spent_by(four, COINS) == Fraction(1)


# -- what it buys ----------------------------------------------------------------------------------------------------------


def test_a_heavy_tailed_table_comes_near_its_model_without_privacy_and_no_edges_are_declared() -> None:
    train, test = heavy(4000), heavy(4000, seed=8)
    exact = accuracy(NaiveBayes(heavy_book(), numeric="histogram").fit(train), test)
    gaussian = accuracy(NaiveBayes(heavy_book()).fit(train), test)
    assert exact > gaussian + 0.03  # a normal law does not fit such numbers
    for rows in (None, 4000):
        found = [accuracy(PrivateNaiveBayes(heavy_book(), epsilon=1.0, expected_rows=rows).fit(train), test) for _ in range(4)]
        assert np.mean(found) > exact - 0.05
    plan = plan_release(heavy_book(), epsilon=1.0, rows=4000)  # one stage, equal cells: what it was before
    before = fit_parameters(plan.release(count(train, plan.codebook), COINS))
    block = NaiveBayes(plan.codebook).fit(train)
    block.parameters_ = before
    assert accuracy(block, test) < exact - 0.05


def test_a_declared_logarithmic_scale_needs_no_look() -> None:
    train, test = heavy(4000), heavy(4000, seed=8)
    book = heavy_book(spacing="log")
    assert plan_fit(book, epsilon=1.0, rows=4000).look(4000) is None
    exact = accuracy(NaiveBayes(heavy_book(), numeric="histogram").fit(train), test)
    found = [accuracy(PrivateNaiveBayes(book, epsilon=1.0, expected_rows=4000).fit(train), test) for _ in range(4)]
    assert np.mean(found) > exact - 0.05


def test_forty_features_that_tell_nothing_cost_little_against_the_largest_class() -> None:
    rng = np.random.default_rng(3)
    label = rng.random(2000) < 0.3
    names = [f"u{at}" for at in range(40)]
    table = pa.table({**{name: np.where(rng.random(2000) < 0.5, "p", "q") for name in names}, "y": np.where(label, "b", "a")})
    book = Codebook("y", ("a", "b"), tuple(Categorical(name, ("p", "q")) for name in names), max_rows=10**5)
    found = [accuracy(PrivateNaiveBayes(book, epsilon=0.1, expected_rows=2000).fit(table), table) for _ in range(8)]
    assert np.mean(found) > 0.7 - 0.12  # 0.65 in the mean: not nothing


def test_rows_that_nobody_declared_are_estimated_and_the_cells_follow() -> None:
    small, large = (heavy(rows) for rows in (300, 20_000))
    models = [PrivateNaiveBayes(heavy_book(), epsilon=1.0).fit(table) for table in (small, large)]
    cells = [np.mean([fact["cells"] or 0 for fact in model.privacy_["features"].values()]) for model in models]
    assert cells[0] < cells[1]


# -- cells -----------------------------------------------------------------------------------------------------------------

SHAPES = (
    Numeric("x", 0, 150),
    Numeric("x", 0, 5),
    Numeric("x", -7, 9),
    Numeric("x", 0, 10**6, 0.01),
    Numeric("x", -100, 4000, 0.5),
    Numeric("x", 5, 9000),
)


@pytest.mark.parametrize("feature", SHAPES, ids=str)
def test_fine_cells_and_the_cells_of_a_look_cover_the_grid(feature: Numeric) -> None:
    starts = fine_cells(feature)
    assert starts[0] == feature.code_low
    assert list(starts) == sorted(set(starts))
    assert starts[-1] <= feature.code_high
    for shape in (public_shape(feature), likely_shape(feature)):
        assert sum(shape.mass) == pytest.approx(1)
        assert min(shape.mass) > 0
        counted = shape.counted(feature)
        assert counted.starts == starts
    edges = look_edges(feature)
    assert edges[0] == 0
    assert edges[-1] == len(starts)
    shares = np.arange(1.0, len(edges))
    seen = seen_shape(feature, shares / shares.sum())
    assert np.add.reduceat(np.array(seen.mass), edges[:-1]) == pytest.approx(shares / shares.sum())


def test_before_anything_is_known_a_number_from_zero_on_is_cut_low_and_any_other_in_the_middle() -> None:
    def middle(low: float, high: float) -> float:
        feature = Numeric("x", low, high, 0.01)
        edge = likely_shape(feature).encode(feature, 2, "").edges[1]
        return (likely_shape(feature).starts[edge] + feature.centre) / feature.scale

    assert middle(0, 100) == pytest.approx(25, abs=2)
    assert middle(1, 100) == pytest.approx(26, abs=2)
    assert middle(-100, 0) == pytest.approx(-25, abs=2)
    assert [middle(-40, 60), middle(20, 100)] == pytest.approx([10, 60], abs=2)


def test_a_table_of_amounts_tells_its_classes_apart_although_noise_leaves_two_cells_each() -> None:
    """In the middle of its bounds hardly a row lies, and there are too few for a first look."""
    names, rng = [f"x{at}" for at in range(10)], np.random.default_rng(2)
    label = rng.random(300) < 0.5
    columns = {name: np.minimum(np.round(rng.exponential(np.where(label, 9.0, 4.0))), 100) for name in names}
    table = pa.table({**columns, "y": np.where(label, "b", "a")})
    book = Codebook("y", ("a", "b"), tuple(Numeric(name, 0, 100) for name in names), max_rows=10**6)
    assert plan_fit(book, epsilon=0.3, rows=300).look(300) is None
    found = [accuracy(PrivateNaiveBayes(book, epsilon=0.3, expected_rows=300).fit(table), table) for _ in range(12)]
    assert np.mean(found) > 0.58


def test_a_number_on_a_grid_too_fine_for_equal_cells_is_released_all_the_same() -> None:
    book = Codebook("y", ("a", "b"), (Numeric("x", -1, 2, 2.0**-45),), max_rows=10**6)
    rng = np.random.default_rng(1)
    label = rng.random(3000) < 0.5
    table = pa.table({"x": np.clip(rng.normal(0.6 * label, 0.3), -1, 2), "y": np.where(label, "b", "a")})
    assert accuracy(PrivateNaiveBayes(book, epsilon=1.0).fit(table), table) > 0.8


def test_an_upper_bound_off_the_grid_is_an_edge_like_any_other() -> None:
    feature = Numeric("x", -2.2072749131897207, -0.7985076962177716, 2**-44)
    assert feature.grid_high / feature.scale > feature.high
    counted = public_shape(feature).counted(feature)
    assert len(counted.edges) == len(public_shape(feature).starts) - 1
    assert plan_fit(Codebook("y", ("n", "p"), (feature,), max_rows=10**6), epsilon=1).codebook.feature("x") == counted


def test_joined_cells_are_about_equally_full_and_a_full_cell_stands_alone() -> None:
    assert joined([0.25] * 4, 2) == (0, 2, 4)
    assert joined([0.6, 0.1, 0.1, 0.1, 0.1], 3) == (0, 1, 3, 5) or joined([0.6, 0.1, 0.1, 0.1, 0.1], 3)[1] == 1
    assert joined([0.1, 0.1, 0.6, 0.1, 0.1], 3)[1:3] == (2, 3)


# -- class counts, categories, features with many values ----------------------------------------------------------------------


def categories(features: int, values: int) -> Codebook:
    each = tuple(Categorical(f"c{at}", tuple("abcdefghijklmnopqrst"[:values])) for at in range(features))
    return Codebook("y", ("n", "p"), each, max_rows=10**6)


def empty(plan: stages.FitPlan) -> Statistics:
    layout = Layout(plan.codebook)
    return Statistics(layout, np.zeros(layout.size, dtype=object))


@pytest.mark.parametrize(("features", "rows"), [(4, 1000), (400, 100_000)])
def test_class_counts_come_with_the_features_where_rows_are_declared(features: int, rows: int) -> None:
    plan = plan_fit(categories(features, 2), epsilon=0.3, rows=rows)
    assert (plan.class_epsilon, "class counts" in plan.describe()["stages"]) == (0, False)
    noisy = plan.release(empty(plan), COINS)
    assert (noisy.plan.class_counts, noisy.plan.items[0].kind) == (None, "classes")
    assert plan_fit(categories(features, 2), epsilon=0.3).class_epsilon > 0


def test_class_counts_of_a_weak_first_stage_are_released_again_with_the_features() -> None:
    plan = plan_fit(categories(4, 2), epsilon=0.3)
    noisy = plan.release(empty(plan), COINS)
    sized = noisy.plan.class_counts
    assert sized is not None
    assert noisy.plan.items[0].kind == "classes"
    assert noisy.sizes.deviation < sized.deviation / 3  # the mean of both, weighted by their noise
    record = record_of(noisy)
    kinds = [item.kind for item in Released.parse(record, plan.codebook).plan.items]
    assert kinds == [item.kind for item in noisy.plan.items]
    with pytest.raises(ConfigError):
        Released.parse({**record, "sized": {**record["sized"], "recounted": "yes"}}, plan.codebook)


def test_values_of_a_category_share_cells_where_noise_is_large_and_their_interval_is_the_cells() -> None:
    book = categories(6, 8)
    small, large = (plan_fit(book, epsilon=epsilon, rows=1000) for epsilon in (0.1, 100.0))
    rough, fine = (plan.release(empty(plan), COINS) for plan in (small, large))
    assert {cut.edges for cut in rough.plan.encodings if cut.kind == "cells"} == {(0, 2, 4, 6, 8)}
    assert {cut.cells for cut in fine.plan.encodings} == {8}
    parameters = fit_parameters(rough)
    name = next(cut.feature for cut in rough.plan.encodings if cut.kind == "cells")
    term = parameters.terms[name]
    assert isinstance(term, Histogram)
    assert np.ptp(term.log_prob[:, :2], axis=1) == pytest.approx(0)  # nothing is known within a cell
    found = noise_interval({"released": record_of(rough)}, parameters, 1.0)
    assert found is not None
    interval = found.terms[name]
    assert isinstance(interval, Histogram)
    assert interval.log_prob.shape[2] == 8
    assert np.ptp(interval.log_prob[:, :, :2], axis=2) == pytest.approx(0)


def test_a_feature_of_very_many_values_is_the_first_to_be_left_out() -> None:
    bins = tuple(Numeric(f"x{at}", 0, 100, bins=3) for at in range(6))
    plan = plan_fit(Codebook("y", ("n", "p"), (*bins, Numeric("id", 0, 299, bins=300)), max_rows=10**6), epsilon=1, rows=700)
    cuts = plan.release(empty(plan), COINS).plan.encodings
    assert [cut.kind for cut in cuts] == ["cells"] * 6 + ["nothing"]


def test_a_wide_table_is_planned_by_few_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one from the top, a study of 800 columns had 4,500 plans: to read its file took a minute."""
    tried, inner = 0, planner.signal_of

    def counted(*args: Any, **options: Any) -> float:
        nonlocal tried
        tried += 1
        return inner(*args, **options)

    def encodings(columns: int) -> tuple[FeatureEncoding, ...]:
        return NoisySum.make(categories(columns, 2), epsilon=1.0, honest=2, parties=3, law=DistributedNoise).tables.encodings

    monkeypatch.setattr(planner, "signal_of", counted)
    encodings(800)
    assert tried < 100
    halved = encodings(120)
    monkeypatch.setattr(planner, "_ONE_BY_ONE", 120)
    assert halved == encodings(120)
    assert 2 < sum(each.kind == "cells" for each in halved) < 120 - 32


def test_a_public_order_decides_which_features_stay_where_noise_would_bury_all() -> None:
    book = categories(30, 4)
    ordered = msgspec.structs.replace(book, order=("c17", "c3", "c29", "c8"))
    kept = []
    for each in (book, ordered):
        plan = plan_fit(each, epsilon=0.3, rows=300)
        kept.append([cut.feature for cut in plan.release(empty(plan), COINS).plan.encodings if cut.kind == "cells"])
    assert 2 <= len(kept[0]) == len(kept[1]) < 30
    assert set(kept[0]) != set(kept[1])
    assert set(ordered.order[:2]) <= set(kept[1]) <= {*ordered.order, *(f"c{at}" for at in range(len(kept[1])))}
    assert book.sha256 != ordered.sha256
    with pytest.raises(ConfigError, match="order names features"):
        msgspec.structs.replace(book, order=("c1", "c1"))


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        (100, ["class counts", "last choice", "calibration"]),
        (4000, ["first look", "tables", "last choice", "calibration"]),
    ],
)
def test_an_outcome_lists_every_stage_with_its_mechanism(rows: int, names: list[str]) -> None:
    """A fit by rules spends 84% through permute-and-flip on floating-point scores, and says so."""
    table, book = heavy(rows), heavy_book()
    plan = plan_fit(book, epsilon=1.0, rows=rows, select_model=True)
    block = read_block(table, plan.codebook)
    outcome = plan.fit(count_block(Layout(plan.codebook), block), block, COINS)
    found = {stage.name: stage for stage in outcome.stages}
    assert list(found)[-len(names) :] == names
    assert sum(stage.epsilon for stage in outcome.stages) == plan.epsilon
    floating = {"last choice", "calibration"}
    assert {stage.name for stage in outcome.stages if stage.floating_point} == floating & set(names)
    assert found["last choice"].mechanism == "permute_and_flip"
    assert rows > 100 or found["last choice"].epsilon == (1 - 2 * STAGE_SHARE) * plan.epsilon


@pytest.mark.parametrize("rows", [None, 100, 4000])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("wide", [False, True])
def test_the_rho_of_a_plan_bounds_the_stages_that_ran(rows: int | None, delta: float, wide: bool) -> None:
    size = rows or 3000
    rng = np.random.default_rng(5)
    label = rng.random(size) < 0.5
    columns = {f"u{at}": np.where(rng.random(size) < 0.4 + 0.2 * label, "1", "0") for at in range(60 if wide else 3)}
    table = pa.table(
        {**columns, "x": np.round(rng.normal(50 + 10 * label, 12, size).clip(0, 100)), "y": np.where(label, "b", "a")}
    )
    features = [Categorical(name, ("0", "1")) for name in columns]
    book = Codebook("y", ("a", "b"), (*features, Numeric("x", 0, 100)), max_rows=10**5)
    plan = plan_fit(book, epsilon=1.0, delta=delta, rows=rows, select_model=True)
    block = read_block(table, plan.codebook)
    for _ in range(3):
        outcome = plan.fit(count_block(Layout(plan.codebook), block), block, COINS)
        spent = sum(pure_rho(float(each.epsilon)) if each.rho is None else each.rho for each in outcome.stages)
        assert plan.rho is not None
        assert spent <= plan.rho
        assert outcome.stages[-1].delta in (0.0, delta)
    assert plan.map(3).epsilon == pytest.approx(3.0)
    assert plan.map(3).rho == pytest.approx(9 * plan.rho)


def test_rho_is_a_price() -> None:
    table = heavy(3000)
    for options in ({}, {"delta": 1e-6}, {"expected_rows": 3000}):
        model = PrivateNaiveBayes(heavy_book(), rho=0.125, **options).fit(table)  # type: ignore[arg-type]
        statement = model.statement_
        assert statement.rho is not None
        assert 0.97 * 0.125 <= statement.rho <= 0.125
        assert statement.epsilon >= 0.499
    with pytest.raises(ConfigError, match="epsilon or rho"):
        PrivateNaiveBayes(heavy_book(), rho=0.1, epsilon=1.0).fit(table)
    with pytest.raises(ConfigError, match="epsilon or rho"):
        PrivateNaiveBayes(heavy_book()).fit(table)
    with pytest.raises(ConfigError, match="rho lies"):
        PrivateNaiveBayes(heavy_book(), rho=-1.0).fit(table)


def test_a_delta_above_a_tenth_of_one_over_the_rows_needs_an_explicit_word() -> None:
    """S3: 1e-3 was taken for 1,000 declared rows without a word."""
    table, book = heavy(1000), heavy_book()
    with pytest.raises(PrivacyError, match="allow_large_delta"):
        PrivateNaiveBayes(book, epsilon=1.0, delta=2e-4, expected_rows=1000).fit(table)
    PrivateNaiveBayes(book, epsilon=1.0, delta=2e-4, expected_rows=1000, allow_large_delta=True).fit(table)
    PrivateNaiveBayes(book, epsilon=1.0, delta=1e-4, expected_rows=1000).fit(table)
    with pytest.raises(PrivacyError, match="whole record"):
        PrivateNaiveBayes(book, epsilon=1.0, delta=2e-3, expected_rows=1000, allow_large_delta=True).fit(table)
    with pytest.raises(PrivacyError, match="allow_large_delta"):
        RowStudy(book, privacy=Privacy(epsilon=1.0, delta=2e-4, expected_rows=1000))
    RowStudy(book, privacy=Privacy(epsilon=1.0, delta=2e-4, expected_rows=1000, allow_large_delta=True))
