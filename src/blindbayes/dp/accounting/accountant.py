"""The privacy loss of several releases together.

An account names its adjacency and one way of composing, fixed when it is opened:

* `basic`: epsilons and deltas add up. Exact, in rational numbers.
* `zcdp`: zero-concentrated budgets add up (a pure epsilon counts as epsilon^2 / 2) and are converted to (epsilon, delta) at
  the end. Releases that are neither pure nor Gaussian keep their (epsilon, delta), which is added on top.
* `pld`: privacy loss distributions, by Google's dp-accounting (install `blindbayes[accounting]`). Valid for parameters that
  were chosen before the first release.

Releases on disjoint parts of the records compose in *parallel*: the dearest part counts, not the sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, get_args

from blindbayes._lazy import need
from blindbayes.dp.accounting.sensitivity import ADJACENCY
from blindbayes.dp.noise.exact_events import Number, as_decimal
from blindbayes.dp.noise.gaussian import zcdp_delta
from blindbayes.dp.noise.mechanisms import DiscreteGaussian, Priced
from blindbayes.errors import ConfigError

Composition = Literal["basic", "zcdp", "pld"]
_INTERVAL = 1e-4  # discretisation of the loss in dp-accounting; its estimates are pessimistic
_WIDE = 1 << 12
_MARGIN = 1 - 2.0**-10


@dataclass(frozen=True, slots=True)
class Spend:
    """The booked privacy loss of one release. `partition` and `part` name the disjoint part that it read, if any."""

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    rho: float | None = None
    gaussian: tuple[float, int, int] | None = None  # variance in a cell, shift of a cell, cells that one unit moves
    partition: str | None = None
    part: str | None = None

    def __post_init__(self) -> None:
        if self.epsilon <= 0 or not 0 <= self.delta < 1:
            raise ConfigError("a release costs an epsilon above zero and a delta from 0 to below 1")
        if (self.partition is None) != (self.part is None):
            raise ConfigError("a part of the records needs the name of its partition, and a partition a part")

    @classmethod
    def for_release(cls, mechanism: Priced, *, partition: str | None = None, part: str | None = None) -> Spend:
        """Return the privacy loss of one release by this mechanism."""
        gaussian = None
        if isinstance(mechanism, DiscreteGaussian) and mechanism.sensitivity.rows_per_unit == 1:
            gaussian = (float(mechanism.variance), mechanism.reach, len(mechanism.sensitivity.blocks))
        price = mechanism.price
        return cls(as_decimal(price.epsilon), as_decimal(price.delta), price.rho, gaussian, partition, part)


def pure_rho(epsilon: float) -> float:
    """Return the zCDP of a pure epsilon-DP release, epsilon^2 / 2 (Bun and Steinke 2016)."""
    return epsilon * epsilon / 2


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the smallest epsilon, by bisection, at which a rho-zCDP release is (epsilon, delta)-private."""
    if rho == 0:
        return 0.0
    low, high = 0.0, rho + 2 * math.sqrt(rho * math.log(1 / delta))  # Bun and Steinke's simple bound
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if zcdp_delta(rho, middle) <= delta else (middle, high)
    return high


@dataclass
class Account:
    """Releases under one adjacency and one way of composing."""

    adjacency: str
    composition: Composition = "basic"
    spends: list[Spend] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.adjacency != ADJACENCY:
            raise ConfigError(f"the only adjacency counted here is {ADJACENCY!r}; substitution costs up to twice as much")
        if self.composition not in get_args(Composition):
            raise ConfigError(f"composition is one of {', '.join(get_args(Composition))}")
        if self.composition == "pld":
            need("dp_accounting.pld.privacy_loss_distribution")

    def add(self, *spends: Spend) -> Account:
        self.spends.extend(spends)
        return self

    def with_(self, spend: Spend) -> Account:
        """Return a copy with one more release."""
        return Account(self.adjacency, self.composition, [*self.spends, spend])

    def condensed(self) -> Account:
        """Return an account of the same cost in which releases on all records are added up, where the composition can."""
        whole = [spend for spend in self.spends if spend.partition is None]
        rest = [spend for spend in self.spends if spend.partition is not None]
        if self.composition == "zcdp":
            rho, epsilon, delta = _concentrated(whole)
        else:
            rho, (epsilon, delta) = 0.0, Account(self.adjacency, "basic", whole).basic()
        if self.composition == "pld" or delta >= 1:
            return Account(self.adjacency, self.composition, list(self.spends))
        summed = [*([Spend(Fraction(1), rho=rho)] if rho else []), *([Spend(epsilon, delta)] if epsilon else [])]
        return Account(self.adjacency, self.composition, [*summed, *rest])

    def basic(self) -> tuple[Fraction, Fraction]:
        """Return the sums of epsilons and deltas, with the dearest part of each partition; valid for every composition."""
        epsilon = delta = Fraction(0)
        for parts in _partitions(self.spends):
            sums = [(sum((s.epsilon for s in part), Fraction(0)), sum((s.delta for s in part), Fraction(0))) for part in parts]
            epsilon += max(e for e, _ in sums)
            delta += max(d for _, d in sums)
        return epsilon, delta

    def rho(self) -> tuple[float, Fraction, Fraction]:
        """Return the total zCDP of pure and Gaussian releases, and the epsilon and delta of the others."""
        rho, epsilon, delta = 0.0, Fraction(0), Fraction(0)
        for parts in _partitions(self.spends):
            totals = [_concentrated(part) for part in parts]
            rho += max(total[0] for total in totals)
            epsilon += max(total[1] for total in totals)
            delta += max(total[2] for total in totals)
        return rho, epsilon, delta

    def delta(self, epsilon: Number) -> float:
        """Return the delta at which all releases together are (epsilon, delta)-private; 1 if this composition gives none."""
        exact = as_decimal(epsilon)
        if not self.spends:
            return 0.0
        if self.composition == "basic":
            total, delta = self.basic()
            return float(delta) if total <= exact else 1.0
        if self.composition == "zcdp":
            rho, rest, delta = self.rho()
            if exact < rest:
                return 1.0
            return min(1.0, float(delta) + (zcdp_delta(rho, float(exact - rest)) if rho else 0.0))
        return float(self._distribution().get_delta_for_epsilon(float(exact)))

    def epsilon(self, delta: float) -> float:
        """Return the epsilon at which all releases are (epsilon, delta)-private; infinity if this composition gives none."""
        if not self.spends:
            return 0.0
        if self.composition == "basic":
            total, used = self.basic()
            return float(total) if used <= as_decimal(delta) else math.inf
        if self.composition == "zcdp":
            rho, rest, used = self.rho()
            left = delta - float(used)
            return float(rest) + zcdp_epsilon(rho, left) if left > 0 else math.inf
        return float(self._distribution().get_epsilon_for_delta(delta))

    def fits(self, epsilon: Number, delta: Number) -> bool:
        """Return True if all releases together stay within a budget."""
        if self.composition == "basic":
            total, used = self.basic()
            return total <= as_decimal(epsilon) and used <= as_decimal(delta)
        return self.delta(epsilon) <= float(as_decimal(delta))

    def _distribution(self) -> Any:
        pld = need("dp_accounting.pld.privacy_loss_distribution")
        if any(spend.partition is not None for spend in self.spends):
            raise ConfigError("parts of the records are composed by `basic` or `zcdp`, not by `pld`")
        composed = None
        for spend in self.spends:
            one = _loss(pld, spend)
            composed = one if composed is None else composed.compose(one)
        return composed


def _loss(pld: Any, spend: Spend) -> Any:
    if spend.gaussian is None:
        from dp_accounting.pld.common import DifferentialPrivacyParameters

        price = DifferentialPrivacyParameters(float(spend.epsilon), float(spend.delta))
        return pld.from_privacy_parameters(price, value_discretization_interval=_INTERVAL)
    variance, shift, cells = spend.gaussian
    deviation = math.sqrt(variance)
    if deviation <= _WIDE:
        one = pld.from_discrete_gaussian_mechanism(deviation, sensitivity=shift, value_discretization_interval=_INTERVAL)
        return one.self_compose(cells) if cells > 1 else one
    # On a fine grid the discrete law is the continuous one to a relative 1/deviation; a thousandth less noise covers that.
    sigma = deviation * _MARGIN / (shift * math.sqrt(cells))
    return pld.from_gaussian_mechanism(sigma, value_discretization_interval=_INTERVAL)


def _partitions(spends: Iterable[Spend]) -> list[list[list[Spend]]]:
    """Group spends by partition and part; a release on all records is a partition of its own, with one part."""
    whole: list[list[list[Spend]]] = []
    parts: dict[str, dict[str, list[Spend]]] = {}
    for spend in spends:
        if spend.partition is None or spend.part is None:
            whole.append([[spend]])
        else:
            parts.setdefault(spend.partition, {}).setdefault(spend.part, []).append(spend)
    return whole + [list(groups.values()) for groups in parts.values()]


def _concentrated(spends: Sequence[Spend]) -> tuple[float, Fraction, Fraction]:
    rho, epsilon, delta = 0.0, Fraction(0), Fraction(0)
    for spend in spends:
        if spend.rho is not None:
            rho += spend.rho
        elif spend.delta == 0:
            rho += pure_rho(float(spend.epsilon))
        else:
            epsilon, delta = epsilon + spend.epsilon, delta + spend.delta
    return rho * (1 + 1e-12), epsilon, delta
