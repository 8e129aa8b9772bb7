"""Authenticated encryption: AES-256-GCM with 96-bit nonces, over `cryptography`.

A (key, nonce) pair encrypts once. The protocols here derive a fresh key per direction and message slot and then use
nonce 0; whoever keeps a key for a stream of messages passes its own counter.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from blindbayes.errors import IntegrityError
from blindbayes.primitives.prg import require_key

TAG_BYTES = 16
_NONCE_BYTES = 12


def seal(key: bytes, plaintext: bytes | memoryview, *, associated: bytes, nonce: int = 0) -> bytes:
    """Ciphertext and tag of `plaintext`, bound to `associated`."""
    require_key(key)
    return AESGCM(key).encrypt(nonce.to_bytes(_NONCE_BYTES, "big"), plaintext, associated)


def unseal(key: bytes, sealed: bytes | memoryview, *, associated: bytes, nonce: int = 0, party: str | None = None) -> bytes:
    """The plaintext; raises `IntegrityError` naming `party` if anything was altered."""
    require_key(key)
    try:
        return AESGCM(key).decrypt(nonce.to_bytes(_NONCE_BYTES, "big"), sealed, associated)
    except (InvalidTag, ValueError) as cause:
        raise IntegrityError(party=party) from cause
