"""`blindbayes study evaluate` with agents that are processes: the table on the screen, the release, and its verification."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from blindbayes import Estimation
from blindbayes.cli import root
from blindbayes.study.file import Deadlines
from blindbayes.testing.loopback import Loopback
from support.sites import BOOK, make_rows

NAMES = ("north", "south", "west")


def run_command(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(root, list(words), standalone_mode=False)
    if code:
        assert result.exception is not None, result.output
        return str(result.exception)
    assert result.exception is None, (words, result.exception, result.output)
    return result.output


def test_three_processes_evaluate_the_model_that_they_trained(tmp_path: Path) -> None:
    with Loopback(tmp_path / "sites", make_rows(tmp_path, NAMES, rows=120)) as net:
        study = net.make_study(
            BOOK, title="good?", estimation=Estimation(held_out=0.4), deadlines=Deadlines(step=40, join=60, run=120)
        )
        path = tmp_path / "study.toml"
        path.write_text(study.to_toml())
        homes = {name: str(site.home.folder) for name, site in net.sites.items()}
        for folder in homes.values():
            approved = run_command("site", "approve", str(path), "--as", "Ada", "--runs", "2", "--config", folder)
            assert "held_out" in approved
        assert "train first" in run_command("study", "evaluate", str(path), "--config", homes["north"], code=1)
        run_command("study", "run", str(path), "--config", homes["north"], "--out", str(tmp_path / "release"))
        model, out = str(tmp_path / "release"), str(tmp_path / "evaluation")
        shown = run_command("study", "evaluate", str(path), "--model", model, "--config", homes["south"], "--out", out)
        assert "accuracy:" in shown
        assert "| true class | predicted ill | predicted well |" in shown
        figures = json.loads((tmp_path / "evaluation" / "evaluation.json").read_text())["figures"]
        trained = json.loads((tmp_path / "release" / "statement.json").read_text())["rows"]
        assert figures["rows"] + trained == 3 * 120
        for name in ("north", "west"):  # each compares the figures with those of its own release
            run_command("report", "sign", out, "--config", homes[name])
        run_command("report", "verify", out, "--config", homes["west"])
