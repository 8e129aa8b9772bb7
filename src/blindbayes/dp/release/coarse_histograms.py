"""The first look of a private fit: coarse histograms of the numbers that were declared by their bounds alone.

Pooled counts (over all classes) of a few cells show, with noise, where a number lies; the release then takes cells that are
about equally full.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.stage import Stage
from blindbayes.dp.noise.knorm_histograms import Classwise, ReleasePart
from blindbayes.dp.release.cells import CellShape, look_edges, seen_shape
from blindbayes.dp.release.constants import LOOK_CELLS
from blindbayes.statistics import Statistics

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CoarseHistograms:
    """Noisy pooled histograms of these features, for epsilon."""

    features: tuple[Numeric, ...]
    epsilon: Fraction
    rows_per_unit: int

    @cached_property
    def noise(self) -> Classwise:
        """Noise of one class with these histograms; a record moves one cell of each."""
        parts = (ReleasePart(each.name, len(look_edges(each)) - 1 + each.optional) for each in self.features)
        return Classwise(tuple(parts), self.epsilon, self.rows_per_unit)

    def stage(self, unit: str) -> Stage:
        return Stage(
            name="first look",
            mechanism="knorm",
            epsilon=self.epsilon,
            unit=unit,
            sensitivity="one row moves one cell of each number's histogram by 1",
            sampler=self.noise.sampler,
        )

    def tables(self, statistics: Statistics) -> list[npt.NDArray[Any]]:
        """Return the exact counts that noise is added to: (1, cells), with a last cell for rows without a value."""
        rows = statistics.class_counts.astype(object).sum()
        tables = []
        for feature in self.features:
            counts = statistics.counts[feature.name].astype(object).sum(axis=0)
            joined = np.add.reduceat(counts, look_edges(feature)[:-1])
            tables.append((np.append(joined, rows - counts.sum()) if feature.optional else joined)[None, :])
        return tables

    def releases(self, statistics: Statistics, coins: Coins, count: int) -> list[Floats]:
        """Return `count` independent releases, along the first axis; audits ask for many. Each costs epsilon."""
        tables = self.noise.releases(self.tables(statistics), [1] * len(self.features), coins, count)
        return [table[:, 0] for table in tables]

    def deviations(self) -> Floats:
        """Return the noise deviation of a cell of each histogram, in counts."""
        return np.sqrt(self.noise.variances())

    def shapes(self, statistics: Statistics, rows: float, coins: Coins) -> dict[str, CellShape]:
        """Release the histograms once and return estimates of them, shrunk towards the mean of similar features."""
        released = [table[0] for table in self.releases(statistics, coins, 1)]
        rows = max(rows, 1.0)
        noise = self.deviations() / rows
        sizes = [len(look_edges(feature)) - 1 for feature in self.features]
        level = [1 / len(table) + table / rows for table in released]
        shares = {}
        for size in set(sizes):
            similar = [index for index, each in enumerate(sizes) if each == size]
            table = np.array([level[index][:size] for index in similar])
            error = float(np.mean(noise[similar] ** 2))
            centre = _shrunk(table.mean(axis=0), np.full(size, 1 / size), error / len(similar))
            spread = max(0.0, float(((table - centre) ** 2).mean()) - error)
            table = centre + spread / (spread + error + 1e-12) * (table - centre)
            for index, row in zip(similar, np.maximum(table, 0), strict=True):
                shares[self.features[index].name] = np.where(row.sum() > 0, row, 1.0) / max(row.sum(), size * (row.sum() <= 0))
        return {feature.name: seen_shape(feature, shares[feature.name]) for feature in self.features}


def plan_histograms(
    codebook: Codebook, epsilon: Fraction, rows_per_unit: int, rows: float, keep: frozenset[str] | None
) -> CoarseHistograms | None:
    """Return the first look at these features of a table of about `rows` rows, or None if noise would hide it."""
    features = tuple(
        each
        for each in codebook.features
        if (keep is None or each.name in keep)
        and isinstance(each, Numeric)
        and each.bins is None
        and each.width > 3
        and each.spacing == "linear"
    )
    if not features:
        return None
    look = CoarseHistograms(features, epsilon, rows_per_unit)
    noise = float(np.sqrt((look.deviations() ** 2).mean())) / rows / math.sqrt(len(features))
    return look if noise <= 1 / LOOK_CELLS else None  # an average cell


def _shrunk(values: Floats, towards: Floats, error: float) -> Floats:
    away = values - towards
    signal = float((away**2).mean())
    return towards + max(0.0, 1 - error / max(signal, 1e-12)) * away
