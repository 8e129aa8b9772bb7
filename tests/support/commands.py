"""The command line as users run it: the installed program, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BLINDBAYES = str(Path(sys.executable).parent / "blindbayes")


def blindbayes(*words: object) -> str:
    """Run a command that must succeed, and return what it prints."""
    done = subprocess.run([BLINDBAYES, *map(str, words)], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return done.stdout
