"""Salted Merkle trees: a list is committed to by one hash, and single items are opened without showing others.

A leaf is SHA-256 over a salt, its place and the item; salts come from one secret of 32 bytes. Binding as far as SHA-256 is
collision resistant; an item that is not opened is hidden by its salt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

SALT_BYTES = 16
HASH_BYTES = 32


@dataclass(frozen=True, slots=True)
class Opening:
    """One item's salt and the hashes beside its way to the root."""

    salt: bytes
    path: bytes = field(repr=False)


class Tree:
    """The committing party's tree."""

    def __init__(self, items: Sequence[bytes], secret: bytes) -> None:
        if not items or len(secret) != HASH_BYTES:
            raise ValueError("a tree has items, and a secret of 32 bytes")
        self._secret = secret
        self._levels = [[_leaf(self._salt(at), at, item) for at, item in enumerate(items)]]
        while len(self._levels[-1]) > 1:
            self._levels.append(_above(self._levels[-1]))

    @property
    def root(self) -> bytes:
        """What is told beforehand."""
        return _root(len(self._levels[0]), self._levels[-1][0])

    def open(self, at: int) -> Opening:
        """What proves the item at a place."""
        path, place = [], at
        for level in self._levels[:-1]:
            if (beside := place ^ 1) < len(level):
                path.append(level[beside])
            place //= 2
        return Opening(self._salt(at), b"".join(path))

    def _salt(self, at: int) -> bytes:
        return hashlib.blake2b(
            at.to_bytes(8, "big"), key=self._secret, digest_size=SALT_BYTES, person=b"blindbayes salt"
        ).digest()


def path_bytes(size: int, at: int) -> int:
    """How long the path of a place is in a tree of that size."""
    total = 0
    while size > 1:
        total += HASH_BYTES * ((at ^ 1) < size)
        at, size = at // 2, (size + 1) // 2
    return total


def is_item(root: bytes, size: int, at: int, item: bytes, opening: Opening) -> bool:
    """Whether the item stands at this place of the list of that size that the root commits to."""
    if not 0 <= at < size or len(opening.salt) != SALT_BYTES or len(opening.path) != path_bytes(size, at):
        return False
    found, read, whole = _leaf(opening.salt, at, item), 0, size
    while size > 1:
        if (at ^ 1) < size:
            beside = opening.path[read : read + HASH_BYTES]
            read += HASH_BYTES
            found = _node(beside, found) if at & 1 else _node(found, beside)
        at, size = at // 2, (size + 1) // 2
    return _root(whole, found) == root


def _leaf(salt: bytes, at: int, item: bytes) -> bytes:
    return hashlib.sha256(b"\0" + salt + at.to_bytes(8, "big") + item).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def _root(size: int, top: bytes) -> bytes:
    return hashlib.sha256(b"\2" + size.to_bytes(8, "big") + top).digest()


def _above(level: list[bytes]) -> list[bytes]:
    """The next level; a node without a neighbour goes up as it is."""
    return [_node(*level[at : at + 2]) if at + 1 < len(level) else level[at] for at in range(0, len(level), 2)]
