"""The prime-order group ristretto255 (RFC 9496), thin over libsodium.

Points are 32 canonical bytes. A point that came from another party goes through `require_point` before anything is computed
with it: bytes that encode no point, and the identity, are refused.
"""

from __future__ import annotations

import hashlib

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.sodium import rbcl
from blindbayes.errors import LocalProtocolError, PeerProtocolError

POINT_BYTES = 32
IDENTITY = bytes(POINT_BYTES)


def require_point(encoded: bytes, party: str | None = None) -> bytes:
    """The point itself, or `PeerProtocolError` naming `party` if the bytes are no valid point or the identity."""
    if len(encoded) != POINT_BYTES or encoded == IDENTITY or not rbcl.crypto_core_ristretto255_is_valid_point(encoded):
        raise PeerProtocolError("a group element is not valid", party=party)
    return encoded


def random_scalar(coins: Coins) -> bytes:
    """A uniform non-zero scalar (512 bits reduced: the bias is below 2^-250)."""
    while True:
        scalar = bytes(rbcl.crypto_core_ristretto255_scalar_reduce(coins.bytes(64)))
        if any(scalar):
            return scalar


def random_point(coins: Coins) -> bytes:
    """A uniform point of unknown discrete logarithm."""
    return bytes(rbcl.crypto_core_ristretto255_from_hash(coins.bytes(64)))


def hash_to_point(data: bytes) -> bytes:
    """A point that nobody knows the discrete logarithm of: SHA-512, then the ristretto map twice."""
    return bytes(rbcl.crypto_core_ristretto255_from_hash(hashlib.sha512(data).digest()))


def base_multiply(scalar: bytes) -> bytes:
    """scalar * generator."""
    return bytes(rbcl.crypto_scalarmult_ristretto255_base(scalar))


def multiply(scalar: bytes, point: bytes) -> bytes:
    """scalar * point; both non-zero, so the result is not the identity."""
    try:
        return bytes(rbcl.crypto_scalarmult_ristretto255(scalar, point))
    except (RuntimeError, ValueError, TypeError) as cause:
        raise LocalProtocolError("a group operation failed; was the point checked?") from cause


def add(left: bytes, right: bytes) -> bytes:
    """left + right."""
    return bytes(rbcl.crypto_core_ristretto255_add(left, right))


def subtract(left: bytes, right: bytes) -> bytes:
    """left - right."""
    return bytes(rbcl.crypto_core_ristretto255_sub(left, right))
