"""Shamir's threshold sharing of byte strings, in batches.

A secret is split into limbs of 15 bits, each shared by its own random polynomial of degree `threshold - 1` over the prime field
of 65,521 elements. Fewer than `threshold` shares are uniform and independent of the secret. In this small field a share is one
16-bit word per limb, and sharing and recovery are matrix products that are exact in double precision (a sum of t products is
below t * 2^32 < 2^53). Points are 1 to 65,520, the largest number of share holders.
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
    """Return the number of limbs, 16-bit words of a share, of a secret of `size` bytes."""
    return -(-8 * size // LIMB_BITS)


def _to_limbs(secret: bytes) -> list[int]:
    value = int.from_bytes(secret, "little")
    return [value >> shift & _LIMB for shift in range(0, limb_count(len(secret)) * LIMB_BITS, LIMB_BITS)]


def _from_limbs(limbs: Ints, size: int) -> bytes:
    """Return the secret; raise `IntegrityError` if the limbs, because of wrong shares, encode no `size` bytes."""
    listed: list[int] = limbs.tolist()
    value = sum(limb << LIMB_BITS * i for i, limb in enumerate(listed))
    if max(listed) > _LIMB or value >> 8 * size:
        raise IntegrityError
    return value.to_bytes(size, "little")


def uniform(count: int, coins: Coins) -> Ints:
    """Draw `count` uniform elements of the field, by rejection."""
    elements = np.empty(0, np.uint16)
    while len(elements) < count:
        draws = np.frombuffer(coins.bytes(2 * (count - len(elements)) + 8), dtype="<u2")
        accepted = draws if draws.max() < PRIME else draws[draws < PRIME]
        elements = np.concatenate([elements, accepted]) if len(elements) else accepted
    return elements[:count].astype(np.int64)


def _require_points(points: Sequence[int]) -> Ints:
    places = np.asarray(points, np.int64)
    if places.size and (places.min() < 1 or places.max() > MAX_POINT or len(np.unique(places)) != len(places)):
        raise ValueError(f"share points must be distinct integers from 1 to {MAX_POINT}")
    return places


def split(secret: bytes, points: Sequence[int], threshold: int, coins: Coins) -> Shares:
    """Return a row of 16-bit words per point; any `threshold` rows determine the secret, fewer reveal nothing."""
    return split_many([secret], points, threshold, coins)[:, 0]


def split_many(secrets: Sequence[bytes], points: Sequence[int], threshold: int, coins: Coins) -> Shares:
    """Share several secrets of one size, each by its own polynomials: shares by point, secret and limb."""
    powers, kernel = _powers(tuple(points), threshold), kernels.active()
    if kernel is not None and threshold > 1:
        shares = np.empty((len(powers), len(secrets), limb_count(len(secrets[0]))), np.uint16)
        missing, random = (threshold - 1) * shares[0].size, b""
        while missing:  # as `uniform` draws
            random += coins.bytes(2 * missing + 8)
            missing = kernel.shares(powers, b"".join(secrets), random, shares)
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
    """Return the powers 0 to `threshold` - 1 of each point, cached since all runs of a study have the same points."""
    places = _require_points(points)
    if not 1 <= threshold <= len(places):
        raise ValueError("a threshold must lie between 1 and the number of share holders")
    powers = np.ones((len(places), threshold), np.int64)
    have = 1
    while have < threshold:  # twice as many at each turn
        more = min(have, threshold - have)
        powers[:, have : have + more] = powers[:, :more] * (powers[:, have - 1] * places % PRIME)[:, None] % PRIME
        have += more
    return powers.astype(np.float64)


def _inverse(values: Ints) -> Ints:
    """Invert elementwise, by Fermat's theorem."""
    result, base, exponent = np.ones_like(values), values % PRIME, PRIME - 2
    while exponent:
        if exponent & 1:
            result = result * base % PRIME
        base = base * base % PRIME
        exponent >>= 1
    return result


def lagrange(points: Sequence[int]) -> Ints:
    """Return the Lagrange weights that combine shares at `points` to the secret."""
    places = _require_points(points)
    above, below = np.ones(len(places), np.int64), np.ones(len(places), np.int64)
    for index, point in enumerate(places):
        factor = np.full(len(places), point, np.int64)
        factor[index] = 1
        above = above * factor % PRIME
        gap = (point - places) % PRIME
        gap[index] = 1
        below = below * gap % PRIME
    return above * _inverse(below) % PRIME


def combine(weights: Ints, shares: npt.NDArray[np.integer], size: int) -> bytes:
    """Return the secret of `size` bytes from one row of shares per weight, or raise `IntegrityError` if none fits.

    Most wrong shares are not detected here: compare the result with a public key or a commitment.
    """
    if shares.shape != (len(weights), limb_count(size)):
        raise IntegrityError
    sums = (weights.astype(np.float64) @ (shares.astype(np.int64) % PRIME).astype(np.float64)).astype(np.int64)
    return _from_limbs(sums % PRIME, size)
