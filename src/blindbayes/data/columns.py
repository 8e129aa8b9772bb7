"""A party's columns of a study over columns, as blocks of integer codes, in the order of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from blindbayes.codebook import Codebook, Feature
from blindbayes.data.encode import encode
from blindbayes.data.sources import Source, open_source, to_arrow
from blindbayes.errors import ConfigError, DataError
from blindbayes.statistics import Block

_BLOCK = 1 << 16


@dataclass(slots=True)
class ColumnSource:
    """What one party holds of a codebook. Blocks can be read any number of times."""

    codebook: Codebook
    features: tuple[Feature, ...]
    labelled: bool  # whether the class column is among the columns
    rows: int
    _table: Any = field(repr=False)

    def blocks(self, *, training: bool = True, size: int = _BLOCK) -> Iterator[Block]:
        """Codes, block by block. In training the class column is read too, if it is there."""
        names = [feature.name for feature in self.features]
        labels = training and self.labelled
        wanted = [*names, self.codebook.target] if labels else names
        for batch in self._batches(wanted, size):
            yield encode(
                {name: batch.column(name) for name in names},
                self.codebook,
                training=training,
                labels=batch.column(self.codebook.target) if labels else None,
                features=self.features,
            )

    def _batches(self, names: Sequence[str], size: int) -> Iterator[pa.Table]:
        if isinstance(self._table, pa.Table):
            for low in range(0, self.rows, size):
                yield self._table.select(list(names)).slice(low, size)
            return
        for batch in self._table.select(*names).to_pyarrow_batches(chunk_size=size):
            yield pa.table(batch)


def open_columns(source: Any, codebook: Codebook, *, ignore: Sequence[str] = ()) -> ColumnSource:
    """A frame, path, URL or Ibis table that holds some features of the codebook, the class column, or both.

    Rows of all parties of a study must stand in one order; a database table should be a view that is sorted by the key.
    """
    if hasattr(source, "columns") and not isinstance(source, Source) and not hasattr(source, "to_pyarrow_batches"):
        table: Any = to_arrow(source)
        names, rows = tuple(table.column_names), table.num_rows
    else:
        opened = open_source(source, ordered=True)
        table, names = opened.table, opened.columns
        rows = int(table.count().execute())
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
    return ColumnSource(codebook, features, labelled, rows, table)
