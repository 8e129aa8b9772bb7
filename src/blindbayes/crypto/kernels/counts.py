"""The kernels that count and score a party's own rows; `counts.h` has the C, the callers have numpy beside it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.kernels.checked import DOUBLE, SIGNED, Checked, I64Array, require

FloatArray = npt.NDArray[np.float64]
MOMENTS = 6  # words per class: n, an unused one, sum and square of two each
MAX_GRID = 2**50  # larger grid points are rounded by numpy


def read_moments(out: I64Array) -> npt.NDArray[Any]:
    """Return numbers, sums and sums of squares as Python integers, (3, classes), from words of n, nothing, sum and square."""
    n, _, *halves = np.moveaxis(out.astype(object), 2, 0)
    low, high, square_low, square_high = halves
    sums = (low % 2**64) + high * 2**64, (square_low % 2**64) + (square_high % 2**64) * 2**64
    return np.array([part.sum(axis=0) for part in (n, *sums)], dtype=object)


class CountingKernels(Checked):
    """Tallies, sums, grid codes and look-ups over columns."""

    def cells(self, labels: I64Array, codes: I64Array, out: I64Array) -> None:
        """Count the rows of each class and code; a negative code is missing.

        Adds to `out`, (2, classes, columns); the two tables take alternating rows and belong together.
        """
        count, (_, classes, columns) = len(labels), out.shape
        own, given = self._array(labels, (count,), SIGNED), self._array(codes, (count,), SIGNED)
        to = self._array(out, (2, classes, columns), SIGNED, writes=True)
        require(self._once["count_cells"](own, given, count, classes, columns, to) == 0)

    def moments(self, labels: I64Array, codes: I64Array, missing: int, out: I64Array) -> None:
        """Add number, sum and sum of squares of the codes of each class to `out`, (2, classes, MOMENTS); see `read_moments`."""
        count, (_, classes, _) = len(labels), out.shape
        own, given = self._array(labels, (count,), SIGNED), self._array(codes, (count,), SIGNED)
        to = self._array(out, (2, classes, MOMENTS), SIGNED, writes=True)
        require(self._once["count_moments"](own, given, count, classes, missing, to) == 0)

    def grid_codes(
        self, values: FloatArray, *, scale: float, low: int, high: int, centre: int, missing: int, finite: bool
    ) -> tuple[I64Array, int, int]:
        """Return the grid codes of numbers, how many are missing and how many out of bounds; `finite`: infinity is missing."""
        require(-MAX_GRID < low <= high < MAX_GRID)
        count, lost = len(values), np.empty(2, dtype=np.uint64)
        out, (given, apart) = np.empty(count, dtype=np.int64), self._strided(values, DOUBLE)
        limit = float(np.finfo(np.float64).max) if finite else math.inf
        bounds = scale, low, high, centre, limit
        self._once["grid_codes"](given, apart, count, *bounds, missing, self._memory(out), self._memory(lost))
        return out, int(lost[0]), int(lost[1])

    def whole_positions(self, values: I64Array, low: int, table: I64Array) -> tuple[I64Array, int]:
        """Return table[value - low] of each value, -1 outside, and how many are -1."""
        count, (given, apart) = len(values), self._strided(values, SIGNED)
        out = np.empty(count, dtype=np.int64)
        own = self._array(table, (len(table),), SIGNED)
        lost = self._once["whole_positions"](given, apart, count, low, len(table), own, self._memory(out))
        return out, int(lost)

    def add_cells(self, scores: FloatArray, codes: I64Array, table: FloatArray) -> None:
        """Add table[class, code + 1] to scores (classes, rows); entry 0 of a class is that of a missing code, -1."""
        (classes, count), (_, entries) = scores.shape, table.shape
        to, own = self._array(scores, (classes, count), DOUBLE, writes=True), self._array(codes, (count,), SIGNED)
        given = self._array(table, (classes, entries), DOUBLE)
        require(entries > 0 and self._once["add_cells"](own, count, given, entries - 1, classes, to) == 0)

    def add_densities(
        self, scores: FloatArray, codes: I64Array, terms: FloatArray, *, centre: int, scale: float, missing: int
    ) -> None:
        """Add normal log-densities to scores (classes, rows); terms: (3, classes) of constants, means and variances."""
        classes, count = scores.shape
        to, own = self._array(scores, (classes, count), DOUBLE, writes=True), self._array(codes, (count,), SIGNED)
        given = self._array(terms, (3, classes), DOUBLE)
        self._once["add_densities"](own, count, missing, centre, scale, classes, given, to)
