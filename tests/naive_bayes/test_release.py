"""One table, one folder that can be signed: `train --release`, `model.release`, `explain`, `report` on a model file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from blindbayes import Categorical, Codebook, ConfigError, Ledger, NaiveBayes, Numeric, PrivateNaiveBayes, __version__
from blindbayes.cli import root
from blindbayes.dp.accounting.statement import code_digest
from blindbayes.io.files import read_folder
from blindbayes.report.checksums import verify_files
from blindbayes.report.page import model_page
from blindbayes.report.plots import evidence_plot
from blindbayes.report.weight_of_evidence import information, weights

BOOK = Codebook(
    target="outcome",
    classes=("home", "ward | B"),
    features=(
        Categorical("colour", ("red", "blue", "never")),
        Numeric("crp", 0, 1000, precision=1, bins=20),
        Numeric("noise", 0, 100, precision=1, bins=4),
    ),
)


def table(rows: int = 4000) -> pd.DataFrame:
    draws = np.random.default_rng(3)
    outcome = draws.choice(BOOK.classes, rows, p=(0.7, 0.3))
    crp = np.clip(draws.exponential(np.where(outcome == "home", 40.0, 120.0)), 0, 390).round()
    colour = np.where(draws.random(rows) < np.where(outcome == "home", 0.8, 0.4), "red", "blue")
    return pd.DataFrame({"colour": colour, "crp": crp, "noise": draws.integers(0, 101, rows), "outcome": outcome})


def run(*arguments: object) -> str:
    result = CliRunner().invoke(root, [str(each) for each in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("one-table")
    table().to_csv(where / "table.csv", index=False)
    (where / "codebook.toml").write_text(BOOK.to_toml(), encoding="utf-8")
    cover = run("report", "cover").replace('title = ""', 'title = "Discharge <b>"').replace('owner = ""', 'owner = "St. Mary"')
    (where / "cover.toml").write_text(cover.replace('controller = ""', 'controller = "Ärztliche Leitung"'), encoding="utf-8")
    run("site", "init", where / "mary", "--name", "mary")
    run("ledger", "init", where / "ledger.jsonl", "--epsilon", 1)
    said = run(
        *(
            "train",
            where / "table.csv",
            "--codebook",
            where / "codebook.toml",
            "--epsilon",
            0.5,
            "--release",
            where / "release",
        ),
        *("--ledger", where / "ledger.jsonl", "--cover", where / "cover.toml", "--sign", where / "mary"),
    )
    assert "signed" in said
    assert BOOK.sha256[:12] in said
    return where


def test_a_release_of_one_table_is_signed_and_every_paper_says_whose_it_is(place: Path) -> None:
    files = read_folder(place / "release")
    assert list(verify_files(files).signers) == ["mary"]
    assert {"index.html", "model.json", "model_card.md", "statement.md", "statement.json", "explain.html", "checksums"} < set(
        files
    )
    for name in ("statement.md", "model_card.md", "index.html"):
        text = files[name].decode()
        assert "St. Mary" in text, name
        assert f"blindbayes {__version__}" in text, name
        assert re.search(r"\b20\d\d-\d\d-\d\d\b", text), name
    index = files["index.html"].decode()
    assert "Discharge &lt;b&gt;" in index
    assert "Ärztliche Leitung" in index
    assert "ward | B" in index
    assert "@media print" in index
    assert "<script" not in index
    for link in re.findall(r'(?:href|src)="([^"]+)"', index):
        assert link in files
    assert "signed by mary" in run("report", place / "release")


def test_one_hash_of_the_codebook_stands_on_every_paper(place: Path) -> None:
    files = read_folder(place / "release")
    for name in ("statement.md", "model_card.md", "explain.html", "index.html"):
        assert set(re.findall(r"\b[0-9a-f]{64}\b", files[name].decode())) - {code_digest()} == {BOOK.sha256}, name


def test_a_folder_that_cannot_be_written_costs_no_budget(place: Path) -> None:
    before = Ledger(place / "ledger.jsonl").balance().left
    base = ["train", place / "table.csv", "--codebook", place / "codebook.toml", "--epsilon", 0.1, "--title", "t"]
    for wrong in (["--release", place / "release"], ["--release", place / "no" / "such"], ["--out", place / "m.json"], []):
        given = [str(each) for each in [*base, *wrong, "--ledger", place / "ledger.jsonl"]]
        result = CliRunner().invoke(root, given)
        assert isinstance(result.exception, ConfigError), wrong
    assert Ledger(place / "ledger.jsonl").balance().left == before


def test_a_model_file_and_a_folder_are_shown_and_explained(place: Path, tmp_path: Path) -> None:
    said = run("report", place / "release" / "model.json")
    assert "epsilon = 0.5" in said
    assert "no signature" in said
    for model in (place / "release", place / "release" / "model.json"):
        told = json.loads(run("explain", model, "--json"))
        assert next(iter(told["bits"])) in ("crp", "colour")
    assert "red" in run("explain", place / "release", "--feature", "colour")
    run("explain", place / "release", "--out", tmp_path / "page.html")
    assert "bits of information about outcome" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_an_exact_model_is_released_with_a_warning_instead_of_a_promise(tmp_path: Path) -> None:
    NaiveBayes(BOOK).fit(table()).release(tmp_path / "exact", cover="Exact")
    files = read_folder(tmp_path / "exact")
    verify_files(files)
    assert "not differentially private" in files["statement.md"].decode()


def test_values_that_nobody_has_are_not_drawn() -> None:
    exact = NaiveBayes(BOOK).fit(table())
    private = PrivateNaiveBayes(BOOK, epsilon=1.0, expected_rows=4000).fit(table())
    for model in (exact, private):
        record, noise_interval = model._record(), model._noise_interval()
        found = weights(record.parameters, noise_interval=noise_interval, statistics=record.statistics)
        unseen = {weight.value for weight in found if not weight.seen}
        assert "never" in unseen
        page = model_page(record.parameters, noise_interval=noise_interval, statistics=record.statistics)
        plot = evidence_plot(record.parameters, noise_interval, record.statistics)
        assert "never" not in page + plot
        assert ("no row has them" if noise_interval is None else "hidden by the noise") in page
        assert not re.search(r"crp: [5-9]\d\d", plot)  # nobody is above 390
    shown = [weight for weight in weights(exact.parameters_, statistics=exact.statistics_) if weight.rows is not None]
    truth = table()
    assert next(weight.rows for weight in shown if weight.value == "red") == 2 * (float((truth.colour == "red").sum()),)


def test_features_are_ranked_by_what_they_tell() -> None:
    ranked = list(information(NaiveBayes(BOOK).fit(table()).parameters_).items())
    assert ranked[-1][0] == "noise"
    assert ranked[-1][1] < 0.01 < ranked[0][1]
