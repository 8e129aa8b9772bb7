"""Events of exact probability, from uniform bits and integer arithmetic alone.

A probability p is given by its binary digits: a function `digits(bits) = floor(p * 2**bits)`, computable to any length. The
event is U < p for a uniform real U whose bits are drawn only as far as needed: sixteen bits decide all but one draw in
65,536, the others ask for 64 more until U and p differ. No floating point number takes part, and no tail is cut off.

exp() is enclosed between two integers by its alternating series with directed rounding (`exp_minus`), and the digits follow
as soon as both ends agree on them. They always come to agree, since e^-x is irrational for every rational x > 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError, PrivacyError

Digits = Callable[[int], int]
Integers = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Number = int | float | str | Decimal | Fraction

SMALLEST_BUDGET, LARGEST_BUDGET = Fraction(1, 10**12), Fraction(1000)
FIRST_BITS = 16
MORE_BITS = 64
_CHUNK = 1 << 16
_PLAIN_NUMBER = re.compile(r"\s*[+-]?(?:\d{1,1300}/\d{1,1300}|(?:\d{1,1300}\.?\d{0,400}|\.\d{1,400})(?:[eE][+-]?\d{1,3})?)\s*")


def fraction(value: Number, name: str = "value") -> Fraction:
    """Return the exact rational value; a float is taken at its exact binary value, so never rounded up."""
    if isinstance(value, str | Decimal) and not _PLAIN_NUMBER.fullmatch(str(value)):  # 1e999999999 would fill the memory
        raise ConfigError(f"{name} must be a number such as 0.5, with a decimal point and without separators of thousands")
    try:
        return Fraction(value)
    except (ValueError, OverflowError, TypeError, ZeroDivisionError) as error:
        raise ConfigError(f"{name} must be a finite number") from error


def as_decimal(value: Number, name: str = "value") -> Fraction:
    """Return the number as a person writes it: a float counts as its shortest decimal form (0.1 is one tenth)."""
    return fraction(repr(float(value)) if isinstance(value, float) else value, name)  # NumPy's floats have another repr


def budget_floor(value: Number, name: str = "epsilon") -> Fraction:
    """Return a budget for calibrating noise: a float is taken as the smaller of its binary and its decimal value.

    So noise never costs more than the number given, nor than the number that a ledger books (`as_decimal`).
    """
    exact = min(positive(value, name), as_decimal(value, name))
    if not SMALLEST_BUDGET <= exact <= LARGEST_BUDGET:
        raise PrivacyError(f"{name} lies between {float(SMALLEST_BUDGET):g} and {float(LARGEST_BUDGET):g}; others say nothing")
    return exact


def require_delta(delta: float, rows: int, *, declared: bool, allow_large: bool = False) -> None:
    """Refuse a delta above a tenth of one over the number of rows, or with `allow_large` above one over it.

    At one over the rows delta would allow publishing a random record in full; a tenth of that is still a chance that somebody
    should agree to in words.
    """
    if not 0 <= delta < 1:
        raise PrivacyError("delta lies between 0 and 1")
    if delta * rows > 1:
        known = f"the {rows} declared rows" if declared else f"{rows} rows, which stand for a table whose size is not declared"
        raise PrivacyError(f"delta is above one over {known}: it would allow to publish a whole record; take a smaller one")
    if delta * rows * 10 > 1 and not allow_large:
        known = f"the {rows} declared rows" if declared else f"{rows} rows, which stand for a table whose size is not declared"
        raise PrivacyError(
            f"delta is above a tenth of one over {known}: take a smaller one, or agree to that chance of failure with "
            "allow_large_delta (--allow-large-delta)"
        )


def cost_ceiling(value: Fraction) -> float:
    """Return the smallest float whose decimal value, which a ledger books, is not below the exact cost."""
    cost = float(value)
    while as_decimal(cost) < value:
        cost = math.nextafter(cost, math.inf)
    return cost


def positive(value: Number, name: str) -> Fraction:
    """Return `fraction(value)`; raise unless it is above zero."""
    exact = fraction(value, name)
    if exact <= 0:
        raise ConfigError(f"{name} must be above zero")
    return exact


def exp_minus(x: Fraction, bits: int) -> tuple[int, int]:
    """Return integers low <= 2**bits * e**-x <= high, for x >= 0. They differ by one or two units."""
    halvings = (x.numerator // x.denominator).bit_length() + 6
    work = bits + 2 * halvings + 16
    numerator, denominator = x.numerator, x.denominator << halvings  # y = x / 2**halvings < 2**-6
    low = high = term_low = term_high = 1 << work
    index = 0
    while term_high > 1:
        index += 1
        term_low = term_low * numerator // (denominator * index)
        term_high = -(-term_high * numerator // (denominator * index))
        low, high = (low - term_high, high - term_low) if index % 2 else (low + term_low, high + term_high)
    low, high = max(0, low - term_high), high + term_high  # the rest of an alternating, falling series is below its last term
    for _ in range(halvings):  # e^-x = (e^-y)^(2**halvings)
        low, high = low * low >> work, -(-high * high >> work)
    shift = work - bits
    return low >> shift, -(-high >> shift)


def _agreed(bounds: Callable[[int], tuple[int, int]], bits: int) -> int:
    """Return the leading digits on which both ends of an enclosure agree, raising the working precision as needed."""
    extra = 32
    while True:
        low, high = bounds(bits + extra)
        if low >> extra == high >> extra:
            return low >> extra
        extra *= 2


@lru_cache(maxsize=8192)
def _exp_digits(x: Fraction, bits: int) -> int:
    return 1 << bits if x == 0 else _agreed(partial(exp_minus, x), bits)


@lru_cache(maxsize=8192)
def _logistic_digits(x: Fraction, bits: int) -> int:
    def bounds(work: int) -> tuple[int, int]:
        low, high = exp_minus(x, work)
        one = 1 << work
        return (low << work) // (one + low), -(-(high << work) // (one + high))  # t / (1 + t) grows with t

    return _agreed(bounds, bits)


@lru_cache(maxsize=1024)
def _odds_digits(x: Fraction, bound: Fraction, bits: int) -> int:
    def bounds(work: int) -> tuple[int, int]:
        low, high = exp_minus(x, work)
        one = 1 << work
        lower = (low << work) * bound.denominator // ((one - low) * bound.numerator)
        upper = -(-(high << work) * bound.denominator // (max(1, one - high) * bound.numerator))
        return lower, upper  # t / (1 - t) grows with t

    return _agreed(bounds, bits)


def rational(p: Fraction) -> Digits:
    """Return the digits of a rational probability."""
    if not 0 <= p <= 1:
        raise ConfigError("a probability lies between 0 and 1")
    return lambda bits: (p.numerator << bits) // p.denominator


def exponential(x: Fraction) -> Digits:
    """Return the digits of e**-x, x >= 0."""
    if x < 0:
        raise ConfigError("the exponent must not be negative")
    return partial(_exp_digits, x)


def logistic(x: Fraction) -> Digits:
    """Return the digits of e**-x / (1 + e**-x), x > 0."""
    return partial(_logistic_digits, x)


def twice_logistic(x: Fraction) -> Digits:
    """Return the digits of 2 e**-x / (1 + e**-x), x > 0."""
    return lambda bits: _logistic_digits(x, bits + 1)


def odds(x: Fraction, bound: Fraction) -> Digits:
    """Return the digits of 1 / (e**x - 1) / bound, for x > 0 and a bound that makes it a probability."""
    return partial(_odds_digits, x, bound)


def happens(coins: Coins, chances: Sequence[Digits], size: int) -> Bools:
    """Draw independent events: row j of the result holds `size` draws, each true with probability `chances[j]`."""
    thresholds = np.array([digits(FIRST_BITS) for digits in chances], dtype=np.uint32)
    out = np.empty((len(chances), size), dtype=np.bool_)
    for start in range(0, size, _CHUNK):
        width = min(_CHUNK, size - start)
        first = np.frombuffer(coins.bytes(2 * width * len(chances)), dtype="<u2").reshape(len(chances), width)
        for row, threshold in enumerate(thresholds):
            if threshold >> FIRST_BITS:  # probability one
                out[row, start : start + width] = True
                continue
            np.less(first[row], np.uint16(threshold), out=out[row, start : start + width])
            for column in np.flatnonzero(first[row] == np.uint16(threshold)):
                out[row, start + column] = _undecided(coins, chances[row], FIRST_BITS)
    return out


def _undecided(coins: Coins, digits: Digits, bits: int) -> bool:
    """Draw more digits of U, which agrees with p on `bits` digits, until they differ."""
    while True:
        bits += MORE_BITS
        more, wanted = coins.bits(MORE_BITS), digits(bits) & ((1 << MORE_BITS) - 1)
        if more != wanted:
            return more < wanted


def below(coins: Coins, bounds: Integers) -> Integers:
    """Draw a uniform integer in [0, bound) for each bound, by rejection under the next power of two."""
    if bounds.size and int(bounds.min()) <= 0:
        raise ConfigError("bounds must be positive")
    masks = bounds.astype(np.uint64) - np.uint64(1)
    for shift in (1, 2, 4, 8, 16, 32):
        masks |= masks >> np.uint64(shift)
    out = np.empty(bounds.shape, dtype=np.int64)
    todo = np.arange(bounds.size)
    while todo.size:
        draws = (coins.words(todo.size) & masks[todo]).astype(np.int64)
        good = draws < bounds[todo]
        out[todo[good]] = draws[good]
        todo = todo[~good]
    return out


def survives(coins: Coins, exponents: npt.NDArray[Any], unit: Fraction) -> Bools:
    """Draw independent events of probability e**-(n * unit), one for each integer n >= 0 of `exponents`.

    e^-(n unit) is the product of e^-(2^j unit) over the bits j of n, so one common chance is drawn for each bit that is set.
    """
    alive = np.arange(exponents.size)
    left = exponents
    top = int(exponents.max()).bit_length() if exponents.size else 0
    for bit in reversed(range(top)):
        asked = np.flatnonzero((left >> bit) & 1)
        if asked.size:
            lost = asked[~happens(coins, [exponential(unit * (1 << bit))], asked.size)[0]]
            alive, left = np.delete(alive, lost), np.delete(left, lost)
    out = np.zeros(exponents.size, dtype=np.bool_)
    out[alive] = True
    return out
