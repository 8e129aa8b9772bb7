"""Circuit of the natural logarithm: piecewise quadratics of the normal form, with a proven error. See `circuits`."""

from __future__ import annotations

import decimal
import functools

import numpy as np

from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.garbling import Gates
from blindbayes.errors import LocalProtocolError

LN_MAX_FRACTION = 24
_SHORT = 7  # bits of a number for which a table of 64 entries suffices
_GUARD = 4


def ln_error(fraction: int) -> float:
    """Return a bound on the error of `ln` / 2^fraction for every x >= 1."""
    return 2.0 ** (1 - fraction)


def ln_bits(bits: int, fraction: int) -> int:
    """Return the width of the result of `ln` for a number of `bits` bits."""
    return fraction + max(1, (bits * 45426 // 65536 + 1).bit_length())  # 45426/65536 < ln 2 < the next step


def ln(g: Gates, number: c.Number, fraction: int) -> c.Number:
    """Return the fixed-point ln of an integer >= 1, with `fraction` fraction bits, within `ln_error`.

    In the normal form x = 2^e m, 1 <= m < 2, the top 7 bits of m - 1 (6 of a short number) select a quadratic in the rest t,
    c0 + c1 t - c2 t^2, with error (2^-7)^3 / 96. Rows of the products are truncated below 2^-(fraction + 4), and the offsets
    contain half of the largest truncation error. Decimal arithmetic makes the circuit equal on all machines.
    """
    if not 8 <= fraction <= LN_MAX_FRACTION:
        raise LocalProtocolError(f"ln must have 8 to {LN_MAX_FRACTION} fraction bits")
    inner, index = fraction + _GUARD, 6 if len(number) <= _SHORT else 7
    exponent_top = len(number) - 1
    width = ln_bits(len(number), fraction) + _GUARD
    if len(number) < index + 1:
        number = c.shift_up(number, index + 1 - len(number))
    mantissa, shift = c.normalise(g, number)
    rest = mantissa[:-1]
    hot = c.one_hot(g, rest[len(rest) - index :])
    rest = rest[: len(rest) - index]
    t = rest[max(0, len(rest) - (inner - index)) :]  # in units of 2^-inner; lower bits are dropped
    bend_fraction = inner - 2 * index
    offset, slope, bend = _ln_tables(fraction, index, len(t))
    terms: list[tuple[int, c.Number]] = [(0, c.look_up(hot, offset, inner))]
    if len(t):
        scale = index + len(t)  # fraction bits of t
        rising = c.look_up(hot, slope, inner - index + 1)
        terms += _cut_products(g, rising, inner - index, t, scale, inner)
    if len(t) and bend_fraction > 0:
        has = min(inner, 2 * scale)
        squared = _cut_square(g, t, scale, has)[: has - 2 * index]
        bent = c.add_many(g, _cut_products(g, c.look_up(hot, bend, bend_fraction), bend_fraction, squared, has, inner), inner)
        # subtract the quadratic term: add its complement and 1, modulo 2^width
        terms.append((0, g.not_(c.widen(bent, width))))
        terms.append((0, c.public(g, 1, 1, c.lanes_of(number))))
    hot = c.one_hot(g, shift)
    values = [_ln2(max(0, exponent_top - by), inner) for by in range(len(hot))]
    terms.append((0, c.look_up(hot, values, width)))
    return c.add_many(g, terms, width)[_GUARD:]


def _cut_products(
    g: Gates, left: c.Number, left_fraction: int, right: c.Number, right_fraction: int, fraction: int
) -> list[tuple[int, c.Number]]:
    """Return the rows of left * right, one for each bit of `right`, truncated to units of 2^-fraction."""
    below = [max(0, left_fraction + right_fraction - bit - fraction) for bit in range(len(right))]
    rows_used = [(bit, low) for bit, low in enumerate(below) if low < len(left)]
    places = np.concatenate([np.arange(low, len(left)) for _, low in rows_used])
    owners = np.concatenate([np.full(len(left) - low, bit) for bit, low in rows_used])
    made, rows, start = g.and_(left[places], right[owners]), [], 0
    for bit, low in rows_used:
        rows.append((low + bit + fraction - left_fraction - right_fraction, made[start : start + len(left) - low]))
        start += len(left) - low
    return rows


def _cut_square(g: Gates, number: c.Number, has: int, fraction: int) -> c.Number:
    """Return the square of a number of `has` fraction bits, without products below its unit 2^-fraction."""
    down, bits = 2 * has - fraction, len(number)
    left, right = (side[np.add(*both) + 1 >= down] for both in [np.triu_indices(bits, k=1)] for side in both)
    products = g.and_(number[left], number[right])
    terms = [(2 * bit - down, number[bit : bit + 1]) for bit in range(bits) if 2 * bit >= down]
    for row in range(bits):
        own = np.flatnonzero(left == row)  # neighbours: one row of products, each counted twice by its place
        if len(own):
            terms.append((row + int(right[own[0]]) + 1 - down, products[own[0] : own[-1] + 1]))
    return c.add_many(g, terms, max(1, 2 * bits - down)) if terms else c.zeros(number, 1)


@functools.cache
def _ln_tables(fraction: int, index: int, rest: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return offset, slope and negated second coefficient of the quadratic on each of 2^index segments.

    They interpolate at Chebyshev points. The offsets include half a unit of the result, so that dropping guard bits rounds, and
    half of the largest truncation error of the rows of the two products.
    """
    inner = fraction + _GUARD
    bend_bits = max(0, inner - 2 * index)
    offset, slope, bend = [], [], []
    with decimal.localcontext(decimal.Context(prec=50)):
        step = decimal.Decimal(1) / 2**index
        third = decimal.Decimal(3).sqrt() / 2
        for segment in range(1 << index):
            start = 1 + segment * step
            t = [step / 2 * (1 - third), step / 2, step / 2 * (1 + third)]
            f = [(start + point).ln() for point in t]
            first = (f[1] - f[0]) / (t[1] - t[0])
            second = ((f[2] - f[1]) / (t[2] - t[1]) - first) / (t[2] - t[0])
            linear = first - second * (t[0] + t[1])
            constant = f[0] - linear * t[0] - second * t[0] ** 2
            slope.append(_rounded(linear * 2 ** (inner - index)))
            bend.append(_rounded(-second * 2**bend_bits))
            cut = (_cut(slope[-1], rest) - _cut(bend[-1], min(2 * rest, bend_bits))) / 2
            offset.append(_rounded(constant * 2**inner + cut) + (1 << (_GUARD - 1)))
    return tuple(offset), tuple(slope), tuple(bend)


def _cut(value: int, rows: int) -> decimal.Decimal:
    """Return the sum of what is truncated of value / 2, value / 4, ..."""
    total = sum(value % (1 << row) << rows - row for row in range(1, rows + 1))
    return decimal.Decimal(total) / (1 << rows)


@functools.cache
def _ln2(power: int, fraction: int) -> int:
    with decimal.localcontext(decimal.Context(prec=50)):
        return _rounded(decimal.Decimal(2).ln() * power * 2**fraction)


def _rounded(value: decimal.Decimal) -> int:
    return int(value.to_integral_value(rounding=decimal.ROUND_HALF_EVEN))
