"""Different spellings of one identifier give the same bytes; different identifiers never do."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blindbayes.codebook import IdPart, IdRecipe
from blindbayes.data.identifiers import digests, identify
from blindbayes.datasets import bank_telecom
from blindbayes.errors import ConfigError, DataError


def ids(values: list[str | None], normalise: str, region: str = "") -> list[bytes | None]:
    recipe = IdRecipe((IdPart("id", normalise, region),))  # type: ignore[arg-type]
    return identify({"id": pa.array(values, pa.string())}, recipe)[0]


@pytest.mark.parametrize(
    ("normalise", "region", "spellings"),
    [
        ("text", "", ["Müller  Anna", "müller anna ", "MU\u0308LLER Anna", "ＭÜLLER anna"]),
        ("text", "", ["straße", "STRASSE", "Strasse"]),
        ("email", "", [" A.B@Example.COM", "a.b@example.com"]),
        ("phone", "GB", ["020 7946 0958", "+44 20 7946 0958", "(020) 7946-0958", "0044 20 7946 0958"]),
        ("digits", "", ["02-77/a", "0277", "０２７７"]),
        ("date", "", ["1980-02-29", "1980/02/29", "19800229"]),
    ],
)
def test_spellings_of_one_identifier_agree(normalise: str, region: str, spellings: list[str]) -> None:
    made = ids(list(spellings), normalise, region)
    assert made[0] is not None
    assert len(set(made)) == 1


@pytest.mark.parametrize(
    ("normalise", "region", "bad"),
    [("email", "", "nobody"), ("phone", "GB", "12"), ("date", "", "1981-02-29"), ("digits", "", "none"), ("text", "", "   ")],
)
def test_what_does_not_normalise_has_no_identifier_and_is_counted(normalise: str, region: str, bad: str) -> None:
    good = {"email": "a@b.c", "phone": "020 7946 0958", "date": "1980-01-01", "digits": "7", "text": "x"}[normalise]
    recipe = IdRecipe((IdPart("id", normalise, region),))  # type: ignore[arg-type]
    made, report = identify({"id": pa.array([bad, good, None])}, recipe)
    assert made[0] is None
    assert made[1] is not None
    assert made[2] is None
    assert (report.unusable["id"], report.missing, report.identified) == (1, 1, 1)


@given(st.lists(st.tuples(st.text(), st.text()), min_size=2, max_size=2, unique=True))
def test_parts_are_kept_apart(pairs: list[tuple[str, str]]) -> None:
    recipe = IdRecipe((IdPart("a", "exact"), IdPart("b", "exact")))
    columns = {"a": pa.array([first for first, _ in pairs]), "b": pa.array([second for _, second in pairs])}
    if all(first and second for first, second in pairs):
        one, other = identify(columns, recipe)[0]
        assert one != other


@given(st.text())
def test_folding_twice_changes_nothing(text: str) -> None:
    (once,) = ids([text, "x"], "text")[:1]
    if once is not None:
        again = ids([once[4:].decode(), "x"], "text")[0]
        assert again == once


def test_duplicates_are_counted_and_dates_of_any_type_agree() -> None:
    recipe = IdRecipe((IdPart("born", "date"),))
    made, report = identify({"born": pa.array([date(1980, 1, 2), date(1980, 1, 2), date(1990, 1, 2)])}, recipe)
    assert made[0] == made[1] == ids(["1980-01-02"], "date")[0]
    assert (report.distinct, report.repeated, report.max_rows) == (2, 1, 2)


def test_bad_columns_are_refused_by_name() -> None:
    recipe = IdRecipe((IdPart("id"),))
    with pytest.raises(DataError, match="'id' is missing"):
        identify({}, recipe)
    with pytest.raises(DataError, match="neither text"):
        identify({"id": pa.array([1.5])}, recipe)
    with pytest.raises(DataError, match="no row has a usable identifier"):
        identify({"id": pa.array([None, None], pa.string())}, recipe)
    with pytest.raises(ConfigError, match="region"):
        ids(["020"], "phone", "XX")


def test_digests_depend_on_the_study_and_hide_nothing_behind_missing() -> None:
    (one, gone) = digests([b"a", None], b"study 1")
    assert one is not None
    assert len(one) == 16
    assert gone is None
    assert digests([b"a"], b"study 2") != [one]


def test_the_demo_tables_share_the_customers_that_their_truth_says() -> None:
    data = bank_telecom(3000)
    assert data.codebook.identifier is not None
    sides = [
        set(identify({"email": table.column("email")}, data.codebook.identifier)[0]) - {None} for table in data.tables.values()
    ]
    shared = data.truth["shared customers"]
    assert 0.95 * shared <= len(sides[0] & sides[1]) <= shared  # a few addresses are absent, 2% misspelt
