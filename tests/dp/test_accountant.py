"""Accounting: exact sums, conversions against oracles, parallel composition, and accounts that name their adjacency."""

from __future__ import annotations

import math
import os
from fractions import Fraction

import pytest

from blindbayes.dp.accounting.accountant import Account, Spend, pure_rho, zcdp_epsilon
from blindbayes.dp.accounting.sensitivity import ADJACENCY, Sensitivity, SensitivityBlock
from blindbayes.dp.noise.mechanisms import make
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
    sigma = 1 / math.sqrt(2 * one.rho * k)

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


def test_wide_gaussian_uses_a_safe_margin(pld: None) -> None:
    uneven = Sensitivity((SensitivityBlock("n", 2), SensitivityBlock("sum", 2, 1000)))
    mechanism = make("discrete_gaussian", uneven, 1, 1e-6)
    account = Account(ADJACENCY, "pld").add(Spend.for_release(mechanism))
    assert 1e-6 < account.delta(1) < 1.1e-6


def test_pld_refuses_parts(pld: None) -> None:
    account = Account(ADJACENCY, "pld").add(Spend(Fraction(1), partition="region", part="a"))
    with pytest.raises(ConfigError, match="basic"):
        account.epsilon(1e-6)


def test_mixed_releases_under_zcdp_add_what_is_not_concentrated() -> None:
    account = Account(ADJACENCY, "zcdp").add(Spend(Fraction(1, 10)), Spend(Fraction(1, 2), Fraction(1, 10**6)))
    assert account.epsilon(1e-5) == pytest.approx(0.5 + zcdp_epsilon(0.005, 9e-6), rel=1e-6)
    assert account.epsilon(1e-6) == math.inf
    assert account.delta(0.4) == 1.0
