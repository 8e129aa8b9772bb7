"""From in-memory columns to integer codes, through Arrow kernels.

The rules are those of `blindbayes.data.counting`, value by value; a conformance test holds the two together. In training an
unknown category or a number out of bounds is an error; in prediction an unknown category counts as missing and a number is
clamped to the bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from blindbayes.codebook import Categorical, Codebook, Feature, Numeric
from blindbayes.errors import DataError
from blindbayes.statistics import MISSING, Block, cells_of

_TABLE_SPAN = 4096  # whole-number categories in a shorter range are looked up in a table
IntColumn = npt.NDArray[np.int64]
# One rule for every engine, since casts differ. The lengths keep every number inside float64: engines differ outside it.
NUMBER_PATTERN = r"^[+-]?([0-9]{1,60}\.?[0-9]{0,100}|\.[0-9]{1,100})([eE][+-]?[0-9]{1,2})?$"
SPACE = " \t\n\v\f\r"  # what may stand around a number; engines differ beyond ASCII


def encode(
    columns: Mapping[str, Any],
    codebook: Codebook,
    *,
    training: bool,
    labels: Any = None,
    features: tuple[Feature, ...] | None = None,
) -> Block:
    """Codes of a batch. `columns` holds one array-like per feature (numpy, Arrow, pandas or polars column)."""
    chosen = codebook.features if features is None else features
    coded = {item.name: encode_column(columns[item.name], item, codebook.markers(item), training=training) for item in chosen}
    rows = {len(column) for column in coded.values()}
    coded_labels = None if labels is None else encode_labels(labels, codebook)
    if coded_labels is not None:
        rows.add(len(coded_labels))
    if len(rows) != 1:
        raise DataError("columns of different lengths")
    return Block(coded_labels, coded, rows.pop())


def encode_labels(labels: Any, codebook: Codebook) -> IntColumn:
    """Positions of class labels. A missing or unknown label is an error."""
    column = arrow_column(labels, codebook.target)
    codes, missing, unknown = _positions(
        column, codebook.classes, tuple(dict.fromkeys(("", *codebook.missing))), codebook.target
    )
    if missing.any():
        raise DataError(f"class column {codebook.target!r}: {int(missing.sum())} rows have no label; drop them")
    if unknown.any():
        raise DataError(
            f"class column {codebook.target!r}: {int(unknown.sum())} rows hold a label that the codebook does not list; "
            "add it to classes or drop the rows"
        )
    return codes


def encode_column(values: Any, feature: Feature, markers: tuple[str, ...], *, training: bool) -> IntColumn:
    """Codes of one feature."""
    if isinstance(feature, Categorical):
        if (direct := _whole_positions(values, feature.values, markers)) is not None and not training:
            return direct
        column = arrow_column(values, feature.name)
        codes, missing, unknown = _positions(column, feature.values, markers, feature.name, fractions=not training)
        if training:
            _require_present(feature, missing)
            if unknown.any():
                raise DataError(
                    f"feature {feature.name!r}: {int(unknown.sum())} rows hold a category that the codebook does not list; "
                    "add it to values or map it before"
                )
        return codes
    numbers, missing = _numbers(arrow_column(values, feature.name), feature, markers)
    return _grid_codes(numbers, missing, feature, training=training)


def _grid_codes(
    numbers: npt.NDArray[np.float64], missing: npt.NDArray[np.bool_], feature: Numeric, *, training: bool
) -> IntColumn:
    if training:
        _require_present(feature, missing)
    with np.errstate(over="ignore"):  # infinity is out of bounds like any other number
        grid = np.floor(np.where(missing, 0.0, numbers) * feature.scale + 0.5)
    if training:
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


def _require_present(feature: Feature, missing: npt.NDArray[np.bool_]) -> None:
    if not feature.optional and missing.any():
        raise DataError(
            f"feature {feature.name!r}: {int(missing.sum())} rows are missing, and the feature is not optional; "
            "set optional = true in the codebook or fill them"
        )


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
    return mixed_column(values, name)


def mixed_column(values: Any, name: str) -> pa.Array:
    """A column of mixed objects as text: numbers and truth values by their plain text, text as it is."""
    texts: list[str | None] = []
    for value in np.asarray(values, dtype=object).ravel():
        if value is None or type(value).__name__ in {"NAType", "NaTType"} or (isinstance(value, float) and np.isnan(value)):
            texts.append(None)
        elif isinstance(value, bool | np.bool_):
            texts.append("true" if value else "false")
        elif isinstance(value, str):
            texts.append(value)
        elif isinstance(value, int | np.integer):
            texts.append(str(int(value)))
        elif isinstance(value, float | np.floating):
            texts.append(str(int(value)) if float(value).is_integer() else repr(float(value)))
        elif isinstance(value, Decimal):
            texts.append(None if value.is_nan() else format(value, "f"))
        else:
            raise DataError(f"column {name!r} holds an object that is neither text, number nor truth value")
    return pa.array(texts, pa.string())


def _positions(
    column: pa.Array, values: tuple[str, ...], markers: tuple[str, ...], name: str, *, fractions: bool = False
) -> tuple[IntColumn, npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Positions in `values` (-1: missing or unknown), and which rows are missing and which unknown.

    A fractional number is no category: an error, or with `fractions` just unknown.
    """
    missing = _flags(pc.is_null(column, nan_is_null=True))
    whole = _whole_numbers(values)
    if pa.types.is_integer(column.type) and whole is not None and not _any_whole(markers):
        found = _look_up(column, whole)
    else:
        text = _text(column, name, fractions)
        found = _indices(text, values)
        unfound = (found < 0) & ~missing
        if unfound.any():
            missing = missing | (unfound & (_indices(text, markers) >= 0))
    found = np.where(missing, -1, found)
    return found, missing, (found < 0) & ~missing


def _whole_positions(values: Any, categories: tuple[str, ...], markers: tuple[str, ...]) -> IntColumn | None:
    """Positions of a numpy column of whole numbers by one table look-up, where that is all it takes; -1 for unknown."""
    if not (isinstance(values, np.ndarray) and values.dtype.kind in "iu" and values.dtype != np.uint64):
        return None
    whole = _whole_numbers(categories)
    if whole is None or _any_whole(markers) or int(whole.max()) - int(whole.min()) >= _TABLE_SPAN:
        return None
    low, high = int(whole.min()), int(whole.max())
    table = np.full(high - low + 3, -1, dtype=np.int64)
    table[whole - low + 1] = np.arange(len(whole))
    found: IntColumn = table.take(values.astype(np.int64) - (low - 1), mode="clip")
    return found


def _any_whole(markers: tuple[str, ...]) -> bool:
    return any(_whole_numbers((marker,)) is not None for marker in markers)


def _look_up(column: pa.Array, whole: npt.NDArray[np.int64]) -> IntColumn:
    try:
        return _fill(pc.index_in(column.cast(pa.int64()), value_set=pa.array(whole)))
    except pa.ArrowInvalid:  # a number beyond 64 signed bits is none of the values
        return _indices(column.cast(pa.string()), tuple(str(value) for value in whole))


def _whole_numbers(values: tuple[str, ...]) -> npt.NDArray[np.int64] | None:
    """The values as whole numbers, if each is one in plain form."""
    numbers = []
    for value in values:
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 18 and str(int(value)) == value):
            return None
        numbers.append(int(value))
    return np.array(numbers, dtype=np.int64)


def _text(column: pa.Array, name: str, fractions: bool) -> pa.Array:
    if pa.types.is_floating(column.type):
        filled = pc.fill_null(column, 0.0)
        numbers = np.nan_to_num(filled.to_numpy(zero_copy_only=False), nan=0.0, posinf=0.5, neginf=0.5)
        whole = (numbers == np.floor(numbers)) & (np.abs(numbers) < 2**53)
        if not whole.all() and not fractions:
            raise DataError(
                f"column {name!r}: a category is a fractional number; declare the feature numeric or cast it to text"
            )
        return pa.array(np.where(whole, numbers, 0).astype(np.int64), mask=~whole).cast(pa.string())
    return column if pa.types.is_string(column.type) else column.cast(pa.string())


def _indices(text: pa.Array, values: tuple[str, ...]) -> IntColumn:
    return _fill(pc.index_in(text, value_set=pa.array(values, text.type)))


def _fill(indices: pa.Array) -> IntColumn:
    filled: IntColumn = pc.fill_null(indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return filled


def _flags(flags: pa.Array) -> npt.NDArray[np.bool_]:
    chosen: npt.NDArray[np.bool_] = flags.to_numpy(zero_copy_only=False)
    return chosen


def _numbers(
    column: pa.Array, feature: Numeric, markers: tuple[str, ...]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Numbers as float64, and which rows are missing. Text is parsed after markers are taken out."""
    if pa.types.is_boolean(column.type):
        raise DataError(f"feature {feature.name!r}: numeric in the codebook, truth values in the table")
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        missing = _flags(pc.is_null(column)) | (_indices(column, markers) >= 0)
        if missing.any():
            column = pc.if_else(pa.array(missing), pa.scalar(None, column.type), column)
        column = pc.utf8_trim(column, SPACE)
        unreadable = ~missing & ~_flags(pc.fill_null(pc.match_substring_regex(column, NUMBER_PATTERN), False))
        if unreadable.any():
            raise DataError(
                f"feature {feature.name!r}: {int(unreadable.sum())} rows hold a text that is neither a number nor a missing "
                "marker; add the marker to missing or mend the rows"
            )
        numbers = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    else:
        numbers = column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        missing = np.isnan(numbers)
        for marker in markers:
            number = marker_number(marker)
            if number is not None:
                missing |= numbers == number
    missing = missing | np.isnan(numbers)
    return numbers, missing


def marker_number(text: str) -> float | None:
    """The number that a missing marker stands for in a numeric column, if it reads as one."""
    try:
        return float(text)
    except ValueError:
        return None
