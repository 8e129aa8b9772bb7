"""The task of a joint classification, between agents or by a model in one process.

The id of a prediction run names the model and the batch, so that the requests of all sites' staff find each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.data.columns import ColumnSource
from blindbayes.disclosure.value import Answers, Disclosure, Output
from blindbayes.errors import ConfigError, LocalProtocolError, UndisclosedError
from blindbayes.io.typed import Json
from blindbayes.io.untrusted import convert
from blindbayes.naive_bayes.shares import KeptShare, ModelShare
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.memory import Outcome
from blindbayes.protocols.shared_inference.compare_all import UNREADABLE
from blindbayes.protocols.shared_inference.roles import LABEL, TALLY
from blindbayes.protocols.shared_inference.tally import is_possible
from blindbayes.report.leakage import About
from blindbayes.statistics.evaluation import Evaluation
from blindbayes.study.agreement import Agreement
from blindbayes.study.study import learner_of
from blindbayes.study.tasks.classify import RowsAsked, RowScoring, Scoring, asked_of, scoring
from blindbayes.study.tasks.result import JointResult, Prediction, about_run, column_report, csv_of, leakage_of
from blindbayes.study.tasks.scoring import HiddenScoring
from blindbayes.study.tasks.task import AnsweringSite, BatchColumns, StudyTask, Task
from blindbayes.study.tasks.traits import ModelForm

if TYPE_CHECKING:
    from blindbayes.study.simulation.models import JointModel

_HALF = 32  # digits: the model's run, then what names the batch
_MAX_NAME = 200


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request of a site's staff: classify these instances with that model, under a name that all parties use."""

    model: str  # the training run
    batch: str
    rows: str | None = None  # where the instances are: a path or URL
    table: str | None = None
    count: int | None = None  # of a party without columns: how many there are
    keep: tuple[str, ...] = ()  # own columns that stand beside the classes in the release
    to: str | None = None  # whose people or instances are scored, who learns their classes: by identifier, or of whole rows
    scope: Literal["everybody", "shared"] = "everybody"  # with `to`: all of them, or those whom the other has too
    evaluate: bool = False  # open only totals by true and predicted class; the class holder's table has the classes

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Request:
        """Read a request from plain builtins."""
        request = convert(dict(fields), cls, "the request")
        if len(request.model) != _HALF or not set(request.model) <= set("0123456789abcdef"):
            raise ConfigError(f"a model is named by its training run, {_HALF} hexadecimal digits: see `blindbayes site shares`")
        if not request.batch or len(request.batch) > _MAX_NAME or not request.batch.isprintable():
            raise ConfigError(f"a batch has a name of printable characters, at most {_MAX_NAME}")
        if (request.rows is None) == (request.count is None):
            raise ConfigError("name the instances with --table, or their number with --count if this site holds no column")
        if request.to is None and request.scope != "everybody":
            raise ConfigError("--scope says whom of the people of --to gets a class; name a site with --to")
        if request.evaluate and (request.keep or request.scope != "everybody"):
            raise ConfigError("--evaluate opens totals and no class: leave --keep and --scope out")
        return request


def prediction_run(study: str, model: str, batch: str) -> str:
    """Return the id of a prediction run, the same at every site that names the same study, model and batch."""
    text = "\n".join(("blindbayes prediction", study, model, batch))
    return model + hashlib.sha256(text.encode()).hexdigest()[:_HALF]


@dataclass(frozen=True, slots=True)
class PredictionTerms:
    """The agreed terms of a study's classifications: who takes part, who learns the class, who compares scores."""

    about: About
    reveal_to: str = "all"
    compare_all: bool = False

    @classmethod
    def from_agreement(cls, agreement: Agreement, run_id: str) -> PredictionTerms:
        study = agreement.study
        return cls(about_run(agreement, run_id), learner_of(study), bool(study.options.get("compare_all", False)))


class PredictionTask(Task):
    """A classification that every site's staff asked for."""

    kind = "prediction"

    def __init__(self, terms: PredictionTerms, site: AnsweringSite, run_id: str, request: Request) -> None:
        self.terms, self.site, self.request = terms, site, request
        self._run_id = run_id
        self._columns: BatchColumns | None = None  # who brings which columns of the instances
        self._scoring: Scoring | None = None
        self._digest = b""
        self._labelled = ""  # the digest of this site's labelled instances, if others learn totals of them
        self._beside: dict[str, Any] = {}

    @property
    def required(self) -> int:
        return len(self.terms.about.parties)

    def read(self) -> None:
        request, share = self.request, self.site.share_of(self.request.model)
        self._columns = columns = asked_of(share.public, request.to)
        rows = self.site.instances(request, columns)
        self._scoring = part = self.scoring(share, rows)
        self.site.require_queries(share, self._run_id, part.charged)
        self._digest = part.digest(self.site.key)
        if self._opens_classes(rows):
            self._labelled = self._digest.hex()
            self.site.require_totals(request.model, self._run_id, part.count, self._labelled)
        if request.keep:
            self._beside = self.site.beside(request.keep, rows if isinstance(rows, int) else rows.rows)
            # After a crash too the classes stand beside the numbers that they were asked for.
            key = self.site.key[:64]
            kept_digest = hashlib.blake2b(self._digest, key=key, digest_size=32, person=b"blindbayes keep")
            kept_digest.update(csv_of(self._beside))
            self._digest = kept_digest.digest()

    def _opens_classes(self, rows: ColumnSource | int) -> bool:
        """Return True if others learn totals of instances whose classes this site brings."""
        is_labelled = not isinstance(rows, int) and rows.labelled
        return self.request.evaluate and is_labelled and self.disclosure.learners != (self.site.name,)

    def scoring(self, share: KeptShare, rows: ColumnSource | int) -> Scoring:
        """Return this party's side of the classification; the class goes to the party that the study names."""
        terms, request = self.terms, self.request
        if not isinstance(share, ModelShare):
            raise LocalProtocolError("the share is of another protocol than the study")
        if isinstance(self._columns, RowsAsked):
            if request.evaluate:
                raise ConfigError("--evaluate is for models over columns; rows of one party show it its own figures")
            return RowScoring(share, self._columns, rows)
        if request.to is None:
            return scoring(share, rows, terms.reveal_to, compare_all=terms.compare_all, tally=request.evaluate)
        if share.public.get("kind") != "join" or isinstance(rows, int):
            raise ConfigError("--to is for studies whose rows are matched by an identifier; leave it out")
        if request.to not in terms.about.parties:
            raise ConfigError(f"{request.to!r} is no party of the study: name one whose people are scored")
        if terms.reveal_to not in ("all", request.to):
            raise ConfigError(f"the study gives classes to {terms.reveal_to} alone, so they cannot go to {request.to!r}")
        if request.scope == "shared":
            self.site.require_matches_revealed()
        compare_all, tally = terms.compare_all, request.evaluate
        return HiddenScoring(share, rows, request.to, request.scope, compare_all=compare_all, tally=tally)

    def _read_scoring(self) -> Scoring:
        if self._scoring is None:
            raise LocalProtocolError("the instances were not read")
        return self._scoring

    @property
    def disclosure(self) -> Disclosure:
        part, to = self._read_scoring(), self.request.to or self.terms.reveal_to
        learners = self.terms.about.parties if to == "all" else (to,)
        return Disclosure(
            protocol=part.protocols[-1],
            summary="the class of each instance, to the parties that may learn it"
            if not self.request.evaluate
            else "totals of the instances by true and predicted class, to the parties that may learn classes",
            messages=(),
            outputs=(Output(TALLY if self.request.evaluate else LABEL, learners),),
            learners=learners,
            answers=Answers(part.charged, learners),
            conclusions=part.conclusions(),
        )

    def digest(self, name: str) -> bytes:
        return self._digest

    def max_bytes(self) -> int | None:
        return self._read_scoring().max_bytes()

    def role(self, name: str, run: Run, coins: Coins) -> Role[npt.NDArray[np.int64] | None]:
        return self._read_scoring().role(run, coins)

    def authorise_and_charge(self, name: str) -> None:
        part, study = self._read_scoring(), self.terms.about.study
        if self._labelled:  # another run may have opened totals since the rows were read
            self.site.require_totals(self.request.model, self._run_id, part.count, self._labelled)
        self.site.charge_queries(study, self.request.model, self._run_id, part.charged, self._labelled)

    def store(self, outputs: Mapping[str, object]) -> None:
        """Raise, before a release is written, if a class is unreadable or totals do not match the instances."""
        own = outputs.get(self.site.name)
        if own is None:
            return
        if self.request.evaluate:
            is_wrong = not is_possible(np.asarray(own), self._read_scoring().tallied)
        else:
            is_wrong = bool((np.asarray(own) == UNREADABLE).any())
        if is_wrong:
            others = [name for name in self.terms.about.parties if name != self.site.name]
            raise UndisclosedError(party=others[0]) if len(others) == 1 else UndisclosedError(suspects=others)

    def result(self, outcome: Outcome) -> Prediction:
        part, request, own = self._read_scoring(), self.request, outcome.outputs[self.site.name]
        labels = evaluation = None
        if own is not None and self._columns is not None and request.evaluate:
            evaluation = Evaluation.from_confusion(self._columns.codebook.classes, np.asarray(own))
        elif own is not None and self._columns is not None:
            named = np.array([*self._columns.codebook.classes, None], dtype=object)
            labels = named[np.asarray(own)]  # -1, the last: a row that got no class
            labels = labels.astype(str) if request.to is None else labels
        about = self.terms.about
        known: dict[str, Json] = {"model": request.model, "batch": request.batch, "instances": part.count}
        report = column_report(part.protocols, outcome, self.disclosure.conclusions, len(about.parties), about)
        batch = f"Study {about.study}\n\nModel of run {request.model}; batch {request.batch}"
        statement = part.statement(batch, request.to or self.terms.reveal_to)
        target = "" if self._columns is None else self._columns.codebook.target
        facts = leakage_of(outcome), outcome.cost, statement, report, known, labels, target, self._beside
        return Prediction(*facts, evaluation)


class SharedModelTask(StudyTask):
    """A task that leaves a model in shares, with which a classification is a run of its own."""

    model = ModelForm.SHARED

    def prediction(self, site: AnsweringSite, run_id: str, request: Request) -> PredictionTask:
        return PredictionTask(PredictionTerms.from_agreement(self.agreement, run_id), site, run_id, request)

    def local_result(self, outcome: Outcome, shares: Mapping[str, KeptShare]) -> JointResult:
        run, names, overlaps = self.result(outcome), self.agreement.contributors, self.overlaps(outcome)
        return JointResult(self.joint_model(shares), run.leakage, run.cost, run.statement, names, run.report, overlaps)

    def overlaps(self, outcome: Outcome) -> Mapping[str, int]:
        """Return the noisy numbers of joined identifiers that training opened."""
        return {}

    def joint_model(self, shares: Mapping[str, KeptShare]) -> JointModel:
        """Return the model of a simulation, which has every party's share."""
        from blindbayes.study.simulation.models import joint_model  # loads what only a simulation needs

        return joint_model(self.agreement, shares)
