"""Lindell and Pinkas' ln of a shared integer: a garbled first phase, then the Taylor polynomial by oblivious evaluation.

Input: integer shares of x, of which only the sum modulo 2^bits is used (modular addition, as the paper asks for). Output:
integer shares of ln(max(x, least)) * 2^FRACTION, within `ln_error`.

x = 2^n (1 + e) with 2^n the power of two next to x: -1/4 <= e < 1/2. The circuit gives the evaluator e and n ln 2 under
masks of the garbler; the polynomial T(e) then comes from an oblivious evaluation under the evaluator's key. All masks are
integers 64 bits wider than what they hide, so that shares can be divided by the public scale by each party alone.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from fractions import Fraction
from functools import cache, partial

import numpy as np

from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.circuits import Number
from blindbayes.crypto.garbling.garbling import Gates
from blindbayes.errors import LocalProtocolError
from blindbayes.protocols.core import Role
from blindbayes_papers.vaidya2008.primitives import polynomial as poly
from blindbayes_papers.vaidya2008.primitives.scalar_product import STATISTICAL, draw_mask, required_bits
from blindbayes_papers.vaidya2008.scalar_product.channel import Channel

FRACTION = 32
"""Fraction bits of logarithms and scores."""


def epsilon_bits(degree: int) -> int:
    """Fraction bits of e: its truncation stays below an eighth of the Taylor error."""
    return degree + (degree + 1).bit_length() + 3


def ln2_bits(degree: int) -> int:
    return epsilon_bits(degree) + 2


def ln_error(degree: int) -> float:
    """Bound on |ln x - result / 2^FRACTION|: Taylor, truncation of e (slope at most 4/3), n ln 2, and two roundings."""
    return poly.taylor_error(degree) + 4 / 3 * 2.0 ** -epsilon_bits(degree) + 2.0 ** -(ln2_bits(degree) + 1) + 2.0**-FRACTION


def key_bits(degree: int) -> int:
    """Bits of the smallest modulus in which the polynomial of a degree fits; rounded up to even."""
    bits = required_bits(poly.scale(degree, epsilon_bits(degree)).bit_length())
    return bits + bits % 2


# -- the circuit -----------------------------------------------------------------------------------------------------------


def phase_one(g: Gates, x: Number, minimum: int, degree: int) -> tuple[Number, Number]:
    """(e 2^P + 2^P, round(n ln 2 * 2^B)) of max(x, least), least >= 1."""
    lanes, bits, wanted = c.lanes_of(x), len(x), epsilon_bits(degree)
    floor = c.public(g, minimum, bits, lanes)
    x = c.select(g, c.is_less(g, x, floor), floor, x)
    pad = max(0, wanted + 1 - bits)
    mantissa, shift = c.normalise(g, c.shift_up(x, pad))
    top = len(mantissa) - 1 - pad  # n of a number whose top bit is set
    rest = mantissa[len(mantissa) - 1 - wanted : -1]
    upper = rest[-1]  # the second highest bit: the next power of two is nearer
    one = c.public(g, 1, 1, lanes)
    # e, with its sign bit flipped (that is, plus 2^P): rest, or (rest - 2^P) / 2 from above.
    low = np.concatenate([rest, one])
    high = np.concatenate([rest[1:], one, c.zeros(rest, 1)])
    epsilon = c.select(g, upper, high, low)
    hot = c.one_hot(g, shift)
    above = g.and_(hot, np.broadcast_to(upper[None], hot.shape))
    numbers = [max(0, top - by) for by in range(len(hot))] + [max(0, top - by) + 1 for by in range(len(hot))]
    values = [_ln2(number, ln2_bits(degree)) for number in numbers]
    return epsilon, c.look_up(np.concatenate([hot ^ above, above]), values, _power_bits(bits, degree))


def _power_bits(bits: int, degree: int) -> int:
    return _ln2(bits + 1, ln2_bits(degree)).bit_length()


@cache
def _ln2(power: int, fraction: int) -> int:
    with decimal.localcontext(decimal.Context(prec=60)):
        return int((decimal.Decimal(2).ln() * power * 2**fraction).to_integral_value(rounding=decimal.ROUND_HALF_EVEN))


def _mask_widths(bits: int, degree: int) -> tuple[int, int]:
    return epsilon_bits(degree) + 1 + STATISTICAL, _power_bits(bits, degree) + STATISTICAL


def _circuit(bits: int, minimum: int, degree: int, g: Gates, own: Number, other: Number) -> Number:
    """Inputs of the garbler: its share and two masks; output: e and n ln 2 under the masks, whole sums."""
    first, _ = _mask_widths(bits, degree)
    x = c.add(g, own[:bits], other, bits=bits)
    epsilon, power = phase_one(g, x, minimum, degree)
    return np.concatenate([c.add(g, epsilon, own[bits : bits + first]), c.add(g, power, own[bits + first :])])


# -- roles -----------------------------------------------------------------------------------------------------------------


def ln_garbler(channel: Channel, shares: Sequence[int], bits: int, minimum: int = 1) -> Role[list[int]]:
    """The garbler, who also owns the polynomial."""
    degree, coins, key = channel.terms.degree, channel.coins, channel.public
    _require(channel, bits, minimum)
    width = epsilon_bits(degree)
    first, second = _mask_widths(bits, degree)
    masks = [coins.bits(first) for _ in shares]
    power_masks = [coins.bits(second) for _ in shares]
    circuit = partial(_circuit, bits, minimum, degree)
    yield from channel.garble(circuit, [shares, masks, power_masks], [bits, first, second], bits)  # step 15
    # 16. Q(x) = T(x - mask - 2^P) + w, with a mask w of our own.
    scale = poly.scale(degree, width)
    ours = [draw_mask(scale.bit_length(), coins) for _ in shares]
    modulus = int(key.n)
    out: list[int] = []
    for part in _batches(len(shares)):
        encrypted = yield from channel.receive(key, degree * len(range(*part.indices(len(shares)))))
        answers = []
        for at, (mask, own) in enumerate(zip(masks[part], ours[part], strict=True)):
            moved = poly.shifted(poly.taylor(degree, width), -mask - (1 << width), modulus)
            moved[0] += own
            answers.append(poly.evaluate(key, encrypted[at * degree : (at + 1) * degree], moved, coins))
        yield from channel.send(key, answers)
    for own, power_mask in zip(ours, power_masks, strict=True):
        out.append(_rounded(Fraction(-own, scale) - Fraction(power_mask, 1 << ln2_bits(degree))))  # 17
    return out


def ln_evaluator(channel: Channel, shares: Sequence[int], bits: int, minimum: int = 1) -> Role[list[int]]:
    """The evaluator, whose key the polynomial is evaluated under."""
    degree, key = channel.terms.degree, channel.private.public
    _require(channel, bits, minimum)
    width = epsilon_bits(degree)
    first, second = _mask_widths(bits, degree)
    circuit = partial(_circuit, bits, minimum, degree)
    outputs = yield from channel.evaluate(circuit, shares, bits, [bits, first, second])  # step 15
    masked = [value & ((1 << (first + 1)) - 1) for value in outputs]
    powers = [value >> (first + 1) for value in outputs]
    scale = poly.scale(degree, width)
    out: list[int] = []
    for part in _batches(len(shares)):  # step 16
        vector = [power for each in masked[part] for power in poly.powers(each, degree, int(key.n))]
        yield from channel.send(key, channel.private.encrypt_many(vector, channel.coins))
        values = channel.decrypt((yield from channel.receive(key, len(masked[part]))))
        for value, power in zip(values, powers[part], strict=True):
            out.append(_rounded(Fraction(value, scale) + Fraction(power, 1 << ln2_bits(degree))))  # 17
    return out


def _batches(count: int) -> list[slice]:
    return [slice(low, low + 256) for low in range(0, count, 256)]


def _rounded(value: Fraction) -> int:
    return round(value * (1 << FRACTION))


def _require(channel: Channel, bits: int, minimum: int) -> None:
    if not 1 <= minimum < 1 << bits:
        raise LocalProtocolError("the least argument of ln must be positive and fit")
    channel.require_capacity(poly.scale(channel.terms.degree, epsilon_bits(channel.terms.degree)).bit_length())
