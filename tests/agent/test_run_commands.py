"""The retraining story on the command line, with agents that are processes: list, collect, run again, stop, refuse, reload."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from blindbayes.cli import root
from blindbayes.study.file import Deadlines, Limits
from blindbayes.testing.loopback import Loopback
from support.sites import BOOK, make_rows

NAMES = ("north", "south", "west")


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    folder = tmp_path_factory.mktemp("commands")
    with Loopback(folder / "sites", make_rows(folder, NAMES)) as sites:
        yield sites


def said(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(root, list(words), standalone_mode=False)
    if code:
        assert result.exception is not None, result.output
        return str(result.exception)
    assert result.exception is None, (words, result.exception, result.output)
    return result.output


def test_a_second_year_is_said_before_and_after(net: Loopback, tmp_path: Path) -> None:
    limits = {"deadlines": Deadlines(step=40, join=600, run=900), "limits": Limits(quorum=3)}
    study = net.make_study(BOOK, title="yearly", **limits)
    path = tmp_path / "study.toml"
    path.write_text(study.to_toml())
    homes = {name: str(site.home.folder) for name, site in net.sites.items()}
    for folder in homes.values():
        assert "for 1 run(s)" in said("site", "approve", str(path), "--as", "Ada", "--config", folder)
    said("study", "run", str(path), "--config", homes["north"])
    [run] = json.loads(said("site", "runs", "--json", "--config", homes["north"]))
    assert (run["state"], run["title"]) == ("done", "yearly")
    while (net.sites["south"].home.history.run(run["run"]) or {})["state"] == "open":
        time.sleep(0.05)
    said("site", "collect", run["run"], "--out", str(tmp_path / "out"), "--config", homes["south"])
    assert (tmp_path / "out" / "model.json").exists()
    unknown = said("site", "collect", "a" * 32, "--out", str(tmp_path / "x"), "--config", homes["south"], code=1)
    assert "no run of that id" in unknown

    # Before: what the first run means for the next one.
    told = said("site", "approve", str(path), "--as", "Ada", "--config", homes["north"])
    assert "1 run(s) of this study computed here; 0 more approved." in told
    assert "If the rows change in between" in told
    # After: a site that approved one run says so at once, and by name.
    begun = time.monotonic()
    error = said("study", "run", str(path), "--config", homes["north"], code=1)
    assert "used up at" in error
    assert time.monotonic() - begun < 300  # long before the deadline of joining
    logged = said("site", "log", "--config", homes["north"])
    assert "who=Ada" in logged


def test_a_run_is_stopped_from_the_command_line_and_a_refusal_is_read_at_the_other_site(net: Loopback, tmp_path: Path) -> None:
    limits = {"deadlines": Deadlines(step=40, join=60, run=120), "limits": Limits(quorum=3)}
    study = net.make_study(BOOK, title="to be stopped", **limits)
    net.approve(study, runs=5)
    path = tmp_path / "study.toml"
    path.write_text(study.to_toml())
    homes = {name: str(site.home.folder) for name, site in net.sites.items()}
    net.sites["west"].stop()
    command = [sys.executable, "-m", "blindbayes", "study", "run", str(path), "--config", homes["north"]]
    asking = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        runs: list[dict[str, str]] = []
        while not [each for each in runs if each["state"] == "open"]:
            runs = json.loads(said("site", "runs", "--json", "--study", study.sha256, "--config", homes["south"]))
            time.sleep(0.1)
        told = said("site", "stop", runs[0]["run"], "--reason", "the wrong year", "--as", "Ben", "--config", homes["south"])
        assert "stopped at south (Ben): the wrong year" in told
        _, error = asking.communicate(timeout=120)
    finally:
        asking.kill()
        asking.wait()
    assert asking.returncode != 0
    assert "the run was stopped at south" in " ".join(error.split())
    assert json.loads(said("site", "runs", "--json", "--config", homes["south"]))[0]["stopped_by"] == "Ben"
    net.sites["west"].start()
    end = time.monotonic() + 120
    while not net.sites["north"].operator.call("GET", "/status")["peers"]["west"]:  # else south's word of it may come first
        assert time.monotonic() < end
        time.sleep(0.1)
    said("site", "refuse", str(path), "--reason", "not this year", "--config", homes["west"])
    assert "does not take part: not this year" in said("study", "run", str(path), "--config", homes["north"], code=1)
    assert said("site", "health", "--config", homes["north"]) == "ready\n"
    site = net.sites["north"].home
    text = (site.folder / "site.toml").read_text()
    (site.folder / "site.toml").write_text(text.replace("min_rows = 10", "min_rows = 11"))
    said("site", "reload", "--config", homes["north"])
    end = time.monotonic() + 120
    while not any("min_rows = 11" in entry["changed"] for entry in site.audit.where("event", "policy")):
        assert time.monotonic() < end
        time.sleep(0.1)
