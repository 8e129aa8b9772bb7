"""Messages of the chain. Byte strings are concatenations of fixed-size parts, so that thousands of keys stay cheap."""

from __future__ import annotations

from typing import ClassVar

from blindbayes.wire import Message, Trust


class KeyAnnounced(Message, frozen=True):
    """A contributor's X25519 key for this run, signed by its identity."""

    trust: ClassVar[Trust] = Trust.KEY
    key: bytes
    signature: bytes


class RosterListed(Message, frozen=True):
    """The builder's Paillier modulus and run key, a digest of all run keys, and the run keys that the receiver uses."""

    trust: ClassVar[Trust] = Trust.KEY
    modulus: bytes  # big-endian
    builder_key: bytes
    keys_digest: bytes
    keys: bytes  # 32 bytes each, of the receiver's `Plan.peers`
    signatures: bytes  # 64 bytes each, of the receiver's `Plan.checked`
    signature: bytes  # the builder's, of the digest of the first three


class RandomisersDealt(Message, frozen=True):
    """Fresh encryptions of zero, one per chunk, sealed to the receiver."""

    trust: ClassVar[Trust] = Trust.ENCRYPTED
    sealed: bytes


class LinkSent(Message, frozen=True):
    """The running sum under the builder's key, sealed to the next hop and signed by the last one."""

    trust: ClassVar[Trust] = Trust.ENCRYPTED
    sealed: bytes
    signature: bytes
