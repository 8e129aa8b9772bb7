"""A site's folder: configuration, keys, pins, approvals, runs, audit log.

site.toml           what the agent listens on, where the rows are, what is allowed
card.toml keys/     who this site is                peers/      whom it knows
approved/<hash>     studies its people said yes to  runs/<id>/  journals of runs under way, outcomes of ended ones
audit.log           what happened                   releases/   what runs ended in
shares/<run>.share  this site's shares of models over columns, by training run; never part of a release
"""

from __future__ import annotations

import calendar
import hashlib
import json
import os
import time
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import tomlkit

from blindbayes.codebook import Categorical, Codebook
from blindbayes.errors import BlindbayesError, ConfigError, DataError, LedgerError, PrivacyError
from blindbayes.foreign import read_json_table, read_toml
from blindbayes.ledger import Ledger
from blindbayes.model.shares import ModelShare
from blindbayes.privacy.accounting import Spend
from blindbayes.privacy.chance import written
from blindbayes.site.audit_log import AuditLog
from blindbayes.site.policy import Data, PastSum, Policy, require_rate
from blindbayes.statistics import Statistics
from blindbayes.storage.files import erase, make_private_folder, write_whole
from blindbayes.study.file import StudyFile
from blindbayes.transport.identity import Card, Identity, pinned, read_card

if TYPE_CHECKING:
    from blindbayes.data.columns import ColumnSource
    from blindbayes.data.sources import Source


class Rows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the rows are: a CSV or Parquet path, or a database URL with `table`. Relative paths start at the site's folder."""

    source: str
    table: str | None = None
    extra_columns: str = "refuse"


class RelayUse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The relay's card, and the sites that are reached through it."""

    card: str
    sites: tuple[str, ...]


class Tls(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PEM files: the authority's certificates, and the chain that it made for this site's key (`blindbayes site request`)."""

    authority: str
    certificate: str


class SiteConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`site.toml`."""

    listen: str | None = None  # host:port for the other sites; absent: this site only dials out
    operator: str = "127.0.0.1:7441"  # for this site's own people; loopback only
    rows: Rows | None = None
    relay: RelayUse | None = None
    tls: Tls | None = None  # certificates of an authority, in addition to the pins
    policy: Policy = Policy()
    ledger: str = "ledger.jsonl"  # the site's own record of privacy spent
    journal_quota_mb: int = 4096

    def __post_init__(self) -> None:
        host = self.operator.rpartition(":")[0].strip("[]")
        if host not in ("127.0.0.1", "::1", "localhost"):
            raise ConfigError("the operator's port is for this machine only: use 127.0.0.1")


@dataclass(slots=True)
class SiteFolder:
    """One site's folder."""

    folder: Path
    config: SiteConfig
    audit: AuditLog = field(init=False)
    _read: dict[str, tuple[int, StudyFile]] = field(default_factory=dict, repr=False)  # approved studies by hash, with mtime
    _past: tuple[tuple[int, ...], list[dict[str, Any]]] | None = field(default=None, repr=False)  # the log, as it was read

    def __post_init__(self) -> None:
        self.audit = AuditLog(self.folder / "audit.log")

    @classmethod
    def open(cls, config_path: Path) -> SiteFolder:
        """The folder around a site.toml."""
        path = config_path / "site.toml" if config_path.is_dir() else config_path
        try:
            table = read_toml(path.read_bytes(), path.name)
            config = msgspec.convert(table, SiteConfig, strict=True)
        except FileNotFoundError:
            raise ConfigError(
                f"there is no {path.name}; name the site's folder with --config, or make a site with `blindbayes site init`"
            ) from None
        except msgspec.ValidationError as cause:
            if isinstance(cause.__cause__, ConfigError):
                raise cause.__cause__ from None
            raise ConfigError(f"{path.name}: {cause}") from None
        return cls(path.parent.resolve(), config)

    @classmethod
    def create(
        cls,
        folder: Path,
        name: str,
        *,
        config: SiteConfig,
        address: str = "",
        passphrase: str | None = None,
        epsilon: str = "10",
        delta: str = "0.00001",
    ) -> tuple[SiteFolder, Identity]:
        """A new site: keys, card, site.toml, and a ledger with its budget."""
        make_private_folder(folder)
        identity = Identity.create(folder, name, address=address, passphrase=passphrase)
        fields = _no_none(msgspec.to_builtins(config))
        document = tomlkit.document()
        document.add(tomlkit.comment(f"site {name}; see `blindbayes site --help`"))
        for key in sorted(fields, key=lambda key: isinstance(fields[key], dict)):
            document[key] = fields[key]
        write_whole(folder / "site.toml", tomlkit.dumps(document).encode(), replace=False)
        home = cls(folder.resolve(), config)
        Ledger.create(home.ledger.path, epsilon=epsilon, delta=delta, owner=name)
        home.audit.append("site made", site=name, fingerprint=identity.card.words)
        return home, identity

    @property
    def ledger(self) -> Ledger:
        """The record of privacy spent."""
        return Ledger(self.folder / self.config.ledger)

    def charge(self, study: StudyFile, run_id: str) -> None:
        """Pay for a run, once, before anything of it is computed. Raises `PrivacyError` if the budget does not suffice."""
        plan = study.study.plan(study.setting)
        if plan is None or self.has_paid(run_id):
            return
        spend = Spend(written(plan.price.epsilon), written(plan.price.delta))
        # What protects all rows of a party protects a record and a person; what protects a record protects nothing more.
        unit = plan.price.unit if plan.noise.unit == "person" else None
        self.ledger.charge(spend, purpose=f"study {study.title[:80]}", unit=unit, run=run_id, study=study.sha256)

    def charge_histograms(self, study: StudyFile, name: str, run_id: str) -> None:
        """Pay for this site's part of noisy_histograms, once."""
        if not self.has_paid(run_id):
            spend = Spend(study.noisy.mechanisms[name].epsilon, Fraction(0))
            self.ledger.charge(spend, purpose=f"study {study.title[:80]}", run=run_id, study=study.sha256)

    def has_paid(self, run_id: str) -> bool:
        """Whether the ledger was charged for a run."""
        return any(entry.kind == "charge" and entry.fields.get("run") == run_id for entry in self.ledger.entries())

    # -- people ------------------------------------------------------------------------------------------------------

    def peers(self) -> dict[str, Card]:
        """Pinned sites."""
        return pinned(self.folder)

    def relay(self) -> Card | None:
        """The relay's card."""
        if self.config.relay is None:
            return None
        return read_card(self.folder / self.config.relay.card)

    # -- approvals ---------------------------------------------------------------------------------------------------

    def approve(self, study: StudyFile, *, runs: int = 1) -> None:
        """Say yes to a study, by its hash, for a number of runs."""
        folder = make_private_folder(self.folder / "approved")
        write_whole(folder / f"{study.sha256}.toml", study.to_toml().encode())
        write_whole(folder / f"{study.sha256}.runs", str(runs).encode())
        self.audit.append("approved", study=study.sha256, runs=runs)

    def revoke(self, sha256: str) -> None:
        """Take an approval back."""
        path = self.folder / "approved" / f"{sha256}.toml"
        if not path.exists():
            raise ConfigError("no study of that hash is approved here")
        path.unlink()
        (self.folder / "approved" / f"{sha256}.runs").unlink(missing_ok=True)
        self.audit.append("revoked", study=sha256)

    def approved(self, sha256: str) -> tuple[StudyFile, int] | None:
        """The approved study of that hash and for how many runs, or None. Unknown and unapproved are one."""
        if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
            return None
        path = self.folder / "approved" / f"{sha256}.toml"
        try:
            if path.name not in os.listdir(path.parent):  # a name that was there once may be cached: ask for none
                return None
            changed = path.stat().st_mtime_ns
            if self._read.get(sha256, (None,))[0] != changed:
                self._read[sha256] = (changed, StudyFile.from_toml(path))
            study = self._read[sha256][1]
            runs = int(path.with_suffix(".runs").read_text())
        except (BlindbayesError, OSError, ValueError):
            return None
        return (study, runs) if study.sha256 == sha256 else None

    def approvals(self) -> list[StudyFile]:
        """All approved studies."""
        found = (self.approved(path.stem) for path in sorted((self.folder / "approved").glob("*.toml")))
        return [each[0] for each in found if each is not None]

    # -- the past ----------------------------------------------------------------------------------------------------

    def past(self) -> list[dict[str, Any]]:
        """The audit log, verified; read again only when the file has changed."""
        try:
            state = self.audit.path.stat()
        except FileNotFoundError:
            if self._past is not None:
                raise LedgerError("the audit log is gone; nothing more runs without it") from None
            return []
        seen = (state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        if self._past is None or self._past[0] != seen:
            known = [] if self._past is None else self._past[1]  # before the file: another thread may read on meanwhile
            found = list(self.audit.entries())
            # A chain alone misses a cut; what this process has read once must still be there.
            if known and (len(found) < len(known) or found[len(known) - 1]["hash"] != known[-1]["hash"]):
                raise LedgerError("the audit log was cut or replaced since this process read it; nothing more runs on it")
            self._past = (seen, found)
        return self._past[1]

    def starts(self, study: str | None = None) -> list[float]:
        """When runs (of a study) began to compute, by the calendar. Classifications have a budget of their own."""
        return [_when(entry) for entry in self.past() if entry["event"] == "computing" and study in (None, entry["study"])]

    def require_leave(self, study: StudyFile, now: float) -> None:
        """The last look before a run computes: still approved, for one more run, and not too many today."""
        found = self.approved(study.sha256)
        if found is None or len(self.starts(study.sha256)) >= found[1]:
            raise PrivacyError("the study's approval was taken back or used up")
        require_rate(self.config.policy, self.starts(), now)

    def has_computed(self, run_id: str) -> bool:
        """Whether a run came so far that this site looked at it, and charged for it."""
        return any(entry["event"] in ("computing", "classifying") and entry["run"] == run_id for entry in self.past())

    def idle_joins(self, site: str) -> list[float]:
        """When another site began runs here that never came to compute."""
        computed = {entry["run"] for entry in self.past() if entry["event"] in ("computing", "classifying")}
        joined = [entry for entry in self.past() if entry["event"] == "joined" and entry["proposed_by"] == site]
        return [_when(entry) for entry in joined if entry["run"] not in computed]

    def overlap_bits(self) -> list[tuple[float, str]]:
        """When a bit about the overlap with another site was told, and which (identity)."""
        return [
            (_when(entry), partner)
            for entry in self.past()
            if entry["event"] == "computing"
            for partner in entry.get("overlap_bits_with") or ()
        ]

    def past_sums(self) -> list[PastSum]:
        """Exact sums this site put a vector into. A run that began to compute and has no known end counts as uncertain."""
        begun: dict[str, dict[str, Any]] = {}
        ended: dict[str, PastSum] = {}
        for entry in self.past():
            if entry["event"] == "computing" and entry.get("exact"):
                begun[entry["run"]] = entry
            elif entry["event"] == "opened" and entry["run"] in begun:
                first = begun.pop(entry["run"])
                ended[entry["run"]] = PastSum(frozenset(entry["included"]), _data_of(first))
        for run, first in begun.items():
            everybody = first["fewest"] == len(first["contributors"])
            ended[run] = PastSum(frozenset(first["contributors"]), _data_of(first), certain=everybody)
        return list(ended.values())

    # -- runs --------------------------------------------------------------------------------------------------------

    def run_folder(self, run_id: str) -> Path:
        """Where a run's journals and outcome lie."""
        if not 16 <= len(run_id) <= 64 or not set(run_id) <= set("0123456789abcdef"):
            raise ConfigError("a run id has 16 to 64 hexadecimal digits")
        return self.folder / "runs" / run_id

    def outcome(self, run_id: str) -> dict[str, Any] | None:
        """How a run ended, if it did."""
        try:
            found = read_json_table((self.run_folder(run_id) / "outcome.json").read_bytes(), "outcome.json")
        except FileNotFoundError:
            return None
        except ConfigError:  # an end that cannot be read is an end
            return {"state": "failed", "message": "how the run ended cannot be read"}
        return found

    def end(self, run_id: str, outcome: dict[str, Any]) -> None:
        """Write a run's end. After this the run id is used up for ever."""
        folder = make_private_folder(self.run_folder(run_id))
        write_whole(folder / "outcome.json", json.dumps(outcome, sort_keys=True).encode())

    def keep_request(self, run_id: str, request: msgspec.Struct) -> None:
        """What this site's people asked for, for a run that is taken up again."""
        write_whole(make_private_folder(self.run_folder(run_id)) / "request.json", msgspec.json.encode(request))

    def request(self, run_id: str) -> dict[str, Any] | None:
        """What this site's people asked for, if the run is a classification."""
        try:
            return read_json_table((self.run_folder(run_id) / "request.json").read_bytes(), "request.json")
        except FileNotFoundError:
            return None

    def erase_leftovers(self) -> None:
        """A crash between the end of a run and the erasure of its journals leaves keys behind: destroy them."""
        for path in sorted((self.folder / "runs").glob("*/outcome.json")):
            self.erase_journals(path.parent.name)

    def erase_journals(self, run_id: str) -> None:
        """Destroy what could replay a run: the keys first."""
        for path in self.run_folder(run_id).glob("*/key"):
            erase(path)
        for path in self.run_folder(run_id).glob("*/journal"):
            path.unlink(missing_ok=True)
        erase(self.run_folder(run_id) / "request.json")  # it may name a database with its password

    def interrupted(self) -> list[str]:
        """Runs with a journal and no end."""
        return [
            path.name
            for path in sorted((self.folder / "runs").glob("*"))
            if not (path / "outcome.json").exists() and self.has_begun(path.name)
        ]

    def has_begun(self, run_id: str) -> bool:
        """Whether a run has a journal."""
        return any(self.run_folder(run_id).glob("*/journal"))

    # -- shares ------------------------------------------------------------------------------------------------------

    def _share_path(self, run_id: str) -> Path:
        return self.folder / "shares" / f"{self.run_folder(run_id).name}.share"

    def keep_share(self, run_id: str, share: ModelShare) -> None:
        """Keep what a training run left here, bound to that run. A run that is taken up again finds it kept, or destroyed."""
        if self.was_destroyed(run_id):
            share.wipe()
            raise ConfigError("this site's share of that model was destroyed; a run that goes on does not bring it back")
        share.public = {**share.public, "run": run_id}
        path = make_private_folder(self.folder / "shares") / self._share_path(run_id).name
        if not path.exists():
            share.save(path)

    def share(self, run_id: str) -> ModelShare:
        """This site's share of the model of a training run."""
        path = self._share_path(run_id)
        if not path.exists():
            raise ConfigError(
                "this site holds no share of that model: it was destroyed, or the training run is another one; "
                "`blindbayes site shares` lists what there is"
            )
        found = ModelShare.load(path)
        if found.public.get("run") != run_id:
            raise ConfigError("the share file belongs to another training run; was it renamed?")
        if self.was_destroyed(run_id):
            raise ConfigError(
                "this site's share of that model was destroyed, and the file is a copy: `blindbayes site destroy` it too"
            )
        return found

    def was_destroyed(self, run_id: str) -> bool:
        """Whether this site's people said that its share of a model shall be no more."""
        return any(entry["event"] == "destroyed" and entry["run"] == run_id for entry in self.past())

    def classified(self, model: str, *, but: str = "") -> int:
        """Instances classified with a model, by the audit log; without the run `but`."""
        return sum(
            entry["instances"]
            for entry in self.past()
            if entry["event"] == "classifying" and entry["model"] == model and entry["run"] != but
        )

    def shares(self) -> list[dict[str, Any]]:
        """What there is to classify with: study, training run, queries. No value."""
        found = []
        for path in sorted((self.folder / "shares").glob("*.share")):
            if self.was_destroyed(path.stem):  # a copy that came back, from a backup for example
                continue
            share = self.share(path.stem)
            spent = max(share.spent, self.classified(path.stem))
            found.append({"run": path.stem, "study": share.study, "queries": share.queries, "spent": spent})
        return found

    def destroy(self, run_id: str) -> None:
        """Erase this site's share: without it nobody can classify with that model any more."""
        path = self._share_path(run_id)
        if not self.was_destroyed(run_id):
            try:
                study = self.share(run_id).study
            except DataError:  # damaged: it goes all the same
                study = ""
            # Said first: whatever a crash leaves behind, or a backup brings back, is not used again.
            self.audit.append("destroyed", run=run_id, study=study)
        elif not path.exists():
            raise ConfigError("this site holds no share of that model: it was destroyed before")
        for each in (path, path.with_name(path.name + ".spent")):
            erase(each)

    # -- rows --------------------------------------------------------------------------------------------------------

    def count(self, codebook: Codebook) -> Statistics:
        """The exact statistics of this site's rows."""
        from blindbayes.data import count

        rows = self._rows()
        with self.open_batch(rows.source, rows.table, ordered=False) as source:
            return count(source, codebook, extra_columns=rows.extra_columns)

    def open_columns(self, study: StudyFile, name: str) -> tuple[Source, ColumnSource]:
        """This site's columns of a study, and the source to close."""
        from blindbayes.data.columns import ColumnSource, open_columns

        rows, held, book = self._rows(), study.holdings, study.book
        keys = study.key if book.identifier is None else tuple(part.column for part in book.identifier.parts)
        source = self.open_batch(rows.source, rows.table)
        try:
            wanted = {*held.holds[name], *keys, *((book.target,) if name in held.labelled else ())}
            if missing := sorted(wanted - set(source.columns)):
                raise DataError(f"the rows lack column {missing[0]!r}, which the study says this site holds; add it")
            extra = [column for column in source.columns if column not in wanted]
            if extra and rows.extra_columns != "ignore":
                raise DataError(
                    f"column {extra[0]!r} is not what the study says this site holds; drop it, or leave it unread: "
                    'extra_columns = "ignore" under [rows] in site.toml'
                )
            found = open_columns(source, book, ignore=source.columns)
            features = tuple(feature for feature in found.features if feature.name in held.holds[name])
            return source, ColumnSource(book, features, name in held.labelled, found.rows, source.table)
        except BaseException:
            source.close()
            raise

    def open_batch(self, where: str, table: str | None = None, *, ordered: bool = True) -> Source:
        """A table by path (relative to the site's folder) or URL. Close it."""
        from blindbayes.data.sources import open_source

        if "://" not in where and not os.path.isabs(where):
            where = str(self.folder / where)
        return open_source(where, table=table, ordered=ordered)

    def _rows(self) -> Rows:
        if self.config.rows is None:
            raise ConfigError("site.toml names no rows; add [rows] source = ...")
        return self.config.rows


def _when(entry: dict[str, Any]) -> float:
    return calendar.timegm(time.strptime(entry["time"], "%Y-%m-%dT%H:%M:%SZ"))


def data_state(key: bytes, statistics: Statistics) -> Data:
    """The state of the rows by digests that mean nothing without the site's key."""

    def digest(payload: bytes) -> str:
        return hashlib.blake2b(payload, key=key, digest_size=32, person=b"blindbayes data").hexdigest()

    book = statistics.codebook
    counts = {label: int(count) for label, count in zip(book.classes, statistics.class_counts, strict=True)}
    columns = frozenset((book.target, *book.names))
    by_class = digest(json.dumps(counts, sort_keys=True).encode())
    tables = {name: digest(json.dumps(table, sort_keys=True).encode()) for name, table in _tables(statistics).items()}
    return Data(book.sha256, columns, digest(statistics.words.tobytes()), by_class, tables)


def _tables(statistics: Statistics) -> dict[str, dict[str, Any]]:
    """Each feature's statistics by labels, without empty cells: the same for codebooks that differ elsewhere."""
    book, named = statistics.codebook, statistics.by_name()
    found: dict[str, dict[str, Any]] = {}
    for feature in book.features:
        values = feature.values if isinstance(feature, Categorical) else None
        for at, label in enumerate(book.classes):
            cells: dict[str, int] = {}
            for kind in ("n", "sums", "squares"):
                if feature.name in named[kind]:
                    cells[kind] = named[kind][feature.name][at]
            for place, count in enumerate(named["counts"].get(feature.name, [()] * len(book.classes))[at]):
                cells[f"value {values[place] if values is not None and place < len(values) else place}"] = count
            found.setdefault(feature.name, {})[label] = {name: count for name, count in cells.items() if count}
    return found


def _data_of(entry: dict[str, Any]) -> Data:
    tables = dict(line.split(" ", 1)[::-1] for line in entry.get("tables", ()))
    return Data(entry["codebook"], frozenset(entry["columns"]), entry["data"], entry["class_data"], tables)


def _no_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _no_none(item) for key, item in value.items() if item is not None}
    return value
