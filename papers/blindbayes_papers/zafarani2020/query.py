"""The integers to which `global` adds noise: class counts, histograms and centred sums, with their sensitivity."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from blindbayes.codebook import Codebook, Numeric
from blindbayes.dp.accounting.sensitivity import BlockKind, IntVector, Sensitivity, SensitivityBlock
from blindbayes.errors import ConfigError
from blindbayes.statistics.layout import Layout


@dataclass(frozen=True)
class _Counts:
    block: SensitivityBlock
    cells: slice


@dataclass(frozen=True)
class _Moment:
    block: SensitivityBlock
    feature: Numeric
    power: int


@dataclass(frozen=True)
class Query:
    """The integer linear function of the statistics that is released, with its sensitivity and its way back."""

    codebook: Codebook
    rows_per_unit: int = 1
    shares: tuple[tuple[BlockKind, Fraction], ...] = ()
    layout: Layout = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", Layout(self.codebook))

    @cached_property
    def _parts(self) -> tuple[_Counts | _Moment, ...]:
        share, classes = dict(self.shares), len(self.codebook.classes)
        parts: list[_Counts | _Moment] = []
        for group in self.layout.groups:
            feature, kind, name = group.feature, group.kind, "class counts" if group.feature is None else group.feature.name
            if kind in ("class_count", "count", "n"):
                block = SensitivityBlock(name, classes * group.columns, 1, share.get(kind, Fraction(1)), kind)
                parts.append(_Counts(block, self.layout.slice(group)))
            elif isinstance(feature, Numeric):
                power = 1 if kind == "sum" else 2
                if (width := feature.code_high - feature.code_low) == 0:
                    continue  # a constant column: its moments follow from the counts
                block = SensitivityBlock(name, classes, width**power, share.get(kind, Fraction(1)), kind)
                parts.append(_Moment(block, feature, power))
            else:
                raise ConfigError(f"statistics of kind {kind} have no known sensitivity")
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
        out: list[IntVector] = []
        for part in self._parts:
            if isinstance(part, _Counts):
                out.append(vector[part.cells])
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
        vector = np.zeros(self.layout.size, dtype=object)
        cuts = np.cumsum([part.block.size for part in self._parts])[:-1]
        pieces = list(zip(self._parts, np.split(released, cuts), strict=True))
        for part, piece in pieces:
            if isinstance(part, _Counts):
                vector[part.cells] = piece
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


def _divide(values: IntVector, by: int) -> IntVector:
    """Integer division, rounded to the nearest, halves up."""
    return np.asarray((2 * values + by) // (2 * by))


def _narrow(values: IntVector) -> IntVector:
    if all(-(2**63) <= value < 2**63 for value in values):
        return values.astype(np.int64)
    return values
