"""Mechanisms: the exact privacy loss of the law they draw from, the price they state, and what they refuse."""

from __future__ import annotations

import math
import os
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.sensitivity import Sensitivity, SensitivityBlock
from blindbayes.dp.noise import gaussian
from blindbayes.dp.noise.mechanisms import FINE, MECHANISMS, DiscreteGaussian, DiscreteLaplace, make
from blindbayes.errors import ConfigError, DataError

HISTOGRAMS = Sensitivity(tuple(SensitivityBlock(f"h{i}", 6) for i in range(4)))
MIXED = Sensitivity((SensitivityBlock("class", 2), SensitivityBlock("sum", 2, 100), SensitivityBlock("square", 2, 10_000)))


def coins(label: str) -> Coins:
    return Coins.seeded(label.encode().ljust(32)[:32])


def pure(mechanism_name: str) -> float:
    return 0.0 if mechanism_name != "discrete_gaussian" else 1e-6


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("sensitivity", [HISTOGRAMS, MIXED, Sensitivity(MIXED.blocks, rows_per_unit=3)])
def test_noise_has_the_stated_variance_and_no_bias(name: str, sensitivity: Sensitivity) -> None:
    mechanism = make(name, sensitivity, Fraction(1, 2), pure(name))
    c, n = coins(f"variance {name}"), 1200
    zero = np.zeros(sensitivity.size, dtype=np.int64)
    draws = np.asarray(mechanism.releases(zero, c, n), dtype=float)
    variances = mechanism.variances()
    assert (np.abs(draws.mean(axis=0)) < 4.5 * np.sqrt(variances / n)).all()
    ratio = draws.var(axis=0) / (variances + 1 / 12)
    assert (np.abs(ratio - 1) < 5 * np.sqrt(6 / n)).all()


@pytest.mark.parametrize("rows", [1, 4])
def test_laplace_loss_is_exactly_epsilon_at_the_worst_change(rows: int) -> None:
    """Sum over blocks of (largest change on the grid) / scale is epsilon: in rational numbers, not to a tolerance."""
    for sensitivity in (Sensitivity(HISTOGRAMS.blocks, rows), Sensitivity(MIXED.blocks, rows)):
        mechanism = DiscreteLaplace(sensitivity, Fraction(3, 10))
        assert sum(mechanism.reach / scale for scale in mechanism.scales) == Fraction(3, 10)


def test_shares_split_the_budget() -> None:
    blocks = (SensitivityBlock("a", 2, share=Fraction(3)), SensitivityBlock("b", 2, share=Fraction(1)))
    mechanism = DiscreteLaplace(Sensitivity(blocks), Fraction(1))
    assert mechanism.scales == (Fraction(4, 3), Fraction(4))
    with pytest.raises(ConfigError, match="shares"):
        DiscreteGaussian(Sensitivity(blocks), Fraction(1), 1e-6)


@pytest.mark.parametrize("bound", [1, 3, 100, 12345, 10**7])
@pytest.mark.parametrize("step", [64, FINE])
def test_rounding_to_the_grid_keeps_the_bound(bound: int, step: int) -> None:
    """[grid]: |round(v step / w) - round(v' step / w)| <= step whenever |v - v'| <= w."""
    rng = np.random.default_rng(bound)
    before = rng.integers(-(10**9), 10**9, 500)
    for change in (0, 1, bound // 2, bound - 1, bound):
        left = [(2 * int(v) * step + bound) // (2 * bound) for v in before]
        right = [(2 * (int(v) + change) * step + bound) // (2 * bound) for v in before]
        assert max(abs(a - b) for a, b in zip(left, right, strict=True)) <= step


def test_grid_reach_for_several_rows() -> None:
    assert DiscreteLaplace(Sensitivity((SensitivityBlock("a", 3),), 5), Fraction(1)).reach == 5
    uneven = DiscreteLaplace(Sensitivity((SensitivityBlock("a", 3, 7),), 5), Fraction(1))
    assert uneven.reach == 5 * FINE + 4
    cells = [-(-(c * FINE) // 7) for c in (7, 7, 7, 7, 7)]  # five rows in five cells, each rounded up at worst
    assert sum(cells) <= uneven.reach


def analytic(epsilon: float, delta: float) -> float:
    """Balle and Wang: the standard deviation of continuous Gaussian noise at L2 sensitivity one."""

    def excess(s: float) -> float:
        return norm.cdf(0.5 / s - epsilon * s) - math.exp(epsilon) * norm.cdf(-0.5 / s - epsilon * s) - delta

    return float(brentq(excess, 1e-2, 1e4))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("blocks", [1, 7, 40])
def test_gaussian_variance_is_that_of_the_analytic_mechanism_to_one_percent(epsilon: float, blocks: int) -> None:
    mechanism = DiscreteGaussian(
        Sensitivity(tuple(SensitivityBlock(str(i), 2) for i in range(blocks))), Fraction(epsilon), 1e-6
    )
    if mechanism.variance >= 4:
        assert math.sqrt(mechanism.variance / blocks) == pytest.approx(analytic(epsilon, 1e-6), rel=0.01)


@pytest.mark.parametrize("bound", [2, 1000])
def test_gaussian_on_the_fine_grid_matches_too(bound: int) -> None:
    mechanism = DiscreteGaussian(Sensitivity((SensitivityBlock("a", 2), SensitivityBlock("b", 2, bound))), Fraction(1), 1e-6)
    sigma = math.sqrt(mechanism.variance / 2) / mechanism.step
    assert sigma == pytest.approx(analytic(1.0, 1e-6), rel=0.001)


@pytest.mark.parametrize(("epsilon", "variance", "blocks"), [(1, 18, 1), (0.5, 60, 3), (2, 9, 4), (1, 12, 9)])
def test_gaussian_delta_equals_the_convolution_of_exact_masses(epsilon: float, variance: int, blocks: int) -> None:
    """The oracle sums the true law of m discrete Gaussians, without the theta-function step."""
    reach = 14 * math.isqrt(variance) + 40
    x = np.arange(-reach, reach + 1)
    one = np.exp(-(x**2) / (2 * variance))
    one /= one.sum()
    law = one
    for _ in range(blocks - 1):
        law = np.convolve(law, one)
    moved = np.concatenate([np.zeros(blocks), law])
    exact = float(np.maximum(np.concatenate([law, np.zeros(blocks)]) - math.exp(epsilon) * moved, 0).sum())
    bound = gaussian.delta_of(Fraction(variance), Fraction(epsilon), blocks, 1)
    assert exact <= bound <= exact * (1 + 1e-6) + 1e-15
    assert exact <= gaussian.zcdp_delta(float(gaussian.rho_of(Fraction(variance), blocks, 1)), epsilon)


def test_summed_and_enclosed_tails_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = (Fraction(2000**2), Fraction(1, 10), 3, 100)
    summed = gaussian.delta_of(*arguments)
    monkeypatch.setattr(gaussian, "_SUM_UP_TO", 1)
    enclosed = gaussian.delta_of(*arguments)
    assert summed <= enclosed <= summed * 1.02


def test_gaussian_price_against_dp_accounting() -> None:
    try:
        from dp_accounting.pld import privacy_loss_distribution as pld
    except ImportError:
        assert os.environ.get("CI") != "true", "dp-accounting is an oracle of the tests"
        pytest.skip("dp-accounting is not installed")
    mechanism = DiscreteGaussian(HISTOGRAMS, Fraction(1), 1e-6)
    loss = pld.from_discrete_gaussian_mechanism(
        math.sqrt(mechanism.variance), sensitivity=1, value_discretization_interval=1e-4
    )
    composed = loss.self_compose(4)
    assert composed.get_delta_for_epsilon(1.0) == pytest.approx(1e-6, rel=0.02)  # pessimistic by its discretisation
    tighter = pld.from_discrete_gaussian_mechanism(math.sqrt(mechanism.variance) * 0.95, sensitivity=1).self_compose(4)
    assert tighter.get_delta_for_epsilon(1.0) > 1.2e-6


def test_the_price_is_known_before_any_data() -> None:
    price = make("discrete_gaussian", HISTOGRAMS, 0.5, 1e-6).price
    assert (price.epsilon, price.delta, price.unit, price.adjacency) == (0.5, 1e-6, "one record", "add or remove")
    assert price.rho == pytest.approx(4 / (2 * float(DiscreteGaussian(HISTOGRAMS, Fraction(1, 2), 1e-6).variance)))
    assert "epsilon = 0.5" in str(price)


@pytest.mark.parametrize("name", MECHANISMS)
def test_release_refuses_what_it_cannot_protect(name: str) -> None:
    mechanism = make(name, HISTOGRAMS, 1, pure(name))
    with pytest.raises(DataError, match="integers"):
        mechanism.release(np.zeros(24), coins("float"))
    with pytest.raises(DataError, match="length"):
        mechanism.release(np.zeros(23, dtype=np.int64), coins("short"))


@pytest.mark.parametrize(
    ("name", "epsilon", "delta"),
    [
        ("discrete_laplace", 1, 1e-6),
        ("discrete_gaussian", 1, 0.0),
        ("discrete_gaussian", 1, 0.5),
        ("discrete_laplace", 0, 0.0),
        ("discrete_laplace", -1, 0.0),
        ("discrete_laplace", math.inf, 0.0),
        ("discrete_laplace", math.nan, 0.0),
        ("laplace", 1, 0.0),
    ],
)
def test_parameters_out_of_range_are_refused(name: str, epsilon: float, delta: float) -> None:
    with pytest.raises(ConfigError):
        make(name, HISTOGRAMS, epsilon, delta)


def test_release_beyond_64_bits_stays_exact() -> None:
    wide = Sensitivity((SensitivityBlock("count", 1), SensitivityBlock("square", 1, 2**92)))
    value = np.array([10**9, 10**9 * 2**92], dtype=object)
    out = make("discrete_laplace", wide, 1).release(value, coins("wide"))
    assert out.dtype == object
    assert abs(out[1] - value[1]) < 2**92 * 100


def test_large_counts_do_not_wrap() -> None:
    single = Sensitivity((SensitivityBlock("count", 2),))
    out = make("discrete_laplace", single, Fraction(1, 10**6)).release(np.array([2**63 - 1, 0]), coins("wrap"))
    assert abs(int(out[0]) - (2**63 - 1)) < 10**8
