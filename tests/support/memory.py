"""Where temporary folders lie in memory: ledgers, logs and journals wait for the disk thousands of times in a run."""

from __future__ import annotations

import os
from pathlib import Path

_MEMORY = Path("/dev/shm")
_ROOM = 2**31


def folder_in_memory() -> str | None:
    """The place for temporary folders in memory, if there is room."""
    try:
        facts = os.statvfs(_MEMORY)
    except OSError:
        return None
    is_fit = facts.f_bavail * facts.f_frsize > _ROOM and not facts.f_flag & os.ST_NOEXEC and os.access(_MEMORY, os.W_OK)
    return str(_MEMORY) if is_fit else None
