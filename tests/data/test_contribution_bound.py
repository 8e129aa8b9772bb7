"""At most so many rows of a person count, in every engine, and which ones hangs on that person's rows alone."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from blindbayes import Privacy, RowStudy
from blindbayes.cli import root
from blindbayes.codebook import Categorical, Codebook, IdPart, IdRecipe, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.data import count_table
from blindbayes.data.contribution_bound import ContributionBound, sample_rows
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.errors import ConfigError, DataError, PrivacyError
from blindbayes.naive_bayes.load import load
from blindbayes.naive_bayes.private import PrivateNaiveBayes
from blindbayes.study.tasks.sum_plan import Sum
from support.studies import make_study

BOOK = Codebook(
    "y",
    ("a", "b"),
    (Categorical("c", ("u", "v")), Numeric("x", 0, 9, 1.0, bins=3)),
    max_rows=10_000,
    identifier=IdRecipe((IdPart("name", "text"), IdPart("born", "date"))),
)
PLAIN = Codebook("y", ("a", "b"), BOOK.features, max_rows=10_000)


def visits(people: int = 40, most: int = 9, seed: int = 1) -> pd.DataFrame:
    """Persons with one row up to many, spelled differently, and rows of nobody."""
    generator, rows = np.random.default_rng(seed), []
    for person in range(people):
        for visit in range(1 + person % most):
            name = f"Ann  {person}" if visit % 2 else f" ann {person} "
            rows.append(
                (
                    name,
                    f"19{person % 90 + 10}-01-02",
                    generator.choice(["u", "v"]),
                    int(generator.integers(0, 10)),
                    "ab"[person % 2],
                )
            )
    rows += [(None, "1950-01-01", "u", 1, "a"), ("", "1950-01-01", "u", 1, "a"), ("Ann 1", None, "u", 1, "a")]
    return pd.DataFrame(rows, columns=["name", "born", "c", "x", "y"])


def persons_of(frame: pd.DataFrame) -> list[tuple[str, str]]:
    return [(" ".join(str(name).lower().split()), str(born)) for name, born in zip(frame["name"], frame["born"], strict=True)]


def sources(frame: pd.DataFrame, folder: Path) -> dict[str, Any]:
    table = pa.Table.from_pandas(frame, preserve_index=False)
    frame.to_csv(folder / "t.csv", index=False)
    pq.write_table(table, folder / "t.parquet")
    with duckdb.connect(str(folder / "t.duckdb")) as connection:
        connection.register("rows", table)
        connection.execute("CREATE OR REPLACE TABLE t AS SELECT * FROM rows")
    return {
        "frame": frame,
        "arrow": table,
        "csv": folder / "t.csv",
        "parquet": folder / "t.parquet",
        "duckdb": f"duckdb://{folder}/t.duckdb#t",
    }


@pytest.mark.parametrize("most", [1, 3])
def test_no_person_has_more_rows_than_the_bound(most: int) -> None:
    frame = visits()
    kept = sample_rows(frame, BOOK, ContributionBound(most, b"s" * 32))
    counted = Counter(persons_of(frame.iloc[kept]))
    whole = Counter(person for person in persons_of(frame.iloc[:-3]))
    assert counted == {person: min(rows, most) for person, rows in whole.items()}


@pytest.mark.parametrize("kind", ["frame", "arrow", "csv", "parquet", "duckdb"])
def test_every_engine_bounds_rows(kind: str, tmp_path: Path) -> None:
    frame = visits()
    expected = [sum(min(1 + person % 9, 2) for person in range(40) if person % 2 == label) for label in (0, 1)]
    found = count_table(sources(frame, tmp_path)[kind], BOOK, lenient=True, bound=ContributionBound(2, b"s" * 32))
    assert found.class_counts.tolist() == expected
    assert found.counts["c"].sum(axis=1).tolist() == expected  # every column counts the same rows


def test_a_database_bounds_rows(postgres: str) -> None:
    import psycopg

    with psycopg.connect(postgres.replace("postgres://", "postgresql://"), autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS people")
        connection.execute("CREATE TABLE people (name text, born date, c text, x integer, y text)")
        rows = [tuple(None if value != value or value is None else value for value in row) for row in visits().values.tolist()]
        connection.cursor().executemany("INSERT INTO people VALUES (%s, %s, %s, %s, %s)", rows)
    found = count_table(f"{postgres}#public.people", BOOK, lenient=True, bound=ContributionBound(2, b"s" * 32))
    assert int(found.class_counts.sum()) == sum(min(1 + person % 9, 2) for person in range(40))
    assert found.counts["x"].sum() == found.class_counts.sum()


NUMBERED = Codebook("y", ("a", "b"), (Categorical("c", ("u", "v")),), identifier=IdRecipe((IdPart("id", "exact"),)))
IDENTIFIERS: dict[str, tuple[list[Any], int]] = {  # and how many persons there are
    "dates": ([date(1990, 1, 2), date(1990, 1, 2), date(1991, 1, 2), datetime(1991, 1, 2, 10), None], 2),
    "dates and texts": ([date(1990, 1, 2), "1990-01-02", "x", "x", pd.NaT], 2),
    "floats": ([1.0, 1.0, 2.0, float("nan"), None], 2),
    "numbers and texts": ([1, 1.0, "1", "x", Decimal("1.0")], 2),
    "what is no identifier": ([b"1", b"2", [1], (2,), "x"], 1),
}


@pytest.mark.parametrize("kind", IDENTIFIERS)
def test_identifiers_of_a_frame_of_objects_are_read_one_by_one(kind: str) -> None:
    """Objects of every kind but text and number, dates too, were one person, who could push another's rows out."""
    values, people = IDENTIFIERS[kind]
    frame = pd.DataFrame({"c": "u", "y": "a", "id": pd.Series(values, dtype=object)})
    found = count_table(frame, NUMBERED, lenient=True, bound=ContributionBound(1, bytes(32)))
    assert found.class_counts.tolist() == [people, 0]
    assert PrivateNaiveBayes(NUMBERED, epsilon=1.0, rows_per_person=1)._private_block(frame, None, NUMBERED).rows == people


def test_a_missing_identifier_that_makes_floats_of_all_is_a_row_of_nobody() -> None:
    frame = pd.DataFrame({"c": "u", "y": "a", "id": [1, 1, 2, None]})
    assert count_table(frame, NUMBERED, lenient=True, bound=ContributionBound(1, bytes(32))).class_counts.tolist() == [2, 0]


@pytest.mark.parametrize("kind", ["frame", "arrow", "csv", "duckdb"])
def test_one_person_moves_no_more_than_the_bound_and_nobody_elses_rows(kind: str, tmp_path: Path) -> None:
    frame = visits()
    extra = pd.DataFrame([("New Person", "1999-09-09", "v", at % 10, "b") for at in range(50)], columns=frame.columns)
    found = []
    for at, table in enumerate((frame, pd.concat([extra, frame]))):
        (tmp_path / str(at)).mkdir()
        found.append(
            count_table(sources(table, tmp_path / str(at))[kind], BOOK, lenient=True, bound=ContributionBound(3, b"s" * 32))
        )
    change = (found[1] - found[0]).by_name()
    assert change["class_counts"] == [0, 3]
    assert change["counts"]["c"] == [[0, 0], [0, 3]]
    assert sum(map(sum, change["counts"]["x"])) == sum(sum(map(abs, row)) for row in change["counts"]["x"]) == 3


def test_rows_are_drawn_evenly(tmp_path: Path) -> None:
    """Persons with ten rows, nine of them equal, of which one is drawn: each comes as often, the equal ones too."""
    rows = [(f"person {who}", "1990-01-01", "u", 9 if at == 3 else 1, "a") for who in range(600) for at in range(10)]
    frame = pd.DataFrame(rows, columns=["name", "born", "c", "x", "y"])
    for kind in ("frame", "parquet"):
        found = count_table(sources(frame, tmp_path)[kind], BOOK, lenient=True, bound=ContributionBound(1, b"s" * 32))
        assert found.class_counts.tolist() == [600, 0]
        assert 31 <= int(found.counts["x"][0][2]) <= 89  # 60 expected of 600, standard deviation 7.3: alpha 1e-4


def test_a_telephone_number_or_no_identifier_is_refused() -> None:
    phone = Codebook("y", ("a", "b"), BOOK.features, identifier=IdRecipe((IdPart("tel", "phone", "GB"),)))
    for book, message in ((phone, "telephone"), (PLAIN, r"\[identifier\]")):
        with pytest.raises(ConfigError, match=message):
            RowStudy(book, privacy=Privacy(epsilon=1.0, rows_per_person=2))
    with pytest.raises(DataError, match="identifier column 'name'"):
        count_table(visits().drop(columns="name"), BOOK, bound=ContributionBound(1, bytes(32)))
    for wrong in ({"epsilon": None}, {"unit": "party", "party_rows": 5}, {"rows_per_person": 0}):
        with pytest.raises(ConfigError):
            make_study(BOOK, **{"epsilon": 1.0, "rows_per_person": 2, **wrong})


def test_a_study_protects_persons_and_says_where_not(tmp_path: Path) -> None:
    study = RowStudy(BOOK, privacy=Privacy(epsilon=5.0, rows_per_person=2))
    plan = Sum.make(study, ("p", "q", "r")).plan
    alone = Sum.make(RowStudy(BOOK, privacy=Privacy(epsilon=5.0)), ("p", "q", "r")).plan
    assert plan is not None and alone is not None  # noqa: PT018
    assert plan.price.unit == "one person with at most 2 records"
    assert (plan.noise.reach, alone.noise.reach) == (2, 1)
    assert plan.noise.rate() * 2 * plan.noise.touched == alone.noise.rate() * alone.noise.touched
    ledger = Ledger.create(tmp_path / "ledger", epsilon=5, unit="one person with at most 2 records")
    result = study.simulate({name: visits(seed=at) for at, name in enumerate("pqr")}, ledgers={"p": ledger.path})
    assert ledger.balance().basic_epsilon == 5
    assert "at k sites the loss is up to k times epsilon" in " ".join(result.statement.split())
    with pytest.raises(PrivacyError, match="epsilon 10 "):  # a study of records, at the price of both rows of a person
        RowStudy(BOOK, privacy=Privacy(epsilon=5.0)).simulate({name: visits() for name in "pqr"}, ledgers={"p": ledger.path})


def test_releases_that_tell_changes_add_up_for_a_person(tmp_path: Path) -> None:
    """A record moves two of them, however many; a person may bring other rows to each, and the statement said two."""
    study, result = RowStudy(BOOK, privacy=Privacy(epsilon=1.0, rows_per_person=2)), None
    for _ in range(4):
        result = study.simulate({name: visits() for name in "pqr"}, base=result)
    assert result is not None
    assert result.spent == (4.0, 0.0)
    assert result.model.privacy_["epsilon"] == 4.0
    assert "add up to epsilon = 4, delta = 0 for a person in the tables of all" in " ".join(result.statement.split())


def test_a_study_says_record_where_it_protects_records() -> None:
    study = RowStudy(BOOK, privacy=Privacy(epsilon=1.0))
    noise = Sum.make(study, ("p", "q", "r")).noise
    assert noise is not None
    assert "any one record" in noise.statement()


def test_fits_and_train_bound_the_rows_of_a_person(tmp_path: Path) -> None:
    """A large epsilon gives the number of rows back: those that were counted."""
    frame = visits(people=60, most=10)
    counted = sum(min(1 + person % 10, 2) for person in range(60))
    fitted = PrivateNaiveBayes(BOOK, epsilon=1000.0, rows_per_person=2, expected_rows=100).fit(frame)
    assert fitted.class_count_.sum() == pytest.approx(counted, abs=8)
    assert "at most 2 row(s) count" in fitted.statement_.data_domain
    assert fitted.statement_.unit == "one person with at most 2 records"
    arrow = PrivateNaiveBayes(BOOK, epsilon=1000.0, rows_per_person=2, expected_rows=100).fit(pa.Table.from_pandas(frame))
    assert arrow.class_count_.sum() == pytest.approx(counted, abs=8)
    assert "at most 2 row(s) count" in arrow.statement_.data_domain
    bare = PrivateNaiveBayes(BOOK, epsilon=1.0, rows_per_person=2).fit(frame.drop(columns=["name", "born"]))
    assert "declared, not checked" in bare.statement_.data_domain
    frame.to_csv(tmp_path / "t.csv", index=False)
    BOOK.to_toml(tmp_path / "book.toml")
    model = str(tmp_path / "model.json")
    words = ["train", str(tmp_path / "t.csv"), "--codebook", str(tmp_path / "book.toml"), "--out", model]
    more = ["--epsilon", "1000", "--expected-rows", "100", "--rows-per-person", "2"]
    assert CliRunner().invoke(root, [*words, *more]).exit_code == 0
    assert load(model).statement_.unit == "one person with at most 2 records"
    PLAIN.to_toml(tmp_path / "plain.toml")
    words[3] = str(tmp_path / "plain.toml")
    assert isinstance(CliRunner().invoke(root, [*words, "--epsilon", "1", "--rows-per-person", "2"]).exception, ConfigError)


def test_coins_of_a_party_draw_its_rows() -> None:
    study = RowStudy(BOOK, privacy=Privacy(epsilon=1.0, rows_per_person=1))
    first, again, other = (study.contribution_bound(Coins.seeded(bytes([seed]) * 32)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert "salt" not in repr(first)


def test_parts_of_an_identifier_are_not_run_together() -> None:
    """("ab", "c") and ("a", "bc") are two persons, each of whom counts with a row of their own."""
    recipe = IdRecipe((IdPart("first", "text"), IdPart("last", "text")))
    book = Codebook("y", ("a", "b"), (Categorical("c", ("u", "v")),), max_rows=100, identifier=recipe)
    frame = pd.DataFrame({"first": ["ab", "a"], "last": ["c", "bc"], "c": ["u", "u"], "y": ["a", "a"]})
    assert list(sample_rows(frame, book, ContributionBound(1, b"salt"))) == [0, 1]
