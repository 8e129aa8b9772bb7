"""Tasks of studies over rows whose statistics are added up, with noise or without: every protocol of `protocols.registry`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from blindbayes._lazy import lazy
from blindbayes.crypto.coins import Coins
from blindbayes.data.split import Reading
from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.value import Disclosure, Leaving, Output, RowSum, SumForm, Withstood
from blindbayes.dp.accounting.statement import PrivacyStatement
from blindbayes.dp.distributed.noise_shares import dishonest
from blindbayes.dp.distributed.noisy_sum import NoisySum, SumNoise, persons_words
from blindbayes.dp.distributed.plausibility import require_possible
from blindbayes.dp.distributed.whole_noise import WholeNoise
from blindbayes.errors import BlindbayesError, ConfigError, DataError, PeerProtocolError
from blindbayes.io.typed import Json
from blindbayes.naive_bayes.model_file import ModelRecord, ModelSettings
from blindbayes.protocols import registry
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.memory import Outcome
from blindbayes.protocols.registry import Coalition, SumSetup, Total
from blindbayes.report.leakage import LeakReport, coalition_sentences, follows_from_sum
from blindbayes.statistics import Layout, Statistics
from blindbayes.statistics.feasible import require_feasible
from blindbayes.statistics.site_figures import SiteCells
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import Study
from blindbayes.study.tasks.result import ContributorResult, PreviousTotal, Result, about_run, leakage_of, report_run
from blindbayes.study.tasks.sum_plan import MIN_EXACT_PARTIES, Sum
from blindbayes.study.tasks.task import Computation, CountingTask, DryRun, StudyTask
from blindbayes.study.tasks.traits import NoParams, Support

if TYPE_CHECKING:
    from blindbayes.naive_bayes import load as estimators
    from blindbayes.naive_bayes.base import BaseNaiveBayes
else:
    estimators = lazy("blindbayes.naive_bayes.load")

FEW = 5  # a cell of fewer rows speaks of single people
_COUNTS = ("class_count", "count", "n")
EXACT = (
    "No noise: the statistics are exact. Nothing but the sum was opened, and the sum itself is not differentially private: "
    "anyone who knows all other records of a cell can compute the last one."
)


class SumTask(CountingTask):
    """A run in which the site's vector goes into a sum, or it hosts a role of the protocol that adds the vectors up."""

    partitions = ("rows",)
    supports = frozenset(set(Support) - {Support.LABEL_EPSILON, Support.DROPOUT, Support.SLOW_COURIER})
    messages: ClassVar[tuple[str, ...]] = ("one vector under masks or encryption, as SPEC.md of the protocol says",)
    protocol: ClassVar[registry.SumProtocol]
    quorums: ClassVar[tuple[Fraction, ...]] = ()  # share of up to 64 contributors, of more

    @classmethod
    def variant(cls, study: Study) -> type[StudyTask]:
        """Return the task that matches persons, or the floored one, which opens no small cells, for min_cell without noise."""
        if study.privacy.is_matched:
            from blindbayes.study.tasks.deduplicated import deduplicated_class  # it imports this module

            return deduplicated_class(cls)
        if study.is_private or not study.limits.min_cell:
            return cls
        from blindbayes.study.tasks.floored import floored_class  # it imports this module

        return floored_class(cls)

    @classmethod
    def default_quorum(cls, parties: int) -> int | None:
        if not cls.quorums:
            return None
        share = cls.quorums[parties > 64]
        return max(-(-parties * share.numerator // share.denominator), min(MIN_EXACT_PARTIES, parties))

    def __init__(self, agreement: Agreement) -> None:
        """Plan the sum. Raises `PrivacyError` for one that no policy can allow."""
        super().__init__(agreement)
        self.sum = Sum.make(self.study, agreement.contributors, agreement.founders, agreement.steps)
        self.setting: SumSetup = self.sum.setting
        self.plan = self.sum.plan  # the noise that the contributors add together; None for an exact sum
        self.counting = self.sum.counting  # the codebook that every contributor counts with
        self.roles, self.learners = self.protocol.roster(self.setting), self.protocol.learners(self.setting)

    def require_runnable(self) -> None:
        self.protocol.check(self.setting)

    def cost(self, party: str) -> Charge | None:
        return None if self.plan is None else Charge.from_cost(self.plan.price)

    # -- one party, one run --------------------------------------------------------------------------------------------

    @property
    def required(self) -> int:
        return self.setting.quorum_size + len(self.roles) - len(self.agreement.contributors)

    def read(self) -> None:
        if self.site.name in self.agreement.contributors:
            self.bring(self.count(self.counting))
        hosted = {role for role, host in self.agreement.hosts.items() if host == self.site.name}
        if hosted.intersection(self.learners) and self.site.previous_total(self.counting)[1]:
            raise ConfigError("the run goes on from one whose total this site, which opens the sum, does not hold")

    def role(self, name: str, run: Run, coins: Coins) -> Role[object]:
        vector = None
        if name == self.site.name and self.statistics is not None:
            removed = self.site.removed(Reading(self.counting, self.study.is_private, split=self.split(held_out=False)))
            fresh = coins.derive("contribution")
            vector = self.sum.contribution(self.statistics, fresh, removed, self.site.name)
        setting = self.setting
        if any(self.site.previous_total(self.counting)):  # vectors are changes of tables
            setting = replace(setting, codebook=None)
        return self.protocol.role(run, setting, vector, coins.derive("role"))

    def authorise_and_charge(self, name: str) -> None:
        if name != self.site.name or self.state is None:
            return
        size, exact, cost = self.setting.quorum_size, self.plan is None, self.cost(name)
        asked = Computation(self.agreement, self.run_id, cost, self.state, size, exact, discloses=self.disclosure)
        self.site.authorise_and_charge(asked)

    def store(self, outputs: Mapping[str, object]) -> None:
        totals = [total for total in outputs.values() if isinstance(total, Total)]
        if totals:
            self.site.opened(self.agreement, self.run_id, totals[0].included)

    def result(self, outcome: Outcome) -> Result | ContributorResult:
        """Return what the opened total means, added to the one that the run adds to.

        A site that did not learn the total, or lacks the one that it changes, gets the report of its part.
        """
        base, is_missing = self.site.previous_total(self.counting)
        if base is not None:
            self.require_base(base)
        totals = self.totals(outcome)
        if totals and is_missing:
            text = "This site learned how the sum changed, and not what it changed: it does not hold the earlier total."
            return self._contributed(outcome, text)
        if not totals:
            if set(outcome.transcript.received) >= set(self.roles):
                raise PeerProtocolError("nobody learned the total")
            return self._contributed(outcome, "This site contributed to the sum and did not learn it.")
        result = self._opened(agreed_total(totals), outcome, base)
        self.site.keep_total(result)
        return result

    def totals(self, outcome: Outcome) -> list[Total]:
        """Return the totals that roles of this site learned. Raises what one of them noticed."""
        totals: list[Total] = [each for each in map(outcome.outputs.get, self.learners) if each is not None]
        if wrong := next((total.error for total in totals if total.error is not None), None):
            raise wrong
        return totals

    def _contributed(self, outcome: Outcome, text: str) -> ContributorResult:
        statement, report = f"Study {self.agreement.sha256}\n\n{text}", self._report(outcome, ())
        return ContributorResult(leakage_of(outcome), outcome.cost, statement, report, {"included": None})

    def require_base(self, base: PreviousTotal) -> None:
        """Raise unless a result is of the kind that this study adds to."""
        if (base.total is not None) != (self.plan is not None):
            raise ConfigError("a study with epsilon does not go on from one without, or the other way round")
        if base.statistics is None or base.statistics.codebook != self.counting:
            raise ConfigError("the earlier result has another codebook, or was planned otherwise")
        if self.plan is not None and base.total is not None and len(base.total) != self.plan.length:
            raise ConfigError(
                "the noise of the earlier result was planned otherwise, for another number of sites: run without a base"
            )

    def _opened(self, total: Total, outcome: Outcome, base: PreviousTotal | None) -> Result:
        setting, plan, sha256 = self.setting, self.plan, self.agreement.sha256
        runs = 1 if base is None else base.runs + 1
        size, included = len(setting.contributors), len(total.included)
        follows = follows_from_sum(self.name, setting, included)
        report = self._report(outcome, (*follows, *(f"Calibration: {each}" for each in self.disclosure.assumptions)))
        known = {"study": sha256, "protocol": self.name, "opened": setting.label}
        lines = [
            f"Study {sha256}",
            f"Protocol {self.name}; {size} contributors, {included} of them in the sum; quorum {setting.quorum_size}.",
            f"Opened: {setting.label}. Who learned it stands in the leak report.",
        ]
        if total.refused:
            known["refused"] = ", ".join(total.refused)
            lines.append(f"Left out, since a check by {self.name} refused its vector: {known['refused']}.")
        if plan is not None:
            return self._noisy_result(plan, total, outcome, base, lines, report, known)
        statistics, model = self._exact(total, base)
        text = "\n\n".join([*lines, f"Codebook {self.study.codebook.sha256}", EXACT])
        leakage, spent = leakage_of(outcome), (0.0, 0.0)
        return Result(model, statistics, leakage, outcome.cost, text, total.included, spent, report, runs, facts=known)

    def _exact(self, total: Total, base: PreviousTotal | None) -> tuple[Statistics, BaseNaiveBayes]:
        statistics = Statistics.from_words(Layout(self.study.codebook), total.words)
        if base is not None and base.statistics is not None:
            statistics = base.statistics + statistics
        try:
            require_feasible(statistics.require_bounds())
        except DataError as cause:
            raise PeerProtocolError(
                "the total is not that of any table: a party sent an invalid vector", suspects=total.included
            ) from cause
        return statistics, exact_model(self.study, statistics)

    def _noisy_result(
        self,
        plan: NoisySum,
        total: Total,
        outcome: Outcome,
        base: PreviousTotal | None,
        lines: list[str],
        report: LeakReport,
        known: dict[str, Any],
    ) -> Result:
        runs = 1 if base is None else base.runs + 1
        words = total.words.view(np.int64) + (0 if base is None or base.total is None else base.total)
        shares = self.sum.shares(total.included) + (0 if base is None else base.shares)
        try:
            require_possible(plan, words, shares=shares)
        except DataError as cause:
            raise PeerProtocolError(f"the noisy total is that of no table: {cause}", suspects=total.included) from cause
        before = (0.0, 0.0) if base is None else base.spent
        if runs > 2 and self._by_stays:  # a record moves the release in which it comes and that in which it goes [changes]
            before = (before[0] - plan.price.epsilon, before[1] - plan.price.delta)
        spent = (before[0] + plan.price.epsilon, before[1] + plan.price.delta)
        model, statement = self._noisy_model(plan, words, shares, runs, spent)
        text, leakage, cost = "\n\n".join([*lines, statement.text]), leakage_of(outcome), outcome.cost
        statistics = model.statistics_
        return Result(model, statistics, leakage, cost, text, total.included, spent, report, runs, words, shares, known)

    @property
    def _by_stays(self) -> bool:
        # With a bound on rows per person a person may bring rows to every release.
        return self.study.privacy.unit == "record" and self.study.privacy.rows_per_person is None

    def model_of(self, total: PreviousTotal) -> BaseNaiveBayes:
        """Return the model of a total that an earlier run of this study opened."""
        if self.plan is None:
            if total.statistics is None:
                raise ConfigError("only ratios were opened: there are no statistics to estimate a model from")
            return exact_model(self.study, total.statistics)
        if total.total is None:
            raise ConfigError("a study with epsilon has models of noisy totals only")
        return self._noisy_model(self.plan, total.total, total.shares, total.runs, total.spent)[0]

    def _noisy_model(
        self, plan: NoisySum, words: npt.NDArray[Any], shares: int, runs: int, spent: tuple[float, float]
    ) -> tuple[BaseNaiveBayes, PrivacyStatement]:
        """Return the model of a noisy total of `runs` releases, and its statement."""
        study = self.study
        releases = "1 release of this study adds" if runs == 1 else f"{runs} releases of this study add"
        statement = plan.statement(
            trust=self.trust_in(plan.noise),
            composition=f"{releases} up to epsilon = {spent[0]:g}, delta = {spent[1]:g}"
            + (
                " for one stay of a record in a site's table: each release but the first reveals changes alone. One whose "
                "values change, or that comes back, stays twice. Runs that failed cost more, and so do sites that take rows "
                "back and bring them again; the sites' ledgers have the true figure."
                if runs > 1 and self._by_stays
                else " for a person in the tables of all of them."
            ),
            min_cell=study.limits.min_cell,
            persons=persons_words(study.privacy.rows_per_person, study.privacy.sites_per_person),
            tuning=study.privacy.tuning_note,
        )
        parameters, statistics, released = plan.fit(
            words, shares=shares, alpha=study.estimation.alpha, min_cell=study.limits.min_cell
        )
        settings = ModelSettings(alpha=study.estimation.alpha, var_smoothing=study.estimation.var_smoothing)
        privacy = {**plan.describe(shares), "mechanism": plan.name, "epsilon": spent[0], "delta": spent[1]}
        privacy |= {"statement": statement.to_dict(), **({"released": released} if released else {})}
        record = ModelRecord(parameters, statistics, "text", settings, privacy)
        return weighed(study, estimators.from_record(record)), statement

    def _report(self, outcome: Outcome, follows: tuple[str, ...]) -> LeakReport:
        about = about_run(self.agreement, self.run_id)
        return report_run((self.name,), len(self.agreement.contributors), outcome, follows, about)

    # -- for people ----------------------------------------------------------------------------------------------------

    @cached_property
    def disclosure(self) -> Disclosure:
        agreement, study, setting = self.agreement, self.study, self.setting
        learners = tuple(dict.fromkeys(agreement.host(role) for role in self.learners))
        coalition = registry.coalition_of(self.name, setting)
        return Disclosure(
            protocol=self.name,
            summary=self.description,
            messages=self.messages,
            outputs=(Output(setting.label, learners), *self.further_outputs(learners)),
            learners=learners,
            row_sum=RowSum(SumForm.EXACT if self.plan is None else SumForm.NOISY, setting.quorum_size),
            epsilon=study.privacy.epsilon or 0.0,
            delta=study.privacy.delta,
            assumptions=self.assumptions,
            deviation=coalition_sentences(self.name, coalition, len(setting.contributors)),
            leaving=Leaving.READABLE if coalition is None else Leaving.HIDDEN,
            withstands=_withstood(coalition, setting, self.relied_fraction),
            unit="person" if study.privacy.rows_per_person is not None else study.privacy.unit,
            site_figures=study.estimation.site_figures,
            unsafe=(*self.protocol.unsafe(setting), *([self.site_cells.unsafe] if self.site_cells.unsafe else [])),
        )

    def trust_in(self, noise: SumNoise) -> str:
        """Describe whom the promise of the training relies on, and how far."""
        return describe_trust(self.sum, noise)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions behind the noise of every sum of the study."""
        if self.plan is None:
            return ()
        training = self.trust_in(self.plan.noise)
        if not (isinstance(self.plan.noise, WholeNoise) and self.sum.is_evaluated):
            return (training,)
        return (training, f"Evaluations have noise in shares. {_trust_in_shares(self.sum, self.sum.honest)}")

    @property
    def relied_fraction(self) -> float:
        """The fraction of the parties whose noise a site relies on; 0: on its own alone."""
        own_alone = isinstance(self.sum.noise, WholeNoise) and not self.sum.is_evaluated
        return 0.0 if own_alone else self.study.privacy.honest_fraction

    @property
    def site_cells(self) -> SiteCells:
        """The cells of an evaluation about single sites."""
        return SiteCells(self.study.estimation.site_figures, self.agreement.contributors)

    def further_outputs(self, learners: tuple[str, ...]) -> tuple[Output, ...]:
        """Return what other runs of the study open: evaluations of a model, and a cross-validation."""
        label, estimation = self.setting.label, self.study.estimation
        outputs = []
        if estimation.held_out:
            by_site = f"; {self.site_cells.opened}" if self.site_cells.size else ""
            outputs.append(f"{label} of the confusion matrix and score bins of held-out rows, by an evaluation{by_site}")
        if estimation.folds:
            outputs.append(
                f"{label} of the statistics of each of {estimation.folds} folds, and of confusion matrices and score bins of "
                f"{max(len(estimation.candidates), 1)} candidate(s), by a cross-validation"
            )
        return tuple(Output(each, learners) for each in outputs)

    def facts(self) -> dict[str, Json]:
        return {
            "contributors": list(self.agreement.contributors),
            "hosts": dict(self.agreement.hosts),
            "quorum": self.setting.quorum_size,
            "opened": list(self.disclosure.opened),
            "learners": list(self.disclosure.learners),
            "epsilon": self.study.privacy.epsilon,
            "min_cell": self.study.limits.min_cell,
        }

    def summary(self) -> list[str]:
        agreement, study = self.agreement, self.study
        promise = "exact" if study.privacy.epsilon is None else f"with noise, epsilon {study.privacy.epsilon:g}"
        learners = ", ".join(sorted(self.disclosure.learners))
        lines = [
            f"{agreement.title}: rows of {', '.join(agreement.contributors)}, by {self.name}.",
            *(f"  {host} hosts the role {role}." for role, host in agreement.hosts.items()),
            f"  Opened, {promise}: the sum over at least {self.setting.quorum_size} sites, to {learners}.",
        ]
        if more := [label for label in registry.spec(self.name)["opened"] if label != "sum"]:
            lines.append(f"  {self.name} opens more than the sum: {', '.join(more)}.")
        return lines

    def dry_run(self) -> DryRun:
        setting, problems, book = self.setting, [], self.agreement.book
        statistics = self.count(self.counting)
        try:
            self.site.require_rows(self.agreement, int(statistics.class_counts.sum()))
        except BlindbayesError as error:
            problems.append(str(error))
        few = (statistics.vector > 0) & (statistics.vector < FEW)
        groups: list[Json] = []
        lines, small_cells = [], 0
        for group in statistics.layout.groups:
            name, cells = group.feature.name if group.feature else book.target, group.columns * len(book.classes)
            small = int(few[statistics.layout.slice(group)].sum()) if group.kind in _COUNTS else 0
            groups.append(
                {"feature": name, "kind": group.kind, "cells": cells, "bound": str(group.bound), "of_few_rows": small}
            )
            lines.append(f"  {name}: {cells} cells of kind {group.kind}")
            small_cells += small
        learners = sorted(self.disclosure.learners)
        facts: dict[str, Json] = {
            "leaves_as": self.messages[0],
            "words": setting.length,
            "cells": groups,
            "opened": setting.label,
            "opened_to": learners,
            "in_a_sum_of_at_least": setting.quorum_size,
            "noise": None if self.plan is None else self.plan.noise.law,
        }
        lines += [
            f"At your site {small_cells} cells hold 1 to {FEW - 1} rows; only you see this.",
            f"{setting.length} numbers would leave, masked, opened only in a sum of at least {setting.quorum_size} sites,",
            f"as {setting.label}, to {', '.join(learners)}. Nothing has left.",
        ]
        return DryRun(facts, tuple(lines), tuple(problems))


def agreed_total(totals: Sequence[Total]) -> Total:
    """Return the total that several roles learned alike."""
    total = totals[0]
    if any(other.included != total.included or (other.words != total.words).any() for other in totals[1:]):
        raise PeerProtocolError("two roles learned different totals")
    return total


def _withstood(coalition: Coalition | None, setting: SumSetup, honest_fraction: float) -> Withstood:
    """Return the collusion that a protocol claims to withstand, against deviating parties if it makes such a claim."""
    size = len(setting.contributors)
    if coalition is None:
        return Withstood(0, size, deviating=False)
    deviating = coalition.active >= 0
    others = coalition.active if deviating else coalition.passive
    return Withstood(others, size, deviating, coalition.trusted, honest_fraction)


def describe_trust(planned: Sum, noise: SumNoise) -> str:
    """Describe whom the promise of a sum with that noise relies on, and how far."""
    if not isinstance(noise, WholeNoise):
        return _trust_in_shares(planned, noise.honest)
    sites = planned.study.privacy.sites_per_person
    several = sites == "matched" or (isinstance(sites, int) and sites > 1)
    return (
        "Each site adds to its own counts all the noise that the persons in its table need, before anything leaves it: for "
        "them the promise relies on their own site alone, which follows the protocol and keeps its noise to itself, whatever "
        "all other parties do and learn. "
        + ("For a person with rows at several sites it relies on each of these sites. " if several else "")
        + "What each site's noisy counts are is hidden by the protocol's cryptography, on which epsilon does not rest."
    )


def _trust_in_shares(planned: Sum, honest: int) -> str:
    study, setting, smallest = planned.study, planned.setting, planned.smallest
    size = len(setting.contributors)
    corrupt, deviates = dishonest(size, study.privacy.honest_fraction), registry.load(study.protocol).resists(setting)
    reader = "also deviate" if deviates else "not deviate, but pool what it saw with them"
    chance = f"2^{math.ceil(math.log2(smallest.failure))}" if smallest.failure else ""
    graph = f", up to a chance of {chance} over the random graph" if chance else ""
    fraction = f"{study.privacy.honest_fraction:.0%}"
    return (
        f"At least {fraction} of the parties follow the protocol, add their noise and keep it to themselves; up to "
        f"{corrupt} of {size} may deviate and collude, and the party that opens the sum may {reader}. Every sum that they can "
        f"have opened holds at least {smallest.honest} honest shares{graph}: calibrated to {honest}. A party that "
        "takes its own share off the sum counts among the others. Fewer honest shares give less. That nothing but such a "
        "sum is seen is computational: it rests on the protocol's cryptography."
    )


def exact_model(study: Study, statistics: Statistics) -> BaseNaiveBayes:
    """Return the model that a study without noise estimates from a total."""
    estimation = study.estimation
    model = estimators.NaiveBayes.from_statistics(statistics, alpha=estimation.alpha, var_smoothing=estimation.var_smoothing)
    return weighed(study, model)


def weighed(study: Study, model: BaseNaiveBayes) -> BaseNaiveBayes:
    """Return the model with the class weights of the study."""
    return model.with_priors(class_weight=study.estimation.class_weight) if study.weights else model


@cache
def _made(name: str, module: str) -> type[SumTask]:
    protocol, spec = registry.load(name), registry.spec(name).get("facts", {})
    supports = {Support.SLOW_COURIER} if spec.get("few_rounds", False) else set()
    supports |= {Support.DROPOUT} if spec.get("may_lose", False) else set()
    members: dict[str, object] = {
        "__module__": __name__,
        "name": name,
        "protocol": protocol,
        "params": protocol.params or NoParams,
        "apart": protocol.apart,
        "description": spec.get("line", "see its SPEC.md"),
        "hub": spec.get("hub", ""),
        "restricted": not spec.get("allowed", True),
        "supports": SumTask.supports | supports,
        "quorums": tuple(map(Fraction, spec.get("quorum", ()))),
    }
    return type("SumTask", (SumTask,), members)


def task_class(name: str) -> type[SumTask]:
    """Return the task class of a protocol for rows, made from its PROTOCOL and SPEC.md."""
    return _made(name, registry.known()[name])
