"""A party's coded table, which gives the same rows at every reading, or an error."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.data.columns import ColumnSource
from blindbayes.errors import LocalProtocolError
from blindbayes.statistics import CodedRows

KEPT_BYTES = 256 << 20
_KINDS = ("<i1", "<i2", "<i4", "<i8")


class CheckedTable:
    """A party's coded table, read block by block, any number of times.

    A role that is replayed after a crash uses its coins again: on other rows the same masks would reveal the difference. So
    once `digest` was called, the codes stay in memory for the run; of a table that is larger than `KEPT_BYTES`, each block is
    read again and compared with its digest before it is used.
    """

    def __init__(self, source: ColumnSource, *, training: bool, size: int = 1 << 16) -> None:
        self.source = source
        self.rows = source.rows
        self._training = training
        self._size = min(size, source.block_rows) if training else size  # in a classification all have one size
        self._key = b""
        self._marks: list[tuple[bytes, bytes]] = []  # per block: of the columns, of the labels
        self._cached: list[CodedRows] | None = None  # in the narrowest integers

    def digest(self, key: bytes) -> bytes:
        """Return the keyed digest of all codes. From now on what is read must have it."""
        self._key, self._marks, self._cached = key, [], None
        marks: list[tuple[bytes, bytes]] = []
        cached: list[CodedRows] = []
        space = KEPT_BYTES
        for block in map(_narrow, self._read(self.source)):
            marks.append((self._columns_mark(block), self._labels_mark(block.labels)))
            space -= sum(codes.nbytes for codes in (*block.columns.values(), block.labels) if codes is not None)
            if space >= 0:
                cached.append(block)
            else:
                cached.clear()
        self._marks, self._cached = marks, cached if space >= 0 else None
        return self._hash([b"table", self.rows.to_bytes(8, "big"), *(mark for pair in marks for mark in pair)])

    def blocks(self) -> Iterator[CodedRows]:
        """Yield codes with labels, in blocks that are full except the last."""
        if self._cached is not None:
            yield from map(_wide, self._cached)
            return
        read = 0
        for at, block in enumerate(self._read(self.source)):
            if self._marks:
                narrow = _narrow(block)
                self._require(at, 0, self._columns_mark(narrow))
                self._require(at, 1, self._labels_mark(narrow.labels))
            read += 1
            yield block
        self._require_end(read)

    def labels(self) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the class column alone, without reading the others."""
        alone = replace(self.source, features=())
        if self._cached is not None:
            yield from (_wide(block).known_labels for block in self._cached)
            return
        read = 0
        for at, block in enumerate(self._read(alone)):
            if block.labels is None:
                raise LocalProtocolError("a labelled party has the class column")
            if self._marks:
                self._require(at, 1, self._labels_mark(_narrow(block).labels))
            read += 1
            yield block.labels
        self._require_end(read)

    def _read(self, source: ColumnSource) -> Iterator[CodedRows]:
        """Yield full blocks, whatever sizes the engine gives."""
        pending: list[CodedRows] = []
        count = 0
        for block in source.blocks(training=self._training, size=self._size):
            pending.append(block)
            count += block.rows
            while count >= self._size:
                whole = _join(pending)
                yield _part(whole, 0, self._size)
                pending, count = [_part(whole, self._size, count)], count - self._size
        if count:
            yield _join(pending)

    def _hash(self, parts: Sequence[bytes | memoryview]) -> bytes:
        state = hashlib.blake2b(key=self._key[:64], digest_size=32, person=b"blindbayes rows")
        for part in parts:
            state.update(memoryview(part).nbytes.to_bytes(8, "big"))
            state.update(part)
        return state.digest()

    def _columns_mark(self, block: CodedRows) -> bytes:
        parts: list[bytes | memoryview] = [b"%d" % block.rows]
        for name, codes in block.columns.items():
            parts += [name.encode(), codes.dtype.str.encode(), codes.data]
        return self._hash(parts)

    def _labels_mark(self, labels: npt.NDArray[Any] | None) -> bytes:
        return b"" if labels is None else self._hash([b"labels", labels.dtype.str.encode(), labels.data])

    def _require_end(self, read: int) -> None:
        if self._marks and read != len(self._marks):
            raise LocalProtocolError("the rows changed during the run: it is burned", party=None)

    def _require(self, at: int, which: int, mark: bytes) -> None:
        if at >= len(self._marks) or self._marks[at][which] != mark:
            raise LocalProtocolError("the rows changed during the run: it is burned", party=None)


def _join(blocks: list[CodedRows]) -> CodedRows:
    if len(blocks) == 1:
        return blocks[0]
    labels = [block.labels for block in blocks if block.labels is not None]
    columns = {name: np.concatenate([block.columns[name] for block in blocks]) for name in blocks[0].columns}
    return CodedRows(np.concatenate(labels) if labels else None, columns, sum(block.rows for block in blocks))


def _part(block: CodedRows, low: int, high: int) -> CodedRows:
    columns = {name: codes[low:high] for name, codes in block.columns.items()}
    return CodedRows(None if block.labels is None else block.labels[low:high], columns, min(high, block.rows) - low)


def _narrow(block: CodedRows) -> CodedRows:
    columns = {name: _narrowed(codes) for name, codes in block.columns.items()}
    return CodedRows(None if block.labels is None else _narrowed(block.labels), columns, block.rows)


def _narrowed(codes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    low, high = (int(codes.min()), int(codes.max())) if len(codes) else (0, 0)
    kind = next(each for each in _KINDS if np.iinfo(each).min <= low and high <= np.iinfo(each).max)
    return np.ascontiguousarray(codes, dtype=kind)


def _wide(block: CodedRows) -> CodedRows:
    columns = {name: codes.astype(np.int64) for name, codes in block.columns.items()}
    return CodedRows(None if block.labels is None else block.labels.astype(np.int64), columns, block.rows)
