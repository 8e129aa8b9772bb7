"""One joint release that several parties make together: their counts, their noise and the model of the sum.

    plan = NoisySum.make(codebook, epsilon=1.0, honest=2, parties=3, rows=6000)      # public facts only
    vector = plan.vector(count(source, plan.codebook)) + plan.noise.share(coins)      # each party
    parameters, statistics, record = plan.fit(total, shares=3, alpha=1.0)             # the party that learns the sum

The tables that are released, and the postprocessing, are those of a central release (`release`). The noise is that of
`noise_shares`, of which many parties bring a part each, or that of `whole_noise`, which each brings whole: what has less
noise in the sum. Cells are planned for the noise of all parties; postprocessing knows how many are in the sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook
from blindbayes.dp.accounting.statement import NOT_PROTECTED, POST_PROCESSING, PrivacyStatement, Setting
from blindbayes.dp.distributed.noise_shares import DistributedNoise, PrivacyUnit
from blindbayes.dp.distributed.whole_noise import WholeNoise
from blindbayes.dp.noise.exact_events import LARGEST_BUDGET, budget_floor
from blindbayes.dp.noise.mechanisms import PrivacyCost
from blindbayes.dp.release.cells import fine_codebook
from blindbayes.dp.release.intervals import record_of
from blindbayes.dp.release.noisy_parameters import fit_parameters
from blindbayes.dp.release.planner import StageOutputs, plan_release, signal_of
from blindbayes.dp.release.private_fit import data_domain, likely_shapes
from blindbayes.dp.release.release_plan import NoisyStatistics, ReleasePlan
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.statistics import CodedRows, Statistics
from blindbayes.statistics.parameters import Parameters

SumNoise: TypeAlias = DistributedNoise | WholeNoise
_ROUNDS = 3
REFUSALS = (
    "Which parties took part, and that a party refused: it does so by its exact number of rows, where it or the study asks for "
    "a least or a largest one."
)
WHOLE_SITE = (
    "A whole site: who knows the sum over the other sites, from them or from another release, reads its statistics up to the "
    'noise, which is made for one record; unit = "party" protects all rows of a site.'
)
SEVERAL_RECORDS = (
    "Several records of one person, at one site or at several, are several records: k of them lose up to k times epsilon."
)
SEVERAL_SITES = (
    "A person is who has one identifier at one site: of each, that site counts at most {most} row(s), drawn at random, and no "
    "row without an identifier. A person with rows at several sites is one person at each: at k sites the loss is up to k "
    "times epsilon. No site can see that, and nothing here prevents it."
)
DECLARED_SITES = (
    "Of each identifier a site counts at most {most} row(s), drawn at random, and no row without one. Epsilon protects the "
    "rows of a person at up to {sites} sites together, one identifier at each. That nobody is at more was declared, not "
    "checked, since no site may learn who is at another; a person who is at more loses more."
)
MATCHED_SITES = (
    "Of each identifier a site counts at most {most} row(s), drawn at random, and no row without one. Sites compared keyed "
    "pseudonyms of identifiers by way of a party without rows, and each person counts at one of the sites that they are at, "
    "drawn at random: epsilon protects the rows of a person at all sites of the study together, and twice epsilon whether a "
    "person is at a further site. A person is one identifier, spelled alike: with several identifiers, several persons. Not "
    "protected by epsilon: the numbers of persons by sites, which that party learned."
)

HIDDEN = (
    "Noisy counts below {} (of a class, or of a value in a class) are published as 0, and the model is made without them. "
    "Nothing is altered before the noise; any party that learned the sum has seen these counts too, with their noise."
)


@dataclass(frozen=True)
class _Tables(ReleasePlan):
    """A release plan whose noise comes from `shares` parties."""

    shared_noise: SumNoise | None = None
    shares: int = 1

    @classmethod
    def with_noise(cls, plan: ReleasePlan, noise: SumNoise, shares: int) -> _Tables:
        """Return a plan with the noise of `shares` parties."""
        facts = {item.name: getattr(plan, item.name) for item in fields(ReleasePlan)}
        return cls(**facts, shared_noise=noise, shares=shares)

    @cached_property
    def deviations(self) -> tuple[float, ...]:
        """Standard deviation of the noise in a cell of each item, in units of its bound."""
        if self.shared_noise is None:
            raise ConfigError("the plan has no noise yet")
        if isinstance(self.shared_noise, WholeNoise):
            return tuple(self.shared_noise.deviations(self.shares))
        return tuple(self.shared_noise.deviation(self.shares, item.bound) / item.bound for item in self.items)


class ReleaseOfShares:
    """A release with noise of several parties: its mechanism, sampler and price."""

    noise: SumNoise

    @property
    def name(self) -> str:
        return self.noise.mechanism

    @property
    def sampler(self) -> str:
        if isinstance(self.noise, WholeNoise):
            return self.noise.sampler
        return f"exact integer shares, one per party; the shares of {self.noise.honest} add up to: {self.noise.law}"

    @property
    def price(self) -> PrivacyCost:
        """Privacy loss of one release, for every party."""
        return self.noise.price


@dataclass(frozen=True)
class NoisySum(ReleaseOfShares):
    """Public, and the same for all parties. Make it with `make`."""

    tables: ReleasePlan
    noise: SumNoise

    @classmethod
    def make(
        cls,
        codebook: Codebook,
        *,
        epsilon: float,
        honest: int,
        parties: int,
        delta: float = 0.0,
        rows: int | None = None,
        unit: PrivacyUnit = PrivacyUnit(),  # noqa: B008 - frozen
        law: type[DistributedNoise] | None = None,
    ) -> NoisySum:
        """Plan for `parties` shares in the sum, of which at least `honest` are honest. `rows` is the declared total.

        `law` is the noise in shares to take, such as one that a protocol brings; by default the noise with less of it is
        taken, shares of `DistributedNoise` or whole noise.
        """
        # Cells as in a fit without a first look; numbers are in cells, so no moment has to fit a word.
        known = StageOutputs(fine_codebook(codebook), None, likely_shapes(codebook))
        planner, exact = law or DistributedNoise, budget_floor(epsilon)

        def in_shares(tables: ReleasePlan) -> DistributedNoise:
            touched, bounds = len(tables.items), _bounds(tables)
            return planner.plan(touched=touched, bounds=bounds, epsilon=exact, delta=delta, honest=honest, unit=unit)

        effective = float(epsilon)
        for _ in range(_ROUNDS):  # the noise depends on the tables, and how fine they are on the noise
            tables = plan_release(codebook, epsilon=effective, mechanism="discrete_laplace", rows=rows, earlier=known)
            noise = in_shares(tables)
            deviation = noise.deviation(parties)
            matching = math.sqrt(2) * len(tables.items) / deviation if deviation else effective  # 0: hardly any noise at all
            if math.isclose(matching, effective, rel_tol=0.01):
                break
            effective = min(matching, float(LARGEST_BUDGET))
        shared = cls(tables, noise)
        if codebook.texts or law is not None:
            return shared
        single = plan_release(  # n parties' noise is as wide as that of one for epsilon / sqrt(n)
            codebook,
            epsilon=float(epsilon) / math.sqrt(parties),
            mechanism=WholeNoise.mechanism,
            rows=rows,
            rows_per_unit=unit.rows,
            earlier=known,
        )
        single = replace(single, epsilon=exact)
        # As in a central plan both are compared on the same cells: those of the one that can afford the fewest.
        encodings = min((tables, single), key=lambda plan: plan.signal).encodings
        together, alone = replace(tables, encodings=encodings), replace(single, encodings=encodings)

        def signal(plan: ReleasePlan, noise: SumNoise) -> float:
            return signal_of(_Tables.with_noise(plan, noise, parties), tables.planned_rows, average_cell=True)

        if signal(together, in_shares(together)) >= signal(alone, WholeNoise.plan(alone, unit)):
            return shared
        return cls(single, WholeNoise.plan(single, unit))

    def at(self, honest: int) -> NoisySum:
        """Return the same tables with noise for another number of honest shares."""
        return self if honest == self.noise.honest else replace(self, noise=self.noise.at(honest))

    @property
    def codebook(self) -> Codebook:
        """The codebook to count with: numeric features in fine cells."""
        return self.tables.codebook

    @property
    def length(self) -> int:
        """Number of integers in the sum."""
        return self.noise.length if isinstance(self.noise, WholeNoise) else len(self.noise.bounds)

    def bound(self, parties: int) -> int:
        """Largest absolute value of the total in any cell, up to a chance of 2^-40."""
        rows, noise = self.codebook.max_rows, self.noise
        if isinstance(noise, WholeNoise):
            bound = noise.bound(rows, parties, 2.0**-40)
        else:
            bound = max(each * rows + noise.tail(2.0**-40 / self.length, parties, each) for each in set(noise.bounds))
        if bound >= 2**63:
            raise PrivacyError("the noisy sum would not fit 64 bits: declare a smaller max_rows, or bins")
        return bound

    def vector(self, statistics: Statistics) -> npt.NDArray[Any]:
        """One party's exact integers, before its share of the noise."""
        tables = self.tables.tables(statistics)
        if isinstance(self.noise, WholeNoise):
            return self.noise.words(tables)
        return np.concatenate([table.ravel() for table in tables]).astype(np.int64)

    def vectors(self, rows: CodedRows, units: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int64]:
        """Return what each of `count` units adds to `vector`, (units, length); `units` says whose each row is."""
        tables = self.tables.tables_of(rows, units, count)
        if isinstance(self.noise, WholeNoise):
            return self.noise.words(tables)
        return np.concatenate([table.reshape(count, -1) for table in tables], axis=1)

    def fit(
        self, total: npt.NDArray[Any], *, shares: int, alpha: float, min_cell: int = 0
    ) -> tuple[Parameters, Statistics, dict[str, Any]]:
        """Return model, integer statistics and noise record of a sum that contains `shares` shares of noise.

        The record is empty if the protocol has a noise law of its own, which readers of model files do not know.

        Noisy counts below `min_cell` become 0 in the statistics, and the model is made without them. Postprocessing only.
        """
        plan = _Tables.with_noise(self.tables, self.noise, shares)
        noisy = NoisyStatistics(plan, self._opened(total), min_cell)
        own_law = type(self.noise) not in (DistributedNoise, WholeNoise)
        record = {} if own_law else record_of(noisy, self.noise, shares)
        return fit_parameters(noisy, alpha=alpha), noisy.statistics, record

    def _opened(self, total: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float64], ...]:
        """Return the noisy tables of a sum, in counts or in units of a bound."""
        if isinstance(self.noise, WholeNoise):
            return tuple(self.noise.tables(total))
        classes, at, tables = len(self.tables.declared.classes), 0, []
        for item in self.tables.items:
            part = np.array([int(value) for value in total[at : at + classes * item.cells]], dtype=np.float64)
            tables.append(part.reshape(classes, item.cells) / item.bound)
            at += classes * item.cells
        return tuple(tables)

    def describe(self, shares: int) -> dict[str, Any]:
        """Return public facts of a sum that contains `shares` shares of noise."""
        return _Tables.with_noise(self.tables, self.noise, shares).describe()

    # -- what it promises ------------------------------------------------------------------------------------------------

    def statement(
        self, trust: str, composition: str, min_cell: int = 0, persons: str = SEVERAL_RECORDS, tuning: str | None = None
    ) -> PrivacyStatement:
        """Return the guarantee, under the trust that the study states. `persons` says how far persons are protected."""
        hiding = "its own site" if isinstance(self.noise, WholeNoise) else "the honest sites together"
        site = "" if self.noise.unit == "party" else f" {WHOLE_SITE}"
        return PrivacyStatement.for_release(
            self,
            sensitivity="One person's record changes only a few of the numbers in the sum, each by no more than a bound that "
            f"is fixed before any table is read. The noise of {hiding} hides all of these changes at once. One "
            f"record moves each of {len(self.tables.items)} released tables by at most its bound, all cells together (1 for "
            "counts of values; for a text, the number of its words that count).",
            codebook=self.tables.declared.sha256,
            data_domain=data_domain(self.tables.declared),
            tuning=tuning,
            setting=Setting(
                trust_model=trust,
                composition=composition,
                not_protected=f"{NOT_PROTECTED} {REFUSALS} {persons}{site}",
                post_processing=POST_PROCESSING + (f" {HIDDEN.format(min_cell)}" if min_cell else ""),
                model="Federated",
                drawn_in=(type(self.noise).__module__,),
            ),
        )


def persons_words(rows_per_person: int | None, sites_per_person: int | str | None) -> str:
    """Describe how far a study protects persons: by each site's bound on their rows, and by the sites that they are at."""
    if rows_per_person is None:
        return SEVERAL_RECORDS
    if sites_per_person == "matched":
        return MATCHED_SITES.format(most=rows_per_person)
    if sites_per_person is None:
        return SEVERAL_SITES.format(most=rows_per_person)
    return DECLARED_SITES.format(most=rows_per_person, sites=sites_per_person)


def _bounds(tables: ReleasePlan) -> tuple[int, ...]:
    classes = len(tables.declared.classes)
    return tuple(item.bound for item in tables.items for _ in range(classes * item.cells))
