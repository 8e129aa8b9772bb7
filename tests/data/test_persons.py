"""Rows by person: the same persons from every source, a bound by a person's own rows alone, no error from a value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from blindbayes.codebook import Categorical, Codebook, IdPart, IdRecipe, Numeric
from blindbayes.data.contribution_bound import ContributionBound
from blindbayes.data.persons import PersonRows, no_persons, read_persons
from blindbayes.data.split import Reading
from blindbayes.data.table import count_table
from blindbayes.errors import ConfigError, DataError
from blindbayes.statistics import Statistics
from blindbayes.statistics.block import count_block
from blindbayes.statistics.layout import layout_of

BOOK = Codebook(
    "ill",
    ("no", "yes"),
    (Categorical("drug", ("a", "b", "c"), optional=True), Numeric("age", 0, 100, bins=10)),
    max_rows=1000,
    identifier=IdRecipe((IdPart("name", "text"), IdPart("born", "digits"))),
)
FRAME = pd.DataFrame(
    {
        "name": ["Ann", " ann ", "Bob", "Cas", None, "Dan", "Eve", "Eve"],
        "born": ["01-02", "0102", "0304", "0506", "0708", "", "0910", "0911"],
        "drug": ["a", "b", "c", None, "a", "b", "z", "c"],
        "age": [10, 20, 30, 40, 50, 60, 700, 80],
        "ill": ["no", "yes", "no", "yes", "no", "yes", "no", "maybe"],
    }
)


def reading(rows: int = 5, salt: bytes = b"salt".ljust(32), book: Codebook = BOOK) -> Reading:
    return Reading(book, lenient=True, bound=ContributionBound(rows, salt))


def by_person(read: PersonRows) -> dict[bytes, list[int]]:
    """The statistics of each person."""
    found = {}
    for at, identifier in enumerate(read.identifiers):
        rows, owner = read.rows_of(np.array([at]))
        assert owner.tolist() == [0] * rows.rows
        found[identifier] = count_block(layout_of(read.codebook), rows).vector.tolist()
    return found


def sources(folder: Path) -> dict[str, Any]:
    FRAME.to_csv(folder / "rows.csv", index=False)
    with duckdb.connect(str(folder / "rows.duckdb")) as connection:
        connection.register("frame", FRAME)
        connection.execute("create table rows as select * from frame")
    return {
        "pandas": FRAME,
        "polars": pl.from_pandas(FRAME),
        "arrow": pa.Table.from_pandas(FRAME),
        "csv": str(folder / "rows.csv"),
        "duckdb": f"duckdb:///{folder / 'rows.duckdb'}#rows",
    }


def test_every_source_has_the_same_persons_with_the_same_rows(tmp_path: Path) -> None:
    expected = by_person(read_persons(FRAME, reading()))
    assert len(expected) == 4  # Ann twice, Bob, Cas, one Eve; no class, no name and no date leave three rows out
    assert sorted(sum(vector[:2]) for vector in expected.values()) == [1, 1, 1, 2]
    for name, source in sources(tmp_path).items():
        assert by_person(read_persons(source, reading())) == expected, name


def test_the_statistics_are_those_of_rows_with_an_identifier() -> None:
    read = read_persons(FRAME, reading())
    assert read.statistics == count_table(FRAME.drop(index=[4, 5]), BOOK, lenient=True)
    assert no_persons(BOOK).statistics == Statistics.zero(BOOK)
    rows, owner = read.rows_of(np.array([3, 0]))
    assert rows.rows == len(owner)
    assert set(owner.tolist()) == {0, 1}


def many(seed: int = 0, rows: int = 400, people: int = 60) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "name": [f"person {at}" for at in generator.integers(0, people, rows)],
            "born": "1",
            "drug": generator.choice(["a", "b", "c"], rows),
            "age": generator.integers(0, 100, rows),
            "ill": generator.choice(["no", "yes"], rows),
        }
    )


@pytest.mark.parametrize("bound", [1, 3])
def test_nobody_has_more_rows_than_the_bound_and_others_have_no_say(bound: int) -> None:
    frame = many()
    all_rows, kept = (by_person(read_persons(frame, reading(rows))) for rows in (1000, bound))
    assert {name: min(bound, sum(vector[:2])) for name, vector in all_rows.items()} == {
        name: sum(vector[:2]) for name, vector in kept.items()
    }
    one, *others = frame["name"].unique()
    for left in ([one], others):  # alone, and without the first
        part = by_person(read_persons(frame[frame["name"].isin(left)].sample(frac=1, random_state=1), reading(bound)))
        assert part == {name: vector for name, vector in kept.items() if name in part}
        assert len(part) == len(left)


def test_rows_are_drawn_by_the_salt_and_evenly() -> None:
    frame = pd.DataFrame({"name": "Ann", "born": "1", "drug": "a", "age": [5, 25, 45, 65], "ill": "no"})
    chosen = np.zeros(layout_of(BOOK).size)
    for at in range(200):
        chosen += read_persons(frame, reading(1, at.to_bytes(32, "big"))).statistics.vector
    cells = chosen[(chosen > 0) & (chosen < 200)]
    assert len(cells) == 4
    assert (abs(cells - 50) < 4.5 * np.sqrt(200 * 3 / 16)).all()  # below 1e-4


@pytest.mark.parametrize("name", [None, "", "  ", "Ünï", "x" * 5000])
def test_no_value_of_a_row_is_an_error(name: str | None) -> None:
    """An error would tell tables with that row from tables without it; so would one about a table of such rows alone."""
    row = pd.DataFrame({"name": [name], "born": ["abc"], "drug": ["nonsense"], "age": [float("inf")], "ill": ["?"]})
    for frame in (row, row.iloc[:0], pd.concat([FRAME, row])):
        read = read_persons(frame, reading())
        assert len(read.identifiers) in (0, 4)


def test_the_digest_is_of_who_has_which_rows() -> None:
    frame, key = many(), bytes(range(32))
    taken = read_persons(frame, reading(1000)).digest(key)
    assert taken == read_persons(frame.sample(frac=1, random_state=2), reading(1000)).digest(key)
    assert taken != read_persons(frame, reading(1000)).digest(bytes(32))
    one, two = (frame["name"] == name for name in frame["name"].unique()[:2])
    exchanged = frame.copy()  # two persons exchange their rows: every statistic stays
    exchanged.loc[one, "name"], exchanged.loc[two, "name"] = frame["name"][two].iloc[0], frame["name"][one].iloc[0]
    assert taken != read_persons(exchanged, reading(1000)).digest(key)


def test_persons_need_an_identifier_and_a_bound() -> None:
    with pytest.raises(DataError, match="'born' is missing"):
        read_persons(FRAME.drop(columns="born"), reading())
    with pytest.raises(ConfigError, match="rows_per_person"):
        read_persons(FRAME, Reading(BOOK, lenient=True))
    with pytest.raises(DataError, match="max_rows"):
        read_persons(many(rows=1001), reading())
