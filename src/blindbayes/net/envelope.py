"""The end-to-end envelope between two parties of a run: no courier, engine or relay is trusted for secrecy or integrity.

Each side signs a fresh hybrid key (X25519 and ML-KEM-768) together with study, run and both names (`Offer`). Two offers make a
session: one key per direction, bound to the whole exchange. The first sealed frame each way brings the encapsulated secret of
its direction and confirms the session: it carries a signature over the exchange, so that a stolen or replayed offer leads
nowhere. Every sealed frame has its slot (study, run, sender, receiver, step, index, part) as associated data and its place in
the session as nonce: it can be opened in that slot, in that order, once.

Sans I/O: this module makes and opens frames; `link` says when they are sent.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import msgspec

from blindbayes.crypto.aead import TAG_BYTES, seal, unseal
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.hybrid import HybridKey
from blindbayes.crypto.prg import derive_key
from blindbayes.crypto.signatures import SigningKey, verify
from blindbayes.errors import IntegrityError, LocalProtocolError, PeerProtocolError, PrivacyError
from blindbayes.io import typed
from blindbayes.io.untrusted import shown
from blindbayes.net.identity import framed
from blindbayes.net.versions import ENVELOPE
from blindbayes.wire import MALFORMED, MAX_FRAME_BYTES

_MAX_REASON = 300
_NOTHING = memoryview(b"")
PART_BYTES = 1024**2
MAX_PARTS = MAX_FRAME_BYTES // PART_BYTES + 1
MAX_ENVELOPE_BYTES = PART_BYTES + TAG_BYTES + 1024
CLEAR_AFTER = 4096
"""Maximum size of the unsealed part of a frame, in bytes."""


class Offer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=1):
    """A party's fresh key for one session of a run."""

    study: str
    run_id: str
    sender: str
    receiver: str
    ephemeral: bytes
    signature: bytes


class Sealed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=2):
    """One sealed frame. All but `body` is visible to a relay and authenticated."""

    run_id: str
    receiver: str
    session: bytes
    counter: int
    step: str
    index: int
    part: int
    parts: int
    encapsulated: bytes  # of the first frame of a session: the secret of its direction, for the receiver's key
    body: memoryview  # into what the courier brought

    def __repr__(self) -> str:
        return f"Sealed({self.step}, <redacted>)"


class Ended(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=3):
    """The signed statement that a run has ended at a site, with an error code or 0.

    Final, so that a repetition does no harm. The bits above the eighth are the place of the party that the error names, plus
    one.
    """

    study: str
    run_id: str
    sender: str
    receiver: str
    code: int
    signature: bytes


class Refused(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=4):
    """The signed statement that a site takes no part in the study, or in more runs of it, and why."""

    study: str
    run_id: str
    sender: str
    receiver: str
    reason: str
    signature: bytes


class Notice(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag=5):
    """A sealed notice from one site to another, outside any run (`notices`). All but `body` is visible to a relay."""

    sender: str
    receiver: str
    opening: bytes  # a fresh curve key, and the secret encapsulated to the receiver's card
    body: memoryview

    def __repr__(self) -> str:
        return f"Notice({self.sender} to {self.receiver}, <redacted>)"


Word = Ended | Refused
RunFrame = Offer | Sealed | Word
Frame = RunFrame | Notice
_DECODER = typed.decoder(Frame)


def pack(frame: Frame) -> bytes:
    """Encode a frame in which nothing is sealed."""
    raw = bytes([ENVELOPE]) + msgspec.msgpack.encode(frame)
    if len(raw) > CLEAR_AFTER:
        raise LocalProtocolError("a frame that is not sealed is too long")
    return raw


def pack_notice(sender: str, receiver: str, opening: bytes, body: bytes) -> bytes:
    return _pack_sealed(Notice(sender, receiver, opening, _NOTHING), body)


def _pack_sealed(frame: Sealed | Notice, body: bytes) -> bytes:
    """Encode like `pack`, but copy the body, which comes last, only once."""
    size = len(body)
    width = 1 if size < 1 << 8 else 2 if size < 1 << 16 else 4
    opening = msgspec.msgpack.encode(frame)[:-2]
    if len(opening) > CLEAR_AFTER - 16:
        raise LocalProtocolError("the names of a frame are too long")
    head = bytes([0xC3 + width - (width == 4)]) + size.to_bytes(width, "big")  # MessagePack's bin 8, 16 or 32
    return b"".join((bytes([ENVELOPE]), opening, head, body))


def unpack(raw: bytes | memoryview, *, sender: str | None = None) -> Frame:
    """Decode a frame. Raise `PeerProtocolError`, and nothing else, for anything malformed."""
    if len(raw) > MAX_ENVELOPE_BYTES:
        raise PeerProtocolError("an envelope is over the size limit", party=sender)
    if not raw or raw[0] != ENVELOPE:
        raise PeerProtocolError("an envelope has an unknown version", party=sender)
    try:
        frame: Frame = _DECODER.decode(memoryview(raw)[1:])
    except MALFORMED as cause:
        raise PeerProtocolError("an envelope is not well formed", party=sender) from cause
    if isinstance(frame, Sealed) and (min(frame.counter, frame.index, frame.part, frame.parts) < 0 or frame.counter >> 64):
        raise PeerProtocolError("an envelope is not well formed", party=sender)
    if len(raw) - (len(frame.body) if isinstance(frame, Sealed | Notice) else 0) > CLEAR_AFTER:  # as `pack` has it
        raise PeerProtocolError("the names of an envelope are too long", party=sender)
    return frame


@dataclass(frozen=True, slots=True)
class EnvelopePair:
    """A pair of parties in one run, seen from `me`."""

    study: str
    run_id: str
    me: str
    peer: str
    peer_identity: bytes
    signing: SigningKey = field(repr=False)

    def names(self, sender: str) -> tuple[bytes, bytes]:
        return (self.me.encode(), self.peer.encode()) if sender == self.me else (self.peer.encode(), self.me.encode())

    def _offer_bytes(self, sender: str, ephemeral: bytes) -> bytes:
        return framed(b"blindbayes offer v1", self.study.encode(), self.run_id.encode(), *self.names(sender), ephemeral)

    def offer(self, key: HybridKey) -> Offer:
        """Sign an offer of a fresh key."""
        signature = self.signing.sign(self._offer_bytes(self.me, key.public))
        return Offer(self.study, self.run_id, self.me, self.peer, key.public, signature)

    def require_offer(self, offer: Offer) -> None:
        """Raise unless the peer's identity signed this offer for this pair, study and run."""
        if (offer.study, offer.run_id, offer.sender, offer.receiver) != (self.study, self.run_id, self.peer, self.me):
            raise IntegrityError(party=self.peer)
        verify(self.peer_identity, self._offer_bytes(self.peer, offer.ephemeral), offer.signature, party=self.peer)

    def _ended_bytes(self, sender: str, code: int) -> bytes:
        run = (self.study.encode(), self.run_id.encode())
        return framed(b"blindbayes ended v1", *run, *self.names(sender), str(code).encode())

    def ended(self, code: int) -> Ended:
        signature = self.signing.sign(self._ended_bytes(self.me, code))
        return Ended(self.study, self.run_id, self.me, self.peer, code, signature)

    def _refused_bytes(self, sender: str, reason: str) -> bytes:
        run = (self.study.encode(), self.run_id.encode())
        return framed(b"blindbayes refused v1", *run, *self.names(sender), reason.encode())

    def refused(self, reason: str) -> Refused:
        signature = self.signing.sign(self._refused_bytes(self.me, reason))
        return Refused(self.study, self.run_id, self.me, self.peer, reason, signature)

    def require_word(self, word: Word) -> tuple[tuple[int, int], str]:
        """Raise unless the peer's identity signed this end or refusal of this run.

        Return the error code and the place of the party it names, or -1, and the reason of a refusal, escaped for display.
        """
        if (word.study, word.run_id, word.sender, word.receiver) != (self.study, self.run_id, self.peer, self.me):
            raise IntegrityError(party=self.peer)
        if isinstance(word, Ended):
            verify(self.peer_identity, self._ended_bytes(self.peer, word.code), word.signature, party=self.peer)
            return (word.code & 255, (word.code >> 8) - 1), ""
        verify(self.peer_identity, self._refused_bytes(self.peer, word.reason), word.signature, party=self.peer)
        return (PrivacyError.code, -1), shown(word.reason[:_MAX_REASON]) or "no reason given"

    def agree(self, key: HybridKey, offer: Offer) -> Session:
        """Check the peer's offer and make the session of both keys."""
        self.require_offer(offer)
        return Session(self, key, offer.ephemeral)


class Session:
    """The keys and counters of one session. It is unconfirmed until the peer's signature over the exchange is checked."""

    def __init__(self, pair: EnvelopePair, key: HybridKey, peer_ephemeral: bytes) -> None:
        self.pair = pair
        self.my_ephemeral = key.public
        self.peer_ephemeral = peer_ephemeral
        mine, theirs = (pair.me.encode(), key.public), (pair.peer.encode(), peer_ephemeral)
        low, high = sorted((mine, theirs))
        self.exchange = hashlib.sha256(
            framed(b"blindbayes session v1", pair.study.encode(), pair.run_id.encode(), *low, *high)
        ).digest()
        self.id = self.exchange[:8]
        secret, self._encapsulated = key.encapsulate(peer_ephemeral, party=pair.peer)
        self._send_key = derive_key(secret, "session", self.exchange + pair.me.encode())
        self._key: HybridKey | None = key  # until the peer's first frame has come
        self._receive_key = b""
        self.sent = 0
        self.received = 0
        self.confirmation = b""  # kept, and sent again byte for byte while the peer may not have it
        self.gapped = False  # frames of the peer were lost on the way

    def __repr__(self) -> str:
        return f"Session({self.pair.me} - {self.pair.peer}, <redacted>)"

    def proof(self, heads: bytes) -> bytes:
        """Sign the exchange and the heads of this site's audit log and ledger."""
        return self.pair.signing.sign(_proof_bytes(self.exchange, self.pair.me, heads))

    def require_proof(self, proof: bytes, heads: bytes) -> None:
        """Raise unless the peer's identity signed the exchange and these heads."""
        verify(self.pair.peer_identity, _proof_bytes(self.exchange, self.pair.peer, heads), proof, party=self.pair.peer)

    def _slot(self, sender: str, step: str, index: int, part: int, parts: int) -> bytes:
        pair = self.pair
        place = b"".join(number.to_bytes(8, "big") for number in (index, part, parts))
        return framed(
            b"blindbayes slot v1", pair.study.encode(), pair.run_id.encode(), *pair.names(sender), step.encode(), place
        )

    def seal(self, step: str, body: bytes | memoryview, *, index: int = 0, part: int = 0, parts: int = 1) -> bytes:
        """Return the next sealed frame to the peer."""
        slot = self._slot(self.pair.me, step, index, part, parts)
        sealed = seal(self._send_key, body, associated=slot, nonce=self.sent)
        encapsulated = b"" if self.sent else self._encapsulated
        frame = Sealed(self.pair.run_id, self.pair.peer, self.id, self.sent, step, index, part, parts, encapsulated, _NOTHING)
        self.sent += 1
        return _pack_sealed(frame, sealed)

    def open(self, frame: Sealed) -> bytes | None:
        """Return the content of a sealed frame, or None if it or a later one was opened before.

        Raise `IntegrityError` for anything altered. A counter that jumps shows that frames were lost; the link asks for their
        content.
        """
        if (frame.session, frame.receiver) != (self.id, self.pair.me):
            raise IntegrityError(party=self.pair.peer)
        if frame.counter < self.received:
            return None
        try:
            slot = self._slot(self.pair.peer, frame.step, frame.index, frame.part, frame.parts)
        except OverflowError as cause:
            raise IntegrityError(party=self.pair.peer) from cause
        key = self._receive_key
        if self._key is not None:
            secret = self._key.decapsulate(self.peer_ephemeral, frame.encapsulated, party=self.pair.peer)
            key = derive_key(secret, "session", self.exchange + self.pair.peer.encode())
        body = unseal(key, frame.body, associated=slot, nonce=frame.counter, party=self.pair.peer)
        self._key, self._receive_key = None, key
        self.gapped = self.gapped or frame.counter > self.received
        self.received = frame.counter + 1
        return body


def _proof_bytes(exchange: bytes, sender: str, heads: bytes) -> bytes:
    return framed(b"blindbayes confirm v1", exchange, sender.encode(), heads)


def require_heads_proof(identity: bytes, exchange: bytes, sender: str, heads: bytes, proof: bytes) -> None:
    """Raise unless this identity signed these heads in that exchange, as that party."""
    verify(identity, _proof_bytes(exchange, sender, heads), proof)


def fresh_key(coins: Coins) -> HybridKey:
    """Generate an ephemeral key from system coins, never from a role's: a replay must not meet an old session."""
    return HybridKey.generate(coins)
