"""Exact statistics of a source: integers out.

A file or frame is read once, in batches of Arrow columns that `encode` codes; a database counts where it lies, by one query
per column. Both follow the rules of `values`, cell by cell; a conformance test holds them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Codebook, Numeric, Text
from blindbayes.data.encode import encode
from blindbayes.data.expressions import grouped, numeric
from blindbayes.data.misfits import Misfit, Misfits
from blindbayes.data.persons import Persons, bounded
from blindbayes.data.sources import batches_of, open_source
from blindbayes.data.values import ABSENT, UNKNOWN, Listed, is_whole, plain_text
from blindbayes.errors import DataError
from blindbayes.statistics import Layout, Statistics, count_block

Progress = Callable[[int, int, str], None]  # done, in all, what: rows, or columns by their names


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
        table = None if persons is None else bounded(opened.rows(codebook), codebook, persons)
        if opened.is_local:
            wanted = [*codebook.names, codebook.target]
            return count_batches(opened.batches(wanted, codebook, table), codebook, total, progress)
        return _count_there(opened.rows(codebook) if table is None else table, codebook, total, progress)
    finally:
        if opened is not source:
            opened.close()


def count_batches(
    batches: Iterable[Mapping[str, Any]], codebook: Codebook, total: bool, progress: Progress | None = None
) -> Statistics:
    """The statistics of columns that come in batches."""
    layout, misfits, rows = Layout(codebook), Misfits(), 0
    counted = Statistics.zero(codebook)
    for columns in batches:
        rows += len(columns[codebook.target])
        block = encode(columns, codebook, training=True, labels=columns[codebook.target], total=total, misfits=misfits)
        counted += count_block(layout, block)
        _tell(progress, rows, 0, "rows")
    require_rows(int(counted.class_counts.sum()), codebook)
    if not total:
        misfits.require_clean(codebook)
    return counted.require_bounds()


def require_rows(rows: int, codebook: Codebook) -> None:
    """Refuse more rows than the codebook allows for."""
    if rows > codebook.max_rows:
        raise DataError(f"more rows than the codebook's max_rows = {codebook.max_rows}; raise it in the codebook")


def _count_there(table: Any, codebook: Codebook, total: bool, progress: Progress | None) -> Statistics:
    layout = Layout(codebook)
    vector = np.zeros(layout.size, dtype=object)
    steps = len(codebook.features) + 1
    _tell(progress, 0, steps, codebook.target)
    labels = Listed(codebook.classes, codebook.label_markers)
    misfit = Misfit(codebook.target)
    groups, misfit.many = grouped(table, codebook, None, every=total)
    for item in groups:
        at = _place(labels, item.label, item.rows, misfit)
        if at >= 0:
            vector[at] += item.rows
    if not total:
        misfit.require_clean(None)
    require_rows(int(vector.sum()), codebook)
    for done, feature in enumerate(codebook.features, start=1):
        _tell(progress, done, steps, feature.name)
        misfit = Misfit(feature.name)
        if isinstance(feature, Text):
            _count_text(table, layout, feature, vector, misfit, total=total)
        elif isinstance(feature, Categorical):
            _count_categorical(table, layout, feature, labels, vector, misfit, every=total)
        else:
            _count_numeric(table, layout, feature, labels, vector, misfit, total=total)
        if not total:
            misfit.require_clean(feature)
    _tell(progress, steps, steps, "")
    return Statistics(layout, vector).require_bounds()


def _place(listed: Listed, raw: Any, rows: int, misfit: Misfit) -> int:
    """Position of a raw value; what does not fit is told to `misfit`."""
    at = listed.position(text := plain_text(raw))
    misfit.missing += rows if at == ABSENT else 0
    misfit.unmapped += rows if at == UNKNOWN else 0
    misfit.case |= at == UNKNOWN and listed.differs_in_case(text)
    misfit.fractional |= at == UNKNOWN and isinstance(raw, float) and not is_whole(raw)
    return at


def _tell(progress: Progress | None, done: int, steps: int, name: str) -> None:
    if progress is not None:
        progress(done, steps, name)


def _count_categorical(
    table: Any,
    layout: Layout,
    feature: Categorical,
    labels: Listed,
    vector: npt.NDArray[Any],
    misfit: Misfit,
    *,
    every: bool,
) -> None:
    group = layout.require("count", feature.name)
    groups, misfit.many = grouped(table, layout.codebook, feature.name, every=every)
    listed = Listed(feature.values, layout.codebook.markers(feature), feature.other)
    for item in groups:
        at = _place(listed, item.value, item.rows, misfit)
        row = labels.position(plain_text(item.label))
        if at >= 0 and row >= 0:
            vector[group.start + row * group.columns + at] += item.rows


def _count_text(table: Any, layout: Layout, feature: Text, vector: npt.NDArray[Any], misfit: Misfit, *, total: bool) -> None:
    """Words are cut by one rule, which is Python's: documents come here in batches, and are gone when they are counted."""
    book = layout.codebook.with_features([feature])
    misfits = Misfits({feature.name: misfit})
    for batch in batches_of(table, [book.target, feature.name]):
        columns = {name: batch.column(name) for name in batch.schema.names}
        block = encode(columns, book, training=True, labels=columns[book.target], total=total, misfits=misfits)
        own = count_block(Layout(book), block)
        for group in own.layout.groups[1:]:
            vector[layout.slice(layout.require(group.kind, feature.name))] += own.vector[own.layout.slice(group)]


def _count_numeric(
    table: Any,
    layout: Layout,
    feature: Numeric,
    labels: Listed,
    vector: npt.NDArray[Any],
    misfit: Misfit,
    *,
    total: bool,
) -> None:
    groups = {kind: layout.find(kind, feature.name) for kind in ("count", "n", "sum", "square")}
    wide = tuple((found := groups[kind]) is not None and found.bound >= 2**63 for kind in ("sum", "square"))
    for row in numeric(table, layout.codebook, feature, wide=(wide[0], wide[1]), total=total):
        misfit.missing += int(row["absent"])
        misfit.unreadable += int(row["unreadable"])
        misfit.outside += int(row["outside"])
        if (at := labels.position(plain_text(row["label"]))) < 0:
            continue
        for kind, group in groups.items():
            if group is None:
                continue
            if kind == "count":
                if row["cell"] is not None:
                    vector[group.start + at * group.columns + int(row["cell"])] += int(row["rows"])
            else:
                vector[group.start + at] += int(row[kind])
