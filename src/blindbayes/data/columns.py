"""One party's columns as blocks of integer codes, in row order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook, Feature, Text
from blindbayes.data.encode import encode
from blindbayes.data.frames import frame_columns, to_arrow
from blindbayes.data.libraries import pa
from blindbayes.data.sources import Source, is_source, open_source
from blindbayes.data.values import Untyped
from blindbayes.errors import ConfigError, DataError
from blindbayes.statistics import CodedRows

_BLOCK = 1 << 16
_CODES = 1 << 22  # at once
CHANGED = "the table changed while it was read; read from a table that stands still"


@dataclass(slots=True)
class ColumnSource:
    """One party's columns of a codebook; blocks can be read repeatedly."""

    codebook: Codebook
    features: tuple[Feature, ...]
    labelled: bool  # True if the class column is among the columns
    rows: int
    _table: pa.Table | Source = field(repr=False)
    _objects: Mapping[str, Untyped] = field(default_factory=dict, repr=False)  # columns of mixed objects, value by value
    lenient: bool = False  # for noisy statistics: no row is an error, and in training every row has a class and cells
    randomised: npt.NDArray[np.int64] | None = field(default=None, repr=False)  # class codes that replace the column's

    def blocks(self, *, training: bool = True, lenient: bool = False, size: int = _BLOCK) -> Iterator[CodedRows]:
        """Yield blocks of codes; in training with the class column, if it is there.

        A text has a column per word (`Codebook.by_word`). With `lenient` no row is an error; see `count_table`. A source that
        is itself `lenient` keeps every row, since rows of other parties correspond to them: see `every_row` of `encode`.
        """
        names = [feature.name for feature in self.features]
        labels = training and self.labelled
        wanted = [*names, self.codebook.target] if labels else names
        start = 0
        for batch in self._batches(wanted, size):
            columns: dict[str, Any] = {name: batch[name] for name in wanted}
            columns |= {name: column[start : start + size] for name, column in self._objects.items() if name in columns}
            start += len(next(iter(columns.values())))
            if start > self.rows:
                break
            block = encode(
                columns,
                self.codebook,
                training=training,
                labels=columns[self.codebook.target] if labels else None,
                features=self.features,
                lenient=lenient or self.lenient,
                every_row=self.lenient and training,
            )
            if labels and self.randomised is not None:
                block = replace(block, labels=self.randomised[start - block.rows : start])
            yield block.by_word(self.features)
        if start != self.rows and wanted:
            raise DataError(CHANGED)

    @property
    def block_rows(self) -> int:
        """Number of rows that are coded at once, so that tables with many words stay small."""
        words = sum(feature.size for feature in self.features if isinstance(feature, Text))
        return min(_BLOCK, max(1 << 10, _CODES // max(1, words)))

    def _batches(self, names: Sequence[str], size: int) -> Iterator[Any]:
        if isinstance(self._table, Source):
            yield from self._table.batches(names, self.codebook)
            return
        for low in range(0, self.rows, size):
            yield self._table.select(list(names)).slice(low, size)

    @property
    def names(self) -> Sequence[str]:
        """Names of all columns, including those that are not in the codebook."""
        names: Sequence[str] = self._table.columns if isinstance(self._table, Source) else self._table.column_names
        return names

    def arrow(self, names: Sequence[str]) -> pa.Table:
        if not isinstance(self._table, Source):
            return self._table.select(list(names))
        table = self._table.arrow(names, self.codebook)
        if table.num_rows != self.rows:
            raise DataError(CHANGED)
        return table

    def keep(self) -> None:
        """Load the whole table into memory: an engine may return its rows in another order next time."""
        self._table = self.arrow(self.names)


def open_columns(source: Any, codebook: Codebook, *, ignore: Sequence[str] = ()) -> ColumnSource:
    """Open a frame, path, URL or Ibis table with some features of the codebook, the class column, or both.

    Rows of all parties must be in the same order; a database table should be a view that is sorted by the key.
    """
    objects: dict[str, Untyped] = {}
    if not is_source(source):
        table: Any = to_arrow(source, lenient=True)
        names, rows = tuple(table.column_names), table.num_rows
        columns = frame_columns(source, {*codebook.names, codebook.target})
        objects = {name: column for name, column in columns.items() if isinstance(column, Untyped)}
    else:
        opened = open_source(source)
        table, names, rows = opened, opened.columns, opened.count()
    known = {*codebook.names, codebook.target, *ignore}
    for name in names:
        if name not in known:
            raise DataError(f"column {name!r} is not in the codebook; drop it or declare it")
    features = tuple(feature for feature in codebook.features if feature.name in names)
    labelled = codebook.target in names
    if not features and not labelled and not set(ignore) & set(names):
        raise ConfigError("the table has no column of the codebook")
    if rows > codebook.max_rows:
        raise DataError(f"more rows than the codebook's max_rows = {codebook.max_rows}; raise it in the codebook")
    return ColumnSource(codebook, features, labelled, rows, table, objects)
