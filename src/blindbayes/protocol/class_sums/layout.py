"""How one row of an attribute holder becomes 64-bit words, so that words of rows add up to statistics.

Fields are packed: each is as wide as its sum over the number of rows (public) needs, so none ever carries into the next. A
feature that may be missing has a counter for every value; one that may not leaves the first value out, whose count is the class
count minus the others. A Gaussian feature has a field for its code (signed: at the top of a word, where a borrow falls off),
one for its square or, where the sum could pass 64 bits, for each 32-bit limb of it, and if it may be missing a counter of
present values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Feature, Numeric
from blindbayes.errors import ConfigError, LocalProtocolError
from blindbayes.statistics import MISSING, CodedRows
from blindbayes.wire import U64Array

_LIMB_BITS = 32
_PRESENT, _TOTAL, _SQUARES = -1, -2, -3  # fields of a Gaussian feature; further limbs of its squares lie below
_ROWS_AT_ONCE = 1 << 12


@dataclass(frozen=True, slots=True)
class Field:
    """Bits [shift, shift + width) of a word."""

    word: int
    shift: int
    width: int


@dataclass(frozen=True, slots=True)
class HistogramFields:
    """Counters of a categorical or binned feature; `counts[v]` is None for a value left out."""

    feature: Feature
    counts: tuple[Field | None, ...]


@dataclass(frozen=True, slots=True)
class GaussianFields:
    """Sums of a Gaussian feature."""

    feature: Numeric
    present: Field | None  # None: always present
    total: Field  # sum of codes, signed
    squares: tuple[Field, ...]  # sum of squares: limbs of 32 bits each, lowest first, or one whole
    magnitude: int  # largest |code|


FeatureFields = HistogramFields | GaussianFields


class RowLayout:
    """Words per row for some features and a public number of rows."""

    def __init__(self, features: Sequence[Feature], rows: int) -> None:
        if not features:
            raise ConfigError("an attribute holder needs at least one feature")
        if not 1 <= rows < 2**31:
            raise ConfigError("columns studies take 1 to 2^31 - 1 rows")
        self.rows = rows
        self.count_bits = rows.bit_length()
        self.fields: list[FeatureFields] = []
        wanted: dict[tuple[int, int], int] = {}  # (feature position, value or one of the below) -> bits
        for position, feature in enumerate(features):
            if isinstance(feature, Numeric) and not feature.counted:
                magnitude = max(abs(feature.code_low), abs(feature.code_high))
                bound = magnitude * magnitude
                if rows * magnitude >= 2**63:
                    raise ConfigError(f"feature {feature.name!r}: sums pass 64 bits; coarsen its precision")
                if feature.optional:
                    wanted[position, _PRESENT] = self.count_bits
                wanted[position, _TOTAL] = (rows * magnitude).bit_length() + 1
                limbs = 1 if rows * bound < 2**64 else -(-bound.bit_length() // _LIMB_BITS)
                whole = max(1, (rows * bound).bit_length())
                for limb in range(limbs):
                    wanted[position, _SQUARES - limb] = whole if limbs == 1 else _LIMB_BITS + self.count_bits
            else:
                wanted.update({(position, value): self.count_bits for value in range(not feature.optional, feature.size)})
        placed, self.words = _pack(wanted)
        for position, feature in enumerate(features):
            if (position, _TOTAL) in placed and isinstance(feature, Numeric):
                limbs = sum(key[0] == position and key[1] <= _SQUARES for key in placed)
                squares = tuple(placed[position, _SQUARES - limb] for limb in range(limbs))
                magnitude = max(abs(feature.code_low), abs(feature.code_high))
                present, total = placed.get((position, _PRESENT)), placed[position, _TOTAL]
                self.fields.append(GaussianFields(feature, present, total, squares, magnitude))
            else:
                counts = tuple(placed.get((position, value)) for value in range(feature.size))
                self.fields.append(HistogramFields(feature, counts))

    def encode(self, block: CodedRows) -> U64Array:
        """The rows of a block as words, shape (rows, words)."""
        words = np.empty((block.rows, self.words), dtype=np.uint64)
        tables = [_tables(fields) if isinstance(fields, HistogramFields) else {} for fields in self.fields]
        for low in range(0, block.rows, _ROWS_AT_ONCE):
            words[low : low + _ROWS_AT_ONCE] = self._encode(block, slice(low, min(block.rows, low + _ROWS_AT_ONCE)), tables).T
        return words

    def _encode(self, block: CodedRows, part: slice, tables: Sequence[Mapping[int, U64Array]]) -> U64Array:
        """Some rows, (words, rows): so few that all their words stay in the cache."""
        columns = np.zeros((self.words, part.stop - part.start), dtype=np.uint64)
        for fields, own in zip(self.fields, tables, strict=True):
            codes = block.columns[fields.feature.name][part]
            if isinstance(fields, HistogramFields):
                for word, table in own.items():
                    columns[word] += table.take(codes, mode="wrap")  # code -1, a missing value, takes the last entry: 0
                continue
            missing = codes == MISSING
            present = np.where(missing, 0, codes)
            placed = [(fields.total, present.astype(np.uint64))]
            if fields.present is not None:
                placed.append((fields.present, (~missing).astype(np.uint64)))
            elif missing.any():
                raise LocalProtocolError("a feature that may not be missing is missing")
            placed += zip(fields.squares, square_limbs(present, len(fields.squares)), strict=True)
            for field, values in placed:
                columns[field.word] += values << np.uint64(field.shift)
        return columns

    def facts(self) -> bytes:
        """What both parties must agree on about the layout."""
        names = [f"{type(fields).__name__} {fields}" for fields in self.fields]
        return repr((self.rows, self.words, names)).encode()

    # -- opening (simulation, and tests) -------------------------------------------------------------------------------

    def decode(self, words: U64Array, class_counts: npt.NDArray[np.int64]) -> dict[str, Mapping[str, list[list[int]]]]:
        """Statistics by feature from summed words (classes, words): counts, or n, sum and square, per class."""
        found: dict[str, Mapping[str, list[list[int]]]] = {}
        for fields in self.fields:
            if isinstance(fields, HistogramFields):
                found[fields.feature.name] = {"count": _open_counts(fields, words, class_counts)}
                continue
            per_class = [[int(value)] for value in class_counts]
            if fields.present is not None:
                per_class = [[_cut(int(row[fields.present.word]), fields.present)] for row in words]
            squares = [
                [sum(_cut(int(row[field.word]), field) << (_LIMB_BITS * at) for at, field in enumerate(fields.squares))]
                for row in words
            ]
            sums = [[int(value) >> fields.total.shift] for value in words[:, fields.total.word].view(np.int64)]
            found[fields.feature.name] = {"n": per_class, "sum": sums, "square": squares}
        return found


def _pack(wanted: Mapping[tuple[int, int], int]) -> tuple[dict[tuple[int, int], Field], int]:
    """A place for each field, the widest first, each in the first word that has room; and the number of words. A word has one
    signed field at most, which ends at its top."""
    placed: dict[tuple[int, int], Field] = {}
    words: list[list[int]] = []  # bits taken from below, and from above
    for key, width in sorted(wanted.items(), key=lambda item: -item[1]):
        signed = key[1] == _TOTAL
        free = (at for at, (low, high) in enumerate(words) if low + high + width <= 64 and not (signed and high))
        word = next(free, len(words))
        if word == len(words):
            words.append([0, 0])
        placed[key] = Field(word, 64 - width if signed else words[word][0], width)
        words[word][signed] += width
    return placed, max(1, len(words))


def _tables(fields: HistogramFields) -> dict[int, U64Array]:
    """Per word, what each value adds to it; the last entry, for a missing value, is 0."""
    tables: dict[int, U64Array] = {}
    for value, field in enumerate(fields.counts):
        if field is not None:
            table = tables.setdefault(field.word, np.zeros(len(fields.counts) + 1, dtype=np.uint64))
            table[value] = np.uint64(1) << np.uint64(field.shift)
    return tables


def _cut(word: int, field: Field) -> int:
    return (word >> field.shift) & ((1 << field.width) - 1)


def _open_counts(fields: HistogramFields, words: U64Array, class_counts: npt.NDArray[np.int64]) -> list[list[int]]:
    table = []
    for row, total in zip(words, class_counts, strict=True):
        counts = [None if field is None else _cut(int(row[field.word]), field) for field in fields.counts]
        rest = int(total) - sum(count for count in counts if count is not None)
        table.append([rest if count is None else count for count in counts])
    return table


def square_limbs(codes: npt.NDArray[np.int64], limbs: int) -> list[U64Array]:
    """Squares of codes: whole, or in 32-bit limbs, lowest first."""
    size = np.abs(codes).astype(np.uint64)
    if limbs == 1:
        return [size * size]
    low, high = size & np.uint64(0xFFFFFFFF), size >> np.uint64(_LIMB_BITS)
    # size < 2^46: low^2 < 2^64, 2 * low * high < 2^47 * 2^14, high^2 < 2^28
    bottom, cross, top = low * low, low * high * np.uint64(2), high * high
    carry = (bottom >> np.uint64(_LIMB_BITS)) + (cross & np.uint64(0xFFFFFFFF))
    above = top + (cross >> np.uint64(_LIMB_BITS)) + (carry >> np.uint64(_LIMB_BITS))
    parts = [bottom & np.uint64(0xFFFFFFFF), carry & np.uint64(0xFFFFFFFF), above & np.uint64(0xFFFFFFFF)]
    parts.append(above >> np.uint64(_LIMB_BITS))
    return parts[:limbs]
