"""The prime-order group ristretto255 (RFC 9496), over libsodium.

Points are 32 canonical bytes. Check points of other parties by `require_point` before use: invalid encodings and the identity
are refused.
"""

from __future__ import annotations

import hashlib

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.sodium import rbcl
from blindbayes.errors import LocalProtocolError, PeerProtocolError

POINT_BYTES = 32
ORDER = 2**252 + 27742317777372353535851937790883648493
IDENTITY = bytes(POINT_BYTES)


def is_point(encoded: bytes) -> bool:
    """Return whether these are the canonical bytes of a point. libsodium up to 1.0.18 ignores the highest bit."""
    return len(encoded) == POINT_BYTES and encoded[-1] < 0x80 and bool(rbcl.crypto_core_ristretto255_is_valid_point(encoded))


def require_point(encoded: bytes, party: str | None = None) -> bytes:
    """Return the point, or raise `PeerProtocolError` naming `party` if it is invalid or the identity."""
    if encoded == IDENTITY or not is_point(encoded):
        raise PeerProtocolError("a group element is not valid", party=party)
    return encoded


def random_scalar(coins: Coins) -> bytes:
    """Draw a uniform non-zero scalar (512 bits reduced, with bias below 2^-250)."""
    while True:
        scalar = bytes(rbcl.crypto_core_ristretto255_scalar_reduce(coins.bytes(64)))
        if any(scalar):
            return scalar


def random_point(coins: Coins) -> bytes:
    """Draw a uniform point of unknown discrete logarithm."""
    return bytes(rbcl.crypto_core_ristretto255_from_hash(coins.bytes(64)))


def hash_to_point(data: bytes) -> bytes:
    """Hash to a point of unknown discrete logarithm: SHA-512, then the ristretto map twice."""
    return bytes(rbcl.crypto_core_ristretto255_from_hash(hashlib.sha512(data).digest()))


def base_multiply(scalar: bytes) -> bytes:
    """Return scalar * generator."""
    return bytes(rbcl.crypto_scalarmult_ristretto255_base(scalar))


def multiply(scalar: bytes, point: bytes) -> bytes:
    """Return scalar * point; both are non-zero, so the result is not the identity."""
    try:
        return bytes(rbcl.crypto_scalarmult_ristretto255(scalar, point))
    except (RuntimeError, ValueError, TypeError) as cause:
        raise LocalProtocolError("a group operation failed; was the point checked?") from cause


def add(left: bytes, right: bytes) -> bytes:
    return bytes(rbcl.crypto_core_ristretto255_add(left, right))


def subtract(left: bytes, right: bytes) -> bytes:
    return bytes(rbcl.crypto_core_ristretto255_sub(left, right))
