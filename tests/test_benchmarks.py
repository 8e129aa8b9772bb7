"""Every benchmark runs in its short form, so that none rots. Its figures are for people, not for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"
# Tens of seconds even when short: `make bench` runs them.
LONG = {"chain_sum", "column_sites", "columns", "counting", "courier", "large", "oblivious_sum"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.stem, marks=[pytest.mark.slow] if path.stem in LONG else [])
        for path in sorted(FOLDER.glob("*.py"))
        if not path.stem.startswith("_")
    ],
)
def test_a_benchmark_runs_in_its_short_form(name: str, tmp_path: Path) -> None:
    if name == "dp_accuracy" and not os.environ.get("BLINDBAYES_DATA"):
        pytest.skip("needs the papers' datasets in BLINDBAYES_DATA")
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), "--quick"], cwd=tmp_path, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip()


def test_the_guard_speaks_up_where_a_figure_grew(tmp_path: Path) -> None:
    """A planted regression: what was stored is a third of what it takes."""
    stored = json.loads((FOLDER / "guard.json").read_text())
    for line in (stored["one"], stored["one"]["numpy"], stored["one"]["kernels"]):
        line.update({figure: line[figure] / 3 for figure in ("cpu", "calls", "bytes") if figure in line})
    (tmp_path / "stored.json").write_text(json.dumps(stored))
    command = [sys.executable, str(FOLDER / "guard.py"), "one", "--quick", "--against", str(tmp_path / "stored.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert all(said in done.stderr for said in ("times the CPU", " calls, ", " bytes, ")), done.stdout + done.stderr
