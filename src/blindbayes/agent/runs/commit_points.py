"""The two commit points of a sum, which decide what an aborted run can have opened.

Before the first message that depends on this site's vector leaves, the run has opened nothing of it. Once the set of survivors
is confirmed, the run opens the sum over that set, or nothing. Both are in the audit log before the message can leave. The
protocol's SPEC.md lists these messages under `[commit_points]`; if it does not, every message counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from blindbayes.agent.store.folder import SiteFolder
from blindbayes.protocols import registry
from blindbayes.protocols.secure_sum.graph import unpack_bits
from blindbayes.protocols.secure_sum.messages import SurvivorsNamed
from blindbayes.study.file import StudyFile

LEFT, CONFIRMED = "vector left", "survivors confirmed"


@runtime_checkable
class ByName(Protocol):
    """A message that lists the survivors by name."""

    @property
    def names(self) -> tuple[str, ...]: ...


def names_of(protocol: str) -> dict[str, str]:
    """Return the messages at the commit points of a protocol, by name."""
    messages = registry.spec(protocol).get("commit_points", {}) if protocol in registry.known() else {}
    return {name: str(kind) for name, kind in messages.items()}


class CommitPoints:
    """The commit points of one contributor's role, each written to the log once per run."""

    def __init__(self, home: SiteFolder, study: StudyFile, run_id: str) -> None:
        self._home, self._study, self._run_id = home, study, run_id
        self._kinds = names_of(study.protocol)
        self.survivors: tuple[str, ...] | None = None  # by name, once they are named
        self._known = {entry["event"] for entry in home.history.entries_of(run_id)}

    def before_send(self, kinds: Sequence[str]) -> None:
        if LEFT not in self._known and self._kinds.get("vector", kinds[0]) in kinds:
            self._write(LEFT)
        if CONFIRMED not in self._known and self.survivors is not None and self._kinds.get("confirmed") in kinds:
            self._write(CONFIRMED, included=[self._study.party(name).identity for name in self.survivors])

    def on_message(self, message: object) -> None:
        if type(message).__name__ == self._kinds.get("survivors"):
            self.survivors = self._named(message)

    def _named(self, message: object) -> tuple[str, ...]:
        contributors = self._study.setting.contributors
        if isinstance(message, ByName):
            return tuple(name for name in message.names if name in contributors)
        flags = unpack_bits(message.survivors, len(contributors)) if isinstance(message, SurvivorsNamed) else None
        return () if flags is None else tuple(name for name, is_in in zip(contributors, flags, strict=True) if is_in)

    def _write(self, event: str, **facts: list[str]) -> None:
        self._home.audit.append(event, run=self._run_id, study=self._study.sha256, **facts)
        self._known.add(event)
