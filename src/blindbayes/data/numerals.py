"""Declared ways to write numbers and missing values in a table: decimal comma, thousands separators, markers.

Each cell is converted independently of all others, and only as declared. Where thousands are separated by points, 1.234 is
1234, and 1.5 is not a number: it remains unreadable, so that a wrong declaration is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

from blindbayes.data.libraries import ibis, pa, pc
from blindbayes.data.values import marker_numbers
from blindbayes.errors import ConfigError

THOUSANDS = {".": "[.]", ",": "[,]", " ": "[ \u00a0\u202f]", "'": "['\u2019]"}
"""Separators of thousands that can be declared, as regular expressions; the blank includes those that do not break."""

_POINT = "[0-9][.][0-9]"
_NOT_A_NUMBER = "'"  # in place of a point that separates neither thousands nor decimals


def require_marks(decimal: str, thousands: str) -> None:
    """Raise `ConfigError` unless these decimal and thousands marks differ and are supported."""
    if decimal not in (".", ","):
        raise ConfigError("the decimal mark must be '.' or ','")
    if thousands and (thousands not in THOUSANDS or thousands == decimal):
        raise ConfigError("thousands must be '.', ',', a blank or an apostrophe, and not the decimal mark")


def _grouped(decimal: str, thousands: str) -> str:
    return rf"^\s*[+-]?[0-9]{{1,3}}({THOUSANDS[thousands]}[0-9]{{3}})+([{decimal}][0-9]+)?\s*$"


def with_points(column: Any, decimal: str, thousands: str = "") -> Any:
    """Return a column of an Arrow batch whose numbers have a decimal point and no separators; other types are unchanged."""
    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(column.indices, with_points(column.dictionary, decimal, thousands))
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    if thousands:
        joined = pc.replace_substring_regex(column, THOUSANDS[thousands], "")
        other = column
        if thousands == ".":
            unclear = pc.match_substring_regex(column, _POINT)
            other = pc.if_else(unclear, pc.replace_substring(column, ".", _NOT_A_NUMBER), column)
        column = pc.if_else(pc.match_substring_regex(column, _grouped(decimal, thousands)), joined, other)
    return pc.replace_substring(column, ",", ".") if decimal == "," else column


def with_points_there(value: Any, decimal: str, thousands: str = "") -> Any:
    """Return a text expression of Ibis converted like `with_points`."""
    if thousands:
        joined = value.re_replace(THOUSANDS[thousands], "")
        other = value
        if thousands == ".":
            other = ibis.ifelse(value.re_search(_POINT), value.replace(".", _NOT_A_NUMBER), value)
        value = ibis.ifelse(value.re_search(_grouped(decimal, thousands)), joined, other)
    return value.replace(",", ".") if decimal == "," else value


def without_markers(rows: Callable[..., Iterator[Any]], markers: Sequence[str]) -> Callable[..., Iterator[Any]]:
    """Return a reader of batches in which marker cells are null."""
    texts = pa.array(list(markers), pa.string())
    numbers = pa.array(marker_numbers(markers), pa.float64())

    def cleared(column: Any) -> Any:
        kind = column.type
        if pa.types.is_dictionary(kind):
            marked = pc.take(pc.is_in(column.dictionary.cast(pa.string()), value_set=texts), column.indices)
            indices = pc.if_else(marked, pa.scalar(None, column.indices.type), column.indices)
            return pa.DictionaryArray.from_arrays(indices, column.dictionary)
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return pc.if_else(pc.is_in(column, value_set=texts.cast(kind)), pa.scalar(None, kind), column)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            marked = pc.is_in(column.cast(pa.float64(), safe=False), value_set=numbers)
            return pc.if_else(marked, pa.scalar(None, kind), column)
        return column

    def read(names: Sequence[str], coded: Container[str] = ()) -> Iterator[Any]:
        for batch in rows(names, coded=coded):
            yield pa.record_batch([cleared(column) for column in batch.columns], batch.schema.names)

    return read


def without_markers_there(table: Any, markers: Sequence[str]) -> Any:
    """Return an Ibis table in which marker cells are null."""
    numbers = list(marker_numbers(markers))
    changed = []
    for name in table.columns:
        column, kind = table[name], table[name].type()
        if kind.is_string():
            changed.append(ibis.ifelse(column.isin(list(markers)), ibis.null(kind), column).name(name))
        elif kind.is_numeric() and numbers:
            changed.append(ibis.ifelse(column.cast("float64").isin(numbers), ibis.null(kind), column).name(name))
    return table.mutate(changed) if changed else table
