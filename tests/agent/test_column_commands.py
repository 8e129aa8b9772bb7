"""The commands of a study over columns, end to end: two sites from `site init` to a file of classes."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from blindbayes.cli import main
from blindbayes.net.identity import read_card
from blindbayes.study.file import StudyFile
from blindbayes.testing.loopback import free_port
from support.column_sites import Split, pair, small

NAMES = ("hospital", "insurer")
BLINDBAYES = str(Path(sys.executable).parent / "blindbayes")
HOLDS = ["--holds", "hospital=age,colour", "--holds", "insurer=weight,smokes", "--labelled", "hospital"]


def call(*words: object) -> int:
    """A command in this process; its exit code."""
    try:
        main([str(word) for word in words])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.fixture
def split() -> Split:
    return pair()


@pytest.fixture
def world(tmp_path: Path, split: Split, capsys: pytest.CaptureFixture[str]) -> Path:
    """Two sites that have pinned each other, and a codebook."""
    rows = split.write(tmp_path / "rows")
    split.book.to_toml(tmp_path / "codebook.toml")
    for name in NAMES:
        address = f"127.0.0.1:{free_port()}"
        options = ["--listen", address, "--address", address, "--operator", "127.0.0.1:0", "--table", rows[name]]
        assert call("site", "init", tmp_path / name, "--name", name, *options) == 0
    for name, other in (NAMES, NAMES[::-1]):
        card = tmp_path / other / "card.toml"
        assert call("site", "pin", card, "--words", read_card(card).words, "--config", tmp_path / name) == 0
    capsys.readouterr()
    return tmp_path


def init(world: Path, *more: object, name: str = "study.toml") -> int:
    cards = [word for site in NAMES for word in ("--card", world / site / "card.toml")]
    return call("study", "init", world / name, "--title", "Both", "--codebook", world / "codebook.toml", *cards, *more)


def answer(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_study_over_columns_is_written_checked_and_shown(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(world, *HOLDS, "--n-rows", 120, "--queries", 40, "--reveal-to", "insurer") == 0
    study = world / "study.toml"
    capsys.readouterr()
    assert call("study", "check", study) == 0
    text = capsys.readouterr().out
    assert "hospital: age, colour; insurer: weight, smokes" in text
    assert "opened" in text
    assert "nothing" in text
    for ugly in ("{", "}", "[", "None"):
        assert ugly not in text
    assert call("study", "check", study, "--json") == 0
    facts = answer(capsys)
    assert facts["learners"] == ["insurer"]
    assert facts["opened"] == ["nothing"]
    assert facts["rows"] == 120
    assert call("study", "dry-run", study, "--config", world / "insurer") == 0
    text = capsys.readouterr().out
    assert "would read weight, smokes." in text
    assert "Nothing has left." in text
    assert call("study", "dry-run", study, "--config", world / "insurer", "--json") == 0
    assert answer(capsys)["refused_because"] == []


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ([*HOLDS, "--n-rows", 120], 2, "(--queries)"),
        ([*HOLDS, "--n-rows", 119, "--queries", 5], 0, "another number of rows"),
        (["--holds", "hospital", "--labelled", "hospital"], 2, "Invalid value for '--holds': 'hospital' is not of the form"),
        ([*HOLDS[:4], "--queries", 5, "--n-rows", 120], 2, "who has the class"),
        ([*HOLDS, "--queries", 5], 2, "identifiers"),
    ],
)
def test_what_is_missing_is_named(
    world: Path, capsys: pytest.CaptureFixture[str], options: list[object], code: int, message: str
) -> None:
    if init(world, *options) == 0:
        call("study", "dry-run", world / "study.toml", "--config", world / "hospital")
        assert call("site", "approve", world / "study.toml", "--config", world / "hospital") == code
    else:
        assert code == 2
    told = capsys.readouterr()
    assert message in told.out + told.err


def test_unaligned_studies_are_written_too(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bounds = ["--bound", "hospital=4096", "--bound", "insurer=5000", "--key", "number", "--min-overlap", "20"]
    assert init(world, *HOLDS, *bounds, "--queries", 5000, "--duplicates", "first") == 0
    study = StudyFile.from_toml(world / "study.toml")
    assert study.protocol == "joined_sums"
    assert study.options == {"bounds": {"hospital": 4096, "insurer": 5000}, "queries": 5000, "min_overlap": 20}
    capsys.readouterr()
    assert call("study", "check", world / "study.toml") == 0
    assert "whether at least 20 identifiers match" in capsys.readouterr().out


def test_a_study_over_rows_is_shown_without_bare_dicts(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert init(world, "--epsilon", 1, "--min-parties", 2, "--quorum", 2) == 0
    capsys.readouterr()
    assert call("study", "check", world / "study.toml") == 0
    text = capsys.readouterr().out
    assert "server at hospital" in text
    assert "{" not in text
    assert call("study", "check", world / "codebook.toml") == 2
    assert "this is a codebook, not a study" in capsys.readouterr().err
    assert call("study", "predict", world / "study.toml", "--batch", "b", "--count", 1, "--config", world / "hospital") == 2
    assert "blindbayes predict" in capsys.readouterr().err


@pytest.fixture
def serving(world: Path) -> Iterator[Path]:
    """The two agents as `blindbayes site serve`."""
    processes = []
    try:
        for name in NAMES:
            command = [BLINDBAYES, "site", "serve", "--config", str(world / name), "--json", "--log-json"]
            with (world / f"{name}.err").open("wb") as errors:
                processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=dict(os.environ)))
        for process in processes:
            assert process.stdout is not None
            readable, _, _ = select.select([process.stdout], [], [], 60)
            assert readable
            process.stdout.readline()
        yield world
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            assert process.wait(60) == 0
            assert process.stdout is not None
            process.stdout.close()


def predict(folder: Path, name: str, *more: object) -> list[str]:
    config = ["--batch", "monday", "--table", folder / f"{name}-batch.csv", "--config", folder / name]
    return [str(word) for word in ("study", "predict", folder / "study.toml", *config, *more)]


def test_from_init_to_a_file_of_classes(serving: Path, split: Split, capsys: pytest.CaptureFixture[str]) -> None:
    study = serving / "study.toml"
    assert init(serving, *HOLDS, "--n-rows", 120, "--queries", 40, "--reveal-to", "insurer") == 0
    for name in NAMES:
        assert call("site", "approve", study, "--config", serving / name) == 0
    early = ("--batch", "b", "--table", serving / "hospital" / "card.toml", "--config", serving / "hospital")
    assert call("study", "predict", study, *early) == 2
    assert "no share of a model" in capsys.readouterr().err
    assert call("study", "run", study, "--config", serving / "hospital", "--json") == 0
    model = answer(capsys)["run"]
    text = ""
    for _ in range(2000):  # the other site may take a moment longer
        assert call("site", "shares", "--config", serving / "insurer") == 0
        if "No shares" not in (text := capsys.readouterr().out):
            break
        time.sleep(0.05)
    assert f"run {model}" in text
    assert "0 of 40 queries used" in text
    rows = small(30, seed=8).assign(number=range(30))
    split.ask(serving, rows, number="number")
    other = subprocess.Popen([BLINDBAYES, *predict(serving, "hospital")], stdout=subprocess.PIPE, text=True)
    out = serving / "classes.parquet"
    assert call(*predict(serving, "insurer", "--keep", "number", "--out", out)) == 0
    told, _ = other.communicate(timeout=60)
    assert other.returncode == 0
    assert "The classes went to insurer" in told
    found = pd.read_parquet(out)
    assert found["number"].tolist() == list(range(30))
    assert found["class"].tolist() == split.pooled().predict(rows[split.features]).tolist()
    capsys.readouterr()
    assert call(*predict(serving, "insurer")) == 2
    assert "take another name" in capsys.readouterr().err
    assert call("site", "shares", "--config", serving / "hospital", "--json") == 0
    assert answer(capsys)[0]["spent"] == 30
    assert call("site", "destroy", model, "--yes", "--config", serving / "hospital") == 0
    capsys.readouterr()
    assert call("site", "log", "--config", serving / "hospital") == 0
    log = capsys.readouterr().out
    for event in ("joined", "computing", "classifying", "destroyed"):
        assert event in log
    for name in NAMES:
        events = [json.loads(line) for line in (serving / f"{name}.err").read_text().splitlines()]
        assert {"run_computing", "run_done"} <= {event["event"] for event in events}


def test_progress_is_told_when_it_is_new_and_not_every_second() -> None:
    from blindbayes.agent.client import substance

    waits = [f"1 of 2 sites, waiting for insurer, {left} s to deadline" for left in (9, 8, 7)]
    assert len({substance(text) for text in waits}) == 1
    assert substance("1 of 2 sites, waiting for insurer, 8 min to deadline") == substance(waits[0])
    assert substance("2 of 2 sites, computing") != substance(waits[0])
