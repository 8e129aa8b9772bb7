"""Kernels that count and score a party's own rows; `counts.h` has the C, the callers have numpy versions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.kernels.signatures import FloatArray, I64Array, functions, require

MOMENTS = 6  # words per class: n, an unused one, sum and square of two each
MAX_GRID = 2**50  # larger grid points are rounded by numpy


def read_moments(out: I64Array) -> npt.NDArray[Any]:
    """Return numbers, sums and sums of squares as Python integers, (3, classes), from words of n, nothing, sum and square."""
    n, _, *halves = np.moveaxis(out.astype(object), 2, 0)
    low, high, square_low, square_high = halves
    sums = (low % 2**64) + high * 2**64, (square_low % 2**64) + (square_high % 2**64) * 2**64
    return np.array([part.sum(axis=0) for part in (n, *sums)], dtype=object)


class CountingKernels:
    """Tallies, sums, grid codes and look-ups over columns; the base of `Kernels`."""

    def __init__(self, name: str, library: Any) -> None:
        import _cffi_backend as backend

        self.name = name
        self._call, self._shared = functions(library, backend, name), functions(library, backend)

    def cells(self, labels: I64Array, codes: I64Array, out: I64Array) -> None:
        """Count the rows of each class and code; a negative code is missing.

        Adds to `out`, (2, classes, columns); the two tables take alternating rows and belong together.
        """
        _, classes, columns = out.shape
        require(self._shared["count_cells"](labels, codes, len(labels), classes, columns, out) == 0)

    def moments(self, labels: I64Array, codes: I64Array, missing: int, out: I64Array) -> None:
        """Add number, sum and sum of squares of the codes of each class to `out`, (2, classes, MOMENTS); see `read_moments`."""
        require(self._shared["count_moments"](labels, codes, len(labels), out.shape[1], missing, out) == 0)

    def grid_codes(
        self, values: FloatArray, *, scale: float, low: int, high: int, centre: int, missing: int, finite: bool
    ) -> tuple[I64Array, int, int]:
        """Return the grid codes of numbers, how many are missing and how many out of bounds; `finite`: infinity is missing."""
        require(-MAX_GRID < low <= high < MAX_GRID and values.ndim == 1)
        out, lost = np.empty(len(values), dtype=np.int64), np.empty(2, dtype=np.uint64)
        limit = float(np.finfo(np.float64).max) if finite else math.inf
        bounds = scale, low, high, centre, limit
        self._shared["grid_codes"](values, values.strides[0], len(values), *bounds, missing, out, lost)
        return out, int(lost[0]), int(lost[1])

    def whole_positions(self, values: I64Array, low: int, table: I64Array) -> tuple[I64Array, int]:
        """Return table[value - low] of each value, -1 outside, and how many are -1."""
        require(values.ndim == 1)
        out = np.empty(len(values), dtype=np.int64)
        lost = self._shared["whole_positions"](values, values.strides[0], len(values), low, len(table), table, out)
        return out, int(lost)

    def add_cells(self, scores: FloatArray, codes: I64Array, table: FloatArray) -> None:
        """Add table[class, code + 1] to scores (classes, rows); entry 0 of a class is that of a missing code, -1."""
        (classes, count), (_, entries) = scores.shape, table.shape
        require(entries > 0)
        require(self._shared["add_cells"](codes, count, table, entries - 1, classes, scores, entries) == 0)

    def add_densities(
        self, scores: FloatArray, codes: I64Array, terms: FloatArray, *, centre: int, scale: float, missing: int
    ) -> None:
        """Add normal log-densities to scores (classes, rows); terms: (3, classes) of constants, means and variances."""
        classes, count = scores.shape
        self._shared["add_densities"](codes, count, missing, centre, scale, classes, terms, scores)
