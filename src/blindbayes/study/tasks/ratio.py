"""The task of private_ratio: a model of rows that several parties hold, without the counts behind it.

Nothing is opened: two of the parties hold shares of the model, and a classification is a run of its own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Annotated

import msgspec
from msgspec import Meta

from blindbayes.crypto.coins import Coins
from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.value import Answers, Disclosure, Leaving, RowSum, SumForm
from blindbayes.errors import ConfigError, DataError, LocalProtocolError, PrivacyError
from blindbayes.io.typed import Json
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.memory import Outcome
from blindbayes.protocols.registry import SumSetup
from blindbayes.protocols.shared_rows.shares import SharedRowsSetup, SharedTables, train
from blindbayes.statistics import Statistics
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import Study
from blindbayes.study.tasks.prediction import SharedModelTask
from blindbayes.study.tasks.public import public_of
from blindbayes.study.tasks.result import ContributorResult, RunResult, about_run, leakage_of, report_run
from blindbayes.study.tasks.sum_plan import require_party_rows
from blindbayes.study.tasks.task import Computation, CountingTask
from blindbayes.study.tasks.traits import Queries


class PrivateRatioParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of private_ratio."""

    queries: Queries = None  # no limit
    computing: Annotated[int, Meta(ge=2), "number of sites that hold the model: the first ones of the study and the last"] = 2


class RatioTask(CountingTask):
    """The base of tasks in which some parties compute ratios of everybody's counts, and all must answer."""

    partitions = ("rows",)
    messages = ("shares of this site's counts, one to each site that computes",)
    protocols: tuple[str, ...]  # for the leak report

    def __init__(self, agreement: Agreement) -> None:
        super().__init__(agreement)
        self.names = agreement.contributors
        if len(self.names) < self.study.limits.min_parties:
            raise PrivacyError(
                f"the study asks for at least {self.study.limits.min_parties} parties; {len(self.names)} take part"
            )
        if len(self.names) < 2:
            raise ConfigError(f"{self.name} needs at least two parties")

    @property
    def computing(self) -> tuple[str, ...]:
        """The parties that compute, who must not collude all together."""
        return self.names[0], self.names[-1]

    @property
    def trust(self) -> str:
        """The assumption about the parties that compute, in a sentence."""
        names = " and ".join(self.computing)
        if len(self.computing) == 2:
            return f"{names} compute, and must not collude: together they have the sums of all counts."
        return f"{names} compute. The counts are safe while one of them is honest: only all together have their sums."

    def read(self) -> None:
        """Count this site's rows. Nobody can check whether a total is too large, so each site brings its part at most."""
        if self.site.name not in self.names:
            return
        own, limit = self.count(self.study.codebook), self.study.codebook.max_rows // len(self.names)
        if int(own.class_counts.sum()) > limit:
            raise DataError(
                f"with {len(self.names)} parties a site brings at most max_rows / {len(self.names)} = {limit} rows: "
                "nobody sees the total, so that each must see to it that it fits; declare a larger max_rows"
            )
        require_party_rows(self.study, own)
        self.bring(own)

    def counted(self, role: str) -> Statistics:
        """Return what `read` counted."""
        if self.statistics is None:
            raise LocalProtocolError("a party has counted its rows", party=role)
        return self.statistics

    def report(self, outcome: Outcome) -> ContributorResult:
        about, size = about_run(self.agreement, self.run_id), len(self.names)
        report = report_run(self.protocols, size, outcome, self.disclosure.conclusions, about)
        known = {"included": list(self.names)}
        return ContributorResult(leakage_of(outcome), outcome.cost, self.statement(), report, known)

    # -- for people ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def reveals(self) -> str:
        """Return what the run reveals, in a sentence or two."""

    @abstractmethod
    def statement_lines(self) -> list[str]:
        """Return what the statement says beyond who computes and what is revealed."""

    def conclusions(self) -> tuple[str, ...]:
        """Return what can be concluded from a run."""
        return self.reveals(), self.trust

    def statement(self) -> str:
        """Return what the run promises, for the privacy officer."""
        lines = [
            f"Study {self.agreement.sha256}",
            f"Codebook {self.study.codebook.sha256}",
            f"Protocol {self.name}. {self.trust}",
            self.reveals(),
        ]
        return "\n\n".join([*lines, *self.statement_lines()])

    def summary(self) -> list[str]:
        return [
            f"{self.agreement.title}: rows of {', '.join(self.agreement.contributors)}, by {self.name}.",
            f"  {self.reveals()}",
            f"  {self.trust}",
        ]


class SharedRatioTask(RatioTask, SharedModelTask):
    """Training by private_ratio: the model stays in shares of the parties that compute."""

    name = "private_ratio"
    description = "a model without counts, in shares of two or more sites that classify together. All must answer."
    params = PrivateRatioParams

    @classmethod
    def check(cls, study: Study) -> None:
        if study.limits.quorum is not None:
            raise ConfigError("private_ratio needs every party; leave quorum unset")
        if study.privacy.epsilon is not None:
            raise PrivacyError("private_ratio keeps exact counts in shares and adds no noise; leave epsilon out, or sum")

    def __init__(self, agreement: Agreement) -> None:
        super().__init__(agreement)
        computes = int(self.study.options.get("computing", 2))
        self.rows = SharedRowsSetup(self.study.codebook, self.names, self.study.estimation.alpha, computes=computes)
        between = ("shared_model", "joined_sums") if computes == 2 else ("joint_circuit",)
        self.protocols = ("transfer", "private_ratio", *between)
        self.rows.plan  # noqa: B018 - raises unless scores fit and have a minimum variance
        self.setting = SumSetup(self.names, 1)  # answers depend on everybody's counts

    @property
    def computing(self) -> tuple[str, ...]:
        return self.rows.computing

    def cost(self, party: str) -> Charge | None:
        return None

    def role(self, name: str, run: Run, coins: Coins) -> Role[SharedTables]:
        return train(run, self.rows, self.rows.vector(self.counted(name)), coins.derive("role"))

    def authorise_and_charge(self, name: str) -> None:
        """Authorise the run as an exact sum: enough answers of a model in shares reveal it."""
        size = len(self.names)
        self.site.authorise_and_charge(Computation(self.agreement, self.run_id, None, self.state, size, exact=True))

    def store(self, outputs: Mapping[str, object]) -> None:
        trained, name = outputs[self.site.name], self.site.name
        if not isinstance(trained, SharedTables):
            raise LocalProtocolError("training returns shares of tables", party=name)
        facts = {**public_of(replace(self.rows, training=trained.training)), "run": self.run_id}
        queries = self.study.options.get("queries")
        tables, sums = ({}, {}) if trained.sums is None else ({"model": trained.tables}, {"model": trained.sums})
        share = ModelShare(self.agreement.sha256, name, facts, tables, sums, None, queries)
        self.site.keep_share(self.run_id, share)

    def result(self, outcome: Outcome) -> RunResult:
        return self.report(outcome)

    # -- for people ----------------------------------------------------------------------------------------------------

    @cached_property
    def disclosure(self) -> Disclosure:
        return Disclosure(
            protocol=self.name,
            summary=self.description,
            messages=self.messages,
            row_sum=RowSum(SumForm.SHARED, len(self.names)),
            answers=Answers(self.study.options.get("queries"), ()),
            conclusions=self.conclusions(),
            leaving=Leaving.PIECES,
            holders=tuple(self.computing),
        )

    def facts(self) -> dict[str, Json]:
        return {
            "contributors": list(self.names),
            "compute": list(self.computing),
            "opened": list(self.disclosure.opened),
            "learners": [],
            "model": "exists only as shares of those that compute",
            "opened_per_classified_instance": ["class, to the site whose instance it is"],
            "queries": self.study.options.get("queries", "not limited: sites refuse such a study by policy"),
        }

    def reveals(self) -> str:
        queries = self.study.options.get("queries")
        names = " and ".join(self.computing)
        limit = f"At most {queries} instances may be classified" if queries else "The number of queries is not limited"
        return (
            f"Nothing is opened: the model stays in shares of {names}. A classification, for which every site's "
            f"people ask, opens the class to the site whose instance it is. {limit}; repeated queries let the "
            "model be read off, and so the sum of all counts: some 25 answers tell one number of it."
        )

    def statement_lines(self) -> list[str]:
        plan = self.rows.plan
        return [
            f"Scores: {plan.bits} bits, {plan.fraction} after the point. The class equals that of pooled classification "
            f"wherever the two best scores differ by more than {plan.tie_bound:.3g}."
        ]


TASK = SharedRatioTask
