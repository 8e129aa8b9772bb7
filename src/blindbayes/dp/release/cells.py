"""Cells of numbers whose law was not declared: fine ones to count in, and a few wide, equally full ones to release.

A number is counted in fine cells that are public: some of equal width, some that grow with the distance from zero. Which of
them are joined is decided by a *shape*: the share of the table that each fine cell is believed to hold. Shapes come from the
codebook (`scale = "log"`) or from noisy pooled counts (`coarse_histograms`), never from exact data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes._lazy import lazy
from blindbayes.codebook import Codebook, Numeric, log_points
from blindbayes.dp.release.constants import LOOK_CELLS, LOW_PART, MAX_CELLS
from blindbayes.dp.release.release_plan import FeatureEncoding
from blindbayes.statistics.histograms import joined

special = lazy("scipy.special")

Floats = npt.NDArray[np.float64]
FINE = 240
"""Fine cells of a number, at most about: divisible by every number of released cells."""
_LINEAR = 120  # fine cells of equal width; the others are logarithmic


@dataclass(frozen=True)
class CellShape:
    """The fine cells of a number, and the share of the table that each is believed to hold."""

    starts: tuple[int, ...]  # first code of each fine cell
    mass: tuple[float, ...]
    even: bool = False  # the shares follow the cells' widths: nothing is known

    def counted(self, feature: Numeric) -> Numeric:
        """Return the feature with these cells."""
        if len(self.starts) == feature.width:
            return msgspec.structs.replace(feature, bins=feature.width, spacing="linear")
        # The last grid point may lie above an upper bound that is not on the grid, by less than a step.
        centre, scale = feature.centre, feature.scale  # once: there are hundreds of cells
        edges = tuple(min((code + centre) / scale, feature.high) for code in self.starts[1:])
        return msgspec.structs.replace(feature, bins=None, spacing="linear", edges=edges)

    def encode(self, feature: Numeric, cells: int, reason: str) -> FeatureEncoding:
        """Join fine cells into about `cells` cells of equal shares; a fine cell that holds more is one by itself."""
        edges = joined(self.mass, cells)
        return FeatureEncoding(feature.name, "cells", edges, feature.optional, reason, self._places)

    @cached_property
    def _places(self) -> tuple[float, ...]:
        return places(self.mass, self.even)


def places(mass: Sequence[float], even: bool = False) -> tuple[float, ...]:
    """Place the fine cells' edges on a scale from 0 to 1 on which the table would look normal (or, if `even`, flat).

    The scale ends where a normal law leaves the share of one fine cell.
    """
    share = np.concatenate([[0.0], np.cumsum(mass)]) / float(np.sum(mass))
    if even:
        return tuple(share.tolist())
    with np.errstate(divide="ignore"):
        edges = np.clip((special.ndtri(np.clip(share, 0, 1)) / -special.ndtri(1 / FINE) + 1) / 2, 0, 1)
    edges[0], edges[-1] = 0.0, 1.0
    return tuple(edges.tolist())


@lru_cache(maxsize=4096)
def fine_cells(feature: Numeric) -> tuple[int, ...]:
    """Return the first codes of the fine cells: every grid point, or equal and logarithmic cells together."""
    if feature.width <= FINE:
        return tuple(range(feature.code_low, feature.code_high + 1))
    edges = set(_log_cells(feature, FINE - (_LINEAR if feature.spacing == "linear" else 0)))
    if feature.spacing == "linear":
        edges |= {feature.code_low - (-at * feature.width // _LINEAR) for at in range(_LINEAR)}
    return tuple(sorted(edges))


@lru_cache(maxsize=4096)
def likely_shape(feature: Numeric) -> CellShape:
    """Return the shape of a number of which only the bounds are known.

    It is even over the range, or, if that begins within one cell of zero, as for amounts and counts, half of it in the
    `LOW_PART` next to zero.
    """
    starts = fine_cells(feature)
    ends = np.array([*starts, feature.code_high + 1])
    far = (ends - feature.code_low) / feature.width
    low, high = sorted((abs(feature.low), abs(feature.high)))
    if feature.low < 0 < feature.high or low * MAX_CELLS >= high:
        return CellShape(starts, tuple(float(value) for value in np.diff(far)), even=True)
    power = np.log(0.5) / np.log(LOW_PART)
    below = far**power if feature.high > 0 else 1 - (1 - far) ** power
    return CellShape(starts, tuple(float(value) for value in np.diff(below)))


def _log_cells(feature: Numeric, limit: int) -> list[int]:
    low, high = feature.grid_low, feature.grid_high
    steps = next(steps for steps in (16, 8, 4, 2, 1) if steps == 1 or len(log_points(low, high, steps)) <= limit)
    return [point - feature.centre for point in log_points(low, high, steps)]


def _anchor(feature: Numeric) -> int:
    return min(max(0, feature.grid_low), feature.grid_high) - feature.centre


@lru_cache(maxsize=4096)
def public_shape(feature: Numeric) -> CellShape:
    """Return the shape that the codebook implies.

    On a declared logarithmic scale it is logarithmic, with a fourth at zero; otherwise half is spread evenly over the range,
    half over the logarithmic cells.
    """
    starts = fine_cells(feature)
    at = np.array(starts)
    widths = np.diff([*starts, feature.code_high + 1]).astype(np.float64)
    distance = np.abs(at - _anchor(feature))
    logarithmic = np.log1p(widths / np.maximum(distance, 1.0))
    logarithmic[distance == 0] = logarithmic.sum() / 3
    mass = logarithmic / logarithmic.sum()
    if feature.spacing == "linear":
        mass = 0.5 * mass + 0.5 * widths / widths.sum()
    return CellShape(starts, tuple(float(value) for value in mass))


@lru_cache(maxsize=4096)
def look_edges(feature: Numeric) -> tuple[int, ...]:
    """Return the edges of a coarse histogram, in fine cells: about equally full by the public shape, with zero by itself."""
    shape = public_shape(feature)
    if len(shape.starts) <= LOOK_CELLS:
        return tuple(range(len(shape.starts) + 1))
    zero = shape.starts.index(_anchor(feature)) if _anchor(feature) in shape.starts else 0
    edges = {*joined(shape.mass, LOOK_CELLS - 1), zero, zero + 1}
    return tuple(sorted(edges))


def seen_shape(feature: Numeric, shares: Floats) -> CellShape:
    """Return the shape that a coarse histogram gives: its shares, spread within each cell as in the public shape."""
    shape, edges = public_shape(feature), look_edges(feature)
    before = np.add.reduceat(np.asarray(shape.mass), edges[:-1])
    factor = np.repeat(shares / before, np.diff(edges))
    return CellShape(shape.starts, tuple(float(value) for value in np.asarray(shape.mass) * factor))


def fine_codebook(codebook: Codebook) -> Codebook:
    """Return the codebook with fine cells for every number that was declared by its bounds alone."""
    return codebook.with_features(
        public_shape(each).counted(each) if isinstance(each, Numeric) and is_cut(each) else each for each in codebook.features
    )


def is_cut(feature: Numeric) -> bool:
    """Return True for a number that was declared by its bounds alone, so that its cells are chosen here."""
    return feature.bins is None and feature.width > 1
