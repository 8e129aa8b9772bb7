"""Group the rows of a column by class and raw value, so that `encode` reads each distinct value once.

Databases group by themselves. Columns of files and frames are grouped here, batch by batch: by Arrow's dictionaries, or whole
numbers by their position in a window. Numbers that rarely repeat are encoded row by row, by the same function.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook, Feature, Numeric, Text
from blindbayes.data.encode import encode_column, encode_labels
from blindbayes.data.libraries import pa, pc
from blindbayes.data.values import Misfits, as_numpy
from blindbayes.statistics import FeatureTally, Layout

_WINDOW, _WINDOWS = 1 << 10, 8  # size of a window of whole numbers; number of windows that a column may span
_MANY = 1 << 16  # distinct values, from which on a table costs more than it saves
_LOOK = 1 << 10  # rows that are inspected to see whether numbers repeat
_ROWS = 1 << 30  # grouped rows before they are settled, so that sums are exact in floats
IntColumn = npt.NDArray[np.int64]
Places = npt.NDArray[Any]  # of unsigned or signed integers


class ColumnCount:
    """Rows of one feature by class and raw value, which `settle` encodes and adds to the statistics."""

    def __init__(self, layout: Layout, vector: npt.NDArray[Any], feature: Feature, lenient: bool, misfits: Misfits) -> None:
        self._layout, self._feature = layout, feature
        self._tally = FeatureTally(layout, vector, feature)
        self._classes = len(layout.codebook.classes)
        self._reading: dict[str, Any] = {"training": True, "lenient": lenient, "misfits": misfits}
        self._values: Any = None
        self._rows: IntColumn = np.zeros((self._classes + 1, 0), dtype=np.int64)

    def add(self, column: Any, classes: IntColumn, bases: dict[int, Places]) -> None:
        """Add a batch. `classes` are class positions; rows that do not count have the position after the last class.

        `bases` caches multiples of `classes` for the other columns of the batch.
        """
        grouped = None if isinstance(self._feature, Text) else distinct(column, often=not isinstance(self._feature, Numeric))
        if grouped is None:
            self._add_rows(column, classes)
            return
        values, places = grouped
        size = len(values)
        if size not in bases:
            bases[size] = (classes * size).astype(np.uint16 if (self._classes + 1) * size < 1 << 16 else np.int64)
        rows = np.bincount(bases[size] + places, minlength=(self._classes + 1) * size)
        self.add_groups(values, rows.reshape(self._classes + 1, size))

    def add_groups(self, values: pa.Array, rows: IntColumn) -> None:
        """Add numbers of rows (classes + 1, values); batches with equal distinct values are merged."""
        if self._values is not None and (values is self._values or values.equals(self._values)):
            self._rows += rows
        else:
            self.settle()
            self._values, self._rows = values, rows
        if self._rows.sum() > _ROWS:
            self.settle()

    def settle(self) -> None:
        """Encode the distinct values and add their rows to the statistics."""
        times = self._rows.sum(axis=0)
        (here,) = np.nonzero(times)
        if self._values is not None and len(here):
            rows = self._rows[: self._classes, here]
            codes = self._read(self._values.take(pa.array(here)), times[here])
            labels, places = np.nonzero(rows)
            self._tally.add(labels, codes[places], rows[labels, places])
        self._tally.settle()
        self._values = None

    def _read(self, column: Any, rows: IntColumn | None = None) -> Any:
        markers = self._layout.codebook.markers(self._feature)
        return encode_column(column, self._feature, markers, rows=rows, **self._reading)

    def _add_rows(self, column: Any, classes: IntColumn) -> None:
        values, counts = self._read(column), classes < self._classes
        if not counts.all():
            values, classes = values[counts], classes[counts]
        self._tally.add(classes, values)


def class_positions(labels: Any, codebook: Codebook, misfits: Misfits | None = None) -> IntColumn:
    """Return the class position of each row; unlisted classes have the position after the last, and count as misfits."""
    grouped, size = distinct(labels, often=True), len(codebook.classes)
    if grouped is None:
        positions = encode_labels(labels, codebook, lenient=misfits is None, misfits=misfits)
        return np.where(positions < 0, size, positions)
    values, places = grouped
    rows = np.bincount(places, minlength=len(values))
    (here,) = np.nonzero(rows)
    positions = np.full(len(values), size)
    if len(here):
        own = encode_labels(values.take(pa.array(here)), codebook, lenient=misfits is None, misfits=misfits, rows=rows[here])
        positions[here] = np.where(own < 0, size, own)
    return np.asarray(positions[places])


def by_class(values: pa.Array, classes: IntColumn, rows: IntColumn, size: int) -> tuple[pa.Array, IntColumn]:
    """Return groups of an engine as distinct values and numbers of rows (size + 1, values)."""
    distinct = values.dictionary_encode()
    places = as_numpy(pc.fill_null(distinct.indices, len(distinct.dictionary)))
    counts = np.zeros((size + 1, len(distinct.dictionary) + 1), dtype=np.int64)
    np.add.at(counts, (classes, places), rows)
    return pa.concat_arrays([distinct.dictionary, pa.nulls(1, values.type)]), counts


def distinct(column: Any, *, often: bool) -> tuple[pa.Array, Places] | None:
    """Return the distinct values of a column, possibly with unused ones, and the position of each row among them.

    Return None where encoding all rows costs less: objects, numbers that rarely repeat. `often`: values are known to repeat.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) and column.num_chunks == 1 else column
    if not isinstance(column, pa.Array):
        return None
    kind = column.type
    if pa.types.is_integer(kind) and (windowed := _windowed(column)) is not None:
        return windowed
    if pa.types.is_floating(kind) and (not often or pa.types.is_float16(kind)):
        return None
    if not pa.types.is_dictionary(kind):
        try:
            if not often and 2 * pc.count_distinct(column[:_LOOK]).as_py() > _LOOK:
                return None
            column = column.dictionary_encode()
        except pa.ArrowNotImplementedError:
            return None
    values, places = column.dictionary, column.indices
    if pa.types.is_string_view(values.type):  # Arrow cannot take from these
        values = values.cast(pa.large_string())
    if len(values) >= _MANY or (not often and 2 * len(values) > len(column)):
        return None
    if places.null_count:
        places = pc.fill_null(places, len(values))
        values = pa.concat_arrays([values, pa.nulls(1, values.type)])
    return values, as_numpy(places)


def _windowed(column: pa.Array) -> tuple[pa.Array, Places] | None:
    """Return whole numbers by their position in a window of all of them, with null last; None if it would be too wide."""
    kind = column.type
    if column.null_count == len(column):
        return None
    if kind.bit_width == 8:
        low, size = 0, 256
    else:
        ends = pc.min_max(column).as_py()
        low = ends["min"] // _WINDOW * _WINDOW
        size = (ends["max"] // _WINDOW + 1) * _WINDOW - low
        if size > _WINDOW * _WINDOWS or max(abs(low), abs(low + size)) >= 1 << 31:
            return None
    raw = np.frombuffer(column.buffers()[1], dtype=kind.to_pandas_dtype())[column.offset : column.offset + len(column)]
    places = raw.view(np.uint8) if kind.bit_width == 8 else raw.astype(np.int64) - low
    if column.null_count:
        places = np.where(as_numpy(column.is_null()), size, places.astype(np.int64))
    return _window(kind, low, size), places


@lru_cache(64)
def _window(kind: pa.DataType, low: int, size: int) -> pa.Array:
    numbers = np.arange(low, low + size)
    if kind.bit_width == 8:
        numbers = numbers.astype(np.uint8).view(kind.to_pandas_dtype())
    return pa.concat_arrays([pa.array(numbers.astype(kind.to_pandas_dtype()), kind), pa.nulls(1, kind)])
