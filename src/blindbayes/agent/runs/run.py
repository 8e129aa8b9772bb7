"""One run at a site, as its people see it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blindbayes.agent.runs.context import Work
from blindbayes.agent.runs.role_runner import RoleRunner
from blindbayes.agent.runs.state import StopLatch
from blindbayes.errors import (
    BlindbayesError,
    IntegrityError,
    LedgerError,
    PrivacyError,
    ProtocolError,
    RunStopped,
    UndisclosedError,
)
from blindbayes.study.file import StudyFile


class Unwritten(Exception):
    """The roles are through, and what they returned could not be written."""

    def __init__(self, error: OSError | LedgerError) -> None:
        why = error.strerror if isinstance(error, OSError) else str(error)
        super().__init__(
            f"the result could not be written ({why}). Nothing is lost: free some space, leave the rows as they are, and start "
            "the agent again; it writes the release from the run's journal"
        )


class NotNow(PrivacyError):
    """What may be otherwise in a minute, or should not be talked about: silence, and the other side asks again."""


@dataclass(slots=True)
class AgentRun:
    """One run at this site."""

    run_id: str
    work: Work
    proposed_by: str
    heads: bytes  # of this site's logs as the run was joined: the same for every peer, and another in every run
    state: str = "reading"  # reading, running, done, failed
    seats: dict[str, RoleRunner] = field(default_factory=dict)
    error: BlindbayesError | None = None
    release: Path | None = None
    task: asyncio.Task[None] | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    protocol_seconds: float = 0.0
    gate: StopLatch = field(default_factory=StopLatch)
    rests: bool = False  # its roles have ended well
    stopping: bool = False  # people said so, and it has not come to its end

    @property
    def study(self) -> StudyFile:
        """The study it belongs to."""
        return self.work.study

    def end(self) -> None:
        """It is over, and its clock stands still."""
        self.ended = time.monotonic()
        self.done.set()

    def rest(self) -> None:
        """Its roles have ended well: from here on nothing that other sites see hangs on what is made of it."""
        self.rests = True
        for seat in self.seats.values():
            seat.rest()

    def fail(self, error: BlindbayesError) -> dict[str, Any]:
        """It has failed here; how, as it is kept. Once its roles have ended well, it has ended well for others."""
        self.error, self.state = error, "failed"
        party, seats = error.party if isinstance(error, ProtocolError) else None, self.study.seats
        return {
            "state": "stopped" if isinstance(error, RunStopped) else "failed",
            "study": self.study.sha256,
            "error": type(error).__name__,
            "exit_code": error.code,
            "about": seats.index(party) if party in seats else -1,
            **({"told": "done"} if self.rests else {}),
        }

    def ends_approval(self, error: BlindbayesError) -> bool:
        """True if a failed check may have told another site one bit of what stays in shares: people decide about more runs."""
        if not isinstance(error, IntegrityError) or isinstance(error, UndisclosedError):
            return False
        return self.study.scheme.facts.shares and bool(set(error.suspects) - set(self.seats))

    def traffic(self) -> dict[str, int]:
        """What all seats sent and received."""
        counted = ("messages_in", "messages_out", "bytes_in", "bytes_out", "resumed")
        shown = [seat.show() for seat in self.seats.values()]
        return {name: sum(seat[name] for seat in shown) for name in counted}

    def show(self) -> dict[str, Any]:
        """For people and for the console: states, names, times; never a value."""
        shown: dict[str, Any] = {
            "run": self.run_id,
            "kind": self.work.job.kind,
            "study": self.study.sha256,
            "title": self.study.title,
            "proposed_by": self.proposed_by,
            "state": self.state,
            "seconds": round((self.ended or time.monotonic()) - self.began, 3),
            "protocol_seconds": round(self.protocol_seconds, 3),
            "seats": {name: seat.show() for name, seat in self.seats.items()},
            "text": self.text(),
        }
        if self.release is not None:
            shown["release"] = str(self.release)
        if self.error is not None:
            party = self.error.party if isinstance(self.error, ProtocolError) else None
            shown |= {
                "error": type(self.error).__name__,
                "message": str(self.error),
                "exit_code": self.error.code,
                "party": party,
            }
        return shown

    def text(self) -> str:
        """One line: `2 of 3 sites, waiting for south, 8 min to deadline`."""
        if self.stopping and self.error is None:
            return "stopping"
        if self.state != "running":
            return self.state if self.error is None else f"failed: {self.error}"
        waiting: dict[str, float] = {}
        down = set()
        for seat in self.seats.values():
            progress = seat.driver.progress
            if progress.deadline is None:
                continue
            for name in progress.waiting_for:
                site = self.study.host(name)
                if site not in self.seats:
                    waiting[site] = max(0.0, progress.deadline - asyncio.get_running_loop().time())
                    if seat.links[name].down_since is not None:
                        down.add(site)
        sites = len(self.study.names)
        if not waiting:
            return f"{sites} of {sites} sites, computing"
        left = min(waiting.values())
        named = [f"{site} (not connected)" if site in down else site for site in sorted(waiting)]
        clock = f"{left / 60:.0f} min" if left >= 120 else f"{left:.0f} s"
        return f"{sites - len(waiting)} of {sites} sites, waiting for {', '.join(named)}, {clock} to deadline"
