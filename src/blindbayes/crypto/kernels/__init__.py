"""Compiled kernels of the hot loops, or none: then numpy and OpenSSL do the same work, byte for byte alike and more slowly.

`active()` is the set of kernels in use, or None. `BLINDBAYES_KERNELS` chooses: `off`, the name of an instruction set
(`portable`, `aesni`, `vaes`, `avx512`, `armv8`), or `auto`, the default: the fastest that is built in and the processor has.

A kernel is called through `border`, which checks what it is given; `build` compiles them.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Iterator
from typing import Any

from blindbayes.crypto.kernels.bindings import MAX_CLASSES, MAX_WORDS, Kernels
from blindbayes.crypto.kernels.signatures import functions
from blindbayes.errors import ConfigError

__all__ = ["MAX_CLASSES", "MAX_WORDS", "Kernels", "active", "available", "describe", "using"]
VARIABLE = "BLINDBAYES_KERNELS"
_KEPT = 1 << 27  # bytes of freed memory that a process with kernels keeps for itself


@functools.cache
def _library() -> tuple[Any, tuple[str, ...]] | str:
    """The library and its instruction sets that this processor has; or why there is none."""
    from blindbayes.crypto.kernels import build  # not at the top: it is a program too

    if not build.LIBRARY.exists():
        return "not built"
    try:
        import _cffi_backend as backend

        library = backend.load_library(str(build.LIBRARY), 0)
        calls = functions(library, backend, only=("kernels_digest", "kernels_sets"))
        made, names = (backend.string(calls[f"kernels_{what}"]()).decode() for what in ("digest", "sets"))
    except (ImportError, OSError, AttributeError):
        return "the library cannot be loaded"
    if made != build.digest():
        logging.getLogger(__name__).warning("kernels of other sources are left out; python -m blindbayes.crypto.kernels.build")
        return "built from other sources"
    return library, tuple(names.split())


def available() -> tuple[str, ...]:
    """The instruction sets that can be used here, the fastest last."""
    found = _library()
    return () if isinstance(found, str) else found[1]


@functools.cache
def _load(name: str) -> Kernels | None:
    found = _library()
    if name == "off" or (name == "auto" and isinstance(found, str)):
        return None
    names = available()
    if isinstance(found, str) or name not in ("auto", *names):
        have = ", ".join(("auto", "off", *names))
        raise ConfigError(f"{VARIABLE}: there are no such kernels here, only {have}")
    made = Kernels(names[-1] if name == "auto" else name, found[0])
    made.keep_memory(_KEPT)
    return made


_chosen: Kernels | None = None
_asked = False


def active() -> Kernels | None:
    """The kernels in use, or None for numpy."""
    global _chosen, _asked
    if not _asked:
        _chosen = _load(os.environ.get(VARIABLE) or "auto")
        _asked = True
    return _chosen


@contextlib.contextmanager
def using(name: str) -> Iterator[None]:
    """Other kernels for a while, in the whole process: for tests and benchmarks."""
    global _chosen, _asked
    before = active()
    _chosen = _load(name)
    try:
        yield
    finally:
        _chosen = before


def describe() -> str:
    """Which are in use, in a line."""
    chosen, found = active(), _library()
    if chosen is not None:
        return f"kernels: {chosen.name} (of {', '.join(available())})"
    return f"kernels: none, numpy does the work ({found if isinstance(found, str) else f'{VARIABLE}=off'})"
