"""One agent per folder, and how it is told of changes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from blindbayes.errors import ConfigError


@contextlib.contextmanager
def sole_agent(folder: Path) -> Iterator[None]:
    """One agent per folder: two would answer for one site with two memories."""
    handle = os.open(folder / "agent.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError("an agent of this site is running already") from None
        os.truncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        yield
    finally:
        os.close(handle)


def ask_to_reload(folder: Path) -> bool:
    """Send the agent of a folder a signal to take up changed settings and pins; False: none runs."""
    with contextlib.suppress(OSError, ValueError):
        handle = os.open(folder / "agent.lock", os.O_RDWR)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held: the number in it is that of a living agent
            os.kill(int(os.pread(handle, 20, 0)), signal.SIGHUP)
            return True
        finally:
            os.close(handle)
    return False
