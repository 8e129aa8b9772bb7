"""A bound on the rows of one person: contribution bounding, in the engine that holds the rows.

A person is what the codebook's identifier says: rows whose identifier columns read alike. Of each, `most` rows are drawn at
random and the others are left out, as are rows without an identifier. Which rows are drawn hangs on that person's rows and on
the salt alone, so that a person who is added or removed moves at most `most` rows of the table that is counted.

Normalisation is the engine's, not that of `identifiers`: letters in lower case, white space folded, digits kept. It decides
who is one person within this table; nobody else's identifiers are compared with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook, IdPart
from blindbayes.data.frames import identifier_columns
from blindbayes.data.libraries import ibis, pa
from blindbayes.data.sources import open_source
from blindbayes.errors import ConfigError, DataError

_KEY, _COPY, _DRAW = "person of a row", "copy of a row", "draw of a row"
_NULL = "\x1f-"  # of a missing cell in the text of a row


@dataclass(frozen=True, slots=True)
class ContributionBound:
    """How many rows of a person are counted, and the secret that draws them; a run that is taken up again brings it back."""

    rows_per_person: int
    salt: bytes = field(repr=False)

    def __post_init__(self) -> None:
        require_rows_per_person(self.rows_per_person)


def require_rows_per_person(value: int) -> None:
    """Refuse what is no number of rows."""
    if type(value) is not int or value < 1:
        raise ConfigError("rows_per_person is a whole number from 1 on")


def require_identifier(codebook: Codebook) -> tuple[IdPart, ...]:
    """The parts of the identifier that rows are bounded by."""
    if codebook.identifier is None:
        raise ConfigError("rows_per_person needs to know whose rows are whose: add an [identifier] recipe to the codebook")
    if phone := next((part for part in codebook.identifier.parts if part.normalise == "phone"), None):
        raise ConfigError(
            f"identifier column {phone.column!r}: no engine can tell two spellings of a telephone number apart; "
            "rows_per_person needs another identifier, such as a patient number"
        )
    return codebook.identifier.parts


def sample_table(table: Any, codebook: Codebook, bound: ContributionBound, place: str | None = None) -> Any:
    """An Ibis table without the rows that a person has beyond the bound, and without those of nobody.

    It has the columns of the codebook; or that of the `place` of each row, in whose order a person's rows are then numbered.
    """
    parts = require_identifier(codebook)
    for part in parts:
        if part.column not in table.columns:
            raise DataError(f"identifier column {part.column!r} is missing from the table; add it or change the recipe")
    names = [*codebook.names, codebook.target] if place is None else [place]
    texts = [_part(table[part.column], part) for part in parts]
    present = texts[0].notnull() & (texts[0] != "")
    for text in texts[1:]:
        present = present & text.notnull() & (text != "")
    key = _joined([text.length().cast("string") + ":" + text for text in texts])  # ("ab", "c") is not ("a", "bc")
    # The text of a row stands for it; equal rows of a person are told apart by their number, so that each has one draw. A place
    # among all rows hangs on other persons', so it gives that number and nothing else.
    content = _joined([table[name].cast("string").fill_null(_NULL) for name in names]) if place is None else ibis.literal("")
    rows = table.filter(present).select(*names, **{_KEY: key, _DRAW: content})
    same = ibis.window(group_by=[rows[_KEY], rows[_DRAW]], order_by=rows[_KEY if place is None else place])
    rows = rows.mutate(**{_COPY: ibis.row_number().over(same)})
    salted = _joined([ibis.literal(bound.salt.hex()), rows[_KEY], rows[_DRAW], rows[_COPY].cast("string")])
    rows = rows.mutate(**{_DRAW: _md5()(salted)})
    drawn = ibis.row_number().over(ibis.window(group_by=rows[_KEY], order_by=rows[_DRAW]))
    rows = rows.mutate(**{_COPY: drawn})
    return rows.filter(rows[_COPY] < bound.rows_per_person).select(*names)


def sample_rows(frame: Any, codebook: Codebook, bound: ContributionBound) -> npt.NDArray[np.int64]:
    """The places of the rows of a frame that count, in order."""
    plain = identifier_columns(frame, [part.column for part in require_identifier(codebook)])
    rows = len(next(iter(plain.values())))
    place = "place"
    while place in plain:
        place += "_"
    with open_source(pa.table({**plain, place: pa.array(np.arange(rows))})) as opened:
        table = sample_table(opened.table, codebook, bound, place)
        try:
            kept = table[place].to_pyarrow()
        except Exception as cause:  # an engine's text may quote a row
            problem = type(cause).__name__
        else:
            return np.sort(np.asarray(kept.to_numpy(), dtype=np.int64))
    raise DataError(f"the identifiers cannot be read ({problem})")


@cache
def _md5() -> Any:
    """Every engine has it. It only has to scatter rows: any choice that hangs on one person's rows is as private."""

    def md5(text: str) -> str:  # type: ignore[empty-body]
        """Of a text, in hexadecimal."""

    return ibis.udf.scalar.builtin(md5)


def _joined(texts: list[Any]) -> Any:
    found = texts[0]
    for text in texts[1:]:
        found = found + "\x1f" + text
    return found


def _part(column: Any, part: IdPart) -> Any:
    """The text of an identifier column, as the engine normalises it; null or empty where there is none."""
    kind = column.type()
    if not (kind.is_string() or kind.is_integer() or kind.is_date() or kind.is_timestamp()):
        raise DataError(f"identifier column {part.column!r} holds neither text, whole numbers nor dates; cast it before")
    if kind.is_timestamp():
        column = column.date()
    text = column.cast("string")
    if part.normalise == "text":
        return text.lower().re_replace(r"[ \t-\r]+", " ").re_replace("^ | $", "")  # Ibis' strip takes v and f off on Spark
    if part.normalise == "email":
        return text.lower().re_replace(r"\s+", "")
    if part.normalise in ("digits", "date"):
        return text.re_replace("[^0-9]", "")
    return text
