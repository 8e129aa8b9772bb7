"""Exact samplers of integer noise. Parameters are rational, randomness is a stream of uniform bits, arithmetic is on integers.

Given uniform bits every law here is exact: no tail is cut, no probability rounded (see `exact_events`). Proofs are in
PROOFS.md under the names in brackets. Time depends on the noise drawn, never on the data it is added to.
"""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.dp.noise.exact_events import (
    Bools,
    Digits,
    Integers,
    Number,
    below,
    exponential,
    fraction,
    happens,
    logistic,
    odds,
    positive,
    rational,
    survives,
    twice_logistic,
)
from blindbayes.errors import ConfigError

MAX_SCALE = 1 << 48
MAX_MEAN = 1 << 32
_CHUNK = 1 << 16
_TAIL = 45  # bits of a geometric are drawn up to P(rest) <= e^-45; the rest is drawn too, when it comes


def bernoulli(coins: Coins, p: Number, size: int) -> Bools:
    """`size` events of probability p, 0 <= p <= 1."""
    return happens(coins, [rational(fraction(p, "p"))], size).reshape(size)


def geometric(coins: Coins, rate: Number, size: int) -> Integers:
    """P(k) proportional to e**-(rate k), k = 0, 1, ...  [geometric]

    The binary digits of a geometric variable are independent: digit j is one with odds e^-(2^j rate). Above the last digit
    drawn, P(k >= 2^J) = e^-(2^J rate), and the law is memoryless.
    """
    return _geometric(coins, _rate(rate), size)


def _rate(rate: Number) -> Fraction:
    exact = positive(rate, "rate")
    if exact * MAX_SCALE < 1:
        raise ConfigError("noise of scale above 2**48: coarsen the grid of the statistics")
    return exact


def _bit_count(rate: Fraction) -> int:
    return max(0, (int(_TAIL / rate)).bit_length())


def _geometric(coins: Coins, rate: Fraction, size: int) -> Integers:
    top = _bit_count(rate)
    chances: list[Digits] = [logistic(rate * (1 << bit)) for bit in range(top)]
    chances.append(exponential(rate * (1 << top)))
    out = np.zeros(size, dtype=np.int64)
    for start in range(0, size, _CHUNK):
        part = out[start : start + _CHUNK]
        digits = happens(coins, chances, part.size)
        for bit in range(top):
            part += digits[bit].astype(np.int64) << bit
        beyond = np.flatnonzero(digits[top])
        if beyond.size:
            part[beyond] = (1 << top) + _geometric(coins, rate, beyond.size)
    return out


def discrete_laplace(coins: Coins, scale: Number, size: int) -> Integers:
    """P(x) proportional to e**-(|x| / scale) on the integers.  [discrete-laplace]"""
    rate = _rate(1 / positive(scale, "scale"))
    nonzero, negative = happens(coins, [twice_logistic(rate), rational(Fraction(1, 2))], size)
    out = 1 + _geometric(coins, rate, size)
    out[~nonzero] = 0
    np.negative(out, out=out, where=negative)
    return out


def discrete_gaussian(coins: Coins, variance: Number, size: int) -> Integers:
    """P(x) proportional to e**-(x**2 / (2 variance)) on the integers.  [discrete-gaussian]

    Rejection from the discrete Laplace of scale 2 variance / (2m + 1), m = floor(sqrt(variance)): with d = |x| - m the ratio
    of the two laws is e^-(d (d - 1) / 2 / variance) up to a constant, and d (d - 1) / 2 is an integer >= 0.
    """
    exact = positive(variance, "variance")
    middle = isqrt(exact.numerator // exact.denominator)
    scale = 2 * exact / (2 * middle + 1)
    out = np.empty(size, dtype=np.int64)
    filled = 0
    while filled < size:
        draws = discrete_laplace(coins, scale, min(_CHUNK, (size - filled) * 3 // 2 + 8))
        d = np.abs(draws) - middle
        if int(np.abs(d).max()) < 1 << 31:
            accepted = draws[survives(coins, d * (d - 1) // 2, 1 / exact)]
        else:  # squares beyond 64 bits: Python's integers
            wide = d.astype(object)
            accepted = draws[survives(coins, wide * (wide - 1) // 2, 1 / exact)]
        accepted = accepted[: size - filled]
        out[filled : filled + accepted.size] = accepted
        filled += accepted.size
    return out


class _Table(NamedTuple):
    """Enclosure of a distribution function: low[i] <= 2**bits P(X <= first + i) <= high[i]."""

    first: int
    low: list[int]
    high: list[int]


@lru_cache(maxsize=64)
def _poisson_table(mean: Fraction, bits: int) -> _Table:
    """Weights grow and fall from the mode by exact ratios with directed rounding; the tails are bounded by geometric series."""
    mode = mean.numerator // mean.denominator
    work = bits + 48
    n, d = mean.numerator, mean.denominator
    up: list[tuple[int, int]] = []
    low = high = 1 << work
    k = mode
    while high > 1 << 16:
        k += 1
        low, high = low * n // (d * k), -(-high * n // (d * k))
        up.append((low, high))
    above = -(-high * n // (d * (k + 1) - n))  # the ratio of later weights is at most mean / (k + 1)
    down: list[tuple[int, int]] = []
    low = high = 1 << work
    k = mode
    while k > 0 and high > 1 << 16:
        low, high = low * d * k // n, -(-high * d * k // n)
        k -= 1
        down.append((low, high))
    beneath = high * k  # each of the k weights left is at most the last one
    weights = [*reversed(down), (1 << work, 1 << work), *up]
    total_low = sum(low for low, _ in weights)
    total_high = sum(high for _, high in weights) + above + beneath
    first, lows, highs = k, [], []
    sum_low, sum_high = 0, beneath
    for weight_low, weight_high in weights:
        sum_low, sum_high = sum_low + weight_low, sum_high + weight_high
        lows.append((sum_low << bits) // total_high)
        highs.append(min(1 << bits, -(-(sum_high << bits) // total_low)))
    if first > 0:  # one more entry stands for everything beneath
        lows.insert(0, 0)
        highs.insert(0, -(-(beneath << bits) // total_low))
        first -= 1
    return _Table(first, lows, highs)


@lru_cache(maxsize=64)
def _poisson_words(mean: Fraction) -> tuple[int, npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    table = _poisson_table(mean, 64)
    top = (1 << 64) - 1
    return table.first, np.array(table.low, dtype=np.uint64), np.array([min(top, h) for h in table.high], dtype=np.uint64)


def poisson(coins: Coins, mean: Number, size: int) -> Integers:
    """P(k) = e**-mean mean**k / k!.  [poisson]  Inversion: 64 bits of a uniform real, more where they leave a doubt."""
    exact = fraction(mean, "mean")
    if exact == 0:
        return np.zeros(size, dtype=np.int64)
    if not 0 < exact <= MAX_MEAN:
        raise ConfigError("a Poisson mean lies between 0 and 2**32: coarsen the grid of the statistics")
    first, low, high = _poisson_words(exact)
    draws = coins.words(size)
    late, early = np.searchsorted(low, draws, side="right"), np.searchsorted(high, draws, side="right")
    out = first + late.astype(np.int64)
    doubtful = (late != early) | (late == low.size) | ((late == 0) & (first > 0))
    for index in np.flatnonzero(doubtful):
        out[index] = _poisson_doubt(coins, exact, int(draws[index]))
    return out


def _poisson_doubt(coins: Coins, mean: Fraction, word: int) -> int:
    bits = 64
    while True:
        bits += 64
        word = word << 64 | coins.bits(64)
        table = _poisson_table(mean, bits)
        late, early = bisect_right(table.low, word), bisect_right(table.high, word)
        if late == early < len(table.low) and (late > 0 or table.first == 0):
            return table.first + late


def skellam(coins: Coins, variance: Number, size: int) -> Integers:
    """Draw differences of two Poisson variables of mean variance / 2; shares add up to a Skellam variable."""
    half = fraction(variance, "variance") / 2
    return poisson(coins, half, size) - poisson(coins, half, size)


def negative_binomial(coins: Coins, rate: Number, parts: int, size: int, *, top: int | None = None) -> Integers:
    """One of `parts` shares of a geometric variable: `parts` independent ones add up to exactly `geometric(rate)`.  [polya]

    Such a share is the sum, over k = 1, 2, ..., of k times a Poisson variable of mean e^-(k rate) / (parts k). Points of
    rate 1/parts fall into each octave [2^j, 2^(j+1)), uniformly; a point at k stays with probability (2^j / k) e^-(k rate).
    Octaves from 2^top on are drawn together: their points are dominated by a geometric sequence of rates.
    """
    exact = _rate(rate)
    if parts < 1:
        raise ConfigError("the number of parts must be at least one")
    if top is None:
        top = _bit_count(exact)
    out = np.zeros(size, dtype=np.int64)
    for octave in range(top):
        _add_points(coins, out, np.repeat(np.arange(size), poisson(coins, Fraction(1, parts), size)), octave, exact)
    # Octave top + i keeps a point with probability at most b^(1+i), b = e^-(2^top rate): all of them together are drawn as
    # points of rate c / parts, c a power of two not below the sum b / (1 - b); nearly always there are no such points.
    reach = exact * (1 << top)
    bound = _power_above(reach)
    for owner in np.repeat(np.arange(size), poisson(coins, bound / parts, size)):
        if happens(coins, [odds(reach, bound)], 1)[0, 0]:
            out[owner] += _far_point(coins, top, exact, reach)
    return out


def _add_points(coins: Coins, out: Integers, owners: npt.NDArray[np.intp], octave: int, rate: Fraction) -> None:
    """Points of one octave: k uniform in [2^octave, 2^(octave+1)), kept with probability (2^octave / k) e^-(k rate)."""
    k = (1 << octave) + below(coins, np.full(owners.size, 1 << octave, dtype=np.int64))
    accepted = below(coins, k) < 1 << octave
    owners, k = owners[accepted], k[accepted]
    accepted = survives(coins, k, rate)
    np.add.at(out, owners[accepted], k[accepted])


def _power_above(reach: Fraction) -> Fraction:
    """Return a power of two that is at least 1 / (e^reach - 1): e^x - 1 >= x, and e^x - 1 >= 2^(x - 1) for x >= 1."""
    whole = reach.numerator // reach.denominator
    if whole >= 1:
        return Fraction(1, 1 << (whole - 1))
    return Fraction(1 << (-(-reach.denominator // reach.numerator)).bit_length())


def _far_point(coins: Coins, top: int, rate: Fraction, reach: Fraction) -> int:
    """Draw a point of octave top + i, i with weight b^i, or 0; b^(1+i) of its probability to stay is spent already."""
    i = int(_geometric(coins, reach, 1)[0])
    octave = top + i
    k = (1 << octave) + coins.below(1 << octave)
    if coins.below(k) >= 1 << octave:
        return 0
    spent = (1 + i) << top  # never above 2^octave <= k
    return k if survives(coins, np.array([k - spent], dtype=object), rate)[0] else 0


def polya_share(coins: Coins, scale: Number, honest: int, size: int) -> Integers:
    """One party's share of discrete Laplace noise: those of `honest` parties add up to exactly one of that scale.  [polya]"""
    rate = 1 / positive(scale, "scale")
    return negative_binomial(coins, rate, honest, size) - negative_binomial(coins, rate, honest, size)
