"""Smooth sensitivities against brute force, the exact law of Cauchy noise, and the two per-parameter mechanisms."""

from __future__ import annotations

import itertools
import math
import time
from fractions import Fraction

import numpy as np
import pytest

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.statistics import MISSING, CodedRows
from blindbayes_papers.zafarani2020 import smooth
from blindbayes_papers.zafarani2020.audit import SMALL_BOOK, audit_parameters, audit_per_parameter

GRID = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
BETAS = (0.02, 0.2, 1.0)


def _lists(longest: int) -> list[tuple[int, ...]]:
    """All multisets of grid points up to that size, as counts."""
    return [
        tuple(np.bincount(chosen, minlength=len(GRID))) if chosen else (0,) * len(GRID)
        for size in range(longest + 1)
        for chosen in itertools.combinations_with_replacement(range(len(GRID)), size)
    ]


def _values(counts: tuple[int, ...]) -> np.ndarray:
    return np.repeat(GRID, counts)


def _neighbours(counts: tuple[int, ...]) -> list[tuple[int, ...]]:
    found = set()
    for put in range(len(GRID)):
        found.add(tuple(n + (at == put) for at, n in enumerate(counts)))
    for take in np.flatnonzero(counts):
        fewer = tuple(n - (at == take) for at, n in enumerate(counts))
        found.add(fewer)
        for put in range(len(GRID)):
            found.add(tuple(n + (at == put) for at, n in enumerate(fewer)))
    found.discard(counts)
    return sorted(found)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else 0.5


def _variance(values: np.ndarray) -> float:
    return float(values.var()) if len(values) else 0.0


def _smooth_mean(counts: tuple[int, ...], beta: float) -> float:
    values = _values(counts)
    smallest, largest = (values[0], values[-1]) if len(values) else (0.0, 0.0)
    return smooth.mean_sensitivity(len(values), smallest, largest, 0.0, 1.0, beta)


def test_mean_equals_brute_force_on_all_small_lists() -> None:
    everything = _lists(8)
    local = np.array([max(abs(_mean(_values(x)) - _mean(_values(y))) for y in _neighbours(x)) for x in everything])
    table = np.array(everything)
    checked = 0
    for counts in _lists(4):
        more = np.maximum(table - counts, 0).sum(axis=1)
        less = np.maximum(np.array(counts) - table, 0).sum(axis=1)
        steps = np.maximum(more, less)  # a replacement does an insertion and a deletion in one step
        for beta in BETAS:
            brute = float((np.exp(-beta * steps) * local).max())
            assert _smooth_mean(counts, beta) == pytest.approx(brute, rel=1e-12)
            checked += 1
    assert checked == 3 * len(_lists(4))


def test_the_paper_s_reading_of_the_mean_is_not_the_smooth_sensitivity() -> None:
    # Theorem 4 maximises the change over k steps: at n = 4 and beta = 0.02 that is four times the true value.
    values, beta = np.array([0.0, 0.0, 1.0, 1.0]), 0.02
    printed = max(math.exp(-beta * k) * max((1 - values[:k]).sum(), values[4 - k :].sum()) / 4 for k in range(1, 5))
    assert printed != pytest.approx(_smooth_mean((2, 0, 0, 0, 2), beta), rel=0.05)


def test_variance_bound_is_above_local_sensitivity_and_smooth_on_all_small_lists() -> None:
    for beta in BETAS:
        for counts in _lists(5):
            values = _values(counts)
            bound = smooth.variance_sensitivity(values, 0.0, 1.0, beta)
            for other in _neighbours(counts):
                there = smooth.variance_sensitivity(_values(other), 0.0, 1.0, beta)
                assert abs(_variance(values) - _variance(_values(other))) <= bound * (1 + 1e-12)
                assert bound <= math.exp(beta) * there * (1 + 1e-12)
            rest = np.append(values, values.mean()) if len(values) else np.array([0.5])  # off the grid: a number at the mean
            assert abs(_variance(values) - _variance(rest)) <= bound * (1 + 1e-12)


def test_a_variance_bound_with_the_class_size_held_fixed_would_fail() -> None:
    # The planted fault: R^2/4 replaced by (n-1)/n^2 R^2 for every k, as if no record could change class.
    beta = 0.02
    broken = {n: (n - 1) / n**2 for n in range(2, 7)}
    assert any(broken[n] < broken[n + 1] * math.exp(-beta) or broken[n + 1] < broken[n] * math.exp(-beta) for n in range(2, 6))


def test_early_stop_gives_the_same_as_all_steps() -> None:
    generator = np.random.default_rng(7)
    for beta in (0.001, 0.05, 2.0):
        values = np.sort(np.clip(generator.normal(0.4, 0.1, 3000), 0, 1))
        n, k = len(values), np.arange(len(values) - 1)
        below = np.concatenate([[0], np.cumsum(values)])
        above = np.concatenate([[0], np.cumsum(values[::-1])])
        least = below[n - k - 1] / n
        most = (above[n - k - 1] + k + 1) / n
        whole = np.exp(-beta * k) * np.minimum(0.25, np.maximum(1 - least, most) ** 2 / (n - k))
        expected = max(float(whole.max()), math.exp(-beta * (n - 1)) * 0.25)
        assert smooth.variance_sensitivity(values, 0.0, 1.0, beta) == pytest.approx(expected, rel=1e-12)


def test_both_take_less_than_two_seconds_for_the_largest_state_of_the_paper() -> None:
    values = np.random.default_rng(1).integers(0, 100, 1_700_000)
    started = time.process_time()
    ordered = np.sort(values)
    smooth.mean_sensitivity(len(ordered), float(ordered[0]), float(ordered[-1]), 0.0, 100.0, 1e-4)
    smooth.variance_sensitivity(ordered, 0.0, 100.0, 1e-4)
    assert time.process_time() - started < 2.0


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 5.0])
def test_cauchy_factor_is_the_least_that_is_private(epsilon: float) -> None:
    beta = epsilon / 6
    factor = smooth.cauchy_factor(epsilon, beta)

    def loss(scale: float) -> float:
        """The largest log ratio over outputs and over the worst changes that smoothness allows."""
        worst = 0.0
        for ratio in (1.0, math.exp(beta), math.exp(-beta)):
            here, there = scale, scale * ratio  # S = 1 at x, so the value moves by at most min(1, ratio): LS <= S on both sides
            shift = min(1.0, ratio)
            worst = max(worst, math.acosh(1 + (shift**2 + (here - there) ** 2) / (2 * here * there)))
        return worst

    assert loss(factor) <= epsilon * (1 + 1e-9)
    assert loss(0.98 * factor) > epsilon


def test_hyperbolic_distance_is_the_largest_log_ratio_of_two_cauchy_laws() -> None:
    generator = np.random.default_rng(3)
    for _ in range(20):
        f, g = generator.normal(size=2)
        s, t = np.exp(generator.normal(size=2))
        x = np.concatenate(
            [f + s * np.tan(np.linspace(-1.5707, 1.5707, 200_001)), g + t * np.tan(np.linspace(-1.57, 1.57, 200_001))]
        )
        ratio = np.abs(np.log(s / t) + np.log(t**2 + (x - g) ** 2) - np.log(s**2 + (x - f) ** 2)).max()
        assert ratio == pytest.approx(math.acosh(1 + ((f - g) ** 2 + (s - t) ** 2) / (2 * s * t)), rel=1e-6)


def test_no_cauchy_scale_suffices_where_beta_is_epsilon() -> None:
    with pytest.raises(ConfigError, match="beta"):
        smooth.cauchy_factor(1.0, 1.0)


# -- the mechanisms ------------------------------------------------------------------------------------------------------

CODEBOOK = Codebook(
    "class",
    ("a", "b"),
    (
        Numeric("length", 0, 10, 0.1),
        Categorical("colour", ("red", "green", "blue")),
        Numeric("weight", -5, 5, 0.5, optional=True),
    ),
)


def _block(rows: int = 3000) -> CodedRows:
    generator = np.random.default_rng(11)
    labels = generator.integers(0, 2, rows)
    length = np.clip(np.round(generator.normal(20 * labels - 10, 8)), -50, 50).astype(np.int64)
    colour = np.where(generator.random(rows) < 0.7, labels, 2).astype(np.int64)
    weight = np.clip(np.round(generator.normal(4 * labels - 2, 2)), -10, 10).astype(np.int64)
    weight[generator.random(rows) < 0.1] = MISSING
    return CodedRows(labels, {"length": length, "colour": colour, "weight": weight}, rows)


@pytest.mark.parametrize("mechanism", ["smooth", "global"])
def test_a_large_budget_gives_nearly_the_true_parameters(mechanism: str) -> None:
    block = _block()
    plan = smooth.plan_parameters(CODEBOOK, epsilon=1000, mechanism=mechanism)  # type: ignore[arg-type]
    parameters = plan.fit(block, Coins.seeded(bytes(32)))
    term = parameters.terms["length"]
    truth = [block.columns["length"][block.labels == label] for label in (0, 1)]
    assert term.mean == pytest.approx([5 + part.mean() / 10 for part in truth], abs=0.05)  # type: ignore[union-attr]
    assert term.variance == pytest.approx([part.var() / 100 for part in truth], rel=0.1)  # type: ignore[union-attr]
    accuracy = (parameters.joint_log_likelihood(block).argmax(axis=1) == block.labels).mean()
    assert accuracy > 0.9


def test_budgets_add_up_to_epsilon_for_every_allocation() -> None:
    for allocation in ((1, 2), (1, 1), (2, 1), (4, 1)):
        plan = smooth.plan_parameters(CODEBOOK, epsilon=1, allocation=allocation)
        number, table = plan.budgets
        assert 4 * number + 2 * table == 1  # two numeric features with mean and variance, one histogram, the class counts
        assert Fraction(2 * number, 1) / table == Fraction(*allocation)


def test_empty_classes_and_one_row_get_finite_parameters() -> None:
    block = CodedRows(np.array([0]), {"length": np.array([3]), "colour": np.array([1]), "weight": np.array([MISSING])}, 1)
    for mechanism in ("smooth", "global"):
        parameters = smooth.plan_parameters(CODEBOOK, epsilon=1, mechanism=mechanism).fit(block, Coins.seeded(bytes(32)))  # type: ignore[arg-type]
        assert np.isfinite(parameters.joint_log_likelihood(block)).all()


def test_an_inferred_codebook_is_refused() -> None:
    inferred = Codebook("class", ("a", "b"), CODEBOOK.features, provenance="inferred")
    with pytest.raises(PrivacyError, match="inferred"):
        smooth.plan_parameters(inferred, epsilon=1)


def test_the_description_states_beta_and_gamma() -> None:
    told = smooth.plan_parameters(CODEBOOK, epsilon=1, gamma=4).describe()
    assert told["gamma"] == 4.0
    assert told["beta"] == pytest.approx(told["epsilon_per_moment"] / 10)


# -- the audit -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [2, 4])
def test_the_audit_does_not_refute_smooth_and_sees_its_planted_faults(gamma: int) -> None:
    checks = list(audit_per_parameter("smooth", Coins.seeded(b"s" * 32), epsilon=Fraction(2), draws=3000, gamma=gamma))
    assert [check.name for check in checks if not check.passed and not check.control] == []
    if gamma == 2:  # other noise is calibrated with room to spare
        assert all(check.passed for check in checks)


def test_the_audit_refutes_a_bound_that_is_not_smooth(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: the local sensitivity in place of the smooth one."""
    monkeypatch.setattr(smooth, "variance_sensitivity", lambda z, low, high, beta: 0.0 if len(z) < 2 else float(z.var()))
    checks = list(audit_per_parameter("smooth", Coins.seeded(b"l" * 32), epsilon=Fraction(1), draws=1000))
    assert [check for check in checks if not check.passed and not check.control]


def test_the_audit_refutes_shares_that_add_up_to_more_than_the_price() -> None:
    class Greedy(smooth.ParameterPlan):
        @property
        def budgets(self) -> tuple[Fraction, Fraction]:  # type: ignore[override]
            return self.epsilon, self.epsilon

    plan = Greedy(SMALL_BOOK, Fraction(1), "global")
    assert not next(audit_parameters(plan, Coins.seeded(b"g" * 32), 1000)).passed
