"""OMOP common data model as a source: a codebook's declaration, compiled to SQL by Ibis for DuckDB and PostgreSQL.

Every column is an aggregate over the records of one person, and the person table is grouped by person too. So the source has
one row per person of the cohort whatever the database holds, and a person's records change that row alone. Days are compared as
whole numbers; a date that is missing or not between the years 1 and 9999 matches no window.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from blindbayes.codebook import Codebook
from blindbayes.codebook.omop import EVENT_COLUMNS, Omop, OmopCohort, OmopColumn, day_number
from blindbayes.data.digest import table_sums
from blindbayes.data.engines import decimal_number, engine_of, fetched, require_sound
from blindbayes.data.libraries import ibis
from blindbayes.data.sources import Source, connect_database, safely
from blindbayes.errors import ConfigError, DataError

PERSON = "person_id"  # column of the source if the codebook's identifier names it
_KEY, _INDEX = "bb_person", "bb_index"  # of intermediate tables
_LARGEST = 1e150
_EVENTS = {  # domain: table, column of its concept, column of its date
    "condition": ("condition_occurrence", "condition_concept_id", "condition_start_date"),
    "drug": ("drug_exposure", "drug_concept_id", "drug_exposure_start_date"),
    "procedure": ("procedure_occurrence", "procedure_concept_id", "procedure_date"),
    "measurement": ("measurement", "measurement_concept_id", "measurement_date"),
    "observation": ("observation", "observation_concept_id", "observation_date"),
    "device": ("device_exposure", "device_concept_id", "device_exposure_start_date"),
    "visit": ("visit_occurrence", "visit_concept_id", "visit_start_date"),
    "death": ("death", "cause_concept_id", "death_date"),
}
_NUMBERS = ("value_as_number", "unit_concept_id")
_READ = {  # everything that a declaration can make a site read, for the digest of the rows
    "person": (PERSON, "year_of_birth", "gender_concept_id"),
    "observation_period": (PERSON, "observation_period_start_date", "observation_period_end_date"),
    **{
        table: (PERSON, concept, date, *(_NUMBERS if domain in ("measurement", "observation") else ()))
        for domain, (table, concept, date) in _EVENTS.items()
    },
    "concept_ancestor": ("ancestor_concept_id", "descendant_concept_id"),
}


@dataclass(frozen=True, slots=True)
class OmopReport:
    """Counts of the declared facts that a site's database has and lacks, for its own staff."""

    persons: int
    cohort: int
    columns: list[dict[str, Any]]
    problems: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {"persons": self.persons, "cohort": self.cohort, "columns": self.columns, "problems": self.problems}


class Cdm:
    """A database with the tables of the common data model in a schema. Close it, or use it as a context manager."""

    def __init__(self, url: str, schema: str | None = None) -> None:
        self.schema, self.backend = schema or None, connect_database(url)
        self._place: Any = self.schema
        if self.schema is not None and self.backend.name == "duckdb":  # whose file may have the name of the schema
            self._place = (self.backend.current_catalog, self.schema)
        try:
            if engine_of(self._any()) == "pyspark":
                raise ConfigError("an OMOP source is a database of DuckDB or PostgreSQL")
            if url.partition(":")[0].lower() != "duckdb":
                require_sound(self.backend)
        except BaseException:
            self.backend.disconnect()
            raise

    def __enter__(self) -> Cdm:
        return self

    def __exit__(self, *_: object) -> None:
        self.backend.disconnect()

    def _any(self) -> Any:
        return self.table("person")

    def table(self, name: str) -> Any:
        """Return a table of the model. Raises `DataError` if the database has none of that name."""
        if name not in self._names:
            raise DataError(
                f"the database has no table {name!r} in {self.schema or 'its default schema'}; [rows] omop in site.toml names "
                "the schema of the OMOP tables"
            )
        return self.backend.table(name, database=self._place)

    @cached_property
    def _names(self) -> frozenset[str]:
        try:
            return frozenset(self.backend.list_tables(database=self._place))
        except Exception as cause:
            problem = type(cause).__name__
        raise DataError(f"the tables of {self.schema or 'the database'} cannot be listed ({problem}); check [rows] omop")

    def columns(self, name: str, *wanted: str) -> Any:
        """Return some columns of a table, or raise an error that names the first that is missing."""
        table = self.table(name)
        if missing := [column for column in wanted if column not in table.columns]:
            raise DataError(f"the table {name!r} has no column {missing[0]!r}, which version 5.4 of the model has")
        return table.select(*wanted)

    # -- the declaration -------------------------------------------------------------------------------------------------

    def rows(self, codebook: Codebook) -> Any:
        """Return the declared rows as an Ibis table: one per person of the cohort."""
        omop = require_omop(codebook)
        base = self.cohort(omop.cohort)
        names = [codebook.target, *codebook.names]
        parts = {name: f"bb_column_{place}" for place, name in enumerate(names)}
        whole = base
        for name, part in parts.items():
            column = omop.column(name)
            if column.take in EVENT_COLUMNS:
                made = self._aggregated(column, base)
                made = made.select(**{f"{part}_person": made[_KEY], part: made["value"]})
                whole = whole.left_join(made, whole[_KEY] == made[f"{part}_person"]).drop(f"{part}_person")
        values = {name: _value(omop.column(name), whole, part) for name, part in parts.items()}
        if _names_person(codebook):
            values[PERSON] = whole[_KEY].cast("string")
        return whole.select([value.name(name) for name, value in values.items()])

    def cohort(self, cohort: OmopCohort) -> Any:
        """Return the persons of a cohort with index date, age in that year and sex."""
        events = self.events(cohort)
        if cohort.start is not None:
            events = events.filter(events.day >= day_number(cohort.start))
        if cohort.end is not None:
            events = events.filter(events.day <= day_number(cohort.end))
        events = events.filter(events.day.notnull())
        first = cohort.pick == "first"
        index = events.group_by(_KEY).agg(
            **{_INDEX: events.day.min() if first else events.day.max()},
            year=events.year.min() if first else events.year.max(),  # of the same day: the year grows with the day
        )
        person = self.columns("person", *_READ["person"])
        person = person.group_by(PERSON).agg(born=person.year_of_birth.min(), sex=person.gender_concept_id.min())
        base = index.inner_join(person, index[_KEY] == person[PERSON])
        born, sex, year = (base[name].cast("int64") for name in ("born", "sex", "year"))
        base = base.select(_KEY, _INDEX, age=year - born, sex=sex)  # months and days of birth are not known everywhere
        if cohort.observed is not None:
            base = base.filter(base[_KEY].isin(self._observed(base, *cohort.observed)))
        if cohort.age is not None:
            base = base.filter(base.age.between(*cohort.age))
        return base

    def _observed(self, base: Any, first: int, last: int) -> Any:
        period = self.columns("observation_period", *_READ["observation_period"])
        period = period.select(
            owner=period[PERSON],
            first=_day(period.observation_period_start_date),
            last=_day(period.observation_period_end_date),
        )
        joined = base.select(_KEY, _INDEX).inner_join(period, base[_KEY] == period.owner)
        inside = (joined["first"] <= joined[_INDEX] + first) & (joined["last"] >= joined[_INDEX] + last)
        return joined.filter(inside)[_KEY]

    def events(self, declared: OmopCohort | OmopColumn) -> Any:
        """Return person, day and, where present, number and unit of each event of a concept set."""
        table, concept, date = _EVENTS[str(declared.domain)]
        more = _NUMBERS if isinstance(declared, OmopColumn) and declared.take == "last" else ()
        events = self.columns(table, PERSON, concept, date, *more)
        if declared.concepts:
            events = events.filter(self._within(events[concept], declared.concepts, declared.descendants))
        if declared.exclude:
            events = events.filter(~self._within(events[concept], declared.exclude, declared.descendants))
        numbers = {"number": _number(events.value_as_number), "unit": events.unit_concept_id} if more else {}
        return events.select(**{_KEY: events[PERSON], "day": _day(events[date]), "year": events[date].year(), **numbers})

    def _within(self, concept: Any, concepts: tuple[int, ...], descendants: bool) -> Any:
        own = concept.isin(list(concepts))
        if not descendants:
            return own
        below = self.columns("concept_ancestor", *_READ["concept_ancestor"])
        below = below.filter(below.ancestor_concept_id.isin(list(concepts)), below.descendant_concept_id.notnull())
        return own | concept.isin(below.descendant_concept_id)  # with a null in the list, no concept would be outside it

    def _aggregated(self, column: OmopColumn, base: Any) -> Any:
        """Return the value of each person of the cohort that has events in the window."""
        events = self.events(column)
        index = base.select(owner=base[_KEY], index=base[_INDEX])
        events = events.inner_join(index, events[_KEY] == index.owner)
        first, last = column.days or (0, 0)
        events = events.filter(events.day.between(events["index"] + first, events["index"] + last))
        if column.take == "last":
            return _last(events, column)
        number = events.day.nunique() if column.take == "days" else events.count()
        return events.group_by(_KEY).agg(value=number.cast("int64"))

    # -- reports ---------------------------------------------------------------------------------------------------------

    def report(self, codebook: Codebook) -> OmopReport:
        """Count what this database has of a declaration: concepts, records, units, persons."""
        omop = require_omop(codebook)
        person = self.columns("person", PERSON)
        report = OmopReport(_total(person[PERSON].nunique()), _total(self.cohort(omop.cohort).count()), [])
        report.problems.extend(self._versions(omop))
        if report.cohort == 0:
            report.problems.append("no person is in the cohort: check its concepts, dates and observation periods")
        names = {codebook.target, *codebook.names}
        declarations: list[OmopCohort | OmopColumn] = [omop.cohort]
        for declared in declarations + [column for column in omop.columns if column.name in names]:
            facts = self._facts(declared)
            report.columns.append(facts)
            report.problems.extend(_lacks(facts))
        return report

    def _facts(self, declared: OmopCohort | OmopColumn) -> dict[str, Any]:
        name = declared.name if isinstance(declared, OmopColumn) else "cohort"
        facts: dict[str, Any] = {"name": name, "unknown_concepts": [], "not_standard": [], "records": None}
        wanted = [*declared.concepts, *declared.exclude]
        units: list[int] = []
        if isinstance(declared, OmopColumn):
            if declared.take == "last":
                units = [int(declared.unit or 0), *map(int, declared.convert)]
            if declared.take not in EVENT_COLUMNS:
                wanted = [int(concept) for concept in declared.labels] if declared.take == "sex" else []
        known = self._concepts([*wanted, *units])
        facts["unknown_concepts"] = [concept for concept in (*wanted, *units) if concept not in known]
        facts["not_standard"] = [concept for concept in wanted if known.get(concept, "S") != "S"]
        if isinstance(declared, OmopColumn) and declared.take not in EVENT_COLUMNS:
            return facts
        events = self.events(declared)
        facts["records"] = _total(events.count())
        if units:
            usable = events.number.notnull() & events.unit.isin(units)
            facts["other_unit"] = _total(
                events.filter(events.number.notnull() & ~events.unit.isin(units).fill_null(False)).count()
            )
            facts["without_number"] = _total(events.filter(events.number.isnull()).count())
            facts["usable"] = _total(events.filter(usable).count())
        return facts

    def _concepts(self, concepts: list[int]) -> dict[int, str]:
        """Return the declared concepts that the site's vocabulary has, with their mark (S is standard)."""
        if not concepts:
            return {}
        table = self.columns("concept", "concept_id", "standard_concept")
        rows = safely(lambda: fetched(table.filter(table.concept_id.isin(sorted(set(concepts)))))).to_pylist()
        return {int(row["concept_id"]): row["standard_concept"] or "" for row in rows}

    def _versions(self, omop: Omop) -> Iterator[str]:
        """Yield where versions of model and vocabulary differ from the declared ones. Versions are not facts about persons."""
        for table, column, wanted, what in (
            ("cdm_source", "cdm_version", omop.cdm, "common data model"),
            ("cdm_source", "vocabulary_version", omop.vocabulary, "vocabulary"),
        ):
            if not wanted:
                continue
            if table not in self._names or column not in self.table(table).columns:
                yield f"the database does not say which version of the {what} it has ({table}.{column})"
                continue
            versions = safely(lambda: fetched(self.table(table).select(column).distinct()))[column].to_pylist()  # noqa: B023
            if not any(str(version).lower().lstrip("v").startswith(wanted.lower().lstrip("v")) for version in versions):
                yield f"the study was declared with version {wanted} of the {what}; this database has another one"

    def digest(self, key: bytes) -> str:
        """Return a keyed digest of all records that any declaration can read, whatever the codebook."""
        salt = hashlib.blake2b(key=key[:64], digest_size=16, person=b"bb omop salt").hexdigest()
        facts = []
        for name, wanted in _READ.items():
            if name not in self._names:
                facts.append(f"{name} absent")
                continue
            sums = table_sums(self.columns(name, *wanted), salt)
            facts.append(" ".join([name, *(str(number % 2**64) for number in sums)]))
        return hashlib.blake2b("\n".join(facts).encode(), key=key[:64], digest_size=32, person=b"bb omop digest").hexdigest()


def open_omop(url: str, codebook: Codebook, schema: str | None = None) -> Source:
    """Open the declared rows of an OMOP database, one per person, for `fit`, studies and checks. Close the source.

    `url` names a database: ``duckdb:///path/to/cdm.duckdb`` or ``postgres://user@host/db``; `schema` holds the OMOP tables.
    """
    cdm = Cdm(url, schema)
    try:
        rows = safely(lambda: cdm.rows(codebook), "the declared columns cannot be computed from the database")
    except BaseException:
        cdm.backend.disconnect()
        raise
    return Source("omop", tuple(rows.columns), None, rows, cdm.backend, _mapped=True)


def require_omop(codebook: Codebook) -> Omop:
    """Return the declaration of a codebook, or raise."""
    if codebook.omop is None:
        raise ConfigError("the codebook does not say how its columns come from an OMOP database; add [omop], or name a table")
    return codebook.omop


def _names_person(codebook: Codebook) -> bool:
    parts = codebook.identifier.parts if codebook.identifier is not None else ()
    return any(part.column == PERSON for part in parts)


def _value(column: OmopColumn, whole: Any, part: str) -> Any:
    if column.take == "age":
        return whole.age
    if column.take == "sex":
        return ibis.cases(*((whole.sex == int(concept), label) for concept, label in column.labels.items()))
    if column.take == "any":
        return ibis.ifelse(whole[part].notnull(), "yes", "no")
    return whole[part] if column.take == "last" else whole[part].coalesce(0)


def _day(date: Any) -> Any:
    """Return the days since 1970-01-01; null for a missing or infinite date."""
    kind = date.type()
    if not (kind.is_date() or (kind.is_timestamp() and kind.timezone is None)):
        raise DataError("a date of the OMOP tables has a type that is neither date nor timestamp without time zone; cast it")
    known = ibis.cases((date.year().between(1, 9999), date))  # else null: dates of PostgreSQL may be infinite
    return (known.cast("date").cast("timestamp").epoch_seconds() / 86400).floor().cast("int64")


def _number(value: Any) -> Any:
    number = decimal_number(value) if value.type().is_decimal() else value.cast("float64")
    return ibis.cases((number.abs() <= _LARGEST, number))  # neither NaN nor infinity


def _last(events: Any, column: OmopColumn) -> Any:
    numbers = [(events.unit == column.unit, events.number)]
    for unit in column.convert:
        factor, offset = (ibis.literal(repr(each)).cast("float64") for each in column.conversion(unit))
        numbers.append((events.unit == int(unit), events.number * factor + offset))
    events = events.select(_KEY, "day", value=ibis.cases(*numbers))
    events = events.filter(events.value.notnull())
    latest = events.group_by(_KEY).agg(latest=events.day.max())
    latest = latest.select(owner=latest[_KEY], latest=latest.latest)
    newest = events.inner_join(latest, (events[_KEY] == latest.owner) & (events.day == latest.latest))
    return newest.group_by(_KEY).agg(value=newest.value.max() if column.tie == "max" else newest.value.min())


def _total(number: Any) -> int:
    return int(safely(lambda: fetched(number.name("total").as_table()))["total"][0].as_py())


def _lacks(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the concepts of one declaration that a site lacks, with concept ids and numbers of records."""
    name = facts["name"]
    if unknown := facts["unknown_concepts"]:
        yield f"{name!r}: this database's vocabulary has no concept {', '.join(map(str, unknown[:20]))}"
    if other := facts["not_standard"]:
        yield f"{name!r}: concept {', '.join(map(str, other[:20]))} is no standard concept here: are its records under another?"
    if facts["records"] == 0:
        yield f"{name!r}: no record of its concepts is in this database"
    if facts.get("other_unit"):
        yield f"{name!r}: {facts['other_unit']} record(s) are in a unit that is not declared, and do not count"
    if facts.get("records") and facts.get("usable") == 0:
        yield f"{name!r}: no record has a number in a declared unit"
