"""Files that readers stumbled over once: only errors of the package come out, in bounded time. `tests/fuzz` tries any input."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from blindbayes.cli.commands.ledger import command as ledger_command
from blindbayes.codebook import Codebook
from blindbayes.dp.accounting.accountant import Composition, Spend
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.errors import BlindbayesError, ConfigError, LedgerError
from blindbayes.net.identity import Card, read_card
from fuzz.engine import OTHER_VALUES, SECONDS
from fuzz.files import BOOK, READERS, Readers, chained


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
            for value in (*OTHER_VALUES, "1/0", "-1", "x", 10**30, "9" * 399, [1e308, 10**18, 10**18]):
                made = [dict(each) for each in lines]
                made[number][name] = value
                with contextlib.suppress(BlindbayesError):
                    chained(changed, b"\n".join(json.dumps(each).encode() for each in made))
                problem = CliRunner().invoke(ledger_command, ["show", str(changed)]).exception
                assert problem is None or isinstance(problem, BlindbayesError | SystemExit), (number, name, value)


def test_a_ledger_whose_amounts_fill_the_memory_is_refused(tmp_path: Path, readers: Readers) -> None:
    raw = readers.good["ledger"].replace(b'"epsilon":"1"', b'"epsilon":"1e999999999"')
    assert raw != readers.good["ledger"]
    with pytest.raises(LedgerError):
        chained(tmp_path / "ledger.jsonl", raw)


@pytest.mark.parametrize("kind", ["codebook", "study", "card", "model", "ledger", "audit log"])
def test_a_terabyte_of_nothing_is_refused_without_being_read(readers: Readers, tmp_path: Path, kind: str) -> None:
    """A sparse file takes no room on the disk it comes on. It took all the memory there is."""
    path = tmp_path / "sparse"
    path.write_bytes(readers.good[kind])
    os.truncate(path, 1 << 40)
    reads = {**READERS, "card": lambda path, raw: read_card(path)}
    start = time.process_time()
    with pytest.raises(BlindbayesError):
        reads[kind](path, b"")
    assert time.process_time() - start < SECONDS
