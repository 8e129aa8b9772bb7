"""Tables as people have them: dialects of CSV, packed files, workbooks, dates, and a map from a site's columns.

One table counts alike whatever carries it, and no row changes how another is read: a dialect is declared, or decided by the
header and the first bytes.
"""

from __future__ import annotations

from pathlib import Path

import ibis
import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner

from blindbayes import Categorical, Codebook, NaiveBayes, PrivateNaiveBayes, load, open_table
from blindbayes.cli import root
from blindbayes.data import check, count_table
from blindbayes.data.sources import read_public
from blindbayes.errors import DataError
from support.jobs import BOOK, FRAME, WANT, write

# -- one meaning of a value ---------------------------------------------------------------------------------------------------

CODES = Codebook("y", ("true", "false"), (Categorical("c", ("1", "2", "3"), optional=True),), max_rows=100)


def test_truth_values_and_whole_numbers_with_gaps_count_alike_in_frame_csv_parquet_and_database(tmp_path: Path) -> None:
    frame = pd.DataFrame({"c": [1.0, 2.0, None, 3.0], "y": [True, False, True, True]})  # as pandas holds an integer with gaps
    frame.to_csv(tmp_path / "t.csv", index=False)  # True, 1.0
    frame.to_parquet(tmp_path / "t.parquet")
    there = ibis.duckdb.connect()
    sources = (frame, tmp_path / "t.csv", tmp_path / "t.parquet", there.create_table("t", pa.Table.from_pandas(frame)))
    want = count_table(frame.astype({"c": "Int64"}), CODES)
    assert all(count_table(source, CODES) == want for source in sources)
    there.disconnect()


# -- the map -------------------------------------------------------------------------------------------------------------------


# -- from the command line, and in the estimator ---------------------------------------------------------------------


def test_a_bank_s_semicolons_train_check_and_predict_without_touching_the_file(tmp_path: Path) -> None:
    data = write(tmp_path / "bank.csv", FRAME.assign(id=range(4)).to_csv(index=False, sep=";", decimal=","), "latin-1")
    BOOK.to_toml(tmp_path / "book.toml")
    reading = ["--encoding", "latin-1", "--decimal", ",", "--ignore-extra"]
    run = CliRunner()
    for command in (
        ["codebook", "check", str(tmp_path / "book.toml"), "--data", str(data)],
        ["train", str(data), "--codebook", str(tmp_path / "book.toml"), "--out", str(tmp_path / "m.json")],
        ["predict", str(tmp_path / "m.json"), str(data)],
    ):
        found = run.invoke(root, [*command, *reading])
        assert found.exit_code == 0, found.output
        assert "separated by semicolons" in found.stderr
    assert load(tmp_path / "m.json").statistics_ == WANT


def test_columns_that_nobody_declared_are_left_unread_where_the_error_says_so() -> None:
    more = FRAME.assign(id=["CANARY"] * 4)
    with pytest.raises(DataError, match="extra_columns='ignore'"):
        NaiveBayes(BOOK).fit(more)
    plain, private = NaiveBayes(BOOK, extra_columns="ignore"), PrivateNaiveBayes(BOOK, epsilon=1.0, extra_columns="ignore")
    for model in (plain.fit(more), private.fit(more)):
        assert (model.predict(more) == model.predict(FRAME)).all()
    with open_table(more) as table:
        assert check(table, BOOK, extra_columns="ignore").ok


def test_a_public_file_in_another_dialect_makes_a_codebook(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", FRAME.to_csv(index=False, sep=";"))
    assert read_public(str(path))[0].schema.field("pay").type == pa.float64()
