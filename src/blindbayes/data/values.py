"""The meaning of one cell of a table, the same in a file, a frame, a list and a database.

A cell is read independently of all others, and its type decides nothing that its text would not: 3, 3.0 and the texts "3" and
"3.0" are one category, true and "True" another; a missing marker that reads as a number matches that number in text too. So one
row cannot change how another is read.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook, Feature, Numeric
from blindbayes.data.libraries import pa, pc
from blindbayes.errors import DataError

# One rule for all engines, whose casts differ. The lengths keep numbers inside float64, beyond which engines differ too.
NUMBER_PATTERN = r"^[+-]?([0-9]{1,60}\.?[0-9]{0,100}|\.[0-9]{1,100})([eE][+-]?[0-9]{1,2})?$"
SPACE = " \t\n\v\f\r"  # allowed around a number; engines differ beyond ASCII
ABSENT, UNKNOWN = -1, -2  # positions of a missing cell and of an unlisted category
NO_TEXT = "\0"  # text of an object that is neither text, number nor truth value: never listed, never a number
_NUMBER = re.compile(NUMBER_PATTERN)
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,15})\.0+")
_TRUTH = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"}
_LONGEST = 1024  # bits of a whole number that is converted; a longer one is beyond every bound
_GONE = frozenset({"NoneType", "NAType", "NaTType"})


def plain_text(value: Any) -> str | None:
    """Return a value as the codebook writes it: text unchanged, 3, 0.5, true; None for missing."""
    if value is None or type(value).__name__ in _GONE:
        return None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, int | np.integer):
        return str(int(value)) if int(value).bit_length() <= _LONGEST else NO_TEXT
    if isinstance(value, float | np.floating | Decimal):
        number = as_number(value)
        if math.isnan(number):
            return None
        return str(int(number)) if is_whole(number) else repr(number)
    return NO_TEXT


def written_text(value: Any) -> str | None:
    """Return a value as a text file would hold it: as `plain_text`, and dates and times in ISO format."""
    if isinstance(value, date | time) and type(value).__name__ not in _GONE:
        return value.isoformat(sep=" ") if isinstance(value, datetime) else value.isoformat()
    return plain_text(value)


def as_numpy(column: pa.Array) -> npt.NDArray[Any]:
    """Return numbers or truth values of Arrow, NaN where missing, without loading pandas as Arrow's own conversion does."""
    if pa.types.is_boolean(column.type):
        return as_numpy(column.cast(pa.uint8())).astype(np.float64 if column.null_count else bool)
    values = np.frombuffer(column.buffers()[1] or b"", dtype=column.type.to_pandas_dtype())
    values = values[column.offset : column.offset + len(column)]
    return np.where(as_numpy(column.is_null()), np.nan, values) if column.null_count else values


def as_number(value: Any) -> float:
    """Return a number as a float, infinite if it is beyond floats."""
    try:
        return float(value)
    except OverflowError:
        return math.copysign(math.inf, 1 if value > 0 else -1)
    except ValueError:  # a signalling NaN
        return math.nan


def is_whole(number: float) -> bool:
    """Return True for a float that represents exactly one whole number."""
    return math.isfinite(number) and number == math.floor(number) and abs(number) < 2**53


def settled_text(text: str) -> str:
    """Return the plain text of the typed value that a text denotes: 3.0 gives 3, True gives true; others are unchanged."""
    if _WHOLE.fullmatch(text) and is_whole(float(text)):
        return str(int(float(text)))
    return _TRUTH.get(text, text)


def marker_number(text: str) -> float | None:
    """Return the number that a missing marker denotes, or None."""
    try:
        return float(text)
    except ValueError:
        return None


def marker_numbers(markers: Sequence[str]) -> tuple[float, ...]:
    """Return the numbers that mean a missing value."""
    numbers = (marker_number(marker) for marker in markers)
    return tuple(number for number in numbers if number is not None and not math.isnan(number))


class Listed:
    """Positions of the categories of a feature, or of class labels, by plain text."""

    def __init__(self, values: Sequence[str], markers: Sequence[str], other: str | None = None) -> None:
        self._index = {value: index for index, value in enumerate(values)}
        self._settled: dict[str, int] = {}
        for value, index in self._index.items():
            self._settled.setdefault(settled_text(value), index)
        self._markers = frozenset(markers)
        self._numbers = frozenset(marker_numbers(markers))
        self._unlisted = UNKNOWN if other is None else self._index[other]
        self._folded = frozenset(value.strip(SPACE).casefold() for value in values)

    def differs_in_case(self, text: str | None) -> bool:
        """Return True if an unlisted text differs from a listed one only in case or blanks."""
        return text is not None and text.strip(SPACE).casefold() in self._folded

    def position(self, text: str | None) -> int:
        """Return the position of a plain text; ABSENT if it is missing, that of `other` or UNKNOWN if it is not listed."""
        if text is None:
            return ABSENT
        index = self._index.get(text)
        if index is None:
            index = self._settled.get(settled_text(text))
        if index is not None:
            return index
        if text in self._markers:
            return ABSENT
        if self._numbers and _NUMBER.match(trimmed := text.strip(SPACE)) and float(trimmed) in self._numbers:
            return ABSENT
        return self._unlisted


@dataclass(frozen=True, slots=True)
class Untyped:
    """A column of objects: the plain text of each, and its number if it is one."""

    texts: pa.Array  # null where missing
    numbers: npt.NDArray[np.float64]
    counted: npt.NDArray[np.bool_]  # which are numbers

    def __len__(self) -> int:
        return len(self.counted)

    def __getitem__(self, part: slice | npt.NDArray[np.int64]) -> Untyped:
        texts = self.texts[part] if isinstance(part, slice) else self.texts.take(pa.array(part))
        return Untyped(texts, self.numbers[part], self.counted[part])

    def require_readable(self, name: str) -> Untyped:
        """Return self, or raise if an object is neither text, number nor truth value."""
        if pc.any(pc.equal(self.texts, NO_TEXT)).as_py():
            raise DataError(f"column {name!r} holds an object that is neither text, number nor truth value")
        return self


def untyped(values: npt.NDArray[Any]) -> pa.Array | Untyped:
    """Return a column of objects; an Arrow array if all are texts or all are numbers, which means the same."""
    listed = values.tolist()
    kinds = {kind for kind in set(map(type, listed)) if kind.__name__ not in _GONE}
    if (typed := _typed(listed, kinds)) is not None:
        return typed
    texts = [plain_text(value) for value in listed]
    counted = np.array([_is_number(value) for value in listed], dtype=bool)
    numbers = np.array([as_number(value) if count else math.nan for value, count in zip(listed, counted, strict=True)])
    clean = [None if text is None else text.encode(errors="surrogatepass").decode(errors="replace") for text in texts]
    return Untyped(pa.array(clean, pa.string()), numbers.astype(np.float64), counted)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating | Decimal) and not isinstance(value, bool | np.bool_)


def _typed(listed: list[Any], kinds: set[type]) -> pa.Array | None:
    """Return an Arrow array if all values are texts or missing, or all are plain numbers or missing."""
    if kinds <= {str, float}:  # NaN between texts is missing
        if str in kinds and float in kinds and any(value == value for value in listed if type(value) is float):
            return None
        wanted = pa.string() if str in kinds or not kinds else pa.float64()
    elif kinds == {int}:
        wanted = pa.int64()
    else:
        return None
    try:
        return pa.array(listed, wanted, from_pandas=True)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return None


UNLABELLED = "take them out of the table, or give them a class of their own by a map (--map)"


def _number(rows: int, one: str, several: str) -> str:
    return f"1 {one}" if rows == 1 else f"{rows} {several}"


def untyped_column(name: str) -> DataError:
    """Return the error for a column of dates or of another type that no feature has."""
    return DataError(
        f"column {name!r} has a type that is neither text, number nor truth value. Dates become features through a map, such "
        f"as open_table(frame, map={{'month': 'month(date(col(\"{name}\")))'}}); cast other types before"
    )


WORKBOOK = "make numbers of these cells in the workbook (in Excel: Data, Text to Columns), since it has its own decimal mark"


def not_numbers(name: str, rows: int, *, workbook: bool = False) -> DataError:
    """Return the error for texts in a numeric column. Of a `workbook`, it does not suggest a decimal mark."""
    marks = (
        "read a decimal comma with Dialect(decimal=',') (--decimal , on the command line) and separated thousands with "
        "Dialect(thousands='.') (--thousands .)"
    )
    return DataError(
        f"feature {name!r}: {_number(rows, 'row holds', 'rows hold')} "
        "a text that is neither a number nor a missing marker. Add a marker to missing in "
        f"the codebook; {WORKBOOK if workbook else marks}; derive numbers from dates by a map (--map)"
    )


class UnreadableDates(NamedTuple):
    """Rows whose dates a map could not read; their features count as missing."""

    rows: int
    form: str  # a date as the map expects it

    def __str__(self) -> str:
        return f"{_number(self.rows, 'row holds', 'rows hold')} a date that is not written as {self.form}"


@dataclass(slots=True)
class Misfit:
    """Numbers of rows of a column that are missing, unmapped, unreadable or out of bounds."""

    name: str
    missing: int = 0
    unmapped: int = 0
    unreadable: int = 0
    outside: int = 0
    fractional: bool = False  # a fractional number where a category is expected
    case: bool = False  # a category or label that differs from a listed one in case or blanks only
    many: bool = False  # more distinct values than are listed
    codes: Counter[str] | None = field(default=None, repr=False)  # unmapped values, for readers who may see rows
    dates: UnreadableDates | None = None  # among the missing
    workbook: bool = False  # the column is one of an Excel file

    def require_clean(self, feature: Feature | None) -> None:
        """Raise if a row of the feature (None: of the class) does not fit."""
        if feature is None:
            self._require_labels()
            return
        if self.fractional:
            raise DataError(
                f"column {self.name!r}: a category is a fractional number; declare the feature numeric or cast it to text"
            )
        if self.missing and not feature.optional:
            raise DataError(
                f"feature {self.name!r}: {_number(self.missing, 'row is', 'rows are')} "
                f"missing, and the feature is not optional; {'' if self.dates is None else f'{self.dates}: correct its map, '}"
                "set optional = true in the codebook or fill them"
            )
        if self.unmapped or self.many:
            more = "more than " if self.many else ""
            raise DataError(
                f"feature {self.name!r}: {more}{_number(self.unmapped, 'row holds', 'rows hold')} "
                "a category that the codebook does not list; "
                f"add it to values or map it before{self._hint()}"
            )
        if self.unreadable:
            raise not_numbers(self.name, self.unreadable, workbook=self.workbook)
        if self.outside and isinstance(feature, Numeric):
            raise DataError(
                f"feature {self.name!r}: {_number(self.outside, 'row is', 'rows are')} "
                f"out of bounds [{feature.low}, {feature.high}]; "
                "widen the bounds in the codebook, clip, or drop the rows"
            )

    def _require_labels(self) -> None:
        if self.many:
            raise DataError(
                f"class column {self.name!r} holds far more labels than the codebook lists; is it the right column?"
            )
        if self.missing:
            raise DataError(
                f"class column {self.name!r}: {_number(self.missing, 'row has', 'rows have')} no label; {UNLABELLED}"
            )
        if self.unmapped:
            raise DataError(
                f"class column {self.name!r}: {_number(self.unmapped, 'row holds', 'rows hold')} "
                "a label that the codebook does not list; "
                f"add it to classes or drop the rows{self._hint()}"
            )

    def _hint(self) -> str:
        return " (one differs from a listed one in case or blanks only)" if self.case else ""


class Misfits(dict[str, Misfit]):
    """Misfits by column; `codes` collects unmapped values, and `dates` is asked which missing ones are unreadable dates."""

    def __init__(
        self,
        *,
        codes: bool = False,
        dates: Callable[[], Mapping[str, UnreadableDates]] | None = None,
        workbook: bool = False,
    ) -> None:
        super().__init__()
        self._codes, self._dates, self._workbook = codes, dates, workbook

    def __missing__(self, name: str) -> Misfit:
        self[name] = Misfit(name, codes=Counter() if self._codes else None, workbook=self._workbook)
        return self[name]

    def require_clean(self, codebook: Codebook) -> None:
        """Raise if a row does not fit, checking the class column first, then the features in order."""
        if self._dates is not None and any(each.name in self and self[each.name].missing for each in codebook.features):
            for name, dates in self._dates().items():
                self[name].dates = dates
        for name in (codebook.target, *codebook.names):
            if name in self:
                self[name].require_clean(None if name == codebook.target else codebook.feature(name))
