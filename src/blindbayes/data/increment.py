"""Counting what is new: rows after a mark in a column that only grows, added to what was counted before.

A day's rows are counted instead of ten years'. That is right as long as rows at or before the mark stand still; so they are
numbered, by one cheap query, and a table that has more or fewer of them than were counted is refused.
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
    """Statistics of all rows up to a mark. Exact, so it stays at the site, like the rows."""

    statistics: Statistics
    column: str
    mark: Any  # None: no row was there yet
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
    """The statistics of a table, of which those of `before` are known: only rows whose `column` is greater are counted.

    `column` holds whole numbers, dates or times, is filled in every row, and grows: a running number, a time of entry. Rows
    that come in meanwhile are counted the next time. A bound on the rows of a person needs all of them: use `count_table`.
    """
    opened = open_source(source)
    try:
        if column not in opened.columns:
            raise DataError(f"column {column!r}, by which new rows are told, is missing from the table")
        if before is not None and (before.column != column or before.statistics.codebook != codebook):
            raise ConfigError("what was counted before has another column or codebook; count anew")
        table = opened.rows(codebook)
        kind = table[column].type()
        if not (kind.is_integer() or kind.is_date() or kind.is_timestamp()):
            raise DataError(f"column {column!r}, by which new rows are told, holds neither whole numbers, dates nor times")
        mark = None if before is None else before.mark
        old = ibis.literal(False) if mark is None else table[column] <= ibis.literal(mark, type=kind)
        marks = table.select(mark=table[column], old=ibis.ifelse(old, 1, 0).cast("int64"))
        facts = {"rows": marks.count(), "filled": marks.mark.count(), "old": marks.old.sum(), "last": marks.mark.max()}
        [found] = run(marks.aggregate(**facts), column)
        if found["filled"] != found["rows"]:
            raise DataError(f"column {column!r}: {found['rows'] - found['filled']} rows have no mark; fill them")
        if before is not None and (found["old"] or 0) != before.rows:
            raise DataError(
                f"column {column!r}: rows at or before the last mark were added or removed since they were counted; count anew"
            )
        if found["last"] is None or found["last"] == mark:
            return before or Counted(Statistics.zero(codebook), column, None, 0)
        last = ibis.literal(found["last"], type=kind)
        fresh = table.filter(table[column] <= last, ~old)
        kept = () if column in (*codebook.names, codebook.target) else (column,)
        part = Source(opened.label, tuple(fresh.drop(*kept).columns), None, fresh.drop(*kept), None, False)
        new = count(part, codebook, extra_columns=extra_columns, lenient=lenient, progress=progress)
        earlier, rows = (Statistics.zero(codebook), 0) if before is None else (before.statistics, before.rows)
        if not lenient and int(new.class_counts.sum()) != found["rows"] - rows:
            raise DataError("the table changed while it was counted, at or before its last mark; count anew")
        return Counted((earlier + new).require_bounds(), column, found["last"], found["rows"])
    finally:
        if opened is not source:
            opened.close()
