"""libsodium, loaded without leaving a file behind.

`rbcl` writes its copy of libsodium into the folder for temporary files, loads it, and never takes it away: one file of some
megabytes per process. Once loaded it is not needed. (Windows keeps a loaded file; there it stays.)
"""

from __future__ import annotations

import contextlib
import os
import sys

import rbcl

__all__ = ["rbcl"]

_copy = getattr(sys.modules.get("rbcl._sodium"), "lib_path", None)
if isinstance(_copy, str):
    with contextlib.suppress(OSError):
        os.remove(_copy)
