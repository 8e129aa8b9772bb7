"""Authenticated encryption: AES-256-GCM with 96-bit nonces, over `cryptography`.

A (key, nonce) pair encrypts once. Protocols derive a fresh key per direction and message slot and use nonce 0; callers that
use one key for a stream of messages pass a counter.
"""

from __future__ import annotations

import hmac

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from blindbayes.crypto import kernels
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.prg import keys_of, require_key, require_keys
from blindbayes.errors import IntegrityError

TAG_BYTES = 16
_NONCE_BYTES = 12
Bytes = npt.NDArray[np.uint8]


def seal(key: bytes, plaintext: bytes | memoryview, *, associated: bytes | memoryview, nonce: int = 0) -> bytes:
    """Return ciphertext and tag of `plaintext`, bound to `associated`."""
    require_key(key)
    return AESGCM(key).encrypt(nonce.to_bytes(_NONCE_BYTES, "big"), plaintext, associated)


def unseal(
    key: bytes, sealed: bytes | memoryview, *, associated: bytes | memoryview, nonce: int = 0, party: str | None = None
) -> bytes:
    """Return the plaintext, or raise `IntegrityError` naming `party` if anything was altered."""
    require_key(key)
    try:
        return AESGCM(key).decrypt(nonce.to_bytes(_NONCE_BYTES, "big"), sealed, associated)
    except (InvalidTag, ValueError) as cause:
        raise IntegrityError(party=party) from cause


def seal_into(
    key: bytes, plaintext: bytes | memoryview, buffer: memoryview, *, associated: bytes | memoryview, nonce: int = 0
) -> None:
    """Seal into `buffer`, which has the length of text and tag."""
    require_key(key)
    cipher, place = AESGCM(key), nonce.to_bytes(_NONCE_BYTES, "big")
    if hasattr(cipher, "encrypt_into"):
        cipher.encrypt_into(place, plaintext, associated, buffer)
    else:  # older releases of the library cannot
        buffer[:] = cipher.encrypt(place, plaintext, associated)


def seal_fresh(key: bytes, plaintext: bytes, *, associated: bytes) -> bytes:
    """Seal with a random nonce, which is prepended: for repeated use of one key, such as files."""
    nonce = Coins.system().bits(8 * _NONCE_BYTES)
    return nonce.to_bytes(_NONCE_BYTES, "big") + seal(key, plaintext, associated=associated, nonce=nonce)


def unseal_fresh(key: bytes, sealed: bytes, *, associated: bytes) -> bytes:
    """Open what `seal_fresh` sealed, or raise `IntegrityError`."""
    nonce = int.from_bytes(sealed[:_NONCE_BYTES], "big")
    return unseal(key, sealed[_NONCE_BYTES:], associated=associated, nonce=nonce)


def seal_many(keys: bytes, texts: Bytes, *, associated: bytes, nonce: int = 0) -> Bytes:
    """Seal (n, width) texts, each under its own of n concatenated keys: (n, width + 16)."""
    require_keys(keys, len(texts))
    engine = kernels.active()
    if engine is not None:
        return engine.gcm(keys, texts, texts.shape[1], nonce.to_bytes(_NONCE_BYTES, "big"), associated, opens=False)
    pairs = zip(keys_of(keys), texts, strict=True)
    sealed = [seal(key, text.tobytes(), associated=associated, nonce=nonce) for key, text in pairs]
    return np.frombuffer(b"".join(sealed), np.uint8).reshape(len(texts), -1)


def differs(tags: Bytes, given: Bytes) -> int | None:
    """Return the first row that differs, comparing each row in constant time, or None."""
    if hmac.compare_digest(tags.tobytes(), given.tobytes()):
        return None
    return int(np.argmax((tags ^ given).any(axis=1)))


def unseal_many(keys: bytes, sealed: Bytes, *, associated: bytes, nonce: int = 0) -> tuple[Bytes, int | None]:
    """Return the texts, and the index of the first altered one or None; if any was altered, none may be used."""
    require_keys(keys, len(sealed))
    width, engine = sealed.shape[1] - TAG_BYTES, kernels.active()
    if engine is not None:
        texts = engine.gcm(keys, sealed, width, nonce.to_bytes(_NONCE_BYTES, "big"), associated, opens=True)
        return texts[:, :width], differs(texts[:, width:], sealed[:, width:])
    opened = np.zeros((len(sealed), width), np.uint8)
    for i, (key, box) in enumerate(zip(keys_of(keys), sealed, strict=True)):
        try:
            text = unseal(key, box.tobytes(), associated=associated, nonce=nonce)
        except IntegrityError:
            return opened, i
        opened[i] = np.frombuffer(text, np.uint8)
    return opened, None
