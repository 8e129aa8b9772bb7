"""A keyed digest of a table's rows: which rows it holds, how often, and nothing else.

It does not depend on the order of rows, on a codebook, on a map or on the names of columns; one cell, row or column more or
less changes it. Each row becomes one text, every cell behind its length; SHA-256 of a secret salt and that text gives two
numbers, which are added up over all rows modulo 2^64. Who does not know the salt finds two tables with the same sums with a
chance of about 2^-128 per try. The engine that holds the table does all of it.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

from blindbayes.data.engines import engine_of, fetched
from blindbayes.data.libraries import ibis, pa
from blindbayes.data.sources import Source, _safely

_STREAMED = ("csv", "excel", "parquet")  # read by this process anyway, and hashed as they come
_TEXT = {"duckdb": "VARCHAR", "postgres": "TEXT", "pyspark": "STRING"}
_JOINED = {"duckdb": "concat({})", "postgres": "array_to_string(ARRAY[{}], '')", "pyspark": "concat({})"}
_HASHED = {"duckdb": "sha256({})", "postgres": "encode(sha256(convert_to({}, 'UTF8')), 'hex')", "pyspark": "sha2({}, 256)"}
_NUMBER = {
    "duckdb": "CAST('0x' || substr(hashed, {}, 16) AS UBIGINT)",
    "postgres": "CAST(CAST('x' || substr(hashed, {}, 16) AS BIT(64)) AS BIGINT)",
    "pyspark": "CAST(conv(substr(hashed, {}, 16), 16, 10) AS DECIMAL(20, 0))",
}


def rows_digest(source: Source, key: bytes) -> str:
    """The digest of all rows and all columns of a source that no map has changed, in hexadecimal."""
    salt = hashlib.blake2b(key=key[:64], digest_size=16, person=b"bb row salt").hexdigest()
    if source.label in _STREAMED:
        batches = (pa.record_batch(batch) for batch in source.batches(source.columns, any_order=True))
        first = next(batches, None) or pa.record_batch({name: pa.array([], pa.string()) for name in source.columns})
        local = _safely(ibis.duckdb.connect)
        try:
            local.con.register("rows", pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], batches)))
            sums = _sums(local.table("rows"), salt)
        finally:
            local.disconnect()
    else:
        sums = _sums(source.table, salt)
    facts = " ".join(str(number % 2**64) for number in (len(source.columns), *sums)).encode()
    return hashlib.blake2b(facts, key=key[:64], digest_size=32, person=b"bb row digest").hexdigest()


def _sums(table: Any, salt: str) -> tuple[int, int, int]:
    """The number of rows, and the sums of both halves of their hashes, by the table's engine. Errors of engines quote rows."""
    engine, backend = engine_of(table), table._find_backend(use_default=True)
    plain = table.select(**{f"c{at}": table[name] for at, name in enumerate(table.columns)})
    texts = [f"CAST(c{at} AS {_TEXT[engine]})" for at in range(len(table.columns))]
    cells = [f"coalesce(concat(CAST(length({text}) AS {_TEXT[engine]}), ':') || {text}, '-')" for text in texts]
    hashed = _HASHED[engine].format(_JOINED[engine].format(", ".join([f"'{salt}'", *cells])))
    first, second = (f"coalesce(sum({_NUMBER[engine].format(start)}), 0)" for start in (1, 17))
    number = "DECIMAL(38, 0)" if engine != "postgres" else "TEXT"
    numbers = f"count(*) AS total, CAST({first} AS {number}) AS first, CAST({second} AS {number}) AS second"
    # Nothing of it is anybody's text: the salt is hexadecimal, and Ibis writes the names of columns.
    query = f"SELECT {numbers} FROM (SELECT {hashed} AS hashed FROM ({backend.compile(plain)}) AS plain) AS hashes"  # noqa: S608
    row = _safely(lambda: fetched(backend.sql(query), backend)).to_pylist()[0]
    return int(row["total"]), int(row["first"]), int(row["second"])
