"""Tables to coded rows: the only package that reads rows.

`open_table` opens a frame (pandas, polars, Arrow), a file in any dialect (`files`), a database URL, or a table of Ibis or Spark
(`engines`), and maps its columns (`mapping`). `count_table` computes exact statistics: rows are grouped by class and raw value,
here or in the database, and each distinct value is encoded once (`grouping`). `check` counts what does not fit the codebook.
`values` defines the meaning of a cell.
"""

from blindbayes.data.check import CheckReport, ColumnReport, check
from blindbayes.data.counting import count
from blindbayes.data.encode import encode, encode_labels
from blindbayes.data.files import Dialect
from blindbayes.data.sources import Source, open_source, open_table
from blindbayes.data.table import count_table

__all__ = [
    "CheckReport",
    "ColumnReport",
    "Dialect",
    "Source",
    "check",
    "count",
    "count_table",
    "encode",
    "encode_labels",
    "open_source",
    "open_table",
]
