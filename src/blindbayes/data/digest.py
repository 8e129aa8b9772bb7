"""Keyed digest of the multiset of a table's rows.

It does not depend on the order of rows, the codebook, a map or the names of columns. A keyed function maps each row to 128
pseudo-random bits, which are summed in two halves modulo 2^64: without the key, two different tables collide with probability
about 2^-128.

A database hashes each row as one text, with the length before every cell, by salted SHA-256. Files are hashed as they are read:
each cell becomes 128 bits under the key and its column's number (AES of a number's bits; BLAKE2b of each distinct text, once
per batch), and a row is AES under a second key of the XOR of its cells.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.tweaks import Block128, TweakedHash
from blindbayes.data.engines import engine_of, fetched
from blindbayes.data.libraries import pa, pc
from blindbayes.data.sources import Source, safely

_STREAMED = ("csv", "excel", "parquet")  # read by this process anyway, and hashed while read
_TEXT = {"duckdb": "VARCHAR", "postgres": "TEXT", "pyspark": "STRING"}
_JOINED = {"duckdb": "concat({})", "postgres": "array_to_string(ARRAY[{}], '')", "pyspark": "concat({})"}
_HASHED = {"duckdb": "sha256({})", "postgres": "encode(sha256(convert_to({}, 'UTF8')), 'hex')", "pyspark": "sha2({}, 256)"}
_NUMBER = {
    "duckdb": "CAST('0x' || substr(hashed, {}, 16) AS UBIGINT)",
    "postgres": "CAST(CAST('x' || substr(hashed, {}, 16) AS BIT(64)) AS BIGINT)",
    "pyspark": "CAST(conv(substr(hashed, {}, 16), 16, 10) AS DECIMAL(20, 0))",
}


def rows_digest(source: Source, key: bytes) -> str:
    """Return the digest of all rows and all columns of a source that no map has changed, in hexadecimal."""
    salt = hashlib.blake2b(key=key[:64], digest_size=16, person=b"bb row salt").hexdigest()
    sums = _streamed_sums(source, salt.encode()) if source.label in _STREAMED else table_sums(source.table, salt)
    facts = " ".join(str(number % 2**64) for number in (len(source.columns), *sums)).encode()
    return hashlib.blake2b(facts, key=key[:64], digest_size=32, person=b"bb row digest").hexdigest()


def _streamed_sums(source: Source, salt: bytes) -> tuple[int, int, int]:
    cells, rows = TweakedHash(b"cells " + salt), TweakedHash(b"rows " + salt)
    count, total = 0, np.zeros(2, dtype=np.uint64)
    for batch in source.batches(source.columns, any_order=True):
        columns = list(batch.values())
        row: Block128 = np.zeros((len(columns[0]), 2), dtype=np.uint64)
        for place, column in enumerate(columns):
            row ^= safely(partial(_hashed_cells, column, place, cells, salt))
        count += len(row)
        total += rows.permute(row).sum(axis=0, dtype=np.uint64)
    return count, int(total[0]), int(total[1])


def _hashed_cells(column: Any, place: int, cells: TweakedHash, salt: bytes) -> Block128:
    """Return 128 pseudo-random bits for each cell of a column."""
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        whole = pa.types.is_integer(kind)
        number = pa.uint64() if pa.types.is_uint64(kind) else pa.int64() if whole else pa.float64()
        missing = column.is_null().to_numpy(zero_copy_only=False)
        filled = pc.fill_null(column.cast(number), 0).to_numpy(zero_copy_only=False)
        blocks = np.empty((len(column), 2), dtype=np.uint64)
        blocks[:, 0] = np.ascontiguousarray(filled).view(np.uint64)
        blocks[:, 1] = (place << 2) | np.where(missing, 0, 1 if whole else 2).astype(np.uint64)
        return cells.permute(blocks)
    if pa.types.is_nested(kind):
        column = pa.array([None if cell is None else repr(cell) for cell in column.to_pylist()], pa.large_string())
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    texts = column if is_bytes else column.cast(pa.large_string())
    coded = texts.cast(pa.large_binary()).dictionary_encode()  # bytes, since texts may not be UTF-8
    person = b"bb cell" + place.to_bytes(4, "big")
    values = [b"", *(b"=" + value for value in coded.dictionary.to_pylist())]  # the first is a missing cell
    hashes = b"".join(hashlib.blake2b(value, key=salt, digest_size=16, person=person).digest() for value in values)
    codes: npt.NDArray[np.int64] = pc.fill_null(coded.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    return np.frombuffer(hashes, dtype=np.uint64).reshape(-1, 2)[codes + 1]


def table_sums(table: Any, salt: str) -> tuple[int, int, int]:
    """Return the number of rows and the sums of both halves of their hashes, by the table's engine."""
    engine, backend = engine_of(table), table._find_backend(use_default=True)
    plain = table.select(**{f"c{i}": table[name] for i, name in enumerate(table.columns)})
    texts = [f"CAST(c{i} AS {_TEXT[engine]})" for i in range(len(table.columns))]
    cells = [f"coalesce(concat(CAST(length({text}) AS {_TEXT[engine]}), ':') || {text}, '-')" for text in texts]
    hashed = _HASHED[engine].format(_JOINED[engine].format(", ".join([f"'{salt}'", *cells])))
    first, second = (f"coalesce(sum({_NUMBER[engine].format(start)}), 0)" for start in (1, 17))
    number = "DECIMAL(38, 0)" if engine != "postgres" else "TEXT"
    numbers = f"count(*) AS total, CAST({first} AS {number}) AS first, CAST({second} AS {number}) AS second"
    # No injection: the salt is hexadecimal, and Ibis quotes the names of columns.
    query = f"SELECT {numbers} FROM (SELECT {hashed} AS hashed FROM ({backend.compile(plain)}) AS plain) AS hashes"  # noqa: S608
    row = safely(lambda: fetched(backend.sql(query), backend)).to_pylist()[0]
    return int(row["total"]), int(row["first"]), int(row["second"])
