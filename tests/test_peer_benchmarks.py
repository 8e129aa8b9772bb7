"""Benchmarks beside other engines: they run in their short form where the engine is, and say so where it is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
