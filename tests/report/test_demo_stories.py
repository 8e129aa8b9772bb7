"""The demos tell a true story: accuracy, equality with pooling, who learned what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from blindbayes.cli.demo import command
from blindbayes.cli.report import command as report


def told(*arguments: str) -> dict:
    done = CliRunner().invoke(command, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.output[done.output.index("{") :])


def test_the_bank_and_the_telecom(tmp_path: Path) -> None:
    facts = told("bank-telecom", "--rows", "1000", "--scored", "40", "--out", str(tmp_path / "joint"))
    assert facts["shares stand for the statistics of the plain join"] is True
    assert all(got["opened"] == [] for got in facts["leakage"]["training"].values())
    assert all(set(got["opened"]) == {"class"} for got in facts["leakage"]["scoring"].values())
    assert facts["accuracy"]["both, in shares only"] == facts["accuracy"]["joined (nobody may)"]
    assert CliRunner().invoke(report, [str(tmp_path / "joint")]).exit_code == 0
    assert {path.name for path in (tmp_path / "joint").glob("*.share")} == {"bank.share", "telecom.share"}


def test_the_census_office(tmp_path: Path) -> None:
    facts = told("census", "--rows", "2000", "--out", str(tmp_path / "office"))
    assert facts["epsilon left"]["before"] - facts["epsilon left"]["after"] == pytest.approx(0.1)
    assert (tmp_path / "office" / "release" / "statement.md").read_text().startswith("# Privacy statement")
    shown = json.loads(CliRunner().invoke(report, [str(tmp_path / "office" / "release"), "--json"]).output)
    assert shown["statement"]["epsilon"] == pytest.approx(0.1)


@pytest.mark.slow
def test_the_hospitals(tmp_path: Path) -> None:
    facts = told("hospitals", "--out", str(tmp_path / "demo"))
    assert facts["joint equals pooled"] is True
    for kind in ("exact", "private"):
        folders = [str(path) for path in sorted((tmp_path / "demo" / kind).iterdir())]
        done = CliRunner().invoke(report, [*folders, "--json"])
        assert set(json.loads(done.output)["signed by"]) == {"north", "south", "west"}
