"""A folder whose path is short: that of a socket must be, and a test's own folder is not."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bb-") as folder:
        yield Path(folder)
