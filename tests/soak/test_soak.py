"""The soak's verdict: what is flat passes, and every kind of leak is found. `make soak` runs the agents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from soak.agents import KINDS, NAMES, Sample, growth, leftovers, soak

FLAT = [
    Sample(runs, 200_000 + min(runs, 20) * 900 + 80 * runs + 700 * (runs % 3), 21 + runs % 2, 15, 12) for runs in range(1, 161)
]


def test_what_settles_and_holds_its_history_is_flat() -> None:
    assert growth(FLAT) == []


@pytest.mark.parametrize(("name", "each"), [("memory_kb", 400), ("handles", 0.1), ("threads", 0.1), ("leftovers", 1)])
def test_every_kind_of_leak_is_found(name: str, each: float) -> None:
    leaking = [replace(one, **{name: getattr(one, name) + int(each * one.runs)}) for one in FLAT]
    (problem,) = growth(leaking)
    assert name.partition("_")[0] in problem


def test_files_that_no_ended_run_leaves_are_counted(tmp_path: Path) -> None:
    for path in ("releases/r/model.json", "runs/r/outcome.json", "runs/r/north/journal", ".x.draft", "site.toml"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    assert leftovers(tmp_path) == 3


@pytest.mark.slow
@pytest.mark.parametrize("leak", ["", *KINDS])
def test_agents_are_flat_and_planted_leaks_are_found(tmp_path: Path, leak: str) -> None:
    taken = list(soak(tmp_path / "net", 90, leak=leak))
    found = " ".join(problem for name in NAMES for problem in growth([each[name] for each in taken]))
    assert ({"files": "leftovers"}.get(leak, leak) in found) if leak else found == ""
