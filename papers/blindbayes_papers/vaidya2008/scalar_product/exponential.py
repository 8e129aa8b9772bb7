"""A garbled exp, for Eqs 8 and 9: e^share of modular shares has no meaning, so exp is taken inside a circuit.

`exp` returns e^y in fixed point, cut off at 2^HEIGHT and flushed to 0 below 2^-FRACTION. y = (t - FRACTION) ln 2 with t >= 0;
2^t is 2^floor(t) times a quadratic in the rest of t on each of 256 segments.
"""

from __future__ import annotations

import decimal
from functools import cache

import numpy as np

from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.circuits import Number
from blindbayes.crypto.garbling.garbling import Gates
from blindbayes_papers.vaidya2008.scalar_product.logarithm import FRACTION

HEIGHT = 32
"""e^y is capped just below 2^HEIGHT."""
OUT_BITS = FRACTION + HEIGHT
IN_BITS = FRACTION + 10
"""Signed width of y: |y| < 512."""
EXP_ERROR = 2.0**-26
"""Bound on the relative error, besides one unit of 2^-FRACTION."""

_INDEX = 8
_INNER = 30  # fraction bits of the mantissa
_SLOPE = _INNER - _INDEX
_BEND = _INNER - 2 * _INDEX
_LOG2E_BITS = 36
_T_BITS = (OUT_BITS - 1).bit_length()  # 6: whole bits of t


def exp(g: Gates, y: Number) -> Number:
    """min(e^y, 2^HEIGHT - 2^-FRACTION) * 2^FRACTION of a signed y of IN_BITS with FRACTION fraction bits."""
    lanes = c.lanes_of(y)
    bias, log2e = _constants()
    signed = np.concatenate([y, y[-1:]])
    moved = c.add(g, signed, c.public(g, bias, len(signed), lanes), bits=len(signed))
    below = moved[-1]  # y < -FRACTION ln 2
    moved = moved[:-1]
    t = c.times(g, moved, log2e, len(moved) + _LOG2E_BITS + 1)[_LOG2E_BITS:]  # FRACTION fraction bits
    whole, rest = t[FRACTION:], t[FRACTION - _INNER : FRACTION]
    over = g.not_(c.is_zero(g, whole[_T_BITS:]))
    mantissa = _mantissa(g, rest)
    # The mantissa (1 + _INNER bits, top bit 1) times 2^(whole - _INNER).
    number = c.widen(mantissa, OUT_BITS + _INNER)
    for bit in range(_T_BITS):
        number = c.select(g, whole[bit], c.shift_up(number, 1 << bit)[: len(number)], number)
    out = number[_INNER:]
    shape = out.shape
    out = g.and_(out, np.broadcast_to(g.not_(below)[None], shape))
    over = g.and_(over, g.not_(below))
    ones = c.public(g, (1 << OUT_BITS) - 1, OUT_BITS, lanes)
    return c.select(g, over, ones, out)


def _mantissa(g: Gates, rest: Number) -> Number:
    """2^rest for a rest in [0, 1), with _INNER fraction bits."""
    offset, slope, bend = _tables()
    hot = c.one_hot(g, rest[len(rest) - _INDEX :])
    r = rest[: len(rest) - _INDEX]  # below 2^-8, in units of 2^-30
    steep = c.multiply(g, c.look_up(hot, slope, _SLOPE + 1), r)[_SLOPE:]
    head = r[len(r) - _BEND :]  # in units of 2^-(8 + _BEND)
    squared = c.square(g, head)[2 * (_INDEX + _BEND) - _INNER :]
    bent = c.multiply(g, c.look_up(hot, bend, _BEND), squared)[_BEND:]
    return c.add_many(g, [(0, c.look_up(hot, offset, _INNER + 1)), (0, steep), (0, bent)], _INNER + 1)


@cache
def _constants() -> tuple[int, int]:
    with decimal.localcontext(decimal.Context(prec=60)):
        ln2 = decimal.Decimal(2).ln()
        return int((ln2 * FRACTION * 2**FRACTION).to_integral_value()), int((2**_LOG2E_BITS / ln2).to_integral_value())


@cache
def _tables() -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    offset, slope, bend = [], [], []
    with decimal.localcontext(decimal.Context(prec=60)):
        ln2 = decimal.Decimal(2).ln()
        for segment in range(1 << _INDEX):
            start = decimal.Decimal(2) ** (decimal.Decimal(segment) / (1 << _INDEX))
            offset.append(int((start * 2**_INNER).to_integral_value()))
            slope.append(int((start * ln2 * 2**_SLOPE).to_integral_value()))
            bend.append(int((start * ln2 * ln2 / 2 * 2**_BEND).to_integral_value()))
    return tuple(offset), tuple(slope), tuple(bend)
