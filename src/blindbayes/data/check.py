"""Report what in a source does not fit the codebook, as counts per column.

The report stays at the site. Its text and JSON contain counts only; `ColumnReport.unmapped_codes` has the unmapped values, for
readers who may see the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from blindbayes.codebook import Codebook, Feature
from blindbayes.data.counting import look_there
from blindbayes.data.encode import encode_column, encode_labels
from blindbayes.data.sources import open_source
from blindbayes.data.values import WORKBOOK, Misfit, Misfits, UnreadableDates
from blindbayes.errors import DataError


@dataclass(slots=True)
class ColumnReport:
    """Numbers of rows of a column that are missing, unmapped, unreadable or out of bounds."""

    name: str
    missing: int = 0
    unmapped: int = 0
    unreadable: int = 0
    out_of_bounds: int = 0
    problem: str = ""
    note: str = ""  # about rows that count as missing
    unmapped_codes: Counter[str] = field(default_factory=Counter, repr=False)

    def to_dict(self) -> dict[str, Any]:
        names = ("name", "missing", "unmapped", "unreadable", "out_of_bounds", "problem", "note")
        return {name: getattr(self, name) for name in names}


@dataclass(slots=True)
class CheckReport:
    """Report on all columns of a source."""

    rows: int
    columns: list[ColumnReport]

    @property
    def ok(self) -> bool:
        """True if `count` would accept the source."""
        return not any(column.problem for column in self.columns)

    @property
    def empty(self) -> list[str]:
        """Columns without a value in any row. `count` accepts them, but dates in another order look like that, too."""
        return [each.name for each in self.columns if self.rows and each.missing + each.unreadable == self.rows]

    def to_dict(self) -> dict[str, Any]:
        columns = [column.to_dict() for column in self.columns]
        return {"rows": self.rows, "ok": self.ok, "empty": self.empty, "columns": columns}


def check(
    source: Any,
    codebook: Codebook,
    *,
    extra_columns: str = "refuse",
    only: Collection[str] | None = None,
) -> CheckReport:
    """Count the misfits of every column, or of the columns in `only`."""
    opened = open_source(source)
    every: dict[str, Feature | None] = {codebook.target: None, **{feature.name: feature for feature in codebook.features}}
    wanted = {name: feature for name, feature in every.items() if only is None or name in only}
    wrong: dict[str, str] = {}
    misfits, rows = Misfits(codes=True, workbook=opened.label == "excel"), 0
    try:
        if only is None:
            opened.require_columns(codebook, extra_columns=extra_columns)
        is_here = opened.is_local or only is not None
        if not is_here:
            rows = look_there(opened, codebook, misfits, wrong)
        for columns in opened.batches(list(wanted), codebook) if is_here else ():
            rows += len(columns[next(iter(wanted))])
            for name, feature in wanted.items():
                try:
                    if name not in wrong:
                        _look(columns[name], feature, codebook, misfits)
                except DataError as problem:
                    wrong[name] = str(problem)
            if opened.watch is not None:
                opened.watch(rows, 0, "rows")
        dates = opened.unreadable_dates(codebook)
    finally:
        if opened is not source:
            opened.close()
    reports = [_report(misfits[name], rows, feature, wrong, dates.get(name)) for name, feature in wanted.items()]
    if rows > codebook.max_rows:
        reports[0].problem = f"more rows than max_rows = {codebook.max_rows}"
    return CheckReport(rows, reports)


def _look(column: Any, feature: Feature | None, codebook: Codebook, misfits: Misfits) -> None:
    if feature is None:
        encode_labels(column, codebook, misfits=misfits)
    else:
        encode_column(column, feature, codebook.markers(feature), training=True, misfits=misfits)


def _report(
    misfit: Misfit, rows: int, feature: Feature | None, wrong: dict[str, str], dates: UnreadableDates | None
) -> ColumnReport:
    report = ColumnReport(misfit.name, misfit.missing, misfit.unmapped, misfit.unreadable, misfit.outside)
    report.unmapped_codes = misfit.codes or Counter()
    problems = (
        (misfit.name in wrong, wrong.get(misfit.name, "")),
        (misfit.fractional, "fractional numbers where categories are expected"),
        (misfit.many or len(report.unmapped_codes) > _MANY, "far more distinct values than the codebook lists"),
        (misfit.unmapped, "categories that the codebook does not list"),
        (
            misfit.unreadable,
            f"texts that are not numbers, in {'all' if misfit.unreadable == rows else 'some'} rows: "
            f"{WORKBOOK if misfit.workbook else _MARKS}; {_ELSE}",
        ),
        (misfit.outside, "out of bounds"),
        (misfit.missing and (feature is None or not feature.optional), "missing, and not optional"),
    )
    if dates is not None:
        report.missing -= dates.rows
        report.unreadable += dates.rows
        report.note = f"{dates}; it counts as missing"
    report.problem = next((words for is_so, words in problems if is_so), "")
    return report


_MANY = 100_000
_MARKS = "--decimal , reads decimal commas, --thousands . separated thousands"
_ELSE = "a map (--map) makes numbers of dates; [missing] lists markers"
