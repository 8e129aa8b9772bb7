"""Count or read any table: frames and files through Arrow, databases by their engine, with equal results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook
from blindbayes.data.contribution_bound import ContributionBound, require_identifier, sample_rows, sample_table
from blindbayes.data.counting import count, count_batches, selected
from blindbayes.data.encode import encode
from blindbayes.data.files import BATCH
from blindbayes.data.frames import eager, frame_columns
from blindbayes.data.libraries import pa
from blindbayes.data.sources import is_source, open_source, require_columns
from blindbayes.data.split import Reading, Split, split_rows
from blindbayes.errors import ConfigError, DataError
from blindbayes.statistics import CodedRows, Statistics
from blindbayes.statistics.evaluation import Evaluation, evaluate_rows
from blindbayes.statistics.parameters import Parameters


def count_table(
    source: Any,
    codebook: Codebook,
    *,
    lenient: bool = False,
    extra_columns: str = "refuse",
    bound: ContributionBound | None = None,
    split: Split | None = None,
) -> Statistics:
    """Return the exact statistics of a frame, path, URL or Ibis table; `Statistics` of the codebook are returned unchanged.

    A row that does not fit the codebook is an error. With `lenient`, for noisy statistics, it is not, since an error would
    distinguish neighbouring tables: a number out of bounds is clipped, an unreadable or infinite one is missing, an unlisted
    category is missing or the codebook's `other`, and a row whose class is missing or not listed is left out. A missing value
    adds nothing to its feature, optional or not.

    With `bound` at most `rows_per_person` rows of each person count; rows without an identifier do not. With `split` only rows
    of one part count.
    """
    if isinstance(source, Statistics):
        if source.codebook != codebook:
            raise ConfigError("the statistics belong to another codebook; compare the codebooks' hashes")
        if bound is not None:
            raise ConfigError("rows_per_person needs the table: statistics do not record whose rows they count")
        if split is not None:
            raise ConfigError("held_out needs the table: statistics do not record which rows they count")
        return source
    if is_source(source):
        return count(source, codebook, lenient=lenient, extra_columns=extra_columns, bound=bound, split=split)
    batches = _frame_batches(source, codebook, extra_columns, bound, split)
    return count_batches(batches, codebook, lenient)


def evaluate_table(
    source: Any, reading: Reading, models: Sequence[Parameters], bins: int, *, extra_columns: str = "refuse"
) -> list[Evaluation]:
    """Return the evaluation of each model on the rows of a table that count, in one pass."""
    codebook, bound, split = reading.codebook, reading.bound, reading.split
    wanted = [*codebook.names, codebook.target]
    opened = open_source(source) if is_source(source) else None
    totals = [Evaluation.zero(codebook.classes, bins) for _ in models]
    try:
        if opened is None:
            batches = _frame_batches(source, codebook, extra_columns, bound, split)
        else:
            opened.require_columns(codebook, extra_columns=extra_columns)
            batches = opened.batches(wanted, codebook, selected(opened, codebook, bound, split), any_order=True)
        for batch in batches:
            coded: dict[str, CodedRows] = {}
            for at, model in enumerate(models):
                own = model.codebook
                if own.sha256 not in coded:
                    coded[own.sha256] = encode(batch, own, training=True, labels=batch[own.target], lenient=reading.lenient)
                totals[at] += evaluate_rows(model, [coded[own.sha256]], bins)
        return totals
    finally:
        if opened is not None and opened is not source:
            opened.close()


def _frame_batches(
    frame: Any, codebook: Codebook, extra_columns: str, bound: ContributionBound | None, split: Split | None
) -> Iterator[dict[str, Any]]:
    """Return the rows of a frame that count, in batches of columns."""
    frame = eager(frame)  # once: a lazy frame may return its rows in another order each time
    columns = frame_columns(frame)
    require_columns([*columns], codebook, extra_columns=extra_columns)
    places = None if split is None else split_rows(frame, codebook, split)
    if bound is not None:
        sample = _sample(frame, columns, codebook, bound)
        places = sample if places is None else np.intersect1d(places, sample)
    if places is not None:
        columns = {name: take(column, places) for name, column in columns.items()}
    return (
        {name: columns[name][start : start + BATCH] for name in (*codebook.names, codebook.target)}
        for start in range(0, len(columns[codebook.target]), BATCH)
    )


def _sample(frame: Any, columns: Mapping[str, Any], codebook: Codebook, bound: ContributionBound) -> npt.NDArray[np.int64]:
    for part in require_identifier(codebook):
        if part.column not in columns:
            raise DataError(f"identifier column {part.column!r} is missing from the table; add it or change the recipe")
    return sample_rows(frame, codebook, bound)


def take(column: Any, places: npt.NDArray[np.int64]) -> Any:
    return column.take(pa.array(places)) if isinstance(column, pa.Array | pa.ChunkedArray) else column[places]


def read_block(
    source: Any,
    codebook: Codebook,
    *,
    lenient: bool = False,
    extra_columns: str = "refuse",
    bound: ContributionBound | None = None,
) -> CodedRows:
    """Return the coded rows of a path, URL or Ibis table, in memory."""
    opened = open_source(source)
    try:
        opened.require_columns(codebook, extra_columns=extra_columns)
        table = None if bound is None else sample_table(opened.rows(codebook), codebook, bound)
        wanted = [*codebook.names, codebook.target]
        whole = opened.arrow(wanted, codebook, table)
    finally:
        if opened is not source:
            opened.close()
    columns = {name: whole.column(name) for name in codebook.names}
    return encode(columns, codebook, training=True, labels=whole.column(codebook.target), lenient=lenient)


def object_rows(rows: Sequence[Any], width: int) -> npt.NDArray[Any]:
    """Return a list of rows as an object array: NumPy would convert all cells to text if one is."""
    cells = np.empty((len(rows), width), dtype=object)
    for i, row in enumerate(rows):
        if isinstance(row, str | bytes) or not hasattr(row, "__len__") or len(row) != width:
            raise DataError(f"each row of a list must have {width} values, one for each feature of the codebook")
        for column, value in enumerate(row):
            cells[i, column] = value
    return cells
