"""Exact samplers of the admissible noises of smooth sensitivity, rounded to a public grid.

The density is proportional to 1 / (1 + |z|**gamma), gamma >= 2 rational; gamma = 2 is Cauchy noise. Ratio of uniforms: if
(u, v) is uniform where u^2 (1 + |v/u|^gamma) <= 1, then v/u has this density; the region lies in (0, 1] x [-1, 1]. With
gamma = p/q the condition is |v|^p u^2q <= u^p (1 - u^2)^q, a polynomial one. u and v are uniform reals of which 64 bits are
drawn at a time, until both the condition and the rounded ratio are certain.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.dp.noise.exact_events import Integers, Number, positive
from blindbayes.errors import ConfigError

LIMIT = 1 << 62
_MAX_POWER = 64


def cauchy(coins: Coins, scale: Number, size: int) -> Integers:
    """round(scale Z), Z standard Cauchy, halves up; held within +-2**62.  [heavy-tails]"""
    return admissible(coins, 2, scale, size)


def admissible(coins: Coins, gamma: Number, scale: Number, size: int) -> Integers:
    """round(scale Z) with Z of density proportional to 1 / (1 + |z|**gamma), halves up; held within +-2**62.  [heavy-tails]

    Rounding to the grid and holding the value within limits are functions of the exact noise alone.
    """
    exponent, exact = require_gamma(gamma), positive(scale, "scale")
    return np.array([_one(coins, exponent, exact) for _ in range(size)], dtype=np.int64)


def require_gamma(gamma: Number) -> Fraction:
    """Return gamma exactly; raise unless there is a sampler for it."""
    exact = positive(gamma, "gamma")
    if exact < 2 or exact.numerator > _MAX_POWER or exact.denominator > _MAX_POWER:
        raise ConfigError(f"gamma must be at least 2, a fraction of integers up to {_MAX_POWER}")
    return exact


def _one(coins: Coins, gamma: Fraction, scale: Fraction) -> int:
    while True:
        bits, u, v = 64, coins.bits(64), coins.bits(64)  # the reals lie in [u, u+1] / 2^bits and [v, v+1] / 2^bits
        negative = coins.bits(1) == 1
        while True:
            inside = _inside(gamma, u, v, bits)
            if inside is False:
                break
            if inside and (value := _rounded(scale, u, v, negative)) is not None:
                return max(-LIMIT, min(LIMIT, value))
            bits, u, v = bits + 64, u << 64 | coins.bits(64), v << 64 | coins.bits(64)


def _inside(gamma: Fraction, u: int, v: int, bits: int) -> bool | None:
    """Return whether v^p u^(2q-s) <= u^(p-s) (1-u^2)^q, s = min(p, 2q), in the whole square; None if undecided."""
    p, q = gamma.numerator, gamma.denominator
    left, right = 2 * q - min(p, 2 * q), p - min(p, 2 * q)
    one = 1 << 2 * bits
    # both sides in units of 2^-bits to the power p + left on the left, right + 2q on the right: brought to the larger one
    scale_left, scale_right = max(0, right + 2 * q - p - left) * bits, max(0, p + left - right - 2 * q) * bits
    u1, v1 = u + 1, v + 1
    if v1**p * u1**left << scale_left <= u**right * (one - u1 * u1) ** q << scale_right:
        return True
    if v**p * u**left << scale_left > u1**right * (one - u * u) ** q << scale_right:
        return False
    return None


def _rounded(scale: Fraction, u: int, v: int, negative: bool) -> int | None:
    """floor(+-scale v/u + 1/2) where it is the same on the whole square."""
    if u == 0:
        return None
    sign = -1 if negative else 1
    ends = ((scale.numerator * v, scale.denominator * (u + 1)), (scale.numerator * (v + 1), scale.denominator * u))
    near, far = ((2 * sign * above + under) // (2 * under) for above, under in ends)  # whole numbers: exact, and quick
    return near if near == far else None
