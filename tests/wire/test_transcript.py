"""Entries of a transcript show no bytes of a message."""

from __future__ import annotations

from blindbayes.wire import Message, Trust
from blindbayes.wire.transcript import SentMessage


class OwnSent(Message, frozen=True):
    trust = Trust.SHARE


def test_an_entry_names_its_trust_and_shows_no_frame() -> None:
    entry = SentMessage(0, "alice", "bob", OwnSent, depth=1, size=6, frame=b"CANARY")
    assert entry.trust is Trust.SHARE
    assert "CANARY" not in repr(entry)
