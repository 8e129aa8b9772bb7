"""The first rows of a source and the types of its columns, for the site's own staff: shown, never stored or logged."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from blindbayes.codebook import Codebook
from blindbayes.data.libraries import pa
from blindbayes.data.sources import Source
from blindbayes.data.values import written_text

_LONGEST = 60  # characters of a cell


def first_rows(source: Source, names: Sequence[str], number: int, codebook: Codebook | None = None) -> list[list[str | None]]:
    """Return the first rows of some columns as texts; long ones are cut.

    With a codebook, its numeric features have decimal points, as they are counted.
    """
    rows: list[list[str | None]] = []
    if source._table is not None and names:  # an engine need not send more
        table = (source.table if codebook is None else source.rows(codebook)).select(*names).limit(number)
        batches = source.batches(list(names), codebook, table, any_order=True)
    else:
        batches = source.batches(list(names), codebook, any_order=True)
    for batch in batches:
        columns = [batch[name].slice(0, number - len(rows)).to_pylist() for name in names]
        rows += [[_shown(cell) for cell in row] for row in zip(*columns, strict=True)]
        if len(rows) >= number:
            break
    return list(islice(rows, number))


def _shown(cell: object) -> str | None:
    text = written_text(cell)
    return text if text is None or len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def kinds_of(source: Source) -> dict[str, str]:
    """Return text, number, truth value, date or other for each column. Everything in a text file is text."""
    if source.dialect is not None:
        return dict.fromkeys(source.columns, "text")
    if source._table is not None:
        schema = source.table.schema()
        return {
            name: (
                "text"
                if kind.is_string()
                else "truth value"
                if kind.is_boolean()
                else "number"
                if kind.is_numeric()
                else "date"
                if kind.is_date() or kind.is_timestamp()
                else "other"
            )
            for name, kind in schema.items()
        }
    first = next(source.batches(source.columns, any_order=True), {})
    return {name: _kind(first[name].type) if name in first else "text" for name in source.columns}


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "text"
    if pa.types.is_boolean(kind):
        return "truth value"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    return "date" if pa.types.is_date(kind) or pa.types.is_timestamp(kind) else "other"
