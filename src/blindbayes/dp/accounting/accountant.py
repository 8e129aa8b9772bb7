"""Composition: the privacy loss of several releases together; filters and odometer.

An account names its adjacency and one way of composing, fixed when it is opened:

* `basic`: epsilons and deltas add up. Exact, in rational numbers.
* `zcdp`: zero-concentrated budgets add up and are converted to (epsilon, delta) at the end. A pure epsilon counts as
  epsilon^2 / 2; a release of (epsilon, delta) without a rho counts the same, beside its delta (approximate zCDP).
* `pld`: privacy loss distributions, by Google's dp-accounting (install `blindbayes[accounting]`). Tighter, and valid only for
  releases whose prices were all fixed before the first was made: for a batch (`Account.spend`), not for a ledger.

`FILTERS` bound releases whose prices are chosen one after the other, looking at earlier results.  [filters]
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
from blindbayes.dp.noise.exact_events import Number, as_decimal, cost_ceiling
from blindbayes.dp.noise.gaussian import zcdp_delta
from blindbayes.dp.noise.mechanisms import Priced, PrivacyCost
from blindbayes.errors import ConfigError

Composition = Literal["basic", "zcdp", "pld"]
_INTERVAL = 1e-4  # discretisation of the loss in dp-accounting; its estimates are pessimistic
FILTERS: tuple[Composition, ...] = ("basic", "zcdp")
"""Compositions that hold for prices chosen one after the other."""
_LEVELS = (1e-4, 1.5)  # smallest rho of the odometer, and the ratio of the next to it


@dataclass(frozen=True, slots=True)
class Spend:
    """The booked privacy loss of one release. `partition` and `part` name the disjoint part that it read, if any."""

    epsilon: Fraction
    delta: Fraction = Fraction(0)
    rho: float | None = None
    mu: float | None = None  # bounded by the loss of continuous Gaussian noise of deviation 1 / mu  [gaussian-length]
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
        return cls.from_cost(mechanism.price, partition, part)

    @classmethod
    def from_cost(cls, cost: PrivacyCost, partition: str | None = None, part: str | None = None) -> Spend:
        """Return a planned privacy loss as it is booked."""
        return cls(as_decimal(cost.epsilon), as_decimal(cost.delta), cost.rho, cost.mu, partition, part)

    def group(self, units: int) -> Spend:
        """Return the privacy loss for this number of units together.  [group]"""
        cost = PrivacyCost(cost_ceiling(self.epsilon), cost_ceiling(self.delta), "", rho=self.rho, mu=self.mu)
        return self.from_cost(cost.group(units), self.partition, self.part)


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
            epsilon, delta = Fraction(math.sqrt(2 * _concentrated(whole)[0])), _concentrated(whole)[1]
        else:
            epsilon, delta = Account(self.adjacency, "basic", whole).basic()
        if self.composition == "pld" or delta >= 1:
            return Account(self.adjacency, self.composition, list(self.spends))
        return Account(self.adjacency, self.composition, [*([Spend(epsilon, delta)] if epsilon else []), *rest])

    def spend(self, delta: float) -> Spend:
        """Return one charge for all releases together, a batch whose prices are all fixed before the first is made."""
        rho, own = self.rho()
        return Spend(as_decimal(self.epsilon(delta)), as_decimal(delta), None if own else rho)

    def basic(self) -> tuple[Fraction, Fraction]:
        """Return the sums of epsilons and deltas, with the dearest part of each partition; valid for every composition."""
        epsilon = delta = Fraction(0)
        for parts in _partitions(self.spends):
            sums = [(sum((s.epsilon for s in part), Fraction(0)), sum((s.delta for s in part), Fraction(0))) for part in parts]
            epsilon += max(e for e, _ in sums)
            delta += max(d for _, d in sums)
        return epsilon, delta

    def rho(self) -> tuple[float, Fraction]:
        """Return the total zCDP, and the delta of releases that are zero-concentrated only but for a chance of it."""
        rho, delta = 0.0, Fraction(0)
        for parts in _partitions(self.spends):
            totals = [_concentrated(part) for part in parts]
            rho += max(total[0] for total in totals)
            delta += max(total[1] for total in totals)
        return rho, delta

    def delta(self, epsilon: Number) -> float:
        """Return the delta at which all releases together are (epsilon, delta)-private; 1 if this composition gives none."""
        exact = as_decimal(epsilon)
        if not self.spends:
            return 0.0
        if self.composition == "basic":
            total, delta = self.basic()
            return float(delta) if total <= exact else 1.0
        if self.composition == "zcdp":
            rho, own = self.rho()
            return min(1.0, float(own) + zcdp_delta(rho, float(exact)))
        return float(self._distribution().get_delta_for_epsilon(float(exact)))

    def epsilon(self, delta: float) -> float:
        """Return the epsilon at which all releases are (epsilon, delta)-private; infinity if this composition gives none."""
        if not self.spends:
            return 0.0
        if self.composition == "basic":
            total, used = self.basic()
            return float(total) if used <= as_decimal(delta) else math.inf
        if self.composition == "zcdp":
            rho, own = self.rho()
            left = delta - float(own)
            return zcdp_epsilon(rho, left) if left > 0 else math.inf
        return float(self._distribution().get_epsilon_for_delta(delta))

    def fits(self, epsilon: Number, delta: Number) -> bool:
        """Return True if all releases together stay within a budget, however each was chosen after the others.  [filters]

        Under zCDP one half of delta is for the conversion, the other for releases that have a delta beside their rho.
        """
        budget, failure = as_decimal(epsilon), as_decimal(delta)
        if self.composition == "basic":
            total, used = self.basic()
            return total <= budget and used <= failure
        if self.composition == "zcdp":
            rho, own = self.rho()
            return own <= failure / 2 and (not rho or zcdp_delta(rho, float(budget)) <= float(failure / 2))
        return self.delta(budget) <= float(failure)

    def odometer(self, delta: float) -> float:
        """Return an epsilon spent so far that holds whatever decided what was released, and when to look.  [odometer]"""
        if self.composition == "pld":
            raise ConfigError("a batch of fixed prices has no odometer; take basic or zcdp")
        if not self.spends or self.composition == "basic":
            return self.epsilon(delta)
        rho, own = self.rho()
        if own > as_decimal(delta) / 2:
            return math.inf
        smallest, ratio = _LEVELS
        level = max(0, math.ceil(math.log(rho / smallest) / math.log(ratio)))
        while smallest * ratio**level < rho:  # the logarithm was rounded
            level += 1
        chance = delta / 2 * 6 / (math.pi * (level + 1)) ** 2  # these add up to delta / 2 over all levels
        return zcdp_epsilon(smallest * ratio**level, chance)

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
    if spend.mu is not None:
        return pld.from_gaussian_mechanism(1 / spend.mu, value_discretization_interval=_INTERVAL)
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    price = DifferentialPrivacyParameters(float(spend.epsilon), float(spend.delta))
    return pld.from_privacy_parameters(price, value_discretization_interval=_INTERVAL)


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


def _concentrated(spends: Sequence[Spend]) -> tuple[float, Fraction]:
    rho, delta = 0.0, Fraction(0)
    for spend in spends:
        rho += pure_rho(float(spend.epsilon)) if spend.rho is None else spend.rho
        delta += spend.delta if spend.rho is None else 0
    return rho * (1 + 1e-12), delta
