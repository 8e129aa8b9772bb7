"""Frames of pandas, polars and Arrow as Arrow tables and columns."""

from __future__ import annotations

from collections.abc import Container, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from blindbayes.data.encode import as_text
from blindbayes.data.libraries import nw, pa
from blindbayes.data.values import NO_TEXT, Untyped, untyped, written_text
from blindbayes.errors import DataError


def require_distinct(columns: Sequence[str], *, fold: bool = False) -> None:
    """Refuse a column name that stands twice; with `fold`, also one that differs from another only in case."""
    seen: dict[str, str] = {}
    for name in columns:
        key = name.casefold() if fold else name
        if seen.get(key) == name:
            raise DataError(f"column {name!r} occurs twice in the table; rename or drop one")
        if key in seen:
            raise DataError(f"columns {seen[key]!r} and {name!r} differ only in case; rename or drop one")
        seen[key] = name


def to_arrow(frame: Any, *, lenient: bool = False) -> pa.Table:
    """An Arrow table from a pandas, polars, Arrow or other narwhals frame; duplicate column names are refused.

    An object that is neither text, number nor truth value, in a column of mixed ones, is an error unless `lenient`.
    """
    if isinstance(frame, pa.RecordBatch):
        frame = pa.Table.from_batches([frame])
    if isinstance(frame, pa.Table):
        require_distinct(frame.column_names)
        return frame
    wrapped = _wrapped(frame)
    # Column by column: a frame as a whole brings its index along, and one column of mixed objects stops them all.
    found = {str(name): _frame_column(wrapped[name]) for name in wrapped.columns}
    texts = {
        name: column.texts if lenient and isinstance(column, Untyped) else as_text(column, name)
        for name, column in found.items()
    }
    return pa.table(texts)


def frame_columns(frame: Any, names: Container[str] | None = None) -> dict[str, Any]:
    """The columns of a frame as `encode` takes them: of one type, or value by value where a frame holds objects.

    `names` picks some of them.
    """
    if isinstance(frame, pa.Table | pa.RecordBatch):
        table = to_arrow(frame)
        return {name: table.column(name) for name in table.column_names if names is None or name in names}
    wrapped = _wrapped(frame)
    found = zip(map(str, wrapped.columns), wrapped.iter_columns(), strict=True)  # pandas may have numbers for names
    return {name: _plain_column(series) for name, series in found if names is None or name in names}


def identifier_columns(frame: Any, names: Sequence[str]) -> dict[str, pa.Array]:
    """Columns of a frame as `persons` takes identifiers: whole numbers, dates and texts as they are, objects one by one.

    1 and 1.0 are one, since a missing one makes floats of a column; an object that is neither text, number nor date is none.
    """
    columns = frame if isinstance(frame, pa.Table | pa.RecordBatch) else _wrapped(frame)
    return {name: _identifiers(columns[name]) for name in names}


def _identifiers(column: Any) -> pa.Array:
    typed = column if isinstance(column, pa.Array | pa.ChunkedArray) else _frame_column(column, inferred=False)
    if not isinstance(typed, Untyped) and not pa.types.is_floating(typed.type):
        return typed
    values = column.to_list() if isinstance(typed, Untyped) else typed.to_pylist()
    return pa.array([_identifier(value) for value in values], pa.string())


def _identifier(value: Any) -> str | None:
    text = written_text(value.date() if isinstance(value, datetime) and value == value else value)  # NaT is one, and no date
    return None if text == NO_TEXT else text


def series_column(series: Any) -> pa.Array | Untyped:
    """One column of pandas or polars, as `frame_columns` has those of a frame."""
    return _frame_column(nw.from_native(series, series_only=True), inferred=False)


def eager(frame: Any) -> Any:
    """A lazy frame of polars, collected; anything else as it is."""
    return frame.collect() if type(frame).__module__.startswith("polars.") and hasattr(frame, "collect") else frame


def _wrapped(frame: Any) -> Any:
    frame = eager(frame)
    require_distinct([str(name) for name in getattr(frame, "columns", [])])
    try:
        return nw.from_native(frame, eager_only=True)
    except TypeError:
        raise DataError(
            f"a {type(frame).__name__} is no table; pass a pandas, polars or Arrow frame, a path or a URL"
        ) from None


def _plain_column(series: Any) -> Any:
    """A column as `encode` takes it; floats of pandas as the array that holds them, where Arrow would copy them."""
    if isinstance(values := getattr(series.to_native(), "_values", None), np.ndarray) and values.dtype == np.float64:
        return values
    return _frame_column(series, inferred=False)


def _frame_column(series: Any, *, inferred: bool = True) -> pa.Array | Untyped:
    """A column; with `inferred` one of objects is of the type that Arrow finds for all of them, if it does."""
    if inferred or series.dtype != nw.Object:
        try:
            column: pa.Array = series.to_arrow()
        except (pa.ArrowException, OverflowError, ValueError):
            pass
        else:
            return column
    return untyped(np.asarray(series.to_numpy(), dtype=object))


def plain_types(table: pa.Table) -> pa.Table:
    """Dictionary columns as plain ones (DuckDB makes enums of them), nulls-only columns as text, half floats as floats."""
    for position, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            table = table.set_column(position, column.name, table.column(position).cast(column.type.value_type))
        elif pa.types.is_null(column.type):
            table = table.set_column(position, column.name, table.column(position).cast(pa.string()))
        elif pa.types.is_float16(column.type):
            table = table.set_column(position, column.name, table.column(position).cast(pa.float32()))
    return table
