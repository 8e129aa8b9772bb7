"""What the schemes have in common that end in shares of a model: their job of training, and their words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import msgspec

from blindbayes.data.columns import ColumnSource
from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.value import Exposure
from blindbayes.dp.accounting.accountant import Spend
from blindbayes.protocols.memory import Outcome
from blindbayes.protocols.shared_inference.references import COUNT
from blindbayes.protocols.shared_training.columns import ColumnsSetup
from blindbayes.study.agreement import Agreement
from blindbayes.study.schemes import Facts, Scheme
from blindbayes.study.study import Study, learner_of
from blindbayes.study.tasks.audits import asks_references, reference_answers, require_audit
from blindbayes.study.tasks.columns import dry_run_columns, require_record, tell_holdings
from blindbayes.study.tasks.guards import noise_of, single_readings
from blindbayes.study.tasks.job import UNIT, PartJob, Site
from blindbayes.study.tasks.labels import law_of, randomised, with_labels
from blindbayes.study.tasks.part import Training
from blindbayes.study.tasks.result import JointResult, Learned, about_run, column_report, leakage_of


class TrainingJob(PartJob[Training]):
    """See `job.Job`: training ends in a share, which this site keeps."""

    kind = "training"

    def __init__(self, agreement: Agreement, site: Site, run_id: str) -> None:
        super().__init__()
        self.agreement, self.site, self.run_id = agreement, site, run_id
        self._draw = ""  # which randomised labels this site enters

    @property
    def scheme(self) -> ShareScheme:
        """The study's."""
        found: Any = self.agreement.study.scheme
        return cast(ShareScheme, found)

    @property
    def required(self) -> int:
        return len(self.agreement.seats)

    def read(self) -> None:
        """Open this site's columns and look that they are what the study says."""
        source = self.site.columns(self.agreement)
        self.site.require_rows(self.agreement, source.rows)
        self.site.require_price(self.scheme.price(self.agreement, self.site.name))
        if self.site.name == self.scheme.columns(self.agreement).class_holder:
            source, self._draw = randomised(self.agreement.study, source, self.site.key)
        self._held = part = self.scheme.training(self.agreement, self.site.name, source)
        self._digest = part.digest(self.site.key)

    def authorise_and_charge(self, seat: str) -> None:
        """Approval, rate, bits about the overlap, ledger, query budget; once per run."""
        name = self.site.name
        partners, charge = self.scheme.told_bit(self.agreement, name), self.scheme.price(self.agreement, name)
        if charge is not None and self._draw:
            charge = replace(charge, draw=self._draw)
        answers = reference_answers(self.agreement.public)
        self.site.authorise_and_charge(self.agreement, self.run_id, charge, overlap_with=partners, answers=answers)

    def keep(self, outputs: Mapping[str, Any]) -> None:
        share = self._part().share(outputs[self.site.name], self.agreement.sha256)
        share.public = {**share.public, "run": self.run_id}
        if answers := reference_answers(self.agreement.public):
            share.charge(answers)
        self.site.keep_share(self.run_id, share)

    def result(self, outcome: Any) -> Any:
        return self.scheme.result(self.agreement, outcome, run=self.run_id)


class ShareScheme(Scheme, ABC):
    """What the schemes have in common that end in shares of a model. See `study.schemes.Scheme`."""

    name: str
    facts: Facts
    params: type[msgspec.Struct]
    protocols: tuple[str, ...]  # of training, for its leak report

    def check(self, study: Study) -> None:
        require_record(study)
        require_audit(study)

    def job(self, agreement: Agreement, site: Site, run_id: str) -> TrainingJob:
        return TrainingJob(agreement, site, run_id)

    @abstractmethod
    def training(self, agreement: Agreement, party: str, source: ColumnSource) -> Training:
        """A party's part, its table checked against what is agreed."""

    @abstractmethod
    def columns(self, agreement: Agreement) -> ColumnsSetup:
        """Who holds what, as the protocols see it."""

    def price(self, agreement: Agreement, party: str) -> Charge | None:
        """What a party pays for training: the noise in the shares, if there is any, and for its randomised labels. Answers cost
        nothing more."""
        noise = noise_of(agreement.study, agreement.public)
        charge = None if noise is None else Charge(Spend.of(noise), UNIT, mechanism=noise.name)
        return with_labels(charge, agreement.study) if party == self.columns(agreement).class_holder else charge

    def told_bit(self, agreement: Agreement, party: str) -> tuple[str, ...]:
        """The parties with whom training opens one bit: that enough identifiers joined."""
        return ()

    @abstractmethod
    def statement(self, agreement: Agreement, overlaps: Mapping[str, int]) -> str:
        """What training promises, in words."""

    def follows(self, agreement: Agreement) -> tuple[str, ...]:
        """What each way of classifying will tell, beyond what follows from shares."""
        return ()

    def first_follows(self, agreement: Agreement) -> tuple[str, ...]:
        """What follows from training itself, before anything that follows from shares."""
        return ()

    def result(
        self, agreement: Agreement, outcome: Outcome, *, run: str = "", model: Any = None, **_: Any
    ) -> JointResult | Learned:
        """The reports; the model too where all shares are in one place."""
        overlaps = next((found for found in map(overlaps_of, self._holder_first(agreement, outcome)) if found), {})
        parties, about = len(agreement.names), about_run(agreement, run)
        asking = ("shared_argmax",) if asks_references(self.columns(agreement)) else ()
        report = column_report((*self.protocols, *asking), outcome, parties, about, self.follows(agreement))
        report = replace(report, follows=(*self.first_follows(agreement), *report.follows))
        leakage, statement = leakage_of(outcome), self.statement(agreement, overlaps)
        if model is None:
            return Learned(leakage, outcome.cost, statement, report, {"included": list(agreement.names)})
        return JointResult(model, leakage, outcome.cost, statement, agreement.names, report, overlaps)

    def _holder_first(self, agreement: Agreement, outcome: Outcome) -> list[Any]:
        holder = self.columns(agreement).class_holder
        return [outcome.outputs[name] for name in (holder, *agreement.names) if name in outcome.outputs]

    # -- in words ------------------------------------------------------------------------------------------------------

    def exposure(self, agreement: Agreement) -> Exposure:
        """Nothing but classifications, whose number is limited."""
        study = agreement.study
        return Exposure(
            shares=True,
            queries=study.options.get("queries"),
            epsilon=study.privacy.epsilon or 0.0,
            delta=study.privacy.delta,
            audit_rate=float(study.options.get("audit_rate", 0.0)),
            min_cell=study.limits.min_cell,
        )

    def opens(self, agreement: Agreement) -> list[str]:
        """What the protocols of training open, in words."""
        return []

    def opened(self, agreement: Agreement) -> list[str]:
        """The same with what audits open."""
        audits = f"the classes of {COUNT} instances of its own making, to each party whose look-ups are audited"
        return [*self.opens(agreement), *([audits] if asks_references(self.columns(agreement)) else [])] or ["nothing"]

    def shown(self, agreement: Agreement) -> dict[str, Any]:
        held, study = agreement.holdings, agreement.study
        return {
            "partition": "columns, " + ("rows line up" if self.facts.aligned else "rows are matched by an identifier"),
            "holds": [f"{name}: {', '.join(held.holds[name]) or 'the class alone'}" for name in agreement.names],
            "class_holder": held.labelled[0],
            "labelled": list(held.labelled),
            **self.guards(agreement),
            **self.sizes(agreement),
            "opened": self.opened(agreement),
            "model": "exists only as shares, one per party",
            "opened_per_classified_instance": ["class"],
            "learners": list(agreement.names) if learner_of(study) == "all" else [learner_of(study)],
            "queries": study.options.get("queries", "not limited: sites refuse such a study by policy"),
        }

    def guards(self, agreement: Agreement) -> dict[str, Any]:
        """Noise and least cells."""
        study = agreement.study
        facts: dict[str, Any] = {}
        if study.privacy.epsilon is not None:
            facts |= {"epsilon": study.privacy.epsilon, "delta": study.privacy.delta, "noise": "of every party, in the shares"}
        if (law := law_of(study)) is not None:
            facts |= {"label_epsilon": float(law.epsilon), "labels": f"randomised once; {law.keeps:.1%} stay as they are"}
        facts |= {"min_cell": study.limits.min_cell} if study.limits.min_cell else {}
        return facts | ({"read_closely": risks} if (risks := single_readings(study, agreement.public)) else {})

    def sizes(self, agreement: Agreement) -> dict[str, Any]:
        """What is public about the tables' sizes."""
        return {"rows": agreement.holdings.n_rows}

    def told(self, agreement: Agreement) -> list[str]:
        study = agreement.study
        to = "every site" if learner_of(study) == "all" else learner_of(study)
        return [
            *tell_holdings(agreement),
            f"  Opened in training: {'; '.join(self.opened(agreement))}. Each site ends with a share of the model.",
            f"  Opened in scoring: the class, to {to}; at most {study.options['queries']} people.",
        ]

    def dry_run(self, agreement: Agreement, site: Site) -> tuple[dict[str, Any], list[str]]:
        said = self.shown(agreement)
        lines = [
            f"Opened in training: {'; '.join(said['opened'])}. The model {said['model']}.",
            f"Opened per classified instance, which your own people must ask for: the class, to {', '.join(said['learners'])}.",
            *said.get("read_closely", ()),
        ]
        return dry_run_columns(agreement, site, lines)


def overlaps_of(trained: Any) -> Mapping[str, int]:
    """Noisy numbers of joined identifiers that training opened to a party, if it did."""
    found: Mapping[str, int] = getattr(trained, "overlaps", {})
    return found
