"""The only room that knows tables.

`open_source` takes a frame (pandas, polars, Arrow), a CSV or Parquet path, a database URL or an Ibis table; `count_table` turns
any of them into exact statistics, `count` by one Ibis expression per column, `encode` by integer codes of a batch in memory;
`check` lists what does not fit the codebook. DuckDB does the work unless the source is a database of its own. What one cell
means stands in `values`.
"""

from blindbayes.data.check import CheckReport, ColumnReport, check
from blindbayes.data.counting import count
from blindbayes.data.encode import encode, encode_labels
from blindbayes.data.sources import Source, open_source
from blindbayes.data.table import count_table

__all__ = [
    "CheckReport",
    "ColumnReport",
    "Source",
    "check",
    "count",
    "count_table",
    "encode",
    "encode_labels",
    "open_source",
]
