"""Whole-system runs from lists of operations, and kills of real processes. `python tests/system` has the long forms."""

from __future__ import annotations

import json
import os
import random
import signal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from blindbayes.disclosure.charges import RunLedger
from blindbayes.disclosure.history import History
from blindbayes.testing.loopback import Loopback
from support.forked import IMPORTED, script
from system.kills import Killer
from system.world import Operation, World, drawn, smaller

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))
SEEDS = range(4)


def lived(folder: Path, seed: int, operations: list[Operation]) -> World:
    with pytest.MonkeyPatch.context() as patch:
        world = World(folder, seed, patch)
        world.live(operations)
    return world


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_a_list_that_failed_once_is_lived_through(tmp_path: Path, case: Path) -> None:
    kept = json.loads(case.read_text(encoding="utf-8"))
    lived(tmp_path / "world", kept["seed"], kept["operations"])


@pytest.mark.parametrize("seed", SEEDS)
def test_a_list_of_operations_is_lived_through(tmp_path: Path, seed: int) -> None:
    lived(tmp_path / "world", seed, drawn(random.Random(seed), 25))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_many_lists_of_operations_are_lived_through(tmp_path: Path, part: int) -> None:
    done = 0
    for seed in range(1000 + 10 * part, 1010 + 10 * part):
        done += lived(tmp_path / str(seed), seed, drawn(random.Random(seed), 40)).done
    assert done > 10


KILLED: list[Operation] = [["change", "west"], ["run", "noisy", "south"], ["tick", 0.45], ["kill", "south"], ["start", "south"]]


def test_a_run_that_pays_again_when_it_resumes_is_found_and_its_list_made_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter(range(1000))
    monkeypatch.setattr(RunLedger, "has_paid", lambda *_: False)
    monkeypatch.setattr(History, "has_computed", lambda *_: False)

    def fails(operations: list[Operation]) -> bool:
        try:
            lived(tmp_path / str(next(numbers)), 3, operations)
        except AssertionError as problem:
            return "paid twice" in str(problem)
        return False

    assert [each[0] for each in smaller(KILLED, fails)] == ["run", "tick"]  # all agents are started again at the end


def test_a_lost_charge_and_a_wrong_model_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunLedger, "pay", lambda *_, **__: None)
    with pytest.raises(AssertionError, match="without paying"):
        lived(tmp_path / "unpaid", 1, [["run", "noisy", "north"], ["wait"]])
    monkeypatch.undo()
    monkeypatch.setattr(World, "_possible", lambda *_: [b"another"])
    with pytest.raises(AssertionError, match="not that of the sites' rows"):
        lived(tmp_path / "wrong", 1, [["run", "exact", "north"], ["wait"]])


def test_a_forked_agent_is_a_process_that_can_be_killed_and_stopped(tmp_path: Path) -> None:
    assert all(map(find_spec, IMPORTED))
    site = Loopback(tmp_path / "net", {"north": None}).sites["north"]
    for number, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 0)):
        site.start()
        process = site.process
        assert process is not None
        assert process.pid != os.getpid()
        assert site.operator.call("GET", "/runs")["runs"] == []
        process.send_signal(number)
        assert process.wait(300) == code
        site.stop()


SAID = """
import os, random, sys
import numpy
print(sys.argv[1], os.environ["ASKED"], os.getcwd(), os.getpid(), random.random(), numpy.random.random())
print("a warning", file=sys.stderr)
sys.exit(3)
"""


def test_forked_programs_share_no_folder_variable_stream_or_random_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "said.py").write_text(SAID)
    monkeypatch.chdir(tmp_path)
    seen = []
    for each in ("one", "two"):
        monkeypatch.setenv("ASKED", each)
        done = script(tmp_path / "said.py", each)
        assert (done.returncode, done.stderr) == (3, "a warning\n")
        seen.append(done.stdout.split())
    assert [words[:3] for words in seen] == [[each, each, str(tmp_path)] for each in ("one", "two")]
    assert all(here != there for here, there in zip(seen[0][3:], seen[1][3:], strict=True))


def kill(folder: Path, seed: int, kills: int) -> Killer:
    killer = Killer(folder, seed)
    with killer.net:
        while killer.counts["kills"] < kills:
            killer.cycle(kills - killer.counts["kills"])
        killer.clean()
    return killer


def test_kills_of_real_processes_lose_and_double_nothing(tmp_path: Path) -> None:
    counts: Any = kill(tmp_path / "net", 1, 4).counts
    assert counts["kills"] == 4


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_a_thousand_kills_of_real_processes_lose_and_double_nothing(tmp_path: Path, part: int) -> None:
    assert kill(tmp_path / "net", 100 + part, 50).counts["kills"] == 50
