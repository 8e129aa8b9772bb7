"""How one row of an attribute holder becomes 64-bit words, so that words of rows add up to statistics.

Counters are packed: a field is as wide as the number of rows (public) needs, so no field ever carries into the next. A
feature that may be missing has a field for every value; one that may not leaves the first value out, whose count is the class
count minus the others. A Gaussian feature has its code in a word of its own (signed), its square in one word or, where the
sum could pass 64 bits, in 32-bit limbs of one word each, and if it may be missing a counter of present values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Feature, Numeric
from blindbayes.errors import ConfigError, LocalProtocolError
from blindbayes.statistics import MISSING, CodedRows
from blindbayes.statistics.layout import is_histogram
from blindbayes.wire import U64Array

_LIMB_BITS = 32


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
    total: int  # word of the sum of codes, signed
    squares: tuple[int, ...]  # words of the sum of squares: limbs of 32 bits each, lowest first, or one whole word
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
        counters: list[tuple[int, int]] = []  # (feature position, value or -1)
        for position, feature in enumerate(features):
            if isinstance(feature, Numeric) and not is_histogram(feature):
                if feature.optional:
                    counters.append((position, -1))
            else:
                counters.extend((position, value) for value in range(0 if feature.optional else 1, feature.size))
        per_word = 64 // self.count_bits
        placed = {
            counter: Field(at // per_word, at % per_word * self.count_bits, self.count_bits)
            for at, counter in enumerate(counters)
        }
        word = -(-len(counters) // per_word)
        for position, feature in enumerate(features):
            if isinstance(feature, Numeric) and not is_histogram(feature):
                magnitude = max(abs(feature.code_low), abs(feature.code_high))
                bound = magnitude * magnitude
                limbs = 1 if rows * bound < 2**64 else -(-bound.bit_length() // _LIMB_BITS)
                if rows * magnitude >= 2**63:
                    raise ConfigError(f"feature {feature.name!r}: sums pass 64 bits; coarsen its precision")
                squares = tuple(range(word + 1, word + 1 + limbs))
                self.fields.append(GaussianFields(feature, placed.get((position, -1)), word, squares, magnitude))
                word += 1 + limbs
            else:
                counts = tuple(placed.get((position, value)) for value in range(feature.size))
                self.fields.append(HistogramFields(feature, counts))
        self.words = max(1, word)

    def encode(self, block: CodedRows) -> U64Array:
        """The rows of a block as words, shape (rows, words)."""
        columns: list[U64Array] = [np.zeros(block.rows, dtype=np.uint64) for _ in range(self.words)]
        for fields in self.fields:
            codes = block.columns[fields.feature.name]
            if isinstance(fields, HistogramFields):
                for word, table in _tables(fields).items():
                    columns[word] += table.take(codes, mode="wrap")  # code -1, a missing value, takes the last entry: 0
                continue
            missing = codes == MISSING
            present = np.where(missing, 0, codes)
            if fields.present is not None:
                columns[fields.present.word] += (~missing).astype(np.uint64) << np.uint64(fields.present.shift)
            elif missing.any():
                raise LocalProtocolError("a feature that may not be missing is missing")
            columns[fields.total] += present.astype(np.uint64)
            for word, limb in zip(fields.squares, square_limbs(present, len(fields.squares)), strict=True):
                columns[word] += limb
        return np.stack(columns, axis=1)

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
            squares = []
            for row in words:
                if len(fields.squares) == 1:
                    squares.append([int(row[fields.squares[0]])])
                else:
                    squares.append([sum(int(row[word]) << (_LIMB_BITS * at) for at, word in enumerate(fields.squares))])
            sums = [[int(value)] for value in words[:, fields.total].view(np.int64)]
            found[fields.feature.name] = {"n": per_class, "sum": sums, "square": squares}
        return found


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
