"""The first rows of a table and the kinds of its columns, for the site's staff."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa

from blindbayes import Categorical, Codebook, Dialect, Numeric, open_table
from blindbayes.data.first_rows import first_rows, kinds_of

BOOK = Codebook("y", ("no", "yes"), (Categorical("job", ("cook",)), Numeric("pay", 0, 9999, 0.5)))


def test_a_text_file_is_shown_as_it_stands_and_with_a_codebook_as_it_is_counted(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(f"y;job;pay\nno;cook;1.234,5\nyes;{'x' * 90};2\nno;cook;3\n")
    with open_table(tmp_path / "t.csv", dialect=Dialect(decimal=",", thousands=".")) as table:
        assert kinds_of(table) == {"y": "text", "job": "text", "pay": "text"}
        rows = first_rows(table, ["pay", "job"], 2)
        assert rows == [["1.234,5", "cook"], ["2", "x" * 59 + "…"]]
        assert first_rows(table, ["pay"], 1, BOOK) == [["1234.5"]]


def test_columns_of_a_frame_have_kinds() -> None:
    rows = pa.table({"a": ["x"], "b": [True], "c": [1.5], "d": [datetime.date(2027, 1, 1)], "e": pa.array([None], pa.null())})
    with open_table(rows) as table:
        assert kinds_of(table) == {"a": "text", "b": "truth value", "c": "number", "d": "date", "e": "text"}
        assert first_rows(table, ["c", "e"], 5) == [["1.5", None]]
