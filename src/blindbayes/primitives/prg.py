"""Keys and masks: a keyed derivation (BLAKE2b) and a stream of 64-bit words (AES-256 in counter mode).

Every key here is a full 256-bit secret. A shorter one is refused: a mask whose key can be searched is no mask.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

KEY_BYTES = 32
U64Array = npt.NDArray[np.uint64]


def require_key(key: bytes) -> None:
    """Raise unless `key` has the full 32 bytes."""
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes")


def derive_key(secret: bytes, purpose: str, context: bytes = b"") -> bytes:
    """A 32-byte key for one purpose and context. The secret is a uniform 32-byte key.

    BLAKE2b in keyed mode is a pseudo-random function; the length prefix keeps (purpose, context) unambiguous.
    """
    require_key(secret)
    name = purpose.encode()
    return hashlib.blake2b(len(name).to_bytes(2, "big") + name + context, key=secret, digest_size=KEY_BYTES).digest()


def expand_bytes(key: bytes, size: int) -> bytes:
    """The first `size` bytes of the key's stream. One key serves one purpose: derive another for another."""
    require_key(key)
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(size))


def expand(key: bytes, count: int) -> U64Array:
    """The first `count` words of the key's stream: a mask for a vector modulo 2^64."""
    return np.frombuffer(expand_bytes(key, 8 * count), dtype="<u8").astype(np.uint64, copy=False)


def add_masks(vector: U64Array, plus: list[bytes], minus: list[bytes]) -> U64Array:
    """`vector` + the masks of the keys in `plus` - those in `minus`, modulo 2^64, as a new array."""
    total = vector.astype(np.uint64, copy=True)
    for key in plus:
        total += expand(key, len(total))
    for key in minus:
        total -= expand(key, len(total))
    return total
