"""Mechanisms: a function on one integer vector together with its price, which can be asked before any data is read.

A mechanism is made from a `Sensitivity`, epsilon and delta. `price` says what one release costs; `release` adds exact integer
noise to all cells at once. Proofs are in PROOFS.md under the names in brackets.

Values first go to a public integer grid on which every block has the same bound: u = round(v step / bound). Where all bounds
are one and the mechanism allows it, step = 1 and u = v. Rounding to a grid never moves a record's contribution by more than
the bound on it [grid]; of words, of which a record moves several, nothing is rounded: the step is a multiple of their bounds.
Going back, v = round(u bound / step), is post-processing.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.sensitivity import ADJACENCY, IntVector, Sensitivity
from blindbayes.dp.noise import gaussian, samplers
from blindbayes.dp.noise.exact_events import Number, as_decimal, budget_floor, cost_ceiling
from blindbayes.errors import ConfigError, DataError

Floats = npt.NDArray[np.float64]
FINE = 1 << 20
"""Grid points per bound where blocks have different bounds: the rounding is far below any noise."""
LARGEST_DELTA = 0.01


@dataclass(frozen=True, slots=True)
class PrivacyCost:
    """The privacy loss of a planned release.

    `rho` is its zero-concentrated form and `mu` its Gaussian one (the loss is at most that of continuous Gaussian noise of
    deviation 1 / mu), if the mechanism has them.
    """

    epsilon: float
    delta: float
    unit: str
    adjacency: str = ADJACENCY
    rho: float | None = None
    mu: float | None = None

    def group(self, units: int) -> PrivacyCost:
        """Return the privacy loss for this number of units together.  [group]"""
        if units < 1:
            raise ConfigError("a group has at least one unit")
        delta = self.delta
        if delta and units > 1:
            growth = math.expm1(min(units * self.epsilon, 700.0)) / math.expm1(self.epsilon)
            delta = min(1.0, delta * growth)
        epsilon = cost_ceiling(units * as_decimal(self.epsilon))
        rho = None if self.rho is None else units * units * self.rho
        mu = None if self.mu is None else units * self.mu
        return PrivacyCost(epsilon, delta, self.unit, self.adjacency, rho, mu)

    def __str__(self) -> str:
        delta = f", delta = {self.delta:g}" if self.delta else ""
        return f"epsilon = {self.epsilon:g}{delta} ({self.adjacency} {self.unit})"


class Priced(Protocol):
    """Anything whose release has a price that is known beforehand, so that a ledger can charge it."""

    @property
    def name(self) -> str: ...

    @property
    def price(self) -> PrivacyCost: ...


@dataclass(frozen=True)
class Mechanism(ABC):
    """One release of one integer vector under (epsilon, delta) differential privacy."""

    name: ClassVar[str]
    sampler: ClassVar[str]
    sensitivity: Sensitivity
    epsilon: Fraction
    delta: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", budget_floor(self.epsilon))
        if not 0 <= self.delta <= LARGEST_DELTA:
            raise ConfigError(f"delta lies between 0 and {LARGEST_DELTA}: it is a chance of failure, below one over the rows")
        self._prepare()

    @abstractmethod
    def _prepare(self) -> None:
        """Check the parameters and calibrate the noise, so that an impossible price fails here."""

    @property
    def price(self) -> PrivacyCost:
        """Privacy loss of one release, from public facts."""
        return PrivacyCost(cost_ceiling(self.epsilon), self.delta, self.sensitivity.unit)

    def map(self, d_in: int = 1) -> PrivacyCost:
        """Return the privacy loss for tables that differ in `d_in` units; reads no data.  [group]"""
        return self.price.group(d_in)

    @property
    @abstractmethod
    def step(self) -> int:
        """Grid points per bound."""

    @property
    def reach(self) -> int:
        """Largest L1 change of a block on the grid, made by one unit."""
        rows = self.sensitivity.rows_per_unit
        exact = all(self.step % block.bound == 0 for block in self.sensitivity.blocks)
        return rows * self.step if exact or rows == 1 else rows * self.step + rows - 1

    @abstractmethod
    def noise(self, coins: Coins, count: int = 1) -> npt.NDArray[np.int64]:
        """Draw noise in grid points for all cells: `count` independent draws, one per row."""

    @abstractmethod
    def grid_variances(self) -> list[float]:
        """Return the variance of the noise in a cell of each block, in grid points."""

    def variances(self) -> Floats:
        """Return the variance of the noise in each released cell."""
        blocks = self.sensitivity.blocks
        return np.concatenate(
            [
                np.full(block.size, variance * (block.bound / self.step) ** 2)
                for block, variance in zip(blocks, self.grid_variances(), strict=True)
            ]
        )

    def release(self, vector: IntVector, coins: Coins) -> IntVector:
        """Return the vector with integer noise. Every call is a release and costs its price."""
        return np.asarray(self.releases(vector, coins, 1)[0])

    def releases(self, vector: IntVector, coins: Coins, count: int) -> IntVector:
        """Return `count` independent releases, one per row; audits ask for many. Each costs the price."""
        vector = np.asarray(vector)
        if vector.shape != (self.sensitivity.size,):
            raise DataError("the vector to release has another length than the sensitivity says")
        if vector.dtype != object and not np.issubdtype(vector.dtype, np.integer):
            raise DataError("only integers are released: floating point sums have no finite sensitivity")
        noise = self.noise(coins, count)
        if self.step == 1 and self._unit_bounds:
            if vector.dtype == object or _may_overflow(vector, noise):
                return np.asarray(vector.astype(object) + noise.astype(object))
            return np.asarray(vector.astype(np.int64) + noise)
        blocks = self.sensitivity.blocks
        bounds = np.repeat(np.array([block.bound for block in blocks], dtype=object), [block.size for block in blocks])
        grid = _nearest(vector.astype(object) * self.step, bounds)
        largest = max(abs(int(noise.min())), abs(int(noise.max()))) + max(map(abs, grid))
        if 2 * (largest * max(bounds) + self.step) < 1 << 62:  # fits 64 bits on the way
            return _nearest((noise + grid.astype(np.int64)) * bounds.astype(np.int64), np.int64(self.step))
        return _nearest((noise.astype(object) + grid) * bounds, self.step)

    @cached_property
    def _fine(self) -> int:
        """Grid points per bound if blocks have different bounds: a multiple of the bounds whose cells must stay exact."""
        even = math.lcm(*(block.bound for block in self.sensitivity.blocks if block.spread))
        if even > 1 << 32:
            raise ConfigError("the bounds of the texts have no small common multiple: choose the same max_words, or round ones")
        return -(-FINE // even) * even

    @cached_property
    def _unit_bounds(self) -> bool:
        return all(block.bound == 1 for block in self.sensitivity.blocks)

    def describe(self) -> dict[str, Any]:
        """Return public facts for statements and reports."""
        return {
            "mechanism": self.name,
            "epsilon": float(self.epsilon),
            "delta": self.delta,
            "sampler": self.sampler,
            "grid_step": self.step,
            "sensitivity": self.sensitivity.describe(),
        }


def _nearest(values: npt.NDArray[Any], by: Any) -> npt.NDArray[Any]:
    """Return round(values / by) in integers, halves up."""
    return np.asarray((2 * values + by) // (2 * by))


def _may_overflow(vector: IntVector, noise: npt.NDArray[np.int64]) -> bool:
    largest = max(abs(int(edge)) for part in (vector, noise) for edge in (part.min(), part.max()))
    return largest >= 1 << 62


class DiscreteLaplace(Mechanism):
    """Independent discrete Laplace noise; block b has scale R w_b / eps_b with eps_b adding up to epsilon. Pure.  [laplace]"""

    name = "discrete_laplace"
    sampler = "exact discrete Laplace: independent binary digits of a geometric variable, lazy comparison of uniform bits"

    def _prepare(self) -> None:
        if self.delta:
            raise ConfigError("discrete_laplace is pure: leave delta at zero")

    @property
    def step(self) -> int:
        return 1 if self._unit_bounds else self._fine

    @cached_property
    def scales(self) -> tuple[Fraction, ...]:
        """Scale of the noise in each block, in grid points."""
        total = sum((block.share for block in self.sensitivity.blocks), Fraction(0))
        whole = self.reach * total / self.epsilon  # once: the reach looks at every block
        return tuple(whole / block.share for block in self.sensitivity.blocks)

    def noise(self, coins: Coins, count: int = 1) -> npt.NDArray[np.int64]:
        out = np.empty((count, self.sensitivity.size), dtype=np.int64)
        sizes = np.array([block.size for block in self.sensitivity.blocks])
        which = np.repeat(np.arange(sizes.size), sizes)
        for scale in dict.fromkeys(self.scales):
            cells = np.isin(which, [index for index, other in enumerate(self.scales) if other == scale])
            width = int(cells.sum())
            out[:, cells] = samplers.discrete_laplace(coins, scale, count * width).reshape(count, width)
        return out

    def grid_variances(self) -> list[float]:
        return [laplace_variance(float(scale)) for scale in self.scales]


def laplace_variance(scale: float) -> float:
    """Return the variance of discrete Laplace noise; 0 where it is below every float, at an epsilon of hundreds."""
    half = np.sinh(min(0.5 / scale, 500.0))
    return float(0.5 / half / half)


class DiscreteGaussian(Mechanism):
    """Independent discrete Gaussian noise of one variance on the grid.  [gaussian]"""

    name = "discrete_gaussian"
    sampler = "exact discrete Gaussian: rejection from the exact discrete Laplace"

    def _prepare(self) -> None:
        if not self.delta:
            raise ConfigError("discrete_gaussian needs delta above zero, well below one over the number of rows")
        if len({block.share for block in self.sensitivity.blocks}) > 1:
            raise ConfigError("discrete_gaussian spends one budget on all blocks together: leave the shares equal")
        _ = self.variance

    @property
    def step(self) -> int:
        return 1 if self._unit_bounds else self._fine

    @cached_property
    def variance(self) -> Fraction:
        """Variance of the noise in each cell, in grid points."""
        single = self.sensitivity.rows_per_unit == 1 and not any(block.spread for block in self.sensitivity.blocks)
        return gaussian.variance_for(self.epsilon, self.delta, len(self.sensitivity.blocks), self.reach, cells=single)

    @property
    def price(self) -> PrivacyCost:
        rho = gaussian.rho_of(self.variance, len(self.sensitivity.blocks), self.reach)
        mu = gaussian.mu_of(self.variance, rho)
        return PrivacyCost(cost_ceiling(self.epsilon), self.delta, self.sensitivity.unit, rho=float(rho), mu=mu)

    def noise(self, coins: Coins, count: int = 1) -> npt.NDArray[np.int64]:
        return samplers.discrete_gaussian(coins, self.variance, count * self.sensitivity.size).reshape(count, -1)

    def grid_variances(self) -> list[float]:
        return [float(self.variance)] * len(self.sensitivity.blocks)  # the discrete law's variance is never larger


MECHANISMS: dict[str, type[Mechanism]] = {kind.name: kind for kind in (DiscreteLaplace, DiscreteGaussian)}


def make(name: str, sensitivity: Sensitivity, epsilon: Number, delta: float = 0.0) -> Mechanism:
    """Return the mechanism of that name."""
    if name not in MECHANISMS:
        raise ConfigError(f"unknown mechanism {name!r}: one of {', '.join(MECHANISMS)}")
    return MECHANISMS[name](sensitivity, budget_floor(epsilon), delta)
