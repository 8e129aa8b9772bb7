"""OMOP as a source: the declared columns equal hand-written SQL on both engines, and each person is one row."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric, RowStudy, count_table
from blindbayes.codebook import IdPart, IdRecipe
from blindbayes.data import check
from blindbayes.data.omop import Cdm, open_omop
from blindbayes.data.sources import connect_database
from blindbayes.data.split import Split
from blindbayes.errors import ConfigError, DataError
from support import omop as cdm
from support.omop import day

OMOP: dict[str, Any] = {
    "vocabulary": "v5.0 29-AUG-25",
    "cohort": {
        "domain": "visit", "concepts": [cdm.INPATIENT], "pick": "first", "start": "2020-01-01", "end": "2021-06-30",
        "observed": [-30, 90], "age": [18, 100],
    },
    "columns": [
        {"name": "died", "take": "any", "domain": "death", "days": [0, 365]},
        {"name": "age", "take": "age"},
        {"name": "sex", "take": "sex"},
        {"name": "diabetes", "take": "any", "domain": "condition", "concepts": [cdm.DIABETES], "days": [-365, 0]},
        {"name": "not_type_1", "take": "any", "domain": "condition", "concepts": [cdm.DIABETES], "exclude": [cdm.TYPE_1],
         "days": [-365, 0]},
        {"name": "type_2_itself", "take": "count", "domain": "condition", "concepts": [cdm.TYPE_2], "descendants": False,
         "days": [-365, 365]},
        {"name": "metformin", "take": "count", "domain": "drug", "concepts": [cdm.METFORMIN], "days": [-365, 0]},
        {"name": "emergencies", "take": "days", "domain": "visit", "concepts": [cdm.EMERGENCY], "days": [-700, -1]},
        {"name": "dialysis", "take": "any", "domain": "procedure", "concepts": [cdm.DIALYSIS], "days": [-365, -1]},
        {"name": "hba1c", "take": "last", "domain": "measurement", "concepts": [cdm.HBA1C], "unit": cdm.PERCENT,
         "convert": {str(cdm.MMOL): [0.09148, 2.152]}, "days": [-365, 0]},
        {"name": "systolic", "take": "last", "domain": "measurement", "concepts": [cdm.SYSTOLIC], "unit": cdm.MMHG,
         "tie": "min", "days": [-365, 0]},
    ],
}  # fmt: skip
FEATURES: list[dict[str, Any]] = [
    {"kind": "numeric", "name": "age", "low": 0, "high": 120},
    {"kind": "categorical", "name": "sex", "values": ["male", "female"], "optional": True},
    *({"kind": "categorical", "name": name, "values": ["no", "yes"]} for name in ("diabetes", "not_type_1", "dialysis")),
    *({"kind": "numeric", "name": name, "low": 0, "high": 50} for name in ("type_2_itself", "metformin", "emergencies")),
    {"kind": "numeric", "name": "hba1c", "low": 0, "high": 20, "precision": 0.1, "bins": 10, "optional": True},
    {"kind": "numeric", "name": "systolic", "low": 50, "high": 300, "precision": 0.1, "optional": True},
]
BOOK = Codebook.from_dict({"target": "died", "classes": ["no", "yes"], "features": FEATURES, "omop": OMOP, "max_rows": 10**6})

WINDOW = "e.person_id = c.person_id AND e.{date} BETWEEN c.index_date + {first} AND c.index_date + {last}"
BELOW = "(SELECT descendant_concept_id FROM cdm.concept_ancestor WHERE ancestor_concept_id = {})"


def exists(table: str, date: str, first: int, last: int, condition: str = "TRUE") -> str:
    window = WINDOW.format(date=date, first=first, last=last)
    return f"CASE WHEN EXISTS (SELECT 1 FROM cdm.{table} e WHERE {window} AND {condition}) THEN 'yes' ELSE 'no' END"


def number_of(what: str, table: str, date: str, first: int, last: int, condition: str) -> str:
    return f"(SELECT count({what}) FROM cdm.{table} e WHERE {WINDOW.format(date=date, first=first, last=last)} AND {condition})"


def last_of(value: str, condition: str, order: str) -> str:
    window = WINDOW.format(date="measurement_date", first=-365, last=0)
    return (
        f"(SELECT {value} FROM cdm.measurement e WHERE {window} AND {condition} AND value_as_number IS NOT NULL "
        f"ORDER BY measurement_date DESC, {value} {order} LIMIT 1)"
    )


DOUBLE = "CAST(value_as_number AS double precision)"
HBA1C = f"CASE unit_concept_id WHEN {cdm.PERCENT} THEN {DOUBLE} ELSE {DOUBLE} * 0.09148e0 + 2.152e0 END"
CONDITION = ("condition_occurrence", "condition_start_date")
BY_HAND = f"""
WITH cohort AS (
  SELECT v.person_id, min(v.visit_start_date) AS index_date FROM cdm.visit_occurrence v
  WHERE v.visit_concept_id = {cdm.INPATIENT} AND v.visit_start_date BETWEEN DATE '2020-01-01' AND DATE '2021-06-30'
  GROUP BY v.person_id),
kept AS (
  SELECT c.person_id, c.index_date, p.gender_concept_id, EXTRACT(YEAR FROM c.index_date) - p.year_of_birth AS age
  FROM cohort c JOIN cdm.person p ON p.person_id = c.person_id
  WHERE EXTRACT(YEAR FROM c.index_date) - p.year_of_birth BETWEEN 18 AND 100
  AND EXISTS (SELECT 1 FROM cdm.observation_period o WHERE o.person_id = c.person_id
    AND o.observation_period_start_date <= c.index_date - 30 AND o.observation_period_end_date >= c.index_date + 90))
SELECT c.person_id, {exists("death", "death_date", 0, 365)} AS died, CAST(age AS integer) AS age,
  CASE gender_concept_id WHEN {cdm.MALE} THEN 'male' WHEN {cdm.FEMALE} THEN 'female' END AS sex,
  {exists(*CONDITION, -365, 0, f"e.condition_concept_id IN {BELOW.format(cdm.DIABETES)}")} AS diabetes,
  {exists(*CONDITION, -365, 0, f"e.condition_concept_id IN ({cdm.DIABETES}, {cdm.TYPE_2}, {cdm.TYPE_2_KIDNEY})")} AS not_type_1,
  {number_of("*", *CONDITION, -365, 365, f"e.condition_concept_id = {cdm.TYPE_2}")} AS type_2_itself,
  {number_of("*", "drug_exposure", "drug_exposure_start_date", -365, 0,
             f"e.drug_concept_id IN ({cdm.METFORMIN}, {cdm.METFORMIN_500})")} AS metformin,
  {number_of("DISTINCT e.visit_start_date", "visit_occurrence", "visit_start_date", -700, -1,
             f"e.visit_concept_id = {cdm.EMERGENCY}")} AS emergencies,
  {exists("procedure_occurrence", "procedure_date", -365, -1, f"e.procedure_concept_id = {cdm.DIALYSIS}")} AS dialysis,
  {last_of(HBA1C, f"measurement_concept_id = {cdm.HBA1C} AND unit_concept_id IN ({cdm.PERCENT}, {cdm.MMOL})", "DESC")} AS hba1c,
  {last_of(DOUBLE, f"measurement_concept_id = {cdm.SYSTOLIC} AND unit_concept_id = {cdm.MMHG}", "ASC")} AS systolic
FROM kept c ORDER BY c.person_id
"""  # fmt: skip
Database = Callable[[cdm.Rows], str]


@pytest.fixture(params=["duckdb", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """`database(rows)` is the URL of a database with an OMOP model in the schema cdm."""
    if request.param == "duckdb":
        return lambda rows: cdm.duckdb_cdm(tmp_path / f"{len(list(tmp_path.iterdir()))}.duckdb", rows)
    url = request.getfixturevalue("postgres")
    return lambda rows: cdm.postgres_cdm(url, rows, "cdm")


def by_hand(url: str) -> dict[str, list[Any]]:
    if url.startswith("duckdb"):
        import duckdb

        with duckdb.connect(url.removeprefix("duckdb://"), read_only=True) as connection:
            cursor = connection.execute(BY_HAND)
            names, rows = [each[0] for each in cursor.description], cursor.fetchall()
    else:
        import psycopg

        with psycopg.connect(url.replace("postgres://", "postgresql://")) as connection:
            answer = connection.execute(BY_HAND)
            names, rows = [each.name for each in answer.description or ()], answer.fetchall()
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def with_person(book: Codebook = BOOK) -> Codebook:
    return msgspec.structs.replace(book, identifier=IdRecipe((IdPart("person_id", "exact"),)))


def rows_of(url: str, book: Codebook = BOOK) -> dict[str, list[Any]]:
    """The declared rows, in the order of persons."""
    with open_omop(url, with_person(book), "cdm") as source:
        table = source.arrow(source.columns)
    rows = sorted(table.to_pylist(), key=lambda row: int(row["person_id"]))
    return {name: [row[name] for row in rows] for name in table.column_names}


def test_ten_features_equal_hand_written_sql(database: Database) -> None:
    url = database(cdm.synthetic(200))
    mine, theirs = rows_of(url), by_hand(url)
    assert [int(person) for person in mine.pop("person_id")] == theirs.pop("person_id")
    assert len(mine["died"]) > 50
    assert mine == {name: theirs[name] for name in mine}
    assert len(mine) == 11


def test_counts_are_the_same_integers_on_every_engine(database: Database) -> None:
    url = database(cdm.synthetic(200))
    import pyarrow as pa

    theirs = by_hand(url)
    expected = count_table(pa.table({name: theirs[name] for name in ("died", *BOOK.names)}), BOOK)
    with open_omop(url, BOOK, "cdm") as source:
        assert source.columns == ("died", *BOOK.names)
        counted = count_table(source, BOOK)
    assert counted.words.tobytes() == expected.words.tobytes()
    assert counted.class_counts.tolist() == [theirs["died"].count("no"), theirs["died"].count("yes")]


def person(number: int = 1, **records: list[tuple[Any, ...]]) -> cdm.Rows:
    """One person with an inpatient stay on day 100, and the records that a test adds."""
    rows: cdm.Rows = {name: [] for name in cdm.TABLES} | cdm.vocabulary()
    rows["person"].append((number, cdm.MALE, 1970, None, None, 0, "mrn"))
    rows["observation_period"].append((1, number, day(0), day(400), 0))
    rows["visit_occurrence"].append((1, number, cdm.INPATIENT, day(100), day(103)))
    for name, listed in records.items():
        rows[name] = rows[name] + listed
    return rows


def measured(*records: tuple[int, float | None, int | None]) -> list[tuple[Any, ...]]:
    return [(at, 1, cdm.HBA1C, day(when), number, unit, "") for at, (when, number, unit) in enumerate(records)]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (measured((90, 7.5, cdm.PERCENT)), 7.5),
        (measured((90, 7.5, cdm.PERCENT), (80, 9.0, cdm.PERCENT)), 7.5),  # the last one
        (measured((90, 7.5, cdm.PERCENT), (90, 8.5, cdm.PERCENT)), 8.5),  # a tie: the largest, as declared
        (measured((90, 7.5, cdm.PERCENT), (95, 9.0, 4711)), 7.5),  # a later one in another unit
        (measured((90, 7.5, cdm.PERCENT), (95, 9.0, None)), 7.5),  # a later one without a unit
        (measured((90, 7.5, cdm.PERCENT), (95, None, cdm.PERCENT)), 7.5),  # a later one without a number
        (measured((90, 100.0, cdm.MMOL)), 100.0 * 0.09148 + 2.152),  # converted
        (measured((101, 7.5, cdm.PERCENT)), None),  # after the window
        (measured((100, 7.5, cdm.PERCENT)), 7.5),  # on its last day
        (measured((-265, 7.5, cdm.PERCENT)), 7.5),  # on its first day
        (measured((-266, 7.5, cdm.PERCENT)), None),  # before the window
    ],
)
def test_the_last_measurement_counts_in_its_unit_and_window(
    records: list[tuple[Any, ...]], expected: float | None, tmp_path: Path
) -> None:
    url = cdm.duckdb_cdm(tmp_path / "one.duckdb", person(measurement=records))
    assert rows_of(url)["hba1c"] == [expected]


def test_a_declared_tie_break_takes_the_smallest(database: Database) -> None:
    ties = [(at, 1, cdm.SYSTOLIC, day(90), number, cdm.MMHG, "") for at, number in enumerate((120.0, 140.0, 130.0))]
    assert rows_of(database(person(measurement=ties)))["systolic"] == [120.0]


@pytest.mark.parametrize("name", ["self", 'it\'s "x"; DROP TABLE cdm.person; -- %s {0} ?', "n" * 100])
def test_a_column_may_have_any_name_and_a_sex_any_label(database: Database, name: str) -> None:
    """Names and labels are the author's: no engine runs them, shortens them or confuses them with its own."""
    label = "m'); DROP TABLE cdm.person; --"
    columns = [OMOP["columns"][0], {"name": name, "take": "sex", "values": {str(cdm.MALE): label, str(cdm.FEMALE): "f"}}]
    columns.append({"name": f"{name}2", "take": "age"})
    features = [
        {"kind": "categorical", "name": name, "values": [label, "f"], "optional": True},
        {"kind": "numeric", "name": f"{name}2", "low": 0, "high": 120},
    ]
    given = {"target": "died", "classes": ["no", "yes"], "features": features, "omop": {**OMOP, "columns": columns}}
    url = database(cdm.synthetic(60))
    rows, expected = rows_of(url, Codebook.from_dict(given)), by_hand(url)
    assert rows[f"{name}2"] == expected["age"]
    assert rows[name] == [{"male": label, "female": "f", None: None}[sex] for sex in expected["sex"]]


def test_records_and_days_are_counted_apart(database: Database) -> None:
    drugs = [(at, 1, cdm.METFORMIN, day(90)) for at in range(3)]
    visits = [(at, 1, cdm.EMERGENCY, day(when), day(when)) for at, when in enumerate((80, 80, 90))]
    made = rows_of(database(person(drug_exposure=drugs, visit_occurrence=visits)))
    assert (made["metformin"], made["emergencies"]) == ([3], [2])


def test_a_person_is_one_row_whatever_the_database_holds(database: Database) -> None:
    """A unit of one person rests on this: duplicate persons, visits and periods must not multiply rows."""
    rows = person(measurement=measured((90, 7.5, cdm.PERCENT), (90, 7.5, cdm.PERCENT)))
    for name in ("person", "observation_period", "visit_occurrence", "measurement"):
        rows[name] = rows[name] * 3
    rows["concept_ancestor"] = rows["concept_ancestor"] * 2
    rows["person"].append((1, cdm.FEMALE, 1980, None, None, 0, "the same number again"))
    rows["condition_occurrence"] = [(1, 1, cdm.TYPE_2, day(90), "")] * 2
    made = rows_of(database(rows))
    assert made["person_id"] == ["1"]
    assert made["diabetes"] == ["yes"]


def test_records_of_others_change_no_row(database: Database) -> None:
    before = rows_of(database(cdm.synthetic(60)))
    rows = cdm.synthetic(60)
    gone = 17
    kept = {
        name: [row for row in listed if gone not in row[:2]] if name in PERSONAL else listed for name, listed in rows.items()
    }
    after = rows_of(database(kept))
    places = [place for place, number in enumerate(before["person_id"]) if number != str(gone)]
    assert after == {name: [column[place] for place in places] for name, column in before.items()}


PERSONAL = {name for name, columns in cdm.TABLES.items() if "person_id" in columns}


def test_who_has_no_index_date_is_no_row(database: Database) -> None:
    rows = person()
    rows["person"] += [(number, cdm.FEMALE, 1960, None, None, 0, "") for number in (2, 3, 4, 5)]
    rows["observation_period"] += [(number, number, day(0), day(400), 0) for number in (2, 3, 4)]
    rows["visit_occurrence"] += [
        (2, 2, cdm.EMERGENCY, day(100), day(101)),  # another kind of visit
        (3, 3, cdm.INPATIENT, day(600), day(601)),  # after the end
        (4, 5, cdm.INPATIENT, day(100), day(101)),  # never observed
        (5, 99, cdm.INPATIENT, day(100), day(101)),  # of nobody
    ]
    assert rows_of(database(rows))["person_id"] == ["1"]


def test_age_is_that_of_the_index_year_and_bounded(database: Database) -> None:
    rows = person()
    rows["person"] += [(2, cdm.FEMALE, 2010, None, None, 0, ""), (3, cdm.FEMALE, None, None, None, 0, "")]
    rows["observation_period"] += [(number, number, day(0), day(400), 0) for number in (2, 3)]
    rows["visit_occurrence"] += [(number, number, cdm.INPATIENT, day(100), day(101)) for number in (2, 3)]
    made = rows_of(database(rows))
    assert made["person_id"] == ["1"]
    assert made["age"] == [50]


def test_an_infinite_date_matches_no_window(postgres: str) -> None:
    import psycopg

    url = cdm.postgres_cdm(postgres, person(condition_occurrence=[(1, 1, cdm.TYPE_2, day(90), "")]), "cdm")
    with psycopg.connect(url.replace("postgres://", "postgresql://"), autocommit=True) as connection:
        for infinite in ("infinity", "-infinity"):
            connection.execute(f"INSERT INTO cdm.condition_occurrence VALUES (2, 1, {cdm.TYPE_2}, '{infinite}', '')")
            connection.execute(f"INSERT INTO cdm.visit_occurrence VALUES (2, 1, {cdm.INPATIENT}, '{infinite}', '{infinite}')")
        connection.execute(f"INSERT INTO cdm.measurement VALUES (1, 1, {cdm.SYSTOLIC}, '2020-03-01', 'NaN', {cdm.MMHG}, '')")
    made = rows_of(url)
    assert (made["diabetes"], made["type_2_itself"], made["systolic"]) == (["yes"], [1], [None])


# -- reports -----------------------------------------------------------------------------------------------------------


def report(url: str, book: Codebook = BOOK) -> dict[str, Any]:
    with Cdm(url, "cdm") as opened:
        return opened.report(book).to_dict()


def test_a_complete_database_lacks_nothing(database: Database) -> None:
    rows = cdm.synthetic(200)
    rows["measurement"] = [row for row in rows["measurement"] if row[5] != cdm.KPA]
    made = report(database(rows))
    assert made["problems"] == []
    assert made["persons"] == 200
    assert 30 < made["cohort"] < 200


def test_what_a_site_lacks_is_reported_in_counts(database: Database) -> None:
    rows = cdm.synthetic(200)
    rows["concept"] = [row for row in rows["concept"] if row[0] not in (cdm.METFORMIN, cdm.PERCENT)]
    rows["concept"] = [(*row[:4], None) if row[0] == cdm.DIALYSIS else row for row in rows["concept"]]
    rows["drug_exposure"] = []
    rows["cdm_source"] = [("old", "v5.3", "v5.0 01-JAN-19")]
    made = report(database(rows))
    kpa = sum(row[2] == cdm.SYSTOLIC and row[5] == cdm.KPA and row[4] is not None for row in rows["measurement"])
    assert made["problems"] == [
        "the study was declared with version 5.4 of the common data model; this database has another one",
        "the study was declared with version v5.0 29-AUG-25 of the vocabulary; this database has another one",
        f"'metformin': this database's vocabulary has no concept {cdm.METFORMIN}",
        "'metformin': no record of its concepts is in this database",
        f"'dialysis': concept {cdm.DIALYSIS} is no standard concept here: are its records under another?",
        f"'hba1c': this database's vocabulary has no concept {cdm.PERCENT}",
        f"'systolic': {kpa} record(s) are in a unit that is not declared, and do not count",
    ]
    assert "mrn" not in str(made)


def test_a_duckdb_file_makes_nothing_fetch_extensions(tmp_path: Path) -> None:
    opened = connect_database(cdm.duckdb_cdm(tmp_path / "a.duckdb", cdm.synthetic(3)))
    for name in ("autoinstall_known_extensions", "autoload_known_extensions"):
        assert opened.raw_sql(f"SELECT current_setting('{name}')").fetchone() == (False,)
    opened.disconnect()


def test_an_empty_cohort_is_reported(tmp_path: Path) -> None:
    rows = person()
    rows["visit_occurrence"] = []
    assert "no person is in the cohort" in str(report(cdm.duckdb_cdm(tmp_path / "x.duckdb", rows))["problems"])


def test_a_file_may_have_the_name_of_its_schema(tmp_path: Path) -> None:
    """DuckDB takes the name of a file for a catalog, which is then ambiguous."""
    assert rows_of(cdm.duckdb_cdm(tmp_path / "other.duckdb", person(), "cdm"))["person_id"] == ["1"]
    (tmp_path / "other.duckdb").rename(tmp_path / "cdm.duckdb")
    assert rows_of(f"duckdb://{tmp_path / 'cdm.duckdb'}")["person_id"] == ["1"]


def test_a_missing_table_column_or_schema_is_named(tmp_path: Path) -> None:
    import duckdb

    url = cdm.duckdb_cdm(tmp_path / "x.duckdb", person())
    with pytest.raises(DataError, match="no table 'person' in its default schema"):
        open_omop(url, BOOK)
    with pytest.raises(DataError, match="no table 'person' in other"):
        open_omop(url, BOOK, "other")
    with duckdb.connect(str(tmp_path / "x.duckdb")) as connection:
        connection.execute("ALTER TABLE cdm.measurement DROP COLUMN unit_concept_id")
    with pytest.raises(DataError, match="'measurement' has no column 'unit_concept_id'"):
        open_omop(url, BOOK, "cdm")
    with duckdb.connect(str(tmp_path / "x.duckdb")) as connection:
        connection.execute("DROP TABLE cdm.death")
    with pytest.raises(DataError, match="no table 'death' in cdm"):
        open_omop(url, BOOK, "cdm")


def test_a_codebook_without_a_declaration_is_refused(tmp_path: Path) -> None:
    url = cdm.duckdb_cdm(tmp_path / "x.duckdb", person())
    with pytest.raises(ConfigError, match=r"add \[omop\]"):
        open_omop(url, msgspec.structs.replace(BOOK, omop=None), "cdm")


# -- the rest of the product -----------------------------------------------------------------------------------------


def test_studies_fits_checks_and_splits_take_the_source(tmp_path: Path) -> None:
    small = BOOK.with_features(feature for feature in BOOK.features if feature.name in ("age", "diabetes"))
    urls = {site: cdm.duckdb_cdm(tmp_path / f"{site}.duckdb", cdm.synthetic(80, seed)) for seed, site in enumerate("abc")}
    sources = {site: open_omop(url, small, "cdm") for site, url in urls.items()}
    result = RowStudy(small).simulate(sources)
    parts = [count_table(source, small) for source in sources.values()]
    assert result.model.statistics_.words.tolist() == sum(part.words for part in parts).tolist()  # type: ignore[attr-defined]
    assert check(sources["a"], small).ok
    assert NaiveBayes(small).fit(sources["b"]).statistics_.words.tolist() == parts[1].words.tolist()
    book = with_person(small)
    with open_omop(urls["a"], book, "cdm") as source:
        both = [count_table(source, book, split=Split(0.5, held_out, b"salt" * 8)) for held_out in (True, False)]
        assert (both[0].class_counts + both[1].class_counts).tolist() == count_table(source, book).class_counts.tolist()
        assert min(both[0].class_counts.sum(), both[1].class_counts.sum()) > 5
    for source in sources.values():
        source.close()


def test_the_digest_changes_with_every_record_that_can_be_read(database: Database) -> None:
    key = b"k" * 32

    def digest(rows: cdm.Rows) -> str:
        with Cdm(database(rows), "cdm") as opened:
            return opened.digest(key)

    rows = person(measurement=measured((90, 7.5, cdm.PERCENT)), condition_occurrence=[(1, 1, cdm.TYPE_2, day(90), "a")])
    first = digest(rows)
    assert digest({name: list(reversed(listed)) for name, listed in rows.items()}) == first
    assert (
        digest(person(measurement=measured((90, 7.6, cdm.PERCENT)), condition_occurrence=rows["condition_occurrence"])) != first
    )
    assert digest({**rows, "condition_occurrence": []}) != first
    assert digest({**rows, "death": [(1, day(200), None)]}) != first
    assert digest({**rows, "concept_ancestor": rows["concept_ancestor"][:-1]}) != first
    assert digest({**rows, "condition_occurrence": [(1, 1, cdm.TYPE_2, day(90), "other source text")]}) == first


def test_the_declaration_is_part_of_the_hash(tmp_path: Path) -> None:
    changed = {
        **OMOP,
        "columns": [{**each, "days": [-364, 0]} if each["name"] == "diabetes" else each for each in OMOP["columns"]],
    }
    other = Codebook.from_dict({**BOOK.to_dict(), "omop": changed})
    assert other.sha256 != BOOK.sha256
    assert RowStudy(other).sha256 != RowStudy(BOOK).sha256
    BOOK.to_toml(tmp_path / "codebook.toml")
    assert Codebook.from_toml(tmp_path / "codebook.toml") == BOOK
    assert msgspec.to_builtins(Codebook.from_dict(BOOK.to_dict()).omop) == msgspec.to_builtins(BOOK.omop)
    fewer = BOOK.with_features(feature for feature in BOOK.features if feature.name == "age")
    assert fewer.names == ("age",)


LAST = {"take": "last", "domain": "measurement", "concepts": [1], "unit": 4, "days": [0, 1]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "x", "take": "any", "domain": "condition"}, "say which records count"),
        ({"name": "x", "take": "age", "days": [0, 1]}, "age is a fact about the person"),
        ({"name": "x", "take": "last", "domain": "measurement", "concepts": [1], "days": [0, 1]}, "needs its unit"),
        ({"name": "x", "take": "last", "domain": "drug", "concepts": [1], "unit": 1, "days": [0, 1]}, "only a measurement"),
        ({"name": "x", "take": "count", "domain": "drug", "unit": 1, "days": [0, 1]}, "unit, convert and tie are for"),
        *(
            ({**LAST, "name": "x", "convert": {"5": wrong}}, "a factor such as 0.0555, or factor and offset")
            for wrong in (0, 1e13, [1, 1e13], [0, 1])
        ),
        ({**LAST, "name": "x", "convert": {"5": [1, 2, 3]}}, "convert"),
        ({"name": "x", "take": "count", "domain": "drug", "days": [1, 0]}, "first, last"),
        ({"name": "x", "take": "count", "domain": "drug", "concepts": [-1], "days": [0, 1]}, "positive whole number"),
        ({"name": "x", "take": "count", "domain": "drug", "exclude": [1], "days": [0, 1]}, "exclude needs concepts"),
        ({"name": "x", "take": "sum", "domain": "drug", "days": [0, 1]}, "take"),
        ({"name": "age", "take": "age"}, "'age' occurs twice"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Codebook.from_dict({**BOOK.to_dict(), "omop": {**OMOP, "columns": [*OMOP["columns"], change]}})


def test_every_column_of_the_codebook_is_declared() -> None:
    with pytest.raises(ConfigError, match="'age' is a column of the codebook; declare it"):
        Codebook.from_dict(
            {**BOOK.to_dict(), "omop": {**OMOP, "columns": [each for each in OMOP["columns"] if each["name"] != "age"]}}
        )
    for wrong in ({"start": "soon"}, {"start": "2021-01-01", "end": "2020-01-01"}, {"observed": [5, 1]}):
        with pytest.raises(ConfigError, match=r"omop\.cohort"):
            Codebook.from_dict({**BOOK.to_dict(), "omop": {**OMOP, "cohort": {**OMOP["cohort"], **wrong}}})


def test_dates_are_counted_alike_before_1970(database: Database) -> None:
    rows = person()
    rows["person"] = [(1, cdm.MALE, 1900, None, None, 0, "")]
    rows["observation_period"] = [(1, 1, datetime.date(1950, 1, 1), datetime.date(1960, 1, 1), 0)]
    rows["visit_occurrence"] = [(1, 1, cdm.INPATIENT, datetime.date(1955, 6, 1), datetime.date(1955, 6, 2))]
    rows["condition_occurrence"] = [(1, 1, cdm.TYPE_2, datetime.date(1955, 5, 31), "")]
    early = {**OMOP, "cohort": {"domain": "visit", "concepts": [cdm.INPATIENT]}}
    early["columns"] = [{**each, "days": [-1, -1]} if each["name"] == "diabetes" else each for each in OMOP["columns"]]
    made = rows_of(database(rows), Codebook.from_dict({**BOOK.to_dict(), "omop": early}))
    assert (made["age"], made["diabetes"]) == ([55], ["yes"])
    assert np.isfinite(made["age"]).all()
    assert isinstance(BOOK.feature("age"), Numeric)
    assert isinstance(BOOK.feature("sex"), Categorical)


def test_an_empty_line_of_the_vocabulary_excludes_nobody(tmp_path: Path) -> None:
    """`x NOT IN (..., NULL)` is never true in SQL."""
    import duckdb

    url = cdm.duckdb_cdm(tmp_path / "x.duckdb", person(condition_occurrence=[(1, 1, cdm.TYPE_2, day(90), "")]))
    with duckdb.connect(str(tmp_path / "x.duckdb")) as connection:
        connection.execute("CREATE TABLE cdm.copy AS SELECT * FROM cdm.concept_ancestor")
        connection.execute("DROP TABLE cdm.concept_ancestor; ALTER TABLE cdm.copy RENAME TO concept_ancestor")
        connection.execute(f"INSERT INTO cdm.concept_ancestor VALUES ({cdm.TYPE_1}, NULL, 1, 1)")
    assert rows_of(url)["not_type_1"] == ["yes"]
