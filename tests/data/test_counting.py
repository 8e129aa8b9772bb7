"""One behavioural suite over all backends: whatever holds the rows, the same integers come out.

The truth is counted here, row by row in plain Python, by the rules that codebook.py states.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import ibis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric
from blindbayes.data import count, encode, open_source
from blindbayes.errors import DataError
from blindbayes.statistics import Layout, Statistics, count_block
from support.databases import Engines
from support.tables import BAD, HOSTILE, mixed_table, truth

BACKENDS = [
    "pandas", "pandas objects", "pandas nullable", "polars", "arrow", "csv", "csv.gz", "tsv", "parquet", "parquet folder",
    "duckdb", "ibis", "encode", "fit", "postgres",
]  # fmt: skip
AS_TEXT = {"csv", "csv.gz", "tsv"}
DISTINCT = ["pandas", "pandas objects", "csv", "parquet", "encode", "fit", "postgres"]  # one of each way through the code


class Backends:
    """Counts a table through one backend."""

    def __init__(self, folder: Path, request: pytest.FixtureRequest) -> None:
        self.folder = folder
        self.request = request

    def count(self, name: str, table: pa.Table, codebook: Codebook) -> Statistics:
        return getattr(self, "_" + name.replace(" ", "_").replace(".", "_"))(table, codebook)

    def _pandas(self, table: pa.Table, codebook: Codebook) -> Statistics:
        return count(table.to_pandas(), codebook)

    def _pandas_objects(self, table: pa.Table, codebook: Codebook) -> Statistics:
        frame = pd.DataFrame({name: pd.Series(table[name].to_pylist(), dtype=object) for name in table.column_names})
        return count(frame, codebook)

    def _pandas_nullable(self, table: pa.Table, codebook: Codebook) -> Statistics:
        return count(table.to_pandas(types_mapper=pd.ArrowDtype), codebook)

    def _polars(self, table: pa.Table, codebook: Codebook) -> Statistics:
        return count(pl.from_arrow(table), codebook)

    def _arrow(self, table: pa.Table, codebook: Codebook) -> Statistics:
        return count(table, codebook)

    def _write_csv(self, table: pa.Table, path: Path, opener: Callable[..., Any] = open, delimiter: str = ",") -> str:
        with opener(path, "wt", encoding="utf-8", newline="") as file:
            text = table.to_pandas(types_mapper=pd.ArrowDtype).astype(object)
            text = text.map(lambda value: str(value).lower() if isinstance(value, bool) else value)
            text.to_csv(file, index=False, sep=delimiter)
        return str(path)

    def _csv(self, table: pa.Table, codebook: Codebook) -> Statistics:
        return count(self._write_csv(table, self.folder / "t.csv"), codebook)

    def _csv_gz(self, table: pa.Table, codebook: Codebook) -> Statistics:
        return count(Path(self._write_csv(table, self.folder / "t.csv.gz", gzip.open)), codebook)

    def _tsv(self, table: pa.Table, codebook: Codebook) -> Statistics:
        return count(self._write_csv(table, self.folder / "t.tsv", delimiter="\t"), codebook)

    def _parquet(self, table: pa.Table, codebook: Codebook) -> Statistics:
        pq.write_table(table, self.folder / "t.parquet")
        return count(self.folder / "t.parquet", codebook)

    def _parquet_folder(self, table: pa.Table, codebook: Codebook) -> Statistics:
        (self.folder / "many").mkdir()
        for at in range(3):
            part = table.take(pa.array(range(at, table.num_rows, 3), pa.int64()))
            pq.write_table(part, self.folder / "many" / f"{at}.parquet")
        by_pattern = count(str(self.folder / "many" / "*.parquet"), codebook)
        assert by_pattern == count(self.folder / "many", codebook)
        return by_pattern

    def _duckdb(self, table: pa.Table, codebook: Codebook) -> Statistics:
        path = self.folder / "t.duckdb"
        with duckdb.connect(str(path)) as connection:
            connection.register("rows", table)
            connection.execute('CREATE TABLE "my visits" AS SELECT * FROM rows')
        return count(f"duckdb://{path}#my%20visits", codebook)

    def _ibis(self, table: pa.Table, codebook: Codebook) -> Statistics:
        connection = ibis.duckdb.connect()
        return count(connection.create_table("t", table), codebook)

    def _encode(self, table: pa.Table, codebook: Codebook) -> Statistics:
        columns = {name: table[name].to_numpy() for name in codebook.names}
        return count_block(Layout(codebook), encode(columns, codebook, training=True, labels=table[codebook.target]))

    def _fit(self, table: pa.Table, codebook: Codebook) -> Statistics:
        statistics: Statistics = NaiveBayes(codebook).fit(table).statistics_
        return statistics

    def _postgres(self, table: pa.Table, codebook: Codebook) -> Statistics:
        return count(Engines(self.folder, self.request).hold("postgres", table), codebook)


@pytest.fixture
def backends(tmp_path: Path, request: pytest.FixtureRequest) -> Backends:
    return Backends(tmp_path, request)


@pytest.mark.parametrize("name", BACKENDS)
def test_every_backend_gives_the_integers_of_the_truth(name: str, backends: Backends) -> None:
    table, codebook = mixed_table()
    expected = truth(table, codebook)
    found = backends.count(name, table, codebook)
    assert found.by_name() == expected.by_name()
    assert found.words.tobytes() == expected.words.tobytes()


@pytest.mark.parametrize("name", [name for name in BACKENDS if name not in AS_TEXT])
def test_nan_is_missing_like_null(name: str, backends: Backends) -> None:
    codebook = Codebook("y", ("a",), (Numeric("x", 0, 9, optional=True), Categorical("k", ("1",), optional=True)))
    table = pa.table({"x": [1.0, float("nan"), None, 3.0], "k": [1.0, float("nan"), None, 1.0], "y": ["a"] * 4})
    found = backends.count(name, table, codebook)
    assert (found.n["x"].tolist(), found.counts["k"].tolist()) == ([2], [[2]])


@pytest.mark.parametrize("name", BACKENDS)
def test_decimals_round_as_their_floats_do(name: str, backends: Backends) -> None:
    codebook = Codebook("y", ("a",), (Numeric("x", -99, 99, 0.01), Categorical("k", ("1", "2"))))
    values = [Decimal("1.005"), Decimal("-2.675"), Decimal("0.125"), Decimal("0.285"), Decimal("98.995"), Decimal("-0.005")]
    table = pa.table(
        {
            "x": pa.array(values, pa.decimal128(9, 3)),
            "k": pa.array([Decimal("1.0"), Decimal("2.0")] * 3, pa.decimal128(4, 1)),
            "y": ["a"] * 6,
        }
    )
    assert backends.count(name, table, codebook) == truth(table, codebook)


@pytest.mark.parametrize("name", [*DISTINCT, "parquet folder"])
def test_an_empty_table_counts_nothing(name: str, backends: Backends) -> None:
    table, codebook = mixed_table()
    if name == "fit":
        with pytest.raises(DataError, match="empty"):
            backends.count(name, table[:0], codebook)
    else:
        assert backends.count(name, table[:0], codebook) == Statistics.zero(codebook)


@pytest.mark.parametrize("name", DISTINCT)
def test_hostile_column_names_are_just_names(name: str, backends: Backends) -> None:
    features = tuple(
        Numeric(label, 0, 9) if at % 2 else Categorical(label, ("0", "1", "2")) for at, label in enumerate(HOSTILE)
    )
    codebook = Codebook("group; by", ("a", "b"), features)
    generator = np.random.default_rng(4)
    table = pa.table(
        {
            **{label: pa.array(generator.integers(0, 3, 20), pa.int64()) for label in HOSTILE},
            "group; by": ["a", "b"] * 10,
        }
    )
    assert backends.count(name, table, codebook) == truth(table, codebook)


@pytest.mark.parametrize("name", DISTINCT)
@pytest.mark.parametrize("case", BAD)
def test_rows_that_do_not_fit_are_an_error_that_names_column_and_rule(name: str, case: str, backends: Backends) -> None:
    codebook = Codebook("y", ("a", "b"), (Categorical("k", ("u", "v")), Numeric("x", 0, 9), Categorical("w", ("1", "2"))))
    columns = {"k": ["u", "v", "u"], "x": [1.0, 2.0, 3.0], "w": [1, 2, 1], "y": ["a", "b", "a"]}
    column, values, message = BAD[case]
    columns[column] = values
    table = pa.table(columns)
    if name in AS_TEXT and case in {"infinity", "truth values", "enormous"}:
        message = "feature 'x': [123] rows? holds? a text"  # no numbers in a text file, by the rule for every engine
    if name in AS_TEXT and case == "fraction as category":
        message = "feature 'w': 1 row holds a category"  # 1.0 is 1, as it is in a column of numbers
    with pytest.raises(DataError, match=message) as caught:
        backends.count(name, table, codebook)
    assert "CANARY" not in str(caught.value)
    assert "77" not in str(caught.value)


# -- frames as people have them ----------------------------------------------------------------------------------------

SMALL = Codebook("y", ("a", "b"), (Categorical("k", ("u", "v"), optional=True), Numeric("x", 0, 9, optional=True)))


def test_opened_sources_can_be_counted_twice_and_stay_open() -> None:
    frame = pd.DataFrame({"k": ["u", "v"], "x": [1, 2], "y": ["a", "b"]})
    with open_source(frame) as source:
        assert count(source, SMALL) == count(source, SMALL)
        assert NaiveBayes(SMALL).fit(source).statistics_ == NaiveBayes(SMALL).fit(source).statistics_


def test_a_csv_keeps_its_text_as_it_stands(tmp_path: Path) -> None:
    codebook = Codebook("y", ("1", "2"), (Categorical("k", ("007", "'q'", "# no comment", "1e3", "true")),))
    path = tmp_path / "t.csv"
    path.write_text("k,y\n'q',1\n# no comment,2\n# no comment,1\n007,1\n1e3,2\n\"true\",2\n", encoding="utf-8")
    assert count(path, codebook).counts["k"].tolist() == [[1, 1, 1, 0, 0], [0, 0, 1, 1, 1]]
    path.write_bytes("\ufeffk,y\r\n007,1\r\n".encode())
    assert count(path, codebook).class_counts.tolist() == [1, 0]


def test_more_bins_than_the_group_limit_are_all_counted() -> None:
    codebook = Codebook("y", ("a", "b", "c"), (Numeric("x", 0, 79_999, bins=80_000),))
    table = pa.table({"x": np.tile(np.arange(80_000), 3), "y": np.repeat(["a", "b", "c"], 80_000)})
    assert (count(table, codebook).counts["x"] == 1).all()


def test_a_category_list_longer_than_the_group_limit_is_all_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blindbayes.data.expressions.MAX_GROUPS", 10)
    values = tuple(f"v{at}" for at in range(40))
    codebook = Codebook("y", ("a", "b"), (Categorical("k", values),))
    there = ibis.duckdb.connect()
    table = pa.table({"k": list(values) * 2, "y": ["a"] * 40 + ["b"] * 40})
    assert (count(there.create_table("table", table), codebook).counts["k"] == 1).all()
    wrong = pa.table({"k": [f"id{at}" for at in range(500)], "y": ["a"] * 500})
    with pytest.raises(DataError, match="more than"):
        count(there.create_table("wrong", wrong), codebook)
    there.disconnect()


def test_the_embedded_engine_fetches_nothing() -> None:
    with open_source(pa.table({"a": [1]})) as source:
        setting = source.table.get_backend().raw_sql("SELECT current_setting('autoinstall_known_extensions')").fetchone()
    assert setting == (False,)
