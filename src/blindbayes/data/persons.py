"""Rows by person: coded, with the normalised identifier of each person, for sums in which a person counts once over all sites.

Identifiers are normalised as for joins (`identifiers`), so that every site gets the same bytes. A row without an identifier, or
without a listed class, is left out. A person keeps at most `rows_per_person` rows, which depend on its own rows and the salt
alone. Rows are read into memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook, IdRecipe
from blindbayes.data.contribution_bound import ContributionBound, require_identifier
from blindbayes.data.counting import require_rows
from blindbayes.data.encode import encode, encode_labels
from blindbayes.data.frames import eager, frame_columns, identifier_columns
from blindbayes.data.identifiers import normalised
from blindbayes.data.sources import is_source, open_source, require_columns
from blindbayes.data.split import Reading
from blindbayes.data.table import take
from blindbayes.errors import ConfigError, DataError
from blindbayes.statistics import CodedRows, Statistics, layout_of
from blindbayes.statistics.block import count_block

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PersonRows:
    """Coded rows, person by person."""

    codebook: Codebook
    identifiers: tuple[bytes, ...] = field(repr=False)  # one per person, distinct
    rows: CodedRows  # those of the first person, then those of the second, ...
    starts: Places = field(repr=False)  # the first row of each person, and the number of rows

    @property
    def statistics(self) -> Statistics:
        """The statistics of all rows."""
        return count_block(layout_of(self.codebook), self.rows)

    def digest(self, key: bytes) -> bytes:
        """Return a keyed digest of who has which rows, whatever the order of the table."""
        taken = hashlib.blake2b(key=key[:64], digest_size=32, person=b"bb persons' rows")
        codes = _codes(self.rows)
        for at in sorted(range(len(self.identifiers)), key=self.identifiers.__getitem__):
            own = sorted(row.tobytes() for row in codes[self.starts[at] : self.starts[at + 1]])
            taken.update(b"".join(len(part).to_bytes(8, "big") + part for part in (self.identifiers[at], *own)))
        return taken.digest()

    def rows_of(self, persons: Places) -> tuple[CodedRows, Places]:
        """Return the rows of some persons, and the place of each row's person in `persons`."""
        times = self.starts[persons + 1] - self.starts[persons]
        owner = np.repeat(np.arange(len(persons)), times)
        first = np.cumsum(times) - times
        return self.rows.take(self.starts[persons][owner] + np.arange(len(owner)) - first[owner]), owner


def no_persons(codebook: Codebook) -> PersonRows:
    """Return the rows of a site that brings none."""
    none = np.zeros(0, np.int64)
    return PersonRows(codebook, (), CodedRows(none, dict.fromkeys(codebook.names, none), 0), np.zeros(1, np.int64))


def read_persons(source: Any, reading: Reading, *, extra_columns: str = "refuse") -> PersonRows:
    """Read the rows of a frame, path, URL or Ibis table that count, by person."""
    codebook, bound = reading.codebook, reading.bound
    if bound is None or codebook.identifier is None:
        raise ConfigError("persons are read with rows_per_person and an identifier in the codebook")
    require_identifier(codebook)
    with _columns(source, codebook, extra_columns) as (columns, identifying):
        owners = normalised(identifying, codebook.identifier)
        labels = encode_labels(columns[codebook.target], codebook, lenient=True)
        require_rows(len(labels), codebook)
        places = np.flatnonzero((labels >= 0) & np.array([owner is not None for owner in owners], dtype=bool))
        chosen = {name: take(column, places) for name, column in columns.items()}
        rows = encode(chosen, codebook, training=True, labels=chosen[codebook.target], lenient=True)
    numbers: dict[bytes, int] = {}
    own = np.array([numbers.setdefault(owners[at] or b"", len(numbers)) for at in places], dtype=np.int64)
    counted = _bounded(rows, own, tuple(numbers), bound)
    starts = np.concatenate([[0], np.cumsum(np.bincount(own[counted], minlength=len(numbers)))]).astype(np.int64)
    return PersonRows(codebook, tuple(numbers), rows.take(counted), starts)


@contextmanager
def _columns(source: Any, codebook: Codebook, extra_columns: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Give the columns of the codebook as `encode` takes them, and those of the identifier, in one order of rows."""
    wanted = [*codebook.names, codebook.target]
    identifying = [part.column for part in _recipe(codebook).parts]
    if not is_source(source):
        frame = eager(source)
        columns = frame_columns(frame)
        require_columns([*columns], codebook, extra_columns=extra_columns)
        _require_present(identifying, columns)
        yield {name: columns[name] for name in wanted}, identifier_columns(frame, identifying)
        return
    opened = open_source(source)
    try:
        opened.require_columns(codebook, extra_columns=extra_columns)
        _require_present(identifying, opened.columns)
        table = opened.arrow(list(dict.fromkeys([*wanted, *identifying])), codebook)
        yield {name: table.column(name) for name in wanted}, identifier_columns(table, identifying)
    finally:
        if opened is not source:
            opened.close()


def _recipe(codebook: Codebook) -> IdRecipe:
    if codebook.identifier is None:
        raise ConfigError("the codebook has no [identifier] recipe; add one")
    return codebook.identifier


def _require_present(names: Sequence[str], columns: Any) -> None:
    if missing := [name for name in names if name not in columns]:
        raise DataError(f"identifier column {missing[0]!r} is missing from the table; add it or change the recipe")


def _bounded(rows: CodedRows, own: Places, identifiers: Sequence[bytes], bound: ContributionBound) -> Places:
    """Return the rows that count, person by person: of each at most the bound, drawn by a keyed hash of its own rows."""
    order = np.argsort(own, kind="stable")
    times = np.bincount(own, minlength=len(identifiers))
    firsts = np.cumsum(times) - times
    counts = np.ones(len(order), dtype=bool)
    codes = _codes(rows)
    for person in np.flatnonzero(times > bound.rows_per_person).tolist():
        part = slice(firsts[person], firsts[person] + times[person])
        hashes = [_draw(bound.salt, identifiers[person], codes[row].tobytes()) for row in order[part]]
        # Rows with equal codes have equal draws, and it does not matter which of them counts.
        counts[part][np.argsort(np.array(hashes, dtype=object), kind="stable")[bound.rows_per_person :]] = False
    return order[counts]


def _codes(rows: CodedRows) -> Places:
    """Return the codes of each row, its class first."""
    return np.ascontiguousarray(np.column_stack([rows.known_labels, *rows.columns.values()]))


def _draw(salt: bytes, identifier: bytes, codes: bytes) -> bytes:
    framed = len(identifier).to_bytes(8, "big") + identifier + codes
    return hashlib.blake2b(framed, key=salt[:64], digest_size=16, person=b"bb row of person").digest()
