"""A fast universal hash that is linear over GF(2), for consistency checks of oblivious transfers.

`LinearHash` is GHASH, the polynomial hash over GF(2^128) inside AES-GCM, from the tag of a message without plaintext:
tag(row) ^ tag(zeros) = sum of row_i h^(blocks + 2 - i), so that H(a ^ b) = H(a) ^ H(b). Two different rows of b blocks agree
with probability at most (b + 1) / 2^128 over the key.

The key is a hash of the prover's messages (Fiat and Shamir), so a check needs no message of the verifier. A prover may try many
messages; each passes or fails as under a fresh key.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from blindbayes.crypto import kernels

Bytes = npt.NDArray[np.uint8]
HASH_BYTES = 16
MASK_BITS = 8 * HASH_BYTES
"""The number of random positions appended to what is hashed, and added to its hash, which then reveals nothing of it."""
DIGEST_BYTES = 32
_NONCE = bytes(12)


class LinearHash:
    """The hash under the key of one message."""

    def __init__(self, session: bytes, index: int, sent: Bytes) -> None:
        key = hashlib.sha256(b"blindbayes check of sent" + hashlib.sha256(session).digest() + index.to_bytes(16, "big"))
        key.update(sent.data)  # SHA-256, for which processors have instructions
        self._key = key.digest()[:16]

    def masked(self, rows: Bytes) -> Bytes:
        """Return (n, 16): the hash of each row without its last 16 bytes, which are added to it."""
        width, kernel = rows.shape[1] - HASH_BYTES, kernels.active()
        if kernel is not None:
            h = kernel.streams(kernel.schedules(self._key), 0, 16)  # encrypted zeros, as in GCM
            hashed = kernel.ghash(h.tobytes(), rows[:, :width])
            hashed ^= rows[:, width:]
            return hashed
        tag = AESGCM(self._key).encrypt
        constant = np.frombuffer(tag(_NONCE, b"", bytes(width)), dtype=np.uint8)
        tags = b"".join([tag(_NONCE, b"", row.data) for row in rows[:, :width]])
        hashes: Bytes = np.frombuffer(tags, dtype=np.uint8).reshape(-1, HASH_BYTES) ^ constant
        hashes ^= rows[:, width:]
        return hashes


def digest(rows: Bytes) -> bytes:
    """Return a digest of hashes, to compare them between two parties."""
    return hashlib.sha256(rows.tobytes()).digest()
