"""Exact statistics of a source: one query per column, integers out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Codebook, Feature, Numeric
from blindbayes.data.expressions import grouped, numeric
from blindbayes.data.persons import Persons, bounded
from blindbayes.data.sources import open_source
from blindbayes.data.values import ABSENT, UNKNOWN, Listed, is_whole, plain_text
from blindbayes.errors import DataError
from blindbayes.statistics import Layout, Statistics

Progress = Callable[[int, int, str], None]  # columns done, columns in all, name of the next


def count(
    source: Any,
    codebook: Codebook,
    *,
    extra_columns: str = "refuse",
    progress: Progress | None = None,
    total: bool = False,
    persons: Persons | None = None,
) -> Statistics:
    """The exact statistics of a frame, path, URL or Ibis table, by an engine; or an error that names column and rule.

    `total` is for private statistics: no row is an error; `persons` bounds the rows of a person. See `count_table`.
    """
    opened = open_source(source)
    try:
        opened.require_columns(codebook, extra_columns=extra_columns)
        table = opened.table if persons is None else opened.kept(bounded(opened.table, codebook, persons))
        layout = Layout(codebook)
        vector = np.zeros(layout.size, dtype=object)
        steps = len(codebook.features) + 1
        _tell(progress, 0, steps, codebook.target)
        labels = Labels(codebook)
        groups, many = grouped(table, codebook, None, every=total)
        labels.require_few(many)
        for item in groups:
            if (at := labels.position(item.label, item.rows)) is not None:
                vector[at] += item.rows
        if not total:
            labels.require_clean()
        if int(vector.sum()) > codebook.max_rows:
            raise DataError(f"more rows than the codebook's max_rows = {codebook.max_rows}; raise it in the codebook")
        for done, feature in enumerate(codebook.features, start=1):
            _tell(progress, done, steps, feature.name)
            if isinstance(feature, Categorical):
                _count_categorical(table, layout, feature, labels, vector, total=total)
            else:
                _count_numeric(table, layout, feature, labels, vector, total=total)
        _tell(progress, steps, steps, "")
        return Statistics(layout, vector).require_bounds()
    finally:
        if opened is not source:
            opened.close()


class Labels:
    """Positions of raw class labels, collecting what does not fit."""

    def __init__(self, codebook: Codebook) -> None:
        self.name = codebook.target
        self._listed = Listed(codebook.classes, codebook.label_markers)
        self.missing = 0
        self.unknown = 0

    def position(self, raw: Any, rows: int) -> int | None:
        """Position of a label; None, and remembered, for one that does not fit."""
        at = self._listed.position(plain_text(raw))
        self.missing += rows if at == ABSENT else 0
        self.unknown += rows if at == UNKNOWN else 0
        return at if at >= 0 else None

    def require_few(self, many: bool) -> None:
        """Refuse a class column with more labels than anyone lists."""
        if many:
            raise DataError(
                f"class column {self.name!r} holds far more labels than the codebook lists; is it the right column?"
            )

    def require_clean(self) -> None:
        """Refuse what `position` met and the codebook does not know."""
        if self.missing:
            raise DataError(f"class column {self.name!r}: {self.missing} rows have no label; drop them")
        if self.unknown:
            raise DataError(
                f"class column {self.name!r}: {self.unknown} rows hold a label that the codebook does not list; "
                "add it to classes or drop the rows"
            )


def _tell(progress: Progress | None, done: int, steps: int, name: str) -> None:
    if progress is not None:
        progress(done, steps, name)


def _require_present(feature: Feature, missing: int) -> None:
    if missing and not feature.optional:
        raise DataError(
            f"feature {feature.name!r}: {missing} rows are missing, and the feature is not optional; "
            "set optional = true in the codebook or fill them"
        )


def _count_categorical(
    table: Any, layout: Layout, feature: Categorical, labels: Labels, vector: npt.NDArray[Any], *, total: bool
) -> None:
    group = layout.require("count", feature.name)
    groups, many = grouped(table, layout.codebook, feature.name, every=total)
    listed = Listed(feature.values, layout.codebook.markers(feature), feature.other)
    missing = unknown = 0
    for item in groups:
        at = listed.position(plain_text(item.value))
        row = labels.position(item.label, 0)
        if at >= 0 and row is not None:
            vector[group.start + row * group.columns + at] += item.rows
        missing += item.rows if at == ABSENT else 0
        unknown += item.rows if at == UNKNOWN else 0
        if at == UNKNOWN and isinstance(item.value, float) and not is_whole(item.value) and not total:
            raise DataError(
                f"column {feature.name!r}: a category is a fractional number; declare the feature numeric or cast it to text"
            )
    if total:
        return
    _require_present(feature, missing)
    if unknown or many:
        more = "more than " if many else ""
        raise DataError(
            f"feature {feature.name!r}: {more}{unknown} rows hold a category that the codebook does not list; "
            "add it to values or map it before"
        )


def _count_numeric(
    table: Any, layout: Layout, feature: Numeric, labels: Labels, vector: npt.NDArray[Any], *, total: bool
) -> None:
    groups = {kind: layout.find(kind, feature.name) for kind in ("count", "n", "sum", "square")}
    wide = tuple((found := groups[kind]) is not None and found.bound >= 2**63 for kind in ("sum", "square"))
    rows = numeric(table, layout.codebook, feature, wide=(wide[0], wide[1]), total=total)
    if not total:
        _require_readable(feature, rows)
    for row in rows:
        if (at := labels.position(row["label"], 0)) is None:
            continue
        for kind, group in groups.items():
            if group is None:
                continue
            if kind == "count":
                if row["cell"] is not None:
                    vector[group.start + at * group.columns + int(row["cell"])] += int(row["rows"])
            else:
                vector[group.start + at] += int(row[kind])


def _require_readable(feature: Numeric, rows: list[dict[str, Any]]) -> None:
    problems = {kind: sum(int(row[kind]) for row in rows) for kind in ("absent", "unreadable", "outside")}
    _require_present(feature, problems["absent"])
    if problems["unreadable"]:
        raise DataError(
            f"feature {feature.name!r}: {problems['unreadable']} rows hold a text that is neither a number nor a missing "
            "marker; add the marker to missing or mend the rows"
        )
    if problems["outside"]:
        raise DataError(
            f"feature {feature.name!r}: {problems['outside']} rows are out of bounds [{feature.low}, {feature.high}]; "
            "widen the bounds in the codebook, clip, or drop the rows"
        )
