"""Aggregator-oblivious encryption without a trapdoor (Shi, Chan, Rieffel, Chow and Song 2011), in ristretto255.

    c_i = x_i G + k_i H(label),     k_0 + ... + k_n = 0 modulo the group's order

The same interface as `joye_libert`, and the same rules: one use of a label per key. Nobody knows a trapdoor, so there is no
modulus to deal; decisional Diffie-Hellman in the random oracle model. The price: the sum is a discrete logarithm, found by
baby steps and giant steps, so the time to decrypt grows with the square root of the range; one cell per ciphertext.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

from blindbayes.crypto import ristretto
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.prg import expand_bytes
from blindbayes.crypto.ristretto import ORDER
from blindbayes.errors import ConfigError, IntegrityError, LocalProtocolError, PeerProtocolError

MAX_BOUND = 1 << 36
"""Totals beyond +-this are refused beforehand: a table of 2^19 points and as many steps for each cell."""


class Cells:
    """One cell per ciphertext: the counterpart of `primitives.packing.Packing`."""

    def __init__(self, length: int, bound: int) -> None:
        if bound > MAX_BOUND:
            raise ConfigError(
                f"sums up to {bound} are out of reach of a discrete logarithm (limit {MAX_BOUND}): declare max_rows, or use "
                "the scheme joye_libert"
            )
        self.chunks = length
        self._bound = bound

    def pack(self, values: Sequence[int]) -> list[int]:
        """The values themselves."""
        return list(values)

    def unpack(self, totals: Sequence[int], *, party: str | None = None) -> list[int]:
        """The totals themselves, within the bound."""
        if any(abs(total) > self._bound for total in totals):
            raise PeerProtocolError("a total is outside its range", party=party)
        return list(totals)


class RistrettoSum:
    """See the module. `bound`: totals lie within +-bound."""

    name = "ristretto"
    element_bytes = ristretto.POINT_BYTES
    key_bits = 252

    def __init__(self, bound: int) -> None:
        self.bound = bound

    @property
    def digest(self) -> bytes:
        """Binds keys and labels to this group."""
        return hashlib.sha256(b"blindbayes ristretto sum v1").digest()

    # -- keys --------------------------------------------------------------------------------------------------------

    def random_key(self, coins: Coins) -> int:
        """A uniform key."""
        return coins.below(ORDER)

    def pair_key(self, secret: bytes) -> int:
        """The key that two parties derive from a 32-byte secret of theirs (512 bits reduced: bias below 2^-250)."""
        return int.from_bytes(expand_bytes(secret, 64), "little") % ORDER

    def total(self, keys: Iterable[int]) -> int:
        """The sum of keys modulo the order."""
        return sum(keys) % ORDER

    def split(self, key: int, holders: int, threshold: int, coins: Coins, *, count: int = 1) -> list[int]:
        """Shamir's shares modulo the order at the points 1..holders."""
        if not 1 <= threshold <= holders:
            raise LocalProtocolError("a threshold lies between 1 and the number of share holders")
        coefficients = [key, *(coins.below(ORDER) for _ in range(threshold - 1))]
        shares = []
        for point in range(1, holders + 1):
            value = 0
            for coefficient in reversed(coefficients):
                value = (value * point + coefficient) % ORDER
            shares.append(value)
        return shares

    def share_bits(self, holders: int, threshold: int, count: int) -> int:
        """Longest share accepted from others."""
        return ORDER.bit_length()

    def scale(self, holders: int) -> int:
        """Recovery is exact."""
        return 1

    def weights(self, points: Sequence[int], holders: int) -> list[int]:
        """Lagrange's weights at zero."""
        elements = []
        for j in points:
            above, below = 1, 1
            for other in points:
                if other != j:
                    above = above * -other % ORDER
                    below = below * (j - other) % ORDER
            elements.append(above * pow(below, -1, ORDER) % ORDER)
        return elements

    # -- elements ----------------------------------------------------------------------------------------------------

    def packing(self, length: int, bound: int) -> Cells:
        """One cell per ciphertext."""
        return Cells(length, bound)

    def encrypt(self, plaintexts: Sequence[int], key: int, label: bytes) -> list[bytes]:
        """One ciphertext per signed plaintext, under labels of their own (`label`, position)."""
        masks = self.masks(key, label, len(plaintexts))
        return [ristretto.add(times_base(plaintext), mask) for plaintext, mask in zip(plaintexts, masks, strict=True)]

    def masks(self, key: int, label: bytes, count: int) -> list[bytes]:
        """key * H(label, position) for each position."""
        return [times(key, self.base(label, at)) for at in range(count)]

    def multiply(self, columns: Sequence[Sequence[bytes]]) -> list[bytes]:
        """Position by position, the sum of the points of several parties."""
        totals = []
        for points in zip(*columns, strict=True):
            total = ristretto.IDENTITY
            for point in points:
                total = ristretto.add(total, point)
            totals.append(total)
        return totals

    def power(self, elements: Sequence[bytes], exponent: int) -> list[bytes]:
        """Every point times a public number."""
        return [times(exponent, element) for element in elements]

    def open(self, elements: Sequence[bytes], scale: int = 1) -> list[int]:
        """The signed plaintexts of points without mask, by baby steps and giant steps."""
        if scale != 1:
            raise LocalProtocolError("recovery in a group of known order has no scale")
        size = 2 * self.bound + 1
        steps = math.isqrt(size * len(elements)) + 1 if elements else 1
        steps = 1 << (min(steps, size).bit_length() - 1)  # few distinct table sizes
        table = _baby_steps(steps)
        giant = times_base(-steps)
        return [self._logarithm(element, table, giant, size // steps + 1) for element in elements]

    def _logarithm(self, element: bytes, table: dict[bytes, int], giant: bytes, jumps: int) -> int:
        point = ristretto.add(element, times_base(self.bound))  # now in 0 .. 2 bound
        for jump in range(jumps):
            small = table.get(point)
            if small is not None:
                value = jump * len(table) + small - self.bound
                if value > self.bound:
                    break
                return value
            point = ristretto.add(point, giant)
        raise IntegrityError

    def is_zero(self, elements: Sequence[bytes]) -> list[bool]:
        """Return whether the plaintext is zero, of points without mask; the range does not matter."""
        return [element == ristretto.IDENTITY for element in elements]

    def random_plaintext(self, coins: Coins) -> int:
        """Uniform over all plaintexts but zero: in a sum it hides everything but whether it is there."""
        return 1 + coins.below(ORDER - 1)

    def require_elements(self, elements: Sequence[bytes], count: int, *, party: str | None = None) -> None:
        """Refuse what is not `count` points."""
        if len(elements) != count:
            raise PeerProtocolError("the wrong number of ciphertexts", party=party)
        for element in elements:
            if not ristretto.is_point(element):
                raise PeerProtocolError("a ciphertext is no point of the group", party=party)

    def base(self, label: bytes, at: int) -> bytes:
        """H: a label and position to a point of unknown discrete logarithm."""
        return ristretto.hash_to_point(self.digest + len(label).to_bytes(4, "big") + label + at.to_bytes(4, "big"))


def _scalar(value: int) -> bytes:
    return (value % ORDER).to_bytes(32, "little")


def times(value: int, point: bytes) -> bytes:
    """Return value * point; the value is taken modulo the order."""
    if value % ORDER == 0 or point == ristretto.IDENTITY:
        return ristretto.IDENTITY
    return ristretto.multiply(_scalar(value), point)


def times_base(value: int) -> bytes:
    """Return value * generator."""
    return ristretto.base_multiply(_scalar(value)) if value % ORDER else ristretto.IDENTITY


@lru_cache(maxsize=2)
def _baby_steps(count: int) -> dict[bytes, int]:
    one = times_base(1)
    table: dict[bytes, int] = {}
    point = ristretto.IDENTITY
    for step in range(count):
        table[point] = step
        point = ristretto.add(point, one)
    return table
