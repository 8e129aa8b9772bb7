"""Encode columns in memory, or distinct values, to integer codes by the rules of `values`.

In strict training an unknown category or a number out of bounds is an error. Private training is lenient: every cell has a
code, so that no error distinguishes neighbouring tables. In prediction, too, an unknown category is missing and a number is
clipped to the bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Codebook, Feature, Numeric, Text
from blindbayes.crypto.kernels import active
from blindbayes.crypto.kernels.counts import MAX_GRID
from blindbayes.data.bag_of_words import read_texts
from blindbayes.data.libraries import pa, pc
from blindbayes.data.values import (
    ABSENT,
    NUMBER_PATTERN,
    SPACE,
    UNKNOWN,
    Listed,
    Misfit,
    Misfits,
    Untyped,
    as_numpy,
    is_whole,
    marker_numbers,
    not_numbers,
    plain_text,
    untyped,
    untyped_column,
)
from blindbayes.errors import DataError
from blindbayes.statistics import MISSING, Bags, CodedRows, cells_of

_SHORT = 60  # characters of a number that is read without checking its form
_TABLE_SPAN = 4096  # whole-number categories in a shorter range are looked up in a table
IntColumn = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


def encode(
    columns: Mapping[str, Any],
    codebook: Codebook,
    *,
    training: bool,
    labels: Any = None,
    features: tuple[Feature, ...] | None = None,
    lenient: bool = False,
    every_row: bool = False,
) -> CodedRows:
    """Encode a batch; `columns` has one array-like per feature (numpy, Arrow, pandas or polars column).

    With `lenient`, for private training, nothing is refused, and a row with an unlisted label is left out. With `every_row`
    such a row counts in the first class, and a missing value of a required feature as code 0 (the first value or cell, or the
    centre of the bounds), so that every row has a cell.
    """
    chosen = codebook.features if features is None else features
    misfits = Misfits()
    coded_labels = None if labels is None else encode_labels(labels, codebook, lenient=lenient, misfits=misfits)
    encoded = {
        item.name: encode_column(
            columns[item.name], item, codebook.markers(item), training=training, lenient=lenient, misfits=misfits
        )
        for item in chosen
    }
    misfits.require_clean(codebook)
    rows = {*map(len, encoded.values())} | (set() if coded_labels is None else {len(coded_labels)})
    if len(rows) != 1:
        raise DataError("columns of different lengths")
    bags = {name: values for name, values in encoded.items() if isinstance(values, Bags)}
    coded = {name: values for name, values in encoded.items() if not isinstance(values, Bags)}
    if every_row:
        coded_labels = None if coded_labels is None else np.maximum(coded_labels, 0)
        for item in chosen:
            if item.name in coded and not item.optional:
                coded[item.name][coded[item.name] == (-1 if item.counted else MISSING)] = 0
    block = CodedRows(coded_labels, coded, rows.pop(), bags)
    if coded_labels is not None and (coded_labels < 0).any():
        return block.take(np.flatnonzero(coded_labels >= 0))
    return block


def encode_labels(
    labels: Any, codebook: Codebook, *, lenient: bool = False, misfits: Misfits | None = None, rows: IntColumn | None = None
) -> IntColumn:
    """Return positions of class labels; a missing or unknown one is an error, or a misfit, or with `lenient` -1.

    With `rows`, each label represents that many rows.
    """
    direct = _whole_positions(labels, codebook.classes, codebook.label_markers, None)
    if direct is not None and direct[1] == 0:
        return direct[0]
    column = read_column(labels, codebook.target, lenient=lenient, coded=True)
    misfit = Misfit(codebook.target) if misfits is None else misfits[codebook.target]
    positions = _positions(column, _listed(codebook.classes, codebook.label_markers, None), None if lenient else misfit, rows)
    if misfits is None:
        misfit.require_clean(None)
    return positions


def encode_column(
    values: Any,
    feature: Feature,
    markers: tuple[str, ...],
    *,
    training: bool,
    lenient: bool = False,
    misfits: Misfits | None = None,
    rows: IntColumn | None = None,
) -> Any:
    """Return the codes, or the `Bags`, of one feature; in strict training misfits are an error, or counted in `misfits`.

    With `rows`, each value represents that many rows.
    """
    misfit = Misfit(feature.name) if misfits is None else misfits[feature.name]
    strict = training and not lenient
    encoded = _encoded(values, feature, markers, lenient=lenient, misfit=misfit if strict else None, rows=rows)
    if misfits is None:
        misfit.require_clean(feature)
    return encoded


def _encoded(
    values: Any, feature: Feature, markers: tuple[str, ...], *, lenient: bool, misfit: Misfit | None, rows: IntColumn | None
) -> IntColumn | Bags:
    """Return codes or bags; values that do not fit are counted in `misfit`, and are missing or at a bound."""
    if isinstance(feature, Text):
        if isinstance(values, Bags):
            return values.counting(feature)
        return read_texts(read_column(values, feature.name, lenient=lenient), feature, markers, misfit)
    if isinstance(feature, Categorical):
        listed = _listed(feature.values, markers, feature.other)
        direct = _whole_positions(values, feature.values, markers, feature.other)
        if direct is not None and (misfit is None or direct[1] == 0):
            return direct[0]
        return _positions(read_column(values, feature.name, lenient=lenient, coded=True), listed, misfit, rows)
    column = values if is_plain_array(values) else read_column(values, feature.name, lenient=lenient)
    plain = plain_floats(column)
    if plain is not None and rows is None:
        quick = _kernel_codes(plain, feature, markers, lenient=lenient, misfit=misfit)
        if quick is not None:
            return quick
    numbers, missing, unreadable = _numbers(column if plain is None else plain, feature, markers, lenient=lenient)
    if lenient:
        missing = missing | unreadable | np.isinf(numbers)
    elif misfit is not None:
        misfit.missing += _times(missing, rows)
        misfit.unreadable += _times(unreadable, rows)
        missing = missing | unreadable
    elif unreadable.any():
        raise not_numbers(feature.name, int(unreadable.sum()))
    return _grid_codes(numbers, missing, feature, misfit, rows)


def _kernel_codes(
    numbers: npt.NDArray[np.float64], feature: Numeric, markers: tuple[str, ...], *, lenient: bool, misfit: Misfit | None
) -> IntColumn | None:
    """Return grid codes by the compiled kernel, or None where numpy must do it."""
    engine, grid = active(), _grid_of(feature)
    if engine is None or max(-grid.low, grid.high) >= MAX_GRID or marker_numbers(markers):
        return None
    codes, missing, outside = engine.grid_codes(numbers, **grid._asdict(), missing=MISSING, finite=lenient)
    if misfit is not None:
        misfit.missing += missing
        misfit.outside += outside
    if feature.bins is None:
        return codes
    gone = codes == MISSING
    return np.where(gone, -1, cells_of(np.where(gone, feature.code_low, codes), feature))


class _Grid(NamedTuple):
    scale: float
    low: int
    high: int
    centre: int


@lru_cache(maxsize=4096)
def _grid_of(feature: Numeric) -> _Grid:
    return _Grid(feature.scale, feature.grid_low, feature.grid_high, feature.centre)


def _times(flags: Flags, rows: IntColumn | None) -> int:
    return int(flags.sum() if rows is None else rows[flags].sum())


def _grid_codes(
    numbers: npt.NDArray[np.float64], missing: Flags, feature: Numeric, misfit: Misfit | None, rows: IntColumn | None
) -> IntColumn:
    gone = bool(missing.any())
    grid = np.where(missing, 0.0, numbers) if gone else numbers
    with np.errstate(over="ignore"):  # infinity is out of bounds like any other number
        grid = grid * feature.scale if feature.scale != 1 else grid
        grid = np.floor(grid + 0.5)
    if misfit is not None:
        misfit.outside += _times(~missing & ~((grid >= feature.grid_low) & (grid <= feature.grid_high)), rows)
    codes = np.clip(grid, feature.grid_low, feature.grid_high).astype(np.int64)
    if feature.centre:
        codes -= feature.centre
    if feature.bins is not None:
        codes = cells_of(codes, feature)
    if gone:
        codes[missing] = MISSING if feature.bins is None else -1
    return codes


# -- columns ---------------------------------------------------------------------------------------------------------------


def read_column(values: Any, name: str, *, lenient: bool = False, coded: bool = False) -> pa.Array | Untyped:
    """Return a column as a typed Arrow array, or as untyped objects.

    With `coded`, dictionary codes are preserved if the dictionary is no longer than the column.
    """
    if isinstance(values, np.ndarray) and values.dtype == object:
        values = untyped(values.ravel())
    if isinstance(values, Untyped):
        return values if lenient else values.require_readable(name)
    try:
        return arrow_column(values, name, coded=coded)
    except DataError:
        if not lenient:
            raise
    # The type of a frame's column depends on its rows; a column of dates is one of unlisted objects.
    objects = np.empty(len(values), dtype=object)
    objects[:] = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
    return untyped(objects)


def arrow_column(values: Any, name: str, *, coded: bool = False) -> pa.Array:
    """Return an Arrow array of text, whole numbers, floats or truth values; with `coded` possibly as dictionary codes."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        values = values.chunk(0) if isinstance(values, pa.ChunkedArray) and values.num_chunks == 1 else values
    if not isinstance(values, pa.Array):
        if hasattr(values, "to_arrow"):
            values = values.to_arrow()
        else:
            values = _converted(values, name)
    if pa.types.is_dictionary(values.type):
        listed = values.dictionary
        if coded and len(listed) <= len(values) and arrow_column(listed, name).type == listed.type:
            return values
        values = values.cast(values.type.value_type)
    kind = values.type
    if pa.types.is_null(kind):
        return values.cast(pa.string())
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return values
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        if not _is_utf_8(values):
            raise DataError(
                f"column {name!r} holds text that is not UTF-8, as other programs write it: export it again as UTF-8"
            )
        return values if pa.types.is_string(kind) else values.cast(pa.large_string())
    if pa.types.is_decimal(kind):
        return values.cast(pa.string()).cast(pa.float64())  # Arrow's direct cast is off by a last bit
    raise untyped_column(name)


def _is_utf_8(texts: pa.Array) -> bool:
    """Return True if all texts are UTF-8: files state that they are, and nobody checked."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _converted(values: Any, name: str) -> pa.Array:
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError, ValueError):
        pass  # outside the handler, so that no error of Arrow, which quotes values, is chained to ours
    return as_text(untyped(np.asarray(values, dtype=object).ravel()), name)


def as_text(column: pa.Array | Untyped, name: str) -> pa.Array:
    """Return a column as an Arrow array; mixed objects as their plain texts."""
    return column.require_readable(name).texts if isinstance(column, Untyped) else column


def _positions(
    column: pa.Array | Untyped, listed: Listed, misfit: Misfit | None, weights: IntColumn | None = None
) -> IntColumn:
    """Return positions of categories or labels, or -1; missing and unlisted ones are counted in `misfit`."""
    texts = column.texts if isinstance(column, Untyped) else column
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts  # from pandas
    if not pa.types.is_dictionary(texts.type):
        texts = (texts.cast(pa.float32()) if pa.types.is_float16(texts.type) else texts).dictionary_encode()
    values = texts.dictionary.to_pylist()
    plain = [plain_text(value) for value in values]
    places = np.array([*(listed.position(text) for text in plain), ABSENT], dtype=np.int64)
    indices = texts.indices
    codes = as_numpy(pc.fill_null(indices.cast(pa.int64()), len(values)) if indices.null_count else indices)
    if misfit is not None and (places < 0).any():
        rows = np.bincount(codes, weights, minlength=len(places)).astype(np.int64)
        misfit.missing += int(rows[places == ABSENT].sum())
        misfit.unmapped += int(rows[places == UNKNOWN].sum())
        for value, text, place, times in zip(values, plain, places, rows, strict=False):
            if place == UNKNOWN and times:
                misfit.case |= listed.differs_in_case(text)
                if isinstance(value, float) and not is_whole(value):
                    misfit.fractional = True
                elif misfit.codes is not None:
                    misfit.codes[str(text)] += int(times)
    return np.asarray(np.maximum(places, -1)[codes])


def _whole_positions(
    values: Any, listed: tuple[str, ...], markers: tuple[str, ...], other: str | None
) -> tuple[IntColumn, int] | None:
    """Return the positions of whole numbers by one table look-up, -1 for unknown ones, and the number of these.

    Return None where a table does not suffice.
    """
    if isinstance(values, pa.Array) and pa.types.is_int64(values.type) and values.null_count == 0:
        values = as_numpy(values)
    if not (isinstance(values, np.ndarray) and values.dtype.kind in "iu" and values.dtype != np.uint64):
        return None
    if other is not None or (known := _position_table(listed, markers)) is None:
        return None
    low, table = known
    values = values.astype(np.int64, copy=False)
    if (engine := active()) is not None:
        return engine.whole_positions(values, low, table)
    places: IntColumn = np.append(table, -1).take(np.clip(values, low - 1, low + len(table)) - low, mode="wrap")
    return places, int(np.count_nonzero(places < 0))


@lru_cache(maxsize=1024)
def _position_table(listed: tuple[str, ...], markers: tuple[str, ...]) -> tuple[int, IntColumn] | None:
    """Return the lowest of the listed whole numbers and the positions from it on; None if they are others, or far apart."""
    whole = _whole_numbers(listed)
    if whole is None or marker_numbers(markers):
        return None
    low, high = int(whole.min()), int(whole.max())
    if high - low >= _TABLE_SPAN:
        return None
    table = np.full(high - low + 1, -1, dtype=np.int64)
    table[whole - low] = np.arange(len(whole))
    return low, table


def _whole_numbers(values: tuple[str, ...]) -> npt.NDArray[np.int64] | None:
    """Return the values as whole numbers, if each is one in plain form."""
    numbers = []
    for value in values:
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 18 and str(int(value)) == value):
            return None
        numbers.append(int(value))
    return np.array(numbers, dtype=np.int64)


@lru_cache(maxsize=1024)
def _listed(values: tuple[str, ...], markers: tuple[str, ...], other: str | None) -> Listed:
    return Listed(values, markers, other)


def _flags(flags: pa.Array) -> Flags:
    chosen: Flags = as_numpy(flags)
    return chosen


def is_plain_array(values: Any) -> bool:
    """Return True for a numpy column of numbers that Arrow would only copy."""
    return isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "fiu" and values.dtype.itemsize <= 8


def plain_floats(column: Any) -> npt.NDArray[np.float64] | None:
    """Return a column of numbers as float64, NaN where one is missing; None for texts, truth values and objects."""
    if isinstance(column, pa.Array) and (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        column = as_numpy(column)
    return column.astype(np.float64, copy=False) if isinstance(column, np.ndarray) else None


def _numbers(
    column: pa.Array | Untyped | npt.NDArray[np.float64], feature: Numeric, markers: tuple[str, ...], *, lenient: bool
) -> tuple[npt.NDArray[np.float64], Flags, Flags]:
    """Return numbers as float64, which rows are missing, and which are not numbers."""
    if isinstance(column, np.ndarray):
        numbers, missing, unreadable = column, np.isnan(column), np.zeros(len(column), dtype=bool)
    elif isinstance(column, Untyped):
        if not lenient and _flags(pc.fill_null(pc.is_in(column.texts, value_set=pa.array(["true", "false"])), False)).all():
            raise DataError(f"feature {feature.name!r}: numeric in the codebook, truth values in the table")
        numbers, missing, unreadable = _parsed(column.texts, markers)
        numbers = np.where(column.counted, column.numbers, numbers)
        missing = missing & ~column.counted
        unreadable = unreadable & ~column.counted
    elif pa.types.is_boolean(column.type):
        if not lenient:
            raise DataError(f"feature {feature.name!r}: numeric in the codebook, truth values in the table")
        missing = np.ones(len(column), dtype=bool)
        numbers, unreadable = np.full(len(column), np.nan), missing
    else:
        numbers, missing, unreadable = _parsed(column, markers)
    for number in marker_numbers(markers):
        missing = missing | (numbers == number)
    return numbers, missing | (np.isnan(numbers) & ~unreadable), unreadable


def _parsed(column: pa.Array, markers: tuple[str, ...]) -> tuple[npt.NDArray[np.float64], Flags, Flags]:
    """Return the numbers of texts, NaN where there is no number; which texts are missing; which are something else."""
    numbers = _plain_numbers(column)
    if numbers is not None:  # a marker that reads as a number is recognised by its number
        none = np.zeros(len(column), dtype=bool)
        return numbers, _flags(pc.is_null(column)) if column.null_count else none, none
    missing = _flags(pc.is_null(column)) | _flags(pc.is_in(column, value_set=pa.array(markers, column.type)))
    present = pc.if_else(pa.array(missing), pa.scalar(None, column.type), column)
    numbers = _plain_numbers(present)
    if numbers is not None:
        return numbers, missing, np.zeros(len(column), dtype=bool)
    trimmed = pc.utf8_trim(column, SPACE)
    readable = ~missing & _flags(pc.fill_null(pc.match_substring_regex(trimmed, NUMBER_PATTERN), False))
    if not readable.all():
        trimmed = pc.if_else(pa.array(readable), trimmed, pa.scalar(None, trimmed.type))
    return as_numpy(trimmed.cast(pa.float64())), missing, ~missing & ~readable


def _plain_numbers(column: pa.Array) -> npt.NDArray[np.float64] | None:
    """Return the numbers of texts that are all short, finite and without exponent, or missing; else None.

    For these, Arrow's cast agrees with `NUMBER_PATTERN`.
    """
    try:
        numbers: npt.NDArray[np.float64] = as_numpy(column.cast(pa.float64()))
    except pa.ArrowException:
        return None
    if int(np.isfinite(numbers).sum()) != len(column) - column.null_count:
        return None
    _, places, data = column.buffers()
    offsets = np.frombuffer(places, dtype=np.int64 if pa.types.is_large_string(column.type) else np.int32)
    offsets = offsets[column.offset : column.offset + len(column) + 1]
    if len(column) == 0 or data is None:
        return numbers
    text = memoryview(data)[offsets[0] : offsets[-1]].tobytes()
    return None if np.diff(offsets).max() > _SHORT or b"e" in text or b"E" in text else numbers
