"""Declaration of a codebook's columns on an OMOP common data model: public, and part of the codebook's hash.

Each column is an aggregate of one person's records around that person's index date, so that every person is one row and no
record of another person changes it. `data.omop` compiles the declaration to the SQL of the engine that holds the database.
"""

from __future__ import annotations

import datetime
import hashlib
import math
from collections.abc import Iterable
from typing import Literal

import msgspec

from blindbayes.codebook.features import require_distinct, require_name
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import require_seen

Domain = Literal["condition", "drug", "procedure", "measurement", "observation", "device", "visit", "death"]
Take = Literal["any", "count", "days", "last", "age", "sex"]
EVENT_COLUMNS = ("any", "count", "days", "last")
SEXES = {"8507": "male", "8532": "female"}
MAX_CONCEPTS = 10_000
_MAX_DAYS = 200 * 366


class OmopCohort(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Persons of the study, and each one's index date: that of the first or last event of a concept set.

    `concepts` are standard concepts, with their descendants unless `descendants` is false, without those of `exclude` and their
    descendants; an empty list means any concept. Events from `start` to `end` count. With `observed = [a, b]` an observation
    period must cover the days from index + a to index + b; with `age = [a, b]` the person's age at the index date lies between.
    """

    domain: Domain
    concepts: tuple[int, ...] = ()
    exclude: tuple[int, ...] = ()
    descendants: bool = True
    pick: Literal["first", "last"] = "first"
    start: str | None = None
    end: str | None = None
    observed: tuple[int, int] | None = None
    age: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        _require_concepts(self.concepts, self.exclude, "omop.cohort")
        for name, span in (("observed", self.observed), ("age", self.age)):
            if span is not None:
                _require_span(span, f"omop.cohort: {name}")
        dates = [_date(text, f"omop.cohort: {name}") for name, text in (("start", self.start), ("end", self.end)) if text]
        if len(dates) == 2 and dates[0] > dates[1]:
            raise ConfigError("omop.cohort: start is after end; swap them")

    @property
    def sha256(self) -> str:
        """The hash of the cohort, to compare those of two studies."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


class OmopColumn(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A column: the age or sex of a person, or an aggregate of events of a concept set in a window of days.

    `take` is `any` (yes or no), `count` (records), `days` (distinct days with a record), `last` (number of the last record in
    the declared unit), `age` (year of the index date minus year of birth) or `sex` (`values` by gender concept). The window
    `days = [a, b]` has the days from index + a to index + b; negative ones lie before the index date. `unit` is a concept;
    `convert` has, by concept of another unit, the factor by which its numbers are multiplied, or factor and offset: a degree
    Fahrenheit is `[0.5556, -17.78]` in Celsius. Records in any other unit do not count. If several records are on the last
    day, `tie` takes the largest or the smallest number.
    """

    name: str
    take: Take
    domain: Domain | None = None
    concepts: tuple[int, ...] = ()
    exclude: tuple[int, ...] = ()
    descendants: bool = True
    days: tuple[int, int] | None = None
    unit: int | None = None
    convert: dict[str, float | tuple[float, float]] = {}
    tie: Literal["max", "min"] = "max"
    values: dict[str, str] = {}

    def __post_init__(self) -> None:
        require_name(self.name, "omop.columns")
        where = f"omop.columns {self.name!r}"
        _require_concepts(self.concepts, self.exclude, where)
        if self.take not in EVENT_COLUMNS:
            if self.domain or self.concepts or self.exclude or self.days:
                raise ConfigError(f"{where}: {self.take} is a fact about the person; leave out domain, concepts and days")
        elif self.domain is None or self.days is None:
            raise ConfigError(f"{where}: say which records count: domain = 'condition' and days = [-365, 0], for example")
        else:
            _require_span(self.days, f"{where}: days")
        if self.take == "last":
            self._require_last(where)
        elif self.unit is not None or self.convert or self.tie != "max":
            raise ConfigError(f"{where}: unit, convert and tie are for take = 'last'; leave them out")
        if self.values and self.take != "sex":
            raise ConfigError(f"{where}: values are for take = 'sex'; leave them out")
        for concept, label in self.values.items():
            _require_ids([concept], f"{where}: values")
            require_seen(label, f"{where}: values")

    def _require_last(self, where: str) -> None:
        if self.domain not in ("measurement", "observation"):
            raise ConfigError(f"{where}: only a measurement or an observation has a last number")
        if not self.concepts:
            raise ConfigError(f"{where}: a last number needs its concepts")
        if self.unit is None:
            raise ConfigError(f"{where}: a last number needs its unit, a concept such as 8876 (mmHg)")
        _require_ids([self.unit, *self.convert], f"{where}: unit and convert")
        if str(self.unit) in self.convert:
            raise ConfigError(f"{where}: convert has factors for other units than the column's own")
        try:
            plain = {unit: self.conversion(unit) for unit in self.convert}
        except (TypeError, ValueError):
            plain = {"": (math.nan, 0.0)}
        if not all(1e-12 <= abs(factor) <= 1e12 and abs(offset) <= 1e12 for factor, offset in plain.values()):
            raise ConfigError(f"{where}: convert: a factor such as 0.0555, or factor and offset such as [0.0915, 2.15]")
        msgspec.structs.force_setattr(self, "convert", {unit: each if each[1] else each[0] for unit, each in plain.items()})

    def conversion(self, unit: str) -> tuple[float, float]:
        """Return factor and offset of a number in another unit."""
        given = self.convert[unit]
        factor, offset = given if isinstance(given, tuple | list) else (given, 0.0)
        return float(factor), float(offset)

    @property
    def labels(self) -> dict[str, str]:
        """Labels of gender concepts."""
        return self.values or SEXES


class Omop(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A codebook's columns in terms of an OMOP common data model, version 5.4, and the vocabulary they were declared with."""

    cohort: OmopCohort
    columns: tuple[OmopColumn, ...]
    cdm: Literal["5.3", "5.4"] = "5.4"
    vocabulary: str = ""

    def __post_init__(self) -> None:
        require_distinct([column.name for column in self.columns], "omop.columns", "name")
        require_seen(self.vocabulary, "omop.vocabulary")

    @property
    def described(self) -> str:
        """Describe in a sentence which records a site reads, for the person who approves it."""
        domains = sorted({self.cohort.domain, *(column.domain for column in self.columns if column.domain is not None)})
        start, end = self.cohort.start, self.cohort.end
        span = (f" from {start}" if start else "") + (f" to {end}" if end else "")
        return (
            f"an OMOP database: one row per person with a {self.cohort.domain} of the cohort{span}; the person table and "
            f"records of {', '.join(domains)}"
        )

    def column(self, name: str) -> OmopColumn:
        return next(column for column in self.columns if column.name == name)

    def require(self, names: Iterable[str]) -> None:
        """Raise unless every column of the codebook is declared."""
        declared = {column.name for column in self.columns}
        if missing := [name for name in names if name not in declared]:
            raise ConfigError(f"omop: {missing[0]!r} is a column of the codebook; declare it under [[omop.columns]]")


def _require_concepts(concepts: tuple[int, ...], exclude: tuple[int, ...], where: str) -> None:
    _require_ids([*concepts, *exclude], f"{where}: concepts")
    if len(concepts) + len(exclude) > MAX_CONCEPTS:
        raise ConfigError(f"{where}: at most {MAX_CONCEPTS:,} concepts; name their ancestors")
    if exclude and not concepts:
        raise ConfigError(f"{where}: exclude needs concepts to exclude from")


def _require_ids(concepts: Iterable[int | str], where: str) -> None:
    for concept in concepts:
        text = str(concept)
        if isinstance(concept, bool) or not (text.isascii() and text.isdecimal() and 0 < int(text[:20]) < 2**63):
            raise ConfigError(f"{where}: a concept is a positive whole number, the concept_id of the vocabulary")


def _require_span(span: tuple[int, int], where: str) -> None:
    if span[0] > span[1] or max(map(abs, span)) > _MAX_DAYS:
        raise ConfigError(f"{where} is [first, last], at most {_MAX_DAYS:,}")


def _date(text: str, where: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{where} is a date such as 2024-12-31") from None


def day_number(text: str) -> int:
    """Return the days from 1970-01-01 to a declared date."""
    return (_date(text, "date") - datetime.date(1970, 1, 1)).days
