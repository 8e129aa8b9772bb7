"""libsodium, loaded without a file where the system can.

`rbcl` writes its copy of libsodium into the folder for temporary files, loads it, and never takes it away: one file of some
megabytes per process, and none at all where that folder may hold no programs (`noexec`, as hardened servers have it). On Linux
it gets memory in place of a file; elsewhere the file is taken away once loaded. (Windows keeps a loaded file; there it stays.)
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

_WANTED = {"suffix": ".so", "delete": False}  # how rbcl asks for its file


@contextlib.contextmanager
def _in_memory() -> Iterator[None]:
    """Whoever asks for that one file gets memory with a name; everybody else gets files as ever."""
    try:
        room = os.memfd_create("libsodium")
    except (AttributeError, OSError):
        yield
        return
    place, ordinary = f"/proc/self/fd/{room}", tempfile.NamedTemporaryFile

    def named(*args: Any, **options: Any) -> Any:
        return SimpleNamespace(name=place) if not args and options == _WANTED else ordinary(*args, **options)

    try:
        if os.path.exists(place):
            tempfile.NamedTemporaryFile = named
        yield
    finally:
        tempfile.NamedTemporaryFile = ordinary
        os.close(room)


with _in_memory():
    import rbcl

__all__ = ["rbcl"]

_copy = getattr(sys.modules.get("rbcl._sodium"), "lib_path", None)
if isinstance(_copy, str) and not _copy.startswith("/proc/"):
    with contextlib.suppress(OSError):
        os.remove(_copy)
