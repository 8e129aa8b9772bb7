"""Readers of files that others wrote: studies, settings, models, ledgers, shares, dictionaries, releases, journals, backups."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click import Command
from click.testing import CliRunner

from blindbayes import NaiveBayes, PrivateNaiveBayes, load
from blindbayes.agent.approvals.people import People
from blindbayes.agent.approvals.summary import approval_of, require_study
from blindbayes.agent.config import SiteConfig
from blindbayes.agent.runs.folders import RunFolders
from blindbayes.agent.store import backup as backups
from blindbayes.agent.store.backup import backup, restore
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.cli.commands.explain import command as explain_command
from blindbayes.cli.commands.report import command as report_command
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.codebook.importers import import_codebook
from blindbayes.disclosure.audit_log import AuditLog
from blindbayes.disclosure.policy import Policy
from blindbayes.dp.accounting.accountant import Spend
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.dp.accounting.statement import PrivacyStatement
from blindbayes.errors import BlindbayesError
from blindbayes.io.files import read_folder, write_folder
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.net.identity import Card, Identity
from blindbayes.net.journal import Begun, Decided, Journal, code_version
from blindbayes.protocols.shared_training.columns import ColumnsSetup
from blindbayes.report.checksums import seal_files
from blindbayes.study.file import Privacy, StudyFile
from blindbayes.study.roster import Change, Party
from blindbayes.study.tasks.prediction import Request
from blindbayes.study.tasks.public import columns_of, public_of
from blindbayes.testing.loopback import Loopback
from fuzz.targets import Target
from support.releases import DATA, release_of, released_sites

BOOK = Codebook("ill", ("no", "yes"), (Categorical("smoker", ("never", "now")), Numeric("age", 0, 99, bins=4)), max_rows=1000)

OMOP_BOOK = Codebook.from_dict(
    {
        **BOOK.to_dict(),
        "omop": {
            "vocabulary": "v5.0",
            "cohort": {"domain": "visit", "concepts": [9201], "start": "2020-01-01", "observed": [-30, 30], "age": [0, 99]},
            "columns": [
                {"name": "ill", "take": "any", "domain": "condition", "concepts": [1], "exclude": [2], "days": [0, 30]},
                {"name": "smoker", "take": "sex", "values": {"8507": "never", "8532": "now"}},
                {"name": "age", "take": "last", "domain": "measurement", "concepts": [3], "unit": 4, "convert": {"5": 0.5},
                 "days": [-9, 0]},
            ],
        },
    }
)  # fmt: skip


class Readers:
    """A good file of each kind, and the way of the product to read it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sites = released_sites(folder / "sites")
        north = self.sites.sites["north"]
        self.home = north.home.folder
        study = self.sites.make_study(BOOK, title="mutated", privacy=Privacy(epsilon=1.0, delta=1e-6))
        model = NaiveBayes(DATA.codebook).fit(next(iter(DATA.tables.values())))
        model.save(folder / "model.json")
        private = PrivateNaiveBayes(DATA.codebook, epsilon=1.0).fit(next(iter(DATA.tables.values())))
        Ledger.create(folder / "ledger.jsonl", epsilon=3, delta=0).charge(
            Spend(Fraction(1), Fraction(0)), purpose="a release", unit="one record"
        )
        audit = AuditLog(folder / "audit.log")
        audit.append("approved", study="ab" * 32, runs=1)
        share = public_of(ColumnsSetup(BOOK, 10, {"a": ("smoker",), "b": ("age",)}, ("a",), training="x"))
        ModelShare("ab" * 32, "a", share, {}, {}, None, 10).save(folder / "a.share")
        self.good: dict[str, bytes] = {
            "codebook": BOOK.to_toml().encode(),
            "codebook on OMOP": OMOP_BOOK.to_toml().encode(),
            "study": study.to_toml().encode(),
            "site.toml": (self.home / "site.toml").read_bytes(),
            "card": north.identity.card.to_toml().encode(),
            "model": (folder / "model.json").read_bytes(),
            "ledger": (folder / "ledger.jsonl").read_bytes(),
            "ledger with fitting hashes": (folder / "ledger.jsonl").read_bytes(),
            "audit log": (folder / "audit.log").read_bytes(),
            "share": (folder / "a.share").read_bytes(),
            "share with a fitting hash": (folder / "a.share").read_bytes(),
            "statement": private.statement_.to_json().encode(),
            "roster": _grown(study, self.sites).to_toml().encode(),
            "people": PEOPLE,
            "outcome": json.dumps({"state": "failed", "error": "PeerLost", "party": "south", "exit_code": 8}).encode(),
            "journal": _journal(folder / "journal").read_bytes(),
            "backup": _backup(north.home, folder / "backup"),
            "sealed backup": (folder / "backup").read_bytes(),
            "request": json.dumps({"model": "ab" * 16, "batch": "monday", "rows": "people.csv"}).encode(),
            **{f"dictionary: {format}": (DICTIONARIES / name).read_bytes() for format, name, _ in DICTIONARY_FILES},
            "dictionary: spss": _spss(folder / "good.sav"),
            **{f"release: {name}": content for name, content in self.release.items() if name.endswith((".json", ".toml"))},
            "release: checksums": self.release["checksums"],
        }

    @property
    def release(self) -> dict[str, bytes]:
        return read_folder(release_of(self.sites, "north"))

    def read(self, kind: str, raw: bytes) -> None:
        if kind.startswith("release: "):
            self._release(kind.removeprefix("release: "), raw)
            return
        path = self.folder / "mutated"
        path.write_bytes(raw)
        path.chmod(0o600)
        READERS[kind](path, raw)

    def _release(self, name: str, raw: bytes) -> None:
        """With checksums and the maker's signature to fit, as a maker may send it."""
        where = self.folder / "mutated release"
        shutil.rmtree(where, ignore_errors=True)
        files = {**self.release, name: raw}
        if name not in ("checksums", "signatures.json", "common.json", "common.signatures.json"):
            seals = ("checksums", "signatures.json", "common.json", "common.signatures.json", "claims.json")
            kept = {each: content for each, content in files.items() if each not in seals}
            files = seal_files(kept, {"north": self.sites.sites["north"].identity.signing}) | (
                {name: raw} if name == "claims.json" else {}
            )
        write_folder(where, files)
        ways: list[tuple[Command, list[str]]] = [
            (report_command, ["verify", str(where), "--config", str(self.home), "--partial"]),
            (report_command, ["show", str(where)]),
            (explain_command, [str(where)]),
        ]
        refused: list[BlindbayesError] = []
        for command, arguments in ways:  # what one refuses, another may take
            problem = CliRunner().invoke(command, arguments).exception
            if isinstance(problem, BlindbayesError):
                refused.append(problem)
            elif problem is not None and not isinstance(problem, SystemExit):
                raise problem
        if refused:
            raise refused[0]


def _codebook(path: Path, raw: bytes) -> None:
    Codebook.from_toml(path).to_toml()


def _study(path: Path, raw: bytes) -> None:
    """All that happens before people say yes."""
    study = StudyFile.from_toml(path)
    study.require_signatures()
    study.agreement.task  # noqa: B018 - whatever the options say
    approval_of(study)
    require_study(Policy(), study)
    study.to_toml()


def _ledger(path: Path, raw: bytes) -> None:
    ledger = Ledger(path)
    ledger.verify()
    ledger.balance()


def chained(path: Path, raw: bytes) -> None:
    """The hashes put right again: a chain without a key says nothing about who wrote it."""
    lines, previous = [], "0" * 64
    for number, line in enumerate(raw.splitlines()):
        try:
            fields = json.loads(line)
            body = {**{name: value for name, value in fields.items() if name != "hash"}, "n": number, "prev": previous}
            text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
        except (ValueError, AttributeError, RecursionError):
            continue
        previous = hashlib.sha256(b"blindbayes ledger v1" + text).hexdigest()
        lines.append(json.dumps({**body, "hash": previous}, sort_keys=True, separators=(",", ":")).encode() + b"\n")
    path.write_bytes(b"".join(lines))
    _ledger(path, raw)


def _audit(path: Path, raw: bytes) -> None:
    log = AuditLog(path)
    log.verify()
    list(log.entries())


def _share(path: Path, raw: bytes) -> None:
    columns_of(ModelShare.load(path).public)


def _framed_share(path: Path, raw: bytes) -> None:
    head = len(b"blindbayes share 1\n")
    body = raw[head + 32 :]
    path.write_bytes(b"blindbayes share 1\n" + hashlib.sha256(body).digest() + body)
    _share(path, raw)


def _request(path: Path, raw: bytes) -> None:
    from blindbayes.io.untrusted import read_json_table

    Request.from_dict(read_json_table(raw, "the request"))


def _grown(study: StudyFile, sites: Loopback) -> StudyFile:
    """One more party, signed by all."""
    east = Identity.generate("east")
    card = east.card
    grown = study.change(Change(study.roster.sha256, add=(Party("east", card.identity.hex(), key=card.key),)))
    for name in grown.roster.signers:
        grown = grown.sign_change(name, east.signing if name == "east" else sites.sites[name].identity.signing)
    return grown


def _roster(path: Path, raw: bytes) -> None:
    study = StudyFile.from_text(raw)
    study.require_signatures()
    study.require_changes()
    study.to_toml()


def _people(path: Path, raw: bytes) -> None:
    folder = path.parent / "people"
    folder.mkdir(exist_ok=True)
    people = People(folder / "people.toml", AuditLog(folder / "audit.log"))
    people.path.write_bytes(raw)
    people.all()
    people.require("approve", "Ada")


def _outcome(path: Path, raw: bytes) -> None:
    runs = RunFolders(path.parent / "runs")
    where = runs.folder("ab" * 16)
    where.mkdir(parents=True, exist_ok=True)
    (where / "outcome.json").write_bytes(raw)
    assert isinstance(runs.outcome("ab" * 16), dict)


PEOPLE = b'[[people]]\nname = "Ada"\nrole = "steward"\naccount = "ada"\n\n[[people]]\nname = "B"\nrole = "officer"\n'
KEY, PHRASE = bytes(range(32)), "a long passphrase"


def _journal(folder: Path) -> Path:
    journal = Journal.create(folder, Begun("ab" * 32, "run-1", "north", b"s" * 32, b"d" * 32, code_version()), KEY)
    for number in range(4):
        journal.receive("south", "VectorSent", bytes([number]) * 40)
    journal.decide(Decided(1, ("south",)))
    journal.close()
    return folder / "journal"


def _journal_file(path: Path, raw: bytes) -> None:
    """What is opened is a prefix of what was written: nothing is left out in the middle, and nothing is other than it was."""
    where = path.parent / "journal"
    (where / "journal").write_bytes(raw)
    journal = Journal.open(where, "run-1", KEY)
    try:
        for number in range(journal.count("south")):
            assert journal.take("south", number) == ("VectorSent", bytes([number]) * 40)
    finally:
        journal.close()


def _backup(home: SiteFolder, path: Path) -> bytes:
    """The tar within a backup."""
    backup(home, path, PHRASE)
    with path.open("rb") as file:
        file.seek(len(backups._MAGIC))
        return b"".join(backups._opened(file, backups._key(PHRASE, file.read(16))))


def _restored(path: Path, raw: bytes) -> None:
    where = path.parent / "restored"
    shutil.rmtree(where, ignore_errors=True)
    restore(path, where, PHRASE)


def _resealed(path: Path, raw: bytes) -> None:
    """A backup whose maker knows the passphrase."""
    out, salt = io.BytesIO(), bytes(16)
    sealing = backups._Sealing(out, backups._key(PHRASE, salt))
    sealing.write(raw)
    sealing.finish()
    path.write_bytes(backups._MAGIC + salt + out.getvalue())
    _restored(path, raw)


DICTIONARIES = Path(__file__).parents[1] / "codebook" / "dictionaries"
DICTIONARY_FILES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("redcap", "redcap/trial.csv", {"target": "outcome"}),
    ("frictionless", "frictionless/missing.json", {"target": "class"}),
    ("csvw", "csvw/inherited.json", {"target": "status"}),
    ("ddi", "ddi/satisfaction.xml", {"target": "VOTE"}),
    ("sdmx", "sdmx/measures_3_0.xml", {"target": "SEX"}),
    ("sdmx json", "sdmx/structure.json", {"target": "SIZE", "bounds": {"TURNOVER": (0, 9)}}),
)


def _dictionary(format: str, answers: dict[str, Any]) -> Callable[[Path, bytes], Any]:
    def read(path: Path, raw: bytes) -> None:
        if format == "spss":
            path = path.rename(path.with_suffix(".sav"))
        book = import_codebook(format.partition(" ")[0], path, answers).codebook
        book.to_toml()
        book.to_frictionless()
        book.to_csvw()

    return read


def _spss(path: Path) -> bytes:
    pyreadstat = pytest.importorskip("pyreadstat", reason="the spss extra is not installed")
    frame = pd.DataFrame({"ill": [1.0, 2.0], "age": [31.0, 47.0]})
    pyreadstat.write_sav(frame, path, variable_value_labels={"ill": {1: "yes", 2: "no"}}, missing_ranges={"age": [-9]})
    return path.read_bytes()


READERS: Mapping[str, Callable[[Path, bytes], Any]] = {
    "codebook": _codebook,
    "codebook on OMOP": _codebook,
    "study": _study,
    "site.toml": lambda path, raw: SiteConfig.read(path),
    "card": lambda path, raw: Card.from_toml(raw.decode(errors="surrogateescape")),
    "model": lambda path, raw: load(path),
    "ledger": _ledger,
    "ledger with fitting hashes": chained,
    "audit log": _audit,
    "share": _share,
    "share with a fitting hash": _framed_share,
    "statement": lambda path, raw: PrivacyStatement.from_json(raw.decode(errors="replace")).text,
    "request": _request,
    "roster": _roster,
    "people": _people,
    "outcome": _outcome,
    "journal": _journal_file,
    "backup": _resealed,
    "sealed backup": lambda path, raw: _restored(path, raw),
    **{f"dictionary: {format}": _dictionary(format, answers) for format, _, answers in DICTIONARY_FILES},
    "dictionary: spss": _dictionary("spss", {"target": "ill", "bounds": {"age": (0, 120)}}),
}
RELEASE = (
    "claims.json", "common.json", "common.signatures.json", "cost.json", "leakage.json", "model.json", "run.json",
    "signatures.json", "statement.json", "study.toml", "checksums",
)  # fmt: skip
CHILDREN = ("dictionary: spss",)  # each is read by a process of its own, which takes a second
COSTLY = ("backup", "sealed backup")  # a key from a passphrase
KINDS = (*READERS, *(f"release: {name}" for name in RELEASE))


def targets(folder: Path) -> Iterable[Target]:
    """Make one target per kind of file."""
    readers = Readers(folder)
    for kind in KINDS:
        rounds = 1 if kind in CHILDREN else 3 if kind in COSTLY else 12 if kind.startswith("release: ") else 60
        yield Target(kind, (readers.good[kind],), lambda raw, kind=kind: readers.read(kind, raw), rounds)
