"""Keys and masks: a keyed derivation (BLAKE2b) and a stream of 64-bit words (AES-256 in counter mode).

Every key here is a full 256-bit secret. A shorter one is refused: a mask whose key can be searched is no mask.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.kbkdf import KBKDFCMAC, CounterLocation, Mode

from blindbayes.crypto import kernels

KEY_BYTES = 32
_SHORT = 1 << 16  # bytes of a stream up to which making a cipher costs more than what it does
U64Array = npt.NDArray[np.uint64]


def require_key(key: bytes) -> None:
    """Raise unless `key` has the full 32 bytes."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes")


def require_keys(keys: bytes, count: int) -> None:
    """Raise unless `keys` are so many whole keys, one after the other."""
    if len(keys) != count * KEY_BYTES:
        raise ValueError(f"{count} keys have {count * KEY_BYTES} bytes")


def keys_of(joined: bytes) -> list[bytes]:
    """Keys that stand one after the other."""
    return [joined[at : at + KEY_BYTES] for at in range(0, len(joined), KEY_BYTES)]


def derive_key(secret: bytes, purpose: str, context: bytes = b"") -> bytes:
    """A 32-byte key for one purpose and context. The secret is a uniform 32-byte key.

    BLAKE2b in keyed mode is a pseudo-random function; the length prefix keeps (purpose, context) unambiguous.
    """
    require_key(secret)
    name = purpose.encode()
    return hashlib.blake2b(len(name).to_bytes(2, "big") + name + context, key=secret, digest_size=KEY_BYTES).digest()


def derive_many(keys: bytes, purpose: str, count: int, context: bytes = b"") -> list[bytes]:
    """`count` further keys from each of the keys that stand one after the other: all the first ones, all the second, ...

    NIST SP 800-108 in counter mode with CMAC of AES-256: much the faster where there are many keys, and kernels.
    """
    require_keys(keys, len(keys) // KEY_BYTES)
    width, label, found = count * KEY_BYTES, purpose.encode(), kernels.active()
    if found is not None:
        text = label + b"\0" + context + (8 * width).to_bytes(4, "big")
        drawn = found.derive(keys, text, width // 16)
    else:
        each = [_kdf(width, label, context).derive(key) for key in keys_of(keys)]
        drawn = np.frombuffer(b"".join(each), np.uint8).reshape(-1, width)
    return [drawn[:, at : at + KEY_BYTES].tobytes() for at in range(0, width, KEY_BYTES)]


def _kdf(size: int, label: bytes, context: bytes) -> KBKDFCMAC:
    return KBKDFCMAC(algorithms.AES, Mode.CounterMode, size, 4, 4, CounterLocation.BeforeFixed, label, context, None)


def expand_bytes(key: bytes, size: int) -> bytes:
    """The first `size` bytes of the key's stream. One key serves one purpose: derive another for another."""
    require_key(key)
    found = kernels.active()
    if found is not None and 0 < size <= _SHORT:
        words = np.zeros(-(-size // 8), np.uint64)
        found.masks(words, key, b"")
        return words.tobytes()[:size]
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(size))


def expand(key: bytes, count: int) -> U64Array:
    """The first `count` words of the key's stream: a mask for a vector modulo 2^64."""
    return np.frombuffer(expand_bytes(key, 8 * count), dtype="<u8").astype(np.uint64, copy=False)


def add_masks(vector: U64Array, plus: bytes, minus: bytes) -> U64Array:
    """`vector` + the masks of the keys in `plus`, one after the other, - those in `minus`, modulo 2^64, as a new array."""
    for keys in (plus, minus):
        require_keys(keys, len(keys) // KEY_BYTES)
    total = vector.astype(np.uint64, copy=True)
    found = kernels.active()
    if found is not None:
        found.masks(total, plus, minus)
        return total
    for key in keys_of(plus):
        total += expand(key, len(total))
    for key in keys_of(minus):
        total -= expand(key, len(total))
    return total
