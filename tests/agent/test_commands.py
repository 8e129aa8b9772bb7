"""The commands, end to end: three sites from `site init` to a release folder."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from blindbayes.cli import main
from blindbayes.net.identity import Identity, read_card
from blindbayes.study.file import StudyFile
from blindbayes.testing.loopback import free_port
from support.sites import BOOK, make_rows

NAMES = ("north", "south", "west")
BLINDBAYES = str(Path(sys.executable).parent / "blindbayes")


def call(*words: object) -> int:
    """A command in this process; its exit code."""
    try:
        main([str(word) for word in words])
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.fixture
def world(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Three sites that have pinned each other, and a study file."""
    rows = make_rows(tmp_path, NAMES)
    BOOK.to_toml(tmp_path / "codebook.toml")
    for name in NAMES:
        address = f"127.0.0.1:{free_port()}"
        options = [
            "--listen",
            address,
            "--address",
            address,
            "--operator",
            "127.0.0.1:0",
            "--table",
            rows[name],
            "--exact-sums",
        ]
        assert call("site", "init", tmp_path / name, "--name", name, *options, "--json") == 0
        facts = json.loads(capsys.readouterr().out)
        assert facts["words"] == read_card(tmp_path / name / "card.toml").words
    for name in NAMES:
        for other in NAMES:
            if other != name:
                card = tmp_path / other / "card.toml"
                assert call("site", "pin", card, "--words", read_card(card).words, "--config", tmp_path / name) == 0
    cards = [word for name in NAMES for word in ("--card", tmp_path / name / "card.toml")]
    common = ["--title", "three hospitals", "--codebook", tmp_path / "codebook.toml", "--step-seconds", 40]
    assert call("study", "init", tmp_path / "study.toml", *common, *cards) == 0
    capsys.readouterr()
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_study_is_checked_signed_and_shown_before_anything_leaves(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study, north = world / "study.toml", world / "north"
    assert call("study", "hash", study) == 0
    sha256 = capsys.readouterr().out.strip()
    for name in NAMES:
        assert call("study", "sign", study, "--config", world / name) == 0
    capsys.readouterr()
    assert call("study", "check", study, "--json") == 0
    facts = answer(capsys)
    assert facts["study"] == sha256
    assert facts["not_signed"] == []
    assert facts["opened"] == ["sum"]
    assert call("study", "dry-run", study, "--config", north, "--json") == 0
    dry = answer(capsys)
    assert dry["refused_because"] == []
    assert dry["in_a_sum_of_at_least"] == 3
    assert [group["kind"] for group in dry["cells"]] == ["class_count", "count", "sum", "square"]
    with duckdb.connect(str(world / "north.duckdb")) as connection:  # of each colour at most two are left
        connection.execute("delete from visits where rowid not in (select max(rowid) from visits group by class, colour)")
    assert call("study", "dry-run", study, "--config", north, "--json") == 0
    few = {group["kind"]: group["of_few_rows"] for group in answer(capsys)["cells"]}
    assert (dry["cells"][0]["of_few_rows"], few["class_count"], few["count"]) == (0, 2, 6)
    assert few["sum"] == few["square"] == 0
    assert call("study", "dry-run", study, "--config", north) == 0
    assert "At your site 8 cells hold 1 to 4 rows" in " ".join(capsys.readouterr().out.split())
    assert call("site", "approve", study, "--hash", "00" * 32, "--config", north) == 2
    assert sha256 in capsys.readouterr().err
    assert call("site", "approve", sha256, "--config", north) == 2
    (north / "studies").mkdir()
    (north / "studies" / "ours.toml").write_text(study.read_text())
    assert call("site", "approve", sha256, "--config", north) == 0
    assert call("site", "log", "--config", north) == 0
    assert "approved" in capsys.readouterr().out
    text = study.read_text()
    study.write_text(text.replace("three hospitals", "four hospitals"))
    assert call("study", "check", study) == 2
    assert "has the file changed" in capsys.readouterr().err


def test_wrong_words_pin_nothing(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = Identity.generate("east").card
    (world / "east.toml").write_text(other.to_toml())
    assert call("site", "pin", world / "east.toml", "--words", "lusab-babad", "--config", world / "north") == 2
    assert not (world / "north" / "peers" / "east.toml").exists()
    assert "do not trust" in capsys.readouterr().err


def test_the_words_are_asked_for_and_not_shown(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Identity.generate("east").card
    (world / "east.toml").write_text(other.to_toml())
    asked = []

    def prompt(text: str) -> str:
        asked.append(text)
        return other.words.replace("-", " ").upper()  # as somebody types what is read out

    monkeypatch.setattr("click.prompt", prompt)
    assert call("site", "pin", world / "east.toml", "--config", world / "north") == 0
    assert (world / "north" / "peers" / "east.toml").exists()
    assert len(asked) == 1
    assert other.words not in asked[0]


def test_an_open_operator_port_is_refused(tmp_path: Path) -> None:
    assert call("site", "init", tmp_path / "x", "--name", "x", "--operator", "0.0.0.0:7441") == 2
    assert not (tmp_path / "x" / "keys").exists()


def test_without_an_agent_nothing_runs(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("study", "run", world / "study.toml", "--config", world / "north") == 2
    assert "not running" in capsys.readouterr().err


@pytest.fixture
def serving(world: Path) -> Iterator[Path]:
    """The three agents as `blindbayes site serve`."""
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
            assert json.loads(process.stdout.readline())["port"] > 0
        yield world
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            assert process.wait(60) == 0
            assert process.stdout is not None
            process.stdout.close()


def test_status_says_which_runs_of_others_were_refused_here_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("site", "init", tmp_path / "south", "--name", "south") == 0
    refused = {"run": "ab12", "site": "north", "why": "less than 256 MB are free for the site's folder"}
    state: dict[str, Any] = {"site": "south", "fingerprint": "lusab", "peers": {}, "refused": [refused]}
    state |= {"proposed": [], "pending_predictions": [], "runs": []}
    running = SimpleNamespace(call=lambda *_: state)
    monkeypatch.setattr("blindbayes.cli.commands.site.OperatorClient", lambda _: running)
    capsys.readouterr()
    assert call("site", "status", "--config", tmp_path / "south") == 0
    assert "refused run ab12 of north: less than 256 MB are free" in capsys.readouterr().out


def test_from_init_to_release(serving: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = serving / "study.toml"
    assert call("study", "run", study, "--config", serving / "north") == 4  # nobody has approved it
    capsys.readouterr()
    for name in NAMES:
        assert call("site", "approve", study, "--config", serving / name) == 0
    capsys.readouterr()
    assert call("study", "run", study, "--config", serving / "north", "--out", serving / "release", "--json") == 0
    ended = answer(capsys)
    assert ended["state"] == "done"
    assert {path.name for path in (serving / "release").iterdir()} >= {"model.json", "leakage.json", "statement.md", "run.json"}
    agreed = StudyFile.from_toml(study).sha256  # the hash that people compared is the one that the release names
    assert f"Study {agreed}\n" in (serving / "release" / "statement.md").read_text()
    assert json.loads((serving / "release" / "statement.json").read_text())["study"] == agreed
    assert call("site", "status", "--config", serving / "south", "--json") == 0
    shown = answer(capsys)
    assert shown["peers"] == {"north": True, "west": True}
    assert shown["runs"][0]["run"] == ended["run"]
    assert call("study", "run", study, "--config", serving / "north", "--json") == 4  # approved for one run
    assert "used up: `blindbayes site status` shows" in answer(capsys)["message"]
    for name in NAMES:
        for _ in range(1200):  # north's command does not wait for the others to write their releases
            events = [json.loads(line) for line in (serving / f"{name}.err").read_text().splitlines()]  # JSON lines alone
            mine = [event["event"] for event in events if event.get("run") == ended["run"]]
            if mine[-1:] == ["run_done"]:
                break
            time.sleep(0.1)
        assert mine[0] == "run_joined"
        assert mine[-1] == "run_done"
        assert "agent_started" in {event["event"] for event in events}
