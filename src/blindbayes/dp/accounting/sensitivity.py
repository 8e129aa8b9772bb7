"""Sensitivity: how far one record, or one person, can move the statistics.  [sensitivity]

Everything here follows from the codebook alone; no data is read. Adjacency is *add or remove*: two tables are neighbours if
one is the other without one record (or without all records of one person, of which there are at most `rows_per_unit`).

The released vector is cut into blocks such that **one record moves at most one cell of each block, by at most the block's
bound**; of a block of words (`spread`) it moves several cells, by at most the bound together. Then, for a unit of R records,
every cell change d of two neighbours satisfies, with w_b the bound of block b:

    sum over the cells of block b of |d_i| <= R w_b                                  (block norm)
    L1 <= R sum_b w_b        L2 <= R sqrt(sum_b w_b^2)        Linf <= R max_b w_b

`Query` says which linear function of the statistics is released: histograms as they are, Gaussian sums centred so that a
record's contribution lies in [-w, w] and not in [0, 2w]. That a table's statistics are the sum of its records' stands under
[reading].
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook, Numeric, Text
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.statistics.layout import Layout

ADJACENCY = "add or remove"
IntVector = npt.NDArray[Any]  # int64, or object arrays of Python integers
Floats = npt.NDArray[np.float64]
BlockKind = Literal["class_count", "count", "n", "sum", "square", "word", "other"]


def unit_words(rows: int) -> str:
    """Return the unit of privacy in words, as ledgers name it."""
    return "one record" if rows == 1 else f"one person with at most {rows} records"


def unit_rows(unit: str) -> int | None:
    """Return how many records a unit has, by its words; None if they do not say."""
    match = re.fullmatch(r"one person with at most (\d{1,9}) records", unit)
    return int(match[1]) if match else 1 if unit == unit_words(1) else None


@dataclass(frozen=True, slots=True)
class SensitivityBlock:
    """Cells of which one record moves at most one, by at most `bound`; or several, by `bound` together (`spread`).

    `share` is its part of the budget, relative to the others.
    """

    name: str
    size: int
    bound: int = 1
    share: Fraction = Fraction(1)
    kind: BlockKind = "other"
    spread: bool = False

    def __post_init__(self) -> None:
        if self.size < 1 or self.bound < 1 or self.share <= 0:
            raise ConfigError(f"block {self.name!r}: size, bound and share must be above zero")


@dataclass(frozen=True)
class Sensitivity:
    """The blocks of a released vector, in order, and how many records one unit of privacy has."""

    blocks: tuple[SensitivityBlock, ...]
    rows_per_unit: int = 1

    def __post_init__(self) -> None:
        if not self.blocks:
            raise ConfigError("a release needs at least one block")
        if self.rows_per_unit < 1:
            raise ConfigError("rows_per_unit must be at least one: declare how many rows one person may have")

    @property
    def unit(self) -> str:
        """The unit of privacy in words."""
        return unit_words(self.rows_per_unit)

    @cached_property
    def size(self) -> int:
        """Length of the released vector."""
        return sum(block.size for block in self.blocks)

    @property
    def l1(self) -> int:
        """Largest L1 change."""
        return self.rows_per_unit * sum(block.bound for block in self.blocks)

    @property
    def l2_squared(self) -> int:
        """Largest squared L2 change."""
        return self.rows_per_unit**2 * sum(block.bound**2 for block in self.blocks)

    @property
    def linf(self) -> int:
        """Largest change of one cell."""
        return self.rows_per_unit * max(block.bound for block in self.blocks)

    def block_changes(self, difference: IntVector) -> list[int]:
        """Return the L1 change in each block, of the difference of two vectors."""
        parts = np.split(np.abs(difference), np.cumsum([block.size for block in self.blocks])[:-1])
        return [int(part.sum()) for part in parts]

    def describe(self) -> dict[str, Any]:
        return {
            "unit": self.unit,
            "adjacency": ADJACENCY,
            "blocks": len(self.blocks),
            "cells": self.size,
            "l1": self.l1,
            "l2_squared": self.l2_squared,
            "linf": self.linf,
        }


@dataclass(frozen=True)
class _Counts:
    block: SensitivityBlock
    cells: slice
    columns: int
    missing: bool = False  # a last column: class count minus the row's sum


@dataclass(frozen=True)
class _Moment:
    block: SensitivityBlock
    feature: Numeric
    power: int


@dataclass(frozen=True)
class Query:
    """The integer linear function of the statistics that is released, with its sensitivity and its way back.

    With `class_counts` false they are not released: each histogram, with a cell for *missing* where the feature is optional,
    adds up to them. `None` takes that form exactly when all features are histograms.
    """

    codebook: Codebook
    rows_per_unit: int = 1
    class_counts: bool | None = None
    shares: tuple[tuple[BlockKind, Fraction], ...] = ()
    layout: Layout = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", Layout(self.codebook))
        if not self.has_class_counts and not any(feature.counted for feature in self.codebook.features):
            raise ConfigError("without a histogram the class counts must be released")

    @property
    def has_class_counts(self) -> bool:
        """True if class counts are released on their own."""
        if self.class_counts is None:
            return not all(feature.counted for feature in self.codebook.features)
        return self.class_counts

    @cached_property
    def _parts(self) -> tuple[_Counts | _Moment, ...]:
        share = dict(self.shares)
        classes = len(self.codebook.classes)
        parts: list[_Counts | _Moment] = []

        def block(name: str, size: int, bound: int, kind: BlockKind) -> SensitivityBlock:
            return SensitivityBlock(name, size, bound, share.get(kind, Fraction(1)), kind)

        for group in self.layout.groups:
            feature, cells = group.feature, self.layout.slice(group)
            if group.kind == "class_count":
                if self.has_class_counts:
                    parts.append(_Counts(block("class counts", classes, 1, "class_count"), cells, 1))
            elif feature is not None and group.kind in ("count", "n"):
                missing = group.kind == "count" and feature.optional and not self.has_class_counts
                size = classes * (group.columns + missing)
                parts.append(_Counts(block(feature.name, size, 1, group.kind), cells, group.columns, missing))
            elif isinstance(feature, Text):
                bound = require_max_words(feature)
                made = SensitivityBlock(
                    feature.name, classes * group.columns, bound, share.get("word", Fraction(1)), "word", spread=True
                )
                parts.append(_Counts(made, cells, group.columns))
            elif isinstance(feature, Numeric):
                power = 1 if group.kind == "sum" else 2
                if (width := feature.code_high - feature.code_low) == 0:
                    continue  # a constant column: its moments follow from the counts
                parts.append(_Moment(block(feature.name, classes, width**power, group.kind), feature, power))
            else:
                raise ConfigError(f"statistics of kind {group.kind} have no known sensitivity")
        return tuple(parts)

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """Sensitivity of the released blocks."""
        return Sensitivity(tuple(part.block for part in self._parts), self.rows_per_unit)

    def _view(self, vector: IntVector, kind: Any, name: str | None) -> IntVector:
        return vector[self.layout.slice(self.layout.require(kind, name))]

    def _present(self, vector: IntVector, feature: Numeric) -> IntVector:
        """Rows per class in which the feature is present."""
        return self._view(vector, "n" if feature.optional else "class_count", feature.name if feature.optional else None)

    def apply(self, vector: IntVector) -> IntVector:
        """Return the integers to release, from a statistics vector.

        With y = 2 code - (low + high) in [-W, W], W = high - low, the moments are sum y and sum (2 y^2 - W^2).
        """
        vector = np.asarray(vector).astype(object)
        class_counts = self._view(vector, "class_count", None)
        out: list[IntVector] = []
        for part in self._parts:
            if isinstance(part, _Counts):
                cells = vector[part.cells].reshape(len(class_counts), part.columns)
                if part.missing:
                    cells = np.column_stack([cells, class_counts - cells.sum(axis=1)])
                out.append(cells.ravel())
                continue
            middle, width = part.feature.code_low + part.feature.code_high, part.feature.code_high - part.feature.code_low
            n, sums = self._present(vector, part.feature), self._view(vector, "sum", part.feature.name)
            if part.power == 1:
                out.append(2 * sums - middle * n)
            else:
                squares = self._view(vector, "square", part.feature.name)
                out.append(2 * (4 * squares - 4 * middle * sums + middle**2 * n) - width**2 * n)
        return _narrow(np.concatenate(out))

    def restore(self, released: IntVector) -> IntVector:
        """Return a statistics vector from (noisy) released integers: the inverse of `apply`, halves rounded up."""
        released = np.asarray(released).astype(object)
        if released.shape != (self.sensitivity.size,):
            raise ConfigError("a released vector has the wrong length for this codebook")
        classes = len(self.codebook.classes)
        vector = np.zeros(self.layout.size, dtype=object)
        cuts = np.cumsum([part.block.size for part in self._parts])[:-1]
        pieces = list(zip(self._parts, np.split(released, cuts), strict=True))
        marginals = []
        for part, piece in pieces:
            if isinstance(part, _Counts):
                table = piece.reshape(classes, -1)
                vector[part.cells] = table[:, : part.columns].ravel()
                if part.block.kind == "count":
                    marginals.append(table.sum(axis=1))
        class_counts = self._view(vector, "class_count", None)
        if not self.has_class_counts:
            class_counts[:] = _divide(sum(marginals[1:], marginals[0]), len(marginals))
        moments = [(part, piece) for part, piece in pieces if isinstance(part, _Moment)]
        for part, piece in sorted(moments, key=lambda item: item[0].power):
            middle, width = part.feature.code_low + part.feature.code_high, part.feature.code_high - part.feature.code_low
            n, sums = self._present(vector, part.feature), self._view(vector, "sum", part.feature.name)
            if part.power == 1:
                sums[:] = _divide(piece + middle * n, 2)
            else:
                squares = self._view(vector, "square", part.feature.name)
                squares[:] = _divide(piece + width**2 * n + 8 * middle * sums - 2 * middle**2 * n, 8)
        for feature in self.codebook.features:  # constant columns
            if not feature.counted and isinstance(feature, Numeric) and feature.code_high == feature.code_low:
                n = self._present(vector, feature)
                self._view(vector, "sum", feature.name)[:] = feature.code_low * n
                self._view(vector, "square", feature.name)[:] = feature.code_low**2 * n
        return _narrow(vector)

    def variances(self, released: Floats) -> Floats:
        """Return the noise variance of each statistic that `restore` gives; correlations are left out."""
        classes = len(self.codebook.classes)
        out = np.zeros(self.layout.size)
        cuts = np.cumsum([part.block.size for part in self._parts])[:-1]
        pieces = list(zip(self._parts, np.split(np.asarray(released, dtype=np.float64), cuts), strict=True))
        marginals = []
        for part, piece in pieces:
            if isinstance(part, _Counts):
                table = piece.reshape(classes, -1)
                out[part.cells] = table[:, : part.columns].ravel()
                if part.block.kind == "count":
                    marginals.append(table.sum(axis=1))
        if not self.has_class_counts:
            self._view(out, "class_count", None)[:] = np.sum(marginals, axis=0) / len(marginals) ** 2
        for part, piece in pieces:
            if isinstance(part, _Moment):
                middle, width = part.feature.code_low + part.feature.code_high, part.feature.code_high - part.feature.code_low
                n = self._present(out, part.feature)
                if part.power == 1:
                    self._view(out, "sum", part.feature.name)[:] = (piece + float(middle) ** 2 * n) / 4
                else:
                    self._view(out, "square", part.feature.name)[:] = (piece + float(width) ** 4 * n) / 64
        return out


def require_max_words(feature: Text) -> int:
    """Return how many words one document can change. Raises `PrivacyError` if that was not declared."""
    if feature.max_words is None:
        raise PrivacyError(
            f"feature {feature.name!r}: declare max_words, the most words of a document that count: without a bound one "
            "document could change everything, and no noise hides that"
        )
    return feature.max_words


def _divide(values: IntVector, by: int) -> IntVector:
    """Integer division, rounded to the nearest, halves up."""
    return np.asarray((2 * values + by) // (2 * by))


def _narrow(values: IntVector) -> IntVector:
    if all(-(2**63) <= value < 2**63 for value in values):
        return values.astype(np.int64)
    return values
