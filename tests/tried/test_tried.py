"""docs/what-we-tried.md states what is stored, with date and commit, and nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support.results import ROOT, STORED, store
from tried.page import ROWS, fields, rendered

PAGE = ROOT / "docs" / "what-we-tried.md"


def test_the_page_is_what_its_command_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == rendered(json.loads(STORED.read_text(encoding="utf-8"))), "make tried"


def test_every_result_has_a_date_a_commit_and_the_figures_that_its_row_names() -> None:
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    assert stored
    for name, own in stored.items():
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", own["date"])
        assert re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?", own["commit"])
        assert fields(ROWS[name][1]) <= own["figures"].keys()


def test_a_page_that_states_more_differs() -> None:
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    name, own = next(
        (name, own) for name, own in stored.items() if "findings" in own["figures"] or "failures" in own["figures"]
    )
    better = {
        **own,
        "figures": {**own["figures"], **{each: 10**9 for each in ("inputs", "kills", "lists") if each in own["figures"]}},
    }
    assert rendered({**stored, name: better}) != PAGE.read_text(encoding="utf-8")


def test_parts_of_one_commit_are_added_up_and_one_that_ran_again_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "stored.json"
    for seed, inputs, slowest in ((1, 100, 0.5), (2, 30, 0.25), (2, 40, 0.25)):
        figures = {"inputs": inputs, "targets": 9, "findings": 1, "slowest_seconds": slowest}
        store("fuzz", figures, path, part=f"seed {seed}")
    assert "140 inputs to 9 readers, 2 findings; slowest 0.5 s" in rendered(json.loads(path.read_text()))
    other = json.loads(path.read_text())
    other["fuzz"]["commit"] = "0000000"
    path.write_text(json.dumps(other))
    store("fuzz", figures, path, part="seed 3")
    assert "40 inputs to 9 readers, 1 findings" in rendered(json.loads(path.read_text()))


def test_a_figure_that_is_not_stored_and_a_kind_that_is_unknown_are_errors(tmp_path: Path) -> None:
    for broken in ({"fuzz": {"date": "2026-01-01", "commit": "abcdefa", "figures": {"inputs": 3}}}, {"other": {}}):
        with pytest.raises((KeyError, ValueError)):
            rendered(broken)
    store("sabotages", {"noticed": 1, "tried": 2}, tmp_path / "stored.json")
    page = rendered(json.loads((tmp_path / "stored.json").read_text()))
    assert "1 of 2 noticed" in page
    assert "Not stored yet: Attacks" in page
