"""Bindings of cells.h: parse delimited text to codes of distinct cells, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.kernels.bindings import Kernels
from blindbayes.errors import LocalProtocolError

PADDING = 64  # readable bytes after the text
MAX_COLUMNS = 1024
_SLOTS, _VALUES = 8192, 4096  # of a column's hash table; distinct values of a column
_CAPACITY = 1 << 20  # bytes of a column's distinct values, or of its texts


class Stop(IntEnum):
    """Reason that a scan ended: all text is read, rows or values are full, or a row is not supported."""

    MORE, ROWS, FULL, ODD = range(4)


class CellScanner:
    """Incremental parser of a table.

    `wanted` are the columns that are read, out of `columns`; `plain` marks those that are stored as texts instead of coded.
    """

    def __init__(
        self,
        kernels: Kernels,
        marks: bytes,
        columns: int,
        wanted: Sequence[int],
        plain: Sequence[bool],
        rows: int,
        skip: int = 0,
    ) -> None:
        count = len(wanted)
        if not (0 < count <= MAX_COLUMNS and len(plain) == count and len(marks) == 4 and 0 < rows < 1 << 31 and skip >= 0):
            raise LocalProtocolError("a scan must read 1 to 1024 columns")
        if len(set(wanted)) != count or min(wanted) < 0 or max(wanted) >= columns:
            raise LocalProtocolError("a scan must read columns of its table")
        self._scan, self._marks = kernels._shared["cells_scan"], marks
        self._wide = kernels.name != "portable"
        self._places = np.full(columns, -1, dtype=np.int64)
        self._places[list(wanted)] = np.arange(count)
        self._plain = np.array(plain, dtype=np.uint8)
        self._tables = np.zeros((count, _SLOTS, 2), dtype=np.uint64)
        self._values = np.zeros(count, dtype=np.uint64)
        self._ends = np.zeros((count, max(rows, _VALUES) + 1), dtype=np.uint32)
        self._store = np.empty((count, _CAPACITY), dtype=np.uint8)
        self._codes = np.empty((count, rows), dtype=np.uint16)
        self._state = np.array([0, 0, 0, 0, skip], dtype=np.uint64)  # bytes read, rows, why it stopped, at which column

    @property
    def rows(self) -> int:
        """Number of rows since the last `clear`."""
        return int(self._state[1])

    def scan(self, text: bytes | bytearray, start: int, stop: int) -> tuple[int, Stop]:
        """Add the rows of text[start:stop]; return the bytes read and why it stopped."""
        if not 0 <= start <= stop <= len(text) - PADDING:
            raise LocalProtocolError("a scan needs padding after the text")
        self._scan(
            memoryview(text)[start:],
            stop - start,
            self._marks,
            len(self._places),
            self._places,
            len(self._plain),
            self._plain,
            self._codes.shape[1],
            self._tables,
            self._values,
            self._ends,
            self._store,
            _CAPACITY,
            self._codes,
            self._state,
            self._wide,
        )
        return int(self._state[0]), Stop(int(self._state[2]))

    def clear(self) -> None:
        """Start new rows. A column that has too many distinct values is stored as texts from now on."""
        self._codes = np.empty_like(self._codes)  # earlier rows still refer to the old array
        self._state[1] = 0
        if self._state[2] == Stop.FULL:
            self._plain[self._state[3]] = True

    def codes(self, column: int) -> npt.NDArray[np.uint16] | None:
        """Return the codes of a column's rows, or None if it has texts."""
        return None if self._plain[column] else self._codes[column, : self.rows]

    def size(self, column: int) -> int:
        """Return the number of distinct values of a column so far, or of its rows if it has texts."""
        return self.rows if self._plain[column] else int(self._values[column])

    def texts(self, column: int) -> tuple[bytes, bytes]:
        """Return the ends (32 bits each, the first is 0) and the bytes of `size` values or texts."""
        ends = self._ends[column, : self.size(column) + 1]
        return ends.tobytes(), self._store[column, : ends[-1]].tobytes()
