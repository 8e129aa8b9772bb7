"""The keyed digest of a table's rows: the same for the same rows, another for any other, in every engine."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blindbayes.data import open_table
from blindbayes.data.digest import rows_digest
from blindbayes.errors import DataError
from support.databases import Engines

KEY = bytes(range(32))
ENGINES = ["frame", "pandas", "csv", "parquet", "duckdb", "postgres", pytest.param("spark", marks=pytest.mark.slow)]
TABLE = pa.table(
    {
        "a'b\"c`d": ["1:x", None, "é\u2028", "'; drop table t; --", "{}%s", "", "-", "x"],
        "n": [1.5, None, 0.1, 1e300, 2.0, -0.5, 1 / 3, 2.0],
        "whole": [1, 2, 3, 4, 5, 2**53 + 1, 7, 5],
        "day": [datetime.date(2027, 1, day + 1) for day in range(8)],
    }
)


def digest(source: Any, key: bytes = KEY, **more: Any) -> str:
    with open_table(source, **more) as opened:
        return rows_digest(opened, key)


def changed(column: str, row: int, value: Any) -> pa.Table:
    values = TABLE[column].to_pylist()
    values[row] = value
    kind = TABLE.schema.field(column).type
    return TABLE.set_column(TABLE.column_names.index(column), column, pa.array(values, kind))


@pytest.mark.parametrize("engine", ENGINES)
def test_order_and_names_do_not_matter_and_every_cell_does(engine: str, tmp_path: Path, request: Any) -> None:
    engines = Engines(tmp_path, request)

    def of(table: pa.Table) -> str:
        return digest(engines.hold(engine, table))

    first = of(TABLE)
    assert of(TABLE) == first
    assert of(TABLE.take([3, 1, 7, 0, 2, 6, 4, 5])) == first
    assert of(TABLE.rename_columns(["p", "q", "r", "s"])) == first
    others = {
        "a row less": TABLE.slice(1),
        "a row twice": pa.concat_tables([TABLE, TABLE.slice(0, 1)]),
        "all rows twice": pa.concat_tables([TABLE, TABLE]),
        "no rows": TABLE.slice(0, 0),
        "a column less": TABLE.drop_columns(["whole"]),
        "another text": changed("a'b\"c`d", 7, "y"),
        "null for a dash": changed("a'b\"c`d", 6, None),
        "the last digit": changed("whole", 5, 2**53),
        "a last bit": changed("n", 6, 0.3333333333333334),
        "two cells of a column exchanged": changed("n", 0, 2.0).set_column(
            1, "n", pa.array([2.0, None, 0.1, 1e300, 1.5, -0.5, 1 / 3, 2.0])
        ),
    }
    found = {name: of(table) for name, table in others.items()}
    assert len({first, *found.values()}) == 1 + len(found)


def test_it_means_nothing_without_the_key() -> None:
    assert digest(TABLE) != digest(TABLE, bytes(32))
    assert len(digest(TABLE)) == 64


def test_cells_do_not_run_into_each_other() -> None:
    pairs = [("ab", "c"), ("a", "bc"), ("1:a", ""), ("1", ":a"), ("-", None), (None, "-"), ("", ""), (None, None)]
    found = {digest(pa.table({"x": pa.array([x], pa.string()), "y": pa.array([y], pa.string())})) for x, y in pairs}
    assert len(found) == len(pairs)


def test_many_batches_add_up_to_the_whole(tmp_path: Path, request: Any) -> None:
    engines = Engines(tmp_path, request)
    large = pa.table({"x": [f"{number % 977}" for number in range(40_000)]})
    back = large.take(list(range(39_999, -1, -1)))
    assert digest(engines.hold("csv", large)) == digest(engines.hold("csv", back))
    less = large.slice(1)
    assert digest(engines.hold("csv", large)) != digest(engines.hold("csv", less))


def test_an_engines_error_quotes_no_row(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\ncanary,4,5\n")
    with pytest.raises(DataError) as caught:
        digest(path)
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("cells", "others"),
    [
        (pa.array([["p"], ["q", "r"], None]), pa.array([["p"], ["q, r"], None])),
        (pa.array([{"k": 1.0}, {"k": None}]), pa.array([{"k": 1.0}, None])),
        (pa.array([b"\xff\xfe", None], pa.binary(2)), pa.array([b"\xff\xff", None], pa.binary(2))),
    ],
    ids=["lists", "structs", "bytes of one length"],
)
def test_columns_that_no_codebook_can_name_count_too(cells: pa.Array, others: pa.Array, tmp_path: Path) -> None:
    """A Parquet file with a UUID or a list beside the study's columns was in no exact sum any more."""
    found = []
    for number, column in enumerate((cells, cells[::-1], others)):
        pq.write_table(pa.table({"extra": column}), tmp_path / f"{number}.parquet")
        found.append(digest(str(tmp_path / f"{number}.parquet")))
    assert found[0] == found[1] != found[2]
