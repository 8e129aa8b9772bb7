"""Gaussian noise for tables of counts by class, on centred histograms.  [quotient]

**What is released** is what `knorm_histograms` releases: per class the class count, each histogram up to a constant, each
centred moment. Neighbours are tables of which one has one record more, or all records of one person, at most R.

**Noise.** Part j lies on a grid of s_j points per count, and every cell gets independent discrete Gaussian noise of one
variance v in grid points; of a histogram the differences of its cells are published, and nothing else.

**Privacy.** A record of class c adds s_j to one cell of each histogram of c. Adding a constant to all r cells changes none of
the differences. So the release cannot tell that record from one that takes s_j / r, a whole number, off every cell as well:
of all changes with the same differences the shortest, of squared length s_j^2 (1 - 1/r). With s_j^2 for each number the squares
add up to S^2, R records change no more than R S, and what noise on all cells costs follows from that length [gaussian-length].

**Grid.** Parts may have grids of their own: a finer grid under the same v is less noise in counts. The squares of all
parts' noise, weighted, are least where the variance of part j in counts is proportional to the root of c_j / A_j, c_j its part
of S^2 in counts, A_j what noise in it costs. Any grids are private; they only decide where the noise goes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from blindbayes.crypto.coins import Coins
from blindbayes.dp.noise import gaussian, samplers
from blindbayes.dp.noise.exact_events import Integers
from blindbayes.dp.noise.knorm_histograms import Centred, ReleasePart
from blindbayes.errors import ConfigError

FINE = 1 << 12
"""Grid points in a deviation of the noise, at least: what rounding costs is far below it."""


def _cells(part: ReleasePart) -> int:
    return 1 if part.number else part.size


def _square(part: ReleasePart) -> float:
    """Squared length of what one record does to the part, in counts: the shortest of all with the same differences."""
    return 1.0 if part.number else 1 - 1 / part.size


@dataclass(frozen=True)
class CentredGaussian(Centred):
    """Gaussian noise of one variance on the grids of all parts.  [quotient]"""

    name = "centred_gaussian"
    sampler = "exact discrete Gaussian on centred histograms: rejection from the exact discrete Laplace"

    def __post_init__(self) -> None:
        if not self.delta > 0:
            raise ConfigError("centred_gaussian needs delta above zero, well below one over the number of rows")

    @cached_property
    def _length(self) -> float:
        """The longest change, in deviations, that the price covers; epsilon rounded down."""
        return gaussian.length_for(float(self.epsilon) * (1 - 1e-10), self.delta)

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """Grid points per count of each part: a multiple of its cells."""
        finer = []  # 1 / the deviation of a part in counts, up to a factor
        for part in self.parts:
            cost = part.weight * (1 if part.number else part.size - 1)
            finer.append((cost / _square(part)) ** 0.25)
        deviation = self.rows_per_unit * math.sqrt(sum(_square(part) * s**2 for part, s in zip(self.parts, finer, strict=True)))
        base = FINE * self._length / deviation
        return tuple(_cells(part) * math.ceil(s * base / _cells(part)) for part, s in zip(self.parts, finer, strict=True))

    @cached_property
    def squared_length(self) -> int:
        """S^2: what one record does to all parts, in grid points."""
        pairs = zip(self.parts, self.steps, strict=True)
        return sum(step**2 if part.number else step // part.size * step * (part.size - 1) for part, step in pairs)

    @cached_property
    def variance(self) -> int:
        """Variance of the noise in every cell, in grid points."""
        reach = self.rows_per_unit**2 * self.squared_length
        return gaussian.ROUNDING + math.ceil(reach / Fraction(self._length) ** 2)

    @property
    def rho(self) -> float:
        return float(Fraction(self.rows_per_unit**2 * self.squared_length, 2 * self.variance)) * (1 + 1e-12)

    @property
    def mu(self) -> float | None:
        return gaussian.mu_of(self.variance, self.rho)

    def variances(self) -> list[float]:
        """Noise variance of a centred cell (or number) of each part, in units of a count (or of a moment's bound)."""
        return [self.variance / step**2 * _square(part) for part, step in zip(self.parts, self.steps, strict=True)]

    def noise(self, coins: Coins, count: int) -> Iterator[tuple[int, Integers, int]]:
        """Yield the index of each part, noise for `count` classes (a row each) in grid points, and grid points per count."""
        for index, (part, step) in enumerate(zip(self.parts, self.steps, strict=True)):
            cells = _cells(part)
            yield index, samplers.discrete_gaussian(coins, self.variance, count * cells).reshape(count, cells), step
