"""Columns of a data dictionary in the neutral form that every importer returns."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from blindbayes.codebook.features import MAX_NAME_LENGTH, finite
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import Located, is_seen, shown

Kind = Literal["categories", "number", "text", "excluded"]
MAX_DESCRIPTION = 200
MAX_FILE = 64 << 20  # DDI files of large surveys
MAX_LISTED = 100  # values of an invalid range, as markers
MAX_MARKERS = 1000  # of missing values of a column; a table may have the same for all of its columns
_TAGS = re.compile(r"<[^<>]{0,1000}>")
_PERSON = "case|record|patient|person|personal|subject|respondent|participant|household|member|customer|account|client"
_ID_NAME = re.compile(
    r"(?:.*[_. -])?(?i:id|ids|uid|uuid|guid|mrn|ssn|ident|identifier)|(?i:id)[_. -].*|.*[a-z]I[dD]"
    rf"|(?i:caseid|hhid|persid|recid|respid|hldid|serial)|(?i:{_PERSON})[_. -]?(?i:no|nr|num|number)"
)
_ID_LABEL = re.compile(
    r"\bID\b|(?i:\b(?:identifier|serial (?:number|no|nr)"
    rf"|(?:{_PERSON}|study|identification) (?:id|code|no|nr|number|record))\b(?! of\b))"
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a dictionary. Facts that the dictionary lacks are None or empty.

    An excluded column stays out of the codebook unless a person keeps it; `why` says why. `more` has fields of the feature that
    only blindbayes knows, such as bins.
    """

    name: str
    kind: Kind
    values: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    low: float | None = None
    high: float | None = None
    precision: float | None = None
    optional: bool = True
    missing: tuple[str, ...] = ()  # besides the empty cell
    unit: str = ""
    description: str = ""
    why: str = ""
    note: str = ""  # a sentence for the question about the bounds of a number
    where: str = ""  # place in the file, for errors
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dictionary:
    """A data dictionary: its columns in order, and what it says of the table."""

    what: str  # the file, for errors
    specification: str
    columns: tuple[Column, ...]
    book: Mapping[str, Any] = field(default_factory=dict)  # fields of a codebook that the dictionary states
    is_codebook: bool = False  # written by an exporter of blindbayes


@dataclass(frozen=True, slots=True)
class File:
    """A dictionary file, and the table, file or lists in it that a person chose."""

    what: str
    raw: bytes
    table: str | None = None
    lists: Mapping[str, str] = field(default_factory=dict)  # column -> code list

    def problem(self, where: str, text: str) -> ConfigError:
        return ConfigError(f"{self.what}, {shown(where)}: {text}")


def place(item: Any, text: str) -> str:
    """Return a place in a JSON file, with its line if that is known."""
    return f"line {item.line}, {text}" if isinstance(item, Located) else text


class Choose(ConfigError):
    """Raised for a dictionary of several tables: `flag` must name one of `choices`."""

    def __init__(self, flag: str, text: str, choices: Iterable[str]) -> None:
        self.flag, self.text, self.choices = flag, text, tuple(choices)
        super().__init__(f"{text}: add --{flag}; known: {', '.join(map(shown, self.choices[:50]))}")


def one_of(tables: Mapping[str, Any], file: File, what: str) -> Any:
    """Return the table that a person chose, or the only one."""
    if file.table is not None:
        if file.table not in tables:
            raise Choose("table", f"{file.what} has no {what} {shown(file.table)!r}", tables)
        return tables[file.table]
    if not tables:
        raise file.problem("line 1", f"no {what} is in the file")
    if len(tables) != 1:
        raise Choose("table NAME", f"{file.what} describes {len(tables)} tables; which one holds the rows?", tables)
    return next(iter(tables.values()))


def cleaned(text: str) -> str:
    """Return the text of a label in one line, without mark-up and invisible characters."""
    plain = " ".join(_TAGS.sub(" ", text).split())
    plain = plain if is_seen(plain) else "".join(char for char in plain if is_seen(char))
    return plain if len(plain) <= MAX_DESCRIPTION else plain[: MAX_DESCRIPTION - 3] + "..."


def categories(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the fields of a column with codes and their labels; a label that repeats its code is left out."""
    listed = [(code, cleaned(label)) for code, label in pairs]
    labels = {code: label for code, label in listed if label and label != code}
    return {"kind": "categories", "values": tuple(code for code, _ in listed), "labels": labels}


def number(text: Any, file: File, where: str, *, comma: bool = False) -> float:
    """Return a finite number of a dictionary, or raise an error that names its place."""
    if isinstance(text, str):
        try:
            text = float(text.strip().replace(",", ".") if comma else text.strip())
        except ValueError:
            raise file.problem(where, "is not a number") from None
    try:
        return finite(text, "it")
    except ConfigError:
        raise file.problem(where, "is not a finite number") from None


def plain(value: Any) -> str | None:
    """Return the cell text of a JSON or SPSS value; None unless it is a text, number or truth value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value) if isinstance(value, str | int | float) else None


def markers_of(low: float, high: float) -> tuple[str, ...] | None:
    """Return the whole numbers of an invalid range as markers; None if they are too many or not all whole."""
    if not (low.is_integer() and high.is_integer() and 0 <= high - low < MAX_LISTED):
        return None
    return tuple(str(value) for value in range(int(low), int(high) + 1))


def within(codes: Iterable[str], spans: Iterable[tuple[float, float]]) -> list[str]:
    """Return the codes of a list that lie in one of the ranges of missing values."""
    starts, ends = list[float](), list[float]()  # of ranges that do not overlap, in order
    for low, high in sorted(spans):
        if ends and low <= ends[-1]:
            ends[-1] = max(high, ends[-1])
        else:
            starts.append(low)
            ends.append(high)
    numbers = {code: _as_number(code) for code in codes} if starts else {}
    return [code for code, value in numbers.items() if (at := bisect_right(starts, value)) and value <= ends[at - 1]]


def _as_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan  # in no range


def markers(texts: Iterable[str], file: File, where: str) -> tuple[str, ...]:
    """Return the missing markers of a column, without the empty cell."""
    listed = tuple(text for text in dict.fromkeys(texts) if text)
    if len(listed) > MAX_MARKERS:
        raise file.problem(where, f"lists more than {MAX_MARKERS:,} missing values")
    return listed


def excluded(name: str, why: str, **fields: Any) -> Column:
    return Column(name, "excluded", why=why, **fields)


def without_identifiers(dictionary: Dictionary) -> Dictionary:
    """Leave out numbers whose name or label reads like an identifier: dictionaries mark few of them as such."""
    if dictionary.is_codebook:
        return dictionary
    why = "its name or label reads like an identifier"
    return replace(
        dictionary,
        columns=tuple(
            replace(column, kind="excluded", why=why)
            if column.kind == "number" and (_ID_NAME.fullmatch(column.name) or _ID_LABEL.search(column.description))
            else column
            for column in dictionary.columns
        ),
    )


def distinct(columns: Iterable[Column], file: File) -> tuple[Column, ...]:
    """Return the columns; raise if two have one name, or one is too long to show."""
    listed, seen = tuple(columns), set()
    for column in listed:
        if len(column.name) > MAX_NAME_LENGTH:
            raise file.problem(column.where[:MAX_NAME_LENGTH], f"a name has at most {MAX_NAME_LENGTH} characters")
        if column.name in seen:
            raise file.problem(column.where, "the name occurs twice")
        seen.add(column.name)
    return listed
