"""An agent of an earlier commit, from a wheel built of it, and agents of this one run a study together, or say why not."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from blindbayes.study.file import Deadlines, Privacy
from blindbayes.testing.loopback import Loopback
from support.sites import BOOK, make_rows

ROOT = Path(__file__).parents[2]
NAMES = ("north", "south", "west")
LAST = "HEAD~1"


def installed(commit: str, folder: Path) -> Path:
    """The package as its wheel of that commit has it."""
    source = folder / "source"
    source.mkdir()
    try:
        archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"the history does not go back to {commit}: clone with more depth")
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive.stdout, check=True)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(folder / "lib")
    return folder / "lib"


def run_with(commit: str, tmp_path: Path) -> tuple[dict[str, dict[str, Any]], Loopback]:
    """South has the earlier release; how a run with noise ended everywhere."""
    lib = installed(commit, tmp_path)
    net = Loopback(tmp_path / "sites", make_rows(tmp_path, NAMES))
    south = net.sites["south"].home
    assert south.config.rows is not None
    plain = f'listen = "{south.config.listen}"\noperator = "127.0.0.1:0"\n[rows]\nsource = "{south.config.rows.source}"\n'
    (south.folder / "site.toml").write_text(plain)  # an earlier release does not know every setting
    study = net.make_study(BOOK, privacy=Privacy(epsilon=1.0), deadlines=Deadlines(step=40, join=50, run=100))
    net.approve(study)
    try:
        net.start(["north", "west"])
        net.sites["south"].start(environment={"PYTHONPATH": str(lib), "PYTHONSAFEPATH": "1"})
        begun = net.sites["north"].operator.call("POST", "/runs", {"study": study.sha256})
        ended = {name: net.sites[name].operator.follow(begun) for name in ("north",)}
    finally:
        net.stop()
    return ended, net


@pytest.mark.slow
def test_a_release_of_the_last_commit_runs_a_study_with_this_one_or_says_why_not(tmp_path: Path) -> None:
    ended, _ = run_with(LAST, tmp_path)
    told = ended["north"]
    assert told["state"] == "done" or "use one release at all sites" in told["message"], told.get("message")
