"""Salted Merkle trees: commit to a list by one hash, and open single items without revealing others.

A leaf is SHA-256 of a salt, its index and the item; salts are derived from a secret of 32 bytes. The commitment is binding if
SHA-256 is collision resistant; the salt hides an item that is not opened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

SALT_BYTES = 16
HASH_BYTES = 32


@dataclass(frozen=True, slots=True)
class Opening:
    """Salt of an item, and the sibling hashes on its path to the root."""

    salt: bytes
    path: bytes = field(repr=False)


class Tree:
    """The committing party's tree."""

    def __init__(self, items: Sequence[bytes], secret: bytes) -> None:
        if not items or len(secret) != HASH_BYTES:
            raise ValueError("a tree needs items, and a secret of 32 bytes")
        self._secret = secret
        self._levels = [[_leaf(self._salt(i), i, item) for i, item in enumerate(items)]]
        while len(self._levels[-1]) > 1:
            self._levels.append(_above(self._levels[-1]))

    @property
    def root(self) -> bytes:
        """The commitment."""
        return _root(len(self._levels[0]), self._levels[-1][0])

    def open(self, index: int) -> Opening:
        """Return the proof of the item at an index."""
        path, place = [], index
        for level in self._levels[:-1]:
            if (beside := place ^ 1) < len(level):
                path.append(level[beside])
            place //= 2
        return Opening(self._salt(index), b"".join(path))

    def _salt(self, index: int) -> bytes:
        return hashlib.blake2b(
            index.to_bytes(8, "big"), key=self._secret, digest_size=SALT_BYTES, person=b"blindbayes salt"
        ).digest()


def path_bytes(size: int, index: int) -> int:
    """Return the length of the path of an index in a tree of that size."""
    total = 0
    while size > 1:
        total += HASH_BYTES * ((index ^ 1) < size)
        index, size = index // 2, (size + 1) // 2
    return total


def is_item(root: bytes, size: int, index: int, item: bytes, opening: Opening) -> bool:
    """Return True if the root commits to a list of that size with the item at this index."""
    if not 0 <= index < size or len(opening.salt) != SALT_BYTES or len(opening.path) != path_bytes(size, index):
        return False
    node, read, whole = _leaf(opening.salt, index, item), 0, size
    while size > 1:
        if (index ^ 1) < size:
            beside = opening.path[read : read + HASH_BYTES]
            read += HASH_BYTES
            node = _node(beside, node) if index & 1 else _node(node, beside)
        index, size = index // 2, (size + 1) // 2
    return _root(whole, node) == root


def _leaf(salt: bytes, index: int, item: bytes) -> bytes:
    return hashlib.sha256(b"\0" + salt + index.to_bytes(8, "big") + item).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


def _root(size: int, top: bytes) -> bytes:
    return hashlib.sha256(b"\2" + size.to_bytes(8, "big") + top).digest()


def _above(level: list[bytes]) -> list[bytes]:
    """Return the next level; a node without a sibling moves up unchanged."""
    return [_node(*level[i : i + 2]) if i + 1 < len(level) else level[i] for i in range(0, len(level), 2)]
