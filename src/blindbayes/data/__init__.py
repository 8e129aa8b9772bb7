"""The only room that knows tables.

`open_source` takes a frame (pandas, polars, Arrow), a CSV or Parquet path, a database URL or an Ibis table; `count` turns a
source into exact statistics with one Ibis expression per column; `check` lists what does not fit the codebook; `encode` turns
an in-memory batch into integer codes. DuckDB does the work unless the source is a database of its own.
"""

from blindbayes.data.check import CheckReport, ColumnReport, check
from blindbayes.data.counting import count
from blindbayes.data.encode import encode, encode_labels
from blindbayes.data.sources import Source, open_source

__all__ = ["CheckReport", "ColumnReport", "Source", "check", "count", "encode", "encode_labels", "open_source"]
