"""Contribution bounding: at most `rows_per_person` rows per person count, sampled by the engine that holds the rows.

A person is the set of rows with equal identifiers; rows without an identifier do not count. The sample depends only on the
person's own rows and on the salt, so that adding or removing a person changes at most `rows_per_person` counted rows.

The engine normalises identifiers (lower case, folded white space, digits), not `identifiers`: they are only compared within
one table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook, IdPart
from blindbayes.data.frames import identifier_columns
from blindbayes.data.libraries import ibis, pa
from blindbayes.data.sources import open_source
from blindbayes.errors import ConfigError, DataError

_KEY, _COPY, _DRAW = "person of a row", "copy of a row", "draw of a row"
_NULL = "\x1f-"  # a missing cell in the text of a row


@dataclass(frozen=True, slots=True)
class ContributionBound:
    """Maximum number of rows per person, and the secret salt that samples them; a resumed run must use the same salt."""

    rows_per_person: int
    salt: bytes = field(repr=False)

    def __post_init__(self) -> None:
        require_rows_per_person(self.rows_per_person)


def require_rows_per_person(value: int) -> None:
    """Raise unless `value` is a positive integer."""
    if type(value) is not int or value < 1:
        raise ConfigError("rows_per_person must be a positive whole number")


def require_identifier(codebook: Codebook) -> tuple[IdPart, ...]:
    """Return the parts of the codebook's identifier; raise if it has none or one that engines cannot normalise."""
    if codebook.identifier is None:
        raise ConfigError("rows_per_person needs identifiers of persons: add an [identifier] recipe to the codebook")
    if phone := next((part for part in codebook.identifier.parts if part.normalise == "phone"), None):
        raise ConfigError(
            f"identifier column {phone.column!r}: engines cannot compare spellings of a telephone number; "
            "rows_per_person needs another identifier, such as a patient number"
        )
    return codebook.identifier.parts


def sample_table(table: Any, codebook: Codebook, bound: ContributionBound, place: str | None = None) -> Any:
    """Return an Ibis table with at most `rows_per_person` rows per person, and none without an identifier.

    It has the columns of the codebook; or only the column `place`, the position of a row, which numbers a person's rows.
    """
    names = [*codebook.names, codebook.target] if place is None else [place]
    key, present = person_keys(table, require_identifier(codebook))
    # Rows are sampled by their text; equal rows of a person are numbered, so that each has its own random value. A position
    # depends on rows of other persons, so it only determines that number.
    content = row_text(table, names) if place is None else ibis.literal("")
    rows = table.filter(present).select(*names, **{_KEY: key, _DRAW: content})
    same = ibis.window(group_by=[rows[_KEY], rows[_DRAW]], order_by=rows[_KEY if place is None else place])
    rows = rows.mutate(**{_COPY: ibis.row_number().over(same)})
    salted = joined_texts([ibis.literal(bound.salt.hex()), rows[_KEY], rows[_DRAW], rows[_COPY].cast("string")])
    rows = rows.mutate(**{_DRAW: salted_hash(salted)})
    rank = ibis.row_number().over(ibis.window(group_by=rows[_KEY], order_by=rows[_DRAW]))
    rows = rows.mutate(**{_COPY: rank})
    return rows.filter(rows[_COPY] < bound.rows_per_person).select(*names)


def person_keys(table: Any, parts: tuple[IdPart, ...]) -> tuple[Any, Any]:
    """Return the normalised identifier of each row of an Ibis table, as one text, and whether the row has one."""
    for part in parts:
        if part.column not in table.columns:
            raise DataError(f"identifier column {part.column!r} is missing from the table; add it or change the recipe")
    texts = [_part(table[part.column], part) for part in parts]
    present = reduce(lambda left, right: left & right, (text.notnull() & (text != "") for text in texts))
    key = joined_texts([text.length().cast("string") + ":" + text for text in texts])  # ("ab", "c") is not ("a", "bc")
    return key, present


_GROUP = 50  # PostgreSQL: at most 100 arguments


def row_text(table: Any, names: Sequence[str]) -> Any:
    """Return the columns of each row of an Ibis table as one text.

    It must not depend on other rows: one with a missing value or a fraction turns a frame's column of 1 into 1.0, and one with
    another object turns true into True. So these are the same text.
    """
    return joined_texts([table[name].cast("string").fill_null(_NULL).lower().re_replace(r"\.0$", "") for name in names])


def joined_texts(texts: Sequence[Any]) -> Any:
    """Return texts, none of them null, joined by a separator.

    Engines limit the depth of an expression and the arguments of a function, which hundreds of columns would pass: groups are
    joined, then the groups.
    """
    while len(texts) > 1:
        groups = [texts[low : low + _GROUP] for low in range(0, len(texts), _GROUP)]
        texts = [ibis.literal("\x1f").join(group) if len(group) > 1 else group[0] for group in groups]
    return texts[0]


def salted_hash(text: Any) -> Any:
    """Return a hash, in hexadecimal, that every engine has."""
    return _md5()(text)


def sample_rows(frame: Any, codebook: Codebook, bound: ContributionBound) -> npt.NDArray[np.int64]:
    """Return the positions of the rows of a frame that count, in order."""
    plain = identifier_columns(frame, [part.column for part in require_identifier(codebook)])
    rows = len(next(iter(plain.values())))
    place = "place"
    while place in plain:
        place += "_"
    with open_source(pa.table({**plain, place: pa.array(np.arange(rows))})) as opened:
        table = sample_table(opened.table, codebook, bound, place)
        try:
            places = table[place].to_pyarrow()
        except Exception as cause:  # an engine's message may quote a row
            problem = type(cause).__name__
        else:
            return np.sort(np.asarray(places.to_numpy(), dtype=np.int64))
    raise DataError(f"the identifiers cannot be read ({problem})")


@cache
def _md5() -> Any:
    """Return a hash that every engine has. Any sample that depends only on a person's rows is equally private."""

    def md5(text: str) -> str:  # type: ignore[empty-body]
        """Hash a text to hexadecimal."""

    return ibis.udf.scalar.builtin(md5)


def _part(column: Any, part: IdPart) -> Any:
    """Return the normalised text of an identifier column, null or empty where it is missing."""
    kind = column.type()
    if not (kind.is_string() or kind.is_integer() or kind.is_date() or kind.is_timestamp()):
        raise DataError(f"identifier column {part.column!r} holds neither text, whole numbers nor dates; cast it before")
    if kind.is_timestamp():
        column = column.date()
    text = column.cast("string")
    if part.normalise == "text":
        return text.lower().re_replace(r"[ \t-\r]+", " ").re_replace("^ | $", "")  # Ibis' strip removes v and f on Spark
    if part.normalise == "email":
        return text.lower().re_replace(r"\s+", "")
    if part.normalise in ("digits", "date"):
        return text.re_replace("[^0-9]", "")
    return text
