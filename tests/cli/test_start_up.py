"""Commands that read no table do not wait for the libraries that read tables and fit models."""

from __future__ import annotations

import subprocess
import sys

import pytest

SLOW = ("sklearn", "scipy", "pandas", "ibis", "duckdb", "pyarrow", "narwhals", "matplotlib", "grpc")


@pytest.mark.parametrize("module", ["blindbayes", "blindbayes.cli", "blindbayes.cli.site", "blindbayes.cli.study"])
def test_no_slow_library_is_imported_at_the_start(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(set({SLOW!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
