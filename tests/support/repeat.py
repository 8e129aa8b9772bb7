"""Coins of tests: what a process draws from the operating system follows from the test's name, so that a run can be repeated.

A statistical assertion that holds once so holds every time, until somebody changes what is drawn. Fixtures of a module or a
session have streams of their own, whichever test comes first. `--coins 2` gives other numbers, `--coins system` fresh ones
(and fresh examples of hypothesis). Processes that a test starts draw from the operating system as ever.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterator

from blindbayes.crypto import coins
from blindbayes.crypto.coins import Coins

_READ, _FRESH = coins._System.read, Coins.fresh_seed


class _Source:
    """One stream for all threads: none of them gets a byte twice."""

    def __init__(self, name: str) -> None:
        self._stream, self._lock = coins._Keyed(hashlib.sha256(name.encode()).digest()), threading.Lock()

    def read(self, size: int) -> bytes:
        with self._lock:
            return self._stream.read(size)


@contextlib.contextmanager
def drawn_from(name: str) -> Iterator[None]:
    """The operating system's random numbers are these, meanwhile, in this process."""
    source, before = _Source(name), (coins._System.read, Coins.fresh_seed)
    _set(lambda _, size: source.read(size), staticmethod(lambda: source.read(coins.SEED_BYTES)))
    try:
        yield
    finally:
        _set(before[0], staticmethod(before[1]))


def _set(read: object, fresh: object) -> None:
    coins._System.read = read  # type: ignore[assignment, method-assign]
    Coins.fresh_seed = fresh  # type: ignore[assignment, method-assign]


os.register_at_fork(after_in_child=lambda: _set(_READ, staticmethod(_FRESH)))  # two children must not draw the same
