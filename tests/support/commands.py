"""The command line as users run it, in a process of its own that is forked (see forked.py)."""

from __future__ import annotations

import sys
from pathlib import Path

from support.forked import command

BLINDBAYES = str(Path(sys.executable).parent / "blindbayes")


def blindbayes(*words: object) -> str:
    """Run a command that must succeed, and return what it prints."""
    done = command(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout
