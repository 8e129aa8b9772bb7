"""Table libraries, imported at first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blindbayes._lazy import lazy

if TYPE_CHECKING:
    import ibis
    import ibis.expr.datatypes as dt
    import narwhals.stable.v2 as nw
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq
else:
    ibis, dt, nw = lazy("ibis"), lazy("ibis.expr.datatypes"), lazy("narwhals.stable.v2")
    pa, pc, pacsv, pq = lazy("pyarrow"), lazy("pyarrow.compute"), lazy("pyarrow.csv"), lazy("pyarrow.parquet")

__all__ = ["dt", "ibis", "nw", "pa", "pacsv", "pc", "pq"]
