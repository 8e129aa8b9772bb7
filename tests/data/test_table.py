"""Reading is record-wise: what a row adds to the counts hangs on that row alone, whatever holds the table.

For every reader, count(T + r) - count(T) = count(r), with an r that tries to change how T is read; and one table counts alike
wherever it lies. Nothing that a private reading meets in a row is an error.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import ibis
import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric, PrivateNaiveBayes, Text
from blindbayes.codebook import IdPart, IdRecipe
from blindbayes.data import count_table, open_table
from blindbayes.data.columns import open_columns
from blindbayes.data.contribution_bound import ContributionBound
from blindbayes.data.table import read_block
from blindbayes.errors import DataError
from blindbayes.statistics import Layout, Statistics, count_block
from support.databases import Engines as Held

BOOK = Codebook(
    "y",
    ("0", "1", "true"),
    (
        Categorical("k", ("0", "1", "true", "0.5", "7"), optional=True),
        Categorical("o", ("a", "1", "rest"), other="rest"),
        Numeric("x", 0, 10, 1.0, optional=True),
        Numeric("w", -3, 3, 0.5, bins=4),
        Numeric("m", 0, 100, 1.0),
        Text("t", ("true", "99", "300", "rest", "nan"), max_words=2),
        Text("s", buckets=3, model="bernoulli", optional=True, max_words=2),
    ),
    max_rows=1000,
    missing=("?", "0.0", "-9"),
)
NAMES = [*BOOK.names, BOOK.target]
Row = tuple[Any, ...]
NUMBERS = [0, 1, 7, -9, 3.0, 0.0, 0.5, -2.5, 99, 1e300, -1e18, 1e-300, 2.0**53, float("inf"), float("-inf"), float("nan")]
TEXTS = [
    "0",
    "0.0",
    "00",
    "1",
    "1.0",
    " 1",
    "true",
    "True",
    "FALSE",
    "?",
    "",
    "rest",
    "a",
    "-9.00",
    "1e1",
    "inf",
    "nan",
    "é",
    "x",
    "Rest, rest; TRUE 300?",
    "true true true 99 300 nan",
]
ODD = [None, True, False, Decimal("1.0"), Decimal("NaN"), Decimal("0.50"), 10**400, 2**64, datetime.date(2020, 1, 2), b"1", [1]]


def objects(rows: list[Row]) -> npt.NDArray[Any]:
    found = np.empty((len(rows), len(NAMES)), dtype=object)
    for at, row in enumerate(rows):
        for column, value in enumerate(row):
            found[at, column] = value
    return found


def fitted(X: Any, y: Any) -> Statistics:
    """What a private fit counts."""
    model = PrivateNaiveBayes(BOOK, epsilon=1.0)
    return count_block(Layout(BOOK), model._private_block(X, y, BOOK))


def in_columns(source: Any) -> Statistics:
    """What a study over columns counts."""
    total = Statistics.zero(BOOK)
    for block in open_columns(source, BOOK).blocks(lenient=True, size=2):
        total = total + count_block(Layout(BOOK), block)
    return total


def frame(rows: list[Row]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(list(objects(rows)[:, at]), dtype=object) for at, name in enumerate(NAMES)})


UNTYPED: dict[str, Callable[[list[Row]], Statistics]] = {
    "list of lists": lambda rows: fitted([list(row[:-1]) for row in rows], [row[-1] for row in rows]),
    "array of objects": lambda rows: fitted(objects(rows)[:, :-1], objects(rows)[:, -1]),
    "frame of objects, fit": lambda rows: fitted(frame(rows), None),
    "frame of objects, study": lambda rows: count_table(frame(rows), BOOK, lenient=True),
    "frame of objects, columns": lambda rows: in_columns(frame(rows)),
    "frame as pandas types it": lambda rows: count_table(frame(rows).infer_objects(), BOOK, lenient=True),
    "categories of pandas": lambda rows: fitted(
        frame(rows).assign(k=pd.Series([row[0] if isinstance(row[0], str) else None for row in rows], dtype="category")), None
    ),
}
CELL = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(TEXTS), st.sampled_from(ODD))
ROW = st.tuples(*[CELL] * 7, st.one_of(st.sampled_from(["0", "1", "true", 0, 1, 1.0, True]), CELL))
PLAIN = st.tuples(*[st.sampled_from([0, 1, 7, 3.0])] * 7, st.sampled_from([0, 1]))


@pytest.mark.parametrize("reader", UNTYPED)
@settings(max_examples=25, deadline=None)
@given(rows=st.one_of(st.lists(PLAIN, max_size=4), st.lists(ROW, max_size=4)), record=ROW)
def test_a_record_adds_what_it_adds_alone(reader: str, rows: list[Row], record: Row) -> None:
    read = UNTYPED[reader]
    assert (read([*rows, record]) - read(rows)) == read([record])


@settings(max_examples=25, deadline=None)
@given(rows=st.lists(ROW, max_size=5))
def test_every_reader_of_objects_counts_alike(rows: list[Row]) -> None:
    found = {name: read(rows) for name, read in UNTYPED.items() if name != "categories of pandas"}
    assert all(each == found["list of lists"] for each in found.values())


def added(rows: list[Row]) -> Statistics:
    """What batches add."""
    found = NaiveBayes(BOOK).partial_fit([list(row[:-1]) for row in rows], [row[-1] for row in rows]).statistics_
    assert found is not None
    return found


STRICT: dict[str, Callable[[list[Row]], Statistics]] = {
    "list of lists, partial_fit": added,
    "frame of objects, studies and ratios without noise": lambda rows: count_table(frame(rows), BOOK),
}


@pytest.mark.parametrize("reader", STRICT)
@settings(max_examples=25, deadline=None)
@given(rows=st.one_of(st.lists(PLAIN, max_size=4), st.lists(ROW, max_size=4)), record=st.one_of(PLAIN, ROW))
def test_without_noise_too_a_record_is_counted_or_refused_by_itself(reader: str, rows: list[Row], record: Row) -> None:
    def read(rows: list[Row]) -> Statistics | None:
        try:
            return STRICT[reader](rows)
        except (DataError, ValueError):  # labels that scikit-learn refuses
            return None

    alone = [read([row]) for row in (*rows, record)]
    whole = read([*rows, record])
    if None in alone:
        assert whole is None
    else:
        assert whole == sum(alone[1:], alone[0])  # type: ignore[arg-type, type-var]


def test_labels_that_are_bytes_are_refused_with_the_next_step() -> None:
    with pytest.raises(DataError, match="decode them to text"):
        added([(0, 0, 0, 0, 0, 0, 0, b"1")])


# -- tables of one type per column, in every engine --------------------------------------------------------------------------


def typed(rows: list[Row], kind: Any, cast: Callable[[Any], Any]) -> pa.Table:
    columns = {name: [None if row[at] is None else cast(row[at]) for row in rows] for at, name in enumerate(NAMES)}
    return pa.table({name: pa.array(values, kind) for name, values in columns.items()})


def as_text(rows: list[Row]) -> pa.Table:
    """Every cell by its plain text, as a CSV holds it."""
    return typed(rows, pa.string(), str)


def as_floats(rows: list[Row]) -> pa.Table:
    return typed(rows, pa.float64(), float)


class Engines:
    """Counts a typed table, by engine."""

    def __init__(self, folder: Path, request: pytest.FixtureRequest) -> None:
        self.folder, self.request = folder, request

    def arrow(self, table: pa.Table) -> Statistics:
        return count_table(table, BOOK, lenient=True)

    def pandas(self, table: pa.Table) -> Statistics:
        return count_table(table.to_pandas(), BOOK, lenient=True)

    def polars(self, table: pa.Table) -> Statistics:
        return count_table(pl.from_arrow(table), BOOK, lenient=True)

    def array(self, table: pa.Table) -> Statistics:
        whole = table.to_pandas()
        texts = pa.types.is_string(table.schema[0].type)
        array = whole.fillna("?").to_numpy().astype(str) if texts else whole.to_numpy()
        return fitted(array[:, :-1], array[:, -1])

    def columns(self, table: pa.Table) -> Statistics:
        return in_columns(table)

    def csv(self, table: pa.Table) -> Statistics:
        path = self.folder / "t.csv"
        table.to_pandas().to_csv(path, index=False)
        return count_table(path, BOOK, lenient=True)

    def parquet(self, table: pa.Table) -> Statistics:
        pq.write_table(table, self.folder / "t.parquet")
        return count_table(self.folder / "t.parquet", BOOK, lenient=True)

    def duckdb(self, table: pa.Table) -> Statistics:
        path = self.folder / "t.duckdb"
        with duckdb.connect(str(path)) as connection:
            connection.register("rows", table)
            connection.execute("CREATE OR REPLACE TABLE t AS SELECT * FROM rows")
        return count_table(f"duckdb://{path}#t", BOOK, lenient=True)

    def ibis(self, table: pa.Table) -> Statistics:
        """An engine that counts by itself."""
        there = ibis.duckdb.connect()
        try:
            return count_table(there.create_table("rows", table), BOOK, lenient=True)
        finally:
            there.disconnect()

    def postgres(self, table: pa.Table) -> Statistics:
        return count_table(Held(self.folder, self.request).hold("postgres", table), BOOK, lenient=True)

    def spark(self, table: pa.Table) -> Statistics:
        return count_table(Held(self.folder, self.request).hold("spark", table), BOOK, lenient=True)


ENGINES = ["arrow", "pandas", "polars", "array", "columns", "csv", "parquet", "duckdb", "ibis", "postgres"]
REAL = [number for number in NUMBERS if 1e-99 < abs(number) < 1e17 or number in (0, None) or number != number]  # as texts too
TYPED = {
    "text": (as_text, [text for text in TEXTS if text != ""] + ["1e9", "-77", "nope", "0.50"]),
    "numbers": (as_floats, [*REAL, -77, 1e9, float("inf"), None]),
}


@pytest.fixture
def engines(tmp_path: Path, request: pytest.FixtureRequest) -> Engines:
    return Engines(tmp_path, request)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", [*ENGINES, pytest.param("spark", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", TYPED)
def test_every_engine_counts_cells_alike_and_row_by_row(kind: str, engine: str, engines: Engines) -> None:
    """One table that holds every cell in every column; its counts, and what its last rows add, as objects in a list give."""
    make, cells = TYPED[kind]
    labels = ["0", "1", "1.0", "true", "?", "zz"] if kind == "text" else [0, 1, 1.0, 0.5, None, 7]
    rows = [(*[cells[(at + shift) % len(cells)] for shift in range(7)], labels[at % 6]) for at in range(3 * len(cells))]
    read: Callable[[pa.Table], Statistics] = getattr(engines, engine)
    expected = UNTYPED["list of lists"]
    assert read(make(rows)) == expected(rows)
    added = read(make(rows)) - read(make(rows[:-2]))
    assert added == expected(rows[-2:])


def test_a_marker_is_a_number_in_text_and_in_numbers_alike(tmp_path: Path) -> None:
    """The reader's break: with the marker 0.0 a CSV counted 0 and a Parquet of the same table did not."""
    book = Codebook(
        "y", ("a",), (Numeric("x", 0, 10, optional=True), Categorical("k", ("1",), optional=True)), missing=("0.0",)
    )
    table = pa.table({"x": [0, 1, 0, 2], "k": [1, 0, 0, 1], "y": ["a"] * 4})
    table.to_pandas().to_csv(tmp_path / "t.csv", index=False)
    pq.write_table(table, tmp_path / "t.parquet")
    found = [count_table(each, book) for each in (table, table.to_pandas(), tmp_path / "t.csv", tmp_path / "t.parquet")]
    assert found[0].n["x"].tolist() == [2]
    assert found[0].counts["k"].tolist() == [[2]]
    assert all(each == found[0] for each in found)


BY_FILE: dict[str, Callable[[Path, Codebook], Statistics]] = {
    "counted": lambda path, book: count_table(path, book, lenient=True),
    "read at once": lambda path, book: count_block(Layout(book), read_block(path, book, lenient=True)),
    "by person": lambda path, book: count_table(path, book, lenient=True, bound=ContributionBound(100, bytes(32))),
    "mapped": lambda path, book: count_table(open_table(path, map={"k": "k"}), book, lenient=True),
}


@pytest.mark.parametrize("way", BY_FILE)
def test_files_of_one_table_may_differ_in_the_types_of_a_column(way: str, tmp_path: Path) -> None:
    """One missing cell makes floats of a file's whole numbers. An engine took the first file's types for the others' bytes."""
    book = Codebook(
        "y",
        ("a",),
        (Categorical("k", ("1", "2", "true"), other="2"), Numeric("x", 0, 10, bins=5)),
        missing=("?", "7"),
        identifier=IdRecipe((IdPart("who", "exact"),)),
    )
    parts = [
        pa.array([1, 2, 7], pa.int64()),
        pa.array([1.0, None, 7.5], pa.float64()),
        pa.array(["1.0", "", "?"], pa.string()),
        pa.array([True, False, None], pa.bool_()),
        pa.array([Decimal("2.0"), None, Decimal("7.0")], pa.decimal128(5, 1)),
        pa.array([datetime.date(2020, 1, 2)] * 3, pa.date32()),
        pa.array([[1], [2], None], pa.list_(pa.int64())),
        pa.array([], pa.null()),
    ]
    alone = Statistics.zero(book)
    for at, part in enumerate(parts):
        rows = len(part)
        table = pa.table({"k": part, "x": part, "y": ["a"] * rows, "who": pa.array([str(at)] * rows, pa.string())})
        pq.write_table(table, tmp_path / f"{at}.parquet")
        alone += count_table(tmp_path / f"{at}.parquet", book, lenient=True)
    assert BY_FILE[way](tmp_path, book) == alone


FOLDED = {  # a column by which u and U are one
    "collation": "text COLLATE folded",
    "citext": "citext",
}
LISTED = Codebook("y", ("a", "b"), (Categorical("k", ("u", "v"), other="v"), Numeric("x", 0, 10, bins=2)))


@pytest.mark.parametrize("column", FOLDED)
def test_a_database_that_takes_texts_for_one_counts_each_by_itself(column: str, postgres: str) -> None:
    """Grouped, one U before all u stood for them, and no row had a listed category."""
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres, autocommit=True) as session:
        session.execute(
            "CREATE COLLATION IF NOT EXISTS folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
        session.execute("CREATE EXTENSION IF NOT EXISTS citext")
        session.execute(f"CREATE TABLE by_{column} (k {FOLDED[column]}, x double precision, y {FOLDED[column]})")
        session.execute(f"INSERT INTO by_{column} SELECT 'U', 1, 'A' UNION ALL SELECT 'u', 1, 'a' FROM generate_series(1, 5)")
        session.execute(f"INSERT INTO by_{column} VALUES ('U', 1, 'a')")
    found = count_table(f"{postgres}#by_{column}", LISTED, lenient=True)
    assert found.counts["k"].tolist() == [[5, 1], [0, 0]]
    assert found.class_counts.tolist() == [6, 0]
    assert found.counts["x"].tolist() == [[6, 0], [0, 0]]


def test_a_table_of_ibis_that_takes_texts_for_one_counts_each_by_itself() -> None:
    there = ibis.duckdb.connect()
    try:
        there.raw_sql("CREATE TABLE rows (k VARCHAR COLLATE NOCASE, x DOUBLE, y VARCHAR)")
        there.raw_sql("INSERT INTO rows VALUES ('U', 1, 'a'), ('u', 1, 'a'), ('u', 1, 'a')")
        assert count_table(there.table("rows"), LISTED, lenient=True).counts["k"].tolist() == [[2, 1], [0, 0]]
    finally:
        there.disconnect()


DERIVED = {
    "x": ["floor(a)", "round(a)", "a * b", "a / b", "a * 1e300", "a + b", "1 if a == b else 2"],
    "d": ["days(c, d)", "weekday(c)"],
}
ANY = Codebook("y", ("a",), (Numeric("x", -1000, 1000, bins=5, optional=True),))


@pytest.mark.parametrize("engine", ["csv", "duckdb", "postgres"])
def test_no_cell_of_a_derived_column_is_an_error(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """PostgreSQL refuses products beyond floats; engines make integers of what floor gives, and refuse 1e99 and NaN."""
    numbers = ["3", "1e99", "-1e99", "1e-99", "0", None]
    dates = ["2020-02-29", "9999-12-31", None]
    if engine == "csv":
        frame = pd.DataFrame(
            [(a, b, "2020-02-30", c, "a") for a in numbers for b in numbers for c in dates], columns=list("abcdy")
        )
        frame.to_csv(tmp_path / "t.csv", index=False)
        where = str(tmp_path / "t.csv")
    else:
        values = [*numbers[:-1], "1e200", "-1e200", "1e-200", "NaN", "Infinity", "1e308"]
        dates += ["infinity", "-infinity"]
        rows = ", ".join(
            f"('{a}', '{b}', '{c}', {repr(d) if d else 'NULL'}, 'a')"
            for a in values
            for b in values
            for c in dates[:2]
            for d in dates
        )
        table = "CREATE TABLE derived (a double precision, b double precision, c date, d date, y text)"
        if engine == "duckdb":
            where = f"duckdb://{tmp_path}/t.duckdb#derived"
            with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
                connection.execute(table)
                connection.execute(f"INSERT INTO derived VALUES {rows}")
        else:
            psycopg, url = pytest.importorskip("psycopg"), request.getfixturevalue("postgres")
            where = f"{url}#derived"
            with psycopg.connect(url, autocommit=True) as session:
                session.execute(table)
                session.execute(f"INSERT INTO derived VALUES {rows}")
    for made in (each for some in DERIVED.values() for each in some):
        with open_table(where, map={"x": made}) as source:
            assert count_table(source, ANY, lenient=True, extra_columns="ignore").class_counts[0] > 0


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1e-400", "NaN", "Infinity", "0.1234567890123456789", "1e25", "2.0"])
def test_a_decimal_of_any_length_is_no_error_and_reads_alike_wherever_it_is_read(number: str, postgres: str) -> None:
    """PostgreSQL makes no float of 1e400, and Arrow no decimal of NaN: one such record stopped a private fit."""
    psycopg = pytest.importorskip("psycopg")
    book = Codebook("y", ("a",), (Numeric("x", -10, 10, bins=4), Categorical("k", ("2", "0"), other="0")))
    with psycopg.connect(postgres, autocommit=True) as session:
        session.execute("DROP TABLE IF EXISTS decimals")
        session.execute("CREATE TABLE decimals (x numeric, k numeric, y char(3))")
        session.execute(f"INSERT INTO decimals VALUES ('{number}', '{number}', 'a'), (2, 2, 'a')")
    there = count_table(f"{postgres}#decimals", book, lenient=True)
    here = count_block(Layout(book), read_block(f"{postgres}#decimals", book, lenient=True))
    objects = pd.DataFrame({name: pd.Series([Decimal(number), Decimal(2)], dtype=object) for name in "xk"}).assign(y="a")
    assert there == here == count_table(objects, book, lenient=True)
