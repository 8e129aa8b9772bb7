"""The tightest pure noise for tables of counts by class: one K-norm per class, on centred histograms.  [classwise]

A record has one class c and, in each histogram, one cell. So it moves nothing outside class c; and once the class counts
are released on their own, a histogram need only be known *up to a constant*: its cells add up to the class count. Both
facts shrink what must be hidden, and noise is proportional to that.

**What is released.** Per class: the class count t, a point of Z; each histogram with r cells, a point of the quotient
Z^r / (1, ..., 1), of which r - 1 differences are a coordinate system; each centred moment, a point of Z. The norm of a
histogram's point is the least L1 norm of its representatives, sum |x_i - median(x)|; that of a number its absolute value.
The norm of a class is the maximum over its parts.

**Privacy.** One record changes one class only, and each part by a vector of norm at most `step` (a unit vector times the
grid step; a moment is scaled so). So the sum over classes of norms of the change made by R records is at most R step, and
noise with P(x) proportional to the product over classes of e^-(rate ||x_c||), rate = epsilon / (R step), has privacy loss
at most rate R step = epsilon on every output. Parts may be cut into groups, each with its own share of epsilon: the losses
add up. A missing value is the zero change, or a cell of its own.

**Sampler.** As for any K-norm: radius k with weight (lattice points of the ball) e^-(rate k), then a uniform point. The
points of Z^r / 1 of norm <= k are represented once each by the x whose lower median is 0: h - 1 coordinates <= 0, one
coordinate 0, r - h coordinates >= 0, h = ceil(r / 2), sum |x_i| <= k. The roles "low", "middle", "high" are dealt by a
uniform permutation, and r - 1 absolute values of sum <= k are uniform on C(k + r - 1, r - 1) points; so each x comes once
for every way to deal the roles that fits it. Only zeros can play several roles; keeping the one deal in which the roles of
the zeros do not fall (low, middle, high) in index order leaves weight one. The radius is drawn as in [radius].
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.sensitivity import unit_words
from blindbayes.dp.noise.exact_events import Integers, Number, below, cost_ceiling, positive
from blindbayes.dp.noise.mechanisms import PrivacyCost
from blindbayes.dp.noise.samplers import geometric
from blindbayes.errors import ConfigError

IntTable = npt.NDArray[Any]  # int64, or Python integers
FloatTable = npt.NDArray[np.float64]
SHARE_GRID = 1 << 20
MOMENT_STEP = 1 << 20
_MIN_STEP = 64
CELLS = 1 << 18
"""Coordinates drawn at a time."""


def _simplex(coins: Coins, radius: int | Integers, sizes: Integers, owner: Integers, starts: Integers) -> Integers:
    """Draw uniform integers >= 0 whose sum per block is at most radius: gaps of a uniform d-subset of {0, ..., radius + d - 1}.

    `radius` has one entry per block, or is the same for all.
    """
    bounds = (radius + sizes)[owner]
    marks = below(coins, bounds)
    apart = int(bounds.max(initial=0))
    shift = owner * apart if sizes.size * apart < 1 << 62 else None  # then one sort of one number does
    while True:  # blocks stay in order, marks rise within each
        marks = marks[np.lexsort((marks, owner))] if shift is None else np.sort(marks + shift) - shift
        same = np.flatnonzero((marks[1:] == marks[:-1]) & (owner[1:] == owner[:-1]))
        if not same.size:
            break
        again = np.isin(owner, owner[same])  # a block with two equal marks is drawn afresh
        marks[again] = below(coins, bounds[again])
    before = np.empty_like(marks)
    before[1:] = marks[:-1]
    before[starts] = -1
    return marks - before - 1


def centred_knorms(coins: Coins, sizes: Sequence[int], rate: Number, count: int) -> Integers:
    """Draw points of the product of Z^r / (1, ..., 1) over `sizes`, one per row.  [classwise]

    P(x) is proportional to e**-(rate max_b ||x_b||). Each block is given by its representative of lower median 0. A plain
    integer is a block of size two: the difference of its two coordinates has the law of a number under its absolute value.
    """
    exact = positive(rate, "rate")
    if not sizes or min(sizes) < 2:
        raise ConfigError("a centred block has at least two cells")
    blocks = np.asarray(sizes, dtype=np.int64)
    free = blocks - 1
    dimension, cells = int(free.sum()), int(blocks.sum())
    if exact * dimension > 32:
        raise ConfigError("rate times dimension is too large for rejection: refine the grid")
    if dimension / exact * 4 > 1 << 60:
        raise ConfigError("noise beyond 64 bits: coarsen the grid")
    owner = np.repeat(np.arange(free.size), free)
    starts = np.cumsum(free) - free
    index = np.arange(1, dimension + 1)
    place = index - starts[owner]
    cell_owner = np.repeat(np.arange(blocks.size), blocks)
    within = np.arange(cells) - (np.cumsum(blocks) - blocks)[cell_owner]
    lows = ((blocks + 1) // 2 - 1)[cell_owner]  # number of low roles
    role = np.where(within < lows, -1, np.where(within == lows, 0, 1))
    slot = np.flatnonzero(role)  # where the absolute values go, before the roles are dealt
    out = np.empty((count, cells), dtype=np.int64)
    filled = 0
    while filled < count:
        tries = min(count - filled, max(1, CELLS // cells))
        radius = geometric(coins, exact, tries * (dimension + 1)).reshape(tries, -1).sum(axis=1)
        accepted = (below(coins, (radius[:, None] + index).ravel()).reshape(tries, -1) < radius[:, None] + place).all(axis=1)
        radius = radius[accepted]
        rows = np.arange(radius.size)[:, None]
        value = np.zeros((radius.size, cells), dtype=np.int64)
        value[:, slot] = _simplex(
            coins,
            np.repeat(radius, free.size),
            np.tile(free, radius.size),
            (owner + free.size * rows).ravel(),
            (starts + dimension * rows).ravel(),
        ).reshape(radius.size, dimension)
        blocks_of = (cell_owner + blocks.size * rows).ravel()
        dealt = _permutations(coins, blocks_of)
        value, roles = (value * role).ravel()[dealt], np.tile(role, radius.size)[dealt]
        zeros = np.flatnonzero(value == 0)
        wrong = (blocks_of[zeros[1:]] == blocks_of[zeros[:-1]]) & (roles[zeros[1:]] < roles[zeros[:-1]])
        sound = np.ones(radius.size, dtype=np.bool_)
        sound[zeros[1:][wrong] // cells] = False
        points = value.reshape(-1, cells)[sound]
        out[filled : filled + len(points)] = points
        filled += len(points)
    return out


def _permutations(coins: Coins, owner: Integers) -> Integers:
    """Permute positions uniformly within each block: sort by 64-bit keys, drawn afresh if two are equal."""
    sizes = np.bincount(owner)
    alike = bool(sizes.size) and bool((sizes == sizes[0]).all())  # then they are rows of a table
    while True:
        keys = coins.words(owner.size)
        if alike:
            within = keys.reshape(sizes.size, -1).argsort(axis=1)
            order = (within + sizes[0] * np.arange(sizes.size)[:, None]).ravel()
        else:
            order = np.lexsort((keys, owner))
        ordered = keys[order]
        if not np.any((ordered[1:] == ordered[:-1]) & (owner[1:] == owner[:-1])):  # owners stay in order
            return np.asarray(order, dtype=np.int64)


def cell_variance(size: int) -> float:
    """Variance of one centred cell (its mean taken off) of a uniform point of the ball of radius 1, in the continuum.

    The r - 1 absolute values are uniform on the simplex: E m^2 = 2c, E m m' = c, c = 1 / (r (r + 1)); their signed sum has
    second moment c (r - 1 + g), g = 1 for even r, where one sign is in excess, else 0.
    """
    c = 1 / (size * (size + 1))
    excess = 1 - size % 2
    return c * (2 * (size - 1) - (size - 1 + excess) / size) / size


NUMBER_VARIANCE = 1 / 3
"""Variance of a plain number, uniform in [-1, 1]: a block of two cells has half-differences of 1/12 = (1/3) / 4."""


@dataclass(frozen=True, slots=True)
class ReleasePart:
    """A part of the release: a histogram (`size` cells) or a number per class (`size` 2). `weight` is the cost of an error."""

    name: str
    size: int
    number: bool = False
    moment: bool = False  # a number on a fine grid
    weight: float = 1.0

    @property
    def unit_variance(self) -> float:
        """Noise variance of a cell, or of the number, per squared radius."""
        return NUMBER_VARIANCE if self.number else cell_variance(self.size)

    @property
    def cost(self) -> float:
        """Summed noise variance of the part per squared radius, weighted."""
        return self.weight * (self.unit_variance if self.number else self.size * self.unit_variance)


@dataclass(frozen=True)
class NoiseGroup:
    """Parts that share one radius per class."""

    parts: tuple[int, ...]
    epsilon: Fraction
    step: int
    dimension: int
    rows_per_unit: int

    @property
    def rate(self) -> Fraction:
        """Exponent per grid point of norm."""
        return self.epsilon / (self.rows_per_unit * self.step)

    @property
    def squared_radius(self) -> float:
        """E of the squared radius, in units of a count."""
        return (self.dimension + 1) * (self.dimension + 2) * float(self.rows_per_unit / self.epsilon) ** 2


@dataclass(frozen=True)
class Centred(ABC):
    """Noise for a release whose histograms are determined up to an additive constant, one for all classes."""

    parts: tuple[ReleasePart, ...]
    epsilon: Fraction
    rows_per_unit: int = 1
    delta: float = 0.0
    name: ClassVar[str]
    sampler: ClassVar[str]

    @abstractmethod
    def variances(self) -> list[float]:
        """Noise variance of a cell (or number) of each part, in units of a count (or of a moment's bound)."""

    @abstractmethod
    def noise(self, coins: Coins, count: int) -> Iterator[tuple[int, Integers, int]]:
        """Yield the index of each part, noise for `count` classes (a row each) in grid points, and grid points per count."""

    @property
    def rho(self) -> float | None:
        """Zero-concentrated privacy loss, if the noise has a form of its own."""
        return None

    @property
    def mu(self) -> float | None:
        """Gaussian privacy loss, if the noise has one."""
        return None

    @property
    def price(self) -> PrivacyCost:
        """Privacy loss of one release, from public facts."""
        unit = unit_words(self.rows_per_unit)
        return PrivacyCost(cost_ceiling(self.epsilon), self.delta, unit, rho=self.rho, mu=self.mu)

    def map(self, d_in: int = 1) -> PrivacyCost:
        """Return the privacy loss for tables that differ in `d_in` units; reads no data.  [group]"""
        return self.price.group(d_in)

    def release(self, tables: Sequence[IntTable], bounds: Sequence[int], coins: Coins) -> list[FloatTable]:
        """Return the noisy parts.

        `tables[i]` is part i: (classes, cells), or (classes, 1) for a number that one record moves by at most `bounds[i]`. A
        histogram comes back with the mean of its cells subtracted: a function of its point in the quotient.
        """
        return [table[0] for table in self.releases(tables, bounds, coins, 1)]

    def releases(self, tables: Sequence[IntTable], bounds: Sequence[int], coins: Coins, count: int) -> list[FloatTable]:
        """Return `count` independent releases, along the first axis; audits ask for many. Each costs epsilon."""
        out = [np.zeros((count, *table.shape)) for table in tables]
        for index, points, step in self.noise(coins, count * tables[0].shape[0]):
            noise, exact = points.reshape(count, -1, points.shape[1]), tables[index].astype(object)
            if self.parts[index].number:
                # round(value step / bound)
                exact = (2 * exact * step + bounds[index]) // (2 * bounds[index])
                out[index][:] = (_whole(exact) + noise).astype(np.float64) / step
            else:
                # differences to the first cell are coordinates of the quotient; all that follows uses them alone
                cells = _whole(exact * step) + noise
                differences = (cells - cells[..., :1]).astype(np.float64) / step
                out[index][:] = differences - differences.mean(axis=-1, keepdims=True)
        return out


@dataclass(frozen=True)
class Classwise(Centred):
    """Pure noise: parts in groups, each with a K-norm.  [classwise]"""

    name = "knorm"
    sampler = "exact K-norm by class on centred histograms: radius by rejection from exact geometrics, uniform point"

    @cached_property
    def groups(self) -> tuple[NoiseGroup, ...]:
        """Parts grouped by size so that the total weighted noise variance is least.  [classwise]

        A group of dimension D and cost A with epsilon e has noise (D+1)(D+2) A / e^2; for given groups the best shares are
        proportional to the cube root of (D+1)(D+2) A. Groups are runs of the sorted sizes, the best cut is found exactly.
        """
        order = sorted(range(len(self.parts)), key=lambda index: (self.parts[index].size, index))
        dims = np.concatenate([[0], np.cumsum([self.parts[index].size - 1 for index in order])])
        costs = np.concatenate([[0.0], np.cumsum([self.parts[index].cost for index in order])])
        sizes = [self.parts[index].size for index in order]
        cuts = [0, *[i for i in range(1, len(order)) if sizes[i] != sizes[i - 1]], len(order)]

        def load(start: int, stop: int) -> float:
            dimension = int(dims[stop] - dims[start])
            return float(((dimension + 1) * (dimension + 2) * (costs[stop] - costs[start])) ** (1 / 3))

        best: list[tuple[float, int]] = [(0.0, 0)]
        for stop in range(1, len(cuts)):
            best.append(min((best[start][0] + load(cuts[start], cuts[stop]), start) for start in range(stop)))
        runs: list[tuple[int, int]] = []
        at = len(cuts) - 1
        while at:
            runs.append((cuts[best[at][1]], cuts[at]))
            at = best[at][1]
        total = best[-1][0]
        shares = [Fraction(max(1, math.floor(SHARE_GRID * load(*run) / total)), SHARE_GRID) for run in runs[:-1]]
        shares.append(1 - sum(shares, Fraction(0)))
        out = []
        for (start, stop), share in zip(runs, shares, strict=True):
            members = tuple(order[start:stop])
            epsilon, dimension = share * self.epsilon, int(dims[stop] - dims[start])
            squares = sum((self.parts[index].size - 1) ** 2 for index in members)
            need = 4 * max(dimension, squares / dimension) * epsilon / self.rows_per_unit
            step = MOMENT_STEP if any(self.parts[index].moment for index in members) else _MIN_STEP
            while step < need:
                step *= 2
            out.append(NoiseGroup(members, epsilon, step, dimension, self.rows_per_unit))
        return tuple(out)

    def variances(self) -> list[float]:
        """Noise variance of a cell (or number) of each part, in units of a count (or of a moment's bound)."""
        out = [0.0] * len(self.parts)
        for group in self.groups:
            for index in group.parts:
                out[index] = group.squared_radius * self.parts[index].unit_variance
        return out

    def cost(self) -> float:
        """Total weighted noise variance of one class."""
        return sum(group.squared_radius * self.parts[index].cost for group in self.groups for index in group.parts)

    def noise(self, coins: Coins, count: int) -> Iterator[tuple[int, Integers, int]]:
        """Yield the index of each part, noise for `count` classes (a row each) in grid points, and grid points per count."""
        for group in self.groups:
            sizes = [self.parts[index].size for index in group.parts]
            pieces = np.split(centred_knorms(coins, sizes, group.rate, count), np.cumsum(sizes)[:-1], axis=1)
            for index, piece in zip(group.parts, pieces, strict=True):
                number = self.parts[index].number  # the difference of the block's two coordinates
                yield index, piece[:, :1] - piece[:, 1:] if number else piece, group.step


def _whole(values: IntTable) -> IntTable:
    """Whole numbers in 64 bits where noise cannot carry them beyond."""
    return values.astype(np.int64) if all(abs(value) < 1 << 61 for value in values.ravel()) else values
