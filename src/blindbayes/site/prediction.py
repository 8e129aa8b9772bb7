"""A classification at a site: it ends in classes for those who may learn them.

A share lies in the site's folder `shares/` and nowhere else; releases hold reports and, for learners, classes. A prediction
run's id says which model it asks and under which batch name, so that both sides' people, who each ask for it, find each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from blindbayes.data.columns import ColumnSource
from blindbayes.data.sources import Source
from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.lazy import lazy
from blindbayes.model.shares import ModelShare
from blindbayes.primitives.coins import Coins
from blindbayes.protocol.columns import ColumnsSetup
from blindbayes.protocol.core import Role, Run
from blindbayes.report import LeakReport, run_files
from blindbayes.scheme import aligned, joined, part
from blindbayes.scheme.result import about_run
from blindbayes.scheme.scoring import HiddenScoring, describe_prediction, hidden_scoring
from blindbayes.site.folder import SiteFolder
from blindbayes.site.release import csv_of
from blindbayes.site.work import FolderSite
from blindbayes.study.file import StudyFile
from blindbayes.transport.events import log_event
from blindbayes.transport.memory import Outcome
from blindbayes.wire.transcript import Cost

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy("pyarrow")

_HALF = 32  # digits: the model's run, then what names the batch
_MOST_NAME = 200


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a site's people ask for: to classify these instances with that model, under a name that all parties use."""

    model: str  # the training run
    batch: str
    rows: str | None = None  # where the instances are: a path or URL
    table: str | None = None
    count: int | None = None  # of a party without columns: how many there are
    keep: tuple[str, ...] = ()  # own columns that stand beside the classes in the release
    to: str | None = None  # over identifiers that do not line up: whose people are scored, and who learns their classes
    scope: Literal["everybody", "shared"] = "everybody"  # with `to`: all of them, or those whom the other has too

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Request:
        """From plain builtins."""
        try:
            found = msgspec.convert(dict(fields), cls, strict=True)
        except msgspec.ValidationError as cause:
            raise ConfigError(f"the request: {cause}") from None
        if len(found.model) != _HALF or not set(found.model) <= set("0123456789abcdef"):
            raise ConfigError(f"a model is named by its training run, {_HALF} hexadecimal digits: see `blindbayes site shares`")
        if not found.batch or len(found.batch) > _MOST_NAME or not found.batch.isprintable():
            raise ConfigError(f"a batch has a name of printable characters, at most {_MOST_NAME}")
        if (found.rows is None) == (found.count is None):
            raise ConfigError("name the instances with --table, or their number with --count if this site holds no column")
        if found.to is None and found.scope != "everybody":
            raise ConfigError("--scope says whom of the people of --to gets a class; name a site with --to")
        if found.to is not None and found.rows is None:
            raise ConfigError("to score people by identifier every site names its table with --table")
        return found


def prediction_run(study: str, model: str, batch: str) -> str:
    """The id of a prediction run: the same at every site that names the same study, model and batch."""
    text = "\n".join(("blindbayes prediction", study, model, batch))
    return model + hashlib.sha256(text.encode()).hexdigest()[:_HALF]


def model_of(run_id: str) -> str | None:
    """The model that a prediction run asks, or None for the id of a training run; an id of another length is neither."""
    if len(run_id) not in (_HALF, 2 * _HALF):
        raise ConfigError("the id is neither that of a training run nor that of a prediction run")
    return run_id[:_HALF] if len(run_id) == 2 * _HALF else None


@dataclass(frozen=True)
class Classified:
    """What a classification left at this site: the reports, and for a learner the classes."""

    report: LeakReport
    statement: str
    cost: Cost
    known: Mapping[str, Any]
    classes: Mapping[str, Any] | None

    def files(self) -> dict[str, bytes]:
        """Every file of the release but the checksums."""
        made = run_files(self.report, self.cost, self.statement)
        return made if self.classes is None else {**made, "classes.csv": csv_of(self.classes)}


def require_share(home: SiteFolder, name: str, study: StudyFile, model: str) -> ModelShare:
    """This site's share of a model; an error if there is none, or if it is another study's."""
    share = home.shares.load(model)
    if share.study != study.sha256:
        raise ConfigError("that model belongs to another study: name the study that it was trained under")
    if share.party != name:
        raise ConfigError("the share file is another party's; each site classifies with its own")
    return share


class PredictionJob:
    """See `scheme.job.Job`: a classification that this site's people asked for."""

    kind = "prediction"

    def __init__(self, site: FolderSite, run_id: str, request: Request) -> None:
        self.site, self.study, self.agreement = site, site.study, site.study.agreement
        self._home, self._run_id, self._request = site.home, run_id, request
        self._source: Source | None = None
        self._digest = b""
        self._part: part.Scoring | None = None
        self._hidden: HiddenScoring | None = None  # the same, if people are scored by identifier
        self._kept: dict[str, Any] = {}

    @property
    def required(self) -> int:
        """Everybody."""
        return len(self.agreement.seats)

    def digest(self, seat: str) -> bytes:
        """Of the coded instances."""
        return self._digest

    def read(self) -> None:
        """Open the share and the instances."""
        request, share = self._request, require_share(self._home, self.site.name, self.study, self._request.model)
        columns = aligned.columns_of(share.public)
        held = columns.owners[self.site.name]
        if request.count is not None:
            if held:
                raise ConfigError("this site holds columns of the model: name its instances with --table")
            if request.keep:
                raise ConfigError("--keep copies columns of --table, and this site brings none")
            rows: ColumnSource | int = request.count
        else:
            self._source = self.site.open_batch(request.rows or "", request.table)
            names = self._source.columns
            if missing := [name for name in (*held, *request.keep) if name not in names]:
                raise DataError(f"the instances lack column {missing[0]!r}; add it")
            if columns.codebook.target in request.keep or "row" in request.keep:
                raise ConfigError(
                    f"--keep takes no column called 'row' or {columns.codebook.target!r}: the release has its own"
                )
            rows = _instances(self._source, columns, held, keyed=request.to is not None)
        self._part = self._scoring_of(share, rows)
        known = self._home.history.classified(request.model, but=self._run_id)
        share.require_budget(self._part.count, self._run_id, known=known)
        self._digest = self._part.digest(self.site.key)
        if request.keep and self._source is not None:
            kept = self._source.table.select(*request.keep).to_pyarrow()
            self._kept = {name: kept.column(name) for name in request.keep}
            if kept.num_rows != (rows if isinstance(rows, int) else rows.rows):
                raise DataError("the instances changed while they were read; ask again")
            # After a crash too the classes stand beside the numbers that they were asked for.
            key = self.site.key[:64]
            kept_digest = hashlib.blake2b(self._digest, key=key, digest_size=32, person=b"blindbayes keep")
            kept_digest.update(csv_of(self._kept))
            self._digest = kept_digest.digest()

    def _scoring_of(self, share: ModelShare, rows: ColumnSource | int) -> part.Scoring:
        """This party's part; the class goes to whom the study says."""
        study, request = self.study, self._request
        compare_all, keyed = bool(study.options.get("compare_all", False)), not study.study.scheme.facts.aligned
        if request.to is None:
            found = joined.scoring if keyed else aligned.scoring
            return found(share, rows, study.reveal_to, compare_all=compare_all)
        if not keyed or isinstance(rows, int):
            raise ConfigError("--to is for studies whose rows are matched by an identifier; leave it out")
        if request.to not in study.names or study.reveal_to not in ("all", request.to):
            raise ConfigError(f"the study gives classes to {study.reveal_to}, so they cannot go to {request.to!r}")
        if request.scope == "shared" and not self._home.config.policy.reveal_matches:
            raise PrivacyError(
                "with --scope shared the asking site learns whom of its people the others have too; this site does not allow "
                "that: reveal_matches under [policy] in site.toml"
            )
        self._hidden = hidden_scoring(share, rows, request.to, request.scope, compare_all=compare_all)
        return self._hidden

    def role(self, seat: str, run: Run, coins: Coins) -> Role[Any]:
        """This party's role."""
        return self._scoring().role(run, coins)

    def _scoring(self) -> part.Scoring:
        if self._part is None:
            raise ConfigError("the instances were not read")
        return self._part

    def authorise_and_charge(self, seat: str) -> None:
        """Charge the query budget, once per run, and write it down."""
        home, study, run_id = self._home, self.study, self._run_id
        if home.approvals.find(study.sha256) is None:
            raise PrivacyError("the study's approval was taken back")
        count = self._scoring().count
        known = home.history.classified(self._request.model, but=run_id)
        home.shares.load(self._request.model).charge(count, run_id, known=known)
        if home.history.has_computed(run_id):
            return
        home.audit.append("classifying", run=run_id, study=study.sha256, model=self._request.model, instances=count)
        log_event("run_computing", run=run_id, study=study.sha256, instances=count)

    def keep(self, outputs: Mapping[str, Any]) -> None:
        """Nothing but the release."""

    def result(self, outcome: Outcome) -> Classified:
        """The classes, if this site may learn them, beside the report."""
        own, request = outcome.outputs[self.site.name], self._request
        columns: dict[str, Any] | None = None
        if own is not None:
            book, classes = self.study.book, np.asarray(own)
            labels = pa.array([book.classes[int(index)] if index >= 0 else None for index in classes], pa.string())
            columns = {"row": pa.array(np.arange(1, len(classes) + 1)), **self._kept, book.target: labels}
        count, hidden = self._scoring().count, None if self._hidden is None else self._hidden.hidden
        report, statement = describe_prediction(
            outcome,
            about_run(self.agreement, self._run_id),
            self.study.reveal_to,
            count=count,
            model=request.model,
            batch=request.batch,
            hidden=hidden,
        )
        facts = {"model": request.model, "batch": request.batch, "instances": count}
        return Classified(report, statement, outcome.cost, facts, columns)


def _instances(source: Source, columns: ColumnsSetup, held: tuple[str, ...], *, keyed: bool) -> ColumnSource | int:
    """The party's own columns of the instances; everything else in the table, but identifiers that count, is left unread."""
    rows = int(source.table.count().execute())
    if not held and not keyed:
        return rows
    features = tuple(feature for feature in columns.codebook.features if feature.name in held)
    return ColumnSource(columns.codebook, features, False, rows, source.table)
