"""The Ibis expressions behind counting and checking: one per column, the same for every engine.

A categorical column is grouped by its raw value and mapped to the codebook in Python, where the groups are few; a numeric
column is put on the grid in SQL by floor(x * scale + 0.5), since engines round halves differently.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.data.values import NUMBER_PATTERN, marker_numbers
from blindbayes.errors import DataError
from blindbayes.lazy import lazy

if TYPE_CHECKING:
    import ibis
    import ibis.expr.datatypes as dt
else:
    ibis = lazy("ibis")
    dt = lazy("ibis.expr.datatypes")

MAX_GROUPS = 100_000  # groups beyond those of the codebook; more means the wrong column


@dataclass(frozen=True, slots=True)
class ValueCount:
    """Rows of one class label and one value."""

    label: Any
    value: Any
    rows: int


def grouped(table: Any, codebook: Codebook, feature: str | None, *, every: bool = False) -> tuple[list[ValueCount], bool]:
    """Rows by class and value of one column (or by class alone), and whether there were too many groups to list.

    With `every` all groups are listed, however many.
    """
    keys = [_key(table, codebook.target).name("label")]
    if feature is not None:
        keys.append(_key(table, feature).name("value"))
    limit = MAX_GROUPS
    if feature is not None and isinstance(listed := codebook.feature(feature), Categorical):
        limit += (len(codebook.classes) + 1) * (listed.size + len(codebook.markers(listed)) + 1)
    query = table.group_by(keys).agg(rows=lambda t: t.count())
    rows = run(query if every else query.limit(limit + 1), feature or codebook.target)
    found = [ValueCount(row["label"], row.get("value"), int(row["rows"])) for row in rows]
    return (found, False) if every else (found[:limit], len(found) > limit)


def numeric(
    table: Any, codebook: Codebook, feature: Numeric, *, wide: tuple[bool, bool], total: bool = False
) -> list[dict[str, Any]]:
    """Per class label: rows, missing, unreadable, outside, n, sum and square of codes (or rows per bin).

    `wide` says whether sums, and squares, need more than 63 bits; those are added as decimals of 38 digits. With `total` a
    number out of bounds is clipped, and what is none, or infinite, is missing.
    """
    numbers, missing, unreadable = _numbers(table, codebook, feature, total=total)
    # Clipped to just outside the bounds first: engines refuse to scale, or to cast, what is too large for them.
    margin = 0 if total else 2 * feature.precision
    point = (numbers.clip(feature.low - margin, feature.high + margin) * feature.scale + 0.5).floor()
    inside = ibis.literal(True) if total else (point >= float(feature.grid_low)) & (point <= float(feature.grid_high))
    usable = ~missing & ~unreadable & inside
    code = ibis.ifelse(usable, point, ibis.null("float64")).cast("int64") - feature.centre
    flags = {
        "label": _key(table, codebook.target),
        "absent": _one(missing),
        "unreadable": _one(unreadable),
        "outside": _one(~missing & ~unreadable & ~inside),
    }
    if feature.bins is not None:
        cell = (
            ((code - feature.code_low) * feature.bins) // feature.width if feature.equal_cells else _cell(code, feature.starts)
        )
        flagged = table.select(**flags, cell=cell)
        keys = ["label", "cell"]
        sums: dict[str, Any] = {}
    else:
        flagged = table.select(**flags, code=code)
        keys = ["label"]
        sums = {
            "n": flagged.code.count(),
            "sum": _total(flagged.code, wide[0]),
            "square": _total(_squared(flagged.code, wide[1]), wide[1]),
        }
    query = flagged.group_by(keys).agg(
        rows=flagged.count(),
        absent=flagged.absent.sum(),
        unreadable=flagged.unreadable.sum(),
        outside=flagged.outside.sum(),
        **sums,
    )
    return run(query, feature.name)


def _cell(code: Any, starts: tuple[int, ...], first: int = 0) -> Any:
    """The cell of a code by its first codes: halving, so that a row costs few comparisons."""
    if len(starts) == 1:
        return ibis.ifelse(code.isnull(), ibis.null("int64"), ibis.literal(first).cast("int64"))
    half = len(starts) // 2
    return ibis.ifelse(code < starts[half], _cell(code, starts[:half], first), _cell(code, starts[half:], first + half))


def run(query: Any, name: str) -> list[dict[str, Any]]:
    """Rows of a query about a column. An engine's error text may quote a row, so only its kind goes on."""
    try:
        rows: list[dict[str, Any]] = query.to_pyarrow().to_pylist()
    except Exception as cause:
        problem = type(cause).__name__
    else:
        return rows
    raise DataError(f"column {name!r}: the data source failed while counting ({problem})")


def _one(flag: Any) -> Any:
    return ibis.ifelse(flag, 1, 0).cast("int64")  # PostgreSQL does not cast truth values to 64 bits


def _squared(code: Any, wide: bool) -> Any:
    if wide:
        code = code.cast("decimal(19, 0)")
        return (code * code).cast("decimal(38, 0)")
    return code * code


def _total(values: Any, wide: bool) -> Any:
    if wide:
        return values.cast("decimal(38, 0)").sum().coalesce(ibis.literal(0).cast("decimal(38, 0)"))
    return values.sum().coalesce(0)


def _numbers(table: Any, codebook: Codebook, feature: Numeric, *, total: bool) -> tuple[Any, Any, Any]:
    """Numbers, which rows are missing, and which hold something else; with `total` those are missing too.

    An expression stands in the query as often as it is used, so each is used sparingly.
    """
    column = table[feature.name]
    kind = column.type()
    markers = codebook.markers(feature)
    gone = marker_numbers(markers)
    never = ibis.literal(False)
    if kind.is_string():
        marked = (column.isnull() | column.isin(markers)).coalesce(True)
        trimmed = column.strip()  # of ASCII space, as SPACE in the Arrow path
        readable = (~marked & trimmed.re_search(NUMBER_PATTERN)).coalesce(False)
        numbers = ibis.ifelse(readable, trimmed, ibis.null("string")).cast("float64")
        missing = ~readable if total else marked
        if gone:
            missing = missing | numbers.isin(gone).coalesce(False)
        return numbers.coalesce(0.0), missing, never if total else ~marked & ~readable
    if not kind.is_numeric():
        raise DataError(f"feature {feature.name!r}: numeric in the codebook, {type(kind).__name__.lower()} in the table")
    if kind.is_decimal() and (kind.precision is None or kind.precision > 15):
        column = column.cast("string")  # longer decimals than 2^53 are rounded twice by some engines, their text once
    numbers = column.cast("float64")
    missing = numbers.isnull()
    if kind.is_floating() or kind.is_decimal():  # PostgreSQL's decimals know NaN too
        missing = missing | numbers.isnan()
        missing = missing | numbers.isinf() if total else missing
    if gone:
        missing = missing | numbers.isin(gone)
    missing = missing.coalesce(True)
    return ibis.ifelse(missing, 0.0, numbers), missing, never


def _key(table: Any, name: str) -> Any:
    """A column to group by. A decimal is read as a float: an engine may have decimals that Arrow has not."""
    column = table[name]
    kind = column.type()
    if not isinstance(kind, dt.String | dt.Boolean | dt.Integer | dt.Floating | dt.Decimal):
        raise DataError(f"column {name!r} has a type that is neither text, number nor truth value; cast it before")
    return column.cast("float64") if kind.is_decimal() else column
