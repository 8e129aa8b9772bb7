"""Privacy cost of discrete Gaussian noise, and the noise that a given cost requires.  [gaussian-price]

One record moves at most one cell in each of m blocks, by at most s. The pair (noise, noise moved by s in m cells) dominates,
and its privacy loss depends only on the sum X of the m noises: delta(eps) = P(X > t) - e^eps P(X > t + m s), with
t = eps v / s - m s / 2 and v the variance in a cell. For v >= 4 the law of X is pointwise within a factor 1 +- 4 m e^(-pi^2 v)
of one discrete Gaussian of variance m v, whose tails are summed, or enclosed between integrals where they are long.

Where only the length of the change is known, noise of variance v on every cell is, up to a factor of 1 +- 1e-24, continuous
Gaussian noise of variance v - 4, rounded at random: its delta is that of continuous noise.  [gaussian-length]
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

from blindbayes._lazy import lazy
from blindbayes.errors import ConfigError

special = lazy("scipy.special")

SMALLEST_VARIANCE = 4
ROUNDING = 4
"""The variance of a random rounding to whole numbers that leaves no trace of it."""
_SUM_UP_TO = 1 << 12  # standard deviations up to this are summed term by term
_SLACK = 1e-10  # relative, for rounding errors of float64 sums of positive terms


def _tail(start: float, variance: float) -> tuple[float, float]:
    """Lower and upper bounds on P(X >= n), n = the first integer above `start`, X discrete Gaussian of variance >= 4.

    Its weights add up to sqrt(2 pi variance) times 1 + 2 e^(-2 pi^2 variance) + ..., which is 1 to 33 digits.
    """
    first = math.floor(start) + 1
    deviation = math.sqrt(variance)
    if first < 1:
        low, high = _tail(-first, variance)  # P(X >= n) = 1 - P(X >= 1 - n)
        return 1 - high, 1 - low
    if deviation <= _SUM_UP_TO:
        # What lies 12 deviations beyond the first term is below e^-72 of it.
        x = np.arange(first, first + math.ceil(12 * deviation) + 2, dtype=np.float64)
        tail = float(np.exp(-x * x / (2 * variance)).sum()) / math.sqrt(2 * math.pi * variance)
        return tail * (1 - _SLACK), tail * (1 + _SLACK)
    # The sum over x >= n of a falling function lies between its integrals from n and from n - 1.
    low = math.exp(float(special.log_ndtr(-first / deviation)))
    high = math.exp(float(special.log_ndtr(-(first - 1) / deviation)))
    return low * (1 - _SLACK), high * (1 + _SLACK)


def delta_of(variance: Fraction, epsilon: Fraction, blocks: int, shift: int) -> float:
    """Return an upper bound on delta at `epsilon` when each of `blocks` cells moves by at most `shift`."""
    if variance < SMALLEST_VARIANCE:
        raise ConfigError("the price of discrete Gaussian noise is computed for variances of at least 4")
    total = float(blocks * variance)
    start = float(epsilon * variance / shift - Fraction(blocks * shift, 2))
    error = 4 * blocks * math.exp(-(math.pi**2) * min(float(variance), 70.0)) + _SLACK
    near, far = _tail(start, total)[1], _tail(start + blocks * shift, total)[0]
    return max(0.0, min(1.0, near * (1 + error) - math.exp(float(epsilon)) * far * (1 - error)))


def length_delta(length: float, epsilon: float) -> float:
    """Return an upper bound on delta at `epsilon` of a change of this length, in deviations of the noise.  [gaussian-length]

    It holds for continuous Gaussian noise (Balle and Wang 2018) and for discrete noise of a variance larger by `ROUNDING`.
    """
    near, far = (float(special.log_ndtr(-epsilon / length + side * length / 2)) for side in (1, -1))
    return max(0.0, math.exp(near) * (1 + _SLACK) - math.exp(min(epsilon + far, 0.0)) * (1 - _SLACK))


@lru_cache(maxsize=256)
def length_for(epsilon: float, delta: float) -> float:
    """Return the longest change, in deviations, that costs at most (epsilon, delta)."""
    low, high = 0.0, 1.0
    while length_delta(high, epsilon) <= delta:
        low, high = high, 2 * high
    while low == 0.0 or high - low > low * 1e-6:
        middle = (low + high) / 2
        if middle == 0.0:
            raise ConfigError("delta is too small for Gaussian noise: take a larger one, or 0 for noise that needs none")
        low, high = (middle, high) if length_delta(middle, epsilon) <= delta else (low, middle)
    return low


def rho_of(variance: Fraction, blocks: int, shift: int) -> Fraction:
    """Return the zCDP (Canonne, Kamath, Steinke 2020): the squared L2 change over twice the variance."""
    return Fraction(blocks * shift * shift) / (2 * variance)


def mu_of(variance: Fraction | int, rho: Fraction | float) -> float | None:
    """Return the change in deviations of continuous noise that costs no less, above the factors of [gaussian-length]."""
    if variance <= ROUNDING:
        return None
    return math.sqrt(2 * float(rho) * float(Fraction(variance) / (variance - ROUNDING))) * (1 + 1e-6)


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Return delta at `epsilon` of a rho-zCDP mechanism: min over a > 1 of e^((a-1)(a rho - eps)) / (a-1) (1 - 1/a)^a.

    Canonne, Kamath and Steinke 2020, Proposition 12. The minimum is searched for; any a gives a valid bound.
    """

    def log_delta(order: float) -> float:
        return (order - 1) * (order * rho - epsilon) - math.log(order - 1) + order * math.log1p(-1 / order)

    low, high = 1 + 1e-9, max(2.0, 2 * (epsilon / rho + 1))
    for _ in range(200):  # the exponent is convex in the order
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, b) if log_delta(a) < log_delta(b) else (a, high)
    return min(1.0, math.exp(min(0.0, log_delta((low + high) / 2))))


@lru_cache(maxsize=1024)
def variance_for(epsilon: Fraction, delta: float, blocks: int, shift: int, *, cells: bool = True) -> Fraction:
    """Return the smallest variance, on a grid of 1/4096 of its size, that costs at most (epsilon, delta).

    `cells` says that a unit moves at most one cell in each block (one record). Otherwise (several records of one person) only
    the squared change, blocks * shift^2, is known, and its length or the zCDP bound is used, whichever is less.
    """

    def fits(variance: Fraction) -> bool:
        if cells and variance >= SMALLEST_VARIANCE:
            return delta_of(variance, epsilon, blocks, shift) <= delta
        length = math.sqrt(blocks * shift * shift / (variance - ROUNDING)) if variance > ROUNDING else math.inf
        if length_delta(length * (1 + _SLACK), float(epsilon) * (1 - _SLACK)) <= delta:
            return True
        return zcdp_delta(float(rho_of(variance, blocks, shift)) * (1 + _SLACK), float(epsilon)) <= delta

    def grid(value: Fraction) -> Fraction:
        unit = Fraction(2) ** (math.floor(math.log2(value)) - 12)
        return math.ceil(value / unit) * unit

    high = Fraction(1)
    while not fits(high):
        high *= 2
    low = high / 2
    while low > Fraction(1, 1 << 20) and fits(low):
        low /= 2
    high = low * 2 if low * 2 < high else high
    while high - low > high / 8192:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    variance = grid(high)
    while not fits(variance):  # delta falls in small steps, not smoothly: go up until it fits
        variance = grid(variance * Fraction(4097, 4096))
    return variance
