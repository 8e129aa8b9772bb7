"""Whether a run may go on. What people stopped pays nothing and lets nothing leave from then on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from blindbayes.errors import ConfigError, RunStopped


class StopLatch:
    """Steps that count (the last look, a message that may leave) pass through it, in threads: each is whole before it closes,
    or never begins. What is written as it closes stands in the log behind all that passed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed: RunStopped | None = None
        self._behind = False

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """Raises the word that closed it."""
        with self._lock:
            if self._closed is not None:
                raise self._closed
            yield

    def leave(self) -> None:
        """The run is through: only its result is still to be written."""
        with self.passing():
            self._behind = True

    def close(self, word: RunStopped, write: Callable[[], object]) -> None:
        """Nothing passes any more. Raises `ConfigError` if there is nothing to stop."""
        with self._lock:
            if self._behind or self._closed is not None:
                raise ConfigError("the run has ended here, or was stopped before")
            write()
            self._closed = word
