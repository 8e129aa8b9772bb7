"""Two moments of a sum that decide what an aborted run can have opened.

The first message that depends on this site's vector leaves: before that the run opened nothing of it. Then the set of survivors
is confirmed: from then on it is that set, or nothing. Both stand in the audit log before the message can leave; the journal
holds the messages that led there. Which messages these are stands under `[moments]` in the protocol's SPEC.md; of a protocol
that does not say so, every message counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blindbayes.agent.store.folder import SiteFolder
from blindbayes.protocols import registry
from blindbayes.protocols.secure_sum.graph import unpack_bits
from blindbayes.study.file import StudyFile
from blindbayes.wire import Message

LEFT, CONFIRMED = "vector left", "survivors confirmed"


def names_of(protocol: str) -> dict[str, str]:
    """The messages of the moments, by name."""
    found = registry.spec(protocol).get("moments", {}) if protocol in registry.known() else {}
    return {name: str(kind) for name, kind in found.items()}


class CommitPoints:
    """Writes the moments of one contributor's role down, once per run."""

    def __init__(self, home: SiteFolder, study: StudyFile, run_id: str) -> None:
        self._home, self._study, self._run_id = home, study, run_id
        self._kinds = names_of(study.protocol)
        self.survivors: tuple[str, ...] | None = None  # by name, once they are named
        self._known = {entry["event"] for entry in home.history.entries_of(run_id)}

    def before_send(self, kinds: Sequence[str]) -> None:
        """Messages of these kinds are about to leave."""
        if LEFT not in self._known and self._kinds.get("vector", kinds[0]) in kinds:
            self._write(LEFT)
        if CONFIRMED not in self._known and self.survivors is not None and self._kinds.get("confirmed") in kinds:
            self._write(CONFIRMED, included=[self._study.party(name).identity for name in self.survivors])

    def on_message(self, message: Message) -> None:
        """A message arrived; it may name the survivors."""
        if type(message).__name__ == self._kinds.get("survivors"):
            self.survivors = self._named(message)

    def _named(self, message: Any) -> tuple[str, ...]:
        contributors = self._study.setting.contributors
        if hasattr(message, "names"):
            return tuple(name for name in message.names if name in contributors)
        flags = unpack_bits(message.survivors, len(contributors))
        return () if flags is None else tuple(name for name, is_in in zip(contributors, flags, strict=True) if is_in)

    def _write(self, event: str, **facts: list[str]) -> None:
        self._home.audit.append(event, run=self._run_id, study=self._study.sha256, **facts)
        self._known.add(event)
