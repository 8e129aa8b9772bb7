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
from blindbayes.data.sources import Source, batches_of, open_source
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
    progress = progress or opened.watch
    try:
        opened.require_columns(codebook, extra_columns=extra_columns)
        table = None if persons is None else bounded(opened.rows(codebook), codebook, persons)
        if opened.is_local:
            wanted = [*codebook.names, codebook.target]
            return count_batches(opened.batches(wanted, codebook, table), codebook, total, progress)
        return _count_there(opened.rows(codebook) if table is None else table, codebook, total, progress)[0].require_bounds()
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


def look_there(source: Source, codebook: Codebook, misfits: Misfits, wrong: dict[str, str], progress: Progress | None) -> int:
    """How many rows a database has, and what in them does not fit: in `misfits` by column, in `wrong` where none can."""
    return _count_there(source.rows(codebook), codebook, False, progress, misfits, wrong)[1]


def _count_there(
    table: Any,
    codebook: Codebook,
    total: bool,
    progress: Progress | None,
    misfits: Misfits | None = None,
    wrong: dict[str, str] | None = None,
) -> tuple[Statistics, int]:
    """The statistics, and how many rows there are. With `misfits` what does not fit is counted there, else it is an error."""
    layout = Layout(codebook)
    vector = np.zeros(layout.size, dtype=object)
    steps = len(codebook.features) + 1
    labels = Listed(codebook.classes, codebook.label_markers)
    rows = 0
    for done, feature in enumerate((None, *codebook.features)):
        name = codebook.target if feature is None else feature.name
        misfit = Misfit(name) if misfits is None else misfits[name]
        _tell(progress, done, steps, name)
        try:
            if feature is None:
                groups, misfit.many = grouped(table, codebook, None, every=total)
                rows = sum(item.rows for item in groups)
                for item in groups:
                    at = _place(labels, item.label, item.rows, misfit)
                    if at >= 0:
                        vector[at] += item.rows
            elif isinstance(feature, Text):
                _count_text(table, layout, feature, vector, misfit, total=total)
            elif isinstance(feature, Categorical):
                _count_categorical(table, layout, feature, labels, vector, misfit, every=total)
            else:
                _count_numeric(table, layout, feature, labels, vector, misfit, total=total)
        except DataError as problem:
            if wrong is None:
                raise
            wrong[name] = str(problem)
        if misfits is None and not total:
            misfit.require_clean(feature)
        if feature is None and misfits is None:
            require_rows(int(vector.sum()), codebook)
    _tell(progress, steps, steps, "")
    return Statistics(layout, vector), rows


def _place(listed: Listed, raw: Any, rows: int, misfit: Misfit) -> int:
    """Position of a raw value; what does not fit is told to `misfit`."""
    text = plain_text(raw)
    at = listed.position(text)
    misfit.missing += rows if at == ABSENT else 0
    if at == UNKNOWN:
        misfit.unmapped += rows
        misfit.case |= listed.differs_in_case(text)
        fractional = isinstance(raw, float) and not is_whole(raw)
        misfit.fractional |= fractional
        if misfit.codes is not None and not fractional:
            misfit.codes[str(text)] += rows
    return at


def _tell(progress: Progress | None, done: int, steps: int, name: str) -> None:
    if progress is not None:
        progress(done, steps, name)


def _count_categorical(
    table: Any, layout: Layout, feature: Categorical, labels: Listed, vector: npt.NDArray[Any], misfit: Misfit, *, every: bool
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
    table: Any, layout: Layout, feature: Numeric, labels: Listed, vector: npt.NDArray[Any], misfit: Misfit, *, total: bool
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
            elif (value := row[kind]) is not None:
                vector[group.start + at] += int(value)
            elif row["n"]:
                raise DataError(f"column {feature.name!r}: the sum has more digits than the engine")
