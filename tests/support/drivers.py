"""Another way to run roles in one process, for tests that watch or forbid it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from blindbayes.study.simulation import driver as drivers


def run_by(monkeypatch: pytest.MonkeyPatch, run: Callable[[Mapping[str, Any]], Any]) -> None:
    """Training, matching and classification in one process go through `run` from now on."""
    monkeypatch.setattr(drivers, "run_in_memory", lambda roles, **_: run(roles))
