"""A study with min_cell between agents that are processes: approval page, release, signatures of all, verification."""

from __future__ import annotations

import json
from functools import reduce
from operator import add
from pathlib import Path

import pandas as pd

from blindbayes import Limits
from blindbayes.data.table import count_table
from blindbayes.study.file import Deadlines
from blindbayes.testing.loopback import Loopback
from support.floors import floored
from support.sites import BOOK, make_rows

from .test_evaluate_command import NAMES, run_command


def test_three_processes_open_no_small_cell_and_all_sign_the_checks(tmp_path: Path) -> None:
    rows = make_rows(tmp_path, NAMES, rows=120)
    with Loopback(tmp_path / "sites", rows) as net:
        study = net.make_study(BOOK, title="floor", limits=Limits(min_cell=20), deadlines=Deadlines(step=40, join=60, run=120))
        path, out = tmp_path / "study.toml", str(tmp_path / "release")
        path.write_text(study.to_toml())
        homes = {name: str(site.home.folder) for name, site in net.sites.items()}
        for folder in homes.values():
            approved = run_command("site", "approve", str(path), "--as", "Ada", "--config", folder)
            assert "Cells of 1 to 19 rows of the sum over all sites are suppressed" in approved
        run_command("study", "run", str(path), "--config", homes["north"], "--out", out)
        net.follow(json.loads((tmp_path / "release" / "run.json").read_text())["run"])  # the others write theirs a little later
        for name in ("south", "west"):
            run_command("report", "sign", out, "--config", homes[name])
        run_command("report", "verify", out, "--config", homes["west"])
        checks = json.loads((tmp_path / "release" / "disclosure.json").read_text())
        assert {each["name"]: each["result"] for each in checks["outputs"][0]["checks"]} == {
            "floor": "pass",
            "recomputation": "pass",
            "dominance": "pass",
            "differencing": "pass",
        }
        assert "disclosure.json" in json.loads((tmp_path / "release" / "common.json").read_text())["files"]
        total = reduce(add, [count_table(source, BOOK) for source in rows.values()])
        lines = pd.read_csv(tmp_path / "release" / "cells.csv", dtype=str)["count"].tolist()
        assert lines == [str(line["count"]) for line in floored(total, 20).cells]
