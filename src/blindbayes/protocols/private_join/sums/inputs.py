"""Make one entry per identifier of rows with keyed digests of their identifiers.

A row without identifier joins with nothing, as NULL in SQL. The study chooses what several rows of one identifier mean:

    join      every row of one side joins with every row of the other, as in SQL
    first     the first row of each identifier counts, the others do not
    reject    a second row is an error
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.tweaks import Block128
from blindbayes.errors import ConfigError, DataError
from blindbayes.wire import U64Array

Duplicates: TypeAlias = Literal["join", "first", "reject"]
DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Entries:
    """One entry per identifier: its digest, and the sum of its rows' words."""

    items: Block128 = field(repr=False)  # (n, 2), all different
    words: U64Array = field(repr=False)  # (n, words)

    def __len__(self) -> int:
        return len(self.items)


def merge(digests: Sequence[bytes | None], words: U64Array, duplicates: str, max_multiplicity: int) -> Entries:
    """Return the entries of rows (n, words); `max_rows` bounds the rows of one identifier under `join`."""
    if duplicates not in get_args(Duplicates):
        raise ConfigError(f"duplicates is one of {', '.join(get_args(Duplicates))}")
    if len(digests) != len(words):
        raise DataError("every row needs its identifier, or none")
    there = np.array([digest is not None for digest in digests], dtype=np.bool_)
    raw = b"".join([digest for digest in digests if digest is not None])
    items = np.frombuffer(raw, dtype="<u8").astype(np.uint64).reshape(-1, 2)
    order = np.argsort(items[:, 0])
    if (np.diff(items[order, 0]) == 0).any():  # stable: rows of one identifier stay in their order
        order = np.lexsort((items[:, 1], items[:, 0]))
    items = items[order]
    new = np.ones(len(items), dtype=np.bool_)
    new[1:] = (items[1:] != items[:-1]).any(axis=1)
    starts = np.flatnonzero(new)
    at = np.flatnonzero(there)[order]
    if len(starts) == len(items):
        return Entries(items, words[at])
    if duplicates == "reject":
        raise DataError("an identifier stands in more than one row; the study says duplicates = 'reject'")
    if duplicates == "first":
        return Entries(items[starts], words[at[starts]])
    if int(np.diff(np.append(starts, len(items))).max()) > max_multiplicity:
        raise DataError(
            f"an identifier stands in more than {max_multiplicity} rows; raise multiplicity, or set duplicates = 'first'"
        )
    return Entries(items[starts], np.add.reduceat(words[at], starts, axis=0, dtype=np.uint64))


def one_hot(labels: npt.NDArray[np.int64], classes: int) -> U64Array:
    """Return (n, classes) words with a 1 at each row's class."""
    hot = np.zeros((len(labels), classes), dtype=np.uint64)
    hot[np.arange(len(labels)), labels] = 1
    return hot


def class_places(classes: int, rows: int) -> U64Array:
    """Return (classes, words): what a row of each class adds to words that count up to 3 * rows rows of each class."""
    bits = (3 * rows).bit_length()
    places = np.zeros((classes, -(-classes // (64 // bits))), dtype=np.uint64)
    for at, row in enumerate(places):
        word, place = divmod(at, 64 // bits)
        row[word] = 1 << bits * place
    return places
