"""Benchmarks beside other engines: they run in their short form where the engine is, and say so where it is not."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SPU = Path(__file__).parent.parent / "benchmarks" / "peers" / "spu_columns.py"


def run_quick(environment: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SPU), "--quick"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)


def test_without_its_environment_the_peer_is_skipped_with_a_reason(tmp_path: Path) -> None:
    for python in ("", sys.executable):  # none named; one that has no spu
        done = run_quick({**os.environ, "BLINDBAYES_SPU_PYTHON": python}, tmp_path)
        assert done.returncode == 0, done.stderr[-2000:]
        assert done.stdout.startswith("skipped: set BLINDBAYES_SPU_PYTHON")


@pytest.mark.slow
def test_ours_and_spu_run_side_by_side(tmp_path: Path) -> None:
    if not os.environ.get("BLINDBAYES_SPU_PYTHON"):
        if os.environ.get("BLINDBAYES_PEERS") == "require":
            pytest.fail("BLINDBAYES_SPU_PYTHON names no environment that has spu")
        pytest.skip("spu is not installed in an environment of its own")
    done = run_quick(dict(os.environ), tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("SPU CHEETAH") == 5  # one training, two kinds of instances by two batches
    assert "skipped" not in done.stdout


# -- all peers: benchmarks/peers/run.py -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def harness() -> Any:
    path = SPU.with_name("run.py")
    spec = importlib.util.spec_from_file_location("peers_run", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["peers_run"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


SMALL = {
    "scikit-learn": {"rows": 200},
    "diffprivlib": {"rows": 2000},
    "python-paillier": {"bits": 2048, "count": 2},
    "openmined.psi": {"count": 4096},
    "MPyC": {"count": 4},
    "OpenDP": {"count": 50},
}


@pytest.mark.parametrize("name", sorted(SMALL))
def test_our_side_of_every_comparison_does_its_work(harness: Any, name: str) -> None:
    peer = next(peer for peer in harness.PEERS if peer.name == name)
    found = harness.clocked(peer.ours({**peer.task, **SMALL[name]}))()
    assert found["cpu"] > 0
    assert found.get("size", 2048) == 2048  # half of the identifiers are shared
    assert found.get("accuracy", 1.0) > 0.5


def test_the_table_has_ratios_with_their_spread_and_names_who_cannot_be_had(harness: Any) -> None:
    ours = [({"cpu": 1.0, "accuracy": 0.9}, {"cpu": cpu, "accuracy": 0.8}) for cpu in (2.0, 8.0, 0.5)]
    there = harness.Peer("there", "work", harness.plain, {}, ("there==1",), times=ours)
    gone = harness.Peer("gone", "work", harness.plain, {}, ("gone==2",), absent="not installed: no such version")
    text = harness.page([there, gone], 3)
    assert "| there | work | 2 | 1 | 2 (0.5 to 8) | 0.800 and 0.900 | there==1 |" in text
    assert "**not installed: no such version** (gone==2)" in text


def test_a_peer_that_is_measured_again_replaces_its_row_and_a_new_one_stands_last(harness: Any) -> None:
    def peer(name: str, cpu: float) -> Any:
        return harness.Peer(name, "work", harness.plain, {}, (), times=[({"cpu": 1.0}, {"cpu": cpu})])

    before = harness.page([peer("one", 2.0), peer("two", 3.0)], 1)
    after = harness.replaced(before, harness.page([peer("two", 8.0), peer("three", 4.0)], 1))
    assert after == harness.page([peer("one", 2.0), peer("two", 8.0), peer("three", 4.0)], 1)


def test_an_environment_that_cannot_be_made_is_a_reason_and_no_error(harness: Any, tmp_path: Path) -> None:
    peer = harness.Peer("nobody", "work", harness.plain, {}, (str(tmp_path / "there-is-no-such-folder"),))
    assert harness.environment(peer, tmp_path) is None
    assert peer.absent.startswith("not installed: ")
