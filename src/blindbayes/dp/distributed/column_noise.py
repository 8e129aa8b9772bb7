"""Noise in the shares of a study over columns: the noise of each party, and the guarantee of every answer.  [columns]

    plan = ColumnNoise.make(codebook, owners, class_holder, epsilon=1.0, rows=30_000)     # public facts only
    plan.counted                                    # the codebook to read tables with: numbers in cells, or as sums
    noise = plan.draw("bank", coins)                # one party's noise, integers; it goes into its share of the counts

A model in shares opens nothing, yet every answer is a function of the counts behind it. So noise goes into the shares of the
counts, and all answers ever given are postprocessing of noisy counts. Every party knows its own noise and can subtract it,
so each party alone draws as much as *its own* records need, by the mechanism of a central release:

- the class holder: one release of every table of the study and of the class counts;
- an attribute holder whose table lines up (or is joined on the left): one release of its own columns' tables;
- both parties of an inner join: every table, because whether a person is in the join at all depends on both.

Tables and cells are planned by `plan_release`, for the noise of both parties together.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook, Feature, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.statement import NOT_PROTECTED, PrivacyStatement, Setting
from blindbayes.dp.noise import samplers
from blindbayes.dp.noise.exact_events import Number
from blindbayes.dp.noise.knorm_histograms import Centred
from blindbayes.dp.noise.mechanisms import DiscreteGaussian, PrivacyCost
from blindbayes.dp.release.planner import plan_release, require_signal
from blindbayes.dp.release.private_fit import data_domain
from blindbayes.dp.release.release_plan import FeatureEncoding, ReleasePlan
from blindbayes.errors import ConfigError, LocalProtocolError

Integers = npt.NDArray[Any]  # of Python integers
Join = Literal["aligned", "left", "inner"]
WHOLE = 200
"""Deviations of a party's noise that fit a counter: more (probability below 2^-60) spoils its neighbour, reveals nothing."""
_WIDE_BINS = 48  # of a number whose sums with noise would pass a word
_FLOOR = 2.0  # deviations of a noisy mean square that a variance is held above
_COARSER = 0.7  # no normal law is fitted inside a circuit, so fewer cells are better
_UNIT = "one record"


@dataclass(frozen=True, slots=True)
class PartyNoise:
    """One party's noise: on the class counts, and per feature (K, values) or, for sums, (K, 3): n, sum, sum of squares."""

    class_counts: tuple[int, ...]
    tables: Mapping[str, Integers]


@dataclass(frozen=True)
class ColumnNoise:
    """Public, and the same for all parties. Make it with `make`."""

    name: ClassVar[str] = "noise in shares"
    tables: ReleasePlan  # of all columns, with the cells that are counted
    owners: Mapping[str, tuple[str, ...]]
    class_holder: str
    join: Join
    declared: Codebook
    expected: int  # rows that it is planned for

    @classmethod
    def make(
        cls,
        codebook: Codebook,
        owners: Mapping[str, Sequence[str]],
        class_holder: str,
        *,
        epsilon: Number,
        delta: float = 0.0,
        rows: int,
        join: Join = "aligned",
        max_rows: int | None = None,
    ) -> ColumnNoise:
        """Plan for a public number of rows, at most `max_rows`. Cells suit the noise that both parties of a table add."""
        owned = {party: tuple(names) for party, names in owners.items()}
        exact = plan_release(codebook, epsilon=epsilon, delta=delta, rows=rows).epsilon

        def draft(share: Fraction) -> ColumnNoise:
            plan = plan_release(codebook, epsilon=exact * share, delta=delta, rows=rows)
            if any(cut.kind == "moments" for cut in plan.encodings) and plan.mechanism != "discrete_laplace":
                # Sums stay in shares, so they cannot be brought to a grid before noise: they get noise on every whole number.
                plan = plan_release(codebook, epsilon=exact * share, rows=rows, mechanism="discrete_laplace")
            if any(map(_tells, codebook.features)):
                require_signal(plan, rows, float(exact))
            return cls(counted_plan(plan, exact, join, owned[class_holder]), owned, class_holder, join, codebook, rows)

        made = draft(draft(Fraction(1))._share())  # how fine the cells are depends on the noise, and the noise on the cells
        if not (wide := made._too_wide(max_rows or rows)):
            return made
        features = [msgspec.structs.replace(item, bins=_WIDE_BINS) if item.name in wide else item for item in codebook.features]
        book, facts = codebook.with_features(features), (owned, class_holder)
        made = cls.make(book, *facts, epsilon=epsilon, delta=delta, rows=rows, join=join, max_rows=max_rows)
        return dataclasses.replace(made, declared=codebook)

    def _too_wide(self, rows: int) -> set[str]:
        """Features whose sums of squares would not fit into a word together with their noise (`class_sums`)."""
        return {
            feature.name
            for feature, cut in zip(self.counted.features, self.tables.encodings, strict=True)
            if cut.kind == "moments"
            and isinstance(feature, Numeric)
            and (rows + (16 << self.noise_bits)) * max(-feature.code_low, feature.code_high) ** 2 >= 1 << 63
        }

    def _share(self) -> Fraction:
        """Return the epsilon of a central release with as much noise as the tables get here, relative to this one's."""
        alone = {item.name: deviation for item, deviation in self._deviations(self.class_holder) if item.kind == "cells"}
        ratios = [deviation / self.deviation(name) for name, deviation in alone.items()]
        mean = sum(ratios) / len(ratios) if ratios else 1.0
        return Fraction(math.floor(1000 * _COARSER * mean), 1000)

    # -- who adds what ---------------------------------------------------------------------------------------------------

    @property
    def counted(self) -> Codebook:
        """The codebook to read tables with."""
        return self.tables.codebook

    def plan_of(self, party: str) -> ReleasePlan:
        """Return the central release whose noise a party draws."""
        return self.tables if self.join == "inner" or party == self.class_holder else self._plans[party]

    @cached_property
    def _plans(self) -> dict[str, ReleasePlan]:
        """Releases of attribute holders: their own tables, in which only values of optional columns may be missing."""
        plans = {}
        for party, names in self.owners.items():
            if party == self.class_holder:
                continue
            pairs = [pair for pair in zip(self.counted.features, self.tables.encodings, strict=True) if pair[0].name in names]
            book = self.counted.with_features(feature for feature, _ in pairs)
            cuts = tuple(dataclasses.replace(cut, missing=feature.optional) for feature, cut in pairs)
            plans[party] = dataclasses.replace(self.tables, declared=book, codebook=book, encodings=cuts)
        return plans

    def _deviations(self, party: str) -> list[tuple[Any, float]]:
        plan = self.plan_of(party)
        return list(zip(plan.items, plan.deviations, strict=True))

    def adders(self, feature: str) -> tuple[str, ...]:
        """Return the parties whose noise is in a feature's table."""
        if self.join == "inner":
            return tuple(self.owners)
        owner = next(party for party, names in self.owners.items() if feature in names)
        return tuple(dict.fromkeys((self.class_holder, owner)))

    def deviation(self, feature: str) -> float:
        """Return the standard deviation of all noise in a cell of a feature's table (of a sum: in units of its bound)."""
        squares = [
            max((deviation for item, deviation in self._deviations(party) if item.name == feature), default=0.0) ** 2
            for party in self.adders(feature)
        ]
        return math.sqrt(sum(squares))

    @property
    def noise_bits(self) -> int:
        """Number of bits of the noise of two parties on a counter."""
        widest = max((deviation for party in self.owners for _, deviation in self._deviations(party)), default=1.0)
        return math.ceil(2 * WHOLE * (widest + 1)).bit_length()

    @cached_property
    def floors(self) -> tuple[tuple[str, float], ...]:
        """Minimum variances of features that are released as sums: what their noise would look like as a variance."""
        floors = []
        for feature, cut in zip(self.counted.features, self.tables.encodings, strict=True):
            if cut.kind == "moments" and isinstance(feature, Numeric):
                width = (feature.width - 1) / feature.scale
                per_class = self.expected / len(self.counted.classes)
                floors.append((feature.name, _FLOOR * self.deviation(feature.name) * width**2 / 8 / per_class))
        return tuple(sorted(floors))

    # -- drawing ---------------------------------------------------------------------------------------------------------

    def draw(self, party: str, coins: Coins) -> PartyNoise:
        """Draw one party's noise for one training. It does not depend on data: it is added to a share of the counts."""
        return draw(self.plan_of(party), coins)

    # -- what it promises ------------------------------------------------------------------------------------------------

    @property
    def price(self) -> PrivacyCost:
        """Privacy loss of one training, charged to every party's ledger; answers cost nothing more."""
        price = self.tables.price
        return PrivacyCost(price.epsilon, price.delta, _UNIT, rho=price.rho)

    @property
    def sampler(self) -> str:
        return str(self.tables.describe()["sampler"])

    def statement(self) -> PrivacyStatement:
        """Return the guarantee."""
        return PrivacyStatement.for_release(
            self,
            sensitivity="One person's record changes only a few of the counts, each by no more than a bound that is fixed "
            "before any table is read. Each party's own noise is large enough to hide all of these changes at once. One record "
            f"moves each of {len(self.tables.items)} tables by at most its bound, all cells together (1 for counts of values; "
            "for a text, the number of its words that count). Whatever a table holds, every record has a cell in each: a value "
            "that is missing or not listed has a cell of its "
            "own, or counts as the first value of a column that the party itself fills.",
            codebook=self.declared.sha256,
            data_domain=data_domain(self.declared),
            setting=Setting(
                composition=COMPOSITION,
                trust_model=TRUST[self.join],
                not_protected=f"{NOT_PROTECTED} {OUTSIDE[self.join]}",
                model="Federated",
            ),
        )

    def words(self) -> str:
        """Return the guarantee in a few sentences, for a training's statement."""
        price, plan = self.price, self.tables
        delta = f", delta = {price.delta:g}" if price.delta else ""
        own = {item.name: deviation for item, deviation in self._deviations(self.class_holder) if item.kind != "classes"}
        both = [self.deviation(name) for name in own]
        spread = f"{min(both):.3g} to {max(both):.3g}" if both else "0"
        alone = f"{min(own.values()):.3g} to {max(own.values()):.3g}" if own else "0"
        return (
            f"Noise in the shares ({plan.mechanism}): every answer that this model ever gives, however many, is "
            f"differentially private with epsilon = {price.epsilon:g}{delta} for {_UNIT} of the training tables, {ADJACENCY} "
            "Exchanging a record's values for others in place counts as two such steps, so the odds of a person's class, for "
            f"those who know the rest, move by a factor of at most e^{2 * price.epsilon:g}. {TRUST[self.join]} All noise in a "
            f"cell has a standard deviation of {spread} counts; {alone} would be there without the other parties' noise, which "
            f"is what their people's protection costs. Charged to every party's ledger: epsilon = {price.epsilon:g}{delta}, "
            f"once. {OUTSIDE[self.join]}"
        )


ADJACENCY = "taken out of all counts or put in (the number of rows is public and stays)."
COMPOSITION = (
    "One training. However many instances are classified with the model, to any number of parties: all of it is computed "
    "from the noisy counts, at the price above. Another training adds to it; the ledgers list them."
)
_ALONE = "Each party relies on its own software and its own noise alone: "
TRUST: Mapping[Join, str] = {
    "aligned": _ALONE
    + "the class holder's protects the whole record, an attribute holder's what it knows of the record, against all the other "
    "parties together. This holds as far as class_sums and shared_model hide their inputs, that is computationally.",
    "left": _ALONE
    + "the class holder's protects its records, an attribute holder's its own (that they are there, and their values), against "
    "all the other parties together. This holds as far as joined_sums and shared_model hide their inputs, computationally.",
    "inner": _ALONE
    + "it protects its records (that they are there, and their values) against the other. This holds as far as joined_sums and "
    "shared_model hide their inputs, that is computationally.",
}
_JOINED = (
    "A record is an identifier with all its rows. Not covered: the padded numbers of identifiers, whether min_overlap was "
    "reached, the instances that are classified, and one bit: whether a party that deviated was caught."
)
_CHANGED = (
    "Nor is a class holder's record covered against an attribute holder whose changed software enters, for a row, words that "
    "no row has; the other way round it is, whatever the class holder's software enters."
)
_EITHER = "Nor is a record covered against another party whose changed software enters, for a row, words that no row has."
OUTSIDE: Mapping[Join, str] = {
    "aligned": f"Not covered: the number of rows, whose rows line up, the instances that are classified later. {_CHANGED}",
    "left": f"{_JOINED} {_CHANGED}",
    "inner": f"{_JOINED} {_EITHER}",
}
# -- inside ------------------------------------------------------------------------------------------------------------------


def _tells(feature: Feature) -> bool:
    return not (isinstance(feature, Numeric) and feature.bins is None and feature.width == 1)


def counted_plan(plan: ReleasePlan, epsilon: Fraction, join: Join, local: Sequence[str]) -> ReleasePlan:
    """Return the plan with the released cells as the bins of its codebook, at the full epsilon.

    The noise of all tables shares one level: their cells must add up to the class count. The class holder's own reader puts
    every row into a cell of a required column (`local`); a table that another party fills has a cell for missing values.
    """
    features, cuts = [], []
    for feature, cut in zip(plan.declared.features, plan.encodings, strict=True):
        missing = feature.optional or join == "inner" or feature.name not in local
        if cut.kind == "moments":
            features.append(feature)
            cuts.append(dataclasses.replace(cut, missing=missing))
            continue
        counted = feature
        if isinstance(feature, Numeric) and feature.bins is None:
            counted = msgspec.structs.replace(feature, bins=len(cut.edges) - 1 if cut.kind == "cells" else 1)
        features.append(counted)
        cuts.append(FeatureEncoding(feature.name, "cells", tuple(range(counted.size + 1)), missing, cut.reason))
    book = plan.declared.with_features(features)
    return dataclasses.replace(plan, declared=book, codebook=book, encodings=tuple(cuts), epsilon=epsilon)


def draw(plan: ReleasePlan, coins: Coins) -> PartyNoise:
    """Draw the noise of a release, as integers to be added to its counts.  [columns]"""
    counts, tables = draws(plan, coins, 1)
    return PartyNoise(tuple(map(int, counts[0])), {name: table[0].astype(object) for name, table in tables.items()})


def draws(plan: ReleasePlan, coins: Coins, count: int) -> tuple[Integers, dict[str, Integers]]:
    """Independent draws along the first axis: noise of the class counts and of each feature's table.

    A centred histogram is known up to a constant, which the noisy class count gives; both are linear in the counts, so what
    they do to a count is a number that can be drawn without it. Rounding goes to whole counts, in exact arithmetic.
    """
    raw, steps = _raw(plan, coins, count)
    by_kind: dict[tuple[str, str], int] = {(item.name, item.kind): at for at, item in enumerate(plan.items)}
    level, below = _class_noise(plan, raw, steps)
    counts = _rounded(level, below)
    tables: dict[str, Integers] = {}
    for feature, cut in zip(plan.codebook.features, plan.encodings, strict=True):
        at = by_kind.get((feature.name, "cells"))
        if at is not None:
            table, step = raw[at], steps[at]
            if isinstance(plan.noise, Centred):  # cells that add up to the noisy class count, over one denominator
                table, lifted = _roomy(table, 8 * cut.cells * below), _roomy(level, 8 * step)
                table = below * (cut.cells * table - table.sum(axis=2, keepdims=True)) + step * lifted[..., None]
                step = cut.cells * step * below
            tables[feature.name] = _rounded(table, step)[..., : len(cut.edges) - 1]
        elif cut.kind == "moments" and isinstance(feature, Numeric):
            tables[feature.name] = _moment_noise(raw, by_kind, feature, counts)
        elif cut.kind == "cells" and cut.cells == 1:  # it counts the rows of each class, which are released
            tables[feature.name] = counts[..., None]
        else:
            raise LocalProtocolError(f"feature {feature.name!r} would be counted without noise")
    return counts, tables


def _moment_noise(raw: list[Integers], by_kind: Mapping[tuple[str, str], int], feature: Numeric, counts: Integers) -> Integers:
    """Convert noise on sum y and sum (2 y^2 - W^2), y = 2 code - (low + high), to noise on n, sum and squares of codes."""
    middle, width = feature.code_low + feature.code_high, feature.width - 1
    present = by_kind.get((feature.name, "n"))
    n = (counts if present is None else raw[present][..., 0]).astype(object)
    first, second = (raw[by_kind[feature.name, kind]][..., 0].astype(object) for kind in ("sum", "square"))
    total = (first + middle * n) // 2
    square = (second + width * width * n + 8 * middle * total - 2 * middle * middle * n) // 8
    return np.stack([n, total, square], axis=-1)


def _class_noise(plan: ReleasePlan, raw: list[Integers], steps: list[int]) -> tuple[Integers, int]:
    """Noise on the class counts, over one denominator: released, or the weighted mean of what the histograms add up to."""
    for at, item in enumerate(plan.items):
        if item.kind == "classes":
            return raw[at][..., 0], steps[at]
    cells = [(at, item.cells) for at, item in enumerate(plan.items) if item.kind == "cells"]
    common = math.lcm(*(size for _, size in cells))
    total = sum(_roomy(raw[at], common * len(cells) * size).sum(axis=2) * (common // size) for at, size in cells)
    return np.asarray(total), sum(common // size for _, size in cells)


def _raw(plan: ReleasePlan, coins: Coins, count: int = 1) -> tuple[list[Integers], list[int]]:
    """Return, per item, noise (count, K, cells) in grid points, and grid points per count: 1 for sums."""
    classes, noise = len(plan.codebook.classes), plan.noise
    collected: list[Integers] = [np.empty(0)] * len(plan.items)
    steps = [1] * len(plan.items)
    if isinstance(noise, Centred):
        for at, draws, step in noise.noise(coins, count * classes):
            steps[at] = step
            collected[at] = draws.reshape(count, classes, -1)
        return collected, steps
    for at, item in enumerate(plan.items):
        size = count * classes * item.cells
        if isinstance(noise, DiscreteGaussian):
            if item.bound != 1:
                raise ConfigError("sums in shares take discrete Laplace noise")
            draws = samplers.discrete_gaussian(coins, noise.variance, size)
        else:
            scale = Fraction(item.bound * plan.rows_per_unit * len(plan.items)) / plan.epsilon
            draws = samplers.discrete_laplace(coins, scale, size)
        collected[at] = draws.reshape(count, classes, item.cells)
    return collected, steps


def _roomy(values: Integers, factor: int) -> Integers:
    """Whole numbers that may be multiplied by so much: of 64 bits where that is enough."""
    return values if not values.size or int(np.abs(values).max()) * factor < 1 << 62 else values.astype(object)


def _rounded(values: Integers, step: int) -> Integers:
    """Round values / step to the nearest integers, halves up; an integer that is added moves the result alike."""
    return np.asarray((2 * values + step) // (2 * step))
