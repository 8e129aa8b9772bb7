"""Count only new rows: those after a mark in an increasing column, added to an earlier count.

The result is exact as long as rows up to the mark do not change. One query therefore counts them, and a table with more or
fewer of them than before is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from blindbayes.codebook import Codebook
from blindbayes.data.counting import Progress, count
from blindbayes.data.expressions import run
from blindbayes.data.libraries import ibis
from blindbayes.data.sources import Source, open_source
from blindbayes.errors import ConfigError, DataError
from blindbayes.statistics import Statistics


@dataclass(frozen=True, slots=True)
class Counted:
    """Exact statistics of all rows up to a mark; like the rows, they must not leave the site."""

    statistics: Statistics
    column: str
    mark: Any  # None: there was no row yet
    rows: int

    def __repr__(self) -> str:
        return f"Counted(column={self.column!r})"  # neither the mark nor a count


def count_new(
    source: Any,
    codebook: Codebook,
    column: str,
    before: Counted | None = None,
    *,
    extra_columns: str = "refuse",
    lenient: bool = False,
    progress: Progress | None = None,
) -> Counted:
    """Return the statistics of a table, counting only rows whose `column` is greater than the mark of `before`.

    `column` holds whole numbers, dates or times, is present in every row, and increases: a serial number or a time of entry.
    Rows that arrive meanwhile are counted next time. For a contribution bound, which needs all rows, use `count_table`.
    """
    opened = open_source(source)
    try:
        if column not in opened.columns:
            raise DataError(f"column {column!r}, which marks new rows, is missing from the table")
        if before is not None and (before.column != column or before.statistics.codebook != codebook):
            raise ConfigError("the earlier count has another column or codebook; count anew")
        table = opened.rows(codebook)
        kind = table[column].type()
        if not (kind.is_integer() or kind.is_date() or kind.is_timestamp()):
            raise DataError(f"column {column!r}, which marks new rows, holds neither whole numbers, dates nor times")
        mark = None if before is None else before.mark
        old = ibis.literal(False) if mark is None else table[column] <= ibis.literal(mark, type=kind)
        marks = table.select(mark=table[column], old=ibis.ifelse(old, 1, 0).cast("int64"))
        queries = {"rows": marks.count(), "filled": marks.mark.count(), "old": marks.old.sum(), "last": marks.mark.max()}
        [facts] = run(marks.aggregate(**queries), column)
        if facts["filled"] != facts["rows"]:
            raise DataError(f"column {column!r}: {facts['rows'] - facts['filled']} rows have no mark; fill them")
        if before is not None and (facts["old"] or 0) != before.rows:
            raise DataError(
                f"column {column!r}: rows at or before the last mark were added or removed since they were counted; count anew"
            )
        if facts["last"] is None or facts["last"] == mark:
            return before or Counted(Statistics.zero(codebook), column, None, 0)
        last = ibis.literal(facts["last"], type=kind)
        fresh = table.filter(table[column] <= last, ~old)
        dropped = () if column in (*codebook.names, codebook.target) else (column,)
        part = Source(opened.label, tuple(fresh.drop(*dropped).columns), None, fresh.drop(*dropped), None, False)
        new = count(part, codebook, extra_columns=extra_columns, lenient=lenient, progress=progress)
        earlier, rows = (Statistics.zero(codebook), 0) if before is None else (before.statistics, before.rows)
        if not lenient and int(new.class_counts.sum()) != facts["rows"] - rows:
            raise DataError("the table changed while it was counted, at or before its last mark; count anew")
        return Counted((earlier + new).require_bounds(), column, facts["last"], facts["rows"])
    finally:
        if opened is not source:
            opened.close()
