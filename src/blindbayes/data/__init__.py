"""The only room that knows tables.

`open_table` takes a frame (pandas, polars, Arrow), a file in any dialect (`files`), a database URL, or a table of Ibis or Spark
(`engines`), and maps its columns (`mapping`); `count_table` turns any of them into exact statistics: rows are grouped by class
and raw value, here or where a database lies, and each distinct value is read once (`grouping`). `check` lists what does not fit
the codebook. What one cell means stands in `values`.
"""

from blindbayes.data.check import CheckReport, ColumnReport, check
from blindbayes.data.counting import count
from blindbayes.data.encode import encode, encode_labels
from blindbayes.data.increment import Counted, count_new
from blindbayes.data.sources import Source, open_source, open_table
from blindbayes.data.table import count_table

__all__ = [
    "CheckReport",
    "ColumnReport",
    "Counted",
    "Source",
    "check",
    "count",
    "count_new",
    "count_table",
    "encode",
    "encode_labels",
    "open_source",
    "open_table",
]
