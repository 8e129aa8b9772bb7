"""What every test may ask for: the papers' datasets, and a missing tool that skips here and fails in CI."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

IN_CI = os.environ.get("CI", "").lower() == "true"


def _skip(reason: str) -> None:
    if IN_CI:
        pytest.fail(f"under CI=true this must be there: {reason}")
    pytest.skip(reason)


def pytest_configure(config: pytest.Config) -> None:
    beside = Path(config.rootpath).parent / "shared" / "data"
    if "BLINDBAYES_DATA" not in os.environ and beside.is_dir():
        os.environ["BLINDBAYES_DATA"] = str(beside)


@pytest.fixture(scope="session")
def dataset() -> Callable[[str], Path]:
    """Path of a paper's dataset by name."""

    def find(name: str) -> Path:
        folder = os.environ.get("BLINDBAYES_DATA")
        if folder and (path := Path(folder) / f"{name}.csv").is_file():
            return path
        _skip(f"dataset {name} is not in BLINDBAYES_DATA")
        raise AssertionError

    return find


@pytest.fixture(scope="session")
def tool() -> Callable[[str], str]:
    """Path of a program by name."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            _skip(f"program {name} is not installed")
            raise AssertionError
        return path

    return find
