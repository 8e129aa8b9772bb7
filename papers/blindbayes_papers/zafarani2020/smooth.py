"""Smooth sensitivity of mean and variance, corrected, and the two per-parameter mechanisms kept as reproductions.

`smooth` is Zafarani and Clifton's mechanism with its errors mended: noise on the mean and the variance of each numeric feature
in each class, calibrated to a smooth bound on how much one record can move them. `global` is Vaidya et al. 2013 mended: sums
and counts with global sensitivities, the budget cut evenly over parameters. Neither is the default: a joint release (`joint`)
has far less noise. The page of `reproduce zafarani2020` says what was wrong in print, with the privacy loss of each error.

**Setting.** A class holds a list of n numbers in [L, U], R = U - L. A neighbour has one number replaced, inserted or deleted
(a record may change class, so n is private). An empty list has the mean (L + U) / 2 and the variance 0. LS(x) is the largest
change of f from x to a neighbour; S is a beta-smooth bound if LS <= S and S(x) <= e^beta S(x') for neighbours x, x'.

**Mean.** [smooth-mean] S = max(E/n, e^-beta R/n, e^-(beta (n-1)) E, e^-(beta n) R), E = max(U - min, max - L); for n = 0,
max(R/2, e^-beta R). It *is* the smooth sensitivity max_k e^-(beta k) A(k), A(k) the largest LS within k steps: deleting k
numbers leaves n - k, of which E/(n-k) moves the mean; replacing one of them first by a bound gives R/(n-k+1). The maximum over
k of a/(n-k) e^-(beta k) lies at an end, since 1/(n-k) is log-convex in k.

**Variance.** [smooth-variance] S = max_k e^-(beta k) B(k), B(k) = min(R^2/4, D_k^2/(n-k)) for k < n - 1 and R^2/4 beyond, with
D_k = max(U - lo_k, hi_k - L), lo_k = (sum of the n-k-1 smallest + (k+1) L) / n, hi_k mirrored. One step changes a variance by
at most D^2/n, D the largest distance from a bound to the mean without the number that moves; lo_k is below every such mean
within k steps. B grows by one step of k for each step of x, so S is beta-smooth; tests check LS <= S and S <= e^beta S' on all
small lists. Sorting and prefix sums give all k; k stops once e^-(beta k) R^2/4 is below the maximum: O(n log n).

**Noise.** [cauchy] The privacy loss between Cauchy laws (f, s) and (f', s') is the hyperbolic distance of f + i s and
f' + i s'. So f + c S Z, Z standard Cauchy, is eps-private for every beta-smooth S exactly if
c >= max(1 / (2 sinh(eps/2)), sqrt(e^-beta / (2 (cosh eps - cosh beta)))). For the other admissible noises, of density
1/(1 + |z|^gamma), Nissim et al.: beta <= eps / (2 (gamma + 1)) and c = 2 (gamma + 1) / eps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.sensitivity import ADJACENCY, BlockKind
from blindbayes.dp.noise import samplers
from blindbayes.dp.noise.exact_events import Number, budget_floor, cost_ceiling
from blindbayes.dp.noise.mechanisms import PrivacyCost, make
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.statistics import MISSING, CodedRows, Layout, count_block
from blindbayes.statistics.parameters import Gaussian, Histogram, Parameters, Term
from blindbayes_papers.zafarani2020 import heavy_tails
from blindbayes_papers.zafarani2020.query import Query

Codes = npt.NDArray[np.int64]
NO_GAMMA = "gamma is the exponent of the noise of smooth; global has none"
GRID = 1 << 40
"""Grid points per half range on which means and variances lie before noise."""
ROUNDING = 4 / GRID
"""Added to every bound: rounding to the grid, and float64 before it, move a value by less than half of this."""
SLACK = 1e-9
"""Bounds are made smoother than calibrated for by this: covers the rounding of float64 in the bounds themselves."""
_CHUNK = 1 << 16


def mean_sensitivity(count: int, smallest: float, largest: float, low: float, high: float, beta: float) -> float:
    """Smooth sensitivity of the mean of `count` numbers in [low, high] between `smallest` and `largest`.  [smooth-mean]"""
    width = high - low
    if count == 0:
        return max(width / 2, math.exp(-beta) * width)
    reach = max(high - smallest, largest - low)
    return max(
        reach / count, math.exp(-beta) * width / count, math.exp(-beta * (count - 1)) * reach, math.exp(-beta * count) * width
    )


def variance_sensitivity(ordered: npt.NDArray[Any], low: float, high: float, beta: float) -> float:
    """A beta-smooth bound on the sensitivity of the variance of numbers in [low, high], sorted upwards.  [smooth-variance]"""
    count, cap = len(ordered), (high - low) ** 2 / 4
    if count <= 1:
        return cap
    below = np.concatenate([[0.0], np.cumsum(ordered, dtype=np.float64)])  # sums of the smallest
    above = np.concatenate([[0.0], np.cumsum(ordered[::-1], dtype=np.float64)])  # sums of the largest
    best, start, size = 0.0, 0, 64
    while start < count - 1:
        if math.exp(-beta * start) * cap <= best:
            return best
        k = np.arange(start, min(start + size, count - 1), dtype=np.int64)
        rest = count - k - 1
        lowest = (below[rest] + (k + 1) * low) / count
        highest = (above[rest] + (k + 1) * high) / count
        distance = np.maximum(high - lowest, highest - low)
        bound = np.minimum(cap, distance**2 / (count - k))
        best = max(best, float((np.exp(-beta * k) * bound).max()))
        start, size = start + size, min(2 * size, _CHUNK)
    return max(best, math.exp(-beta * (count - 1)) * cap)


def cauchy_factor(epsilon: float, beta: float) -> float:
    """The least c such that Cauchy noise of scale c S is epsilon-private for every beta-smooth S.  [cauchy]"""
    if not 0 < beta < epsilon:
        raise ConfigError("beta must lie between zero and epsilon: beyond, no scale of Cauchy noise suffices")
    far = math.exp(-beta) / (2 * (math.cosh(epsilon) - math.cosh(beta)))
    return max(1 / (2 * math.sinh(epsilon / 2)), math.sqrt(far))


def noise_factor(epsilon: float, beta: float, gamma: Fraction) -> float:
    """Scale of admissible noise per unit of a beta-smooth bound: exact for Cauchy noise, Nissim et al.'s for the others."""
    if gamma == 2:
        return cauchy_factor(epsilon, beta)
    if beta > epsilon / (2 * (gamma + 1)) * (1 + SLACK):
        raise ConfigError("for gamma other than 2, beta is at most epsilon / (2 (gamma + 1))")
    return 2 * (float(gamma) + 1) / epsilon


@dataclass(frozen=True)
class ParameterPlan:
    """A release parameter by parameter. `allocation` weighs a numeric feature (mean and variance together) against a
    categorical one; the class counts weigh like a categorical feature. Asking it reads no data."""

    codebook: Codebook
    epsilon: Fraction
    mechanism: Literal["smooth", "global"] = "smooth"
    allocation: tuple[int, int] = (2, 1)
    gamma: Fraction = Fraction(2)
    rows_per_unit: int = 1

    def __post_init__(self) -> None:
        if self.codebook.provenance == "inferred":
            raise PrivacyError("a codebook inferred from the training data leaks them: declare one (Codebook.from_toml)")
        if min(self.allocation) < 1 or self.rows_per_unit < 1:
            raise ConfigError("allocation and rows_per_unit must be at least one")
        heavy_tails.require_gamma(self.gamma)  # here, before a ledger pays

    @property
    def name(self) -> str:
        """The mechanism: what a ledger charges."""
        return self.mechanism

    @property
    def sampler(self) -> str:
        """Return how the noise is drawn."""
        return str(self.describe()["sampler"])

    @property
    def price(self) -> PrivacyCost:
        """Return what the release costs."""
        unit = "one record" if self.rows_per_unit == 1 else f"one person with at most {self.rows_per_unit} records"
        return PrivacyCost(cost_ceiling(self.epsilon), 0.0, unit)

    @cached_property
    def budgets(self) -> tuple[Fraction, Fraction]:
        """Epsilon of one numeric parameter (mean or variance) and of one histogram. A person with R records costs R records."""
        numbers = sum(isinstance(feature, Numeric) and feature.bins is None for feature in self.codebook.features)
        tables = len(self.codebook.features) - numbers
        unit = self.epsilon / self.rows_per_unit / (self.allocation[0] * numbers + self.allocation[1] * (tables + 1))
        return unit * self.allocation[0] / 2, unit * self.allocation[1]

    @property
    def beta(self) -> float:
        """Smoothness of the bounds: epsilon' / (2 (gamma + 1)), Theorem 2 of the paper, of one parameter's epsilon'."""
        return float(self.budgets[0] / (2 * (self.gamma + 1)))

    def describe(self) -> dict[str, Any]:
        """Public facts for statements and reports."""
        smooth = self.mechanism == "smooth"
        number, table = self.budgets
        return {
            "mechanism": self.mechanism,
            "epsilon": float(self.epsilon),
            "delta": 0.0,
            "unit": self.price.unit,
            "adjacency": ADJACENCY,
            "epsilon_per_moment": float(number),
            "epsilon_per_histogram": float(table),
            "allocation": list(self.allocation),
            "gamma": float(self.gamma) if smooth else None,
            "beta": self.beta if smooth else None,
            "sampler": "exact admissible heavy-tailed noise by ratio of uniforms, and exact discrete Laplace"
            if smooth
            else "exact discrete Laplace",
            "reasons": ["a reproduction of the literature, mended; a joint release has less noise"],
        }

    def fit(self, block: CodedRows, coins: Coins, *, alpha: float = 1.0) -> Parameters:
        """Release every parameter with its own noise and put the model together. `block` holds codes of this codebook."""
        if block.labels is None:
            raise ConfigError("rows without a class column cannot be released")
        return self._fit_smooth(block, coins, alpha) if self.mechanism == "smooth" else self._fit_global(block, coins, alpha)

    def _fit_smooth(self, block: CodedRows, coins: Coins, alpha: float) -> Parameters:
        labels = block.known_labels
        number, table = self.budgets
        classes = len(self.codebook.classes)
        scale = 1 / table
        counts = np.bincount(labels, minlength=classes) + samplers.discrete_laplace(coins, scale, classes)
        terms: dict[str, Term] = {}
        for feature in self.codebook.features:
            codes = block.columns[feature.name]
            if not isinstance(feature, Numeric) or feature.bins is not None:
                present = codes >= 0
                cells = np.bincount(labels[present] * feature.size + codes[present], minlength=classes * feature.size)
                noisy = cells + samplers.discrete_laplace(coins, scale, cells.size)
                terms[feature.name] = _histogram(noisy.reshape(classes, feature.size), alpha)
            else:
                lists = [codes[(labels == label) & (codes != MISSING)] for label in range(classes)]
                terms[feature.name] = self._smooth_gaussian(feature, lists, float(number), coins)
        return Parameters(self.codebook, _log_prior(counts), terms)

    def _smooth_gaussian(self, feature: Numeric, lists: Sequence[Codes], epsilon: float, coins: Coins) -> Gaussian:
        """Noisy mean and variance per class, in units of the half range about the middle."""
        half = (feature.width - 1) / 2
        if half == 0:
            return Gaussian(np.full(len(lists), feature.low), np.full(len(lists), math.inf))
        middle = (feature.code_low + feature.code_high) / 2
        means, variances = np.array(
            [[self.noisy(*moment, coins)[0] for moment in self.moments(feature, codes, epsilon)] for codes in lists]
        ).T
        mean_array = np.clip(means, -1, 1) * half + middle + feature.centre
        # A variance below what rounding alone gives, or one that noise made negative, is raised to a thousandth of the cap.
        floor = max(1 / 12, half * half / 1000)
        variance_array = np.clip(variances * half * half, floor, half * half)
        return Gaussian(mean_array / feature.scale, variance_array / feature.scale**2)

    def moments(self, feature: Numeric, codes: Codes, epsilon: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Mean and variance in units of the half range about the middle, each with the scale of its noise."""
        half, middle = (feature.width - 1) / 2, (feature.code_low + feature.code_high) / 2
        factor = noise_factor(epsilon, self.beta, self.gamma)
        beta = max(self.beta - SLACK, self.beta / 2)
        z = (np.sort(codes).astype(np.float64) - middle) / half
        mean, variance = (float(z.mean()), float(z.var())) if len(z) else (0.0, 0.0)
        smallest, largest = (float(z[0]), float(z[-1])) if len(z) else (0.0, 0.0)
        spreads = mean_sensitivity(len(z), smallest, largest, -1.0, 1.0, beta), variance_sensitivity(z, -1.0, 1.0, beta)
        return (mean, factor * (spreads[0] + ROUNDING)), (variance, factor * (spreads[1] + ROUNDING))

    def noisy(self, value: float, scale: float, coins: Coins, count: int = 1) -> npt.NDArray[np.float64]:
        """The value on the public grid with exact noise of that scale, rounded to the grid; `count` times.

        The caller publishes it held to the bounds, which are far inside the limit at which the sampler holds its noise: what
        is published is the same as without that limit.
        """
        samples = heavy_tails.admissible(coins, self.gamma, Fraction(scale * (1 + SLACK)) * GRID, count)
        return np.array([(math.floor(value * GRID + 0.5) + int(noise)) / GRID for noise in samples])

    @cached_property
    def query(self) -> Query:
        """The sums to which `global` adds noise, each kind with its share of the budget."""
        number, table = self.budgets
        shares: tuple[tuple[BlockKind, Fraction], ...] = (
            ("sum", number),
            ("square", number),
            ("n", table),
            ("count", table),
            ("class_count", table),
        )
        return Query(self.codebook, self.rows_per_unit, shares)

    def _fit_global(self, block: CodedRows, coins: Coins, alpha: float) -> Parameters:
        query = self.query
        laplace = make("discrete_laplace", query.sensitivity, self.epsilon)
        exact = count_block(Layout(self.codebook), block)
        noisy = query.restore(laplace.release(query.apply(exact.vector), coins))
        layout = query.layout

        def part(kind: Any, name: str | None) -> npt.NDArray[np.float64]:
            return noisy[layout.slice(layout.require(kind, name))].astype(np.float64)

        counts = part("class_count", None)
        terms: dict[str, Term] = {}
        for feature in self.codebook.features:
            if not isinstance(feature, Numeric) or feature.bins is not None:
                terms[feature.name] = _histogram(part("count", feature.name).reshape(len(counts), -1), alpha)
                continue
            n = np.maximum(part("n", feature.name) if feature.optional else counts, 1.0)
            mean = np.clip(part("sum", feature.name) / n, feature.code_low, feature.code_high)
            variance = part("square", feature.name) / n - mean**2
            half = (feature.width - 1) / 2
            variance = np.clip(variance, max(1 / 12, half * half / 1000), max(1 / 12, half * half))
            terms[feature.name] = Gaussian((mean + feature.centre) / feature.scale, variance / feature.scale**2)
        return Parameters(self.codebook, _log_prior(counts), terms)


def _histogram(cells: npt.NDArray[Any], alpha: float) -> Histogram:
    smoothed = np.maximum(cells, 0) + alpha
    return Histogram(np.log(smoothed / smoothed.sum(axis=1, keepdims=True)))


def _log_prior(counts: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    positive = np.maximum(counts, 1.0)
    return np.asarray(np.log(positive / positive.sum()))


def plan_parameters(
    codebook: Codebook,
    *,
    epsilon: Number,
    mechanism: Literal["smooth", "global"] = "smooth",
    allocation: tuple[int, int] = (2, 1),
    gamma: Number = 2,
    rows_per_unit: int = 1,
) -> ParameterPlan:
    """The plan of a per-parameter release."""
    codebook.require_one_value(f"the mechanism {mechanism}")
    exact = budget_floor(epsilon)
    return ParameterPlan(codebook, exact, mechanism, allocation, heavy_tails.require_gamma(gamma), rows_per_unit)
