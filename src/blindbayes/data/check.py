"""What in a source does not fit the codebook: counts per column, for the site's own eyes.

The report never leaves the site by itself. Its text and JSON hold counts only; the unmapped codes themselves are kept apart
in `ColumnReport.unmapped_codes` for a screen whose reader may see the rows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from blindbayes.codebook import Categorical, Codebook
from blindbayes.data.counting import Progress
from blindbayes.data.expressions import grouped, numeric
from blindbayes.data.sources import open_source
from blindbayes.data.values import ABSENT, UNKNOWN, Listed, is_whole, plain_text
from blindbayes.errors import DataError


@dataclass(slots=True)
class ColumnReport:
    """One column: how many rows are missing, unmapped, unreadable or out of bounds."""

    name: str
    missing: int = 0
    unmapped: int = 0
    unreadable: int = 0
    out_of_bounds: int = 0
    problem: str = ""
    unmapped_codes: Counter[str] = field(default_factory=Counter, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Counts only."""
        names = ("name", "missing", "unmapped", "unreadable", "out_of_bounds", "problem")
        return {name: getattr(self, name) for name in names}


@dataclass(slots=True)
class CheckReport:
    """The whole source against the codebook."""

    rows: int
    columns: list[ColumnReport]

    @property
    def ok(self) -> bool:
        """Whether `count` would accept the source."""
        return not any(column.problem for column in self.columns)

    def to_dict(self) -> dict[str, Any]:
        """Counts only."""
        return {"rows": self.rows, "ok": self.ok, "columns": [column.to_dict() for column in self.columns]}


def check(source: Any, codebook: Codebook, *, extra_columns: str = "refuse", progress: Progress | None = None) -> CheckReport:
    """Go through every column and count what does not fit, instead of stopping at the first."""
    opened = open_source(source)
    try:
        opened.require_columns(codebook, extra_columns=extra_columns)
        names = [codebook.target, *codebook.names]
        reports = []
        rows = 0
        for done, name in enumerate(names):
            if progress is not None:
                progress(done, len(names), name)
            if name == codebook.target:
                listed = Listed(codebook.classes, codebook.label_markers)
                report = _categorical(opened.table, codebook, name, listed, required=True)
                rows = int(opened.table.count().to_pyarrow().as_py())
            else:
                feature = codebook.feature(name)
                if isinstance(feature, Categorical):
                    listed = Listed(feature.values, codebook.markers(feature), feature.other)
                    report = _categorical(opened.table, codebook, name, listed, required=not feature.optional)
                else:
                    report = _numeric(opened.table, codebook, name)
            reports.append(report)
        if rows > codebook.max_rows:
            reports[0].problem = f"more rows than max_rows = {codebook.max_rows}"
        return CheckReport(rows, reports)
    finally:
        if opened is not source:
            opened.close()


def _categorical(table: Any, codebook: Codebook, name: str, listed: Listed, *, required: bool) -> ColumnReport:
    report = ColumnReport(name)
    try:
        groups, many = grouped(table, codebook, None if name == codebook.target else name)
    except DataError as problem:
        report.problem = str(problem)
        return report
    for item in groups:
        raw = item.label if name == codebook.target else item.value
        text = plain_text(raw)
        at = listed.position(text)
        if at == ABSENT:
            report.missing += item.rows
        elif at == UNKNOWN:
            report.unmapped += item.rows
            if isinstance(raw, float) and not is_whole(raw):
                report.problem = "fractional numbers where categories are expected"
            else:
                report.unmapped_codes[str(text)] += item.rows
    if many:
        report.problem = "far more distinct values than the codebook lists"
    elif report.unmapped and not report.problem:
        report.problem = "categories that the codebook does not list"
    elif required and report.missing:
        report.problem = "missing, and not optional"
    return report


def _numeric(table: Any, codebook: Codebook, name: str) -> ColumnReport:
    report = ColumnReport(name)
    feature = codebook.feature(name)
    if isinstance(feature, Categorical):
        raise AssertionError("unreachable: categorical features are checked elsewhere")
    try:
        rows = numeric(table, codebook, feature, wide=(True, True))
    except DataError as problem:
        report.problem = str(problem)
        return report
    report.missing = sum(int(row["absent"]) for row in rows)
    report.unreadable = sum(int(row["unreadable"]) for row in rows)
    report.out_of_bounds = sum(int(row["outside"]) for row in rows)
    if report.unreadable:
        report.problem = "texts that are not numbers"
    elif report.out_of_bounds:
        report.problem = "out of bounds"
    elif report.missing and not feature.optional:
        report.problem = "missing, and not optional"
    return report
