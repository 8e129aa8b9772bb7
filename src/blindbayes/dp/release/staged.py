"""A private fit in stages, at one price: how many rows, which features, a first look, the release, a last choice.  [stages]

    plan = plan_stages(codebook, epsilon=1.0)                    # price, stages and reasons: no data is read
    noisy = plan.release(count(source, plan.codebook), coins)    # all stages but the last; the caller has charged the price
    parameters, noisy = plan.fit(statistics, rows, coins)        # the same, the model, and the last choice

Where nobody declared the number of rows, a noisy count of them comes first. Where features are many and rows few, a few of
the features are chosen (`privacy.choosing`). Where numbers were declared by their bounds
alone, pooled counts (over all classes) of a few cells show, with noise, where they lie; the release then takes cells that
are about equally full. Where rows are at hand, how far the model is believed, down to not at all, and which rule mends it
(`privacy.rules`) is chosen last, by how many rows are right then; where they are too few for any table, the model is made of
rules alone. A stage is left out where public facts, or the noise of the stage before, say that it would not
help; what it would have cost goes to the release. The stages' epsilons add up to the price exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.noise import samplers
from blindbayes.dp.noise.exact_events import Number, budget_floor, cost_ceiling
from blindbayes.dp.noise.knorm_histograms import NUMBER_VARIANCE, Classwise, ReleasePart
from blindbayes.dp.noise.mechanisms import Price
from blindbayes.dp.release.cells import CellShape, fine_codebook, is_cut, likely_shape, look_edges, public_shape, seen_shape
from blindbayes.dp.release.feature_weights import Weighing
from blindbayes.dp.release.noisy_parameters import fit_parameters
from blindbayes.dp.release.planner import FEWEST, Seen, _signal, plan_release
from blindbayes.dp.release.release_plan import CENTRED, Cut, NoisyStatistics, ReleasePlan, Sized
from blindbayes.dp.release.selection import LastChoice, Screen
from blindbayes.dp.release.stumps import Sides, all_sides
from blindbayes.errors import ConfigError
from blindbayes.statistics import CodedRows, Statistics
from blindbayes.statistics.parameters import Parameters

Floats = npt.NDArray[np.float64]
CLASS_SHARES = (Fraction(2, 100), Fraction(20, 100))
"""Least and largest share of epsilon for the class counts."""
UNDECLARED_SHARE = Fraction(6, 100)
ENOUGH = 40
"""Rows times epsilon that the class counts get: noise in one is then a thirtieth of the rows."""
FEW = 25
"""Rows times epsilon below which class counts cannot be told apart for the largest share: they get half of it then."""
JOINT_NOISE = 1.2
"""Class counts are released with the features, as one more number per class, where that costs at most this many times the
noise of a stage of their own: it takes one dimension of noise from the features instead of a share of epsilon."""
LOOK_SHARE = Fraction(8, 100)
LOOK_NOISE = 0.15
"""Noise of a share in the look, averaged over the numbers, above which a look is left out."""
SCREEN_SHARE = Fraction(20, 100)
SCREEN_ROWS = 20
"""Rows times the epsilon of one choice among features: it then prefers one that is right for a tenth more rows by e^2."""
SCREEN_PART = Fraction(1, 2)
"""The largest part of the features that is worth choosing."""
PURE_PART = Fraction(1, 4)
"""The largest part that is chosen, with pure noise, although Gaussian noise could bear all of them."""
SCREEN_FROM, SCREEN_BESIDE_RULES = 12, 24
"""Features from which on it is worth to choose some: noise in fewer is small where rows are enough to choose. A rule finds the
one that tells most by itself, so that where rules are tried it takes more of them."""
SCREEN_CLASSES = 3
"""Classes up to which a rule on one feature says what the feature is worth: of many classes it can only name a few."""
MOST_READ = 200_000
"""Rows of a source up to which they are read, or read again, for a last choice; a larger one is counted where it lies."""
CHOICE_SHARE = Fraction(5, 100)
CHOICE_ROWS = (40, 400)
"""Rows times the epsilon of the last choice: below the first it could not tell a good model from a bad one, above the second
it would tell apart what makes no difference."""
ALONE_SHARE = Fraction(9, 10)
ALONE_ROWS = 320
"""Rows times epsilon below which a model of two classes is made of rules alone: noise would hide most features' tables."""
ALONE_FROM, ALONE_EACH = 80, (5, 1)
"""With three classes, or more, rules alone say too little to replace tables, unless these are buried: from so many rows times
epsilon on, where there are fewer than so many for each feature and class."""
SECOND_RULE = 160
"""Rows times epsilon from which on a second rule is worth half of what is spent on rules."""
RULE_SHARES = (Fraction(30, 100), Fraction(50, 100))
RULE_ROWS = (320, 1500, 10_000)
"""Where a rule may mend a model: from so many rows times epsilon on, a choice among all rules gets as many of them, within its
shares; at most the second; above the last there is hardly anything left to mend, and scoring all rules would take its time."""
RULE_CLASSES, SPLIT_CLASSES = 6, 3
"""Classes up to which one rule changes much, and up to which it may take the place of a model."""
WEIGH_SHARE = Fraction(15, 100)
WEIGH_ROWS = (16, 160)
"""Rows times the epsilon of weights, for each feature and class: below the first noise hides them, above the second they are
known well enough."""
BELIEF = 0.1
"""Weight of what was believed before the look."""


@dataclass(frozen=True)
class Look:
    """A first look: pooled counts of the numbers nobody declared more of than their bounds."""

    features: tuple[Numeric, ...]
    epsilon: Fraction
    rows_per_unit: int

    @cached_property
    def noise(self) -> Classwise:
        """Its noise: that of one class with these histograms, of which a record moves one cell each."""
        return Classwise(
            tuple(ReleasePart(each.name, self._cells(each)) for each in self.features), self.epsilon, self.rows_per_unit
        )

    @staticmethod
    def _cells(feature: Numeric) -> int:
        return len(look_edges(feature)) - 1 + feature.optional

    def tables(self, statistics: Statistics) -> list[npt.NDArray[Any]]:
        """The exact counts that noise is added to: (1, cells), with a last cell for rows without a value."""
        rows = statistics.class_counts.astype(object).sum()
        out = []
        for feature in self.features:
            counts = statistics.counts[feature.name].astype(object).sum(axis=0)
            joined = np.add.reduceat(counts, look_edges(feature)[:-1])
            out.append((np.append(joined, rows - counts.sum()) if feature.optional else joined)[None, :])
        return out

    def release(self, statistics: Statistics, coins: Coins) -> list[Floats]:
        """The counts with noise, each histogram up to a constant."""
        return [table[0] for table in self.releases(statistics, coins, 1)]

    def releases(self, statistics: Statistics, coins: Coins, count: int) -> list[Floats]:
        """`count` independent looks, along the first axis: for audits. Each costs the price."""
        return [table[:, 0] for table in self.noise.releases(self.tables(statistics), [1] * len(self.features), coins, count)]

    def deviations(self) -> Floats:
        """Of the noise in a cell of each histogram, in counts."""
        return np.sqrt(self.noise.variances())

    def shapes(self, seen: list[Floats], rows: float) -> dict[str, CellShape]:
        """Where the numbers lie: shares of the cells, drawn to those of numbers alike as far as noise may have made them."""
        rows = max(rows, 1.0)
        noise = self.deviations() / rows
        sizes = [len(look_edges(feature)) - 1 for feature in self.features]
        level = [1 / len(table) + table / rows for table in seen]
        shares = {}
        for size in set(sizes):
            alike = [at for at, each in enumerate(sizes) if each == size]
            table = np.array([level[at][:size] for at in alike])
            error = float(np.mean(noise[alike] ** 2))
            centre = _shrunk(table.mean(axis=0), np.full(size, 1 / size), error / len(alike))
            spread = max(0.0, float(((table - centre) ** 2).mean()) - error)
            table = centre + spread / (spread + error + 1e-12) * (table - centre)
            for at, row in zip(alike, np.maximum(table, 0), strict=True):
                shares[self.features[at].name] = (1 - BELIEF) * row / max(row.sum(), 1e-9) + BELIEF / size
        return {feature.name: seen_shape(feature, shares[feature.name]) for feature in self.features}


def _shrunk(values: Floats, towards: Floats, error: float) -> Floats:
    away = values - towards
    signal = float((away**2).mean())
    return towards + max(0.0, 1 - error / max(signal, 1e-12)) * away


@dataclass(frozen=True)
class StagedPlan:
    """A release whose last stage is planned by the noisy outcome of the ones before. `expected` is its likely last stage."""

    expected: ReleasePlan
    codebook: Codebook
    epsilon: Fraction
    rows: int | None
    chooses: bool = False  # rows are at hand for a last choice
    most_read: int | None = None  # noisy rows beyond which they are not: those of a source are read again for it
    rules: bool = False  # rules may mend the model or take its place

    @property
    def declared(self) -> Codebook:
        """The codebook as declared."""
        return self.expected.declared

    @property
    def mechanism(self) -> str:
        """That of the last stage."""
        return self.expected.mechanism

    @property
    def delta(self) -> float:
        """That of the last stage: the others have none."""
        return self.expected.price.delta

    @property
    def rows_per_unit(self) -> int:
        """How many rows one person may have."""
        return self.expected.rows_per_unit

    @property
    def unit(self) -> str:
        """What is protected, in words."""
        return self.expected.unit

    @property
    def price(self) -> Price:
        """What all stages cost together."""
        return Price(cost_ceiling(self.epsilon), self.delta, self.unit)

    def describe(self) -> dict[str, Any]:
        """Public facts for statements and reports."""
        stages: dict[str, Any] = {"class counts": float(self.class_epsilon)} if self.class_epsilon else {}
        for name, stage in (
            ("choice of features", self.screen),
            ("first look", self.look),
            ("weights of features", self.weighing),
            ("last choice", self.choice),
        ):
            if self.rows is None and (name in ("choice of features", "first look") or self.chooses):
                stages[name] = "if the noisy class counts say that it helps"
            elif self.rows is not None and (found := stage(self.rows)) is not None:
                stages[name] = float(found.epsilon)
        return {
            **self.expected.describe(),
            "epsilon": float(self.epsilon),
            "delta": self.delta,
            "declared_rows": self.rows,
            "stages": stages,
            "reasons": list(self.reasons),
        }

    def __str__(self) -> str:
        return "\n".join((f"{self.mechanism}, {self.price}", *self.reasons))

    @cached_property
    def reasons(self) -> tuple[str, ...]:
        """Why it has these stages, and why its last one is as it is."""
        whole, rows = self.epsilon, self.rows
        if rows is not None and self.alone(rows) and (choice := self.choice(rows)) is not None:
            many = "rule" if choice.steps == 1 else f"{choice.steps} rules"
            why = f"noise would hide the tables: instead the {many} by which most rows are right, for {float(ALONE_SHARE):.0%}"
            return (why, *self.expected.reasons)
        share = float(self.class_epsilon / whole)
        told = [f"class counts first, for {share:.0%} of epsilon: what hides the largest class costs most"]
        if not share:
            told = ["class counts with the features, as one more number per class: cheaper than a stage of their own"]
        if rows is None:
            told.append("rows not declared: they are estimated from the noisy class counts, and the rest is planned for them")
        elif (look := self.look(rows)) is not None:
            part = float(look.epsilon / whole)
            told.append(f"a first look at {len(look.features)} numbers, for {part:.0%}: then equally full cells")
        if rows is not None and (screen := self.screen(rows)) is not None:
            part = float(screen.epsilon / whole)
            told.append(f"the {screen.keep} of {len(screen.features)} features that tell most, for {part:.0%}")
        if rows is not None and (choice := self.choice(rows)) is not None:
            if (weighing := self.weighing(rows)) is not None:
                told.append(f"how much features are worth beside each other: for {float(weighing.epsilon / whole):.1%}")
            part, mended = float(choice.epsilon / whole), ", and which rule mends it" if choice.sides else ""
            told.append(f"last, how far the model is believed{mended}, by how many rows it gets right: for {part:.1%}")
        elif rows is not None or not self.chooses:
            told.append(self._unchosen)
        return (*told, *self.expected.reasons)

    @cached_property
    def class_epsilon(self) -> Fraction:
        """What a stage of their own costs the class counts; 0 where they are released with the features."""
        if self.rows is None:
            return UNDECLARED_SHARE * self.epsilon
        if self.alone(self.rows):
            return Fraction(0)
        whole = self.before_rules(self.rows)
        least, most = (share * whole for share in CLASS_SHARES)
        if most * self.rows < FEW * self.rows_per_unit:
            most /= 2
        share = max(least, min(most, Fraction(ENOUGH * self.rows_per_unit, self.rows)))
        return Fraction(0) if self._joint(self._likely_cuts, share, whole) else share

    @cached_property
    def _likely_cuts(self) -> tuple[Cut, ...]:
        """How features are likely to be released where the number of rows is declared."""
        screen = None if self.rows is None else self.screen(self.rows)
        some = None if screen is None else frozenset(screen.features[: screen.keep])
        whole = self.epsilon if self.rows is None else self.before_rules(self.rows)
        return self.last(whole, None, likely_shapes(self.declared), some, screen is not None).cuts

    def _joint(self, cuts: Sequence[Cut], own: Fraction, epsilon: Fraction) -> bool:
        """Whether class counts are better released with these features, for `epsilon`, than for `own` in a stage."""
        if self.mechanism not in CENTRED:
            return False
        if self.mechanism != "knorm":
            noise = replace(self.expected, cuts=tuple(cuts), epsilon=epsilon).deviations[0]
            return noise <= JOINT_NOISE * math.sqrt(2) / float(own)
        dimension = sum(cut.cells - 1 for cut in cuts if cut.kind == "cells" and cut.cells > 1)
        moments = sum(2 for cut in cuts if cut.kind == "moments")
        noise = math.sqrt(NUMBER_VARIANCE) * (dimension + moments + 2) / float(epsilon)
        return noise <= JOINT_NOISE * math.sqrt(2) / float(own)

    def screen(self, rows: int) -> Screen | None:
        """The choice of a few features by the rows of a table of about this size, if there are many."""
        whole = self.before_rules(rows)
        epsilon, fewest = SCREEN_SHARE * whole, SCREEN_FROM if whole == self.epsilon else SCREEN_BESIDE_RULES
        keep = math.floor(rows * epsilon / (SCREEN_ROWS * self.rows_per_unit))
        names = tuple(cut.feature for cut in self.expected.cuts if cut.kind in ("cells", "moments"))
        fit = self.mechanism == "knorm" and len(self.declared.classes) <= SCREEN_CLASSES and len(names) >= fewest
        fit = fit and FEWEST <= keep <= SCREEN_PART * len(names) and not self.alone(rows)
        return Screen(names, keep, epsilon, self.rows_per_unit) if fit else None

    def alone(self, rows: int) -> bool:
        """Whether the model of a table of about this many rows is made of rules alone: only class counts are released."""
        size, classes = self._size(rows), len(self.declared.classes)
        if not self.rules or not self._reads(rows) or size >= ALONE_ROWS or classes < 2:
            return False
        each = classes * len(self.declared.features)
        return classes == 2 or (size >= ALONE_FROM and size < ALONE_EACH[classes > SPLIT_CLASSES] * each)

    def choice(self, rows: int) -> LastChoice | None:
        """The last choice from a table of about this many rows, if it helps."""
        if not self._reads(rows):
            return None
        size, classes = self._size(rows), len(self.declared.classes)
        if self.alone(rows):
            steps = 1 if classes == 2 and size < SECOND_RULE else 2
            return LastChoice(ALONE_SHARE * self.epsilon, self.rows_per_unit, self._sides, alone=True, steps=steps)
        if self.rules and classes <= RULE_CLASSES and RULE_ROWS[0] <= size < RULE_ROWS[2]:
            least, most = RULE_SHARES if classes <= SPLIT_CLASSES else RULE_SHARES[:1] * 2
            share = min(most, max(least, RULE_ROWS[0] / size), RULE_ROWS[1] / size)
            return LastChoice(share * self.epsilon, self.rows_per_unit, self._sides, splits=classes <= SPLIT_CLASSES)
        least, most = (Fraction(each * self.rows_per_unit, rows) for each in CHOICE_ROWS)
        epsilon = min(CHOICE_SHARE * self.epsilon, most)
        return LastChoice(epsilon, self.rows_per_unit) if epsilon >= least else None

    def before_rules(self, rows: int) -> Fraction:
        """Epsilon of all stages but a choice among rules, of which the others take their shares."""
        choice = self.choice(rows)
        return self.epsilon if choice is None or not choice.sides else self.epsilon - choice.epsilon

    def _size(self, rows: int) -> Fraction:
        """Rows times epsilon, of persons with so many rows each."""
        return rows * self.epsilon / self.rows_per_unit

    def _reads(self, rows: int) -> bool:
        return self.chooses and (self.most_read is None or rows <= self.most_read)

    @cached_property
    def _sides(self) -> tuple[Sides, ...]:
        return all_sides(self.declared, self.codebook)

    def weighing(self, rows: int) -> Weighing | None:
        """Weights of features, as candidates of the last choice, if rows are enough to tell them."""
        if self.choice(rows) is None or self.alone(rows):
            return None
        screen = self.screen(rows)
        features = sum(cut.kind != "nothing" for cut in self.expected.cuts) if screen is None else screen.keep
        numbers = (features + len(self.declared.classes)) * self.rows_per_unit
        least, most = (Fraction(each * numbers, rows) for each in WEIGH_ROWS)
        epsilon = min(WEIGH_SHARE * self.before_rules(rows), most)
        return Weighing(epsilon, self.rows_per_unit, rows) if epsilon >= least else None

    def kept_back(self, rows: int) -> Fraction:
        """What a release leaves for the stages after it, from a table of about this many rows."""
        return sum((each.epsilon for each in (self.weighing(rows), self.choice(rows)) if each is not None), Fraction(0))

    def look(self, rows: int, kept: frozenset[str] | None = None) -> Look | None:
        """The first look at a table of about this many rows, if it helps."""
        return _look(self.declared, LOOK_SHARE * self.before_rules(rows), self.rows_per_unit, rows, kept)

    def fit(
        self, statistics: Statistics, rows: CodedRows | Callable[[], CodedRows] | None, coins: Coins, alpha: float = 1.0
    ) -> tuple[Parameters, NoisyStatistics]:
        """All stages and the model. `rows` are those of the statistics, or what reads them, for a last choice; None where there
        is none."""
        noisy = self.release(statistics, coins)
        parameters = fit_parameters(noisy, alpha=alpha)
        choice, spent, told = self.choice(noisy.plan.planned_rows), noisy.plan.stages, self._unchosen
        if choice is not None:
            if rows is None:
                raise ConfigError("the last choice needs the rows; plan without it")
            there = rows() if callable(rows) else rows
            weighing = self.weighing(noisy.plan.planned_rows)
            others: Sequence[Parameters] = ()
            if weighing is not None:
                others = weighing.models(parameters, there, coins)
                spent = (*spent, ("weights of features", weighing.epsilon))
            parameters, which = choice.choose(parameters, there, coins, others)
            spent = (*spent, ("last choice", choice.epsilon))
            told = f"{which}, by how many rows are right then, for epsilon {float(choice.epsilon):.3g}"
        last = replace(noisy.plan, reasons=(*noisy.plan.reasons, told), stages=spent)
        return parameters, replace(noisy, plan=last)

    @property
    def _unchosen(self) -> str:
        """Why there is no last choice."""
        why = (
            "too few rows for it, or too many to read again" if self.chooses else "that needs rows at hand, one weight, no text"
        )
        return f"no last choice of how far the model is believed: {why}"

    def release(self, statistics: Statistics, coins: Coins) -> NoisyStatistics:
        """All stages but the last choice. Every call is a release of its own: the price must have been charged before."""
        if statistics.codebook != self.codebook:
            raise ConfigError("these statistics were not counted with the plan's codebook; count with plan.codebook")
        sized, told, stages = None, [], {}
        if self.class_epsilon:
            stages["class counts"] = self.class_epsilon
            scale = self.rows_per_unit / self.class_epsilon
            noise = samplers.discrete_laplace(coins, scale, len(self.declared.classes))
            counts = [int(exact) + int(extra) for exact, extra in zip(statistics.class_counts, noise, strict=True)]
            sized = Sized(tuple(counts), scale)
            told.append(f"class counts for epsilon {float(self.class_epsilon):.3g}, noise {sized.deviation:.3g} in each")
        found = self.declared.max_rows if sized is None else min(sized.rows, self.declared.max_rows)
        rows = found if self.rows is None else self.rows
        screen = self.screen(rows)
        left = self.epsilon - self.class_epsilon - self.kept_back(rows)
        shapes: Mapping[str, CellShape] = likely_shapes(self.declared)
        if screen is not None:
            stages["choice of features"] = screen.epsilon
            told.append(
                f"{screen.keep} of {len(screen.features)} features, those that tell most by themselves, for epsilon "
                f"{float(screen.epsilon):.3g}"
            )
            left -= screen.epsilon
            kept = screen.choose(statistics, coins)
        elif self.alone(rows):
            kept = frozenset()
        else:  # which features are left in is decided before any is looked at
            cuts = self.last(left, sized, shapes).cuts
            kept = frozenset(cut.feature for cut in cuts if cut.kind != "nothing")
        look = self.look(rows, kept)
        if look is not None:
            stages["first look"] = look.epsilon
            left -= look.epsilon
            told.append(
                f"a first look at {len(look.features)} numbers for epsilon {float(look.epsilon):.3g}: equally full cells"
            )
            shapes = {**shapes, **look.shapes(look.release(statistics, coins), rows)}
        last = self.last(left, sized, shapes, kept, screen is not None)
        reasons = (*told, self.expected.reasons[0], *last.reasons[1:])  # the mechanism was chosen by public facts
        return replace(last, reasons=reasons, stages=tuple(stages.items())).release(statistics, coins)

    def last(
        self,
        epsilon: Fraction,
        sized: Sized | None,
        shapes: Mapping[str, CellShape],
        kept: frozenset[str] | None = None,
        chosen: bool = False,
    ) -> ReleasePlan:
        """The release itself, from what the others left and found. Class counts of a weak stage are released again."""

        def plan(recounted: bool) -> ReleasePlan:
            return plan_release(
                self.declared,
                epsilon=epsilon,
                delta=self.delta,
                mechanism=self.mechanism,
                rows=self.rows,
                rows_per_unit=self.rows_per_unit,
                seen=Seen(self.codebook, sized, shapes, recounted, kept, chosen),
            )

        found = plan(False)
        weak = self.rows is None and self._joint(found.cuts, self.class_epsilon, epsilon)
        return plan(True) if weak else found


def likely_shapes(codebook: Codebook) -> dict[str, CellShape]:
    """Cells of numbers that were declared by their bounds alone, before anything is known of them."""
    return {
        each.name: likely_shape(each) if each.spacing == "linear" else public_shape(each)
        for each in codebook.features
        if isinstance(each, Numeric) and is_cut(each)
    }


def _look(codebook: Codebook, epsilon: Fraction, rows_per_unit: int, rows: float, kept: frozenset[str] | None) -> Look | None:
    features = tuple(
        each
        for each in codebook.features
        if (kept is None or each.name in kept)
        and isinstance(each, Numeric)
        and each.bins is None
        and each.width > 3
        and each.spacing == "linear"
    )
    if not features:
        return None
    look = Look(features, epsilon, rows_per_unit)
    noise = float(np.sqrt((look.deviations() ** 2).mean())) / rows / math.sqrt(len(features))
    return look if noise <= LOOK_NOISE else None


def plan_stages(
    codebook: Codebook,
    *,
    epsilon: Number,
    delta: float = 0.0,
    mechanism: str | None = None,
    rows: int | None = None,
    rows_per_unit: int = 1,
    chooses: bool = False,
    most_read: int | None = None,
) -> StagedPlan:
    """The release for this codebook and budget, in as many stages as public facts ask for.

    `chooses`: `StagedPlan.fit` will be called with the rows, so that a part may be kept for a last choice; if there are no more
    than `most_read` of them, by what was declared or by the noisy class counts. `mechanism` is for tests: a named one releases
    tables, never rules.
    """
    exact = budget_floor(epsilon)

    def staged(delta: float) -> StagedPlan:
        expected = plan_release(
            codebook, epsilon=exact, delta=delta, mechanism=mechanism, rows=rows, rows_per_unit=rows_per_unit, staged=True
        )
        reads = chooses and not codebook.texts
        plan = StagedPlan(expected, fine_codebook(codebook), exact, expected.rows, reads, most_read, mechanism is None)
        if plan.rows is not None and most_read is not None:
            plan = replace(plan, chooses=plan.chooses and plan.rows <= most_read, most_read=None)
        return plan

    plan = staged(delta)
    if plan.rows is not None and plan.alone(plan.rows):  # class counts need no delta
        left = plan.epsilon - plan.kept_back(plan.rows)
        plan = staged(0.0)
        last = plan.last(left, None, likely_shapes(codebook), frozenset())
        return replace(plan, expected=replace(last, reasons=(*plan.expected.reasons[:1], *last.reasons[1:])))
    if mechanism is None and plan.delta and plan.rows is not None:  # chosen features may be few enough for pure noise
        pure = staged(0.0)
        screen = pure.screen(plan.rows)
        if screen is not None and screen.keep <= PURE_PART * len(screen.features):
            cuts = pure._likely_cuts
            own, other = (_signal(replace(each.expected, cuts=cuts), plan.rows, average_cell=True) for each in (pure, plan))
            return pure if own > other else plan
    return plan
