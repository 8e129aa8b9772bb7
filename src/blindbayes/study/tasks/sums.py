"""Studies over rows whose statistics are added up: every protocol of `protocol.registry`, with noise or without."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from blindbayes._lazy import lazy
from blindbayes.crypto.coins import Coins
from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.value import Exposure
from blindbayes.dp.distributed.noise_shares import dishonest
from blindbayes.dp.distributed.noisy_sum import NoisySum
from blindbayes.dp.distributed.plausibility import require_possible
from blindbayes.errors import BlindbayesError, ConfigError, DataError, PeerProtocolError
from blindbayes.naive_bayes.model_file import ModelRecord
from blindbayes.protocols import registry
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.memory import Outcome
from blindbayes.protocols.registry import Total
from blindbayes.report.leakage import follows_from_sum
from blindbayes.statistics import Layout, Statistics
from blindbayes.statistics.feasible import require_feasible
from blindbayes.study.agreement import Agreement
from blindbayes.study.schemes import Facts, NoParams, Scheme, share_of
from blindbayes.study.study import Study
from blindbayes.study.tasks.job import CountingJob, Site
from blindbayes.study.tasks.result import Earlier, Learned, Result, about_run, leakage_of, report_run
from blindbayes.study.tasks.sum_plan import MIN_EXACT_PARTIES, Sum

if TYPE_CHECKING:
    from blindbayes.naive_bayes import load as estimators
    from blindbayes.naive_bayes.base import BaseNaiveBayes
else:
    estimators = lazy("blindbayes.naive_bayes.load")

FEW = 5  # a cell of fewer rows speaks of single people
_COUNTS = ("class_count", "count", "n")
EXACT = (
    "No noise: the statistics are exact. Nothing but the sum was opened, and the sum itself is not differentially private: "
    "whoever knows all other records of a cell can compute the last one."
)


class SumScheme(Scheme):
    """See `study.schemes.Scheme`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.protocol = registry.load(name)
        self.params: type[msgspec.Struct] = getattr(self.protocol, "params", NoParams)
        said = registry.spec(name).get("facts", {})
        self._quorum = [Fraction(share) for share in said.get("quorum", ())]  # of up to 64 contributors, of more
        self.facts = Facts(
            partitions=("rows",),
            line=said.get("line", "see its SPEC.md"),
            few_rounds=said.get("few_rounds", False),
            hub=said.get("hub", ""),
            may_lose=said.get("may_lose", False),
            allowed=said.get("allowed", True),
            offered=said.get("offered", True),
            small_cells=True,
            texts=True,
            weighs=True,
            goes_on=True,
            living=True,
            sums=True,
            leaves=("one vector under masks or encryption, as SPEC.md of the protocol says",),
        )

    # -- what is agreed ------------------------------------------------------------------------------------------------

    def check(self, study: Study) -> None:
        """Nothing beyond the options."""

    def quorum(self, parties: int) -> int | None:
        """The share of the parties that the protocol's page says; at least the fewest of an exact sum."""
        if not self._quorum:
            return None
        return max(share_of(parties, self._quorum[parties > 64]), min(MIN_EXACT_PARTIES, parties))

    def apart(self) -> tuple[tuple[str, ...], ...]:
        found: tuple[tuple[str, ...], ...] = getattr(self.protocol, "apart", ())
        return found

    def seats(self, agreement: Agreement) -> tuple[str, ...]:
        return self.protocol.roster(agreement.public.setting)

    def learners(self, agreement: Agreement) -> tuple[str, ...]:
        found: tuple[str, ...] = agreement.public.learners
        return found

    def agree(self, agreement: Agreement) -> Sum:
        """The setting of the sum. Raises `PrivacyError` for one that no policy can allow."""
        return Sum.make(agreement.study, agreement.contributors, agreement.founders, agreement.steps)

    def require_runnable(self, agreement: Agreement) -> None:
        """As the protocol's roles would in their first step."""
        self.protocol.check(agreement.public.setting)

    # -- what runs -----------------------------------------------------------------------------------------------------

    def job(self, agreement: Agreement, site: Site, run_id: str) -> SumJob:
        return SumJob(agreement, site, run_id)

    def price(self, public: Sum) -> Charge | None:
        """What a contributor pays: nothing that a ledger can express for an exact sum."""
        return None if public.plan is None else Charge.of(public.plan.price)

    # -- what came out -------------------------------------------------------------------------------------------------

    def result(
        self,
        agreement: Agreement,
        outcome: Outcome,
        *,
        run: str = "",
        base: Earlier | None = None,
        alone: bool = False,
        **_: Any,
    ) -> Result | Learned:
        """What the opened total means; of a site that did not learn it, the report of its part.

        `alone`: it adds to an earlier total that this site does not hold.
        """
        public: Sum = agreement.public
        totals = [outcome.outputs[name] for name in public.learners if outcome.outputs.get(name) is not None]
        if wrong := next((total.error for total in totals if total.error is not None), None):
            raise wrong
        if totals and alone:
            text = "This site learned how the sum changed, and not what it changed: it does not hold the earlier total."
            told, said = leakage_of(outcome), f"Study {agreement.sha256}\n\n{text}"
            return Learned(told, outcome.cost, said, self._report(agreement, outcome, (), run), {"included": None})
        if not totals:
            if set(outcome.transcript.received) >= set(agreement.seats):
                raise PeerProtocolError("nobody learned the total")
            statement = f"Study {agreement.sha256}\n\nThis site contributed to the sum and did not learn it."
            report = self._report(agreement, outcome, (), run)
            return Learned(leakage_of(outcome), outcome.cost, statement, report, {"included": None})
        total: Total = totals[0]
        if any(other.included != total.included or (other.words != total.words).any() for other in totals[1:]):
            raise PeerProtocolError("two roles learned different totals")
        return self._opened(agreement, public, total, outcome, base, run)

    def _opened(
        self, agreement: Agreement, public: Sum, total: Total, outcome: Outcome, base: Earlier | None, run: str
    ) -> Result:
        study, setting, plan, sha256 = public.study, public.setting, public.plan, agreement.sha256
        runs = 1 if base is None else base.runs + 1
        size, included = len(setting.contributors), len(total.included)
        follows = follows_from_sum(self.name, setting, included)
        if plan is not None:
            follows = (*follows, f"Calibration: {describe_trust(public, plan)}")
        report = self._report(agreement, outcome, follows, run)
        known = {"study": sha256, "protocol": self.name, "opened": setting.label}
        lines = [
            f"Study {sha256}",
            f"Protocol {self.name}; {size} contributors, {included} of them in the sum; quorum {setting.quorum_size}.",
            f"Opened: {setting.label}. Who learned it stands in the leak report.",
        ]
        if not self.facts.allowed:
            lines.append(f"The protocol `{self.name}` shows every party's vector to the collector: it protects nothing.")
        leakage = leakage_of(outcome)
        if plan is None:
            statistics, model = _exact(study, total, base)
            text = "\n\n".join([*lines, f"Codebook {study.codebook.sha256}", EXACT])
            return Result(
                model, statistics, leakage, outcome.cost, text, total.included, (0.0, 0.0), runs, report=report, facts=known
            )
        words = total.words.view(np.int64) + (0 if base is None or base.total is None else base.total)
        shares = public.shares(total.included) + (0 if base is None else base.shares)
        try:
            require_possible(plan, words, shares=shares)
        except DataError as cause:
            raise PeerProtocolError(f"the noisy total is that of no table: {cause}", suspects=total.included) from cause
        before = (0.0, 0.0) if base is None else base.spent
        # With a bound on rows per person a person may bring rows to every release.
        by_stays = study.privacy.unit == "record" and study.privacy.rows_per_person is None
        if runs > 2 and by_stays:  # a record moves the release in which it comes and that in which it goes [changes]
            before = (before[0] - plan.price.epsilon, before[1] - plan.price.delta)
        spent = (before[0] + plan.price.epsilon, before[1] + plan.price.delta)
        statement = plan.statement(
            trust=describe_trust(public, plan),
            composition=f"{runs} release(s) of this study add up to epsilon = {spent[0]:g}, delta = {spent[1]:g}"
            + (
                " for one stay of a record in a site's table: each release but the first tells changes alone. One whose values "
                "change, or that comes back, stays twice. Runs that failed cost more, and so do sites that take rows back and "
                "bring them again; the sites' ledgers have the true figure."
                if runs > 1 and by_stays
                else " for whoever is in the tables of all of them."
            ),
            min_cell=study.limits.min_cell,
            rows_per_person=study.privacy.rows_per_person,
            tuning=study.privacy.tuning_note,
        )
        parameters, statistics, released = plan.fit(
            words, shares=shares, alpha=study.estimation.alpha, min_cell=study.limits.min_cell
        )
        settings = {"alpha": study.estimation.alpha, "var_smoothing": study.estimation.var_smoothing, "named": False}
        privacy = {**plan.tables.describe(), "mechanism": plan.name, "epsilon": spent[0], "delta": spent[1]}
        privacy |= {"statement": statement.to_dict(), "released": released}
        record = ModelRecord(parameters, statistics, "text", settings, privacy)
        model = weighed(study, estimators.from_record(record))
        text = "\n\n".join([*lines, statement.text])
        return Result(model, statistics, leakage, outcome.cost, text, total.included, spent, runs, words, shares, report, known)

    def _report(self, agreement: Agreement, outcome: Outcome, follows: tuple[str, ...], run: str) -> Any:
        return report_run((self.name,), len(agreement.contributors), outcome, follows, about_run(agreement, run))

    # -- in words ------------------------------------------------------------------------------------------------------

    def exposure(self, agreement: Agreement) -> Exposure:
        study = agreement.study
        unsafe = getattr(self.protocol, "unsafe", None)
        return Exposure(
            exact=study.privacy.epsilon is None,
            quorum_size=agreement.public.setting.quorum_size,
            epsilon=study.privacy.epsilon or 0.0,
            delta=study.privacy.delta,
            unsafe=() if unsafe is None else unsafe(agreement.public.setting),
        )

    def _learners(self, agreement: Agreement) -> list[str]:
        return list(dict.fromkeys(agreement.host(seat) for seat in agreement.public.learners))

    def shown(self, agreement: Agreement) -> dict[str, Any]:
        setting = agreement.public.setting
        return {
            "contributors": list(agreement.contributors),
            "hosts": dict(agreement.hosts),
            "quorum": setting.quorum_size,
            "opened": [setting.label],
            "learners": self._learners(agreement),
            "epsilon": agreement.study.privacy.epsilon,
            "min_cell": agreement.study.limits.min_cell,
        }

    def told(self, agreement: Agreement) -> list[str]:
        study, setting = agreement.study, agreement.public.setting
        promise = "exact" if study.privacy.epsilon is None else f"with noise, epsilon {study.privacy.epsilon:g}"
        learners = ", ".join(sorted(self._learners(agreement)))
        lines = [
            f"{agreement.title}: rows of {', '.join(agreement.contributors)}, by {self.name}.",
            *(f"  {host} hosts the role {seat}." for seat, host in agreement.hosts.items()),
            f"  Opened, {promise}: the sum over at least {setting.quorum_size} sites, to {learners}.",
        ]
        if more := [label for label in registry.spec(self.name)["opened"] if label != "sum"]:
            lines.append(f"  {self.name} opens more than the sum: {', '.join(more)}.")
        return lines

    def dry_run(self, agreement: Agreement, site: Site) -> tuple[dict[str, Any], list[str]]:
        public: Sum = agreement.public
        setting, problems = public.setting, []
        statistics = self.job(agreement, site, "0" * 32).count(public.counting)
        try:
            site.require_rows(agreement, int(statistics.class_counts.sum()))
        except BlindbayesError as error:
            problems.append(str(error))
        few = (statistics.vector > 0) & (statistics.vector < FEW)
        groups: list[dict[str, Any]] = [
            {
                "feature": group.feature.name if group.feature else agreement.book.target,
                "kind": group.kind,
                "cells": group.columns * len(agreement.book.classes),
                "bound": str(group.bound),
                "of_few_rows": int(few[statistics.layout.slice(group)].sum()) if group.kind in _COUNTS else 0,
            }
            for group in statistics.layout.groups
        ]
        learners = sorted(self._learners(agreement))
        facts = {
            "leaves_as": self.facts.leaves[0],
            "words": setting.length,
            "cells": groups,
            "opened": setting.label,
            "opened_to": learners,
            "in_a_sum_of_at_least": setting.quorum_size,
            "noise": None if public.plan is None else public.plan.noise.law,
            "refused_because": problems,
        }
        return facts, [
            *(f"  {group['feature']}: {group['cells']} cells of kind {group['kind']}" for group in groups),
            f"At your site {sum(group['of_few_rows'] for group in groups)} cells hold 1 to {FEW - 1} rows; only you are told.",
            f"{setting.length} words would leave, masked, and be opened only in a sum of at least {setting.quorum_size} sites,",
            f"as {setting.label}, to {', '.join(learners)}. Nothing has left.",
        ]


class SumJob(CountingJob):
    """See `job.Job`: this site's vector goes into a sum, or it hosts a role of it."""

    @property
    def required(self) -> int:
        """The quorum of contributors, and every other role."""
        public: Sum = self.agreement.public
        return public.setting.quorum_size + len(self.agreement.seats) - len(self.agreement.contributors)

    def read(self) -> None:
        public: Sum = self.agreement.public
        if self.site.name in self.agreement.contributors:
            self.bring(self.count(public.counting))
        hosted = {seat for seat, host in self.agreement.hosts.items() if host == self.site.name}
        if hosted.intersection(public.learners) and self.site.earlier(public.counting)[1]:
            raise ConfigError("the run goes on from one whose total this site, which opens the sum, does not hold")

    def role(self, seat: str, run: Run, coins: Coins) -> Role[Total | None]:
        public: Sum = self.agreement.public
        vector = None
        if seat == self.site.name and self.statistics is not None:
            taken = self.site.removed(public.counting, lenient=public.study.is_private)
            fresh = coins.derive("contribution")
            vector = public.contribution(self.statistics, fresh, taken, self.site.name)
        return registry.load(public.study.protocol).role(run, public.setting, vector, coins.derive("role"))

    def authorise_and_charge(self, seat: str) -> None:
        """Approval, rate, one table one set, ledger; once per run."""
        if seat != self.site.name or self.state is None:
            return
        public: Sum = self.agreement.public
        charge = scheme(public.study.protocol).price(public)
        quorum_size, exact = public.setting.quorum_size, public.plan is None
        self.site.authorise_and_charge(
            self.agreement, self.run_id, charge, state=self.state, quorum_size=quorum_size, exact=exact
        )

    def keep(self, outputs: Mapping[str, Any]) -> None:
        totals = [total for total in outputs.values() if total is not None]
        if totals:
            self.site.opened(self.agreement, self.run_id, totals[0].included)

    def result(self, outcome: Any) -> Any:
        """What this site learned, added to what the run goes on from."""
        public: Sum = self.agreement.public
        base, alone = self.site.earlier(public.counting)
        if base is not None:
            require_base(self.agreement, base)
        made = scheme(public.study.protocol)
        found = made.result(self.agreement, outcome, run=self.run_id, base=base, alone=alone)
        if isinstance(found, Result):
            self.site.keep_total(found)
        return found


def describe_trust(public: Sum, plan: NoisySum) -> str:
    """Whom the promise relies on, and how far."""
    study, setting = public.study, public.setting
    size, found = len(setting.contributors), public.smallest
    corrupt, deviates = dishonest(size, study.privacy.honest_fraction), registry.load(study.protocol).resists(setting)
    reader = "also deviate" if deviates else "not deviate, but pool what it saw with them"
    chance = f"2^{math.ceil(math.log2(found.failure))}" if found.failure else ""
    graph = f", up to a chance of {chance} over the random graph" if chance else ""
    fraction = f"{study.privacy.honest_fraction:.0%}"
    return (
        f"At least {fraction} of the parties follow the protocol, add their noise and keep it to themselves; up to "
        f"{corrupt} of {size} may deviate and collude, and whoever opens the sum may {reader}. Every sum that they can "
        f"have opened holds at least {found.honest} honest shares{graph}: calibrated to {plan.noise.honest}. A party that "
        "takes its own share off the sum counts among the others. Fewer honest shares give less. That nothing but such a "
        "sum is seen is computational: it rests on the protocol's cryptography."
    )


def _exact(study: Study, total: Total, base: Earlier | None) -> tuple[Statistics, BaseNaiveBayes]:
    statistics = Statistics.from_words(Layout(study.codebook), total.words)
    if base is not None:
        statistics = base.statistics + statistics
    try:
        require_feasible(statistics.require_bounds())
    except DataError as cause:
        raise PeerProtocolError(
            "the total is not that of any table: a party sent a vector that is none", suspects=total.included
        ) from cause
    model = estimators.NaiveBayes.from_statistics(
        statistics, alpha=study.estimation.alpha, var_smoothing=study.estimation.var_smoothing
    )
    return statistics, weighed(study, model)


def weighed(study: Study, model: BaseNaiveBayes) -> BaseNaiveBayes:
    """The model with its classes weighed as the study says."""
    return model.with_priors(class_weight=study.estimation.class_weight) if study.weights else model


def require_base(agreement: Agreement, base: Earlier) -> None:
    """Refuse to go on from a result of another kind."""
    public: Sum = agreement.public
    if (base.total is not None) != (public.plan is not None):
        raise ConfigError("a study with epsilon does not go on from one without, or the other way round")
    if base.statistics.codebook != public.counting:
        raise ConfigError("the earlier result has another codebook, or was planned otherwise")


@cache
def _made(name: str, module: str) -> SumScheme:
    return SumScheme(name)


def scheme(name: str) -> SumScheme:
    """The scheme of a protocol for rows."""
    return _made(name, registry.known()[name])
