"""One table in every engine that may hold it: what the conformance suites count through."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path
from typing import Any

import ibis
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

_KINDS = {"int64": "bigint", "int32": "integer", "double": "double precision", "float": "real", "bool": "boolean"}
_KINDS |= {"date32[day]": "date", "timestamp[us]": "timestamp"}
_number = itertools.count()


class Engines:
    """`engines.hold("postgres", table)` is a source that holds the table."""

    def __init__(self, folder: Path, request: pytest.FixtureRequest) -> None:
        self.folder, self.request = folder, request

    def hold(self, engine: str, table: pa.Table) -> Any:
        return getattr(self, engine)(table, next(_number))

    def frame(self, table: pa.Table, number: int) -> Any:
        return table

    def pandas(self, table: pa.Table, number: int) -> Any:
        return table.to_pandas(types_mapper=pd.ArrowDtype)

    def csv(self, table: pa.Table, number: int) -> Any:
        path = self.folder / f"{number}.csv"
        table.to_pandas().to_csv(path, index=False, quoting=csv.QUOTE_ALL)  # a carriage return is no end of a row
        return path

    def parquet(self, table: pa.Table, number: int) -> Any:
        path = self.folder / f"{number}.parquet"
        pq.write_table(table, path)
        return path

    def duckdb(self, table: pa.Table, number: int) -> Any:
        """An engine that counts by itself; a DuckDB file is read in batches."""
        connection = ibis.duckdb.connect()
        self.request.addfinalizer(connection.disconnect)
        return connection.create_table(f"t{number}", table)

    def postgres(self, table: pa.Table, number: int) -> Any:
        import psycopg
        from psycopg import sql

        url = self.request.getfixturevalue("postgres")
        kinds = [_KINDS.get(str(each.type), "numeric" if pa.types.is_decimal(each.type) else "text") for each in table.schema]
        fields = sql.SQL(", ").join(
            sql.SQL("{} " + kind).format(sql.Identifier(name)) for name, kind in zip(table.column_names, kinds, strict=True)
        )
        name = sql.Identifier(f"t{number}")
        with psycopg.connect(url.replace("postgres://", "postgresql://"), autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE TABLE {} ({})").format(name, fields))
            with connection.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(name)) as copy:
                for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
                    copy.write_row(row)
        return f"{url}#public.t{number}"

    def spark(self, table: pa.Table, number: int) -> Any:
        session = self.request.getfixturevalue("spark")
        return session.read.parquet(str(self.parquet(table, number)))
