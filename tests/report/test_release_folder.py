"""The release folder: complete, true to the run, sealed."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from blindbayes import Privacy, RowStudy, load
from blindbayes.crypto.coins import Coins
from blindbayes.datasets import hospitals
from blindbayes.dp.accounting.statement import Deployment, PrivacyStatement
from blindbayes.errors import ConfigError
from blindbayes.io.files import read_folder
from blindbayes.report.checksums import seal_files

DATA = hospitals(900)
ALWAYS = {
    "model.json",
    "model_card.md",
    "disclosure.json",
    "leakage.json",
    "index.html",
    "leakage.html",
    "cost.json",
    "statement.md",
    "statement.json",
    "explain.html",
    "plots/priors.svg",
    "plots/evidence.svg",
    "checksums",
}
DEPLOYMENT = Deployment(
    name="Readmission",
    curators=("north", "south", "west"),
    intended_use="Planning of home care",
    region="Synthetic",
    description="A model of readmission",
    published=date(2025, 1, 31),
    sector="Healthcare",
    actors="Three hospitals",
    justification="Epsilon 1 is what the three boards agreed on",
    sources="none",
    authors=("The consortium",),
)


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return RowStudy(DATA.codebook).simulate(DATA.tables).save(tmp_path_factory.mktemp("exact") / "release")


@pytest.fixture(scope="module")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = RowStudy(DATA.codebook, privacy=Privacy(epsilon=1.0)).simulate(DATA.tables)
    return result.save(tmp_path_factory.mktemp("private") / "release", deployment=DEPLOYMENT)


def test_an_exact_release_is_complete_and_loads(exact: Path) -> None:
    assert set(read_folder(exact)) == ALWAYS | {"plots/numbers.svg"}
    queries = DATA.tables["south"].drop_columns([DATA.codebook.target])
    expected = RowStudy(DATA.codebook).simulate(DATA.tables).model.predict(queries)
    assert np.array_equal(load(exact / "model.json").predict(queries), expected)


def test_a_private_release_carries_its_promise_in_three_forms(private: Path) -> None:
    assert set(read_folder(private)) == ALWAYS | {"statement.yaml"}
    promise = PrivacyStatement.from_json((private / "statement.json").read_text())
    assert promise.epsilon == pytest.approx(1.0, rel=1e-6)
    assert promise.epsilon <= 1.0
    assert f"epsilon: {promise.epsilon}" in (private / "statement.yaml").read_text()
    assert "epsilon: 1" in (private / "model_card.md").read_text()


def test_a_private_release_does_not_tell_an_exact_number_of_rows(private: Path) -> None:
    for name in ("model_card.md", "explain.html", "leakage.html", "statement.md"):
        assert not re.search(r"\b900\b", (private / name).read_text()), name
    assert "rows:" not in (private / "model_card.md").read_text()


def test_equal_runs_write_equal_papers() -> None:
    first, second = (RowStudy(DATA.codebook).simulate(DATA.tables, coins=Coins.seeded(bytes(32))).files() for _ in range(2))
    assert {name for name in first if first[name] != second[name]} <= {"cost.json"}  # which holds seconds


@pytest.mark.parametrize("protocol", ["masked_sum", "ring_sum", "chain_sum", "reference"])
def test_the_leak_report_tells_the_run_as_it_was(protocol: str) -> None:
    options = {"key_bits": 512, "toy_keys": True} if protocol == "chain_sum" else {}
    result = RowStudy(DATA.codebook, protocol=protocol, options=options).simulate(DATA.tables)
    files = result.files()
    found = json.loads(files["leakage.json"])
    assert found["protocols"] == [protocol]
    assert found["unforeseen"] == []
    assert {name: tuple(entry["opened"]) for name, entry in found["parties"].items()} == {
        name: leak.opened for name, leak in result.leakage.items()
    }
    page = files["leakage.html"].decode()
    for leak in result.leakage.values():
        for kind in leak.received:
            assert kind in page
    assert ("claims to protect nothing" in page) == (protocol == "reference")
    assert sum(flow.count for flow in result.report.flows) == result.cost.messages
    assert sum(flow.bytes for flow in result.report.flows) == result.cost.bytes


def test_pages_load_nothing_and_run_nothing_but_what_their_policy_names(exact: Path, private: Path) -> None:
    for path in (*exact.rglob("*"), *private.rglob("*")):
        if path.suffix in {".html", ".svg"}:
            text = path.read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")
            for link in re.findall(r'href="([^"]*)"', text):  # the index page names the files beside it
                assert (path.parent / link).is_file(), link
                text = text.replace(f'href="{link}"', "")
            if path.name == "explain.html":  # its form for what would be if: one script, by its hash
                script = re.search("<script>(.*)</script>", text, re.DOTALL)
                assert script is not None
                digest = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
                assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'\"" in text
                assert not re.search("fetch|XMLHttp|WebSocket|import|location|cookie|innerHTML", script[1])
                text = text.replace(script[0], "")
            assert not re.search(r"<script|<link|<img|src=|href=|https?://|@import|url\(", text), path.name


def test_names_are_escaped_on_every_page() -> None:
    nasty = "<script>alert(1)</script>"
    tables = dict(zip((nasty, "b", "c"), DATA.tables.values(), strict=True))
    files = RowStudy(DATA.codebook).simulate(tables).files()
    assert nasty.encode() not in files["leakage.html"]
    assert b"&lt;script&gt;" in files["leakage.html"]
    index = seal_files(files)["index.html"]
    assert nasty.encode() not in index
    assert b"&lt;script&gt;" in index


def test_a_folder_in_use_and_a_link_are_refused(exact: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="choose another"):
        RowStudy(DATA.codebook).simulate(DATA.tables).save(exact)
    copy = shutil.copytree(exact, tmp_path / "copy")
    (copy / "link").symlink_to(copy / "model.json")
    with pytest.raises(ConfigError, match="link"):
        read_folder(copy)
