"""The demos tell a true story: accuracy, equality with pooling, who learned what."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest
from click.testing import CliRunner

from blindbayes.cli.commands.report import command as report

EXAMPLES = Path(__file__).parents[2] / "examples"


def told(story: str, *arguments: str) -> dict:
    """What a story printed: the demo of the wheel, or a file of examples/."""
    if story == "hospitals":
        from blindbayes.cli.commands.demo import command
    else:
        command = runpy.run_path(str(EXAMPLES / f"{story}.py"))[story]
    done = CliRunner().invoke(command, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.output[done.output.index("{") :])


@pytest.mark.slow
def test_the_bank_and_the_telecom(tmp_path: Path) -> None:
    facts = told("bank_telecom", "--rows", "4000", "--scored", "40", "--out", str(tmp_path / "joint"))
    assert facts["classes that are those of the plain join"] == 1.0  # no counter of its join is below min_cell
    assert all(got["opened"] == ["enough_overlap"] for got in facts["leakage"]["training"].values())
    assert {party: got["opened"] for party, got in facts["leakage"]["new customers"].items()} == {
        "bank": ["class"],
        "telecom": [],
    }
    assert facts["accuracy"]["both, in shares only"] == facts["accuracy"]["joined (nobody may)"]
    assert facts["customers"]["shared customers"] == 720
    assert facts["customers"]["of them misspelt"] > 0
    assert {party: bool(got["opened"]) for party, got in facts["leakage"]["every customer"].items()} == {
        "bank": True,
        "telecom": False,
    }
    assert facts["customers scored without saying whom"] == 4000
    for party in ("bank", "telecom"):
        assert (tmp_path / "joint" / party / f"{party}.share").is_file()
        for stage in ("training", "new-customers", "every-customer"):
            folder = tmp_path / "joint" / party / stage
            assert (folder / "classes.csv").exists() == (party == "bank" and stage != "training")
            done = CliRunner().invoke(report, [str(folder), "--json"])
            assert set(json.loads(done.output)["signed by"]) == {party}
    page = (tmp_path / "joint" / "bank" / "training" / "leakage.html").read_text()
    assert "What bank learns" in page
    assert "What telecom learns" in page


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
    cards = [word for card in sorted((tmp_path / "demo" / "cards").iterdir()) for word in ("--card", str(card))]
    for kind in ("exact", "private"):
        folders = [str(tmp_path / "demo" / kind / site) for site in ("north", "south", "west")]
        done = CliRunner().invoke(report, [*folders, "--json"])
        assert set(json.loads(done.output)["signed by"]) == {"north", "south", "west"}
        one = CliRunner().invoke(report, ["verify", str(tmp_path / "demo" / kind / "release"), *cards, "--json"])
        assert list(json.loads(one.output)["signed by"]) == ["north", "south", "west"]
    assert facts["signed by"] == ["north", "south", "west"]
    assert facts["gain"].startswith("west, the smallest, gains most: +")
    page = (tmp_path / "demo" / "index.html").read_text()
    links = re.findall(r'href="([^"]+)"', page)
    assert len(links) > 10
    assert all((tmp_path / "demo" / link).is_file() for link in links)
    for part in ("West, the smallest, gains most", "Yes. The sum", "epsilon = 1", "AUC", "codebook draft your.csv"):
        assert part in page


@pytest.mark.slow
def test_the_mail_providers(tmp_path: Path) -> None:
    facts = told("mail", "--rows", "1500", "--words", "5000", "--out", str(tmp_path / "filter"))
    assert facts["joint equals pooled"] is True
    alone = [score for name, score in facts["accuracy"].items() if name.endswith("alone")]
    assert facts["accuracy"]["joint, masked sum"] > max(alone)
    assert facts["signed by"] == ["alder", "birch", "cedar"]
    page = (tmp_path / "filter" / "exact" / "release" / "explain.html").read_text()
    assert "lottery" in page or "prize" in page
    assert page.count("<tr") < 200  # the words that speak most, not all of them
