"""From in-memory columns to integer codes, through Arrow kernels.

The rules are those of `blindbayes.data.counting`, value by value; a conformance test holds the two together. In strict
training an unknown category or a number out of bounds is an error. A private training is total: every cell has a code, so
that no error tells one table from its neighbour. In prediction, as there, an unknown category counts as missing and a number
is clamped to the bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Codebook, Feature, Numeric
from blindbayes.data.values import (
    ABSENT,
    NUMBER_PATTERN,
    SPACE,
    UNKNOWN,
    Listed,
    Untyped,
    is_whole,
    marker_numbers,
    plain_text,
    untyped,
)
from blindbayes.errors import DataError
from blindbayes.lazy import lazy
from blindbayes.statistics import MISSING, CodedRows, cells_of

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
else:
    pa = lazy("pyarrow")
    pc = lazy("pyarrow.compute")

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
    total: bool = False,
    every_row: bool = False,
) -> CodedRows:
    """Codes of a batch. `columns` holds one array-like per feature (numpy, Arrow, pandas or polars column).

    `total` is for private training: nothing is refused, and a row whose label the codebook does not list is left out, or
    with `every_row` counts in the first class.
    """
    chosen = codebook.features if features is None else features
    coded = {
        item.name: encode_column(columns[item.name], item, codebook.markers(item), training=training, total=total)
        for item in chosen
    }
    rows = {len(column) for column in coded.values()}
    coded_labels = None if labels is None else encode_labels(labels, codebook, total=total)
    if coded_labels is not None:
        rows.add(len(coded_labels))
    if len(rows) != 1:
        raise DataError("columns of different lengths")
    if coded_labels is not None and every_row:
        coded_labels = np.maximum(coded_labels, 0)
    block = CodedRows(coded_labels, coded, rows.pop())
    if coded_labels is not None and (coded_labels < 0).any():
        return block.take(np.flatnonzero(coded_labels >= 0))
    return block


def encode_labels(labels: Any, codebook: Codebook, *, total: bool = False) -> IntColumn:
    """Positions of class labels. A missing or unknown label is an error, or with `total` -1."""
    column = read_column(labels, codebook.target, total=total)
    found = _positions(column, Listed(codebook.classes, codebook.label_markers), codebook.target, strict=not total)
    if total:
        return np.maximum(found, -1)
    if missing := int((found == ABSENT).sum()):
        raise DataError(f"class column {codebook.target!r}: {missing} rows have no label; drop them")
    if unknown := int((found == UNKNOWN).sum()):
        raise DataError(
            f"class column {codebook.target!r}: {unknown} rows hold a label that the codebook does not list; "
            "add it to classes or drop the rows"
        )
    return found


def encode_column(values: Any, feature: Feature, markers: tuple[str, ...], *, training: bool, total: bool = False) -> IntColumn:
    """Codes of one feature."""
    strict = training and not total
    if isinstance(feature, Categorical):
        if not strict and (direct := _whole_positions(values, feature, markers)) is not None:
            return direct
        column = read_column(values, feature.name, total=total)
        found = _positions(column, Listed(feature.values, markers, feature.other), feature.name, strict=strict)
        if strict:
            _require_present(feature, int((found == ABSENT).sum()))
            if unknown := int((found == UNKNOWN).sum()):
                raise DataError(
                    f"feature {feature.name!r}: {unknown} rows hold a category that the codebook does not list; "
                    "add it to values or map it before"
                )
        return np.maximum(found, -1)
    numbers, missing, unreadable = _numbers(read_column(values, feature.name, total=total), feature, markers, total=total)
    if total:
        missing = missing | unreadable | np.isinf(numbers)
    elif unreadable.any():
        raise DataError(
            f"feature {feature.name!r}: {int(unreadable.sum())} rows hold a text that is neither a number nor a missing "
            "marker; add the marker to missing or mend the rows"
        )
    return _grid_codes(numbers, missing, feature, strict=strict)


def _grid_codes(numbers: npt.NDArray[np.float64], missing: Flags, feature: Numeric, *, strict: bool) -> IntColumn:
    if strict:
        _require_present(feature, int(missing.sum()))
    with np.errstate(over="ignore"):  # infinity is out of bounds like any other number
        grid = np.floor(np.where(missing, 0.0, numbers) * feature.scale + 0.5)
    if strict:
        outside = ~missing & ~((grid >= feature.grid_low) & (grid <= feature.grid_high))
        if outside.any():
            raise DataError(
                f"feature {feature.name!r}: {int(outside.sum())} rows are out of bounds [{feature.low}, {feature.high}]; "
                "widen the bounds in the codebook, clip, or drop the rows"
            )
    codes = np.clip(grid, feature.grid_low, feature.grid_high).astype(np.int64) - feature.centre
    if feature.bins is None:
        codes[missing] = MISSING
    else:
        codes = cells_of(codes, feature)
        codes[missing] = -1
    return codes


def _require_present(feature: Feature, missing: int) -> None:
    if missing and not feature.optional:
        raise DataError(
            f"feature {feature.name!r}: {missing} rows are missing, and the feature is not optional; "
            "set optional = true in the codebook or fill them"
        )


# -- columns ---------------------------------------------------------------------------------------------------------------


def read_column(values: Any, name: str, *, total: bool = False) -> pa.Array | Untyped:
    """A column by what its cells mean: of one type as Arrow has it, of objects value by value."""
    if isinstance(values, np.ndarray) and values.dtype == object:
        values = untyped(values.ravel())
    if isinstance(values, Untyped):
        return values if total else values.require_readable(name)
    try:
        return arrow_column(values, name)
    except DataError:
        if not total:
            raise
    # What a frame makes of a column hangs on its rows; a column of dates is one of objects that nobody lists.
    objects = np.empty(len(values), dtype=object)
    objects[:] = values.to_pylist() if hasattr(values, "to_pylist") else list(values)
    return untyped(objects)


def arrow_column(values: Any, name: str) -> pa.Array:
    """An Arrow array of text, whole numbers, floats or truth values."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
        values = values.chunk(0) if isinstance(values, pa.ChunkedArray) and values.num_chunks == 1 else values
    if not isinstance(values, pa.Array):
        if hasattr(values, "to_arrow"):
            values = values.to_arrow()
        else:
            values = _converted(values, name)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    kind = values.type
    if pa.types.is_null(kind):
        return values.cast(pa.string())
    if pa.types.is_string(kind) or pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return values
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return values.cast(pa.large_string())
    if pa.types.is_decimal(kind):
        return values.cast(pa.string()).cast(pa.float64())  # Arrow's direct cast is off by a last bit
    raise DataError(f"column {name!r} has a type that is neither text, number nor truth value; cast it before")


def _converted(values: Any, name: str) -> pa.Array:
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, OverflowError, ValueError):
        pass  # outside the handler, so that no error of Arrow, which quotes values, is chained to ours
    return as_text(untyped(np.asarray(values, dtype=object).ravel()), name)


def as_text(column: pa.Array | Untyped, name: str) -> pa.Array:
    """A column as an Arrow array; one of mixed objects as their plain texts."""
    return column.require_readable(name).texts if isinstance(column, Untyped) else column


def _positions(column: pa.Array | Untyped, listed: Listed, name: str, *, strict: bool) -> IntColumn:
    """Positions of categories or labels, or ABSENT or UNKNOWN."""
    texts = column.texts if isinstance(column, Untyped) else column
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts  # such as a pandas column gives
    texts = (texts.cast(pa.float32()) if pa.types.is_float16(texts.type) else texts).dictionary_encode()
    values = texts.dictionary.to_pylist()
    places = np.array([listed.position(plain_text(value)) for value in values] + [ABSENT], dtype=np.int64)
    unlisted = (value for at, value in zip(places, values, strict=False) if at == UNKNOWN)
    if strict and any(isinstance(value, float) and not is_whole(value) for value in unlisted):
        raise DataError(f"column {name!r}: a category is a fractional number; declare the feature numeric or cast it to text")
    found: IntColumn = places[pc.fill_null(texts.indices, len(values)).to_numpy(zero_copy_only=False)]
    return found


def _whole_positions(values: Any, feature: Categorical, markers: tuple[str, ...]) -> IntColumn | None:
    """Positions of a numpy column of whole numbers by one table look-up, where that is all it takes; -1 for unknown."""
    if not (isinstance(values, np.ndarray) and values.dtype.kind in "iu" and values.dtype != np.uint64):
        return None
    whole = _whole_numbers(feature.values)
    if whole is None or feature.other is not None or marker_numbers(markers):
        return None
    low, high = int(whole.min()), int(whole.max())
    if high - low >= _TABLE_SPAN:
        return None
    table = np.full(high - low + 3, -1, dtype=np.int64)
    table[whole - low + 1] = np.arange(len(whole))
    found: IntColumn = table.take(np.clip(values.astype(np.int64), low - 1, high + 1) - (low - 1))
    return found


def _whole_numbers(values: tuple[str, ...]) -> npt.NDArray[np.int64] | None:
    """The values as whole numbers, if each is one in plain form."""
    numbers = []
    for value in values:
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 18 and str(int(value)) == value):
            return None
        numbers.append(int(value))
    return np.array(numbers, dtype=np.int64)


def _flags(flags: pa.Array) -> Flags:
    chosen: Flags = flags.to_numpy(zero_copy_only=False)
    return chosen


def _numbers(
    column: pa.Array | Untyped, feature: Numeric, markers: tuple[str, ...], *, total: bool
) -> tuple[npt.NDArray[np.float64], Flags, Flags]:
    """Numbers as float64, which rows are missing, and which hold something that is no number."""
    if isinstance(column, Untyped):
        if not total and _flags(pc.fill_null(pc.is_in(column.texts, value_set=pa.array(["true", "false"])), False)).all():
            raise DataError(f"feature {feature.name!r}: numeric in the codebook, truth values in the table")
        numbers, missing, unreadable = _parsed(column.texts, markers)
        numbers = np.where(column.counted, column.numbers, numbers)
        missing = missing & ~column.counted
        unreadable = unreadable & ~column.counted
    elif pa.types.is_boolean(column.type):
        if not total:
            raise DataError(f"feature {feature.name!r}: numeric in the codebook, truth values in the table")
        missing = np.ones(len(column), dtype=bool)
        numbers, unreadable = np.full(len(column), np.nan), missing
    elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        numbers, missing, unreadable = _parsed(column, markers)
    else:
        numbers = column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        missing = np.isnan(numbers)
        unreadable = np.zeros(len(numbers), dtype=bool)
    for number in marker_numbers(markers):
        missing = missing | (numbers == number)
    return numbers, missing | (np.isnan(numbers) & ~unreadable), unreadable


def _parsed(column: pa.Array, markers: tuple[str, ...]) -> tuple[npt.NDArray[np.float64], Flags, Flags]:
    """Numbers of texts, NaN where there is none; which are missing by their text; which hold something else."""
    missing = _flags(pc.is_null(column)) | _flags(pc.is_in(column, value_set=pa.array(markers, column.type)))
    trimmed = pc.utf8_trim(column, SPACE)
    readable = ~missing & _flags(pc.fill_null(pc.match_substring_regex(trimmed, NUMBER_PATTERN), False))
    if not readable.all():
        trimmed = pc.if_else(pa.array(readable), trimmed, pa.scalar(None, trimmed.type))
    numbers = trimmed.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return numbers, missing, ~missing & ~readable
