"""The encoding of an attribute holder's rows as 64-bit words that add up to statistics.

Fields are packed: each is as wide as its sum over a stretch of rows (of public length) needs, so none ever carries into the
next. All rows are one stretch, unless many short stretches make rows so much narrower that it pays to add their sums up in the
circuit of the model (`RowLayout.thrifty`). A feature that may be missing has a counter for every value; one that may not leaves
the first value out, whose count is the class count minus the others. A Gaussian feature has a field for its code (signed: at
the top of a word, where a borrow falls off), one for its square or, where the sum could pass 64 bits, for each 32-bit limb of
it, and if it may be missing a counter of present values.

With noise every field is wide enough for that of both parties, and is raised so that none falls below 0. All rows are one
stretch, and no square has limbs: each party adds its noise to its share of the words, so that a sum without noise is never cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Feature, Numeric
from blindbayes.crypto.ot.trees import encoder
from blindbayes.errors import ConfigError, LocalProtocolError
from blindbayes.statistics import MISSING, CodedRows
from blindbayes.wire import U64Array

_LIMB_BITS = 32
_PRESENT, _TOTAL, _SQUARES = -1, -2, -3  # fields of a Gaussian feature; further limbs of its squares lie below
_ROWS_AT_ONCE = 1 << 12
_COUNT_BITS = (21, 16, 15, 14, 12)  # of a counter, where there are stretches
_MAX_SUMS = 1 << 16  # words of all stretches and classes: 64 wires each, on both sides
_CIRCUIT_BYTES = 64 * (2 * 32 + 2 * 4)  # per word and class of a stretch: both garble an addition and choose their bits


_Size: TypeAlias = tuple[int, int, int]  # of a field: width, whole, raised


@dataclass(frozen=True, slots=True)
class Field:
    """Bits [shift, shift + width) of a word; its sum over all stretches has `whole` bits. With noise, raised by 2^raised."""

    word: int
    shift: int
    width: int
    whole: int
    raised: int = 0


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
    """Words per row for some features and a public number of rows.

    `stretch` is the number of rows whose sums stay within every field; the noise on a counter is below 2^noise_bits (0: none).
    """

    def __init__(self, features: Sequence[Feature], rows: int, stretch: int | None = None, noise_bits: int = 0) -> None:
        if not features:
            raise ConfigError("an attribute holder needs at least one feature")
        if not 1 <= rows < 2**31:
            raise ConfigError("columns studies take 1 to 2^31 - 1 rows")
        self.rows, self.stretch, self.noise_bits = rows, min(rows, stretch or rows), noise_bits
        self.stretches = -(-rows // self.stretch)
        self.count_bits = rows.bit_length()
        self.fields: list[FeatureFields] = []
        wanted: dict[tuple[int, int], _Size] = {}  # (feature position, value or one of the below) -> width, whole, raised
        if noise_bits and self.stretches > 1:
            raise LocalProtocolError("noise is added to the sums over all rows")

        def bits(limit: int, sign: int = 0, noise: int = 1) -> _Size:
            """Return the bits of a sum over a stretch and over all rows of numbers up to `limit`."""
            if not noise_bits:
                return max(1, (self.stretch * limit).bit_length()) + sign, max(1, (rows * limit).bit_length()) + sign, 0
            reach = rows * limit + (noise << noise_bits)
            raised = ((reach if sign else noise << noise_bits) - 1).bit_length()
            width = ((1 << raised) + reach - 1).bit_length()
            return width, width, raised

        for position, feature in enumerate(features):
            if isinstance(feature, Numeric) and not feature.counted:
                magnitude = max(abs(feature.code_low), abs(feature.code_high))
                bound = magnitude * magnitude
                if rows * magnitude >= 2**63:
                    raise ConfigError(f"feature {feature.name!r}: sums pass 64 bits; coarsen its precision")
                if feature.optional:
                    wanted[position, _PRESENT] = bits(1)
                wanted[position, _TOTAL] = bits(magnitude, 1, 2 * max(1, magnitude))
                whole = bits(bound, 0, 8 * max(1, bound))
                limbs = 1 if noise_bits or self.stretch * bound < 2**64 else -(-bound.bit_length() // _LIMB_BITS)
                if noise_bits and max(whole[0], wanted[position, _TOTAL][0]) > 64:
                    raise ConfigError(f"feature {feature.name!r}: sums with noise pass 64 bits; coarsen its precision")
                for limb in range(limbs):
                    wanted[position, _SQUARES - limb] = whole if limbs == 1 else bits((1 << _LIMB_BITS) - 1)
            else:
                wanted.update({(position, value): bits(1) for value in range(not feature.optional, feature.size)})
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

    @classmethod
    def thrifty(cls, features: Sequence[Feature], rows: int, classes: int, noise_bits: int = 0) -> Self:
        """Choose the stretch that minimises the bytes of rows and of the model's circuit for each stretch."""
        if noise_bits:
            return cls(features, rows, noise_bits=noise_bits)
        candidates = [cls(features, rows), *(cls(features, rows, (1 << bits) - 1) for bits in _COUNT_BITS if rows >> bits)]
        candidates = [made for made in candidates if made.stretches == 1 or made.sums * classes <= _MAX_SUMS]
        return min(candidates, key=lambda made: made.words * (8 * rows + made.stretches * classes * _CIRCUIT_BYTES))

    @property
    def sums(self) -> int:
        """Number of words of the sums of all stretches."""
        return self.words * self.stretches

    def placed(self) -> list[tuple[Field, int]]:
        """Return every field, and how far below 0 its sum over a stretch may fall."""
        fields_placed: list[tuple[Field, int]] = []
        for fields in self.fields:
            if isinstance(fields, HistogramFields):
                fields_placed += [(field, 0) for field in fields.counts if field is not None]
            else:
                fields_placed += [(field, 0) for field in (fields.present, *fields.squares) if field is not None]
                fields_placed.append((fields.total, self.stretch * fields.magnitude))
        return fields_placed

    def encode(self, block: CodedRows) -> U64Array:
        """Encode the rows of a block as words, shape (rows, words)."""
        words = np.empty((block.rows, self.words), dtype=np.uint64)
        self.write(block, slice(0, block.rows), words)
        return words

    def write(self, block: CodedRows, part: slice, out: U64Array) -> None:
        """Write some rows of a block to `out`, (rows, words)."""
        if (encoded := encoder()) is not None and self._ops is not None:
            named = [block.columns[fields.feature.name][part] for fields in self.fields]
            if encoded([np.ascontiguousarray(codes, dtype=np.int64) for codes in named], self._ops, MISSING, out):
                raise LocalProtocolError("a feature that may not be missing is missing")
            return
        for low in range(part.start, part.stop, _ROWS_AT_ONCE):
            some = slice(low, min(part.stop, low + _ROWS_AT_ONCE))
            out[low - part.start : some.stop - part.start] = self._encode(block, some).T

    @cached_property
    def _tables(self) -> list[dict[int, U64Array]]:
        """Tables for numpy, per feature: what a value adds to which word."""
        return [_tables(fields) if isinstance(fields, HistogramFields) else {} for fields in self.fields]

    @cached_property
    def _ops(self) -> npt.NDArray[np.int64] | None:
        """Additions to words for the kernel, as rows (column, kind, word, shift, value); None if squares have limbs."""
        ops: list[tuple[int, int, Field, int]] = []
        for column, fields in enumerate(self.fields):
            if isinstance(fields, HistogramFields):
                ops += [(column, 0, field, value) for value, field in enumerate(fields.counts) if field is not None]
                continue
            if len(fields.squares) > 1:
                return None
            ops += [(column, 1, fields.total, int(fields.present is None)), (column, 2, fields.squares[0], 0)]
            ops += [(column, 3, fields.present, 0)] if fields.present is not None else []
        made = [(column, kind, field.word, field.shift, value) for column, kind, field, value in ops]
        return np.array(sorted(made, key=lambda op: op[2]), dtype=np.int64).reshape(-1, 5)

    def _encode(self, block: CodedRows, part: slice) -> U64Array:
        """Encode some rows, (words, rows): few enough that all their words stay in the cache."""
        columns = np.zeros((self.words, part.stop - part.start), dtype=np.uint64)
        for fields, own in zip(self.fields, self._tables, strict=True):
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
        """Return the bytes that both parties must agree on about the layout."""
        names = [f"{type(fields).__name__} {fields}" for fields in self.fields]
        return repr((self.rows, self.stretch, self.words, names)).encode()

    # -- opening (simulation, and tests) -------------------------------------------------------------------------------

    def decode(self, words: U64Array, class_counts: npt.NDArray[np.int64]) -> dict[str, Mapping[str, list[list[int]]]]:
        """Return statistics by feature from summed words (classes, sums): counts, or n, sum and square, per class."""
        split = words.reshape(len(words), self.stretches, self.words)

        def total(field: Field) -> list[int]:
            full = (1 << field.width) - 1
            return [sum((int(word) >> field.shift) & full for word in row) for row in split[:, :, field.word]]

        decoded: dict[str, Mapping[str, list[list[int]]]] = {}
        for fields in self.fields:
            if isinstance(fields, HistogramFields):
                own = [None if field is None else total(field) for field in fields.counts]
                decoded[fields.feature.name] = {"count": _open_counts(own, class_counts)}
                continue
            present = [int(value) for value in class_counts] if fields.present is None else total(fields.present)
            limbs = [total(field) for field in fields.squares]
            squares = [sum(part << (_LIMB_BITS * at) for at, part in enumerate(parts)) for parts in zip(*limbs, strict=True)]
            signed = split[:, :, fields.total.word].view(np.int64)
            sums = [sum(int(value) >> fields.total.shift for value in row) for row in signed]
            named = {"n": present, "sum": sums, "square": squares}
            decoded[fields.feature.name] = {name: [[value] for value in values] for name, values in named.items()}
        return decoded


def _pack(wanted: Mapping[tuple[int, int], _Size]) -> tuple[dict[tuple[int, int], Field], int]:
    """Place each field, the widest first, in the first word with enough free bits; return places and the number of words.

    A word has at most one signed field, which ends at its top.
    """
    placed: dict[tuple[int, int], Field] = {}
    words: list[list[int]] = []  # bits taken from below, and from above
    narrowest = min((size[0] for size in wanted.values()), default=0)
    open_words: list[int] = []  # with free bits
    for key, (width, whole, raised) in sorted(wanted.items(), key=lambda item: -item[1][0]):
        signed = key[1] == _TOTAL
        free = (at for at in open_words if sum(words[at]) + width <= 64 and not (signed and words[at][1]))
        word = next(free, len(words))
        if word == len(words):
            words.append([0, 0])
            open_words.append(word)
        placed[key] = Field(word, 64 - width if signed else words[word][0], width, whole, raised)
        words[word][signed] += width
        if sum(words[word]) + narrowest > 64:
            open_words.remove(word)
    return placed, max(1, len(words))


def _tables(fields: HistogramFields) -> dict[int, U64Array]:
    """Return, per word, what each value adds to it; the last entry, for a missing value, is 0."""
    tables: dict[int, U64Array] = {}
    for value, field in enumerate(fields.counts):
        if field is not None:
            table = tables.setdefault(field.word, np.zeros(len(fields.counts) + 1, dtype=np.uint64))
            table[value] = np.uint64(1) << np.uint64(field.shift)
    return tables


def _open_counts(counts: Sequence[list[int] | None], class_counts: npt.NDArray[np.int64]) -> list[list[int]]:
    """Return the count of every value per class; a value left out gets the rest of the class count."""
    table = []
    for label, whole in enumerate(class_counts):
        own = [None if count is None else count[label] for count in counts]
        rest = int(whole) - sum(count for count in own if count is not None)
        table.append([rest if count is None else count for count in own])
    return table


def square_limbs(codes: npt.NDArray[np.int64], limbs: int) -> list[U64Array]:
    """Return squares of codes: whole, or in 32-bit limbs, lowest first."""
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
