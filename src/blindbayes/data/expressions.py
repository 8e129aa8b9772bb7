"""Ibis expressions that count and check a column, the same for every engine.

A categorical column is grouped by its raw value, and the few groups are mapped to the codebook in Python. A numeric column is
mapped to the grid in SQL by floor(x * scale + 0.5), since engines round halves differently.
"""

from __future__ import annotations

import sys
from typing import Any

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.data.engines import decimal_number, fetched, number_text, squared, text_key
from blindbayes.data.libraries import dt, ibis, pa
from blindbayes.data.values import marker_numbers, untyped_column
from blindbayes.errors import DataError

_LARGEST = sys.float_info.max
MAX_GROUPS = 100_000  # beyond those of the codebook; more suggest the wrong column


def grouped(table: Any, codebook: Codebook, feature: str | None, *, every: bool = False) -> tuple[dict[str, pa.Array], bool]:
    """Return numbers of rows by class (`label`) and value of a column, or by class alone, and whether groups were cut off.

    With `every` all groups are listed, however many.
    """
    keys = [_key(table, codebook.target).name("label")]
    if feature is not None:
        keys.append(_key(table, feature).name("value"))
    limit = MAX_GROUPS
    if feature is not None and isinstance(listed := codebook.feature(feature), Categorical):
        limit += (len(codebook.classes) + 1) * (listed.size + len(codebook.markers(listed)) + 1)
    query = table.group_by(keys).agg(rows=lambda t: t.count())
    groups = _fetched(query if every else query.limit(limit + 1), feature or codebook.target)
    listed_groups = groups if every else groups.slice(0, limit)
    columns = {name: _texts(listed_groups.column(name).combine_chunks()) for name in listed_groups.column_names}
    return columns, groups.num_rows > listed_groups.num_rows


def numeric(
    table: Any, codebook: Codebook, feature: Numeric, *, wide: tuple[bool, bool], lenient: bool = False
) -> list[dict[str, Any]]:
    """Return per class label: rows, missing, unreadable, outside, n, sum and square of codes (or rows per bin).

    `wide` states whether sums, and squares, need more than 63 bits and are added as decimals of 38 digits. With `lenient`
    numbers out of bounds are clipped, and infinite or unreadable ones are missing.
    """
    read = _read(table, codebook, feature, lenient=lenient)
    # Clip to just outside the bounds first: engines refuse to scale or cast numbers that are too large.
    margin = 0 if lenient else 2 * feature.precision
    grid = (read.number.clip(feature.low - margin, feature.high + margin) * feature.scale + 0.5).floor()
    read = read.mutate(point=grid.cast("float64"))
    point, fits = read.point, ~read.missing & ~read.unreadable
    inside = ibis.literal(True) if lenient else (point >= float(feature.grid_low)) & (point <= float(feature.grid_high))
    flagged = read.select(
        "label",
        absent=_one(read.missing),
        unreadable=_one(read.unreadable),
        outside=_one(fits & ~inside),
        code=ibis.ifelse(fits & inside, point, ibis.null("float64")).cast("int64") - feature.centre,
    )
    code = flagged.code
    if feature.bins is not None:
        equal = ((code - feature.code_low) * feature.bins) // feature.width if feature.equal_cells else None
        flagged = flagged.mutate(cell=_cell(code, feature.starts) if equal is None else equal)
        keys, sums = ["label", "cell"], {}
    else:
        keys = ["label"]
        square = _total(squared(code, wide=wide[1]), wide[1])
        sums = {"n": code.count(), "sum": _total(code, wide[0]), "square": square}
    query = flagged.group_by(keys).agg(
        rows=flagged.count(),
        absent=flagged.absent.sum(),
        unreadable=flagged.unreadable.sum(),
        outside=flagged.outside.sum(),
        **sums,
    )
    return run(query, feature.name)


def _cell(code: Any, starts: tuple[int, ...], first: int = 0) -> Any:
    """Return the cell of a code by binary search in the first codes of cells."""
    if len(starts) == 1:
        return ibis.ifelse(code.isnull(), ibis.null("int64"), ibis.literal(first).cast("int64"))
    half = len(starts) // 2
    return ibis.ifelse(code < starts[half], _cell(code, starts[:half], first), _cell(code, starts[half:], first + half))


def run(query: Any, name: str) -> list[dict[str, Any]]:
    """Return the rows of a query about a column."""
    return [{name: _text(cell) for name, cell in row.items()} for row in _fetched(query, name).to_pylist()]


def _fetched(query: Any, name: str) -> pa.Table:
    # an engine's message may quote a row: report only its type
    try:
        return fetched(query)
    except Exception as cause:
        problem = type(cause).__name__
    raise DataError(f"column {name!r}: the data source failed while counting ({problem})")


def _texts(column: pa.Array) -> pa.Array:
    if not pa.types.is_binary(column.type):
        return column
    return pa.array([_text(cell) for cell in column.to_pylist()], pa.string())


def _text(cell: Any) -> Any:
    return cell.decode(errors="replace") if isinstance(cell, bytes) else cell


def _one(flag: Any) -> Any:
    return ibis.ifelse(flag, 1, 0).cast("int64")  # PostgreSQL does not cast truth values to 64 bits


def _total(values: Any, wide: bool) -> Any:
    return (values.cast("decimal(38, 0)") if wide else values).sum()  # null of no rows, and of more than Spark can hold


def _read(table: Any, codebook: Codebook, feature: Numeric, *, lenient: bool) -> Any:
    """Return the label and number of each row, and whether the number is missing or unreadable (`lenient`: missing too).

    Each step is a query of its own, since SQL repeats an expression as often as it is used.
    """
    column, label = table[feature.name], _key(table, codebook.target)
    kind = column.type()
    markers = codebook.markers(feature)
    gone = marker_numbers(markers)
    if kind.is_string():
        marked = (column.isnull() | column.isin(markers)).coalesce(True)
        read = table.select(label=label, marked=marked, text=ibis.ifelse(marked, ibis.null("string"), column))
        read = read.select("label", "marked", number=number_text(read.text).cast("float64"))
        missing = read.number.isnull() if lenient else read.marked
        odd = ibis.literal(False) if lenient else ~read.marked & read.number.isnull()
        missing = missing | read.number.isin(gone).coalesce(False) if gone else missing
        return read.select("label", number=read.number.coalesce(0.0), missing=missing, unreadable=odd)
    if kind.is_boolean():
        raise DataError(f"feature {feature.name!r}: numeric in the codebook, truth values in the table")
    if not kind.is_numeric():
        raise untyped_column(feature.name)
    read = table.select(label=label, number=decimal_number(column) if kind.is_decimal() else column.cast("float64"))
    missing = read.number.isnull()
    if kind.is_floating() or kind.is_decimal():  # PostgreSQL's decimals know NaN too
        missing = missing | read.number.isnan()
        missing = missing | (read.number > _LARGEST) | (read.number < -_LARGEST) if lenient else missing  # Spark has no isinf
    missing = missing | read.number.isin(gone) if gone else missing
    read = read.mutate(missing=missing.coalesce(True))
    return read.select("label", "missing", number=ibis.ifelse(read.missing, 0.0, read.number), unreadable=ibis.literal(False))


def _key(table: Any, name: str) -> Any:
    """Return a column to group by: texts by their bytes, decimals as floats, since Arrow does not support all decimals."""
    column = table[name]
    kind = column.type()
    if not isinstance(kind, dt.String | dt.Boolean | dt.Integer | dt.Floating | dt.Decimal):
        raise untyped_column(name)
    if kind.is_string():
        return text_key(column)
    return decimal_number(column) if kind.is_decimal() else column
