"""The joint release: the centred sampler against brute force, what one record moves, plans from public facts alone."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.noise import knorm_histograms as classwise
from blindbayes.dp.noise.knorm_histograms import Classwise, ReleasePart, cell_variance, centred_knorms
from blindbayes.dp.release.forecast import in_cells
from blindbayes.dp.release.noisy_parameters import fit_parameters
from blindbayes.dp.release.planner import JOINT_MECHANISMS, plan_release
from blindbayes.dp.release.release_plan import WITH_DELTA
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.statistics import MISSING, CodedRows, Layout, Statistics, count_block
from blindbayes.statistics.parameters import Histogram

ALPHA = 1e-4
"""Each goodness-of-fit test errs with this probability; seeds are fixed."""


def _fit(drawn: Counter[tuple[int, ...]], weights: dict[tuple[int, ...], float]) -> float:
    """p-value of the draws that fall on the listed points, given the listed relative weights."""
    total, seen = sum(weights.values()), sum(drawn[x] for x in weights)
    statistic, freedom, rare, rare_seen = 0.0, -1, 0.0, 0
    for x, weight in weights.items():
        expected = seen * weight / total
        if expected < 5:
            rare, rare_seen = rare + expected, rare_seen + drawn[x]
        else:
            statistic, freedom = statistic + (drawn[x] - expected) ** 2 / expected, freedom + 1
    if rare > 0:
        statistic, freedom = statistic + (rare_seen - rare) ** 2 / rare, freedom + 1
    return float(chi2.sf(statistic, freedom))


def _points(sizes: list[int], reach: int) -> dict[tuple[int, ...], int]:
    """Every point of norm up to `reach`, by its representative of lower median 0, with its norm."""
    blocks = []
    for size in sizes:
        middle = (size + 1) // 2 - 1
        every = itertools.product(range(-reach, reach + 1), repeat=size)
        blocks.append([x for x in every if sorted(x)[middle] == 0 and sum(map(abs, x)) <= reach])
    return {sum(parts, ()): max(sum(map(abs, part)) for part in parts) for parts in itertools.product(*blocks)}


def _ball(size: int, radius: int) -> int:
    """Points of one block of norm up to `radius`: a low, b high and the rest zero, each sign pattern with its compositions."""
    low, high = (size + 1) // 2 - 1, size - (size + 1) // 2
    return sum(
        math.factorial(size)
        // (math.factorial(a) * math.factorial(b) * math.factorial(size - a - b))
        * math.comb(radius, a + b)
        for a in range(low + 1)
        for b in range(high + 1)
    )


def test_ball_counts_equal_enumeration() -> None:
    for size in (2, 3, 4, 5):
        assert [_ball(size, k) for k in range(4)] == [len(_points([size], k)) for k in range(4)]


@pytest.mark.parametrize(("sizes", "reach"), [([2], 6), ([3], 5), ([4], 3), ([2, 3], 3)])
def test_centred_knorm_fits_brute_force_and_no_other_rate(sizes: list[int], reach: int) -> None:
    coins = Coins.seeded(bytes([len(sizes), sizes[-1]]) + bytes(30))
    drawn = Counter(map(tuple, centred_knorms(coins, sizes, Fraction(7, 10), 20_000).tolist()))
    points = _points(sizes, reach)
    shells: Counter[tuple[int, ...]] = Counter()
    for x, times in drawn.items():  # nothing but representatives comes out
        norm = max(int(np.abs(part).sum()) for part in np.split(np.array(x), np.cumsum(sizes)[:-1]))
        assert norm > reach or x in points
        shells[(norm,)] += times
    assert _fit(drawn, {x: math.exp(-0.7 * norm) for x, norm in points.items()}) > ALPHA

    assert _fit(shells, _shell_weights(sizes, 0.7)) > ALPHA
    for wrong in (0.8, 1.25):
        assert _fit(shells, _shell_weights(sizes, 0.7 * wrong)) < ALPHA


def _shells(sizes: list[int], draws: int, seed: int) -> Counter[tuple[int, ...]]:
    coins = Coins.seeded(bytes([seed]) * 32)
    cuts = np.cumsum(sizes)[:-1]
    norms = (
        max(int(np.abs(part).sum()) for part in np.split(point, cuts))
        for point in centred_knorms(coins, sizes, Fraction(7, 10), draws)
    )
    return Counter((norm,) for norm in norms)


def _shell_weights(sizes: list[int], rate: float) -> dict[tuple[int, ...], float]:
    balls = [math.prod(_ball(size, k) for size in sizes) for k in range(60)]
    return {(k,): (balls[k] - (balls[k - 1] if k else 0)) * math.exp(-rate * k) for k in range(60)}


def test_a_radius_of_one_geometric_too_few_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    true = classwise.geometric
    every_fourth = 4  # dimension 3 and one
    monkeypatch.setattr(
        classwise, "geometric", lambda coins, rate, size: true(coins, rate, size) * (np.arange(size) % every_fourth > 0)
    )
    assert _fit(_shells([2, 3], 1500, 1), _shell_weights([2, 3], 0.7)) < ALPHA


def test_roles_that_are_not_dealt_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classwise, "_permutations", lambda coins, owner: np.arange(owner.size))
    coins = Coins.seeded(bytes(32))
    drawn = Counter(map(tuple, centred_knorms(coins, [3], Fraction(7, 10), 1500).tolist()))
    assert _fit(drawn, {x: math.exp(-0.7 * norm) for x, norm in _points([3], 5).items()}) < ALPHA


def test_zeros_counted_once_for_every_role_are_caught() -> None:
    # Without the rule on zeros each point would weigh as often as its zeros can share the roles: not the claimed law.
    coins = Coins.seeded(b"z" * 32)
    drawn = Counter(map(tuple, centred_knorms(coins, [3], Fraction(7, 10), 2500).tolist()))
    points = _points([3], 5)
    doubled = {x: math.exp(-0.7 * norm) * {1: 1, 2: 2, 3: 6}[x.count(0)] for x, norm in points.items()}
    assert _fit(drawn, doubled) < ALPHA


def test_noise_variance_is_as_planned() -> None:
    coins = Coins.seeded(b"v" * 32)
    noise = Classwise(tuple(ReleasePart(str(at), size) for at, size in enumerate([2, 4, 4, 8, 16, 16])), Fraction(1))
    zero = [np.zeros((50, part.size), dtype=np.int64) for part in noise.parts]
    drawn = [noise.release(zero, [1] * 6, coins) for _ in range(10)]
    for at, planned in enumerate(noise.variances()):
        measured = np.mean([np.mean(tables[at] ** 2) for tables in drawn])
        assert measured == pytest.approx(planned, rel=0.25)  # 500 radii: five standard errors of the least cells


def test_two_cells_are_a_number_cut_in_half() -> None:
    assert cell_variance(2) == pytest.approx(1 / 12)


def test_shares_of_groups_add_up_to_epsilon() -> None:
    noise = Classwise(
        tuple(ReleasePart(str(at), size) for at, size in enumerate([2, 2, 3, 7, 16, 41, 48, 48])), Fraction("0.3"), 2
    )
    assert sum((group.epsilon for group in noise.groups), Fraction(0)) == Fraction("0.3")
    assert sorted(index for group in noise.groups for index in group.parts) == list(range(8))
    assert all(group.rate * group.step * 2 == group.epsilon for group in noise.groups)


def test_grouping_never_has_more_noise_than_one_group_or_than_all_apart() -> None:
    sizes = [2, 2, 3, 7, 16, 41, 48, 48]
    parts = tuple(ReleasePart(str(at), size) for at, size in enumerate(sizes))
    together = sum(part.size - 1 for part in parts)
    one = (together + 1) * (together + 2) * sum(part.cost for part in parts)
    apart = sum(((p.size) * (p.size + 1) * p.cost) ** (1 / 3) for p in parts) ** 3
    assert Classwise(parts, Fraction(1)).cost() <= min(one, apart) * 1.001


# -- what one record moves ---------------------------------------------------------------------------------------------

SMALL = Codebook(
    "class",
    ("a", "b"),
    (
        Categorical("colour", ("red", "green", "blue")),
        Categorical("shape", ("round", "flat"), optional=True),
        Numeric("length", -1, 2, 1),
        Numeric("amount", 0, 40_000, 1, optional=True),
    ),
)


def _records() -> list[tuple[int, int, int, int, int]]:
    return list(itertools.product((0, 1), (0, 1, 2), (-1, 0, 1), (-1, 0, 1, 2), (MISSING, -20_000, -7, 20_000)))


def _count(codebook: Codebook, rows: list[tuple[int, int, int, int, int]]) -> Statistics:
    table = np.array(rows, dtype=np.int64).reshape(len(rows), 5)
    columns = {}
    for at, feature in enumerate(codebook.features, start=1):
        codes = table[:, at]
        if isinstance(feature, Numeric) and feature.bins is not None:
            codes = np.where(codes == MISSING, -1, (codes - feature.code_low) * feature.size // feature.width)
        columns[feature.name] = codes
    return count_block(Layout(codebook), CodedRows(table[:, 0], columns, len(rows)))


@pytest.mark.parametrize("mechanism", ["knorm", "discrete_laplace"])
@pytest.mark.parametrize("rows", [50, 1_000_000])
def test_one_record_moves_one_class_and_each_part_by_at_most_its_bound(mechanism: str, rows: int) -> None:
    plan = plan_release(SMALL, epsilon=1, mechanism=mechanism, rows=rows)
    assert next(cut.kind for cut in plan.encodings if cut.feature == "amount") == "moments"
    base = [(0, 1, -1, 0, 5), (1, 2, 0, 1, MISSING)]
    before = plan.tables(_count(plan.codebook, base))
    reached = dict.fromkeys(range(len(plan.items)), 0.0)
    for record in _records():
        after = plan.tables(_count(plan.codebook, [*base, record]))
        for at, item in enumerate(plan.items):
            change = (after[at] - before[at]).astype(np.int64)
            assert not change[1 - record[0]].any()  # the other class
            moved = change[record[0]]
            norm = (
                abs(int(moved[0])) / item.bound
                if item.number
                else int(np.abs(moved - np.sort(moved)[(len(moved) - 1) // 2]).sum())
            )
            assert norm <= 1
            assert int(np.abs(moved).sum()) <= item.bound
            reached[at] = max(reached[at], norm)
    assert set(reached.values()) == {1}  # the bounds are met: none is wasteful


def test_centred_release_does_not_depend_on_a_constant_added_to_a_histogram() -> None:
    noise = Classwise((ReleasePart("h", 4),), Fraction(1))
    table = np.array([[5, 0, 2, 1]])
    one = noise.release([table], [1], Coins.seeded(bytes(32)))[0]
    other = noise.release([table + 1_000_000], [1], Coins.seeded(bytes(32)))[0]
    assert np.array_equal(one, other)


def test_the_plan_reads_no_data_and_same_facts_give_the_same_plan() -> None:
    one, other = (plan_release(SMALL, epsilon=0.5, rows=1000) for _ in range(2))
    assert one == other
    assert one.price.epsilon == 0.5
    assert one.price.delta == 0
    assert one.mechanism in str(one)
    assert set(one.describe()["features"]) == set(SMALL.names)


def test_auto_takes_the_least_noise_and_says_so() -> None:
    wide = Codebook("class", ("a", "b"), tuple(Categorical(f"x{at}", tuple("abcdefgh")) for at in range(60)))
    pure, approximate = plan_release(wide, epsilon=1, rows=10_000), plan_release(wide, epsilon=1, delta=1e-6, rows=10_000)
    assert pure.mechanism == "knorm"
    assert approximate.mechanism == "centred_gaussian"
    assert "times as much" in approximate.reasons[0]
    assert approximate.price.delta == 1e-6
    narrow = Codebook("class", ("a", "b"), wide.features[:4])
    kept = plan_release(narrow, epsilon=1, delta=1e-6, rows=10_000)
    assert (kept.mechanism, kept.price.delta) == ("knorm", 0.0)  # pure noise is smaller there, and costs no delta


def test_drowned_features_say_nothing() -> None:
    plan = plan_release(SMALL, epsilon=0.001, rows=50)
    parameters = fit_parameters(plan.release(_count(plan.codebook, []), Coins.seeded(bytes(32))))
    assert max(np.ptp(term.log_prob, axis=0).max() for term in parameters.terms.values() if isinstance(term, Histogram)) < 0.1


@pytest.mark.parametrize("mechanism", JOINT_MECHANISMS)
@pytest.mark.parametrize("rows_per_unit", [1, 3])
def test_a_large_budget_gives_the_exact_statistics_back(mechanism: str, rows_per_unit: int) -> None:
    generator = np.random.default_rng(5)
    records = _records()
    rows = [records[at] for at in generator.integers(0, len(records), 2000)]
    delta = 1e-3 if mechanism in WITH_DELTA else 0.0
    plan = plan_release(
        SMALL, epsilon=300 if not delta else 60, delta=delta, mechanism=mechanism, rows=2000, rows_per_unit=rows_per_unit
    )
    exact = _count(plan.codebook, rows)
    noisy = plan.release(exact, Coins.seeded(bytes(32))).statistics
    tolerance = 1 if not delta else 30
    assert np.abs(noisy.class_counts - exact.class_counts).max() <= tolerance
    assert np.abs(noisy.counts["colour"] - exact.counts["colour"]).max() <= 2 * tolerance
    assert noisy.sums["amount"].astype(float) == pytest.approx(exact.sums["amount"].astype(float), abs=40_000 * tolerance)


def test_statistics_of_another_codebook_are_refused() -> None:
    plan = plan_release(SMALL, epsilon=1, rows=100)
    with pytest.raises(ConfigError, match="plan"):
        plan.release(Statistics.zero(SMALL), Coins.seeded(bytes(32)))


def test_fail_closed() -> None:
    inferred = Codebook("class", ("a", "b"), SMALL.features, provenance="inferred")
    with pytest.raises(PrivacyError, match="inferred"):
        plan_release(inferred, epsilon=1)
    with pytest.raises(ConfigError, match="epsilon"):
        plan_release(SMALL, epsilon=0)
    with pytest.raises(ConfigError, match="delta"):
        plan_release(SMALL, epsilon=1, mechanism="discrete_gaussian")
    with pytest.raises(ConfigError, match="mechanism"):
        plan_release(SMALL, epsilon=1, mechanism="laplace")
    with pytest.raises(ConfigError, match="rows_per_unit"):
        plan_release(SMALL, epsilon=1, rows_per_unit=0)


def test_more_records_per_person_mean_more_noise() -> None:
    tables = Codebook("class", ("a", "b"), SMALL.features[:2])
    for mechanism in ("knorm", "discrete_laplace"):
        one, four = (plan_release(tables, epsilon=0.1, mechanism=mechanism, rows=5000, rows_per_unit=r) for r in (1, 4))
        assert four.deviations[0] == pytest.approx(4 * one.deviations[0], rel=0.01)
        assert "4 records" in four.price.unit


# -- any codebook --------------------------------------------------------------------------------------------------------


def _random_case(seed: int) -> tuple[Codebook, CodedRows]:
    generator = np.random.default_rng(seed)
    rows, classes = int(generator.integers(0, 60)), int(generator.integers(1, 5))
    features: list[Categorical | Numeric] = []
    columns: dict[str, np.ndarray] = {}
    for at in range(int(generator.integers(1, 6))):
        optional, name = bool(generator.random() < 0.4), f"x{at}"
        absent = (generator.random(rows) < 0.2) & optional
        if generator.random() < 0.5:
            values = int(generator.integers(1, 7))
            features.append(Categorical(name, tuple(f"v{v}" for v in range(values)), optional=optional))
            columns[name] = np.where(absent, -1, generator.integers(0, values, rows))
        else:
            width = int(generator.choice([1, 2, 3, 5, 101, 30_001]))
            feature = Numeric(name, -7, -8 + width, 1, optional=optional)
            features.append(feature)
            columns[name] = np.where(absent, MISSING, generator.integers(feature.code_low, feature.code_high + 1, rows))
    codebook = Codebook("class", tuple(f"c{c}" for c in range(classes)), tuple(features))
    return codebook, CodedRows(generator.integers(0, classes, rows), columns, rows)


@pytest.mark.parametrize("seed", range(24))
def test_any_codebook_gives_a_model_whose_tables_are_distributions(seed: int) -> None:
    codebook, block = _random_case(seed)
    epsilon = (0.001, 0.1, 3.0, 300.0)[seed % 4]
    for mechanism in JOINT_MECHANISMS:
        delta = 1e-5 if mechanism in WITH_DELTA else 0.0
        plan = plan_release(
            codebook, epsilon=min(epsilon, 20) if delta else epsilon, delta=delta, mechanism=mechanism, rows=10 ** (seed % 7)
        )
        cells = in_cells(block, codebook, plan.codebook)
        noisy = plan.release(count_block(Layout(plan.codebook), cells), Coins.seeded(bytes([seed]) * 32))
        parameters = fit_parameters(noisy)
        assert np.exp(parameters.log_prior).sum() == pytest.approx(1)
        for feature, term in zip(plan.codebook.features, parameters.terms.values(), strict=True):
            if isinstance(term, Histogram):
                assert term.log_prob.shape == (len(codebook.classes), feature.size)
                assert np.exp(term.log_prob).sum(axis=1) == pytest.approx(np.ones(len(codebook.classes)))
            else:
                assert (term.variance > 0).all()
                assert np.isfinite(term.mean).all()
        assert np.isfinite(parameters.joint_log_likelihood(cells)).all()
        assert noisy.statistics.codebook == plan.codebook
    assert plan_release(codebook, epsilon=epsilon, rows=100).reasons
