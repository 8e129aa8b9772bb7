"""Commands that read no table do not wait for the libraries that read tables and fit models."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW = ("sklearn", "scipy", "pandas", "ibis", "duckdb", "pyarrow", "narwhals", "matplotlib", "grpc")


@pytest.mark.parametrize(
    "module", ["blindbayes", "blindbayes.cli", *(f"blindbayes.cli.commands.{name}" for name in ("site", "study"))]
)
def test_no_slow_library_is_imported_at_the_start(module: str) -> None:
    assert imported(f"import {module}", SLOW) == []


def test_the_list_of_commands_loads_neither_arrays_nor_extensions() -> None:
    code = "from blindbayes.cli import root; root.main(['--help'], standalone_mode=False)"
    shown = imported(code, (*SLOW, "numpy", "blindbayes_papers"))
    assert "train-smooth" in shown  # listed
    assert shown[-1] == "--help."  # and no module's name follows the last command's line


def imported(code: str, modules: tuple[str, ...]) -> list[str]:
    """What a fresh interpreter prints that runs this, and which of the modules it has loaded then."""
    code = f"import sys; {code}; print(*sorted(set({modules!r}) & set(sys.modules)))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_the_classes_of_a_batch_are_written_without_pandas() -> None:
    code = (
        "from blindbayes.study.tasks.result import classes_csv; import numpy as np; "
        "labels = np.array(['a', None, 'b\\u00fc', ''], dtype=object); "
        ""
        "print(ascii(classes_csv(labels, 'y', {}).decode()))"
    )
    assert imported(code, ("pandas",)) == [ascii('"row","y"\n1,"a"\n2,\n3,"b\xfc"\n4,""\n')]
