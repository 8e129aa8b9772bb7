"""The levels of a comparison by transfers: how many there are at once, and of what. See SPEC.md, "By transfers"."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from blindbayes.primitives import circuits as c
from blindbayes.protocol.digits import Bits

DIGIT_BITS, _NEIGHBOURS, _WINS = 4, 3, 4


@dataclass(frozen=True, slots=True)
class Level:
    """One-of-n transfers that are made at once."""

    groups: int  # transfers of each difference, or of each class
    members: int  # shares that go into one; 1: digits
    bits: int  # of a choice
    width: int  # bits of an entry
    many: int  # differences or classes of an instance

    @property
    def rows(self) -> int:
        """Transfers of an instance."""
        return self.groups * self.many

    @property
    def entries(self) -> int:
        """Of a table."""
        return 1 << self.bits

    def table(self) -> Bits:
        """What comes out, by both parties' numbers."""
        return _table(self.members, self.bits, self.width)


@functools.cache
def _table(members: int, bits: int, width: int) -> Bits:
    own: Bits = np.arange(1 << bits, dtype=np.uint8)
    if members == 1:  # larger, and equal
        return np.greater.outer(own, own).astype(np.uint8) | np.eye(len(own), dtype=np.uint8) << np.uint8(1)
    found: Bits = (own == len(own) - 1).astype(np.uint8)  # all of them, or the two bits that make the last carry
    if members != bits:  # "equal", then "larger" and "equal" of each neighbour below; the last "equal" where it is wanted
        places = own >> np.arange(2 * members, dtype=np.uint8)[:, None] & np.uint8(1)
        equal, found = places[0], np.zeros_like(own)
        for at in range(1, bits, 2):
            found, equal = found | equal & places[at], equal & places[at + 1]
        found = found | equal << np.uint8(width - 1) if width == 2 else found
    table: Bits = found[own[:, None] ^ own]
    return table


@functools.cache
def levels(bits: int, classes: int) -> tuple[Level, ...]:
    """All levels of a comparison of scores of so many bits."""
    pairs, left = len(c.pairs_of(classes)), -(-(bits - 1) // DIGIT_BITS)
    found = [Level(left, 1, DIGIT_BITS, 2, pairs)]
    while left > 1:
        depth = next(n for n in range(1, left) if _NEIGHBOURS**n >= left)
        size = 2 if -(-left // 2) <= _NEIGHBOURS ** (depth - 1) else _NEIGHBOURS  # no more at once than the depth asks for
        last = left <= size
        found.append(Level(left // size + (left % size > 1), size, 2 * size - 1 - last, 2 - last, pairs))
        left = -(-left // size)
    left = classes - 1
    while left > 1:
        size = min(_WINS, left)
        found.append(Level(left // size + (left % size > 1), size, size, 1, classes - 1))
        left = -(-left // size)
    return tuple(found)
