"""Read sabotages.toml, and run the tests of one entry against a changed copy of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "blindbayes"
LIST = Path(__file__).with_name("sabotages.toml")
SECONDS = 900  # a changed protocol may wait for ever: then nothing was noticed in time


@dataclass(frozen=True)
class Sabotage:
    """One changed line, and the tests that must fail because of it."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def changed(self) -> str:
        """Return the text of the file with the change. Raises `ValueError` unless the old text stands there exactly once."""
        text = (PACKAGE / self.file).read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.old!r} stands {text.count(self.old)} times in {self.file}")
        return text.replace(self.old, self.new)


def load() -> list[Sabotage]:
    """Return the sabotages in the order of the file."""
    with LIST.open("rb") as file:
        groups = tomllib.load(file)
    return [Sabotage(name, entry["file"], entry["old"], entry["new"], tuple(entry["tests"])) for name, entry in groups.items()]


def outcome(sabotage: Sabotage) -> tuple[str, float, str]:
    """Return 'killed', 'survived' or 'broken', the seconds that it took and what pytest printed."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "blindbayes"
        shutil.copytree(PACKAGE, copy)  # with the bytecode, which stays valid
        (copy / sabotage.file).write_text(sabotage.changed(), encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": folder}
        command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "-W", "ignore"]
        command += ["--basetemp", f"{folder}/tmp"]  # failed tests keep their folders
        try:
            done = subprocess.run(
                [*command, *sabotage.tests],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            return "survived", time.monotonic() - start, "no test failed in time"
    return {0: "survived", 1: "killed"}.get(done.returncode, "broken"), time.monotonic() - start, done.stdout + done.stderr
