"""Convert frames of pandas, polars and Arrow to Arrow tables and columns."""

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
    """Refuse duplicate column names; with `fold`, also names that differ only in case."""
    seen: dict[str, str] = {}
    for name in columns:
        key = name.casefold() if fold else name
        if seen.get(key) == name:
            raise DataError(f"column {name!r} occurs twice in the table; rename or drop one")
        if key in seen:
            raise DataError(f"columns {seen[key]!r} and {name!r} differ only in case; rename or drop one")
        seen[key] = name


def to_arrow(frame: Any, *, lenient: bool = False) -> pa.Table:
    """Return a pandas, polars, Arrow or other narwhals frame as an Arrow table; duplicate column names are refused.

    In a column of mixed objects, one that is neither text, number nor truth value is an error unless `lenient`.
    """
    if isinstance(frame, pa.RecordBatch):
        frame = pa.Table.from_batches([frame])
    if isinstance(frame, pa.Table):
        require_distinct(frame.column_names)
        return frame
    wrapped = _wrapped(frame)
    # by column: a whole frame includes its index, and fails if one column has mixed objects
    columns = {str(name): _frame_column(wrapped[name]) for name in wrapped.columns}
    texts = {
        name: column.texts if lenient and isinstance(column, Untyped) else as_text(column, name)
        for name, column in columns.items()
    }
    return pa.table(texts)


def frame_columns(frame: Any, names: Container[str] | None = None) -> dict[str, Any]:
    """Return the columns of a frame, or those in `names`, as `encode` takes them: of one type, or untyped objects."""
    if isinstance(frame, pa.Table | pa.RecordBatch):
        table = to_arrow(frame)
        return {name: table.column(name) for name in table.column_names if names is None or name in names}
    wrapped = _wrapped(frame)
    columns = zip(map(str, wrapped.columns), wrapped.iter_columns(), strict=True)  # pandas may have numbers for names
    return {name: _plain_column(series) for name, series in columns if names is None or name in names}


def identifier_columns(frame: Any, names: Sequence[str]) -> dict[str, pa.Array]:
    """Return identifier columns of a frame for `contribution_bound`: typed columns unchanged, objects as text.

    1 and 1.0 are equal, since a missing value turns a column into floats; other objects are missing.
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
    text = written_text(value.date() if isinstance(value, datetime) and value == value else value)  # not NaT
    return None if text == NO_TEXT else text


def series_column(series: Any) -> pa.Array | Untyped:
    """Return a pandas or polars series as `frame_columns` does."""
    return _frame_column(nw.from_native(series, series_only=True), inferred=False)


def eager(frame: Any) -> Any:
    """Collect a lazy frame of polars; return anything else unchanged."""
    return frame.collect() if type(frame).__module__.startswith("polars.") and hasattr(frame, "collect") else frame


def _wrapped(frame: Any) -> Any:
    frame = eager(frame)
    require_distinct([str(name) for name in getattr(frame, "columns", [])])
    try:
        return nw.from_native(frame, eager_only=True)
    except TypeError:
        raise DataError(
            f"a {type(frame).__name__} is not a table; pass a pandas, polars or Arrow frame, a path or a URL"
        ) from None


def _plain_column(series: Any) -> Any:
    """Return a column as `encode` takes it; floats of pandas without the copy that Arrow would make."""
    if isinstance(values := getattr(series.to_native(), "_values", None), np.ndarray) and values.dtype == np.float64:
        return values
    return _frame_column(series, inferred=False)


def _frame_column(series: Any, *, inferred: bool = True) -> pa.Array | Untyped:
    """Return a column; with `inferred`, objects get the type that Arrow infers for all of them, if any."""
    if inferred or series.dtype != nw.Object:
        try:
            column: pa.Array = series.to_arrow()
        except (pa.ArrowException, OverflowError, ValueError):
            pass
        else:
            return column
    return untyped(np.asarray(series.to_numpy(), dtype=object))


def plain_types(table: pa.Table) -> pa.Table:
    """Decode dictionaries (DuckDB would make enums of them), and cast null columns to text and half floats to floats."""
    for position, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            table = table.set_column(position, column.name, table.column(position).cast(column.type.value_type))
        elif pa.types.is_null(column.type):
            table = table.set_column(position, column.name, table.column(position).cast(pa.string()))
        elif pa.types.is_float16(column.type):
            table = table.set_column(position, column.name, table.column(position).cast(pa.float32()))
    return table
