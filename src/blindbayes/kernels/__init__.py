"""Compiled kernels of the hot loops, or none: then numpy and OpenSSL do the same work, byte for byte alike and more slowly.

`active()` is the set of kernels in use, or None. `BLINDBAYES_KERNELS` chooses: `off`, the name of an instruction set
(`portable`, `aesni`, `vaes`, `armv8`), or `auto`, the default: the fastest that is built in and that this processor has.

This module is the border. A kernel sees nothing but arrays and lengths that were checked here: contiguous, of the right kind
and size, and writable where it writes; whoever hands in anything else gets a `LocalProtocolError`. cffi, which `cryptography`
brings along, makes the calls: they let go of the interpreter's lock, and cost a third of ctypes'.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.errors import ConfigError, LocalProtocolError

VARIABLE = "BLINDBAYES_KERNELS"
SCHEDULE = 176  # bytes of an expanded AES-128 key
U64Array = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]

_DECLARED = """
void schedules_{0}(const uint8_t *, size_t, uint8_t *);
void expand_{0}(const uint8_t *, const uint8_t *, const uint64_t *, uint64_t, uint64_t, uint64_t, size_t, size_t, uint64_t *);
void fold_{0}(const uint8_t *, const uint8_t *, uint64_t, int, size_t, uint8_t *, size_t, uint8_t *);
void transpose_{0}(const uint8_t *, size_t, size_t, size_t, uint8_t *);
"""


_UNFIT = "arrays handed to a kernel do not fit it, or one another"


def _require(fits: bool) -> None:
    if not fits:
        raise LocalProtocolError(_UNFIT)


class Kernels:
    """The kernels for one instruction set."""

    def __init__(self, name: str, library: Any, ffi: Any) -> None:
        self.name = name
        self._ffi = ffi
        self._schedules, self._expand, self._fold, self._transpose = (
            getattr(library, f"{kernel}_{name}") for kernel in ("schedules", "expand", "fold", "transpose")
        )

    def _bytes(self, array: Any, *, writes: bool = False) -> Any:
        """The memory of an array; cffi refuses one that is not contiguous, or not writable where it must be."""
        try:
            return self._ffi.from_buffer("uint8_t[]", array, require_writable=writes)
        except (ValueError, BufferError, TypeError):
            raise LocalProtocolError(_UNFIT) from None

    def _words(self, array: U64Array, *, writes: bool = False) -> Any:
        _require(array.dtype == np.uint64)
        return self._ffi.cast("uint64_t *", self._bytes(array, writes=writes))

    def schedules(self, keys: bytes) -> Bytes:
        """AES-128 keys, one after the other, expanded: (n, 176)."""
        _require(len(keys) % 16 == 0)
        out = np.empty((len(keys) // 16, SCHEDULE), dtype=np.uint8)
        self._schedules(self._bytes(keys), len(out), self._bytes(out, writes=True))
        return out

    def expand(
        self,
        schedule: Bytes,
        seeds: U64Array,
        domain: int,
        words: int,
        *,
        firsts: U64Array | None = None,
        first: int = 0,
        step: int = 0,
        out: U64Array | None = None,
    ) -> U64Array:
        """(n, words) of hashes of (n, 2) seeds; block b of row r has the tweak firsts[r] + b, or first + r * step + b."""
        rows = len(seeds)
        out = np.empty((rows, words), dtype=np.uint64) if out is None else out
        _require(schedule.size == SCHEDULE and seeds.shape == (rows, 2) and out.shape == (rows, words) and words > 0)
        given = self._ffi.NULL
        if firsts is not None:
            _require(firsts.shape == (rows,))
            given = self._words(firsts)
        _require(seeds.dtype == np.uint64)
        to = self._words(out, writes=True)
        self._expand(self._bytes(schedule), self._bytes(seeds), given, first, step, domain, rows, words, to)
        return out

    def fold(
        self, folded: Bytes, rest: Bytes, *, given: U64Array | None = None, schedules: Bytes | None, counter: int, missing: bool
    ) -> None:
        """Leaf streams, `given` (32, 16, words) or in counter mode from block `counter`, to `folded` (128, at least the width
        of `rest`) and `rest` (32, width). With `missing` the first leaf of each tree is zeros."""
        width, stride = rest.shape[1], folded.shape[1]
        _require(folded.shape[0] == 128 and rest.shape[0] == 32 and stride >= width and width % 16 == 0)
        _require(folded.dtype == rest.dtype == np.uint8)
        streams, keys = self._ffi.NULL, self._ffi.NULL
        if given is not None:
            _require(given.shape == (32, 16, width // 8))
            streams = self._bytes(given)
        else:
            _require(schedules is not None and schedules.shape == (512, SCHEDULE))
            keys = self._bytes(schedules)
        to, also = self._bytes(folded, writes=True), self._bytes(rest, writes=True)
        self._fold(streams, keys, counter, missing, width, to, stride, also)

    def transpose(self, rows: Bytes, out: npt.NDArray[Any]) -> None:
        """(n, width) bytes of bits, little-endian, to 8 * width rows of n bits in `out`. Rows may lie apart."""
        count, width = rows.shape
        stride, inner = rows.strides
        _require(rows.dtype == np.uint8 and count % 64 == 0 and width % 8 == 0 and inner == 1 and stride >= width)
        _require(out.nbytes == count * width)
        start = self._ffi.cast("uint8_t *", rows.__array_interface__["data"][0])
        self._transpose(start, stride, count, width, self._bytes(out, writes=True))


# -- which are in use ----------------------------------------------------------------------------------------------------


@functools.cache
def _library() -> tuple[Any, Any, tuple[str, ...]] | str:
    """The library, its declarations and its instruction sets that this processor has; or why there is none."""
    from blindbayes.kernels import build  # not at the top: it is a program too

    if not build.LIBRARY.exists():
        return "not built"
    try:
        from cffi import FFI

        ffi = FFI()
        ffi.cdef("const char *kernels_digest(void); const char *kernels_sets(void);")
        library = ffi.dlopen(str(build.LIBRARY))
        made, own = ffi.string(library.kernels_digest()).decode(), build.digest()
    except (ImportError, OSError, AttributeError):
        return "the library cannot be loaded"
    if made != own:
        logging.getLogger(__name__).warning("kernels of another version are left out; python -m blindbayes.kernels.build")
        return "built from other sources"
    names = tuple(ffi.string(library.kernels_sets()).decode().split())
    ffi.cdef("".join(_DECLARED.format(name) for name in names))
    return library, ffi, names


def available() -> tuple[str, ...]:
    """The instruction sets that can be used here, the fastest last."""
    found = _library()
    return () if isinstance(found, str) else found[2]


@functools.cache
def _load(name: str) -> Kernels | None:
    found = _library()
    if name == "off" or (name == "auto" and isinstance(found, str)):
        return None
    names = available()
    if isinstance(found, str) or name not in ("auto", *names):
        have = ", ".join(("auto", "off", *names))
        raise ConfigError(f"{VARIABLE}: there are no such kernels here, only {have}")
    return Kernels(names[-1] if name == "auto" else name, found[0], found[1])


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
