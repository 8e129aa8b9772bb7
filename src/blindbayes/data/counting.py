"""Exact statistics of a source.

Rows are grouped by class and raw value, and each distinct value is encoded once, by the rules of `values` (`grouping`). A
database groups with one query per column; files and frames are grouped here, in batches of Arrow columns. Numbers that rarely
repeat are mapped to their grid row by row, by the engine or by `encode`; a conformance test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Codebook, Numeric, Text
from blindbayes.data.contribution_bound import ContributionBound, sample_table
from blindbayes.data.encode import encode_labels
from blindbayes.data.expressions import grouped, numeric
from blindbayes.data.grouping import ColumnCount, by_class, class_positions
from blindbayes.data.sources import Source, batches_of, open_source
from blindbayes.data.split import Split
from blindbayes.data.values import Listed, Misfit, Misfits, as_numpy, plain_text
from blindbayes.errors import DataError
from blindbayes.statistics import Layout, Statistics, layout_of

Progress = Callable[[int, int, str], None]  # done, in all, what: rows, or columns by their names


def count(
    source: Any,
    codebook: Codebook,
    *,
    extra_columns: str = "refuse",
    lenient: bool = False,
    bound: ContributionBound | None = None,
    split: Split | None = None,
) -> Statistics:
    """Return the exact statistics of a frame, path, URL or Ibis table, or raise with column and rule; see `count_table`."""
    opened = open_source(source)
    try:
        opened.require_columns(codebook, extra_columns=extra_columns)
        table = selected(opened, codebook, bound, split)
        if opened.is_local:
            wanted = [*codebook.names, codebook.target]
            coded = {*wanted}.difference(feature.name for feature in codebook.texts)
            misfits = Misfits(dates=lambda: opened.unreadable_dates(codebook), workbook=opened.label == "excel")
            batches = opened.batches(wanted, codebook, table, coded=coded)
            return count_batches(batches, codebook, lenient, opened.watch, misfits)
        there = opened.rows(codebook) if table is None else table
        return _count_there(there, codebook, lenient, opened.watch)[0].require_bounds()
    finally:
        if opened is not source:
            opened.close()


def selected(opened: Source, codebook: Codebook, bound: ContributionBound | None, split: Split | None) -> Any:
    """Return the rows that count as an Ibis table; None if all do."""
    table = None if split is None else split.filter(opened.rows(codebook), codebook)
    return table if bound is None else sample_table(opened.rows(codebook) if table is None else table, codebook, bound)


def count_batches(
    batches: Iterable[Mapping[str, Any]],
    codebook: Codebook,
    lenient: bool,
    progress: Progress | None = None,
    misfits: Misfits | None = None,
) -> Statistics:
    """Return the statistics of batches of columns."""
    layout, misfits, rows = layout_of(codebook), Misfits() if misfits is None else misfits, 0
    vector = np.zeros(layout.size, dtype=object)
    features = {feature.name: ColumnCount(layout, vector, feature, lenient, misfits) for feature in codebook.features}
    for columns in batches:
        classes = class_positions(columns[codebook.target], codebook, None if lenient else misfits)
        vector[: len(codebook.classes)] += np.bincount(classes, minlength=len(codebook.classes) + 1)[:-1]
        bases: dict[int, Any] = {}
        for name, feature in features.items():
            feature.add(columns[name], classes, bases)
        rows += len(classes)
        _tell(progress, rows, 0, "rows")
    for feature in features.values():
        feature.settle()
    counted = Statistics(layout, vector)
    require_rows(int(counted.class_counts.sum()), codebook)
    if not lenient:
        misfits.require_clean(codebook)
    return counted.require_bounds()


def require_rows(rows: int, codebook: Codebook) -> None:
    """Raise if there are more rows than the codebook allows."""
    if rows > codebook.max_rows:
        raise DataError(f"more rows than the codebook's max_rows = {codebook.max_rows}; raise it in the codebook")


def look_there(source: Source, codebook: Codebook, misfits: Misfits, wrong: dict[str, str]) -> int:
    """Return the number of rows of a database, and record misfits by column and errors of whole columns in `wrong`."""
    return _count_there(source.rows(codebook), codebook, False, source.watch, misfits, wrong)[1]


def _count_there(
    table: Any,
    codebook: Codebook,
    lenient: bool,
    progress: Progress | None,
    misfits: Misfits | None = None,
    wrong: dict[str, str] | None = None,
) -> tuple[Statistics, int]:
    """Return the statistics and the number of rows; misfits are recorded in `misfits` if given, else an error."""
    layout = layout_of(codebook)
    vector = np.zeros(layout.size, dtype=object)
    steps = len(codebook.features) + 1
    noted = Misfits() if misfits is None else misfits
    rows = 0
    for done, feature in enumerate((None, *codebook.features)):
        name = codebook.target if feature is None else feature.name
        _tell(progress, done, steps, name)
        try:
            if feature is None:
                groups, noted[name].many = grouped(table, codebook, None, every=lenient)
                times = as_numpy(groups["rows"])
                rows = int(times.sum())
                classes = encode_labels(groups["label"], codebook, lenient=lenient, misfits=noted, rows=times)
                np.add.at(vector, classes[classes >= 0], times[classes >= 0])
            elif isinstance(feature, Numeric):
                _count_numeric(table, layout, feature, vector, noted[name], lenient=lenient)
            else:
                _count_column(table, feature, ColumnCount(layout, vector, feature, lenient, noted), codebook, lenient, noted)
        except DataError as problem:
            if wrong is None:
                raise
            wrong[name] = str(problem)
        if misfits is None and not lenient:
            noted[name].require_clean(feature)
        if feature is None and misfits is None:
            require_rows(int(vector.sum()), codebook)
    _tell(progress, steps, steps, "")
    return Statistics(layout, vector), rows


def _count_column(
    table: Any, feature: Categorical | Text, counted: ColumnCount, codebook: Codebook, lenient: bool, misfits: Misfits
) -> None:
    """Count categories, grouped by the engine, or documents, fetched in batches since only Python splits them into words."""
    if isinstance(feature, Text):
        for batch in batches_of(table, [codebook.target, feature.name]):
            counted.add(batch.column(feature.name), class_positions(batch.column(codebook.target), codebook), {})
        return
    groups, misfits[feature.name].many = grouped(table, codebook, feature.name, every=lenient)
    classes = class_positions(groups["label"], codebook)
    counted.add_groups(*by_class(groups["value"], classes, as_numpy(groups["rows"]), len(codebook.classes)))
    counted.settle()


def _tell(progress: Progress | None, done: int, steps: int, name: str) -> None:
    if progress is not None:
        progress(done, steps, name)


def _count_numeric(
    table: Any, layout: Layout, feature: Numeric, vector: npt.NDArray[Any], misfit: Misfit, *, lenient: bool
) -> None:
    labels = Listed(layout.codebook.classes, layout.codebook.label_markers)
    groups = {kind: layout.find(kind, feature.name) for kind in ("count", "n", "sum", "square")}
    wide = tuple((group := groups[kind]) is not None and group.bound >= 2**63 for kind in ("sum", "square"))
    for row in numeric(table, layout.codebook, feature, wide=(wide[0], wide[1]), lenient=lenient):
        misfit.missing += int(row["absent"])
        misfit.unreadable += int(row["unreadable"])
        misfit.outside += int(row["outside"])
        if (index := labels.position(plain_text(row["label"]))) < 0:
            continue
        for kind, group in groups.items():
            if group is None:
                continue
            if kind == "count":
                if row["cell"] is not None:
                    vector[group.start + index * group.columns + int(row["cell"])] += int(row["rows"])
            elif (value := row[kind]) is not None:
                vector[group.start + index] += int(value)
            elif row["n"]:
                raise DataError(f"column {feature.name!r}: the sum has more digits than the engine")
