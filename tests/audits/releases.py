"""The audit of the joint release as it is shipped: the plan that `NaiveBayes` and the command line use.

Part 4 enumerates records and checks the integers before noise in the norm that the noise is calibrated to. Part 2 draws
whole releases of small tables that differ by one record and looks, beside every number released, at the likelihood ratio
that the plan's own norm suggests: if the noise is smaller or of another shape than planned, that ratio shows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Codebook, Numeric, Text
from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.sensitivity import IntVector, Sensitivity
from blindbayes.dp.audit.empirical import Check, Claim
from blindbayes.dp.audit.lower_bounds import Bound, epsilon_lower
from blindbayes.dp.noise.centred_gaussian import CentredGaussian
from blindbayes.dp.noise.exact_events import Number, below, budget_floor
from blindbayes.dp.noise.gaussian import length_delta, length_for
from blindbayes.dp.noise.knorm_histograms import Centred, Classwise
from blindbayes.dp.noise.mechanisms import Mechanism
from blindbayes.dp.release.calibration import AnswerTable, CalibrationTable
from blindbayes.dp.release.coarse_histograms import CoarseHistograms
from blindbayes.dp.release.forecast import noisy_answers
from blindbayes.dp.release.private_fit import FitPlan, plan_fit
from blindbayes.dp.release.release_plan import WITH_DELTA, ReleasePlan
from blindbayes.dp.release.selection import ModelSelection, permute_and_flip
from blindbayes.dp.release.stumps import all_sides, splits
from blindbayes.errors import ConfigError
from blindbayes.statistics import CodedRows, Statistics
from blindbayes.statistics.layout import Layout
from blindbayes.statistics.parameters import estimate
from blindbayes_papers.mechanism_audit import LESS_NOISE, control_check, loss_check
from blindbayes_papers.sensitivity_audit import Record, records, statistics_of

Floats = npt.NDArray[np.float64]
Tables = Sequence[npt.NDArray[Any]]
DRAWS = 60_000

HARD_BOOK = Codebook(
    "y",
    ("a",),  # noise of other classes would only slow the attack down
    (Categorical("u", ("p", "q"), optional=True), Numeric("x", 1000, 1001, precision=0.25, bins=3)),
    max_rows=1000,
)
"""Small enough for the loss of a single record to show, with a cell for missing values and bounds far from zero."""


TEXT_BOOK = Codebook(
    "y",
    ("a",),
    (Text("t", ("p", "q"), max_words=3), Text("s", ("p", "q", "r", "s"), model="bernoulli", max_words=4, optional=True)),
    max_rows=1000,
)
"""Documents, of which one record moves several cells: by their bound together, or one by one up to so many."""
SHORT_BOOK = Codebook("y", ("a",), (Text("t", ("p", "q"), model="bernoulli", max_words=2),), max_rows=1000)
"""Text for which the loss of a single record shows: it moves both cells."""


@dataclass(frozen=True)
class PlannedTables:
    """The exact integers of a plan, before its independent noise is added."""

    plan: ReleasePlan

    @property
    def codebook(self) -> Codebook:
        return self.plan.codebook

    @property
    def sensitivity(self) -> Sensitivity:
        if not isinstance(self.plan.noise, Mechanism):
            raise ConfigError(f"{self.plan.mechanism} has a norm of its own: audit a plan with discrete_laplace")
        return self.plan.noise.sensitivity

    def apply(self, vector: IntVector) -> IntVector:
        tables = self.plan.tables(Statistics(Layout(self.codebook), np.asarray(vector)))
        return np.concatenate([table.ravel() for table in tables])


def exact_tables(plan: ReleasePlan, table: Sequence[Record]) -> Tables:
    """The integers that the plan adds noise to, for a table of records of its codebook."""
    layout = Layout(plan.codebook)
    return plan.tables(Statistics(layout, statistics_of(plan.codebook, table)))


def part_norms(plan: ReleasePlan, tables: Sequence[npt.NDArray[Any]]) -> Floats:
    """The norm of each part in each class: (parts, ..., classes).

    A number: its absolute value. A histogram under class-wise noise: its least L1 norm up to a constant; otherwise its L1 norm.
    Words under Gaussian noise: their Euclidean norm. Histograms under Gaussian noise in the quotient: the least one up to a
    constant.
    """
    centred, least = isinstance(plan.noise, Classwise), isinstance(plan.noise, CentredGaussian)
    out = []
    for item, table in zip(plan.items, tables, strict=True):
        values = np.asarray(table, dtype=np.float64)
        if not item.number and centred:
            values = values - np.sort(values, axis=-1)[..., [(values.shape[-1] - 1) // 2]]
        elif not item.number and least:
            values = values - values.mean(axis=-1, keepdims=True)
        euclid = least or (item.kind == "words" and plan.mechanism == "discrete_gaussian")
        out.append(np.sqrt((values**2).sum(axis=-1)) if euclid else np.abs(values).sum(axis=-1))
    return np.array(out)


def audit_plan_sensitivity(plan: ReleasePlan, where: str = "") -> Iterator[Check]:
    """Part 4: no record moves two classes, nor any part by more than its bound; and the bound is reached."""
    space = records(plan.codebook)
    empty = exact_tables(plan, [])
    bounds = np.array([item.bound for item in plan.items], dtype=np.float64)
    steps = np.array(plan.noise.steps) if isinstance(plan.noise, CentredGaussian) else np.zeros(len(bounds))
    worst, classes, longest = np.zeros(len(bounds)), 0, 0.0
    for record in space:
        change = [after - before for after, before in zip(exact_tables(plan, [record]), empty, strict=True)]
        moved = {int(row) for part in change for row in np.flatnonzero(np.any(part != 0, axis=1))}
        classes = max(classes, len(moved))
        moved_by = part_norms(plan, change).sum(axis=1)
        worst, longest = np.maximum(worst, moved_by), max(longest, float(((steps * moved_by / bounds) ** 2).sum()))
    label = f"{plan.mechanism} plan{', ' + where if where else ''}"
    yield Check("sensitivity", f"{label}: classes moved by a record", classes <= 1, f"{classes} of 1 allowed", classes, 1)
    for item, seen, bound in zip(plan.items, worst, bounds, strict=True):
        found = f"largest change {seen:g} of {bound:g} allowed, {len(space)} records"
        yield Check("sensitivity", f"{label}: {item.name} {item.kind}", bool(seen <= bound), found, float(seen), float(bound))
    if isinstance(plan.noise, Centred):
        lifted = [table if item.number else table + 1 for item, table in zip(plan.items, empty, strict=True)]
        one, other = (
            plan.noise.release(each, [item.bound for item in plan.items], Coins.seeded(bytes(32))) for each in (empty, lifted)
        )
        same = all(np.array_equal(*pair) for pair in zip(one, other, strict=True))
        found = "a constant added to all cells changes nothing" if same else "the constant of a histogram is told"
        yield Check("sensitivity", f"{label}: histograms up to a constant", same, found)
    if isinstance(plan.noise, CentredGaussian):
        allowed = float(plan.noise.squared_length) * (1 + 1e-9)
        found = f"largest {longest:.6g} of {allowed:.6g} grid points squared allowed"
        yield Check("sensitivity", f"{label}: length of a record's change", longest <= allowed, found, longest, allowed)


def audit_plan_loss(plan: ReleasePlan, coins: Coins, draws: int = DRAWS, where: str = "") -> Iterator[Check]:
    """Part 2 for a plan of pure noise, or of Gaussian noise in the quotient: whole releases of neighbouring tables."""
    promised = [Claim(float(plan.epsilon), plan.price.delta)]
    if isinstance(plan.noise, CentredGaussian):  # tested where samples can: what sound noise of this price has there
        small = promised[0].epsilon / 10
        promised.append(Claim(small, length_delta(length_for(promised[0].epsilon, plan.delta), small)))
    record = _largest(plan)
    label = f"{plan.mechanism} plan{', ' + where if where else ''}"
    for claim in promised:
        yield loss_check(f"{label}: last record", claim, partial(attack_plan, plan, [record], [], claim, coins, draws))
    weak = partial(attack_plan, replace(plan, epsilon=plan.epsilon * LESS_NOISE), [record], [], claim, coins, draws)
    yield control_check(f"{label}: control with a fifth less noise is refuted", claim, weak)


def _largest(plan: ReleasePlan) -> Record:
    """The record that moves most, each part in units of its bound."""
    bounds = np.array([item.bound for item in plan.items], dtype=np.float64)
    return max(
        records(plan.codebook), key=lambda each: float((part_norms(plan, exact_tables(plan, [each]))[:, 0] / bounds).sum())
    )


def attack_plan(
    plan: ReleasePlan, first: Sequence[Record], second: Sequence[Record], claim: Claim, coins: Coins, draws: int
) -> Bound:
    """A lower bound on epsilon of whole releases of two tables."""
    layout = Layout(plan.codebook)
    exact = [exact_tables(plan, table) for table in (first, second)]
    outputs = []
    for table in (first, second):
        statistics = Statistics(layout, statistics_of(plan.codebook, table))
        noisy = plan.releases(statistics, coins, draws)
        gain = exponent(plan, noisy, exact[1]) - exponent(plan, noisy, exact[0])
        columns = [part.reshape(draws, -1) for part in noisy] + [gain[:, None]]
        outputs.append(np.round(np.hstack(columns), 9))  # what is equal stays equal through the sums of the norms
    names = [f"number {index}" for index in range(outputs[0].shape[1] - 1)] + ["planned likelihood ratio"]
    return epsilon_lower(*outputs, delta=claim.delta, names=names, learn=False)


def exponent(plan: ReleasePlan, noisy: Sequence[Floats], exact: Tables) -> Floats:
    """The exponent of the planned law at the distance between releases (along the first axis) and the exact tables."""
    distance = []
    for item, part, table in zip(plan.items, noisy, exact, strict=True):
        values = np.asarray(table, dtype=np.float64) / item.bound
        if not item.number and isinstance(plan.noise, Centred):
            values = values - values.mean(axis=1, keepdims=True)  # as released: up to a constant
        distance.append(part - values)
    norms = part_norms(plan, distance)  # (parts, draws, classes)
    if isinstance(plan.noise, CentredGaussian):
        norms = norms * (np.array(plan.noise.steps) / max(plan.noise.steps))[:, None, None]
    if plan.mechanism in WITH_DELTA:
        return np.asarray((norms**2).sum(axis=(0, 2)))
    if not isinstance(plan.noise, Classwise):
        return np.asarray(norms.sum(axis=(0, 2)))
    total = np.zeros(norms.shape[1])
    for group in plan.noise.groups:
        total += float(group.epsilon) * norms[list(group.parts)].max(axis=0).sum(axis=1)
    return total


# -- stages --------------------------------------------------------------------------------------------------------------

STAGED_BOOK = Codebook(
    "y",
    ("a", "b"),
    (Numeric("x", 0, 100_000, optional=True), Categorical("u", ("p", "q")), Numeric("z", -50, 50)),
    max_rows=10**6,
)
"""Numbers that nobody declared more of than their bounds, wide and narrow, with and without gaps."""
LOOKED_BOOK = Codebook("y", ("a",), (Numeric("x", 0, 100_000, optional=True),), max_rows=10**6)


def audit_stages(
    coins: Coins, epsilon: Number, draws: int = DRAWS, look: type[CoarseHistograms] = CoarseHistograms
) -> Iterator[Check]:
    """The stages before a release: what a record moves in each, the loss of the look, and that their epsilons add up."""
    plan = plan_fit(STAGED_BOOK, epsilon=epsilon)
    seen = look(tuple(each for each in STAGED_BOOK.features if isinstance(each, Numeric)), plan.epsilon, 1)
    layout = Layout(plan.codebook)
    counts = moved = 0
    worst = np.zeros(len(seen.features))
    space = records(plan.codebook)
    for record in space:
        statistics = Statistics(layout, statistics_of(plan.codebook, [record]))
        counts = max(counts, int(np.abs(statistics.class_counts.astype(np.int64)).sum()))
        tables = [np.asarray(table, dtype=np.int64) for table in seen.tables(statistics)]
        moved = max(moved, *(int(np.abs(table).max()) for table in tables))
        worst = np.maximum(worst, [np.abs(table).sum() for table in tables])
    found = f"largest change {counts} of 1 allowed, {len(space)} records"
    yield Check("sensitivity", "stages: class counts", counts <= 1, found, counts, 1)
    for feature, change in zip(seen.features, worst, strict=True):
        found = f"largest change {change:g} of 1 allowed, {len(space)} records"
        yield Check("sensitivity", f"stages: first look at {feature.name}", bool(change <= 1), found, float(change), 1)
    for rows in (None, 10, 10**6):
        spent = spent_by(plan_fit(STAGED_BOOK, epsilon=epsilon, rows=rows, select_model=True), coins)
        name = f"stages: epsilons with {'undeclared' if rows is None else rows} rows"
        allowed = budget_floor(epsilon)
        found = f"{float(spent):.9g} spent of {float(allowed):g}"
        yield Check("sensitivity", name, spent <= allowed, found, float(spent), float(allowed))
    claim = Claim(float(budget_floor(epsilon)), 0.0)
    alone = look((next(each for each in LOOKED_BOOK.features if isinstance(each, Numeric)),), budget_floor(epsilon), 1)
    yield loss_check("first look: last record", claim, partial(attack_look, alone, claim, coins, draws))
    weak = partial(attack_look, replace(alone, epsilon=alone.epsilon * LESS_NOISE), claim, coins, draws)
    yield control_check("first look: control with a fifth less noise is refuted", claim, weak)


CHOICE_BOOK = Codebook(
    "y", ("a", "b", "c"), (Categorical("u", ("p", "q"), optional=True), Categorical("v", ("p", "q", "r"))), max_rows=10**6
)


def audit_choices(
    coins: Coins, epsilon: Number, draws: int = DRAWS, choice: type[ModelSelection] = ModelSelection
) -> Iterator[Check]:
    """The last choice, with rules and without: how a record moves scores, and the loss where it breaks a tie."""
    plan = plan_fit(CHOICE_BOOK, epsilon=epsilon, rows=1)
    space, claimed = records(plan.codebook), budget_floor(epsilon)
    model = estimate(Statistics(Layout(plan.codebook), statistics_of(plan.codebook, space[::3])))
    falls = rises = candidates = 0
    for alone in (True, False):
        ask = choice(claimed, 1, all_sides(plan.declared, plan.codebook), alone=alone)
        for size in (1, 2, 7):
            rows = [space[at] for at in below(coins, np.full(size, len(space)))]
            before, *after = (
                np.concatenate([each.scores for each in ask.candidates(model, coded(plan.codebook, table))])
                for table in (rows, *([*rows, record] for record in space))
            )
            change = np.stack(after) - before
            falls, rises = min(falls, int(change.min())), max(rises, int(change.max()))
            candidates = max(candidates, len(before))
    found = f"a record changes scores by {falls} to {rises}, of 0 to 1 allowed, {candidates} models, {len(space)} records"
    yield Check("sensitivity", "choices: scores of models and rules", falls == 0 and rises <= 1, found, rises - falls, 1)
    told = f"a choice at a rate of {float(ask.rate):g} per record, {float(claimed):g} claimed"
    yield Check("sensitivity", "choices: rate", ask.rate <= claimed, told, float(ask.rate), float(claimed))
    claim = Claim(float(claimed), 0.0)

    def attack(rate: Fraction) -> Bound:
        pair = [permute_and_flip(coins, scores, rate, draws) for scores in ([7, 7, 3], [8, 7, 3])]
        return epsilon_lower(pair[0][:, None], pair[1][:, None], names=["place"], learn=False)

    yield loss_check("choices: a tie that a record breaks", claim, partial(attack, ask.rate))
    yield control_check("choices: control with a fifth less noise is refuted", claim, partial(attack, ask.rate * LESS_NOISE))


def audit_calibration(
    coins: Coins, epsilon: Number, draws: int = DRAWS, table: type[CalibrationTable] = CalibrationTable
) -> Iterator[Check]:
    """The small table of the chosen model: a record more raises one cell by one; and the loss of a release."""
    book, claimed = plan_fit(CHOICE_BOOK, epsilon=epsilon, rows=1).codebook, budget_floor(epsilon)
    space = records(book)
    model = estimate(Statistics(Layout(book), statistics_of(book, space[::3])))
    kind = "answers" if issubclass(table, AnswerTable) else "calibration"
    if kind == "answers":  # of a model of one rule
        model, _ = splits(model, coded(book, space), all_sides(book, book)).model(0)
    ask, worst = table(claimed, 1), 0
    for size in (1, 2, 7):
        rows = [space[at] for at in below(coins, np.full(size, len(space)))]
        before = ask.counts(model, coded(book, rows))
        worst = max(worst, *(int(np.abs(ask.counts(model, coded(book, [*rows, each])) - before).sum()) for each in space))
    found = f"largest change {worst} of 1 allowed, {len(space)} records"
    yield Check("sensitivity", f"{kind}: cells of the table", worst <= 1, found, worst, 1)
    claim = Claim(float(claimed), 0.0)

    def attack(ask: CalibrationTable) -> Bound:
        counts = [np.zeros((draws, 1), dtype=np.int64), np.ones((draws, 1), dtype=np.int64)]
        return epsilon_lower(*(ask.release(each, coins) for each in counts), names=["cell"], learn=False)

    yield loss_check(f"{kind}: last record", claim, partial(attack, ask))
    weak = partial(attack, table(claimed * LESS_NOISE, 1))
    yield control_check(f"{kind}: control with a fifth less noise is refuted", claim, weak)


def audit_score(coins: Coins, epsilon: Number, draws: int = DRAWS) -> Iterator[Check]:
    """The numbers of right and wrong answers of a fixed model: a record more raises one of them by one; and their noise."""
    book, claimed = plan_fit(CHOICE_BOOK, epsilon=epsilon, rows=1).codebook, budget_floor(epsilon)
    space = records(book)
    model = estimate(Statistics(Layout(book), statistics_of(book, space[::3])))

    def answers(table: Sequence[Record]) -> npt.NDArray[np.int64]:
        rows = coded(book, table)
        right = int((model.joint_log_likelihood(rows).argmax(axis=1) == rows.labels).sum())
        return np.array([right, rows.rows - right])

    rows = [space[at] for at in below(coins, np.full(7, len(space)))]
    worst = max(int(np.abs(answers([*rows, each]) - answers(rows)).sum()) for each in space)
    found = f"largest change {worst} of 1 allowed, {len(space)} records"
    yield Check("sensitivity", "score: right and wrong answers", worst <= 1, found, worst, 1)
    claim = Claim(float(claimed), 0.0)

    def attack(epsilon: Fraction) -> Bound:
        releases = (noisy_answers(rows, rows, 1 / epsilon, coins, draws) for rows in (0, 1))
        return epsilon_lower(*releases, names=["right", "wrong"], learn=False)

    yield loss_check("score: last record", claim, partial(attack, claimed))
    yield control_check("score: control with a fifth less noise is refuted", claim, partial(attack, claimed * LESS_NOISE))


def coded(codebook: Codebook, table: Sequence[Record]) -> CodedRows:
    """Rows of some records of a codebook of categories."""
    columns = zip(*(record[1] for record in table), strict=True)
    pairs = zip(codebook.names, columns, strict=True)
    labels = np.array([record[0] for record in table], dtype=np.int64)
    found = {name: np.array([-1 if code is None else code for code in codes], dtype=np.int64) for name, codes in pairs}
    return CodedRows(labels, found, len(table))


def spent_by(plan: FitPlan, coins: Coins) -> Fraction:
    """What the stages of one fit of an empty table spend."""
    layout = Layout(plan.codebook)
    empty = CodedRows(np.zeros(0, dtype=np.int64), {name: np.zeros(0, dtype=np.int64) for name in plan.codebook.names}, 0)
    outcome = plan.fit(Statistics(layout, np.zeros(layout.size, dtype=object)), empty, coins)
    return sum((stage.epsilon for stage in outcome.stages), Fraction(0))


def attack_look(look: CoarseHistograms, claim: Claim, coins: Coins, draws: int) -> Bound:
    """A lower bound on epsilon of first looks at one record and at none."""
    codebook = plan_fit(LOOKED_BOOK, epsilon=1).codebook
    layout = Layout(codebook)
    pair = [Statistics(layout, statistics_of(codebook, table)) for table in ([records(codebook)[0]], [])]
    exact = [np.asarray(look.tables(statistics)[0][0], dtype=np.float64) for statistics in pair]
    outputs = []
    for statistics in pair:
        drawn = look.releases(statistics, coins, draws)[0]
        norms = []
        for table in exact:
            away = drawn - (table - table.mean())
            norms.append(np.abs(away - np.sort(away, axis=1)[:, [(away.shape[1] - 1) // 2]]).sum(axis=1))
        outputs.append(np.round(np.column_stack([drawn, norms[1] - norms[0]]), 9))
    names = [f"number {index}" for index in range(outputs[0].shape[1] - 1)] + ["planned likelihood ratio"]
    return epsilon_lower(*outputs, delta=claim.delta, names=names, learn=False)
