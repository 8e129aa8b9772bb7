"""The work of a study over columns: training ends in a share, a classification in classes for those who may learn them.

A share lies in the site's folder `shares/` and nowhere else; releases hold reports and, for learners, classes. A prediction
run's id says which model it asks and under which batch name, so that both sides' people, who each ask for it, find each other.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa

from blindbayes.data.columns import ColumnSource
from blindbayes.data.sources import Source
from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.model.shares import ModelShare
from blindbayes.primitives.coins import Coins
from blindbayes.protocol.columns import Columns
from blindbayes.protocol.core import Role, Run
from blindbayes.scheme import aligned, guards, joined, part
from blindbayes.scheme.scoring import HiddenScoring, hidden_scoring
from blindbayes.site.folder import SiteFolder
from blindbayes.site.policy import require_overlap_bits, require_rows
from blindbayes.site.release import csv_of, write_classes, write_training
from blindbayes.study.file import StudyFile
from blindbayes.transport.driver import Finished
from blindbayes.transport.events import tell
from blindbayes.transport.identity import Identity

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
            raise ConfigError("name the instances with --rows, or their number with --count if this site holds no column")
        if found.to is None and found.scope != "everybody":
            raise ConfigError("--scope says whom of the people of --to gets a class; name a site with --to")
        if found.to is not None and found.rows is None:
            raise ConfigError("to score people by identifier every site names its table with --rows")
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


class _OverColumns:
    """What training and classification share."""

    def __init__(self, home: SiteFolder, identity: Identity, run_id: str, study: StudyFile) -> None:
        self.study = study
        self._home, self._identity, self._run_id = home, identity, run_id
        self._source: Source | None = None
        self._digest = b""

    @property
    def required(self) -> int:
        """Everybody."""
        return len(self.study.seats)

    def digest(self, seat: str) -> bytes:
        """Of the coded rows."""
        return self._digest

    def close(self) -> None:
        """Let go of the source."""
        if self._source is not None:
            self._source.close()
            self._source = None


class Training(_OverColumns):
    """See `work.Work`."""

    kind = "training"
    _part: part.Training

    def read(self) -> None:
        """Open this site's columns and look that they are what the study says."""
        study, name = self.study, self._identity.name
        self._source, columns = self._home.tables.open_columns(study, name)
        require_rows(self._home.config.policy, study, columns.rows)
        agreed = study.agreed
        if isinstance(agreed, Columns):
            self._part = aligned.training(study.study, agreed, name, columns)
        else:
            law, most = joined.overlap_noise(agreed, name), self._home.config.policy.max_epsilon_per_run
            noise = guards.noise_of(study.study, agreed)
            shares = 0.0 if noise is None else noise.price.epsilon
            if law is not None and law.price.epsilon + shares > most:  # whoever holds the class pays for every join
                raise PrivacyError(f"this site allows an epsilon of at most {most:g} per run; its estimates would cost more")
            self._part = joined.training(study.study, agreed, name, columns)
        self._digest = self._part.digest(self._identity.storage_key)

    def role(self, seat: str, run: Run, coins: Coins) -> Role[Any]:
        """This party's role."""
        return self._part.role(run, coins)

    def look(self, seat: str) -> None:
        """Approval, rate, bits about the overlap; once per run."""
        home, study, run_id = self._home, self.study, self._run_id
        if home.history.has_computed(run_id):
            return
        now = time.time()
        home.require_leave(study, now)
        partners = overlap_partners(study, self._identity.name)
        require_overlap_bits(home.config.policy, home.history.overlap_bits(), partners, now)
        agreed = study.agreed
        if not home.payments.has_paid(run_id):
            joined.charge_training(home.ledger, study.study, agreed, self._identity.name, study=study.sha256, run=run_id)
        home.audit.append(
            "computing", run=run_id, study=study.sha256, exact=False, partition="columns", overlap_bits_with=partners
        )
        tell("run_computing", run=run_id, study=study.sha256, contributors=len(study.contributors))

    def finish(self, finished: Mapping[str, Finished]) -> Path:
        """The share first, then the release: nothing was opened but, if asked for, that enough identifiers joined."""
        study, own = self.study, finished[self._identity.name]
        share = self._part.share(own.value, study.sha256)
        self._home.shares.keep(self._run_id, share)
        return write_training(self._home.folder / "releases", self._run_id, study, finished, self._identity)


class Classifying(_OverColumns):
    """See `work.Work`."""

    kind = "prediction"

    def __init__(self, home: SiteFolder, identity: Identity, run_id: str, study: StudyFile, request: Request) -> None:
        super().__init__(home, identity, run_id, study)
        self._request = request
        self._share: ModelShare | None = None
        self._part: part.Scoring | None = None
        self._hidden: HiddenScoring | None = None  # the same, if people are scored by identifier
        self._kept: dict[str, Any] = {}

    def read(self) -> None:
        """Open the share and the instances."""
        request, share = self._request, self.share()
        columns = aligned.columns_of(share.public)
        held = columns.owners[self._identity.name]
        if request.count is not None:
            if held:
                raise ConfigError("this site holds columns of the model: name its instances with --rows")
            if request.keep:
                raise ConfigError("--keep copies columns of --rows, and this site brings none")
            rows: ColumnSource | int = request.count
        else:
            self._source = self._home.tables.open_batch(request.rows or "", request.table)
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
        self._digest = self._part.digest(self._identity.storage_key)
        if request.keep and self._source is not None:
            kept = self._source.table.select(*request.keep).to_pyarrow()
            self._kept = {name: kept.column(name) for name in request.keep}
            if kept.num_rows != (rows if isinstance(rows, int) else rows.rows):
                raise DataError("the instances changed while they were read; ask again")
            # After a crash too the classes stand beside the numbers that they were asked for.
            key = self._identity.storage_key[:64]
            kept_digest = hashlib.blake2b(self._digest, key=key, digest_size=32, person=b"blindbayes keep")
            kept_digest.update(csv_of(self._kept))
            self._digest = kept_digest.digest()

    def _scoring_of(self, share: ModelShare, rows: ColumnSource | int) -> part.Scoring:
        """This party's part; the class goes to whom the study says."""
        study, request = self.study, self._request
        if request.to is None:
            together = bool(study.options.get("together", False))
            if study.protocol == "joined_sums":
                return joined.scoring(share, rows, study.reveal_to, together=together)
            return aligned.scoring(share, rows, study.reveal_to, together=together)
        if study.protocol != "joined_sums" or isinstance(rows, int):
            raise ConfigError("--to is for studies whose rows are matched by an identifier; leave it out")
        if request.to not in study.names or study.reveal_to not in ("all", request.to):
            raise ConfigError(f"the study gives classes to {study.reveal_to}, so they cannot go to {request.to!r}")
        if request.scope == "shared" and not self._home.config.policy.reveal_matches:
            raise PrivacyError(
                "with --scope shared the asking site learns whom of its people the others have too; this site does not allow "
                "that: reveal_matches under [policy] in site.toml"
            )
        together = bool(study.options.get("together", False))
        self._hidden = hidden_scoring(share, rows, request.to, request.scope, together=together)
        return self._hidden

    def share(self) -> ModelShare:
        """This site's share of the model; an error if there is none, or if it is another study's."""
        share = self._home.shares.load(self._request.model)
        if share.study != self.study.sha256:
            raise ConfigError("that model belongs to another study: name the study that it was trained under")
        if share.party != self._identity.name:
            raise ConfigError("the share file is another party's; each site classifies with its own")
        self._share = share
        return share

    def role(self, seat: str, run: Run, coins: Coins) -> Role[Any]:
        """This party's role."""
        return self._scoring().role(run, coins)

    def _scoring(self) -> part.Scoring:
        if self._part is None:
            raise ConfigError("the instances were not read")
        return self._part

    def look(self, seat: str) -> None:
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
        tell("run_computing", run=run_id, study=study.sha256, instances=count)

    def finish(self, finished: Mapping[str, Finished]) -> Path:
        """The classes, if this site may learn them, beside the report."""
        own = finished[self._identity.name].value
        columns: dict[str, Any] | None = None
        if own is not None:
            book, classes = self.study.book, np.asarray(own)
            labels = pa.array([book.classes[int(index)] if index >= 0 else None for index in classes], pa.string())
            columns = {"row": pa.array(np.arange(1, len(classes) + 1)), **self._kept, book.target: labels}
        facts = {"model": self._request.model, "batch": self._request.batch, "instances": self._scoring().count}
        hidden = None if self._hidden is None else self._hidden.hidden
        folder = self._home.folder / "releases"
        return write_classes(folder, self._run_id, self.study, finished, self._identity, facts, columns, hidden)


def overlap_partners(study: StudyFile, name: str) -> list[str]:
    """Identities of the parties with whom training opens one bit: that enough identifiers joined."""
    if study.protocol != "joined_sums" or not study.options.get("min_overlap"):
        return []
    holder = study.holdings.labelled[0]
    partners = [other for other in study.names if other != holder] if name == holder else [holder]
    return [study.party(other).identity for other in partners]


def _instances(source: Source, columns: Columns, held: tuple[str, ...], *, keyed: bool) -> ColumnSource | int:
    """The party's own columns of the instances; everything else in the table, but identifiers that count, is left unread."""
    rows = int(source.table.count().execute())
    if not held and not keyed:
        return rows
    features = tuple(feature for feature in columns.codebook.features if feature.name in held)
    return ColumnSource(columns.codebook, features, False, rows, source.table)
