"""One door to every table: who reads it, and who counts it.

`count_table` is what fits, studies and sites call. A frame or file is counted here, through Arrow; a database by its engine.
Both give the same integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook
from blindbayes.data.contribution_bound import ContributionBound, require_identifier, sample_rows, sample_table
from blindbayes.data.counting import Progress, count, count_batches
from blindbayes.data.encode import encode
from blindbayes.data.files import BATCH
from blindbayes.data.frames import eager, frame_columns
from blindbayes.data.libraries import pa
from blindbayes.data.sources import is_source, open_source, require_columns
from blindbayes.errors import ConfigError, DataError
from blindbayes.statistics import CodedRows, Statistics


def count_table(
    source: Any,
    codebook: Codebook,
    *,
    lenient: bool = False,
    extra_columns: str = "refuse",
    bound: ContributionBound | None = None,
    progress: Progress | None = None,
) -> Statistics:
    """The exact statistics of a frame, path, URL or Ibis table; `Statistics` of the same codebook are given back.

    A row that does not fit the codebook is an error. With `lenient`, for statistics that noise is added to, it is not, since an
    error would distinguish neighbouring tables: a number out of bounds is clipped, one that cannot be read or is infinite
    is missing, a category that is not listed is missing or what the codebook calls `other`, and a row whose class is missing
    or not listed is left out. A missing value adds nothing to its feature, optional or not.

    With `bound` at most `rows_per_person` rows of each person count; rows without an identifier do not.
    """
    if isinstance(source, Statistics):
        if source.codebook != codebook:
            raise ConfigError("the statistics belong to another codebook; compare the codebooks' hashes")
        if bound is not None:
            raise ConfigError("statistics do not tell whose rows they count: pass the table")
        return source
    if is_source(source):
        return count(source, codebook, lenient=lenient, extra_columns=extra_columns, bound=bound, progress=progress)
    source = eager(source)  # once: rows of a lazy one may come in another order each time
    columns = frame_columns(source)
    require_columns([*columns], codebook, extra_columns=extra_columns)
    if bound is not None:
        columns = take_sample(source, columns, codebook, bound)
    rows = len(columns[codebook.target])
    parts = (
        {name: columns[name][start : start + BATCH] for name in (*codebook.names, codebook.target)}
        for start in range(0, rows, BATCH)
    )
    return count_batches(parts, codebook, lenient, progress)


def take_sample(frame: Any, columns: Mapping[str, Any], codebook: Codebook, bound: ContributionBound) -> dict[str, Any]:
    """The columns of a frame at the rows that count."""
    for part in require_identifier(codebook):
        if part.column not in columns:
            raise DataError(f"identifier column {part.column!r} is missing from the table; add it or change the recipe")
    places = sample_rows(frame, codebook, bound)
    return {name: take(column, places) for name, column in columns.items()}


def take(column: Any, places: npt.NDArray[np.int64]) -> Any:
    """A column at some rows."""
    return column.take(pa.array(places)) if isinstance(column, pa.Array | pa.ChunkedArray) else column[places]


def read_block(
    source: Any,
    codebook: Codebook,
    *,
    lenient: bool = False,
    extra_columns: str = "refuse",
    bound: ContributionBound | None = None,
) -> CodedRows:
    """The rows of a path, URL or Ibis table as codes, in memory, for what needs single rows."""
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
    """A list of rows as objects, each cell as it stands: NumPy would make texts of all for the sake of one."""
    cells = np.empty((len(rows), width), dtype=object)
    for at, row in enumerate(rows):
        if isinstance(row, str | bytes) or not hasattr(row, "__len__") or len(row) != width:
            raise DataError(f"a list of rows has {width} values in each, as many as the codebook has features")
        for column, value in enumerate(row):
            cells[at, column] = value
    return cells
