"""What is new is counted, and added to what was counted before: the sum is that of the whole table, or nothing."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from blindbayes import Categorical, Codebook, Numeric
from blindbayes.data import count_new, count_table
from blindbayes.errors import ConfigError, DataError
from support.databases import Engines

BOOK = Codebook("y", ("a", "b"), (Categorical("k", ("u", "v")), Numeric("x", 0, 9)), max_rows=1000)
START = datetime.datetime(2024, 3, 30, 22, 30)


def table(rows: int) -> pa.Table:
    """The first rows of one that grows, with its marks: numbers, times over a change of clocks, and dates."""
    generator = np.random.default_rng(3)
    columns = {"k": generator.choice(["u", "v"], 90), "x": generator.integers(0, 9, 90), "y": generator.choice(["a", "b"], 90)}
    times = [START + datetime.timedelta(minutes=7 * at, microseconds=at) for at in range(90)]
    marks = {"n": list(range(90)), "t": pa.array(times, pa.timestamp("us")), "d": pa.array([each.date() for each in times])}
    return pa.table({**columns, **marks})[:rows]


def require_grown(engines: Engines, engine: str, column: str, steps: tuple[int, ...] = (0, 40, 40, 61, 90)) -> None:
    counted, kept = None, ["k", "x", "y"]
    for rows in steps:
        found = engines.hold(engine, table(rows).select([*kept, column]))
        counted = count_new(found, BOOK, column, counted)
        assert counted.statistics == count_table(table(rows).select(kept), BOOK)
        assert counted.rows == rows
    with pytest.raises(DataError, match="added or removed"):
        count_new(engines.hold(engine, table(90).slice(1).select([*kept, column])), BOOK, column, counted)


@pytest.fixture
def engines(tmp_path: Path, request: pytest.FixtureRequest) -> Engines:
    return Engines(tmp_path, request)


@pytest.mark.parametrize("column", ["n", "t"])
@pytest.mark.parametrize("engine", ["frame", "parquet", "duckdb", "postgres"])
def test_counts_grow_with_the_table(engine: str, column: str, engines: Engines) -> None:
    require_grown(engines, engine, column)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_counts_in_spark_grow_with_the_table(spark: Any, engines: Engines) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    for column in ("n", "t"):
        require_grown(engines, "spark", column, (40, 90))


def test_only_new_rows_are_read(engines: Engines) -> None:
    first = count_new(engines.hold("duckdb", table(40).select(["k", "x", "y", "n"])), BOOK, "n")
    spoilt = table(60).select(["k", "x", "y", "n"])
    old = pa.array([99] * 40 + spoilt["x"].to_pylist()[40:])  # out of bounds, had it been read
    grown = count_new(engines.hold("duckdb", spoilt.set_column(1, "x", old)), BOOK, "n", first)
    assert grown.statistics == count_table(table(60).select(["k", "x", "y"]), BOOK)
    assert repr(grown) == "Counted(column='n')"


def test_what_cannot_be_a_mark_is_refused(engines: Engines) -> None:
    rows = table(9)
    counted = count_new(rows.select(["k", "x", "y", "n"]), BOOK, "n")
    other = Codebook("y", ("a", "b"), BOOK.features, max_rows=999)
    cases: list[tuple[Any, Codebook, str, Any, str]] = [
        (rows.select(["k", "x", "y"]), BOOK, "n", None, "'n', which marks new rows, is missing"),
        (rows.select(["k", "x", "y"]), BOOK, "k", None, "'k', which marks new rows, holds neither"),
        (rows.select(["k", "x", "y"]).append_column("n", pa.array([None, *range(8)])), BOOK, "n", None, "1 rows have no mark"),
        (rows.select(["k", "x", "y", "n"]), other, "n", counted, "another column or codebook"),
    ]
    for held, book, column, before, words in cases:
        with pytest.raises((DataError, ConfigError), match=words):
            count_new(held, book, column, before)
