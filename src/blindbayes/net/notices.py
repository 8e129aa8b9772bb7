"""Sealed notices between two sites, outside runs: invitations to studies, and decisions about them.

A notice is one frame. It is encrypted to the hybrid key of the receiver's pinned card by a fresh key of the sender, and signed
by the sender's identity together with both names, so that neither a relay nor a third site can read, alter or redirect it.
Nothing here stops a repetition: the content of every notice is harmless when it arrives twice, or late.

Sans I/O: `router` brings notices, the agent decides what they mean.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from blindbayes.crypto.aead import TAG_BYTES, seal, unseal
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.hybrid import OPENING_BYTES, seal_to
from blindbayes.crypto.prg import derive_key
from blindbayes.crypto.signatures import SIGNATURE_BYTES, verify
from blindbayes.errors import ConfigError, IntegrityError, PeerProtocolError
from blindbayes.io import typed
from blindbayes.net.envelope import PART_BYTES, Notice, pack_notice
from blindbayes.net.identity import Card, Identity, framed
from blindbayes.wire import MALFORMED

MAX_INVITATION_BYTES = PART_BYTES - OPENING_BYTES - SIGNATURE_BYTES - TAG_BYTES - 64
MAX_REASON = 300

State = Literal["waiting", "approved", "used up", "refused", "revoked"]


class Invitation(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """The text of a study file, for the receiver's staff to read."""

    text: str


class Standing(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    """The sender's own decision about a study. `number` counts its decisions about this study."""

    study: str
    roster: str
    state: State
    reason: str
    number: int


class Heard(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=3):
    """The acknowledgement of a `Standing`, or, with -1, of an invitation."""

    study: str
    number: int


Content = Invitation | Standing | Heard
_DECODER = typed.decoder(Content)


def _head(sender: str, receiver: str, opening: bytes, identities: tuple[bytes, bytes]) -> bytes:
    return framed(b"blindbayes notice v1", sender.encode(), receiver.encode(), opening, *identities)


def seal_notice(identity: Identity, card: Card, content: Content, coins: Coins) -> bytes:
    """Return the frame of a notice to the site of `card`. Raise `ConfigError` if the content is too long for one frame."""
    raw = msgspec.msgpack.encode(content)
    if len(raw) > MAX_INVITATION_BYTES + 64:
        raise ConfigError(f"a notice has at most {MAX_INVITATION_BYTES // 1024:,} kB")
    secret, opening = seal_to(card.agreement, coins, party=card.name)
    head = _head(identity.name, card.name, opening, (identity.card.identity, card.identity))
    sealing = derive_key(secret, "notice", head)
    signature = identity.signing.sign(framed(head, raw))
    return pack_notice(identity.name, card.name, opening, seal(sealing, signature + raw, associated=head))


def open_notice(identity: Identity, card: Card, notice: Notice) -> Content:
    """Return the content of a notice of the site of `card`.

    Raises `IntegrityError` unless that site's identity signed it for this site, and `PeerProtocolError` if it is malformed.
    """
    if (notice.sender, notice.receiver) != (card.name, identity.name):
        raise IntegrityError(party=card.name)
    head = _head(card.name, identity.name, notice.opening, (card.identity, identity.card.identity))
    sealing = derive_key(identity.agreement.open(notice.opening, party=card.name), "notice", head)
    opened = unseal(sealing, notice.body, associated=head, party=card.name)
    raw = opened[SIGNATURE_BYTES:]
    verify(card.identity, framed(head, raw), opened[:SIGNATURE_BYTES], party=card.name)
    try:
        content: Content = _DECODER.decode(raw)
    except MALFORMED as cause:
        raise PeerProtocolError("a notice is not well formed", party=card.name) from cause
    if isinstance(content, Standing) and (len(content.reason) > MAX_REASON or not 0 <= content.number < 1 << 53):
        raise PeerProtocolError("a notice is not well formed", party=card.name)
    return content
