"""Programs that tests start. Under CI=true the Debian package of an absent one is installed; elsewhere the test is skipped."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

Found = TypeVar("Found")
IN_CI = os.environ.get("CI", "").lower() == "true"


def require(name: str, package: str) -> str:
    """The path of a program. Without it the test is skipped with the command that installs it, or fails under CI=true."""
    found = find(lambda: shutil.which(name), package)
    if found is None:
        refuse(f"program {name} is not installed: apt-get install {package}")
        raise AssertionError
    return found


@functools.cache
def require_browser() -> str:
    """Chromium without windows where Debian has it: it takes a quarter of the other's time. Else the whole of it."""
    shell = "chromium-headless-shell"
    return find(lambda: shutil.which(shell), shell) or require("chromium", "chromium")


def refuse(reason: str) -> None:
    """Skip, or fail under CI=true."""
    if IN_CI:
        pytest.fail(f"under CI=true this must be there: {reason}")
    pytest.skip(reason)


def find(look: Callable[[], Found | None], *packages: str) -> Found | None:
    """What `look` finds, if need be after the packages were installed; of several test processes one does it."""
    if (found := look()) is not None or not IN_CI or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return found
    with (Path(tempfile.gettempdir()) / "blindbayes-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (found := look()) is None:
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
                line = ["apt-get", "-o", "DPkg::Lock::Timeout=200", *command]
                subprocess.run(line, check=False, capture_output=True, timeout=300, env=environment)
            found = look()
    return found
