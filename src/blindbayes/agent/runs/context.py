"""A run at this site: its task, its study file, and the site's folder as the task sees it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from blindbayes.agent.runs.folders import RunId, read_run_id
from blindbayes.agent.runs.release import write_release
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.codebook import Codebook
from blindbayes.data.columns import ColumnSource
from blindbayes.data.persons import PersonRows, no_persons
from blindbayes.data.sources import Source
from blindbayes.data.split import Reading
from blindbayes.disclosure.charges import Charge
from blindbayes.disclosure.checks import Contribution, RunRequest, facts_of, require_all, require_not_withdrawn
from blindbayes.disclosure.checks import charge as pay
from blindbayes.disclosure.policy import require_checked, require_cost, require_matches_revealed, require_rows, require_totals
from blindbayes.disclosure.value import Disclosure
from blindbayes.errors import ConfigError, DataError, LocalProtocolError, PrivacyError
from blindbayes.io.chain import is_rehearsal
from blindbayes.naive_bayes.shares import KeptShare, ShareHead
from blindbayes.net.driver import Finished, outcome_of
from blindbayes.net.events import log_event
from blindbayes.net.identity import Identity
from blindbayes.protocols import registry
from blindbayes.statistics import Statistics
from blindbayes.statistics.evaluation import Evaluation
from blindbayes.statistics.parameters import Parameters
from blindbayes.study.agreement import Agreement
from blindbayes.study.file import StudyFile
from blindbayes.study.tasks.evaluation import evaluation_task, require_evaluation
from blindbayes.study.tasks.output_check import with_checks
from blindbayes.study.tasks.prediction import Request
from blindbayes.study.tasks.result import PreviousTotal, RunResult
from blindbayes.study.tasks.sums import SumTask
from blindbayes.study.tasks.task import BatchColumns, Computation, State, Task, Vector
from blindbayes.study.tasks.traits import Support

if TYPE_CHECKING:  # estimators import scikit-learn, which commands that fit nothing do without
    from blindbayes.naive_bayes.base import BaseNaiveBayes

_T = TypeVar("_T")
_MODELS = 4  # of earlier runs, kept in memory


class FolderSite:
    """A `Site` and an `AnsweringSite`: a site's folder, as the task of one run sees it."""

    def __init__(self, home: SiteFolder, identity: Identity | str, study: StudyFile, run_id: str = "") -> None:
        self.home, self.study, self.run_id = home, study, run_id
        run = read_run_id(run_id, study.task) if run_id else None
        self.base = run.base if run else None
        # A cross-validation reads its rows for each of two sums. Noise covers them once: they must be the same rows.
        self._reads_twice = run is not None and run.kind == "evaluation" and not run.model
        self._withdrawn = home.history.has_withdrawn(study.sha256)
        self._counted: Statistics | None = None
        self._rows: tuple[str | None, str] = (None, "")
        self._since: str | None = None  # the run whose statistics were really subtracted
        self._identity = identity if isinstance(identity, Identity) else None
        self.name = identity if isinstance(identity, str) else identity.name
        self._source: Source | None = None

    @property
    def identity(self) -> Identity:
        """The site's keys. A dry run has none, and needs none."""
        if self._identity is None:
            raise RuntimeError("a dry run has no keys")
        return self._identity

    @property
    def key(self) -> bytes:
        return bytes(32) if self._identity is None else self._identity.storage_key

    @property
    def split_key(self) -> bytes:
        return hashlib.blake2b(key=self.key[:64], digest_size=32, person=b"bb held out").digest()

    def count(self, reading: Reading) -> Statistics:
        if self._withdrawn:
            return Statistics.zero(reading.codebook)
        count = partial(self.home.tables.count, reading)
        is_digested = self._identity is not None and (not reading.lenient or self._reads_twice)
        return self._with_digest(count) if is_digested else count()

    def persons(self, reading: Reading) -> PersonRows:
        return no_persons(reading.codebook) if self._withdrawn else self.home.tables.persons(reading)

    def evaluate(self, reading: Reading, models: Sequence[Parameters], bins: int) -> list[Evaluation]:
        if self._withdrawn:
            return [Evaluation.zero(reading.codebook.classes, bins) for _ in models]
        read = partial(self.home.tables.evaluate, reading, models, bins)
        return read() if reading.lenient and not self._reads_twice else self._with_digest(read)

    def _with_digest(self, read: Callable[[], _T]) -> _T:
        """Read the rows, and record their digest: without it an exact sum could never be compared with another."""
        tables = self.home.tables
        stamp, before = tables.stamp(), self._rows[0]
        self._rows = digest, _ = tables.digest(self.key), tables.name
        if before not in (None, digest):  # read again within one run: fold by fold
            raise DataError("the rows changed while they were counted; ask again when nobody writes to the table")
        result = read()
        changed = tables.digest(self.key) != digest if stamp is None else tables.stamp() != stamp
        if changed:
            raise DataError("the rows changed while they were counted; ask again when nobody writes to the table")
        return result

    def removed(self, reading: Reading) -> Statistics | None:
        if self.base is None or self.name not in self.study.contributors:
            return None
        if self.study.privacy.rows_per_person is not None:
            raise ConfigError("with rows_per_person a run has no base: which of a person's rows were counted is not kept")
        sha256, history = self.study.sha256, self.home.history
        since = history.since(sha256, self.base, self.study.party(self.name).identity, but=self.run_id)
        if since is None:
            return None
        statistics, begun = (
            self.home.increments.counted(self.key, sha256, since, reading.codebook),
            history.computed(sha256, since),
        )
        if begun is None or begun["data"] != self._digest(statistics):
            raise LocalProtocolError("the stored statistics of an earlier run are not those that the audit log records")
        self._since = since
        return statistics

    def previous_total(self, codebook: Codebook) -> tuple[PreviousTotal | None, bool]:
        sha256 = self.study.sha256
        run = None if self.base is None else self.home.history.named(sha256, self.base)
        total = None if run is None else self.home.increments.total(self.key, sha256, run, codebook)
        return total, self.base is not None and total is None

    def trained(self, name: str) -> BaseNaiveBayes:
        """Return the model of an earlier run, made from the total that this site learned itself."""
        require_evaluation(self.study.study)
        sha256, task = self.study.sha256, self.study.task
        run = self.home.history.named(sha256, name)
        if run is not None and (known := self.home.models.get((sha256, run))) is not None:
            model: BaseNaiveBayes = known
            return model
        book = task.counting if isinstance(task, SumTask) else self.study.book
        total = None if run is None else self.home.increments.total(self.key, sha256, run, book)
        if total is None or not isinstance(task, SumTask):
            raise ConfigError("this site learned no total of the run whose model is to be evaluated: name another run")
        model = task.model_of(total)
        if run is not None:
            self.home.models = dict([*self.home.models.items(), ((sha256, run), model)][-_MODELS:])
        return model

    def keep_total(self, result: PreviousTotal) -> None:
        self.home.increments.keep_total(self.key, self.study.sha256, self.run_id, result)

    def columns(self, agreement: Agreement) -> ColumnSource:
        self.close()
        self._source, columns = self.home.tables.open_columns(self.study, self.name)
        return columns

    def require_rows(self, agreement: Agreement, rows: int) -> None:
        if not self._withdrawn:
            require_rows(self.home.config.policy, self.study.agreement.study.limits.min_rows, rows)

    def require_cost(self, charge: Charge | None) -> None:
        require_cost(self.home.config.policy, None if charge is None else charge.spend)

    def state(self, counted: Vector) -> State:
        self._counted = counted if isinstance(counted, Statistics) else None
        return State(self._digest(counted), *self._rows)

    def _digest(self, counted: Vector) -> str:
        words = counted.words.tobytes()
        return hashlib.blake2b(words, key=self.key, digest_size=32, person=b"blindbayes data").hexdigest()

    def authorise_and_charge(self, asked: Computation) -> None:
        """Run the checks, pay, and write it down: once per run, all on disk before anything leaves."""
        home, study, run_id = self.home, self.study, asked.run_id
        if home.history.has_computed(run_id):
            return
        vector = None
        if asked.state is not None and asked.quorum_size is not None:
            vector = contribution(study, asked.state, asked.quorum_size, exact=asked.exact)
        request = replace(
            request_of(study, self.name, run_id, asked.discloses),
            base=self.base,
            since=self._since,
            withdrawn=self._withdrawn,
            vector=vector,
            partners=tuple(study.party(name).identity for name in asked.overlap_with),
            answers=asked.answers,
            charge=asked.charge,
        )
        records = home.records(study)
        require_all(request, records)
        pay(request, records)
        if self._counted is not None and Support.INCREMENTS in study.task.supports and not is_rehearsal():
            home.increments.keep_counted(self.key, study.sha256, run_id, self._counted)
        # The head after the charge: a ledger that loses its last lines is noticed before the next run (`rollback`).
        home.audit.append("computing", **facts_of(request), ledger=str(home.ledger.head))
        log_event("run_computing", run=run_id, study=study.sha256, contributors=len(study.contributors))

    def opened(self, agreement: Agreement, run_id: str, included: Sequence[str]) -> None:
        identities = [self.study.party(name).identity for name in included]
        self.home.audit.append("opened", run=run_id, study=self.study.sha256, included=identities)
        log_event("run_opened", run=run_id, study=self.study.sha256, sites=len(identities))

    def keep_share(self, run_id: str, share: KeptShare) -> None:
        self.home.shares.keep(run_id, share)

    # -- classifications -----------------------------------------------------------------------------------------------

    def share_of(self, model: str) -> KeptShare:
        share: KeptShare = self.home.shares.load(model, self.study.task.share_class)
        if share.study != self.study.sha256:
            raise ConfigError("that model belongs to another study: name the study that it was trained under")
        if share.party != self.name:
            raise ConfigError("the share file is another party's; each site classifies with its own")
        return share

    def instances(self, request: Request, columns: BatchColumns) -> ColumnSource | int:
        """Open the table that staff named. Only this site's columns of the study, and the identifier, are read."""
        own = columns.owners[self.name]
        labelled = request.evaluate and columns.class_holder == self.name
        if request.count is not None:
            if own or labelled:
                raise ConfigError("this site holds columns of the model: name its instances with --table")
            if request.keep:
                raise ConfigError("--keep copies columns of --table, and this site brings none")
            return request.count
        self.close()
        self._source = source = self.home.tables.open_batch(request.rows or "", request.table)
        target = (columns.codebook.target,) if labelled else ()
        if missing := [name for name in (*own, *target, *request.keep) if name not in source.columns]:
            raise DataError(f"the instances lack column {missing[0]!r}; add it")
        if columns.codebook.target in request.keep or "row" in request.keep:
            raise ConfigError(f"--keep takes no column called 'row' or {columns.codebook.target!r}: the release has its own")
        source.require_order()
        if request.keep:
            source.table  # noqa: B018 - reads one copy, so that the columns to keep match the instances
        rows = source.count()
        if not own and not labelled and request.to is None:
            return rows
        features = tuple(feature for feature in columns.codebook.features if feature.name in own)
        return ColumnSource(columns.codebook, features, labelled, rows, source)

    def beside(self, names: Sequence[str], rows: int) -> dict[str, Any]:
        if self._source is None:
            return {}
        columns = self._source.table.select(*names).to_pyarrow()
        if columns.num_rows != rows:
            raise DataError("the instances changed while they were read; ask again")
        return {name: columns.column(name) for name in names}

    def require_matches_revealed(self) -> None:
        require_matches_revealed(self.home.config.policy)

    def require_queries(self, share: KeptShare, run_id: str, count: int) -> None:
        share.require_budget(count, run_id, known=self.home.history.classified(share.study, but=run_id))

    def require_totals(self, model: str, run_id: str, rows: int, labelled: str) -> None:
        again = self.home.history.has_evaluated(model, labelled, but=run_id)
        require_totals(self.home.config.policy, rows, again=again)

    def charge_queries(self, study: str, model: str, run_id: str, count: int, labelled: str = "") -> None:
        home = self.home
        home.approvals.require_standing(study)
        home.shares.load(model, ShareHead).charge(count, run_id, known=home.history.classified(study, but=run_id))
        if home.history.has_computed(run_id):
            return
        facts = {"labelled": labelled} if labelled else {}
        home.audit.append("classifying", run=run_id, study=study, model=model, instances=count, **facts)
        log_event("run_computing", run=run_id, study=study, instances=count)

    def close(self) -> None:
        if self._source is not None:
            with suppress(Exception):
                self._source.close()
            self._source = None


def request_of(study: StudyFile, name: str, run_id: str = "", disclosure: Disclosure | None = None) -> RunRequest:
    """Return what one run of a study asks a party to reveal, before its rows are read. The default is a training run."""
    return RunRequest(
        run_id=run_id,
        study=study.sha256,
        roster=study.roster.sha256,
        title=study.title,
        disclosure=study.task.disclosure if disclosure is None else disclosure,
        identity=study.party(name).identity,
        names={party.identity: party.name for party in study.parties},
        unit=study.privacy.unit,
        queries=study.options.get("queries"),
    )


def contribution(study: StudyFile, state: State, quorum_size: int, *, exact: bool) -> Contribution:
    """Return a party's vector of a sum, by the digests of its data."""
    return Contribution(
        exact=exact,
        table=state.table,
        rows=state.rows,
        statistics=state.statistics,
        codebook=state.counted or study.book.sha256,
        contributors=tuple(study.party(name).identity for name in study.contributors),
        quorum_size=quorum_size,
        waits_for_all=registry.waits_for_all(study.protocol, study.setting),
        selection=_selection(study),
        folds=_folds(study),
    )


def _selection(study: StudyFile) -> str:
    """Return a hash of all settings that decide which rows of a table count, or "" if all of them do."""
    cohort = None if study.book.omop is None else study.book.omop.cohort.sha256
    chosen = (study.study.estimation.held_out or None, study.privacy.rows_per_person)
    if chosen == (None, None):
        return "" if cohort is None else _hash((*chosen, cohort))
    return _hash((*chosen, cohort, _units(study)))


def _folds(study: StudyFile) -> str:
    """Return the number of a study's folds and a hash of what is hashed to choose one, or "" if it has none."""
    folds = study.study.estimation.folds
    return f"{folds} {_hash(_units(study))}" if folds else ""


def _units(study: StudyFile) -> object:
    """Return what is hashed to split a table: the identifier, and the columns, for rows that have no identifier.

    Others split it in another way. Columns of an OMOP database are what the codebook makes them.
    """
    book = study.book
    return book.identifier, book.names, book.target, book.omop


def _hash(facts: object) -> str:
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()


class Work:
    """One run at this site: its task, and what is stored when it ends."""

    def __init__(self, study: StudyFile, site: FolderSite, task: Task, run_id: str) -> None:
        self.study, self.site, self.task, self.run_id = study, site, task, run_id

    def finish(self, finished: Mapping[str, Finished]) -> Path | None:
        """Store what the roles returned, then write the release, if there is one. Runs in a thread."""
        outcome = outcome_of(finished)
        self.task.store(outcome.outputs)
        folder, lost = self.site.home.folder / "releases", sorted({name for each in finished.values() for name in each.lost})
        receipts = {role: raw for each in finished.values() for role, raw in each.receipts.items()}

        def result() -> RunResult:
            made = with_checks(self.task, self.task.result(outcome))
            require_checked(self.site.home.config.policy, None if made.checked is None else made.checked.status)
            return made

        return write_release(folder, self.run_id, self.study, result, lost, self.site.identity, receipts)

    def close(self) -> None:
        self.site.close()


def run_of(home: SiteFolder, study: StudyFile, run_id: str) -> RunId:
    """Parse a run's id. Raises if this site may not take part in such a run, or another run has its name."""
    run = read_run_id(run_id, study.task)
    if home.history.named(study.sha256, run.name) not in (None, run_id):
        raise PrivacyError("another run of this study has that name")
    require_not_withdrawn(home.history.has_withdrawn(study.sha256), run.base)
    return run


def name_to_add_to(home: SiteFolder, study: StudyFile, base: str) -> str:
    """Return the name of an earlier run of the study. Raises unless this site learned its total."""
    name = read_run_id(base, study.task).name
    run = home.history.named(study.sha256, name)
    if run is None or not home.increments.has_total(study.sha256, run):
        raise ConfigError(
            "this site learned no total of that run: name another, ask the site that did, or run the study without a base"
        )
    return name


def work_of(
    home: SiteFolder, identity: Identity, run_id: str, study: StudyFile, request: Mapping[str, Any] | None = None
) -> Work:
    """Return the work of a run: training, an evaluation, or a classification that staff asked for."""
    run = run_of(home, study, run_id)
    site = FolderSite(home, identity, study, run_id)
    if run.kind == "training":
        return Work(study, site, study.task.at(site, run_id), run_id)
    if run.kind == "evaluation":
        task = evaluation_task(study.agreement, site.trained(run.model) if run.model else None)
        return Work(study, site, task.at(site, run_id), run_id)
    if request is None:
        raise ConfigError("a classification begins where this site's people ask for it")
    return Work(study, site, study.task.prediction(site, run_id, Request.from_dict(request)), run_id)
