"""The control frames that a link sends for itself."""

from __future__ import annotations

import msgspec

from blindbayes.errors import PeerProtocolError
from blindbayes.io import typed
from blindbayes.net.envelope import Session
from blindbayes.net.versions import are_versions
from blindbayes.wire import MALFORMED

CONFIRM, ACK, AGAIN, BEAT, ABORT, READY = "confirm", "ack", "again", "beat", "abort", "ready"
CONTROL = frozenset((CONFIRM, ACK, AGAIN, BEAT, ABORT, READY))
_MAX_HEADS_BYTES = 512
_MAX_SEEN_BYTES = 2048


class Confirm(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The first sealed frame of a session."""

    proof: bytes
    have: int  # messages of yours that I have on disk
    digest: bytes  # their running digest
    acked: int  # messages of mine that you acknowledged
    heads: bytes  # of my audit log and ledger, for you to store
    seen: bytes = b""  # what you last showed me of yours, with your signature: you must still have it
    versions: dict[str, str] = {}


_CONFIRM = typed.decoder(Confirm)


def read_confirm(session: Session, body: bytes) -> Confirm:
    """Decode a confirmation, if the peer's identity signed it."""
    try:
        confirm: Confirm = _CONFIRM.decode(body)
    except MALFORMED as cause:
        raise PeerProtocolError("a session is not well formed", party=session.pair.peer) from cause
    session.require_proof(confirm.proof, confirm.heads)
    return confirm


def require_short(confirm: Confirm, peer: str) -> None:
    """Raise if a joining peer sends longer heads or versions than there can be."""
    long = len(confirm.seen) > _MAX_SEEN_BYTES or len(confirm.heads) > _MAX_HEADS_BYTES
    if long or not are_versions(confirm.versions):
        raise PeerProtocolError("sent heads of logs or versions that are too long", party=peer)


class Beat(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The heartbeat of a quiet link. It repeats what lost frames may have said."""

    waits: bool  # for others
    ready: bool
    sent: int  # messages, whole
    have: int  # messages of yours, on disk
    number: int  # of this beat
    echo: int  # the number of your last one that came


BEATS = typed.decoder(Beat)
PAIRS = typed.decoder(tuple[int, int])  # an abort, or what is asked for again
