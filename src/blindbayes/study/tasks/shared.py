"""The base of tasks that end in shares of a model over columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, Generic, TypeVar, cast

from blindbayes.crypto.coins import Coins
from blindbayes.data.columns import ColumnSource
from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.value import Answers, Disclosure, Leaving, Output
from blindbayes.dp.accounting.accountant import Spend
from blindbayes.io.typed import Json
from blindbayes.naive_bayes.shares import KeptShare
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.memory import Outcome
from blindbayes.protocols.private_join.joined import JoinSetup
from blindbayes.protocols.shared_inference.references import COUNT
from blindbayes.protocols.shared_training.columns import ColumnsSetup
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import Study, learner_of
from blindbayes.study.tasks.audits import asks_references, reference_answers, require_audit
from blindbayes.study.tasks.columns import describe_holdings, dry_run_columns, require_record
from blindbayes.study.tasks.guards import noise_of, single_readings
from blindbayes.study.tasks.labels import law_of, randomised, with_labels
from blindbayes.study.tasks.prediction import SharedModelTask
from blindbayes.study.tasks.result import (
    SHARES_CONCLUSIONS,
    ContributorResult,
    about_run,
    column_report,
    leakage_of,
)
from blindbayes.study.tasks.task import UNIT, Computation, DryRun

T = TypeVar("T")


class ShareTask(SharedModelTask, Generic[T]):
    """Training that ends in a share of the model, which this site keeps."""

    kind = "training"
    partitions = ("columns",)
    protocols: ClassVar[tuple[str, ...]]  # of training, for its leak report

    leaving: ClassVar[Leaving] = Leaving.UNSTATED  # the form in which columns leave a site
    setup: ColumnsSetup | JoinSetup  # what is public about the training

    @classmethod
    def check(cls, study: Study) -> None:
        require_record(study)
        require_audit(study)

    def __init__(self, agreement: Agreement) -> None:
        super().__init__(agreement)
        self._digest = b""
        self._labels_drawn = ""  # names the randomised labels that this site enters

    @property
    def columns(self) -> ColumnsSetup:
        """The holdings of the parties, as the protocols see them."""
        return self.setup if isinstance(self.setup, ColumnsSetup) else self.setup.columns

    def cost(self, party: str) -> Charge | None:
        """Return the cost of the noise in the shares and of the class holder's randomised labels. Answers cost no more."""
        noise = noise_of(self.study, self.setup)
        charge = None if noise is None else Charge(Spend.for_release(noise), UNIT, mechanism=noise.name)
        return with_labels(charge, self.study) if party == self.columns.class_holder else charge

    def overlap_partners(self, party: str) -> tuple[str, ...]:
        """Return the parties with whom training opens one bit: that enough identifiers joined."""
        return ()

    # -- one party, one run --------------------------------------------------------------------------------------------

    @abstractmethod
    def bring(self, party: str, source: ColumnSource) -> None:
        """Take a party's table as its input, checked against what is agreed, before anything leaves."""

    @abstractmethod
    def input_digest(self, key: bytes) -> bytes:
        """Return the keyed digest of the input."""

    @abstractmethod
    def role(self, name: str, run: Run, coins: Coins) -> Role[T]: ...

    @abstractmethod
    def share(self, trained: T) -> KeptShare:
        """Return what the party keeps, from what its role returned; the same for the same result."""

    def read(self) -> None:
        source = self.site.columns(self.agreement)
        self.site.require_rows(self.agreement, source.rows)
        self.site.require_cost(self.cost(self.site.name))
        if self.site.name == self.columns.class_holder:
            source, self._labels_drawn = randomised(self.study, source, self.site.key)
        self.bring(self.site.name, source)
        self._digest = self.input_digest(self.site.key)

    def digest(self, name: str) -> bytes:
        return self._digest

    def authorise_and_charge(self, name: str) -> None:
        charge = self.cost(self.site.name)
        if charge is not None and self._labels_drawn:
            charge = replace(charge, draw=self._labels_drawn)
        partners, answers = self.overlap_partners(self.site.name), reference_answers(self.setup)
        asked = Computation(self.agreement, self.run_id, charge, overlap_with=partners, answers=answers)
        self.site.authorise_and_charge(asked)

    def store(self, outputs: Mapping[str, object]) -> None:
        share = self.share(cast("T", outputs[self.site.name]))  # what `role` returned
        share.public = {**share.public, "run": self.run_id}
        if answers := reference_answers(self.setup):
            share.charge(answers)
        self.site.keep_share(self.run_id, share)

    def result(self, outcome: Outcome) -> ContributorResult:
        asking = ("shared_argmax",) if asks_references(self.columns) else ()
        names, about = self.agreement.names, about_run(self.agreement, self.run_id)
        report = column_report((*self.protocols, *asking), outcome, self.disclosure.conclusions, len(names), about)
        statement = self.statement(self.overlaps(outcome))
        return ContributorResult(leakage_of(outcome), outcome.cost, statement, report, {"included": list(names)})

    # -- for people ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def statement(self, overlaps: Mapping[str, int]) -> str:
        """Return what training promises, for the privacy officer."""

    def outputs(self) -> list[str]:
        """Return what the protocols of training open."""
        return []

    def conclusions(self) -> tuple[str, ...]:
        """Return what can be concluded from training and from the classifications that follow."""
        return SHARES_CONCLUSIONS

    @abstractmethod
    def security(self) -> tuple[str, str]:
        """Return the assumptions about the parties, and the gain of a deviating one."""

    @cached_property
    def disclosure(self) -> Disclosure:
        study, names = self.study, self.agreement.names
        audits = f"the classes of {COUNT} instances of its own making, to each party whose look-ups are audited"
        outputs = [*self.outputs(), *([audits] if asks_references(self.columns) else [])]
        learners = names if learner_of(study) == "all" else (learner_of(study),)
        assumption, deviation = self.security()
        return Disclosure(
            protocol=self.name,
            summary=self.description,
            messages=self.messages,
            outputs=tuple(Output(each, ()) for each in outputs),
            learners=learners,
            answers=Answers(
                study.options.get("queries"), learners, float(study.options.get("audit_rate", 0.0)), study.limits.min_cell
            ),
            epsilon=study.privacy.epsilon or 0.0,
            delta=study.privacy.delta,
            assumptions=(assumption,) if assumption else (),
            deviation=(deviation,) if deviation else (),
            conclusions=self.conclusions(),
            risks=tuple(single_readings(study, self.setup)),
            leaving=self.leaving,
        )

    def facts(self) -> dict[str, Json]:
        holdings, opens = self.agreement.holdings, self.disclosure
        return {
            "partition": "columns, " + ("rows line up" if self.aligned else "rows are matched by an identifier"),
            "holds": [f"{name}: {', '.join(holdings.holds[name]) or 'the class alone'}" for name in self.agreement.names],
            "class_holder": holdings.labelled[0],
            "labelled": list(holdings.labelled),
            **self._guards(),
            **self.sizes(),
            "opened": list(opens.opened),
            "model": "exists only as shares, one per party",
            "opened_per_classified_instance": ["class"],
            "learners": list(opens.learners),
            "queries": self.study.options.get("queries", "not limited: sites refuse such a study by policy"),
        }

    def _guards(self) -> dict[str, Json]:
        study = self.study
        facts: dict[str, Json] = {}
        if study.privacy.epsilon is not None:
            facts |= {"epsilon": study.privacy.epsilon, "delta": study.privacy.delta, "noise": "of every party, in the shares"}
        if (law := law_of(study)) is not None:
            facts |= {"label_epsilon": float(law.epsilon), "labels": f"randomised once; {law.keeps:.1%} stay as they are"}
        facts |= {"min_cell": study.limits.min_cell} if study.limits.min_cell else {}
        return facts | ({"read_closely": list(risks)} if (risks := self.disclosure.risks) else {})

    def sizes(self) -> dict[str, Json]:
        """Return what is public about the tables' sizes."""
        return {"rows": self.agreement.holdings.n_rows}

    def summary(self) -> list[str]:
        study, opened = self.study, "; ".join(self.disclosure.opened)
        to = "every site" if learner_of(study) == "all" else learner_of(study)
        return [
            *describe_holdings(self.agreement),
            f"  Opened in training: {opened}. Each site ends with a share of the model.",
            f"  Opened in scoring: the class, to {to}; at most {study.options['queries']} people.",
        ]

    def dry_run(self) -> DryRun:
        opens = self.disclosure
        lines = [
            f"Opened in training: {'; '.join(opens.opened)}. The model exists only as shares, one per party.",
            f"Opened per classified instance, which your own people must ask for: the class, to {', '.join(opens.learners)}.",
            *opens.risks,
        ]
        return dry_run_columns(self, lines)
