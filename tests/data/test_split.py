"""Held-out rows: a person is in one part, whatever engine splits; the parts are disjoint and together the table."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric
from blindbayes.codebook import IdPart, IdRecipe
from blindbayes.data import count_table, open_source
from blindbayes.data.contribution_bound import ContributionBound
from blindbayes.data.split import Reading, Split, split_rows
from blindbayes.data.table import evaluate_table
from blindbayes.errors import ConfigError, DataError

FEATURES = (Categorical("c", ("u", "v")), Numeric("x", 0, 9, 1.0, bins=3))
BOOK = Codebook(
    "y", ("a", "b"), FEATURES, max_rows=10_000, identifier=IdRecipe((IdPart("name", "text"), IdPart("born", "date")))
)
PLAIN = Codebook("y", ("a", "b"), FEATURES, max_rows=10_000)
KEY = bytes(range(32))


def visits(people: int = 300, seed: int = 1) -> pd.DataFrame:
    """Persons with one row to five, spelled differently, and rows without an identifier."""
    generator = np.random.default_rng(seed)
    person = np.repeat(np.arange(people), np.arange(people) % 5 + 1)
    rows = len(person)
    spelled = [f"Ann  {each}" if at % 2 else f" ann {each} " for at, each in enumerate(person)]
    return pd.DataFrame(
        {
            "name": [None if at % 97 == 0 else name for at, name in enumerate(spelled)],
            "born": [f"19{each % 90 + 10}-01-02" for each in person],
            "c": generator.choice(["u", "v"], rows),
            "x": generator.integers(0, 10, rows),
            "y": np.where(person % 2 == 0, "a", "b"),
        }
    )


def parts(fraction: float = 0.3, key: bytes = KEY) -> tuple[Split, Split]:
    return Split(fraction, False, key), Split(fraction, True, key)


@pytest.mark.parametrize("features", [1, 2, 7, 900])
def test_a_row_is_split_by_the_hash_of_its_text_however_many_columns_it_has(features: int) -> None:
    book = Codebook("y", ("a", "b"), tuple(Categorical(f"f{at}", ("u", "v")) for at in range(features)), max_rows=100)
    generator = np.random.default_rng(2)
    frame = pd.DataFrame({name: generator.choice(["u", "v"], 40) for name in [*book.names]}).assign(y="a")
    frame["y"] = generator.choice(["a", "b"], 40)
    split = Split(0.4, True, KEY)
    texts = ["\x1f".join([KEY.hex(), "row:" + "\x1f".join(row)]) for row in frame.itertuples(index=False)]
    hashes = [int(hashlib.md5(text.encode()).hexdigest()[:8], 16) for text in texts]
    assert list(split_rows(frame, book, split)) == [at for at, each in enumerate(hashes) if each < round(0.4 * 16**8)]


@pytest.mark.parametrize("odd", [None, 4.5, float("nan"), "many", True, Decimal("1.50")])
@pytest.mark.parametrize("column", ["x", "c", "y"])
def test_a_row_that_changes_the_type_of_a_column_moves_no_other_row(odd: Any, column: str) -> None:
    """Otherwise one row would move many between training and evaluation, which noise for one row does not hide."""
    features = (Categorical("c", ("0", "1")), Numeric("x", 0, 99, 1.0))
    book = Codebook("y", ("0", "1"), features, max_rows=10_000)
    generator = np.random.default_rng(3)
    rows = {"c": generator.integers(0, 2, 200), "x": generator.integers(0, 100, 200), "y": generator.integers(0, 2, 200)}
    frame = pd.DataFrame(rows)
    more = pd.DataFrame({name: [*values.tolist(), odd if name == column else 1] for name, values in rows.items()})
    for part in (*parts(), Split(1 / 3, True, KEY, 1, parts()[0])):
        before, after = (set(split_rows(each, book, part).tolist()) - {200} for each in (frame, more))
        assert before == after


@pytest.mark.parametrize("book", [BOOK, PLAIN])
def test_parts_are_disjoint_and_together_the_table(book: Codebook) -> None:
    frame = visits()[[*book.names, "y", *(["name", "born"] if book.identifier else [])]]
    training, held_out = (split_rows(frame, book, part) for part in parts())
    assert np.array_equal(np.sort(np.concatenate([training, held_out])), np.arange(len(frame)))
    counts = [count_table(frame, book, split=part) for part in parts()]
    assert counts[0] + counts[1] == count_table(frame, book)


def test_all_rows_of_a_person_are_in_one_part() -> None:
    frame = visits()
    held_out = np.zeros(len(frame), dtype=bool)
    held_out[split_rows(frame, BOOK, parts()[1])] = True
    folded = frame["name"].str.lower().str.split().str.join(" ")
    per_person = pd.Series(held_out)[folded.notna()].groupby(folded[folded.notna()]).nunique()
    assert (per_person == 1).all()
    share = pd.Series(held_out)[folded.notna()].groupby(folded[folded.notna()]).first().mean()
    assert 0.2 < share < 0.4


def test_equal_rows_are_in_one_part_without_an_identifier() -> None:
    frame = visits()[["c", "x", "y"]]
    held_out = np.zeros(len(frame), dtype=bool)
    held_out[split_rows(frame, PLAIN, parts()[1])] = True
    assert (pd.Series(held_out).groupby([frame["c"], frame["x"], frame["y"]]).nunique() == 1).all()


def test_a_row_stays_in_its_part_when_others_come_and_go() -> None:
    frame = visits()
    whole = set(split_rows(frame, BOOK, parts()[1]).tolist())
    later = frame.iloc[100:]
    assert {place + 100 for place in split_rows(later, BOOK, parts()[1]).tolist()} == {each for each in whole if each >= 100}


def test_a_larger_fraction_holds_out_more_of_the_same_and_another_key_other_rows() -> None:
    frame = visits()
    some, more = (set(split_rows(frame, BOOK, Split(each, True, KEY)).tolist()) for each in (0.1, 0.4))
    assert some < more
    assert set(split_rows(frame, BOOK, Split(0.1, True, bytes(32))).tolist()) != some


def _as(kind: str, frame: pd.DataFrame, folder: Path) -> Any:
    if kind == "csv":
        frame.to_csv(folder / "rows.csv", index=False)
        return folder / "rows.csv"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), folder / "rows.parquet")
        return folder / "rows.parquet"
    if kind == "duckdb":
        with duckdb.connect(str(folder / "rows.duckdb")) as connection:
            connection.execute("CREATE TABLE rows AS SELECT * FROM frame")
        return open_source(f"duckdb://{folder / 'rows.duckdb'}", table="rows")
    return pa.Table.from_pandas(frame, preserve_index=False)


@pytest.mark.parametrize("kind", ["csv", "parquet", "duckdb", "arrow"])
@pytest.mark.parametrize("book", [BOOK, PLAIN])
def test_every_reader_splits_alike(kind: str, book: Codebook, tmp_path: Path) -> None:
    frame = visits()[[*book.names, "y", *(["name", "born"] if book.identifier else [])]]
    source = _as(kind, frame, tmp_path)
    model = NaiveBayes(PLAIN).fit(frame[["c", "x"]], frame["y"]).parameters_
    for part in parts():
        assert count_table(source, book, split=part) == count_table(frame, book, split=part)
        reading = Reading(book, split=part)
        assert evaluate_table(source, reading, [model], 20) == evaluate_table(frame, reading, [model], 20)


def test_split_and_bound_on_rows_per_person_apply_together() -> None:
    frame, bound = visits(), ContributionBound(2, bytes(32))
    counts = [count_table(frame, BOOK, split=part, bound=bound) for part in parts()]
    assert counts[0] + counts[1] == count_table(frame, BOOK, bound=bound)


def test_what_cannot_be_split_is_refused() -> None:
    part = parts()[0]
    with pytest.raises(DataError, match="identifier column"):
        count_table(visits().drop(columns="name"), BOOK, split=part)
    with pytest.raises(ConfigError, match="held_out needs the table"):
        count_table(count_table(visits(), BOOK), BOOK, split=part)
    phone = Codebook("y", ("a", "b"), FEATURES, identifier=IdRecipe((IdPart("name", "phone", "GB"),)))
    with pytest.raises(ConfigError, match="telephone"):
        count_table(visits(), phone, split=part, extra_columns="ignore")
