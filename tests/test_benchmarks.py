"""Every benchmark runs in its short form, so that none rots. Its figures are for people, not for tests."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from blindbayes.crypto import kernels
from blindbayes.crypto.kernels import build
from support.forked import script

FOLDER = Path(__file__).parent.parent / "benchmarks"
# Tens of seconds even when short: `make bench` runs them.
LONG = {"chain_sum", "column_sites", "columns", "counting", "courier", "dp_accuracy", "large", "many_sites", "oblivious_sum"}
LONG |= {"against", "arrays", "columns_audits", "columns_noise", "joined_sums", "private_accuracy", "slow_link"}
ELSEWHERE = {"guard", "protocol_costs"}  # `make test` runs the one by itself, and test_protocol_costs the other
ASKED = {**os.environ, **({} if kernels.available() else {"BLINDBAYES_KERNELS": "off"})}  # without a compiler, of numpy


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(path.stem, marks=[pytest.mark.slow] if path.stem in LONG else [])
        for path in sorted(FOLDER.glob("*.py"))
        if not path.stem.startswith("_") and path.stem not in ELSEWHERE
    ],
)
def test_a_benchmark_runs_in_its_short_form(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "dp_accuracy" and not os.environ.get("BLINDBAYES_DATA"):
        pytest.skip("needs the papers' datasets in BLINDBAYES_DATA")
    monkeypatch.chdir(tmp_path)
    for variable, value in ASKED.items():
        monkeypatch.setenv(variable, value)
    done = script(FOLDER / f"{name}.py", "--quick", timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip()


def test_benchmarks_that_take_long_find_what_they_import() -> None:
    """So that a moved name shows on the day on which it moves."""
    code = f"import importlib\nfor name in {sorted(LONG)}: importlib.import_module(name)"
    done = subprocess.run([sys.executable, "-c", code], cwd=FOLDER, capture_output=True, text=True, timeout=280, env=ASKED)
    assert done.returncode == 0, done.stderr[-2000:]


PLANTED = """
import sys
import guard
from blindbayes import NaiveBayes
fit = NaiveBayes.fit
def slower(model, X, y=None):  # half of the rows once more
    if y is not None:
        fit(NaiveBayes(model.codebook), X[: len(X) // 2], y[: len(y) // 2])
    return fit(model, X, y)
NaiveBayes.fit = slower if sys.argv.pop() == "planted" else fit
guard.ATTEMPTS = int(sys.argv.pop())
guard.main()
"""


def guarded(stored: Path, attempts: int, version: str) -> subprocess.CompletedProcess[str]:
    """The guard of a fit from an array, against costs that are this machine's own."""
    environment = {**ASKED, "PYTHONPATH": os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-c", PLANTED, "array", "--quick", "--against", str(stored), str(attempts), version]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=environment)


def test_the_guard_fails_on_a_planted_regression_and_passes_without(tmp_path: Path) -> None:
    """Reading half of the rows twice costs half as much again: more than the 30% that is let through."""
    stored = tmp_path / "stored.json"
    asking = [sys.executable, "-c", "from _measured import machine; print(machine())"]
    machine = subprocess.run(asking, cwd=FOLDER, capture_output=True, text=True, check=True).stdout.strip()
    low = {"machine": machine, "costs": {"array": {"cpu": 1e-9, "calls": 1, "bytes": 0}}}
    stored.write_text(json.dumps(low))
    first = guarded(stored, 2, "plain")
    assert first.returncode == 1, first.stderr
    own = re.search(r"array, cpu ([0-9.,]+) .*calls ([0-9,]+) ", first.stdout)
    assert own is not None, first.stdout
    low["costs"]["array"] = {"cpu": float(own[1]), "calls": int(own[2].replace(",", "")), "bytes": 0}  # type: ignore[index]
    stored.write_text(json.dumps(low))
    plain, planted = guarded(stored, 8, "plain"), guarded(stored, 2, "planted")
    assert plain.returncode == 0, plain.stdout + plain.stderr
    assert planted.returncode == 1, planted.stdout
    assert "array: cpu" in planted.stderr
    assert "array: calls" in planted.stderr


def test_the_guard_covers_what_users_run() -> None:
    costs = json.loads((FOLDER / "guard.json").read_text())["costs"]
    assert {"parquet", "csv", "frame", "array", "predict", "private", "sum", "agents-train", "agents-classify"} <= {*costs}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A source tree of its own, without a library."""
    shutil.copytree(FOLDER.parent / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "_kernels.so*"))
    return tmp_path


def begun(tree: Path, asked: str) -> subprocess.CompletedProcess[str]:
    """A benchmark's first step under the sources of a tree."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{FOLDER}", "BLINDBAYES_KERNELS": asked}
    command = [sys.executable, "-c", "from _measured import Options; Options().parse_args([]); print('measured')"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def test_kernels_that_are_not_built_are_not_measured_as_numpy_unless_asked(clone: Path) -> None:
    refused, asked = begun(clone, ""), begun(clone, "off")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "ConfigError: kernels: none, numpy does the work (not built); run python -m" in refused.stderr
    assert (asked.returncode, asked.stdout) == (0, "measured\n")


@pytest.mark.skipif(not kernels.available(), reason="no kernels are built")
def test_kernels_of_other_sources_are_not_measured_as_numpy_unless_asked(clone: Path) -> None:
    shutil.copy(build.LIBRARY, clone / "src/blindbayes/crypto/kernels")
    assert begun(clone, "").stdout == "measured\n"
    source = clone / "src/blindbayes/crypto/kernels/lanes.c"
    source.write_text(source.read_text() + "\n")
    refused = begun(clone, "")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "(built from other sources); run python -m" in refused.stderr
    assert begun(clone, "off").stdout == "measured\n"


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("[!_]*.py")), ids=lambda path: path.stem)
def test_every_benchmark_begins_so(path: Path) -> None:
    """All that have options of their own: the others are parts of these."""
    text = path.read_text()
    assert "ArgumentParser" not in text
    assert ("from _measured import Options" in text) == ("parse_args()" in text or "parse_known_args()" in text)


def test_predicted_accuracy_is_compared_with_that_of_fits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A class that a feature gives away is predicted, and reached."""
    monkeypatch.syspath_prepend(str(FOLDER))
    benchmark, tables = importlib.import_module("private_accuracy"), importlib.import_module("_private_tables")
    given = np.random.default_rng(1).integers(0, 2, 150)
    frame = pd.DataFrame({"x": given, "y": given})
    easy = benchmark.predicted_less_measured(tables.from_frame("easy", frame, "y"), (100.0,), 1, 1)
    assert easy.shape == (2, 1, 1)
    assert abs(easy).max() < 0.05
    benchmark._print_predictions({"a": (100, easy * 0 + 0.25), "b": (5000, easy * 0 - 0.75)}, (100.0,))
    means = re.findall(r"public sample\s+([+-]\d\.\d+) (\d\.\d+)", capsys.readouterr().out)
    assert means == [("-0.250", "0.500"), ("+0.250", "0.250"), ("-0.750", "0.750")]
