"""Load libsodium without leaving a temporary file.

`rbcl` writes its copy of libsodium to the temporary folder, loads it and never removes it: some megabytes per process, and a
failure where that folder is mounted `noexec`, as on hardened servers. On Linux it gets memory instead of a file; elsewhere the
file is removed after loading, except on Windows, which does not allow it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

_WANTED = {"suffix": ".so", "delete": False}  # rbcl's arguments for its temporary file


@contextlib.contextmanager
def _in_memory() -> Iterator[None]:
    """Give rbcl a named memory file in place of its temporary file; other callers get temporary files."""
    try:
        memory = os.memfd_create("libsodium")
    except (AttributeError, OSError):
        yield
        return
    place, ordinary = f"/proc/self/fd/{memory}", tempfile.NamedTemporaryFile

    def named(*args: Any, **options: Any) -> Any:
        return SimpleNamespace(name=place) if not args and options == _WANTED else ordinary(*args, **options)

    try:
        if os.path.exists(place):
            tempfile.NamedTemporaryFile = named
        yield
    finally:
        tempfile.NamedTemporaryFile = ordinary
        os.close(memory)


with _in_memory():
    import rbcl

__all__ = ["rbcl"]

_copy = getattr(sys.modules.get("rbcl._sodium"), "lib_path", None)
if isinstance(_copy, str) and not _copy.startswith("/proc/"):
    with contextlib.suppress(OSError):
        os.remove(_copy)
