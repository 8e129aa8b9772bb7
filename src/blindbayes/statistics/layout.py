"""Positions of the statistics of a codebook in one integer vector.

Order: the class counts; then, feature by feature, for a categorical or binned feature its counts (class by class, value by
value); for a Gaussian feature the number of present values (if it is optional: otherwise it is the class count), the sums of
codes and the sums of squared codes, class by class; for text the number of documents (if they may be missing and words count
once) and its words (class by class, word by word).

No overflow: each of at most `max_rows` rows adds at most 1 to a count, C = max |code| to a sum, C^2 to a sum of squares and its
length to a word. A cell whose bound fits in 63 bits is one 64-bit word; a wider one is split into 32-bit limbs, one per word,
so that words of up to 2^31 parties add up without carry.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Codebook, Feature, Text
from blindbayes.errors import DataError

Kind: TypeAlias = Literal["class_count", "count", "n", "sum", "square", "word"]
_LIMB_BITS = 32


@dataclass(frozen=True, slots=True)
class Cell:
    """Name of a position; `label` is a class, `value` the category, bin or word."""

    kind: Kind
    label: str
    feature: str | None = None
    value: str | None = None


@dataclass(frozen=True, slots=True)
class CellGroup:
    """A run of positions of one kind, shaped (classes, columns)."""

    kind: Kind
    feature: Feature | None
    start: int
    columns: int
    bound: int  # largest absolute value of a cell


class Layout:
    """Positions of the statistics of a codebook. Two equal codebooks give equal layouts."""

    def __init__(self, codebook: Codebook) -> None:
        self.codebook = codebook
        groups: list[CellGroup] = []
        size = 0

        def add(kind: Kind, feature: Feature | None, columns: int, bound: int) -> None:
            nonlocal size
            groups.append(CellGroup(kind, feature, size, columns, bound))
            size += columns * len(codebook.classes)

        rows = codebook.max_rows
        add("class_count", None, 1, rows)
        for feature in codebook.features:
            if isinstance(feature, Text):
                if feature.has_documents:
                    add("n", feature, 1, rows)
                add("word", feature, feature.size, rows * (1 if feature.once else feature.reach))
                continue
            if isinstance(feature, Categorical) or feature.bins is not None:
                add("count", feature, feature.size, rows)
                continue
            code = max(abs(feature.code_low), abs(feature.code_high))
            if feature.optional:
                add("n", feature, 1, rows)
            add("sum", feature, 1, rows * code)
            add("square", feature, 1, rows * code * code)
        self.groups = tuple(groups)
        self.size = size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self.codebook == other.codebook

    def __hash__(self) -> int:
        return hash(self.codebook)

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """The name of every position."""
        cells = []
        for group in self.groups:
            feature = group.feature
            for label in self.codebook.classes:
                for column in range(group.columns):
                    value = None
                    if group.kind == "count":
                        value = feature.values[column] if isinstance(feature, Categorical) else str(column)
                    elif group.kind == "word" and isinstance(feature, Text):
                        value = feature.word(column)
                    cells.append(Cell(group.kind, label, feature.name if feature else None, value))
        return tuple(cells)

    @cached_property
    def bounds(self) -> tuple[int, ...]:
        """Largest absolute value of each cell."""
        return tuple(group.bound for group in self.groups for _ in range(group.columns * len(self.codebook.classes)))

    @cached_property
    def is_wide(self) -> bool:
        """True if any cell needs more than one 64-bit word."""
        return any(group.bound >= 2**63 for group in self.groups)

    @property
    def dtype(self) -> Any:
        return object if self.is_wide else np.int64

    def find(self, kind: Kind, feature: str | None = None) -> CellGroup | None:
        """Return the group of that kind and feature, or None."""
        return self._index.get((kind, feature))

    def require(self, kind: Kind, feature: str | None = None) -> CellGroup:
        """Return the group of that kind and feature, or raise `KeyError`."""
        group = self.find(kind, feature)
        if group is None:
            raise KeyError((kind, feature))
        return group

    @cached_property
    def _index(self) -> dict[tuple[Kind, str | None], CellGroup]:
        return {(group.kind, group.feature.name if group.feature else None): group for group in self.groups}

    def slice(self, group: CellGroup) -> slice:
        return slice(group.start, group.start + group.columns * len(self.codebook.classes))

    # -- words -------------------------------------------------------------------------------------------------------

    @cached_property
    def _limbs(self) -> tuple[int, ...]:
        """Words per cell: 1, or enough 32-bit limbs for the bound and a sign."""
        return tuple(1 if bound < 2**63 else -(-(bound.bit_length() + 1) // _LIMB_BITS) for bound in self.bounds)

    @cached_property
    def places(self) -> tuple[tuple[int, ...], ...]:
        """The words of each cell."""
        if not self.is_wide:
            return tuple((at,) for at in range(self.size))
        starts = [0, *itertools.accumulate(self._limbs)]
        return tuple(tuple(range(start, start + limbs)) for start, limbs in zip(starts, self._limbs, strict=False))

    @cached_property
    def word_count(self) -> int:
        """Length of the word vector that protocols add up modulo 2^64."""
        return sum(self._limbs) if self.is_wide else self.size

    def words(self, vector: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
        """Return the vector as words modulo 2^64, so that sums of words are sums of vectors."""
        if not self.is_wide:
            return vector.astype(np.int64).view(np.uint64).copy()
        words: list[int] = []
        for value, limbs in zip(vector.tolist(), self._limbs, strict=True):
            if limbs == 1:
                words.append(value % 2**64)
            else:
                residue = value % (1 << (_LIMB_BITS * limbs))
                words.extend((residue >> (_LIMB_BITS * limb)) & 0xFFFFFFFF for limb in range(limbs))
        return np.array(words, dtype=np.uint64)

    def from_words(self, words: npt.NDArray[np.uint64]) -> npt.NDArray[Any]:
        """Return the vector of (a sum of) words."""
        if words.shape != (self.word_count,):
            raise DataError("a word vector has the wrong length for this codebook")
        if not self.is_wide:
            return words.astype(np.uint64).view(np.int64).copy()
        signed = words.astype(np.uint64).view(np.int64).tolist()
        vector: list[int] = []
        start = 0
        for limbs in self._limbs:
            value = sum(signed[start + limb] << (_LIMB_BITS * limb) for limb in range(limbs))
            if limbs > 1:
                modulus = 1 << (_LIMB_BITS * limbs)
                value %= modulus
                value = value - modulus if value >= modulus // 2 else value
            vector.append(value)
            start += limbs
        return _objects(vector)

    def require_bounds(self, vector: npt.NDArray[Any]) -> None:
        """Raise if no table of at most `max_rows` rows has this vector."""
        for group in self.groups:
            part = vector[self.slice(group)]
            low = -group.bound if group.kind == "sum" else 0
            if len(part) and (part.min() < low or part.max() > group.bound):
                name = f"feature {group.feature.name!r}" if group.feature else "class counts"
                raise DataError(f"{name}: a {group.kind} is outside what max_rows = {self.codebook.max_rows} rows can give")


@lru_cache(maxsize=8)
def layout_of(codebook: Codebook) -> Layout:
    return Layout(codebook)


def _objects(values: Sequence[int]) -> npt.NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
