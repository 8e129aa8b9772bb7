"""Protocols 4 and 5: shares of scaled probabilities, means and variances. Step numbers as in SPEC.md.

All shares are integers that add up over the integers (`primitives.scalar_product`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from gmpy2 import invert, mpz

from blindbayes.errors import DataError, LocalProtocolError
from blindbayes.protocols.core import Role
from blindbayes_papers.primitives.paillier import Ciphertext
from blindbayes_papers.vaidya2008.primitives import polynomial as poly
from blindbayes_papers.vaidya2008.primitives import scalar_product as sp
from blindbayes_papers.vaidya2008.scalar_product.channel import Channel, ScalarProductSetup

Shares: TypeAlias = list[list[int]]
"""[class][value]"""


@dataclass(slots=True)
class Moments:
    """A party's shares of one numeric attribute: Const * mean and Const^3 * variance, per class."""

    means: list[int] = field(repr=False)
    variances: list[int] = field(repr=False)


def class_counts(labels: Sequence[int], classes: int) -> list[int]:
    """Rows per class."""
    counts = [0] * classes
    for label in labels:
        if not 0 <= label < classes:
            raise DataError("a class label lies outside the codebook")
        counts[label] += 1
    return counts


# -- widths ----------------------------------------------------------------------------------------------------------------


def mean_bits(terms: ScalarProductSetup, span: int) -> int:
    """Bits of Const * mean, for values in [0, span]."""
    return terms.const_bits + span.bit_length()


def variance_bits(terms: ScalarProductSetup, span: int) -> int:
    """Bits of Const^3 * variance: with n-1 the variance of values in [0, span] stays below span^2."""
    return 3 * terms.const_bits + 2 * span.bit_length() + 2


# -- Protocol 4 ------------------------------------------------------------------------------------------------------------


def nominal_factor(terms: ScalarProductSetup, count: int, values: int) -> tuple[int, int]:
    """(factor of a row, smoothing) of a class: floor(Const / (n + alpha r)) and alpha times it; 0 for a class without rows."""
    if not count:
        return 0, 0
    alpha = Fraction(terms.alpha)
    factor = int(terms.const / (count + alpha * values))
    return factor, int(alpha * factor)


def nominal_class_holder(channel: Channel, labels: Sequence[int], values: int) -> Role[Shares]:
    """P_c: encrypts, per class, the vector of factors; returns its shares of Const * P(value | class)."""
    terms = channel.terms
    _require_rows(channel, labels)
    channel.require_capacity(terms.const_bits)
    counts = class_counts(labels, terms.classes)
    shares: Shares = []
    for at, count in enumerate(counts):
        factor, smoothing = nominal_factor(terms, count, values)
        for part in channel.pieces(terms.rows):  # step 3
            vector = [factor if label == at else 0 for label in labels[part]]
            yield from channel.send(channel.private.public, channel.private.encrypt_many(vector, channel.coins))
        answers = yield from channel.receive(channel.private.public, values)  # step 5
        shares.append([share + smoothing for share in channel.decrypt(answers)])
    return shares


def nominal_attribute_holder(channel: Channel, codes: Sequence[int], values: int) -> Role[Shares]:
    """P_d: its vector per value is boolean, so that it only multiplies; returns its shares."""
    terms, key = channel.terms, channel.public
    _require_rows(channel, codes)
    if any(not 0 <= code < values for code in codes):
        raise DataError("scalar_product takes complete data: a value is missing or lies outside the codebook")
    channel.require_capacity(terms.const_bits)
    shares: Shares = []
    for _ in range(terms.classes):
        products = [mpz(1)] * values
        for part in channel.pieces(terms.rows):
            received = yield from channel.receive(key, part.stop - part.start)
            for code, ciphertext in zip(codes[part], received, strict=True):  # step 4
                products[code] = products[code] * ciphertext % key.n_squared
        masks = [sp.draw_mask(terms.const_bits, channel.coins) for _ in products]
        answers = [sp.answer(key, each, mask, channel.coins) for each, mask in zip(products, masks, strict=True)]
        yield from channel.send(key, answers)
        shares.append([-mask for mask in masks])
    return shares


# -- Protocol 5 ------------------------------------------------------------------------------------------------------------


def numeric_class_holder(channel: Channel, labels: Sequence[int], span: int) -> Role[Moments]:
    """P_c: shares of means and variances of the other's values in [0, span]."""
    terms, key, coins = channel.terms, channel.public, channel.coins
    _require_rows(channel, labels)
    channel.require_capacity(variance_bits(terms, span))
    counts = class_counts(labels, terms.classes)
    values: list[Ciphertext] = []
    for part in channel.pieces(terms.rows):
        values += yield from channel.receive(key, part.stop - part.start)
    # 7. Means: one scalar product per class.
    factors = [terms.const // count if count else 0 for count in counts]
    masks = [sp.draw_mask(mean_bits(terms, span), coins) for _ in counts]
    answers = []
    for at, (factor, mask) in enumerate(zip(factors, masks, strict=True)):
        answers.append(sp.answer(key, _class_product(channel, values, labels, at, factor), mask, coins))
    yield from channel.send(key, answers)
    means = [-mask for mask in masks]
    # 9. Distances: Const d - mean - r, under encryption; the randomness must be fresh, or it would show the class.
    other_means = yield from channel.receive(key, terms.classes)
    minus_means = [invert(each, key.n_squared) for each in other_means]
    divisors = [count if terms.divisor == "n" else max(1, count - 1) for count in counts]
    spread_factors = [terms.const // divisor if count else 0 for count, divisor in zip(counts, divisors, strict=True)]
    products = [mpz(1)] * terms.classes
    own_parts = [0] * terms.classes
    for part in channel.pieces(terms.rows):
        some = labels[part]
        masks = [sp.draw_mask(mean_bits(terms, span) + 1, coins) for _ in some]  # a distance has a sign
        distances = []
        for label, ciphertext, mask in zip(some, values[part], masks, strict=True):
            distance = key.add(key.multiply(ciphertext, terms.const), minus_means[label])
            distances.append(sp.answer(key, distance, -means[label] - mask, coins))
        yield from channel.send(key, distances)
        # 11. Squares, by oblivious evaluation of (r + w)^2.
        encrypted = yield from channel.receive(key, 2 * len(some))
        hidden = [coins.below(int(key.n)) for _ in some]
        squares = [
            poly.evaluate(key, encrypted[2 * at : 2 * at + 2], poly.square_around(masks[at], hidden[at]), coins)
            for at in range(len(some))
        ]
        yield from channel.send(key, squares)
        # 13. The scalar products of the squares with the class vectors.
        squares = yield from channel.receive(key, len(some))
        for label, square, mask in zip(some, squares, hidden, strict=True):
            square = key.multiply(square, spread_factors[label]) if terms.as_printed else square
            products[label] = products[label] * square % key.n_squared
            own_parts[label] -= mask
    masks = [sp.draw_mask(variance_bits(terms, span), coins) for _ in counts]
    answers = []
    for product, own, factor, mask in zip(products, own_parts, spread_factors, masks, strict=True):
        raised = product if terms.as_printed else key.multiply(product, factor)
        answers.append(sp.answer(key, raised, own * factor + mask, coins))
    yield from channel.send(key, answers)
    return Moments(means, [-mask for mask in masks])


def numeric_attribute_holder(channel: Channel, values: Sequence[int], span: int) -> Role[Moments]:
    """P_d: its values are whole numbers in [0, span]."""
    terms, key, coins = channel.terms, channel.private.public, channel.coins
    _require_rows(channel, values)
    if any(not 0 <= value <= span for value in values):
        raise DataError("scalar_product takes complete data: a number is missing or outside its bounds")
    channel.require_capacity(variance_bits(terms, span))
    for part in channel.pieces(terms.rows):  # step 6
        yield from channel.send(key, channel.private.encrypt_many(values[part], coins))
    answers = yield from channel.receive(key, terms.classes)
    means = channel.decrypt(answers)
    yield from channel.send(key, channel.private.encrypt_many(means, coins))  # step 8
    for part in channel.pieces(terms.rows):
        count = part.stop - part.start
        distances = channel.decrypt((yield from channel.receive(key, count)))
        powers = [power for each in distances for power in poly.powers(each, 2, int(key.n))]  # step 10
        yield from channel.send(key, channel.private.encrypt_many(powers, coins))
        squares = channel.decrypt((yield from channel.receive(key, count)))
        yield from channel.send(key, channel.private.encrypt_many(squares, coins))  # step 12
    answers = yield from channel.receive(key, terms.classes)
    return Moments(means, channel.decrypt(answers))  # step 14


def _class_product(channel: Channel, values: Sequence[Ciphertext], labels: Sequence[int], at: int, factor: int) -> Ciphertext:
    """The scalar product of encrypted values with factor * (label == at)."""
    numbers = [factor if label == at else 0 for label in labels]
    if channel.terms.as_printed:
        numbers, values = (
            [number for number in numbers if number],
            [v for v, number in zip(values, numbers, strict=True) if number],
        )
    return sp.combine(channel.public, values, numbers, grouped=not channel.terms.as_printed)


def _require_rows(channel: Channel, column: Sequence[int]) -> None:
    if len(column) != channel.terms.rows:
        raise LocalProtocolError("the column has another number of rows than the terms say")
