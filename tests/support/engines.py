"""Environments of engines that cannot live in ours: made from a lock with hashes, once, and kept in a folder for all tests."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from support import programs

ENGINES = Path(__file__).parents[2] / "engines"


def engine_python(engine: str) -> Path:
    """The python of an environment with this engine. Skips where it cannot be had; under CI=true that is a failure."""
    lock = ENGINES / f"{engine}.lock"
    digest = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "blindbayes-engines"
    home = Path(os.environ.get("BLINDBAYES_ENGINES", str(cache))) / f"{engine}-{digest}"
    home.parent.mkdir(parents=True, exist_ok=True)
    with (home.parent / f"{home.name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # workers of one test run wait for each other
        if not (home / ".ready").exists():
            pip = [
                str(home / "bin" / "python"),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--no-compile",
                "--no-deps",  # pip 23.2 would ask for the newest release of a library[extra]
            ]
            for command in ([sys.executable, "-m", "venv", str(home)], [*pip, "--require-hashes", "-r", str(lock)]):
                made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
                if made.returncode:
                    last = (made.stderr.strip().splitlines() or ["no reason given"])[-1][:200]
                    programs.refuse(f"{engine} could not be installed: {last}")
            (home / ".ready").touch()
    return home / "bin" / "python"


class Processes:
    """Programs of a test; what they start ends with them."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder, self._environment = folder, dict(environment)
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str], *, cwd: Path | None = None, **more: str) -> None:
        """Start one; its output goes to a file of its name."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self._started[name] = subprocess.Popen(
                list(command),
                cwd=cwd or self.folder,
                env={**os.environ, **self._environment, **more},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log(self, name: str) -> str:
        """What it said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def ended(self, name: str) -> int | None:
        """Its exit code, if it has ended."""
        return self._started[name].poll()

    def kill(self, name: str) -> None:
        """End one, and all that it started, without a word."""
        process = self._started.pop(name)
        for pid in [process.pid, *descendants(process.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """End all."""
        for name in list(self._started):
            self.kill(name)


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and that those started."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
    found = list(parents.get(pid, []))
    for child in found:
        found.extend(parents.get(child, []))
    return found


def until(what: str, condition: Callable[[], object], seconds: float) -> None:
    """Wait for something that another process does."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not in {seconds:g} s")
        time.sleep(0.05)
