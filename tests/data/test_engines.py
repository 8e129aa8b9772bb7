"""The conformance suite: an engine counts the same integers as a frame, or refuses in the same words, cell by cell.

Every row of the hostile tables is a class of its own, so a private reading tells what was made of each cell; `check` tells what
a strict reading makes of them. One test per engine, since Spark takes its time to start. An engine that is not in this suite
is refused by its name.
"""

from __future__ import annotations

import datetime
import importlib
import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric
from blindbayes.codebook import IdPart, IdRecipe
from blindbayes.data import check, count, count_table, open_table
from blindbayes.data.columns import open_columns
from blindbayes.data.contribution_bound import ContributionBound
from blindbayes.data.table import read_block
from blindbayes.errors import ConfigError, DataError
from blindbayes.statistics import Layout, Statistics, count_block
from support.databases import Engines
from support.tables import BAD, HOSTILE, mixed_table, truth

ENGINES = ["frame", "pandas", "csv", "parquet", "duckdb", "postgres", "spark, in short"]
TEXTS = [
    "12", "12 ", " 12", "\t12", "12\n", "12\r", "\x0b12\x0c", "12\u2028", "12\u2029", "12\u0085", "\u00a012", "12\u3000",
    "12f", "v12", "vf7fv", "12d", "12L", "0x10", "1_000", "1 000", "١٢", "½", "NaN", "nan", "Infinity", "-inf", "-0",
    "+0.0", "1e2", "1E-2",
    "1e99", "1e400", ".5", "5.", ".", "-", "1" * 60, "1" * 61, "." + "1" * 100, "?", "0.00", "-9", "-9.0", " -9 ",
    "", None, "true",
    "--1", "12\\n", "'12'", '"12"', "12;", "12\u00ad",
]  # fmt: skip
WORDS = [
    "é", "e\u0301", "x", "x ", " x", "X", "", "'", '"', "\\", "\\n", "a\\'b", "%s", "{}", "--", "\u2028", "a\u0085", "\v", "v",
    "\f", "f", "\t", "1", "1.0", "01", "True", "true", "TRUE", "0.5", ".5", None, "NULL", "ß", "ẞ", "İ",
    "\U0001f600", "?", "-9",
    "-9.0", "-9 ",
]  # fmt: skip
FLOATS = [
    0.0, -0.0, 5e-324, -5e-324, 0.5, -0.5, 1.5, 2.5, 0.49999999999999994, 1.005, 2.675, 1e-300, 1e15, 2.0**53, 1e18, 1e300,
    -1e308, float("inf"), float("-inf"), float("nan"), None, 12.0, -9.0, 99.5, 100.49, 100.5, 1 / 3,
]  # fmt: skip
WHOLES = [0, 1, -1, 12, -9, 2**31, -(2**31), 2**53, 2**53 + 1, 2**62, -(2**62), None, 100, 101]
DECIMALS = [
    None if each is None else Decimal(each) for each in ("0", "-0.005", "1.005", "2.675", None, "99.995", "-9", "100.500")
]
MARKERS = ("?", "-9", "0.0")


def cycled(values: list[Any], rows: int) -> list[Any]:
    return list(itertools.islice(itertools.cycle(values), rows))


def hostile(columns: dict[str, tuple[list[Any], pa.DataType]], features: dict[str, Any]) -> tuple[pa.Table, Codebook]:
    """A table that holds every value of every column, each row a class of its own, under names that bite."""
    rows = max(len(values) for values, _ in columns.values())
    table = {name: pa.array(cycled(values, rows), kind) for name, (values, kind) in columns.items()}
    labels = tuple(f"r{at}" for at in range(rows))
    made = tuple(feature(name) for name, feature in features.items())
    return pa.table({**table, "group; by": labels}), Codebook("group; by", labels, made, max_rows=10**6, missing=MARKERS)


def texts() -> tuple[pa.Table, Codebook]:
    return hostile(
        {name: (cells, pa.string()) for name, cells in (("a'b\"c`d", TEXTS), ("Ünï ☃", TEXTS), ("select", WORDS),
        ("k.v", WORDS))},
        {
            "a'b\"c`d": lambda name: Numeric(name, -100, 100, 0.01, optional=True),
            "Ünï ☃": lambda name: Numeric(name, -100, 100, 0.5, bins=7),
            "select": lambda name: Categorical(name, ("é", "x", "x ", "'", "\\", "\\n", "a\\'b", "1", "true", "v",
            "0.5", "-9 ")),
            "k.v": lambda name: Categorical(name, ("e\u0301", "rest", "X", "ß"), other="rest"),
        },
    )  # fmt: skip


def numbers() -> tuple[pa.Table, Codebook]:
    short, long = pa.decimal128(9, 3), pa.decimal128(38, 12)
    single = [each if each is None or abs(each) < 1e38 or abs(each) == float("inf") or each != each else 1.0 for each in FLOATS]
    huge = 2.0**45
    return hostile(
        {
            "floats": (FLOATS, pa.float64()), "floats as words": (FLOATS, pa.float64()), "binned": (FLOATS, pa.float64()),
            "single": (single, pa.float32()), "whole": (WHOLES, pa.int64()), "whole as words": (WHOLES, pa.int64()),
            "wide": (WHOLES, pa.int64()), "short": (DECIMALS, short), "long": (DECIMALS, long), "as words": (DECIMALS, short),
            "truth": ([True, False, None], pa.bool_()), "small": ([1, -1, None, 0, 7], pa.int32()),
        },
        {
            "floats": lambda name: Numeric(name, -100, 100, 0.01),
            "floats as words": lambda name: Categorical(name, ("0", "1.5", "12", "1e+300", "9007199254740992")),
            "binned": lambda name: Numeric(name, 0, 100, 1 / 3, edges=(1.0, 2.5, 50.0), optional=True),
            "single": lambda name: Numeric(name, -3, 3, 0.001),
            "whole": lambda name: Numeric(name, -100, 100),
            "whole as words": lambda name: Categorical(name, ("0", "12", "9007199254740993", "-1")),
            "wide": lambda name: Numeric(name, -huge, huge),
            "short": lambda name: Numeric(name, -100, 100, 0.01),
            "long": lambda name: Numeric(name, -100, 100, 0.001, optional=True),
            "as words": lambda name: Categorical(name, ("0", "1.005", "2")),
            "truth": lambda name: Categorical(name, ("true", "false")),
            "small": lambda name: Numeric(name, -1, 1),
        },
    )  # fmt: skip


def said(step: Callable[[], Any]) -> Any:
    """What a step gives, as names and integers; or the words of its refusal."""
    try:
        found = step()
    except (ConfigError, DataError) as problem:
        return str(problem)
    return found.by_name() if isinstance(found, Statistics) else found.to_dict()


def by_column(found: Any) -> Any:
    """A report by column, or cells by kind, feature and class: what differs is then easily seen."""
    if not isinstance(found, dict):
        return {"": found}
    if "columns" in found:
        return {each["name"]: each for each in found["columns"]}
    return {
        (kind, name): cells
        for kind, held in found.items()
        for name, cells in (held.items() if isinstance(held, dict) else [("", held)])
    }


def differences(here: Any, there: Any) -> dict[Any, Any]:
    one, other = by_column(here), by_column(there)
    return {name: (one.get(name), other.get(name)) for name in {**one, **other} if str(one.get(name)) != str(other.get(name))}


def bad_tables() -> dict[str, tuple[pa.Table, Codebook]]:
    codebook = Codebook("y", ("a", "b"), (Categorical("k", ("u", "v")), Numeric("x", 0, 9), Categorical("w", ("1", "2"))))
    columns = {"k": ["u", "v", "u"], "x": [1.0, 2.0, 3.0], "w": [1, 2, 1], "y": ["a", "b", "a"]}
    dates = {
        "dates": ("k", pa.array([datetime.date(2020, 1, 2)] * 3)),
        "times as labels": ("y", pa.array([datetime.datetime(2020, 1, 2, 3)] * 3, pa.timestamp("us"))),
        "times": ("x", pa.array([datetime.datetime(2020, 1, 2, 3)] * 3, pa.timestamp("us"))),
    }
    cases = {**{name: case[:2] for name, case in BAD.items()}, **dates}
    return {name: (pa.table({**columns, column: values}), codebook) for name, (column, values) in cases.items()}


@pytest.fixture
def engines(tmp_path: Path, request: pytest.FixtureRequest) -> Engines:
    return Engines(tmp_path, request)


def cases(engine: str) -> Iterator[tuple[str, pa.Table, Codebook, bool]]:
    """What an engine counts: its name, the table, the codebook, and whether cells or whole tables are compared."""
    table, book = texts()
    if engine == "csv":  # an empty cell of a text file is a missing one
        for at in (2, 3):
            cells = [None if each == "" else each for each in table.column(at).to_pylist()]
            table = table.set_column(at, table.column_names[at], pa.array(cells))
    yield "texts", table, book, True
    if engine == "csv":
        return
    yield "numbers", *numbers(), True
    names = (*HOSTILE[-2:], "back`tick")
    features = tuple(Numeric(name, 0, 9) if at % 2 else Categorical(name, ("0", "1", "2")) for at, name in enumerate(names))
    table = pa.table({**{name: [0, 1, 2] for name in names}, "`y`": ["a", "b", "a"]})
    yield "names", table, Codebook("`y`", ("a", "b"), features), False
    if engine == "spark, in short":  # a query takes it a second
        return
    table, book = mixed_table()
    yield "mixed", table, book, False
    yield "empty", table[:0], book, False
    for name, (table, book) in bad_tables().items():
        yield name, table, book, False


@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", [*ENGINES, pytest.param("spark", marks=pytest.mark.slow)])
def test_an_engine_counts_what_a_frame_counts_or_refuses_as_it_does(engine: str, engines: Engines) -> None:
    failed: dict[str, Any] = {}
    for name, table, book, cells in cases(engine):
        held = engines.hold(engine.removesuffix(", in short"), table)
        read = partial(count_table, codebook=book, lenient=cells)
        failed[name] = differences(said(partial(read, table)), said(partial(read, held)))
        if cells:
            failed[f"{name}, checked"] = differences(said(partial(check, table, book)), said(partial(check, held, book)))
    assert {name: each for name, each in failed.items() if each} == {}


def test_the_frame_counts_the_truth() -> None:
    table, book = mixed_table()
    assert count_table(table, book).by_name() == truth(table, book).by_name()


SMALL = Codebook("y", ("a", "b"), (Categorical("k", ("u", "v")), Numeric("x", 0, 9)), max_rows=100)
ROWS = pa.table({"k": ["u", "v", "u", "v"], "x": [1, 2, 3, 4], "y": ["a", "b", "a", "b"]})


@pytest.mark.timeout(900)
def test_spark_by_every_door_is_refused_where_it_must_be_and_left_as_it_was(spark: Any, engines: Engines) -> None:
    frame = engines.hold("spark", ROWS)
    frame.write.saveAsTable("visits")
    expected = count_table(ROWS, SMALL)
    settings = {key: spark.conf.get(key) for key in ("spark.sql.session.timeZone", "spark.sql.mapKeyDedupPolicy")}
    doors = {
        "DataFrame": frame,
        "Ibis table": ibis.pyspark.connect(spark).table("visits"),
        "URL": "spark://local#default.visits",
        "file by URL": f"spark://#parquet.`{engines.parquet(ROWS, 77)}`",
    }
    for key, value in settings.items():
        spark.conf.set(key, value)
    assert {name: count_table(door, SMALL) == expected for name, door in doors.items()} == dict.fromkeys(doors, True)
    with open_table(spark, table="visits") as source:  # a session
        told: list[tuple[int, int, str]] = []
        source.watch = lambda *step: told.append(step)
        assert count(source, SMALL) == expected
        assert [step[2] for step in told] == ["y", "k", "x", ""]
        assert NaiveBayes(SMALL).fit(source).statistics_ == expected
        with pytest.raises(DataError, match="have no order"):
            next(source.batches(["k"]))
        with pytest.raises(DataError, match="have no order"):
            next(open_columns(source, SMALL).blocks())
        block = read_block(source, SMALL)
        assert count_block(Layout(SMALL), block) == expected
    assert {key: spark.conf.get(key) for key in settings} == settings
    assert [each.name for each in spark.catalog.listTables()] == ["visits"]

    with pytest.raises(ConfigError, match="make a view there"):
        open_table(spark, table="visits", map={"z": "x * 2"})
    with pytest.raises(ConfigError, match="name one with table"):
        open_table(spark)
    with pytest.raises(DataError, match="Spark table cannot be read"):
        open_table("spark://local#CANARY")
    with pytest.raises(DataError, match="columns 'k' and 'K' differ only in case"):
        open_table(frame.toDF("k", "x", "K"))
    with pytest.raises(DataError, match="'k' has a collation"):
        open_table(spark.sql("SELECT k COLLATE UTF8_LCASE AS k, x, y FROM visits"))
    for key, value in {"spark.sql.parser.escapedStringLiterals": "true", "spark.sql.groupByOrdinal": "false"}.items():
        other = spark.newSession()
        other.conf.set(key, value)
        with pytest.raises(DataError, match="Spark does not read as its conformance suite says"):
            open_table(other, table="visits")
    plain = spark.newSession()  # as Spark 3 is by default
    plain.conf.set("spark.sql.ansi.enabled", "false")
    table, book = texts()
    path = str(engines.parquet(table, 78))
    assert differences(said(partial(check, table, book)), said(partial(check, plain.read.parquet(path), book))) == {}

    people = Codebook("y", ("a", "b"), SMALL.features, identifier=IdRecipe((IdPart("who", "text"),)))
    names = pa.table({**{name: ROWS[name] for name in ROWS.column_names}, "who": ["fred", " red", "Fred ", "v red"]})
    bounded = count_table(engines.hold("spark", names), people, bound=ContributionBound(1, b"salt"))
    assert int(bounded.class_counts.sum()) == 3  # fred once, red, v red


def test_an_engine_that_is_not_in_this_suite_is_refused_by_its_name(tmp_path: Path) -> None:
    """SQLite rounds wide sums without a word."""
    connection = ibis.sqlite.connect(tmp_path / "t.sqlite")
    try:
        table = connection.create_table("t", ROWS)
        for source in (table, f"sqlite://{tmp_path}/t.sqlite#t"):
            with pytest.raises(ConfigError, match="'sqlite' has not passed the conformance suite"):
                count_table(source, SMALL)
    finally:
        connection.disconnect()
    for url in ("mysql://CANARY:CANARY@host/db#t", "s3://bucket/CANARY.parquet#t"):
        with pytest.raises(ConfigError, match="has not passed") as caught:
            count_table(url, SMALL)
        assert "CANARY" not in str(caught.value)


def test_a_missing_extra_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyspark", "pyspark.sql"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(ibis, "connect", lambda _: importlib.import_module("not_a_driver"))
    for url, extra in {"spark://local#t": "spark", "sc://host#t": "spark", "postgresql://host/db#t": "postgres"}.items():
        with pytest.raises(ConfigError, match=rf"pip install 'blindbayes\[{extra}\]'") as caught:
            open_table(url)
        assert "\n" not in str(caught.value)


def test_counting_imports_no_engine_that_is_not_asked_for() -> None:
    lines = "import sys, pyarrow as pa; from blindbayes import *; from blindbayes.data import count_table; "
    lines += "count_table(pa.table({'x': [1], 'y': ['a']}), Codebook('y', ('a',), (Numeric('x', 0, 9),))); "
    lines += "print(*({'pyspark', 'psycopg', 'duckdb'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", lines], check=True, capture_output=True, text=True).stdout == "\n"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_million_rows_count_alike_everywhere(engines: Engines) -> None:
    generator = np.random.default_rng(5)
    rows = 10**6
    table = pa.table(
        {
            "word": generator.choice(["u", "v", "it's", "é"], rows),
            "level": generator.integers(0, 9, rows),
            "number": np.round(generator.normal(0, 100, rows).clip(-999, 999), 2),
            "gaps": pa.array(generator.normal(0, 1, rows), mask=generator.random(rows) < 0.1),
            "large": generator.integers(-(2**44), 2**44, rows),
            "y": generator.choice(["a", "b", "c"], rows),
        }
    )
    features = (
        Categorical("word", ("u", "v", "it's", "é")), Numeric("level", 0, 9, bins=5), Numeric("number", -1000, 1000, 0.01),
        Numeric("gaps", -9, 9, 0.001, optional=True), Numeric("large", -(2.0**45), 2.0**45),
    )  # fmt: skip
    book = Codebook("y", ("a", "b", "c"), features, max_rows=10**7)
    expected = count_table(table, book)
    for engine in ("pandas", "csv", "parquet", "duckdb", "postgres", "spark"):
        assert count_table(engines.hold(engine, table), book) == expected, engine


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_adult_counts_alike_everywhere(engines: Engines, dataset: Callable[[str], Path]) -> None:
    frame = pd.read_csv(dataset("adult"))
    book = Codebook.from_frame(frame, frame.columns[-1])
    expected = count_table(frame, book)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    for engine in ("frame", "csv", "parquet", "duckdb", "postgres", "spark"):
        assert count_table(engines.hold(engine, table), book) == expected, engine
