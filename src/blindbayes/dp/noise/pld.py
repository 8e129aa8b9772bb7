"""Privacy loss distributions of integer noise, from its probability mass function, for shifts in several cells together.

Used to calibrate Skellam noise, and for the law of a sum of shares. All roundings are conservative: losses up to the next grid
point, the mass outside the table and where the shifted law has no mass counted as a certain distinction, and a bound on the
error of the Fourier transform added to delta.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from blindbayes._lazy import lazy
from blindbayes.errors import ConfigError

fft = lazy("scipy.fft")
special = lazy("scipy.special")

_MAX_REACH = 1 << 23
Floats = npt.NDArray[np.float64]
FOURIER_ERROR = 1e-11
SMALLEST_DELTA = 1e-9
"""Below this delta the table is not used: the transform's error would dominate."""
_MIN_VARIANCE = 2.0**-30
_GRID = 400  # grid points per (epsilon / count): the rounding costs at most count * grid = epsilon / 400


def skellam_table(variance: float) -> Floats:
    """Return P(k) for k = -K..K of the difference of two Poisson variables of mean `variance` / 2; the tail is below 1e-15."""
    reach = _require_reach(tail_skellam(variance, 1e-15))
    half = special.ive(np.arange(reach + 1), variance)
    return np.concatenate([half[:0:-1], half])


def _require_reach(reach: float) -> int:
    if reach > _MAX_REACH:
        raise ConfigError("the noise is too wide to be tabulated")
    return int(reach) + 2


def tail_skellam(variance: float, probability: float) -> float:
    """Return B with P(|X| > B) <= probability (Bernstein's bound for a sum of jumps of size 1)."""
    log = math.log(2 / probability)
    return log / 3 + math.sqrt(log * log / 9 + 2 * variance * log)


def binomial_table(shape: float, decay: float) -> Floats:
    """Return P(k), k = -K..K, of X - Y with X, Y independent NegativeBinomial(shape, exp(-decay)); the tail is below 1e-14."""
    ratio = math.exp(-decay)
    reach = _require_reach(2 / decay * (shape * math.log(2) + math.log(1e15)))
    k = np.arange(reach + 1)
    log = special.gammaln(k + shape) - special.gammaln(shape) - special.gammaln(k + 1)
    one = np.exp(log + shape * math.log1p(-ratio) - decay * k)
    size = fft.next_fast_len(4 * reach + 3)
    spectrum = fft.rfft(one, size)
    both = fft.irfft(spectrum * spectrum.conj(), size)
    table = np.concatenate([both[-reach:], both[: reach + 1]])
    # The transform's error would look like a free choice of loss where the true mass is far below it.
    table[table < 1e-13] = 0.0
    return np.asarray((table + table[::-1]) / 2)


def composed_delta(table: Floats, shift: int, count: int, epsilon: float) -> float:
    """Return an upper bound on delta at `epsilon` when `count` independent cells with noise `table` are each moved by `shift`.

    One direction suffices for symmetric noise.
    """
    p, q = table[shift:], table[: len(table) - shift]
    both = (p > 0) & (q > 0)
    if not both.any():  # every outcome distinguishes the two, or the table cannot be worked out
        return 1.0
    certain = 1.0 - float(p[both].sum())
    losses = np.log(p[both]) - np.log(q[both])
    grid = epsilon / (_GRID * count)
    steps = np.ceil(losses / grid - 1e-9).astype(np.int64)
    low, high = int(steps.min()), int(steps.max())
    size = fft.next_fast_len(count * (high - low) + 1)
    masses = np.bincount(steps - low, weights=p[both], minlength=size)
    if count > 1:
        masses = np.maximum(fft.irfft(fft.rfft(masses) ** count, size), 0.0)
    total = grid * (np.arange(size) + count * low)
    over = total > epsilon
    delta = float((masses[over] * -np.expm1(epsilon - total[over])).sum())
    return delta + 1 - (1 - max(certain, 0.0)) ** count + (FOURIER_ERROR if count > 1 else 0.0)


def renyi_bound(variance: float, l1: float, l2_squared: float, order: int) -> float:
    """Bound the Renyi divergence of Skellam noise under any integer move of these norms (Agarwal, Kairouz and Liu 2021).

    Proved there for one cell; divergences of independent cells add, and a sum of minima is at most the minimum of the sums.
    """
    extra = min(((2 * order - 1) * l2_squared + 6 * l1) / (4 * variance**2), 3 * l1 / (2 * variance))
    return order * l2_squared / (2 * variance) + extra


def renyi_log_delta(variance: float, l1: float, l2_squared: float, epsilon: float) -> float:
    """Return ln delta of Skellam noise by `renyi_bound` and Canonne, Kamath and Steinke (2020), Proposition 12."""
    best = 0.0
    for order in [*range(2, 64), *range(64, 1024, 8), *range(1024, 65536, 512)]:
        divergence = renyi_bound(variance, l1, l2_squared, order)
        log = (order - 1) * (divergence - epsilon) + (order - 1) * math.log1p(-1 / order) - math.log(order)
        best = min(best, log)
    return best


@lru_cache(maxsize=256)
def skellam_variance(count: int, reach: int, epsilon: float, delta: float) -> float:
    """Return the smallest variance (to 0.2%) such that moving `count` cells by at most `reach` each is (epsilon, delta)-DP.

    For reach 1 the loss is computed from the law itself, for a move by 1 in every one of the cells: Skellam noise is
    log-concave, so a smaller move in any of them is dominated by that one (also under composition). A party's `reach` rows
    may be spread over cells in many ways, so there, and for very small delta, the Renyi bound is used, which holds for
    every such move.
    """

    def is_private(variance: float) -> bool:
        if reach == 1 and delta >= SMALLEST_DELTA:
            return composed_delta(skellam_table(variance), 1, count, epsilon) <= delta
        # In logarithms: a delta below the smallest float would count as reached by any noise at all.
        return renyi_log_delta(variance, count * reach, count * reach * reach, epsilon) <= math.log(delta)

    high = 2 * (math.log(1.25) - math.log(delta)) * count * reach * reach / epsilon**2 + count * reach
    while not is_private(high):
        high *= 2
    low = high / 64
    while is_private(low):
        high, low = low, low / 4
        if high < _MIN_VARIANCE:  # hardly any noise at all: nothing to search for
            return high
    while high - low > 0.002 * high:
        middle = math.sqrt(low * high)
        if is_private(middle):
            high = middle
        else:
            low = middle
    return high
