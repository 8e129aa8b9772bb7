"""Every reader of a file that others wrote: only errors of the package come out, in bounded time and memory."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import random
import resource
import time
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click import Command
from click.testing import CliRunner

from blindbayes import NaiveBayes, PrivateNaiveBayes, load
from blindbayes.agent.approvals.summary import approval_of, require_study
from blindbayes.agent.config import SiteConfig
from blindbayes.cli.commands.explain import command as explain_command
from blindbayes.cli.commands.ledger import command as ledger_command
from blindbayes.cli.commands.report import command as report_command
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.codebook.importers import import_codebook
from blindbayes.disclosure.audit_log import AuditLog
from blindbayes.disclosure.policy import Policy
from blindbayes.dp.accounting.accountant import Composition, Spend
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.dp.accounting.statement import PrivacyStatement
from blindbayes.errors import BlindbayesError, ConfigError, LedgerError
from blindbayes.io.files import read_folder, write_folder
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.net.identity import Card
from blindbayes.study.file import Privacy, StudyFile
from blindbayes.study.tasks.prediction import Request
from support.mutations import NASTY, mutated
from support.releases import DATA, release_of, released_sites

SECONDS, MEGABYTES = 8.0, 600
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
        share = {"codebook": BOOK.canonical().decode(), "owners": {"a": ["smoker"], "b": ["age"]}, "labelled": ["a"]}
        share |= {"rows": 10, "alpha": 1.0, "training": "x"}
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
        import shutil

        from blindbayes.report.checksums import seal_files

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


def _chained(path: Path, raw: bytes) -> None:
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
    from blindbayes.study.tasks.columns import columns_of

    columns_of(ModelShare.load(path).public)


def _framed_share(path: Path, raw: bytes) -> None:
    head = len(b"blindbayes share 1\n")
    body = raw[head + 32 :]
    path.write_bytes(b"blindbayes share 1\n" + hashlib.sha256(body).digest() + body)
    _share(path, raw)


def _request(path: Path, raw: bytes) -> None:
    from blindbayes.io.untrusted import read_json_table

    Request.from_dict(read_json_table(raw, "the request"))


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
    "ledger with fitting hashes": _chained,
    "audit log": _audit,
    "share": _share,
    "share with a fitting hash": _framed_share,
    "statement": lambda path, raw: PrivacyStatement.from_json(raw.decode(errors="replace")).text,
    "request": _request,
    **{f"dictionary: {format}": _dictionary(format, answers) for format, _, answers in DICTIONARY_FILES},
    "dictionary: spss": _dictionary("spss", {"target": "ill", "bounds": {"age": (0, 120)}}),
}
RELEASE = (
    "claims.json", "common.json", "common.signatures.json", "cost.json", "leakage.json", "model.json", "run.json",
    "signatures.json", "statement.json", "study.toml", "checksums",
)  # fmt: skip
CHILDREN = ("dictionary: spss",)  # each is read by a process of its own, which takes a second
KINDS = (*READERS, *(f"release: {name}" for name in RELEASE))


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Readers:
    return Readers(tmp_path_factory.mktemp("foreign"))


def read(readers: Readers, kind: str, raw: bytes) -> None:
    """Only the package's errors, and in time."""
    start = time.process_time()
    with contextlib.suppress(BlindbayesError):
        readers.read(kind, raw)
    taken = time.process_time() - start
    assert taken < SECONDS, f"{kind}: {taken:.1f} s"


def fuzzed(readers: Readers, kind: str, rounds: int, seed: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rng = random.Random(f"{kind} {seed}")
    for number in range(rounds):
        raw = mutated(readers.good[kind], rng)
        try:
            read(readers, kind, raw)
        except Exception as problem:
            raise AssertionError(f"{kind}, seed {seed}, round {number}: {raw[:3000]!r}") from problem
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    assert grown < MEGABYTES, f"{kind}: {grown:.0f} MB"


@pytest.mark.parametrize("kind", KINDS)
def test_a_good_file_is_read(readers: Readers, kind: str) -> None:
    readers.read(kind, readers.good[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_a_stranger_sends_ends_in_an_error_of_the_package(readers: Readers, kind: str) -> None:
    fuzzed(readers, kind, 12 if kind.startswith("release") else 2 if kind in CHILDREN else 40, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_so_does_every_mutation_of_a_long_run(readers: Readers, kind: str) -> None:
    rounds = 300 if kind.startswith("release") else 60 if kind in CHILDREN else 3000
    fuzzed(readers, kind, rounds, seed=int(os.environ.get("BLINDBAYES_FUZZ_SEED", "2")))


OTHER_KINDS = (None, True, -1, 1e308, "", "1e999999999", [], ["x"], {}, {"x": 1}, [[1]])
STRUCTURED = (
    "model",
    "statement",
    "request",
    "dictionary: frictionless",
    "dictionary: csvw",
    "dictionary: sdmx json",
    *(f"release: {name}" for name in RELEASE if name.endswith(".json")),
)


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a document; of lists and tables that are long, the beginning."""
    inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for name, each in [*inner][:40]:
        yield (*before, name)
        yield from places(each, (*before, name))


def of_another_kind(readers: Readers, kind: str, rounds: int) -> None:
    """A well-formed document in which one value is not what it should be: what random bytes seldom are."""
    good, rng = json.loads(readers.good[kind]), random.Random(f"another {kind}")
    changes = [(place, value) for place in places(good) for value in OTHER_KINDS]
    for place, value in rng.sample(changes, min(rounds, len(changes))):
        document = copy.deepcopy(good)
        inner = document
        for name in place[:-1]:
            inner = inner[name]
        inner[place[-1]] = value
        try:
            read(readers, kind, json.dumps(document).encode())
        except Exception as problem:
            raise AssertionError(f"{kind}: {value!r} at {place}") from problem


@pytest.mark.parametrize("kind", STRUCTURED)
def test_a_value_of_another_kind_ends_in_an_error_of_the_package(readers: Readers, kind: str) -> None:
    of_another_kind(readers, kind, 20 if kind.startswith("release") else 200)


@pytest.mark.slow
@pytest.mark.parametrize("kind", STRUCTURED)
def test_so_does_every_value_of_every_place(readers: Readers, kind: str) -> None:
    of_another_kind(readers, kind, 600)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.startswith(("share", "audit", *CHILDREN))])
@pytest.mark.parametrize("nasty", NASTY, ids=lambda raw: repr(raw[:12]))
def test_a_file_that_is_nothing_but_nasty_is_refused(readers: Readers, kind: str, nasty: bytes) -> None:
    read(readers, kind, nasty)


# -- cases of the review, by name --------------------------------------------------------------------------------------


def codebook_with(**fields: Any) -> str:
    return BOOK.to_toml() + "\n[[features]]\n" + "\n".join(f"{name} = {value}" for name, value in fields.items()) + "\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (codebook_with(kind='"numeric"', name='"x"', low=0, high=60_000_000, bins=60_000_000), "cells"),
        (codebook_with(kind='"numeric"', name='"x"', low=0, high="9" * 5000), "not valid TOML"),
        (codebook_with(kind='"numeric"', name='"x\\u202Ey"', low=0, high=1), "direction of writing"),
        (codebook_with(kind='"categorical"', name='"x"', values='["a\\u2066", "b"]'), "direction of writing"),
        ("a." * 100_000 + "a = 1", "tables within tables"),
        ("x = " + "[" * 100_000, "not valid TOML"),
    ],
)
def test_a_codebook_of_a_stranger_is_refused_at_once(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "codebook.toml").write_text(text, encoding="utf-8")
    start = time.process_time()
    with pytest.raises(ConfigError, match=said):
        Codebook.from_toml(tmp_path / "codebook.toml")
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    "privacy",
    ["delta = 1e-320", "delta = 5e-324\nmechanism = 'skellam'", "epsilon = 1e20", "epsilon = 1e-320",
     "epsilon = 1e8\ndelta = 1e-6", "epsilon = 1e-5\ndelta = 1e-9", f"rows = {'9' * 400}", "honest_fraction = nan",
     "delta = nan", "rows = 0", "party_rows = 3"],
)  # fmt: skip
def test_a_budget_that_means_nothing_neither_hangs_nor_divides_by_zero(readers: Readers, privacy: str) -> None:
    lines = readers.good["study"].decode().splitlines()
    for setting in privacy.split("\n"):
        name = setting.split(" = ")[0]
        at = next((number for number, line in enumerate(lines) if line.startswith(f"{name} = ")), lines.index("[privacy]") + 1)
        lines[at : at + lines[at].startswith(f"{name} = ")] = [setting]
    read(readers, "study", "\n".join(lines).encode())


def test_a_name_that_stands_twice_is_refused_in_every_kind_of_file(readers: Readers) -> None:
    for kind in ("model", "statement", "request", "release: run.json", "release: leakage.json", "release: signatures.json"):
        raw = readers.good[kind].decode()
        name = next(iter(json.loads(raw)))
        doubled = raw.replace("{", f'{{"{name}": 0, ', 1)
        with pytest.raises(BlindbayesError, match=r"name twice|stands twice"):
            readers.read(kind, doubled.encode())


def test_a_card_with_an_impossible_certificate_is_no_card(readers: Readers) -> None:
    """X.509 version 106: the library raises an error of its own."""
    import base64

    card = readers.good["card"].decode()
    head, rest = card.split("-----BEGIN CERTIFICATE-----\n")
    body, tail = rest.split("-----END CERTIFICATE-----")
    der = bytearray(base64.b64decode(body))
    at = der.index(b"\xa0\x03\x02\x01\x02")
    der[at + 4] = 105
    text = base64.encodebytes(bytes(der)).decode()
    with pytest.raises(ConfigError, match="not a site's card"):
        Card.from_toml(f"{head}-----BEGIN CERTIFICATE-----\n{text}-----END CERTIFICATE-----{tail}")


@pytest.mark.parametrize("composition", ["basic", "zcdp"])
def test_a_ledger_with_a_value_of_another_kind_is_an_error_of_the_package(tmp_path: Path, composition: Composition) -> None:
    path, changed = tmp_path / "ledger.jsonl", tmp_path / "changed.jsonl"
    spend = Spend(Fraction(1), Fraction(1, 10**6), 0.1, (100.0, 4, 2))
    Ledger.create(path, epsilon=3, delta=1e-5, composition=composition).charge(spend, purpose="a release", unit="one record")
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    for number, line in enumerate(lines):
        for name in line:
            for value in (*OTHER_KINDS, "1/0", "-1", "x", 10**30, "9" * 399, [1e308, 10**18, 10**18]):
                made = [dict(each) for each in lines]
                made[number][name] = value
                with contextlib.suppress(BlindbayesError):
                    _chained(changed, b"\n".join(json.dumps(each).encode() for each in made))
                problem = CliRunner().invoke(ledger_command, ["show", str(changed)]).exception
                assert problem is None or isinstance(problem, BlindbayesError | SystemExit), (number, name, value)


def test_a_ledger_whose_amounts_fill_the_memory_is_refused(tmp_path: Path, readers: Readers) -> None:
    raw = readers.good["ledger"].replace(b'"epsilon":"1"', b'"epsilon":"1e999999999"')
    assert raw != readers.good["ledger"]
    with pytest.raises(LedgerError):
        _chained(tmp_path / "ledger.jsonl", raw)


@pytest.mark.parametrize("kind", ["codebook", "study", "card", "model", "ledger", "audit log"])
def test_a_terabyte_of_nothing_is_refused_without_being_read(readers: Readers, tmp_path: Path, kind: str) -> None:
    """A sparse file takes no room on the disk it comes on. It took all the memory there is."""
    from blindbayes.net.identity import read_card

    path = tmp_path / "sparse"
    path.write_bytes(readers.good[kind])
    os.truncate(path, 1 << 40)
    reads = {**READERS, "card": lambda path, raw: read_card(path)}
    start = time.process_time()
    with pytest.raises(BlindbayesError):
        reads[kind](path, b"")
    assert time.process_time() - start < SECONDS
