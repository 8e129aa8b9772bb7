"""A private fit in stages, at one price: class counts, coarse histograms, tables, model selection, calibration.  [stages]

    plan = plan_fit(codebook, epsilon=1.0, select_model=True)      # price, stages and reasons; reads no data
    outcome = plan.fit(count(source, plan.codebook), rows, coins)  # the caller has charged the price

1. If nobody declared the number of rows, noisy class counts come first.
2. Coarse histograms of numbers that were declared by their bounds alone show where they lie (`coarse_histograms`).
3. The tables of all features that noise does not bury are released together (`planner`, `release_plan`).
4. If rows are at hand, the model is selected by how many of them it gets right (`selection`): how far it is believed, and
   which rule mends it (`stumps`). If rows are too few for any table, the model is one rule.
5. A small table of its answers calibrates its probabilities (`calibration`).

A stage is left out where public facts, or the noise of the stage before, say that it would not help; the release gets its
epsilon. The epsilons of the stages add up to the price exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

from blindbayes.codebook import Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.accountant import pure_rho
from blindbayes.dp.accounting.stage import Stage
from blindbayes.dp.accounting.statement import PrivacyStatement, Setting
from blindbayes.dp.noise import samplers
from blindbayes.dp.noise.centred_gaussian import CentredGaussian
from blindbayes.dp.noise.exact_events import Number, budget_floor, cost_ceiling
from blindbayes.dp.noise.gaussian import length_for
from blindbayes.dp.noise.knorm_histograms import NUMBER_VARIANCE
from blindbayes.dp.noise.mechanisms import DiscreteLaplace, PrivacyCost
from blindbayes.dp.release import constants as tuned
from blindbayes.dp.release.calibration import CalibrationTable
from blindbayes.dp.release.cells import CellShape, fine_codebook, is_cut, likely_shape, public_shape
from blindbayes.dp.release.coarse_histograms import CoarseHistograms, plan_histograms
from blindbayes.dp.release.intervals import record_of
from blindbayes.dp.release.noisy_parameters import fit_parameters
from blindbayes.dp.release.planner import StageOutputs, plan_release
from blindbayes.dp.release.release_plan import (
    CENTRED,
    FeatureEncoding,
    NoisyClassCounts,
    NoisyStatistics,
    ReleasePlan,
    require_small_delta,
)
from blindbayes.dp.release.selection import ModelSelection
from blindbayes.dp.release.stumps import SplitSides, all_sides
from blindbayes.errors import ConfigError
from blindbayes.statistics import CodedRows, Statistics
from blindbayes.statistics.parameters import Parameters

Rows: TypeAlias = CodedRows | Callable[[], CodedRows] | None
ALONE = "No ledger was kept: the promise is about this release alone, and adds up with any other from the same table."

MAX_RULES_SIGNAL = 10_000
"""Rows times epsilon above which scoring all rules takes too long; hardly anything is left to mend there."""
MAX_READ = 200_000
"""Rows of a source up to which they are read, or read again, for the model selection; larger ones are counted in place. Set
by time: `benchmarks/guard.py`."""
MAX_RHO = 100.0
_RHO_STEPS = 16  # of a bisection: a thousandth of epsilon
SENSITIVITY = (
    "One row more or less changes each number that is released, and each score that decides a choice, by no more than a bound "
    "that was fixed before the table was read. Noise, or the chance of another choice, is large enough to hide all of these "
    "changes at once, for all rows of the unit; the prices of the stages add up."
)


def plan_fit(
    codebook: Codebook,
    *,
    epsilon: Number,
    delta: float = 0.0,
    rows: int | None = None,
    rows_per_unit: int = 1,
    select_model: bool = False,
    max_read: int | None = None,
) -> FitPlan:
    """Plan a private fit from public facts. The caller asks for an explicit word for a large delta (`require_small_delta`).

    `rows` is the declared size of the table. With `select_model`, `FitPlan.fit` is called with the rows, if there are at most
    `max_read` by what was declared or by the noisy class counts.
    """
    require_small_delta(codebook, delta, rows, allow_large=True)
    budget = budget_floor(epsilon)

    def staged(delta: float) -> FitPlan:
        expected = plan_release(codebook, epsilon=budget, delta=delta, rows=rows, rows_per_unit=rows_per_unit, staged=True)
        declared, selects = expected.rows, select_model and not codebook.texts
        if declared is not None and max_read is not None:
            selects = selects and declared <= max_read
        limit = max_read if declared is None else None
        return FitPlan(expected, fine_codebook(codebook), budget, declared, selects, limit)

    plan = staged(delta)
    size = plan.rows
    if size is None:
        return plan
    if (stages := plan.stages(size)).rules_alone:  # class counts need no delta
        left = plan.epsilon - stages.reserved
        plan = staged(0.0)
        last = plan.tables(left, None, likely_shapes(codebook), frozenset())
        return replace(plan, expected=replace(last, reasons=(*plan.expected.reasons[:1], *last.reasons[1:])))
    return plan


def plan_for_rho(rho: float, plan: Callable[[float], FitPlan]) -> FitPlan:
    """Return the plan with the largest epsilon found that costs at most `rho`; `plan` makes one for an epsilon."""
    if not (isinstance(rho, int | float) and 0 < rho <= MAX_RHO):
        raise ConfigError(f"rho lies above zero, and at most at {MAX_RHO:g}")
    low, best = math.sqrt(2 * rho), None
    while (made := plan(low)).rho is None or made.rho > rho:
        if made.rho is None:
            raise ConfigError("rho prices fits without delta, and centred_gaussian tables: leave delta out, or pass epsilon")
        low /= 2
    high = max(low, rho + 2 * math.sqrt(rho * math.log(1 / (made.price.delta or 1)))) * 2
    best = made
    for _ in range(_RHO_STEPS):
        middle = math.sqrt(low * high)
        made = plan(middle)
        if made.rho is not None and made.rho <= rho:
            low, best = middle, made
        else:
            high = middle
    return best


@dataclass(frozen=True)
class Stages:
    """The stages of a fit after the tables; None for one that would not help."""

    rules_alone: bool  # the model is one rule: only class counts are released
    model_selection: ModelSelection | None
    calibration: CalibrationTable | None

    @property
    def later(self) -> tuple[ModelSelection | CalibrationTable, ...]:
        """The stages that run, in order."""
        return tuple(each for each in (self.model_selection, self.calibration) if each is not None)

    @property
    def reserved(self) -> Fraction:
        """Epsilon of the stages after the tables."""
        return sum((each.epsilon for each in self.later), Fraction(0))


@dataclass(frozen=True)
class FitOutcome:
    """The outcome of a private fit, all of it public: the model, and the noisy statistics it was made from."""

    parameters: Parameters
    noisy: NoisyStatistics
    stages: tuple[Stage, ...]  # all that ran, in order; their epsilons add up to the price

    def facts(self) -> dict[str, Any]:
        """Return public facts as the stages turned out, for the model file."""
        last = self.noisy.plan.describe()
        facts = {key: last[key] for key in ("features", "groups", "reasons", "sampler")}
        facts["stages"] = {stage.name: float(stage.epsilon) for stage in self.noisy.plan.stages}
        return {**facts, "released": record_of(self.noisy)}


@dataclass(frozen=True)
class FitPlan:
    """A private fit, planned before any data is read. A ledger charges `name` and `price`."""

    expected: ReleasePlan  # the likely release of tables
    codebook: Codebook  # to count and encode rows with
    epsilon: Fraction
    rows: int | None  # as declared
    selects_model: bool = False  # rows are at hand for a model selection
    max_read: int | None = None  # noisy number of rows beyond which they are not read again

    # -- what is public before the fit -------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Mechanism of the tables."""
        return self.expected.mechanism

    @property
    def sampler(self) -> str:
        """Sampler of the noise of the tables."""
        return str(self.expected.describe()["sampler"])

    @property
    def price(self) -> PrivacyCost:
        """Privacy loss of all stages together; only the tables have a delta."""
        return PrivacyCost(cost_ceiling(self.epsilon), self.expected.price.delta, self.expected.unit, rho=self.rho)

    def map(self, d_in: int = 1) -> PrivacyCost:
        """Return the privacy loss for tables that differ in `d_in` units; reads no data.  [group]"""
        return self.price.group(d_in)

    @cached_property
    def rho(self) -> float | None:
        """Zero-concentrated privacy loss of all stages, whatever noise decides about later ones; None without a bound.

        Pure stages cost epsilon^2 / 2 each; of parts of an epsilon that noise may still split the whole costs most. The tables
        of `centred_gaussian` cost at most half the squared length that their price covers [quotient].
        """
        delta, stages = self.expected.price.delta, None if self.rows is None else self.stages(self.rows)
        if delta and self.name != CentredGaussian.name:
            return None
        pure = [self.class_epsilon]
        if stages is not None:
            pure += [each.epsilon for each in stages.later]
        left = self.epsilon - sum(pure)
        rho = sum(pure_rho(float(each)) for each in pure)
        if not delta:
            return (rho + pure_rho(float(left))) * (1 + 1e-9)
        if stages is None:  # any part of what is left may go to pure stages, and any to the tables
            return (rho + pure_rho(float(left)) + length_for(float(left), delta) ** 2 / 2) * (1 + 1e-9)
        look = tuned.STAGE_SHARE * (self.epsilon - stages.reserved)
        tables = [(float(part), float(left - part)) for part in (Fraction(0), look)]
        return (rho + max(pure_rho(part) + length_for(rest, delta) ** 2 / 2 for part, rest in tables)) * (1 + 1e-9)

    @property
    def declared(self) -> Codebook:
        return self.expected.declared

    @property
    def needs_rows(self) -> bool:
        """True if `fit` may ask for the rows."""
        if self.rows is None:
            return self.selects_model
        stages = self.stages(self.rows)
        return (stages.model_selection or stages.calibration) is not None

    def stages(self, rows: int) -> Stages:
        """Return the stages of a fit of a table of about `rows` rows."""
        unit, classes = self.expected.rows_per_unit, len(self.declared.classes)
        signal = rows * self.epsilon / unit
        if not (self.selects_model and (self.max_read is None or rows <= self.max_read)):
            return Stages(False, None, None)
        share = min(tuned.STAGE_SHARE, tuned.RULES_SIGNAL / signal)
        calibration = CalibrationTable(share * self.epsilon, unit) if classes > 1 else None
        tries_rules = 2 <= classes <= tuned.MAX_RULE_CLASSES
        if (
            tries_rules
            and signal < tuned.RULES_SIGNAL
            and (classes == 2 or signal < tuned.TABLE_SIGNAL * classes * len(self.declared.features))
        ):  # the calibration counts classes by answer; class counts of undeclared rows are released twice
            share = 1 - (3 if self.rows is None else 2) * tuned.STAGE_SHARE
            if calibration is not None:  # answers do not follow from class counts: a share of a share is enough for them
                calibration = replace(calibration, epsilon=(2 - tuned.STAGE_SHARE) * tuned.STAGE_SHARE * self.epsilon)
            return Stages(True, ModelSelection(share * self.epsilon, unit, self._sides, alone=True), calibration)
        low, high = tuned.MENDING_SHARES
        if tries_rules and high * tuned.RULES_SIGNAL <= signal < MAX_RULES_SIGNAL:
            share = min(high, max(low, tuned.RULES_SIGNAL / signal))
            return Stages(False, ModelSelection(share * self.epsilon, unit, self._sides), calibration)
        share = Fraction(tuned.RULES_SIGNAL) / signal
        model = ModelSelection(share * self.epsilon, unit) if share <= tuned.STAGE_SHARE else None
        return Stages(False, model, calibration)

    @cached_property
    def _sides(self) -> tuple[SplitSides, ...]:
        return all_sides(self.declared, self.codebook)

    def look(self, rows: int, keep: frozenset[str] | None = None) -> CoarseHistograms | None:
        """Return the coarse histograms of a table of about `rows` rows, if they help."""
        stages = self.stages(rows)
        if stages.rules_alone:
            return None
        epsilon = tuned.STAGE_SHARE * (self.epsilon - stages.reserved)
        return plan_histograms(self.declared, epsilon, self.expected.rows_per_unit, rows, keep)

    @property
    def class_epsilon(self) -> Fraction:
        """Epsilon of the stage of class counts; 0 if they are released with the features."""
        return tuned.STAGE_SHARE * self.epsilon if self.rows is None else Fraction(0)

    @property
    def _class_stage(self) -> Stage:
        return Stage(
            name="class counts",
            mechanism=DiscreteLaplace.name,
            epsilon=self.class_epsilon,
            unit=self.expected.unit,
            sensitivity="one row moves one count by 1",
            sampler=DiscreteLaplace.sampler,
        )

    def _is_joint_cheaper(self, encodings: Sequence[FeatureEncoding], own: Fraction, epsilon: Fraction) -> bool:
        """Return whether class counts have less noise released with these features than in a stage of epsilon `own`."""
        if self.name not in CENTRED:
            return False
        if self.name != "knorm":
            noise = replace(self.expected, encodings=tuple(encodings), epsilon=epsilon).deviations[0]
        else:
            cells = sum(each.cells - 1 for each in encodings if each.kind == "cells" and each.cells > 1)
            moments = sum(2 for each in encodings if each.kind == "moments")
            noise = math.sqrt(NUMBER_VARIANCE) * (cells + moments + 2) / float(epsilon)
        return noise <= math.sqrt(2) / float(own)

    # -- the fit -----------------------------------------------------------------------------------------------------------

    def fit(self, statistics: Statistics, rows: Rows, coins: Coins, alpha: float = 1.0) -> FitOutcome:
        """Run all stages and return the model. Every call is a release: the price must have been charged before.

        `rows` are the rows of the statistics, or a function that reads them; None if no model is selected.
        """
        noisy = self.release(statistics, coins)
        parameters = fit_parameters(noisy, alpha=alpha)
        stages, why = self.stages(noisy.plan.planned_rows), self._why_unselected
        later: list[Stage] = []
        if (stages.model_selection or stages.calibration) is not None and rows is None:
            raise ConfigError("the model selection needs the rows; plan without it")
        block = rows() if callable(rows) and (stages.model_selection or stages.calibration) is not None else rows
        if stages.model_selection is not None and isinstance(block, CodedRows):
            parameters, which = stages.model_selection.choose(parameters, block, coins)
            later.append(stages.model_selection.stage(self.expected.unit))
            epsilon = float(stages.model_selection.epsilon)
            why = f"{which}, by how many rows are right then, for epsilon {epsilon:.3g}"
        if stages.calibration is not None and isinstance(block, CodedRows):
            parameters = stages.calibration.suited(parameters).calibrated(parameters, block, coins, noisy)
            later.append(stages.calibration.stage(self.expected.unit))
        earlier = noisy.plan.stages
        last = replace(noisy.plan, reasons=(*noisy.plan.reasons, why), stages=(*earlier, *later))
        return FitOutcome(parameters, replace(noisy, plan=last), (*earlier, last.stage, *later))

    def release(self, statistics: Statistics, coins: Coins) -> NoisyStatistics:
        """Run the stages up to the tables. Every call is a release: the price must have been charged before."""
        if statistics.codebook != self.codebook:
            raise ConfigError("these statistics were not counted with the plan's codebook; count with plan.codebook")
        spent: list[Stage] = []
        reasons: list[str] = []
        counts = self._count_classes(statistics, coins, spent, reasons)
        if self.rows is not None:
            rows = self.rows
        else:
            rows = self.declared.max_rows if counts is None else min(counts.rows, self.declared.max_rows)
        stages, shapes = self.stages(rows), likely_shapes(self.declared)
        left = self.epsilon - self.class_epsilon - stages.reserved
        if stages.rules_alone:
            keep: frozenset[str] = frozenset()
        else:  # which features are kept is decided before any is looked at
            encodings = self.tables(left, counts, shapes).encodings
            keep = frozenset(each.feature for each in encodings if each.kind != "nothing")
        if (look := self.look(rows, keep)) is not None:
            left -= look.epsilon
            spent.append(look.stage(self.expected.unit))
            reasons.append(
                f"a first look at {len(look.features)} numbers for epsilon {float(look.epsilon):.3g}: equally full cells"
            )
            shapes = {**shapes, **look.shapes(statistics, rows, coins)}
        last = self.tables(left, counts, shapes, keep)
        why = (*reasons, self.expected.reasons[0], *last.reasons[1:])  # the mechanism was chosen by public facts
        return replace(last, reasons=why, stages=tuple(spent)).release(statistics, coins)

    def _count_classes(
        self, statistics: Statistics, coins: Coins, spent: list[Stage], reasons: list[str]
    ) -> NoisyClassCounts | None:
        if not self.class_epsilon:
            return None
        scale = self.expected.rows_per_unit / self.class_epsilon
        noise = samplers.discrete_laplace(coins, scale, len(self.declared.classes))
        exact = zip(statistics.class_counts, noise, strict=True)
        counts = NoisyClassCounts(tuple(int(count) + int(extra) for count, extra in exact), scale)
        spent.append(self._class_stage)
        reasons.append(f"class counts for epsilon {float(self.class_epsilon):.3g}, noise {counts.deviation:.3g} in each")
        return counts

    def tables(
        self,
        epsilon: Fraction,
        counts: NoisyClassCounts | None,
        shapes: Mapping[str, CellShape],
        keep: frozenset[str] | None = None,
    ) -> ReleasePlan:
        """Plan the tables from what the other stages left and released. Class counts of a weak stage are released again."""

        def plan(recount: bool) -> ReleasePlan:
            return plan_release(
                self.declared,
                epsilon=epsilon,
                delta=self.expected.price.delta,
                mechanism=self.name,
                rows=self.rows,
                rows_per_unit=self.expected.rows_per_unit,
                earlier=StageOutputs(self.codebook, counts, shapes, recount, keep),
            )

        once = plan(False)
        weak = self.rows is None and self._is_joint_cheaper(once.encodings, self.class_epsilon, epsilon)
        return plan(True) if weak else once

    # -- in words ----------------------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Return public facts for statements and reports."""
        planned: dict[str, Any] = {"class counts": float(self.class_epsilon)} if self.class_epsilon else {}
        names = ("first look", "last choice", "calibration")
        if self.rows is None:
            if_helpful = "if the noisy class counts say that it helps"
            planned |= dict.fromkeys(names if self.selects_model else names[:1], if_helpful)
        else:
            stages = self.stages(self.rows)
            planned_stages = zip(names, (self.look(self.rows), stages.model_selection, stages.calibration), strict=True)
            planned |= {name: float(each.epsilon) for name, each in planned_stages if each is not None}
        return {
            **self.expected.describe(),
            "epsilon": float(self.epsilon),
            "delta": self.price.delta,
            "declared_rows": self.rows,
            "stages": planned,
            "reasons": list(self.reasons),
        }

    def __str__(self) -> str:
        return "\n".join((f"{self.name}, {self.price}", *self.reasons))

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Reasons for the stages of the fit and the form of its tables."""
        stages = None if self.rows is None else self.stages(self.rows)
        selection = None if stages is None else stages.model_selection
        if stages is not None and stages.rules_alone and selection is not None:
            share = float(selection.epsilon / self.epsilon)
            why = f"noise would hide the tables: instead the rule by which most rows are right, for {share:.0%}"
            return (why, *self.expected.reasons)

        def share_of(epsilon: Fraction) -> float:
            return float(epsilon / self.epsilon)

        if self.class_epsilon:
            share = share_of(self.class_epsilon)
            reasons = [f"class counts first, for {share:.0%} of epsilon: what hides the largest class costs most"]
        else:
            reasons = ["class counts with the features, as one more number per class"]
        if stages is None or self.rows is None:
            reasons.append(
                "rows not declared: they are estimated from the noisy class counts, and the rest is planned for them"
            )
            return (*reasons, *([] if self.selects_model else [self._why_unselected]), *self.expected.reasons)
        if (look := self.look(self.rows)) is not None:
            share = share_of(look.epsilon)
            reasons.append(f"a first look at {len(look.features)} numbers, for {share:.0%}: then equally full cells")
        if selection is None:
            return (*reasons, self._why_unselected, *self.expected.reasons)
        share, mended = share_of(selection.epsilon), ", and which rule mends it" if selection.sides else ""
        reasons.append(f"last, how far the model is believed{mended}, by how many rows it gets right: for {share:.1%}")
        return (*reasons, *self.expected.reasons)

    @property
    def _why_unselected(self) -> str:
        why = "that needs rows at hand, one weight, no text"
        if self.selects_model:
            why = "too few rows for it, or too many to read again"
        return f"no last choice of how far the model is believed: {why}"

    def statement(
        self,
        stages: Sequence[Stage],
        composition: str | None = None,
        tuning: str | None = None,
        bounded: bool | None = None,
    ) -> PrivacyStatement:
        """Return the guarantee of a fit that had these stages.

        `composition` says what else the ledger holds, `tuning` how settings were chosen, and `bounded` whether the rows of a
        person were (None: the unit is a record).
        """
        return PrivacyStatement.for_release(
            self,
            sensitivity=SENSITIVITY,
            codebook=self.declared.sha256,
            data_domain=data_domain(self.declared) + persons_domain(self.expected.rows_per_unit, bounded),
            tuning=tuning,
            setting=Setting(composition=composition or ALONE),
            stages=stages,
        )


def likely_shapes(codebook: Codebook) -> dict[str, CellShape]:
    """Return cells of the numbers that were declared by their bounds alone, before anything is known of them."""
    return {
        each.name: likely_shape(each) if each.spacing == "linear" else public_shape(each)
        for each in codebook.features
        if isinstance(each, Numeric) and is_cut(each)
    }


def data_domain(codebook: Codebook) -> str:
    """Describe the tables that the guarantee is about."""
    numeric = sum(isinstance(feature, Numeric) for feature in codebook.features)
    return (
        f"Tables with a class column of {len(codebook.classes)} labels, {len(codebook.features) - numeric} categorical and "
        f"{numeric} numeric features, within the domains that the codebook declares, each column of one type that was not read "
        f"off its rows, of at most {codebook.max_rows:,} rows"
    )


def persons_domain(limit: int, bounded: bool | None) -> str:
    """Describe what is known of the rows of a person."""
    if bounded is None:
        return ""
    if bounded:
        return (
            f". Of each person, by the codebook's identifier, at most {limit} row(s) count, drawn at random, and no row "
            "without an identifier"
        )
    return f". That no person has more than {limit} row(s) was declared, not checked"
