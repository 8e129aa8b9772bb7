"""Counting reads each distinct value once, whatever the rows; grouped or row by row, the integers are the same."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blindbayes import Categorical, Codebook, Numeric
from blindbayes.data import count_table, encode, encode_labels
from blindbayes.data.files import BATCH
from blindbayes.errors import DataError
from blindbayes.statistics import Layout, Statistics, count_block
from support.databases import Engines

WIDE = Codebook(
    "y",
    ("a", "b"),
    (
        Categorical("k", ("-1", "0", "1", "12", "300", "70000"), optional=True),
        Numeric("x", -1000, 1000, optional=True),
        Numeric("w", -1000, 1000, 0.5, bins=7, optional=True),
    ),
    max_rows=10**6,
    missing=("-9",),
)
WHOLE = [
    (pa.int8(), [-128, -9, -1, 0, 1, 12, 127, None]),
    (pa.uint8(), [0, 1, 12, 200, 255, None]),
    (pa.int16(), [-32768, -1, 0, 300, 32767, None]),
    (pa.int32(), [-1025, -1, 0, 1, 1023, 1024, None]),
    (pa.int64(), [-(2**63), 2**63 - 1, 0, 1, None]),
    (pa.int64(), [2**31 - 1, 2**31 - 1024, None]),
    (pa.uint64(), [2**64 - 1, 2**63, 12, None]),
    (pa.float32(), [0.5, -0.0, 12.0, math.nan, math.inf, None]),
    (pa.int8(), [None, None]),
    (pa.int64(), [None, None]),
    (pa.bool_(), [True, False, None]),
    (pa.string(), ["-1", "12.0", " 1", "-9.0", "", "x", None]),
    (pa.large_string(), ["1", "?", None]),
    (pa.dictionary(pa.int8(), pa.string()), ["1", "0", None, "12"]),
]


def row_by_row(table: pa.Table, book: Codebook) -> Statistics:
    """Every row read by itself, as for a prediction."""
    columns = {name: table.column(name) for name in book.names}
    return count_block(Layout(book), encode(columns, book, training=True, labels=table.column(book.target), lenient=True))


@pytest.mark.parametrize(("kind", "values"), WHOLE, ids=[f"{kind}-{at}" for at, (kind, _) in enumerate(WHOLE)])
@pytest.mark.parametrize("target", ["plain", "with unlisted"])
def test_groups_count_what_rows_count(kind: pa.DataType, values: list[Any], target: str, tmp_path: Path) -> None:
    rows = values * 5 + values[:3]
    labels = (["a", "b"] if target == "plain" else ["a", "b", None, "z", "a"]) * len(rows)
    column = pa.array(rows, kind)
    table = pa.table({"k": column, "x": column, "w": column, "y": labels[: len(rows)]})
    expected = row_by_row(table, WIDE)
    assert count_table(table, WIDE, lenient=True) == expected
    assert count_table(table[2:], WIDE, lenient=True) == row_by_row(table[2:], WIDE)
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=4)
    assert count_table(tmp_path / "t.parquet", WIDE, lenient=True) == expected


def test_a_value_is_read_once_however_many_rows_hold_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten times the rows, and as many cells are looked at."""
    book = Codebook("y", ("0", "1"), (Categorical("k", ("0", "1", "2")), Categorical("t", ("u", "v")), Numeric("x", 0, 99)))
    seen: list[Any] = []
    encoding = importlib.import_module("blindbayes.data.encode")
    plain = encoding.plain_text
    monkeypatch.setattr(encoding, "plain_text", lambda value: seen.append(value) or plain(value))
    numbers = []
    for rows in (20_000, 200_000):
        at = np.arange(rows)
        table = pa.table({"k": at % 3, "t": np.array(["u", "v"])[at % 2], "x": at % 100, "y": (at % 2).astype(np.int8)})
        for name in ("parquet", "csv"):
            path = tmp_path / f"{rows}.{name}"
            if name == "csv":
                table.to_pandas().to_csv(path, index=False)
            else:
                pq.write_table(table, path)
            seen.clear()
            assert int(count_table(path, book).class_counts.sum()) == rows
            numbers.append(len(seen))
    batches = -(-200_000 // BATCH)
    assert max(numbers) <= 3 + 2 + 2 * batches  # the categories; the labels once a batch


def test_misfits_are_counted_by_rows_and_not_by_values() -> None:
    book = Codebook("y", ("a",), (Categorical("k", ("1", "2")), Numeric("x", 0, 9)))
    table = {"k": [1, 2, 3, 3, 3, None, None], "x": [1, 2, 10, 10, 10, 4, 4], "y": ["a"] * 7}
    with pytest.raises(DataError, match="'k': 2 rows are missing"):
        count_table(pa.table(table), book)
    with pytest.raises(DataError, match="'k': 3 rows hold a category"):
        count_table(pa.table(table)[:5], book)
    with pytest.raises(DataError, match="'x': 3 rows are out of bounds"):
        count_table(pa.table({**table, "k": [1] * 7}), book)
    assert encode_labels(["a", "a"], book, rows=np.array([3, 4])).tolist() == [0, 0]


# -- the grid --------------------------------------------------------------------------------------------------------------

GRIDS = [
    Numeric("x", -10, 10, 1.0, optional=True),
    Numeric("x", -10, 10, 0.1, optional=True),
    Numeric("x", 0, 1, 0.001, optional=True),
    Numeric("x", -1e9, 1e9, 0.01, optional=True),
    Numeric("x", -10, 10, 0.25, bins=9, optional=True),
]
BORDERS = [0.0, -0.0, 5e-324, -5e-324, 1e-300, 1e308, -1e308, math.inf, -math.inf, math.nan, 0.49999999999999994, 2.0**53 + 2]


def near(grid: Numeric) -> list[float]:
    """Half-way points, bounds, and the floats on both sides of them."""
    points = [grid.low, grid.high, *BORDERS]
    points += [
        (at + 0.5) / grid.scale
        for at in (*range(-12, 12), grid.grid_low - 1, grid.grid_low, grid.grid_high - 1, grid.grid_high)
    ]
    return [float(each) for point in points for each in (point, np.nextafter(point, -np.inf), np.nextafter(point, np.inf))]


@pytest.mark.parametrize("grid", GRIDS, ids=range(len(GRIDS)))
@pytest.mark.parametrize("engine", ["parquet", "duckdb", "postgres", pytest.param("spark", marks=pytest.mark.slow)])
def test_engines_put_numbers_on_the_grid_as_python_does(engine: str, grid: Numeric, tmp_path: Path, request: Any) -> None:
    """Each number in a class of its own, so that no two errors make up for each other."""
    numbers = [each for each in near(grid) if engine != "postgres" or each == 0 or not abs(each) < 1e-307]
    book = Codebook("y", tuple(map(str, range(len(numbers)))), (grid,), max_rows=10**6)
    table = pa.table({"x": pa.array(numbers, pa.float64()), "y": [str(at) for at in range(len(numbers))]})
    source = Engines(tmp_path, request).hold(engine, table)
    assert count_table(source, book, lenient=True) == row_by_row(table, book)


@pytest.mark.parametrize("engine", ["parquet", "duckdb", "postgres"])
def test_sums_are_exact_beyond_64_bits(engine: str, tmp_path: Path, request: Any) -> None:
    """Squares of the largest codes, a million times over, against Python's integers."""
    grid = Numeric("x", -(2.0**44), 2.0**44, 0.5)
    book = Codebook("y", ("a",), (grid,), max_rows=10**9)
    numbers = [2.0**44, -(2.0**44) + 0.5, 2.0**44 - 0.5, 3.0] * 250
    table = pa.table({"x": pa.array(numbers, pa.float64()), "y": ["a"] * len(numbers)})
    found = count_table(Engines(tmp_path, request).hold(engine, table), book)
    codes = [int(2 * number) - grid.centre for number in numbers]
    assert found.squares["x"].tolist() == [sum(code * code for code in codes)]
    assert found.sums["x"].tolist() == [sum(codes)]


# -- memory ----------------------------------------------------------------------------------------------------------------
