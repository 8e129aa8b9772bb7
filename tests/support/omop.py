"""A small OMOP common data model 5.4 in DuckDB or PostgreSQL: columns of its definition, and synthetic persons."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

TABLES = {
    "person": "person_id integer, gender_concept_id integer, year_of_birth integer, month_of_birth integer, "
    "birth_datetime timestamp, race_concept_id integer, person_source_value varchar(50)",
    "observation_period": "observation_period_id integer, person_id integer, observation_period_start_date date, "
    "observation_period_end_date date, period_type_concept_id integer",
    "visit_occurrence": "visit_occurrence_id integer, person_id integer, visit_concept_id integer, visit_start_date date, "
    "visit_end_date date",
    "condition_occurrence": "condition_occurrence_id integer, person_id integer, condition_concept_id integer, "
    "condition_start_date date, condition_source_value varchar(50)",
    "drug_exposure": "drug_exposure_id integer, person_id integer, drug_concept_id integer, drug_exposure_start_date date",
    "procedure_occurrence": "procedure_occurrence_id integer, person_id integer, procedure_concept_id integer, "
    "procedure_date date",
    "measurement": "measurement_id integer, person_id integer, measurement_concept_id integer, measurement_date date, "
    "value_as_number numeric(18, 3), unit_concept_id integer, value_source_value varchar(50)",
    "observation": "observation_id integer, person_id integer, observation_concept_id integer, observation_date date, "
    "value_as_number numeric(18, 3), unit_concept_id integer",
    "device_exposure": "device_exposure_id integer, person_id integer, device_concept_id integer, "
    "device_exposure_start_date date",
    "death": "person_id integer, death_date date, cause_concept_id integer",
    "concept": "concept_id integer, concept_name varchar(255), domain_id varchar(20), vocabulary_id varchar(20), "
    "standard_concept varchar(1)",
    "concept_ancestor": "ancestor_concept_id integer, descendant_concept_id integer, min_levels_of_separation integer, "
    "max_levels_of_separation integer",
    "cdm_source": "cdm_source_name varchar(255), cdm_version varchar(10), vocabulary_version varchar(20)",
}
MALE, FEMALE, INPATIENT, EMERGENCY = 8507, 8532, 9201, 9203
DIABETES, TYPE_1, TYPE_2, TYPE_2_KIDNEY, ASTHMA = 201820, 201254, 201826, 443731, 317009
METFORMIN, METFORMIN_500, DIALYSIS = 1503297, 40164929, 4032243
HBA1C, SYSTOLIC, PERCENT, MMOL, MMHG, KPA = 3004410, 3004249, 8554, 9579, 8876, 44777602
CONCEPTS = {
    MALE: "S", FEMALE: "S", INPATIENT: "S", EMERGENCY: "S", DIABETES: "S", TYPE_1: "S", TYPE_2: "S", TYPE_2_KIDNEY: "S",
    ASTHMA: "S", METFORMIN: "S", METFORMIN_500: "S", DIALYSIS: "S", HBA1C: "S", SYSTOLIC: "S", PERCENT: "S", MMOL: "S",
    MMHG: "S", KPA: None,
}  # fmt: skip
ANCESTORS = [
    (DIABETES, TYPE_1),
    (DIABETES, TYPE_2),
    (DIABETES, TYPE_2_KIDNEY),
    (TYPE_2, TYPE_2_KIDNEY),
    (METFORMIN, METFORMIN_500),
]
REQUIRED = (  # NOT NULL in the definition; year_of_birth too, but not at every site
    "person_id", "gender_concept_id", "visit_concept_id", "condition_concept_id", "drug_concept_id", "procedure_concept_id",
    "measurement_concept_id", "observation_concept_id", "device_concept_id", "observation_period_start_date",
    "observation_period_end_date", "visit_start_date", "condition_start_date", "drug_exposure_start_date", "procedure_date",
    "measurement_date", "observation_date", "device_exposure_start_date", "death_date", "ancestor_concept_id",
    "descendant_concept_id",
)  # fmt: skip
Rows = dict[str, list[tuple[Any, ...]]]


def day(number: int) -> datetime.date:
    return datetime.date(2020, 1, 1) + datetime.timedelta(days=number)


def vocabulary(version: str = "v5.0 29-AUG-25") -> Rows:
    return {
        "concept": [(concept, f"concept {concept}", "", "", mark) for concept, mark in CONCEPTS.items()],
        "concept_ancestor": [(each, each, 0, 0) for each in CONCEPTS] + [(above, below, 1, 1) for above, below in ANCESTORS],
        "cdm_source": [("synthetic", "v5.4", version)],
    }


def synthetic(persons: int, seed: int = 1) -> Rows:
    """Random persons with visits, conditions, drugs, procedures, measurements; some never visit or are never observed."""
    rng = random.Random(seed)
    rows: Rows = {name: [] for name in TABLES} | vocabulary()
    for person in range(1, persons + 1):
        rows["person"].append(
            (person, rng.choice((MALE, FEMALE, FEMALE, 0)), rng.randint(1930, 2001), None, None, 0, f"mrn {person}")
        )
        begun = rng.randint(-500, 100)
        if rng.random() < 0.95:
            rows["observation_period"].append((person, person, day(begun), day(begun + rng.randint(300, 1500)), 0))
        for _ in range(rng.choice((0, 1, 1, 2, 3, 5))):
            at = 50 * rng.randint(0, 14)  # several on one day are frequent
            rows["visit_occurrence"].append((_next(rows), person, rng.choice((INPATIENT, EMERGENCY)), day(at), day(at + 3)))
        for _ in range(rng.randint(0, 6)):
            concept = rng.choice((TYPE_1, TYPE_2, TYPE_2_KIDNEY, ASTHMA, DIABETES))
            rows["condition_occurrence"].append((_next(rows), person, concept, day(rng.randint(-400, 800)), "E11"))
        for _ in range(rng.randint(0, 4)):
            concept = rng.choice((METFORMIN, METFORMIN_500, 999))
            rows["drug_exposure"].append((_next(rows), person, concept, day(rng.randint(-400, 800))))
        for _ in range(rng.randint(0, 2)):
            rows["procedure_occurrence"].append((_next(rows), person, DIALYSIS, day(rng.randint(-400, 800))))
        for _ in range(rng.randint(0, 8)):
            concept, unit, low, high = rng.choice(
                ((HBA1C, PERCENT, 4, 15), (HBA1C, MMOL, 20, 140), (SYSTOLIC, MMHG, 80, 220), (SYSTOLIC, KPA, 10, 29))
            )
            number = None if rng.random() < 0.1 else rng.randint(low * 10, high * 10) / 10
            at = day(10 * rng.randint(-20, 60))  # ties are frequent
            rows["measurement"].append((_next(rows), person, concept, at, number, unit, "text"))
        if rng.random() < 0.15:
            rows["death"].append((person, day(rng.randint(300, 900)), None))
    return rows


def _next(rows: Rows) -> int:
    return sum(len(each) for each in rows.values()) + 1


def definition(columns: str) -> str:
    """Columns of a table with the constraints of the definition."""
    parts = columns.replace("numeric(18, 3)", "numeric(18; 3)").split(", ")
    marked = [f"{part} NOT NULL" if part.split()[0] in REQUIRED else part for part in parts]
    return ", ".join(marked).replace(";", ",")


def duckdb_cdm(path: Path, rows: Rows, schema: str = "cdm") -> str:
    """Write a database file; return its URL."""
    import duckdb

    with duckdb.connect(str(path)) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        for name, columns in TABLES.items():
            connection.execute(f"CREATE TABLE {schema}.{name} ({definition(columns)})")
            _fill(connection, schema, name, rows.get(name, []), "?")
    return f"duckdb://{path}"


def postgres_cdm(url: str, rows: Rows, schema: str) -> str:
    """Make a schema in a server of PostgreSQL; return the URL."""
    import psycopg

    with psycopg.connect(url.replace("postgres://", "postgresql://"), autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        connection.execute(f"CREATE SCHEMA {schema}")
        for name, columns in TABLES.items():
            connection.execute(f"CREATE TABLE {schema}.{name} ({definition(columns).replace('numeric(18, 3)', 'numeric')})")
            _fill(connection.cursor(), schema, name, rows.get(name, []), "%s")
    return url


def _fill(connection: Any, schema: str, name: str, rows: Iterable[tuple[Any, ...]], mark: str) -> None:
    listed = list(rows)
    if listed:
        marks = ", ".join([mark] * len(listed[0]))
        every = ", ".join([f"({marks})"] * len(listed))
        connection.execute(f"INSERT INTO {schema}.{name} VALUES {every}", [cell for row in listed for cell in row])
