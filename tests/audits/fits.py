"""Goodness of fit of the exact samplers: each against its own law, and against the same law at another scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes._lazy import lazy
from blindbayes.crypto.coins import Coins
from blindbayes.dp.audit.empirical import Check
from blindbayes.dp.noise import knorm_histograms as classwise
from blindbayes.dp.noise import samplers

stats = lazy("scipy.stats")

ALPHA = 1e-4
"""Level of each fit. With system coins a sound sampler fails one audit in ten thousand, per sampler."""
Integers = npt.NDArray[Any]
Law = Callable[[int], float]
_WIDE = range(-400, 401)


def chi_square(draws: Integers, law: Law, support: Iterable[int]) -> float:
    """The p-value of integer draws under a law; cells with fewer than 8 expected draws are pooled with the rest."""
    values, counts = np.unique(draws, return_counts=True)
    seen = dict(zip(values.tolist(), counts.tolist(), strict=True))
    statistic, cells, rest, left = 0.0, 0, float(len(draws)), len(draws)
    for value in support:
        expected = law(value) * len(draws)
        if expected >= 8:
            observed = seen.get(value, 0)
            statistic += (observed - expected) ** 2 / expected
            rest, left, cells = rest - expected, left - observed, cells + 1
    if rest > 1e-6 * len(draws) or left:
        statistic += (left - rest) ** 2 / max(rest, 1e-9)
        cells += 1
    return float(stats.chi2.sf(statistic, max(1, cells - 1)))


@dataclass(frozen=True)
class Case:
    """A sampler, its law, and the scale at which they are compared."""

    draw: Callable[[Coins, Fraction, int], Integers]
    law: Callable[[float], Law]
    scale: Fraction


def _laplace(scale: float) -> Law:
    return lambda x: math.tanh(0.5 / scale) * math.exp(-abs(x) / scale)


def _gaussian(variance: float) -> Law:
    reach = int(12 * math.sqrt(variance)) + 4
    total = sum(math.exp(-(x**2) / (2 * variance)) for x in range(-reach, reach + 1))
    return lambda x: math.exp(-(x**2) / (2 * variance)) / total


def _share(parts: int) -> Callable[[float], Law]:
    return lambda scale: lambda x: float(stats.nbinom.pmf(x, 1 / parts, -math.expm1(-1 / scale)))


def _radius(numbers: int) -> Callable[[float], Law]:
    """The law of the L-infinity norm of so many numbers under K-norm noise: shells of the lattice ball, weighted."""

    def law(scale: float) -> Law:
        balls = [(2 * k + 1) ** numbers for k in range(400)]
        shells = [float(ball - inner) for ball, inner in zip(balls, [0, *balls], strict=False)]
        weights = [shell * math.exp(-k / scale) for k, shell in enumerate(shells)]
        total = sum(weights)
        return lambda x: weights[x] / total if 0 <= x < len(weights) else 0.0

    return law


def _draw_radius(numbers: int) -> Callable[[Coins, Fraction, int], Integers]:
    def radii(coins: Coins, scale: Fraction, size: int) -> Integers:
        drawn = classwise.centred_knorms(coins, [2] * numbers, 1 / scale, size)  # a number: the difference of two cells
        return np.asarray(np.abs(drawn[:, 1::2] - drawn[:, ::2]).max(axis=1))

    return radii


CASES: dict[str, Case] = {
    "geometric": Case(
        lambda c, s, n: samplers.geometric(c, 1 / s, n),
        lambda s: lambda x: float(stats.geom.pmf(x + 1, -math.expm1(-1 / s))),
        Fraction(6),
    ),
    "discrete Laplace": Case(samplers.discrete_laplace, _laplace, Fraction(15, 2)),
    "discrete Laplace, small": Case(samplers.discrete_laplace, _laplace, Fraction(1, 2)),
    "discrete Gaussian": Case(samplers.discrete_gaussian, _gaussian, Fraction(401, 7)),
    "discrete Gaussian, small": Case(samplers.discrete_gaussian, _gaussian, Fraction(1, 3)),
    "Poisson": Case(samplers.poisson, lambda s: lambda x: float(stats.poisson.pmf(x, s)), Fraction(150)),
    "Skellam": Case(samplers.skellam, lambda s: lambda x: float(stats.skellam.pmf(x, s / 2, s / 2)), Fraction(40)),
    "Polya share": Case(lambda c, s, n: samplers.negative_binomial(c, 1 / s, 3, n), _share(3), Fraction(5)),
    "K-norm radius": Case(_draw_radius(3), _radius(3), Fraction(3)),
}


def three_arms(case: Case, coins: Coins, draws: int) -> tuple[float, float, float]:
    """p-values of one set of draws under the law claimed, and under 0.8 and 1.25 times its scale."""
    drawn = case.draw(coins, case.scale, draws)
    right, smaller, larger = (chi_square(drawn, case.law(float(case.scale) * factor), _WIDE) for factor in (1.0, 0.8, 1.25))
    return right, smaller, larger


def audit_samplers(coins: Coins, cases: Mapping[str, Case] | None = None, draws: int = 40_000) -> Iterator[Check]:
    """Every sampler against the law it claims, and against laws of another scale."""
    for name, case in (CASES if cases is None else cases).items():
        right, smaller, larger = three_arms(case, coins, draws)
        if right <= ALPHA:  # seen twice, or not at all
            right = max(right, three_arms(case, coins, draws)[0])
        passed = right > ALPHA and smaller < ALPHA and larger < ALPHA
        found = f"p = {right:.2g}; at 0.8 times the scale {smaller:.1g}, at 1.25 times {larger:.1g}"
        yield Check("samplers", name, passed, found, right)
