"""Key derivation (BLAKE2b) and masks of 64-bit words (AES-256 in counter mode).

Every key is a full 256-bit secret; shorter ones, which could be searched, are refused.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.kbkdf import KBKDFCMAC, CounterLocation, Mode

from blindbayes.crypto import kernels

KEY_BYTES = 32
_SHORT = 1 << 16  # bytes of a stream up to which setting up a cipher dominates the cost
U64Array = npt.NDArray[np.uint64]


def require_key(key: bytes) -> None:
    """Raise unless `key` has the full 32 bytes."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key must have {KEY_BYTES} bytes")


def require_keys(keys: bytes, count: int) -> None:
    """Raise unless `keys` are `count` concatenated keys."""
    if len(keys) != count * KEY_BYTES:
        raise ValueError(f"{count} keys must have {count * KEY_BYTES} bytes")


def keys_of(joined: bytes) -> list[bytes]:
    return [joined[start : start + KEY_BYTES] for start in range(0, len(joined), KEY_BYTES)]


def derive_key(secret: bytes, purpose: str, context: bytes = b"") -> bytes:
    """Derive a 32-byte key for one purpose and context from a uniform 32-byte key.

    Keyed BLAKE2b is a pseudo-random function; the length prefix makes (purpose, context) unambiguous.
    """
    require_key(secret)
    name = purpose.encode()
    return hashlib.blake2b(len(name).to_bytes(2, "big") + name + context, key=secret, digest_size=KEY_BYTES).digest()


def derive_many(keys: bytes, purpose: str, count: int, context: bytes = b"") -> list[bytes]:
    """Derive `count` keys from each of several concatenated keys: all first ones, all second ones, ...

    NIST SP 800-108 in counter mode with CMAC of AES-256, which is much faster for many keys with kernels.
    """
    require_keys(keys, len(keys) // KEY_BYTES)
    width, label, engine = count * KEY_BYTES, purpose.encode(), kernels.active()
    if engine is not None:
        text = label + b"\0" + context + (8 * width).to_bytes(4, "big")
        derived = engine.derive(keys, text, width // 16)
    else:
        each = [_kdf(width, label, context).derive(key) for key in keys_of(keys)]
        derived = np.frombuffer(b"".join(each), np.uint8).reshape(-1, width)
    return [derived[:, start : start + KEY_BYTES].tobytes() for start in range(0, width, KEY_BYTES)]


def _kdf(size: int, label: bytes, context: bytes) -> KBKDFCMAC:
    return KBKDFCMAC(algorithms.AES, Mode.CounterMode, size, 4, 4, CounterLocation.BeforeFixed, label, context, None)


def expand_bytes(key: bytes, size: int) -> bytes:
    """Return the first `size` bytes of a key's stream. Use a key for one purpose only."""
    require_key(key)
    engine = kernels.active()
    if engine is not None and 0 < size <= _SHORT:
        words = np.zeros(-(-size // 8), np.uint64)
        engine.masks(words, key, b"")
        return words.tobytes()[:size]
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(size))


def expand(key: bytes, count: int) -> U64Array:
    """Return the first `count` words of a key's stream: a mask for a vector modulo 2^64."""
    return np.frombuffer(expand_bytes(key, 8 * count), dtype="<u8").astype(np.uint64, copy=False)


def add_masks(vector: U64Array, plus: bytes, minus: bytes) -> U64Array:
    """Return `vector` plus the masks of the concatenated keys in `plus` minus those in `minus`, modulo 2^64."""
    for keys in (plus, minus):
        require_keys(keys, len(keys) // KEY_BYTES)
    total = vector.astype(np.uint64, copy=True)
    engine = kernels.active()
    if engine is not None:
        engine.masks(total, plus, minus)
        return total
    for key in keys_of(plus):
        total += expand(key, len(total))
    for key in keys_of(minus):
        total -= expand(key, len(total))
    return total


def tags_of(key: bytes, numbers: U64Array, values: U64Array) -> U64Array:
    """Return a pseudo-random tag for each pair of a number and a value: the first word of AES-256 of the two as one block."""
    require_key(key)
    blocks = np.stack([numbers, values], axis=1).astype("<u8", copy=False)
    encrypted = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(blocks.tobytes())  # noqa: S305 - distinct blocks
    return np.ascontiguousarray(np.frombuffer(encrypted, dtype="<u8").astype(np.uint64, copy=False)[::2])
