"""Accounting: exact sums, conversions against oracles, parallel composition, and accounts that name their adjacency."""

from __future__ import annotations

import math
import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from blindbayes.dp.accounting.accountant import Account, Spend, pure_rho, zcdp_epsilon
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.dp.accounting.sensitivity import ADJACENCY, Sensitivity, SensitivityBlock
from blindbayes.dp.noise.gaussian import delta_of, length_delta, zcdp_delta
from blindbayes.dp.noise.mechanisms import DiscreteGaussian, make
from blindbayes.errors import ConfigError

ONE = Sensitivity((SensitivityBlock("h", 4),))
FOUR = Sensitivity(tuple(SensitivityBlock(f"h{i}", 4) for i in range(4)))


@pytest.fixture
def pld() -> None:
    try:
        import dp_accounting  # noqa: F401
    except ImportError:
        assert os.environ.get("CI") != "true", "dp-accounting is an oracle of the tests"
        pytest.skip("dp-accounting is not installed")


def test_basic_sums_are_exact() -> None:
    account = Account(ADJACENCY).add(*[Spend.for_release(make("discrete_laplace", ONE, 0.1)) for _ in range(10)])
    assert account.basic() == (1, 0)
    assert account.fits(1, 0)
    assert not account.fits("0.9999999999", 0)
    assert account.epsilon(0) == 1.0
    assert account.delta(0.5) == 1.0


def test_an_account_names_its_adjacency() -> None:
    with pytest.raises(TypeError):
        Account()  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="substitution"):
        Account("replace one")
    with pytest.raises(ConfigError):
        Account(ADJACENCY, "rdp")  # type: ignore[arg-type]


def test_parallel_parts_cost_the_dearest_part() -> None:
    account = Account(ADJACENCY)
    account.add(*[Spend(Fraction(e), partition="region", part=part) for e, part in ((1, "a"), (2, "b"), (1, "a"), (1, "b"))])
    assert account.basic()[0] == 3
    account.add(Spend(Fraction(1, 2)), Spend(Fraction(1), partition="year", part="2024"))
    assert account.basic()[0] == Fraction(9, 2)
    with pytest.raises(ConfigError):
        Spend(Fraction(1), partition="region")


def test_zcdp_conversions() -> None:
    assert pure_rho(2.0) == 2.0
    for rho, delta in ((0.01, 1e-6), (0.5, 1e-6), (2.0, 1e-9)):
        epsilon = zcdp_epsilon(rho, delta)
        assert epsilon < rho + 2 * math.sqrt(rho * math.log(1 / delta))  # better than Bun and Steinke's simple bound
        sigma = 1 / math.sqrt(2 * rho)  # and no better than the truth for Gaussian noise
        from scipy.stats import norm

        exact = norm.cdf(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma)
        assert exact <= delta


def test_compositions_are_ordered_and_agree_with_dp_accounting(pld: None) -> None:
    """k Gaussian releases: sums >= zCDP >= privacy loss distributions >= the truth (one Gaussian with k times the rho)."""
    from scipy.stats import norm

    one, k, delta = Spend.for_release(make("discrete_gaussian", FOUR, 0.2, 1e-7)), 12, 1e-5
    sums, zcdp, losses = (Account(ADJACENCY, c).add(*[one] * k).epsilon(delta) for c in ("basic", "zcdp", "pld"))  # type: ignore[arg-type]
    assert sums > zcdp > losses
    assert one.rho is not None
    assert one.mu is not None
    assert one.mu == pytest.approx(math.sqrt(2 * one.rho), rel=0.05)  # the variance is larger by 4 than continuous noise needs
    sigma = 1 / (one.mu * math.sqrt(k))

    def gap(epsilon: float) -> float:
        return norm.cdf(0.5 / sigma - epsilon * sigma) - math.exp(epsilon) * norm.cdf(-0.5 / sigma - epsilon * sigma) - delta

    assert gap(losses) <= 0
    assert gap(losses * 0.98) > 0


def test_pure_releases_under_pld_match_the_optimal_composition(pld: None) -> None:
    """k pure releases of epsilon: the optimal bound of Kairouz, Oh and Viswanath, computed from its formula."""
    k, epsilon, target = 20, 0.1, 1.0
    account = Account(ADJACENCY, "pld").add(*[Spend(Fraction(1, 10))] * k)
    grown = math.exp(epsilon)
    exact = sum(
        math.comb(k, i) * max(0.0, grown ** (k - i) - math.exp(target) * grown**i) / (1 + grown) ** k for i in range(k + 1)
    )
    assert exact * (1 - 1e-9) <= account.delta(target) <= exact * 1.02


def test_a_gaussian_release_costs_under_pld_what_it_was_calibrated_to(pld: None) -> None:
    uneven = Sensitivity((SensitivityBlock("n", 2), SensitivityBlock("sum", 2, 1000)))
    mechanism = make("discrete_gaussian", uneven, 1, 1e-6)
    account = Account(ADJACENCY, "pld").add(Spend.for_release(mechanism))
    assert 0.99e-6 < account.delta(1) < 1.01e-6  # the variance is rounded up by 1/4096


def test_pld_refuses_parts(pld: None) -> None:
    account = Account(ADJACENCY, "pld").add(Spend(Fraction(1), partition="region", part="a"))
    with pytest.raises(ConfigError, match="basic"):
        account.epsilon(1e-6)


def test_mixed_releases_under_zcdp_keep_their_delta_beside_the_sum_of_rhos() -> None:
    account = Account(ADJACENCY, "zcdp").add(Spend(Fraction(1, 10)), Spend(Fraction(1, 2), Fraction(1, 10**6)))
    assert account.epsilon(1e-5) == pytest.approx(zcdp_epsilon(0.005 + 0.125, 9e-6), rel=1e-6)
    assert account.epsilon(1e-6) == math.inf
    assert account.delta(0.4) == pytest.approx(1e-6 + zcdp_delta(0.13, 0.4), rel=1e-6)
    assert not Account(ADJACENCY, "zcdp").add(Spend(Fraction(1, 2), Fraction(1, 10**6))).fits(9, "1.9e-6")  # half is for deltas


def _worst_delta(budget: float, rho: float, more: float) -> float:
    """Return delta at `budget` of an adversary that sees a Gaussian release of `rho` and then takes what hurts most: nothing, a
    second Gaussian release, or randomised response, each of rho `more`. Exact but for the integral over the first release."""
    first, second, pure = math.sqrt(2 * rho), math.sqrt(2 * more), math.sqrt(2 * more)
    x = np.linspace(-12, 12 + first, 8001)
    left = budget - (first * x - first**2 / 2)  # budget less the loss seen, ln of N(first, 1) over N(0, 1)
    gaussian = norm.sf(left / second - second / 2) - np.exp(left) * norm.sf(left / second + second / 2)
    truth = 1 / (1 + math.exp(-pure))
    response = np.maximum(0, truth - np.exp(left) * (1 - truth)) + np.maximum(0, 1 - truth - np.exp(left) * truth)
    return float(np.trapezoid(norm.pdf(x - first) * np.maximum(gaussian, response), x))


def test_the_filter_holds_for_releases_chosen_after_looking_and_a_planted_one_does_not() -> None:
    """Within the filter's rho delta stays below the budget's; planted: a filter that counts the first release alone."""
    epsilon, delta = 1.0, 1e-3
    account = Account(ADJACENCY, "zcdp")
    rho = 1e-3
    while account.with_(Spend(Fraction(1), rho=rho * 1.05)).fits(epsilon, delta):
        rho *= 1.05
    for part in (0.1, 0.5, 0.9):
        assert 0 < _worst_delta(epsilon, part * rho, (1 - part) * rho) <= delta
    assert _worst_delta(epsilon, rho, 2 * rho) > delta


def test_an_odometer_reads_above_the_total_and_holds_at_every_delta() -> None:
    account = Account(ADJACENCY, "zcdp").add(*[Spend(Fraction(1, 10))] * 20)
    for delta in (1e-5, 1e-8, 1e-12):
        assert account.epsilon(delta) < account.odometer(delta) < 2.5 * account.epsilon(delta)
    assert Account(ADJACENCY).add(Spend(Fraction(1, 10))).odometer(0) == 0.1
    chances = [6 / (math.pi * (level + 1)) ** 2 for level in range(100_000)]
    assert sum(chances) < 1  # what the levels may fail with adds up to no more than delta
    with pytest.raises(ConfigError, match="odometer"):
        Account(ADJACENCY, "pld").odometer(1e-6)


def test_a_batch_of_fixed_prices_is_one_charge_and_cheaper_by_pld(pld: None, tmp_path: Path) -> None:
    batch = [Spend(Fraction(1, 10))] * 20
    charge = Account(ADJACENCY, "pld").add(*batch).spend(1e-6)
    assert charge.epsilon < Account(ADJACENCY, "zcdp").add(*batch).epsilon(1e-6)
    assert charge.rho == pytest.approx(20 * pure_rho(0.1))
    ledger = Ledger.create(tmp_path / "l", epsilon=2, delta="1e-6")
    ledger.charge(charge, purpose="twenty releases", unit="one record")
    assert ledger.balance().spent_epsilon == float(charge.epsilon)


@pytest.mark.parametrize("units", [1, 2, 3, 7])
def test_group_privacy_against_exact_laws(units: int) -> None:
    """Discrete Laplace moved by k costs k epsilon exactly; Gaussian noise k mu; delta grows as k steps of (epsilon, delta)."""
    laplace = make("discrete_laplace", ONE, "0.3")
    assert laplace.map(units).epsilon == pytest.approx(0.3 * units)
    rate = float(1 / laplace.scales[0])  # type: ignore[attr-defined]
    assert units * rate == pytest.approx(laplace.map(units).epsilon)
    noise = make("discrete_gaussian", ONE, "0.5", 1e-6)
    assert isinstance(noise, DiscreteGaussian)
    cost = noise.map(units)
    truth = delta_of(noise.variance, Fraction(units, 2), 1, units)
    assert truth <= cost.delta
    assert cost.mu is not None
    assert truth <= length_delta(cost.mu, units / 2) <= 2 * truth
    assert cost.rho == pytest.approx(units**2 / (2 * float(noise.variance)))
    with pytest.raises(ConfigError):
        laplace.map(0)
