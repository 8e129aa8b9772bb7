"""Messages of the chain. Byte strings are concatenations of fixed-size parts, so that thousands of keys stay cheap."""

from __future__ import annotations

from blindbayes.wire import EncryptedMessage, KeyMessage


class KeyAnnounced(KeyMessage, frozen=True):
    """A contributor's X25519 key for this run, signed by its identity."""

    key: bytes
    signature: bytes


class RosterListed(KeyMessage, frozen=True):
    """The builder's Paillier modulus and run key, a digest of all run keys, and the run keys that the receiver uses."""

    modulus: bytes  # big-endian
    builder_key: bytes
    keys_digest: bytes
    keys: bytes  # 32 bytes each, of the receiver's `Plan.peers`
    signatures: bytes  # 64 bytes each, of the receiver's `Plan.checked`
    signature: bytes  # the builder's, of the digest of the first three


class RandomisersDealt(EncryptedMessage, frozen=True):
    """Fresh encryptions of zero, one per chunk, sealed to the receiver."""

    sealed: bytes


class LinkSent(EncryptedMessage, frozen=True):
    """The running sum under the builder's key, sealed to the next hop and signed by the last one."""

    sealed: bytes
    signature: bytes
