"""The states of a run at a site, and the latch that stops it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from enum import Enum

from blindbayes.errors import ConfigError, RunStopped


class RunState(Enum):
    """The state of a run at this site; the value is what people are shown."""

    READING = "reading"
    RUNNING = "running"
    STOPPING = "stopping"  # staff stopped it, and its roles have not ended
    WRITING = "writing"  # its roles have ended well; for other sites the run is done
    FAILING = "failing"  # an error ended it, and the other sites are being informed
    DONE = "done"
    FAILED = "failed"
    FAILED_HERE = "failed here"  # its result is wrong or cannot be stored; for other sites the run is done
    UNWRITTEN = "unwritten"  # as FAILED_HERE, but the journal remains and the next start writes the release

    @property
    def shown(self) -> str:
        """The coarser state that the API reports: reading, running, done or failed."""
        return _SHOWN.get(self, self.value)

    @property
    def is_final(self) -> bool:
        return not TRANSITIONS[self]

    @property
    def protocol_done(self) -> bool:
        """True once the roles have ended well: nothing that other sites see depends on what follows."""
        return self in (RunState.WRITING, RunState.DONE, RunState.FAILED_HERE, RunState.UNWRITTEN)


TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    RunState.READING: frozenset({RunState.RUNNING, RunState.STOPPING, RunState.FAILING}),
    RunState.RUNNING: frozenset({RunState.WRITING, RunState.STOPPING, RunState.FAILING}),
    RunState.STOPPING: frozenset({RunState.FAILING}),
    RunState.WRITING: frozenset({RunState.DONE, RunState.FAILED_HERE, RunState.UNWRITTEN}),
    RunState.FAILING: frozenset({RunState.FAILED}),
    RunState.DONE: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.FAILED_HERE: frozenset(),
    RunState.UNWRITTEN: frozenset(),
}

_SHOWN = {
    RunState.STOPPING: "running",
    RunState.WRITING: "running",
    RunState.FAILING: "failed",
    RunState.FAILED_HERE: "failed",
    RunState.UNWRITTEN: "failed",
}


class StopLatch:
    """A latch that stops a run: afterwards it pays nothing and sends nothing.

    Steps that count (the charge, a message that may leave) pass through it in threads. Each is complete before the latch
    closes, or never begins; so the log entry of the stop follows everything that passed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed: RunStopped | None = None
        self._left = False

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """Raise the stop error if the run was stopped; else hold the latch open for one step."""
        with self._lock:
            if self._closed is not None:
                raise self._closed
            yield

    def leave(self) -> None:
        """Mark the protocol as finished: only the result is still to be written."""
        with self.passing():
            self._left = True

    def close(self, error: RunStopped, write: Callable[[], object]) -> None:
        """Call `write` and close the latch. Raises `ConfigError` if there is nothing to stop."""
        with self._lock:
            if self._left or self._closed is not None:
                raise ConfigError("the run has ended here, or was stopped before")
            write()
            self._closed = error

    def shut(self, error: RunStopped) -> None:
        """Close the latch of a run that goes on at the next start, or is over: a thread that still computes changes nothing."""
        with self._lock:
            self._closed = self._closed or error
