"""Separated thousands, decimal commas and missing markers: declared, cell by cell, alike in files and engines."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.data import Dialect, check, count_table, open_table
from blindbayes.data.first_rows import first_rows
from blindbayes.data.sources import read_public
from blindbayes.errors import ConfigError, DataError
from support.databases import Engines

BOOK = Codebook(
    "y", ("no", "yes"), (Categorical("job", ("cook", "clerk"), optional=True), Numeric("pay", 0, 9000, optional=True))
)
PLAIN = "y;job;pay\nno;cook;1234.5\nyes;clerk;12\nno;;\nyes;cook;1000\n"


def _written(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_text(text, encoding=encoding)
    return path


@pytest.mark.parametrize(
    ("cells", "decimal", "thousands"),
    [
        (("1.234,5", "12", "1.000"), ",", "."),
        (("1,234.5", "12.0", "1,000"), ".", ","),
        (("1 234,5", "12,0", "1\u202f000"), ",", " "),
        (("1'234.5", "12", "1\u2019000"), ".", "'"),
        (("1234,5", "12", "1000"), ",", "."),
    ],
)
@pytest.mark.parametrize("mapping", [None, {"pay": "number(pay)"}, {"pay": "pay"}], ids=["read", "computed", "renamed"])
def test_separated_thousands_count_as_the_same_numbers_without(
    tmp_path: Path, cells: tuple[str, str, str], decimal: str, thousands: str, mapping: dict[str, str] | None
) -> None:
    first, second, third = cells
    text = f"y;job;pay\nno;cook;{first}\nyes;clerk;{second}\nno;k.A.;-99\nyes;cook;{third}\n"
    path, plain = _written(tmp_path / "a.csv", text), _written(tmp_path / "b.csv", PLAIN)
    with open_table(path, map=mapping, dialect=Dialect(decimal=decimal, thousands=thousands, missing=("k.A.", "-99"))) as table:
        assert count_table(table, BOOK) == count_table(str(plain), BOOK)


@pytest.mark.parametrize(
    "engine", ["frame", "pandas", "parquet", "duckdb", "postgres", pytest.param("spark", marks=pytest.mark.slow)]
)
def test_engines_read_declared_marks_in_text_columns(engine: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    cells = pa.array(["1.234,5", "12", None, "1.000"])
    rows = pa.table({"y": ["no", "yes", "no", "yes"], "job": ["cook", "clerk", None, "cook"], "pay": cells})
    held = Engines(tmp_path, request).hold(engine, rows)
    plain = _written(tmp_path / "b.csv", PLAIN)
    with open_table(held, dialect=Dialect(decimal=",", thousands=".")) as table:
        assert count_table(table, BOOK) == count_table(str(plain), BOOK)
        assert check(table, BOOK).ok
        assert sorted(map(str, table.arrow(["pay"], BOOK)["pay"].to_pylist())) == ["1000", "12", "1234.5", "None"]
        assert ["1234.5"] in first_rows(table, ["pay"], 4, BOOK)


def test_marks_of_a_database_file_are_read_in_a_draft_and_after_a_map(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "rows.duckdb")) as connection:
        connection.execute("create table t as select 'no' as y, '1.234,5' as paid, 'cook' as job")
    url = f"duckdb:///{tmp_path}/rows.duckdb#t"
    drafted, _ = read_public(open_table(url, dialect=Dialect(decimal=",", thousands=".")))
    assert (drafted["paid"].to_pylist(), drafted["job"].to_pylist()) == ([1234.5], ["cook"])
    for rule in ("paid", "number(paid)"):
        with open_table(url, map={"pay": rule}, dialect=Dialect(decimal=",", thousands=".")) as table:
            assert count_table(table, BOOK).n["pay"].tolist() == [1, 0]


def test_marks_are_read_once_when_rows_are_chosen(tmp_path: Path) -> None:
    path = _written(tmp_path / "a.csv", "y;job;pay\nno;cook;1.234,5\nyes;clerk;12,5\n")
    with open_table(path, dialect=Dialect(decimal=",", thousands=".")) as table:
        kept = table.rows(BOOK).filter(table.table.y == "no")
        assert table.arrow(["pay"], BOOK, kept)["pay"].to_pylist() == ["1234.5"]


def test_a_point_that_separates_no_thousands_is_not_a_number(tmp_path: Path) -> None:
    path = _written(tmp_path / "a.csv", "y;job;pay\nno;cook;1.5\nyes;cook;12.34,5\n")
    with open_table(path, dialect=Dialect(decimal=",", thousands=".")) as table:
        report = check(table, BOOK).to_dict()
    assert next(each for each in report["columns"] if each["name"] == "pay")["unreadable"] == 2


def test_markers_are_missing_in_numbers_of_parquet_and_databases_too(tmp_path: Path) -> None:
    rows = pa.table({"y": ["no", "yes"], "job": ["cook", "?"], "pay": [12.0, -99.0]})
    with open_table(rows, dialect=Dialect(missing=("?", "-99"))) as table:
        counted = count_table(table, BOOK)
    with duckdb.connect(str(tmp_path / "rows.duckdb")) as connection:
        connection.execute("create table t as select * from rows")
    with open_table(f"duckdb:///{tmp_path}/rows.duckdb#t", dialect=Dialect(missing=("?", "-99"))) as table:
        assert count_table(table, BOOK) == counted
    texts = rows.set_column(2, "pay", pa.array(["1'2", "3"]))
    with pytest.raises(DataError, match="thousands"), open_table(texts, dialect=Dialect(missing=("?",))) as table:
        count_table(table, BOOK)


@pytest.mark.parametrize(("decimal", "thousands"), [(".", "."), (",", ","), (".", "_"), (".", "..")])
def test_marks_that_cannot_be_told_apart_are_refused(tmp_path: Path, decimal: str, thousands: str) -> None:
    path = _written(tmp_path / "a.csv", PLAIN)
    with pytest.raises(ConfigError, match="thousands must be"):
        open_table(path, dialect=Dialect(decimal=decimal, thousands=thousands))


@pytest.mark.parametrize("mapping", [None, {"self": "self", "job": "job", "y": "y"}], ids=["read", "renamed"])
def test_a_column_of_a_database_may_be_named_self(tmp_path: Path, mapping: dict[str, str] | None) -> None:
    """Names of columns are no keywords of a function: this one is taken in Python."""
    with duckdb.connect(str(tmp_path / "rows.duckdb")) as connection:
        connection.execute("create table t as select 'no' as y, 'cook' as job, 1.5 as self union all select 'yes', '?', -99")
    book = Codebook("y", ("no", "yes"), (BOOK.feature("job"), Numeric("self", 0, 100, optional=True)), max_rows=9)
    with open_table(f"duckdb:///{tmp_path}/rows.duckdb#t", map=mapping, dialect=Dialect(missing=("?", "-99"))) as table:
        assert (count_table(table, book).class_counts.tolist(), check(table, book).rows) == ([1, 1], 2)
