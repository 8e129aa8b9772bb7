"""Compiled kernels of the hot loops; without them numpy and OpenSSL compute the same bytes more slowly.

`active()` returns the kernels in use, or None. `BLINDBAYES_KERNELS` selects `off`, an instruction set (`portable`, `aesni`,
`vaes`, `avx512`, `armv8`), or `auto`, the default: the fastest that is built in and that the processor supports.

`signatures` declares the functions and checks their arguments, `bindings` offers them as methods, `build` compiles them.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Iterator
from typing import Any

from blindbayes.crypto.kernels.bindings import MAX_CLASSES, MAX_WORDS, Kernels
from blindbayes.crypto.kernels.signatures import Tweaks, functions
from blindbayes.errors import ConfigError

__all__ = ["MAX_CLASSES", "MAX_WORDS", "Kernels", "Tweaks", "active", "available", "describe", "using"]
VARIABLE = "BLINDBAYES_KERNELS"
_REUSED = 1 << 27  # bytes of freed memory that a process with kernels keeps for reuse


@functools.cache
def _library() -> tuple[Any, tuple[str, ...]] | str:
    """Return the library and the instruction sets that this processor supports, or why there is no library."""
    from blindbayes.crypto.kernels import build  # not at the top: it also runs as a program

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
    """Return the usable instruction sets, the fastest last."""
    library = _library()
    return () if isinstance(library, str) else library[1]


@functools.cache
def _load(name: str) -> Kernels | None:
    library = _library()
    if name == "off" or (name == "auto" and isinstance(library, str)):
        return None
    names = available()
    if isinstance(library, str) or name not in ("auto", *names):
        raise ConfigError(f"{VARIABLE}: there are no such kernels here, only {', '.join(('auto', 'off', *names))}")
    kernels = Kernels(names[-1] if name == "auto" else name, library[0])
    kernels.keep_memory(_REUSED)
    return kernels


_chosen: Kernels | None = None
_asked = False


def active() -> Kernels | None:
    """Return the kernels in use, or None for numpy."""
    global _chosen, _asked
    if not _asked:
        _chosen = _load(os.environ.get(VARIABLE) or "auto")
        _asked = True
    return _chosen


@contextlib.contextmanager
def using(name: str) -> Iterator[None]:
    """Use other kernels temporarily, in the whole process: for tests and benchmarks."""
    global _chosen, _asked
    before = active()
    _chosen = _load(name)
    try:
        yield
    finally:
        _chosen = before


def describe() -> str:
    chosen, library = active(), _library()
    if chosen is not None:
        return f"kernels: {chosen.name} (of {', '.join(available())})"
    return f"kernels: none, numpy does the work ({library if isinstance(library, str) else f'{VARIABLE}=off'})"
