"""One run at a site: its state, its roles, and what people are shown of it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blindbayes.agent.runs.context import Work
from blindbayes.agent.runs.role_runner import RoleRunner
from blindbayes.agent.runs.state import TRANSITIONS, RunState, StopLatch
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
from blindbayes.study.tasks.traits import ModelForm


class Unwritten(Exception):
    """Raised if the roles have ended and their results could not be written."""

    def __init__(self, error: OSError | LedgerError) -> None:
        why = error.strerror if isinstance(error, OSError) else str(error)
        super().__init__(
            f"the result could not be written ({why}). Nothing is lost: free some space, leave the rows as they are, and start "
            "the agent again; it writes the release from the run's journal"
        )


class NotNow(PrivacyError):
    """A refusal that may not hold in a minute, or should not be disclosed: no answer, and the other site asks again."""


class EarlierRunOpen(NotNow):
    """The run whose result is needed is under way here."""

    def __init__(self) -> None:
        super().__init__("the run that this one goes on from is under way here: ask again when it has ended")


@dataclass(slots=True)
class AgentRun:
    """One run at this site."""

    run_id: str
    work: Work
    proposed_by: str
    heads: bytes  # of this site's logs when the run was joined: the same for every peer, and different in every run
    phase: RunState = RunState.READING
    roles: dict[str, RoleRunner] = field(default_factory=dict)
    error: BlindbayesError | None = None
    release: Path | None = None
    task: asyncio.Task[None] | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)  # set in every final state
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None
    protocol_seconds: float = 0.0
    latch: StopLatch = field(default_factory=StopLatch)

    @property
    def study(self) -> StudyFile:
        return self.work.study

    @property
    def state(self) -> str:
        return self.phase.shown

    @property
    def is_open(self) -> bool:
        return not self.phase.is_final

    def enter(self, phase: RunState) -> None:
        """Move to another state. Raises `RuntimeError` if the table does not allow it."""
        if phase not in TRANSITIONS[self.phase]:
            raise RuntimeError(f"a run that is {self.phase.value} cannot become {phase.value}")
        self.phase = phase
        if phase.is_final:
            self.ended = time.monotonic()
            self.done.set()

    def outcome(self, error: BlindbayesError) -> dict[str, Any]:
        """Return how the run failed, as it is stored and as other sites are informed."""
        party, roles = error.party if isinstance(error, ProtocolError) else None, self.study.roles
        return {
            "state": "stopped" if isinstance(error, RunStopped) else "failed",
            "study": self.study.sha256,
            "error": type(error).__name__,
            "exit_code": error.code,
            "about": roles.index(party) if party in roles else -1,
            **({"told": "done"} if self.phase.protocol_done else {}),
        }

    def ends_approval(self, error: BlindbayesError) -> bool:
        """Return True if a failed check may have revealed one bit of the shares. Then staff must approve any further run."""
        if not isinstance(error, IntegrityError) or isinstance(error, UndisclosedError):
            return False
        return self.study.task.model is ModelForm.SHARED and bool(set(error.suspects) - set(self.roles))

    def traffic(self) -> dict[str, int]:
        """Return the traffic of all roles of this site."""
        counted = ("messages_in", "messages_out", "bytes_in", "bytes_out", "resumed")
        shown = [role.show() for role in self.roles.values()]
        return {name: sum(role[name] for role in shown) for name in counted}

    def show(self) -> dict[str, Any]:
        """Return states, names and times for people and for the console; never a value."""
        shown: dict[str, Any] = {
            "run": self.run_id,
            "kind": self.work.task.kind,
            "study": self.study.sha256,
            "title": self.study.title,
            "proposed_by": self.proposed_by,
            "state": self.state,
            "seconds": round((self.ended or time.monotonic()) - self.began, 3),
            "protocol_seconds": round(self.protocol_seconds, 3),
            "roles": {name: role.show() for name, role in self.roles.items()},
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
        """Return one line such as `2 of 3 sites, waiting for south, 8 min to deadline`."""
        if self.error is not None:
            return f"failed: {self.error}"
        if self.phase not in (RunState.RUNNING, RunState.WRITING):
            return str(self.phase.value)
        waiting: dict[str, float] = {}
        down = set()
        for role in self.roles.values():
            progress = role.driver.progress
            if progress.deadline is None:
                continue
            for name in progress.waiting_for:
                site = self.study.host(name)
                if site not in self.roles:
                    waiting[site] = max(0.0, progress.deadline - asyncio.get_running_loop().time())
                    if role.links[name].down_since is not None:
                        down.add(site)
        sites = len(self.study.names)
        if not waiting:
            return f"{sites} of {sites} sites, computing"
        left = min(waiting.values())
        named = [f"{site} (not connected)" if site in down else site for site in sorted(waiting)]
        clock = f"{left / 60:.0f} min" if left >= 120 else f"{left:.0f} s"
        return f"{sites - len(waiting)} of {sites} sites, waiting for {', '.join(named)}, {clock} to deadline"
