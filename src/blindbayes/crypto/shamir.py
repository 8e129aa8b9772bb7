"""Shamir's threshold sharing of byte strings, in batches.

A secret is cut into limbs of 15 bits and each limb is shared with its own random polynomial of degree `threshold - 1`
over the prime field of 65,521 elements. Fewer than `threshold` shares are uniform and independent of the secret, whatever
the number of limbs. The field is small so that a share is one 16-bit word per limb and so that products of whole
matrices are exact in double precision (a sum of t products stays below t * 2^32 < 2^53), which makes sharing and
recovery a matrix product.

Points are 1 .. 65,520, so that is the largest number of share holders.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from blindbayes.crypto import kernels
from blindbayes.crypto.coins import Coins
from blindbayes.errors import IntegrityError

PRIME = 65_521
LIMB_BITS = 15
MAX_POINT = PRIME - 1
_LIMB = (1 << LIMB_BITS) - 1
Shares = npt.NDArray[np.uint16]
Ints = npt.NDArray[np.int64]


def limb_count(size: int) -> int:
    """How many limbs (16-bit words of a share) a secret of `size` bytes has."""
    return -(-8 * size // LIMB_BITS)


def _to_limbs(secret: bytes) -> list[int]:
    value = int.from_bytes(secret, "little")
    return [value >> at & _LIMB for at in range(0, limb_count(len(secret)) * LIMB_BITS, LIMB_BITS)]


def _from_limbs(limbs: Ints, size: int) -> bytes:
    """Raises `IntegrityError` where the limbs are no secret of `size` bytes: wrong shares, most likely."""
    found: list[int] = limbs.tolist()
    value = sum(limb << LIMB_BITS * at for at, limb in enumerate(found))
    if max(found) > _LIMB or value >> 8 * size:
        raise IntegrityError
    return value.to_bytes(size, "little")


def uniform(count: int, coins: Coins) -> Ints:
    """`count` uniform elements of the field, by rejection."""
    found = np.empty(0, np.uint16)
    while len(found) < count:
        draws = np.frombuffer(coins.bytes(2 * (count - len(found)) + 8), dtype="<u2")
        kept = draws if draws.max() < PRIME else draws[draws < PRIME]
        found = np.concatenate([found, kept]) if len(found) else kept
    return found[:count].astype(np.int64)


def _require_points(points: Sequence[int]) -> Ints:
    at = np.asarray(points, np.int64)
    if at.size and (at.min() < 1 or at.max() > MAX_POINT or len(np.unique(at)) != len(at)):
        raise ValueError(f"share points are distinct integers from 1 to {MAX_POINT}")
    return at


def split(secret: bytes, points: Sequence[int], threshold: int, coins: Coins) -> Shares:
    """One row of 16-bit words per point; any `threshold` rows give the secret, fewer say nothing about it."""
    return split_many([secret], points, threshold, coins)[:, 0]


def split_many(secrets: Sequence[bytes], points: Sequence[int], threshold: int, coins: Coins) -> Shares:
    """Several secrets of one size at once, each with its own polynomials: shares by point, secret and limb."""
    powers, kernel = _powers(tuple(points), threshold), kernels.active()
    if kernel is not None and threshold > 1:
        shares = np.empty((len(powers), len(secrets), limb_count(len(secrets[0]))), np.uint16)
        missing, drawn = (threshold - 1) * shares[0].size, b""
        while missing:  # as `uniform` draws
            drawn += coins.bytes(2 * missing + 8)
            missing = kernel.shares(powers, b"".join(secrets), drawn, shares)
        return shares
    limbs = [limb for secret in secrets for limb in _to_limbs(secret)]
    coefficients = np.empty((threshold, len(limbs)))
    coefficients[0] = limbs
    coefficients[1:] = uniform((threshold - 1) * len(limbs), coins).reshape(threshold - 1, len(limbs))
    values: npt.NDArray[np.float64] = (
        powers @ coefficients
    )  # below 2^48, so that no quotient by the prime is rounded up to a whole number
    values -= PRIME * np.floor(values / PRIME)
    return values.astype(np.uint16).reshape(len(powers), len(secrets), -1)


@lru_cache(maxsize=64)
def _powers(points: tuple[int, ...], threshold: int) -> npt.NDArray[np.float64]:
    """The powers of each point from 0 to `threshold` - 1; a study has the same points in all of its runs."""
    at = _require_points(points)
    if not 1 <= threshold <= len(at):
        raise ValueError("a threshold lies between 1 and the number of share holders")
    found = np.ones((len(at), threshold), np.int64)
    have = 1
    while have < threshold:  # twice as many at each turn
        more = min(have, threshold - have)
        found[:, have : have + more] = found[:, :more] * (found[:, have - 1] * at % PRIME)[:, None] % PRIME
        have += more
    return found.astype(np.float64)


def _inverse(values: Ints) -> Ints:
    """Fermat's inverse, element by element."""
    result, base, exponent = np.ones_like(values), values % PRIME, PRIME - 2
    while exponent:
        if exponent & 1:
            result = result * base % PRIME
        base = base * base % PRIME
        exponent >>= 1
    return result


def lagrange(points: Sequence[int]) -> Ints:
    """The weights that turn shares at `points` into the secret; the same for all secrets shared at these points."""
    at = _require_points(points)
    above, below = np.ones(len(at), np.int64), np.ones(len(at), np.int64)
    for index, point in enumerate(at):
        factor = np.full(len(at), point, np.int64)
        factor[index] = 1
        above = above * factor % PRIME
        gap = (point - at) % PRIME
        gap[index] = 1
        below = below * gap % PRIME
    return above * _inverse(below) % PRIME


def combine(weights: Ints, shares: npt.NDArray[np.integer], size: int) -> bytes:
    """The secret of `size` bytes from one row of shares per weight. Raises `IntegrityError` if no such secret exists.

    A wrong share is noticed here only by luck: compare the result with a public key or a commitment.
    """
    if shares.shape != (len(weights), limb_count(size)):
        raise IntegrityError
    sums = (weights.astype(np.float64) @ (shares.astype(np.int64) % PRIME).astype(np.float64)).astype(np.int64)
    return _from_limbs(sums % PRIME, size)
