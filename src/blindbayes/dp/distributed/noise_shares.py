"""Noise that several parties add together, so that their sum is private and nobody's share need be.

    noise = DistributedNoise.plan(touched=7, bounds=[1] * 64, epsilon=1.0, delta=1e-6, honest=5)
    vector += noise.share(coins)            # each party, once per release; int64, one entry per cell
    noise.law, noise.price, noise.deviation(), noise.statement()

`touched` is how many cells one record can change, and `bounds` by how much each cell can change, 1 for a count. `honest` is
the smallest number of honest parties whose shares reach the sum: `honest_survivors` computes it from the study's parties,
quorum and honest fraction. The guarantee is for adding or removing one unit (`PrivacyUnit`): a record; a person, of whom a
limited number of rows is counted; or all rows of one party, of which the maximum is declared or was computed privately.

Two mechanisms, both exact on integers:

polya    shares are differences of NegativeBinomial(1/honest, e^-rate); `honest` of them add up to exactly one two-sided
         geometric (discrete Laplace) variable. Pure epsilon.
skellam  shares are differences of Poisson variables; the sum is Skellam. (epsilon, delta), calibrated on the exact law.
With a delta the one with the smaller variance is taken: about polya up to 8 touched cells and skellam from 10 on, at 1e-6.
More than `honest` honest shares only add independent noise, which cannot hurt privacy. Fewer do.

Why. A row moves at most `touched` cells, cell j by at most bounds[j]; or, of a text's words (`touched` counts them as one),
several cells of one bound by at most that bound together. A unit has `reach` rows. polya: the rate in cell j is
epsilon / (touched reach bounds[j]), so the log-ratio of the sum's law at two neighbours is at most sum |move_j| rate_j <=
epsilon. skellam: `losses`. In both, the shares of the dishonest are treated as known.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.dp.noise import pld as losses
from blindbayes.dp.noise import samplers
from blindbayes.dp.noise.exact_events import budget_floor, cost_ceiling
from blindbayes.dp.noise.mechanisms import PrivacyCost
from blindbayes.errors import ConfigError, PrivacyError

Mechanism = Literal["polya", "skellam"]
Unit = Literal["record", "person", "party"]
_MAX_SCALE = 1 << 44
_GRAIN = 1 << 24  # rational parameters that come from floating point are rounded, to the safe side, to this grain


def dishonest(parties: int, honest_fraction: float) -> int:
    """Return the maximum number of dishonest parties."""
    if not 0 < honest_fraction <= 1:
        raise ConfigError("honest_fraction must be above 0 and at most 1")
    return parties - math.ceil(Fraction(honest_fraction).limit_denominator(10**6) * parties)


def honest_survivors(parties: int, quorum: int, honest_fraction: float) -> int:
    """Return the minimum number of honest parties among `quorum` survivors.

    All parties that drop out may be honest, so it is the quorum less every dishonest party. Raises `ConfigError` if that
    leaves nobody.
    """
    left = quorum - dishonest(parties, honest_fraction)
    if left < 1:
        raise ConfigError("the quorum could consist of dishonest parties only: raise the quorum or honest_fraction")
    return left


@dataclass(frozen=True, slots=True)
class PrivacyUnit:
    """The unit that the noise protects: a record, or a person or a party with at most `rows` rows."""

    kind: Unit = "record"
    rows: int = 1

    @classmethod
    def declared(cls, kind: str, party_rows: int | None, rows_per_person: int | None) -> PrivacyUnit:
        """Return the unit that a study declares; `kind` is record or party."""
        if (kind == "party") != (party_rows is not None) or (party_rows is not None and party_rows < 1):
            raise ConfigError("the unit 'party', and it alone, needs party_rows, the largest number of rows of a party")
        if rows_per_person is not None and (kind != "record" or rows_per_person < 1):
            raise ConfigError("rows_per_person is at least 1, and the unit of the noise is then a person with that many rows")
        if party_rows is not None:
            return cls("party", party_rows)
        return cls("person", rows_per_person) if rows_per_person is not None and rows_per_person > 1 else cls()

    def __str__(self) -> str:
        return "one record" if self.kind == "record" else f"one {self.kind} with at most {self.rows} records"


@dataclass(frozen=True, slots=True)
class DistributedNoise:
    """One plan, public and the same for all parties. Make it with `plan`."""

    mechanism: str
    epsilon: Fraction
    delta: float
    honest: int
    touched: int
    reach: int  # rows of one unit
    bounds: tuple[int, ...] = field(repr=False)
    unit: Unit
    variance: Fraction  # skellam: of the sum of `honest` shares, in a cell of bound 1

    @classmethod
    def plan(
        cls,
        *,
        touched: int,
        epsilon: float | Fraction,
        honest: int,
        bounds: Sequence[int],
        delta: float = 0.0,
        unit: PrivacyUnit = PrivacyUnit(),  # noqa: B008 - frozen
    ) -> DistributedNoise:
        """Plan the noise, by the mechanism with the smaller variance. See the module for the arguments."""
        limits = tuple(bounds)
        if not limits or min(limits) < 1 or not 1 <= touched <= len(limits):
            raise ConfigError("there is at least one cell, every bound is at least 1, and touched lies within the cells")
        if not (epsilon > 0 and math.isfinite(epsilon)) or not 0 <= delta < 1:
            raise PrivacyError("epsilon is positive and finite, and delta lies in [0, 1)")
        if honest < 1:
            raise PrivacyError("at least one honest party must add its noise")
        exact, reach = budget_floor(epsilon), unit.rows
        if max(limits) * touched * reach / exact > _MAX_SCALE:
            raise PrivacyError("the noise would be wider than 2^44: use bins, a coarser precision or a larger epsilon")

        polya = cls("polya", exact, 0.0, honest, touched, reach, limits, unit.kind, Fraction(0))
        if not delta or max(limits) > 1:
            return polya
        variance = Fraction(math.ceil(losses.skellam_variance(touched, reach, float(exact), delta) * _GRAIN), _GRAIN)
        skellam = dataclasses.replace(polya, mechanism="skellam", delta=delta, variance=variance)
        return skellam if skellam.deviation() < polya.deviation() else polya

    # -- drawing -----------------------------------------------------------------------------------------------------

    def at(self, honest: int) -> DistributedNoise:
        """Return the same plan for another number of honest survivors, for a party with its own view of the roster.

        If every honest party k uses some h_k, the sum is private as long as the honest 1/h_k add up to at least 1.
        """
        if honest < 1:
            raise PrivacyError("at least one honest party must add its noise")
        return dataclasses.replace(self, honest=honest)

    def repeated(self, releases: int) -> DistributedNoise:
        """Return the noise of several concatenated tables; each unit is in one of them.  [folds]"""
        return dataclasses.replace(self, bounds=self.bounds * releases)

    def share(self, coins: Coins) -> npt.NDArray[np.int64]:
        """Draw one party's noise, for every cell. Add it once, to one release."""
        count = len(self.bounds)
        if self.mechanism == "skellam":
            return samplers.skellam(coins, self.variance / self.honest, count)
        out = np.zeros(count, np.int64)
        limits = np.asarray(self.bounds, dtype=object)
        for bound in sorted(set(limits.tolist())):
            at = np.flatnonzero(limits == bound)
            out[at] = samplers.polya_share(coins, 1 / self.rate(bound), self.honest, len(at))
        return out

    def rate(self, bound: int = 1) -> Fraction:
        """Return the decay of the two-sided geometric law of a cell: P(k) ~ e^-(rate |k|)."""
        return self.epsilon / (self.touched * self.reach * bound)

    # -- what it means -------------------------------------------------------------------------------------------------

    @property
    def price(self) -> PrivacyCost:
        """Privacy loss of one release."""
        return PrivacyCost(cost_ceiling(self.epsilon), self.delta, self.protects)

    def deviation(self, parties: int | None = None, bound: int = 1) -> float:
        """Return the noise deviation of a cell's sum, when `parties` (default: the honest minimum) add theirs."""
        count = parties or self.honest
        if self.mechanism == "skellam":
            return math.sqrt(float(self.variance) * count / self.honest)
        rate = float(self.rate(bound))
        one = 2 * math.exp(-rate) / math.expm1(-rate) ** 2
        return math.sqrt(one * count / self.honest)

    def table(self, parties: int) -> losses.Floats:
        """Return P(k), k = -K..K, of the sum of `parties` shares in a cell of bound 1."""
        if self.mechanism == "skellam":
            return losses.skellam_table(float(self.variance) * parties / self.honest)
        return losses.binomial_table(parties / self.honest, float(self.rate()))

    def tail(self, probability: float, parties: int, bound: int = 1) -> int:
        """Return B such that the noise in a cell's sum exceeds +-B with at most this probability."""
        if self.mechanism == "skellam":
            return math.ceil(losses.tail_skellam(float(self.variance) * parties / self.honest, probability))
        rate = float(self.rate(bound))
        log = math.log(2 / probability)
        # E e^(rate X / 2) = (1 + e^(-rate/2))^shape for a NegativeBinomial X
        return math.ceil(2 / rate * (parties / self.honest * math.log1p(math.exp(-rate / 2)) + log))

    @property
    def law(self) -> str:
        """The law of the sum of the shares of `honest` parties, cell by cell, in one line."""
        if self.mechanism == "skellam":
            return f"Skellam with variance {float(self.variance):.6g}"
        return f"two-sided geometric, P(k) ~ exp(-|k| {float(self.rate()):.6g} / bound)"

    @property
    def protects(self) -> str:
        """The unit as ledgers name it."""
        return str(PrivacyUnit(self.unit, self.reach))

    def statement(self) -> str:
        """Return the guarantee of the noise, for the privacy statement."""
        who = self.protects.replace("one ", "any one ", 1)
        strength = f"epsilon = {float(self.epsilon):g}" + (f", delta = {self.delta:g}" if self.delta else "")
        return (
            f"The sum is differentially private for {who} ({strength}, add or remove), as long as at least "
            f"{self.honest} honest parties' shares are in it. Mechanism: {self.mechanism}. "
            f"Law of their sum in each cell: {self.law}. One row moves at most {self.touched} "
            "cells, or the words of a text in place of a cell, each by at most its bound. "
            "Shares of a single party do not protect it on their own."
        )
