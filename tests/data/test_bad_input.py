"""Bad input: a typed error that names column and rule, nothing left behind, and never a value from a row.

Canaries stand in the rows. They are searched for in the message, in repr, in the whole printed traceback with its chained
causes, in the log and in warnings.
"""

from __future__ import annotations

import datetime
import gzip
import logging
import re
import traceback
import tracemalloc
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.exceptions import NotFittedError

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric
from blindbayes.data import check, count, open_source
from blindbayes.errors import BlindbayesError, ConfigError, DataError

TEXT = "CANARYTEXT"
NUMBER = 7316925.25
CANARIES = (TEXT, "7316925", "2017-03-19")

CODEBOOK = Codebook(
    "outcome", ("no", "yes"), (Categorical("sex", ("f", "m")), Numeric("age", 0, 120), Categorical("code", ("1", "2")))
)


def rows(**changes: Any) -> dict[str, list[Any]]:
    good: dict[str, list[Any]] = {
        "sex": ["f", "m", "f"],
        "age": [30, 40, 50],
        "code": [1, 2, 1],
        "outcome": ["no", "yes", "no"],
    }
    return {**good, **changes}


class Odd:
    def __repr__(self) -> str:
        return TEXT

    __str__ = __repr__


DAY = datetime.date(2017, 3, 19)
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown category": (rows(sex=["f", TEXT, "m"]), "feature 'sex'.*category"),
    "number for a category": (rows(sex=[1, 7316925, 2]), "'sex'"),
    "fraction for a category": (rows(code=[1, NUMBER, 2]), "'code'"),
    "unknown whole number": (rows(code=[1, 7316925, 2]), "feature 'code'.*category"),
    "missing category": (rows(sex=["f", None, "m"]), "feature 'sex'.*missing"),
    "text for a number": (rows(age=["1", TEXT, "3"]), "feature 'age'.*text"),
    "text among numbers": (rows(age=[1, TEXT, 3.5]), "feature 'age'.*text"),
    "NaN": (rows(age=[1, float("nan"), 3]), "feature 'age'.*missing"),
    "null": (rows(age=[1, None, 3]), "feature 'age'.*missing"),
    "out of bounds": (rows(age=[1, NUMBER, 3]), "feature 'age'.*out of bounds"),
    "infinity": (rows(age=[1, float("inf"), 3]), "feature 'age'.*out of bounds"),
    "huge integer": (rows(age=[1, 7316925 * 10**30, 3]), "'age'"),
    "enormous integer": (rows(age=[1, 7316925 * 10**400, 3]), "'age'"),
    "truth values": (rows(age=[True, False, True]), "feature 'age'.*numeric in the codebook"),
    "dates": (rows(age=[DAY] * 3), "'age'"),
    "dates for categories": (rows(sex=[DAY] * 3), "'sex'"),
    "timestamps": (rows(age=[datetime.datetime(2017, 3, 19)] * 3), "'age'"),
    "objects": (rows(age=[Odd(), Odd(), Odd()]), "'age'"),
    "objects among text": (rows(sex=["f", Odd(), "m"]), "'sex'"),
    "bytes": (rows(sex=[TEXT.encode()] * 3), "'sex'"),
    "lists": (rows(sex=[[TEXT]] * 3), "'sex'"),
    "unknown label": (rows(outcome=["no", TEXT, "yes"]), "'outcome'.*label"),
    "missing label": (rows(outcome=["no", None, "yes"]), "label"),
    "numbers as labels": (rows(outcome=[7316925, 2, 2]), "'outcome'|label"),
    "huge decimal": (rows(age=[Decimal("7316925.25"), Decimal(1), Decimal(2)]), "feature 'age'.*out of bounds"),
}


def require_silent(problem: BaseException, *more: str) -> None:
    shown = [str(problem), repr(problem), "".join(traceback.format_exception(problem)), *more]
    cause: BaseException | None = problem
    while cause is not None:  # what a reader of the chain could print, except where it is suppressed
        shown.append(str(cause))
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    for text in shown:
        # Source lines of this file stand in tracebacks; none of them holds a canary as text.
        for canary in CANARIES:
            assert canary not in text


def attempts(table: dict[str, Any]) -> dict[str, Any]:
    pandas = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in table.items()})
    found = {
        "count pandas": lambda: count(pandas, CODEBOOK),
        "fit pandas": lambda: NaiveBayes(CODEBOOK).fit(pandas),
        "fit pandas guessed": lambda: NaiveBayes(CODEBOOK).fit(pd.DataFrame(table)),
        "partial_fit": lambda: NaiveBayes(CODEBOOK).partial_fit(pandas),
        "fit X, y": lambda: NaiveBayes(CODEBOOK).fit(pandas.drop(columns="outcome"), pandas["outcome"]),
        "fit array": lambda: NaiveBayes(CODEBOOK).fit(pandas.drop(columns="outcome").to_numpy(), table["outcome"]),
    }
    try:
        arrow = pa.table(table)
    except (pa.ArrowException, OverflowError):
        return found
    return {**found, "fit arrow": lambda: NaiveBayes(CODEBOOK).fit(arrow)}


@pytest.mark.parametrize("case", CASES)
def test_rows_that_do_not_fit_are_refused_without_showing_them(case: str, caplog: pytest.LogCaptureFixture) -> None:
    table, message = CASES[case]
    caplog.set_level(logging.DEBUG)
    for name, attempt in attempts(table).items():
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with pytest.raises((DataError, ValueError, TypeError)) as caught:
                attempt()
        # Arrays go through scikit-learn's own checks, whose words differ; frames and tables are ours.
        if name != "fit array" and "label" not in message:
            assert isinstance(caught.value, DataError), name
            assert re.search(message, str(caught.value)), (name, str(caught.value))
        require_silent(caught.value, caplog.text, *(str(item.message) for item in warned))


@pytest.mark.parametrize(
    "case", ["unknown category", "text for a number", "out of bounds", "dates", "unknown label", "missing label"]
)
def test_a_csv_that_does_not_fit_is_refused_without_showing_it(case: str, tmp_path: Path) -> None:
    table, _ = CASES[case]
    path = tmp_path / "rows.csv"
    pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in table.items()}).to_csv(path, index=False)
    with pytest.raises(DataError) as caught:
        count(path, CODEBOOK)
    require_silent(caught.value)
    report = check(path, CODEBOOK)
    assert not report.ok
    for canary in CANARIES:
        assert canary not in f"{report}{report.to_dict()}"


COLUMNS = {
    "missing": ({"sex": ["f"], "outcome": ["no"], "code": [1]}, "column 'age' of the codebook is missing"),
    "no class": ({"sex": ["f"], "age": [3], "code": [1]}, "outcome|requires y"),
    "extra": ({**rows(), TEXT.lower(): [1, 2, 3]}, "column 'canarytext' is not in the codebook"),
    "extra, hostile": ({**rows(), "'; DROP TABLE frame; --": [1, 2, 3]}, "DROP TABLE"),
    "extra, markup": ({**rows(), "[red]x[/red]": [1, 2, 3]}, "is not in the codebook"),
    "extra, control": ({**rows(), "a\x1b[31m\n": [1, 2, 3]}, r"'a\\x1b\[31m\\n' is not in the codebook"),
    "class in another case": ({"sex": ["f"], "age": [3], "code": [1], "OUTCOME": ["no"]}, "outcome|requires y"),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_columns_that_do_not_fit_are_named(case: str) -> None:
    table, message = COLUMNS[case]
    for attempt in (
        lambda: count(pd.DataFrame(table), CODEBOOK),
        lambda: check(pl.DataFrame(table), CODEBOOK),
        lambda: NaiveBayes(CODEBOOK).fit(pa.table(table)),
    ):
        with pytest.raises((DataError, ValueError), match=message):
            attempt()


def test_extra_columns_are_left_unread_on_request() -> None:
    table = {**rows(), "note": [TEXT] * 3}
    assert count(pa.table(table), CODEBOOK, extra_columns="ignore") == count(pa.table(rows()), CODEBOOK)
    with pytest.raises(ConfigError, match="'refuse' or 'ignore'"):
        count(pa.table(table), CODEBOOK, extra_columns="maybe")


def test_duplicate_column_names_are_refused_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "twice.csv"
    path.write_text("sex,age,age,code,outcome\nf,1,2,1,no\n", encoding="utf-8")
    folded = tmp_path / "folded.csv"
    folded.write_text("sex,age,AGE,code,outcome\nf,1,2,1,no\n", encoding="utf-8")
    names = ["sex", "age", "age", "code", "outcome"]
    values = [["f"], [1], [2], [1], ["no"]]
    for source in (
        str(path),
        str(tmp_path / "tw*.csv"),
        pa.table(values, names=names),
        pd.DataFrame([[v[0] for v in values]], columns=names),
    ):
        with pytest.raises(DataError, match="column 'age' occurs twice"):
            count(source, CODEBOOK)
    with pytest.raises(DataError, match="column 'age' occurs twice"):
        NaiveBayes(CODEBOOK).fit(pa.table(values, names=names))
    with pytest.raises(DataError, match="'age' and 'AGE' differ only in case"):
        count(folded, CODEBOOK)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.csv", b""),
        ("binary.csv", b"\xff\xfe\x00\x01" + TEXT.encode()),
        ("ragged.csv", b"sex,age,code,outcome\nf,1,1,no\nf," + TEXT.encode() + b"\n"),
        ("wide.csv", b"sex,age,code,outcome\nf,1,1,no," + TEXT.encode() + b"\n"),
        ("open.csv", b'sex,age,code,outcome\nf,1,1,"' + TEXT.encode()),
        ("fake.parquet", TEXT.encode()),
        ("fake.csv.gz", TEXT.encode()),
        ("fake.xlsx", TEXT.encode()),
    ],
)
def test_files_that_are_no_tables_are_refused_without_showing_them(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BlindbayesError) as caught:
        count(path, CODEBOOK)
    require_silent(caught.value)


def test_damaged_files_leave_nothing_in_memory(tmp_path: Path) -> None:
    """64 kB of each, once."""
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,2\n" * 99)[:-12])
    for _ in range(20):
        with pytest.raises(DataError):
            open_source(str(path))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(20):
            with pytest.raises(DataError):
                open_source(str(path))
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 200_000


def test_sources_that_are_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for source in (tmp_path / "absent.csv", tmp_path / "folder", f"duckdb://{tmp_path}/absent.duckdb#t", 7, {"a": [1]}, None):
        with pytest.raises(DataError):
            open_source(source)
    with pytest.raises(ConfigError, match="names its table after #"):
        open_source("postgres://u@h/db")


def test_a_password_in_a_url_is_never_shown() -> None:
    with pytest.raises(DataError) as caught:
        open_source(f"postgres://user:{TEXT}@127.0.0.1:9/db?connect_timeout=1#visits")
    require_silent(caught.value)


def test_predictions_refuse_bad_rows_without_showing_them() -> None:
    model = NaiveBayes(CODEBOOK).fit(pd.DataFrame(rows()))
    good = {"sex": ["f"], "age": [3], "code": [1]}
    for bad in (
        {**good, "age": [TEXT]},
        {**good, "age": [True]},
        {**good, "age": [DAY]},
        {**good, "extra": [TEXT]},
        {"sex": ["f"], "age": [3]},
    ):
        with pytest.raises(DataError) as caught:
            model.predict(pd.DataFrame(bad))
        require_silent(caught.value)
    with pytest.raises(ValueError, match="expecting 3 features"):
        model.predict(np.ones((2, 5)))


def test_arrays_of_text_deep_inside_are_not_quoted() -> None:
    array = np.ones((1500, 1), dtype=object)
    array[1400, 0] = TEXT
    codebook = Codebook("y", ("0", "1"), (Numeric("x", 0, 9),))
    model = NaiveBayes(codebook)
    with pytest.raises(DataError, match="feature 'x'") as caught:
        model.fit(array, [0, 1] * 750)
    require_silent(caught.value)
    with pytest.raises(NotFittedError):
        model.predict(array)


def test_an_empty_table_makes_no_model() -> None:
    empty = pd.DataFrame(rows()).iloc[:0]
    model = NaiveBayes(CODEBOOK)
    for attempt in (lambda: model.fit(empty), lambda: model.partial_fit(empty), lambda: model.fit(np.empty((0, 3)), [])):
        with pytest.raises(ValueError, match=r"empty|0 sample"):
            attempt()
    with pytest.raises(DataError, match="no columns"):
        open_source(pd.DataFrame())
    assert NaiveBayes(CODEBOOK).fit(pd.DataFrame(rows())).predict(empty.drop(columns="outcome")).shape == (0,)


@pytest.mark.parametrize("dictionary", [True, False])
def test_a_parquet_file_whose_text_is_not_utf_8_is_refused_and_the_column_named(tmp_path: Path, dictionary: bool) -> None:
    """Other programs write such files; the cell stood in the exception."""
    raw = pa.array([b"a", b"b\x86" + TEXT.encode()], pa.binary())
    broken = pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())
    table = pa.table({"label": ["no", "yes"], "kind": broken})
    pq.write_table(table, tmp_path / "rows.parquet", use_dictionary=dictionary)
    book = Codebook("label", ("no", "yes"), (Categorical("kind", ("a", "b")),))
    for source in (tmp_path / "rows.parquet", table):
        with pytest.raises(DataError, match="'kind' holds text that is not UTF-8") as caught:
            NaiveBayes(book).fit(source)
        assert TEXT not in "".join(traceback.format_exception(caught.value))
