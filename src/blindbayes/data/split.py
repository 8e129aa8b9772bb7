"""Held-out rows: which rows of a table only evaluate a model and never train it.

A keyed hash of a person's identifier decides, so that all rows of a person are in the same part; where the codebook has no
identifier, or a row none, a hash of the row's columns of the codebook. The engine that holds the rows selects them. The hash
depends on nothing but the row and the key, so that a row stays in its part when others come and go. The hash of a row is that
of its text: without identifiers, rows that are spelled anew (45 as 45.00) may change sides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook
from blindbayes.data.contribution_bound import ContributionBound, joined_texts, person_keys, row_text, salted_hash
from blindbayes.data.frames import identifier_columns, plain_types, to_arrow
from blindbayes.data.libraries import ibis, pa
from blindbayes.data.sources import open_source
from blindbayes.errors import ConfigError, DataError

_DIGITS = 8  # of the hash, in hexadecimal
MAX_FRACTION = 0.5


@dataclass(frozen=True, slots=True)
class Split:
    """One of the two parts of a table: the held-out fraction, or the rows for training.

    With a fraction of 1/k, `index` says which of k folds is held out. With `within`, only rows of that part are split.
    """

    fraction: float
    held_out: bool
    salt: bytes = field(repr=False)
    index: int = 0
    within: Split | None = None

    def filter(self, table: Any, codebook: Codebook) -> Any:
        """Return the rows of an Ibis table that are in this part, with all columns."""
        if self.within is not None:
            table = self.within.filter(table, codebook)
        key = ibis.literal("row:") + row_text(table, [*codebook.names, codebook.target])
        if codebook.identifier is not None:
            person, present = person_keys(table, require_comparable(codebook))
            key = ibis.ifelse(present, ibis.literal("person:") + person, key)
        hashed = salted_hash(joined_texts([ibis.literal(self.salt.hex()), key])).substr(0, _DIGITS)
        low, high = (round(at * self.fraction * 16**_DIGITS) for at in (self.index, self.index + 1))
        inside = hashed >= f"{low:0{_DIGITS}x}"
        if high < 16**_DIGITS:
            inside &= hashed < f"{high:0{_DIGITS}x}"
        return table.filter(inside if self.held_out else ~inside)


@dataclass(frozen=True, slots=True)
class Reading:
    """The rows of a table that a run reads, and how strictly."""

    codebook: Codebook
    lenient: bool = False  # no row may be an error, since noise hides each
    bound: ContributionBound | None = None  # limits the rows that count per person
    split: Split | None = None  # only rows of one part count


def require_comparable(codebook: Codebook) -> Any:
    """Return the parts of the codebook's identifier. Raises `ConfigError` for one that engines cannot normalise."""
    parts = codebook.identifier.parts if codebook.identifier is not None else ()
    if phone := next((part for part in parts if part.normalise == "phone"), None):
        raise ConfigError(
            f"identifier column {phone.column!r}: engines cannot compare spellings of a telephone number; held_out needs "
            "another identifier, such as a patient number"
        )
    return parts


def split_rows(frame: Any, codebook: Codebook, split: Split) -> npt.NDArray[np.int64]:
    """Return the positions of the rows of a frame that are in a part, in order."""
    table = plain_types(to_arrow(frame, lenient=True))
    columns = {name: table.column(name) for name in (*codebook.names, codebook.target)}
    for name, column in columns.items():
        if pa.types.is_decimal(column.type):  # of as many digits as the longest of all rows
            columns[name] = column.cast(pa.float64())
    if codebook.identifier is not None:
        names = [part.column for part in codebook.identifier.parts]
        if missing := [name for name in names if name not in table.column_names]:
            raise DataError(f"identifier column {missing[0]!r} is missing from the table; add it or change the recipe")
        columns |= identifier_columns(frame, names)
    place = "place"
    while place in columns:
        place += "_"
    with open_source(pa.table({**columns, place: pa.array(np.arange(table.num_rows))})) as opened:
        try:
            places = split.filter(opened.table, codebook)[place].to_pyarrow()
        except Exception as cause:  # an engine's message may quote a row
            if isinstance(cause, ConfigError | DataError):
                raise
            problem = type(cause).__name__
        else:
            return np.sort(np.asarray(places.to_numpy(), dtype=np.int64))
    raise DataError(f"the rows cannot be split ({problem})")
