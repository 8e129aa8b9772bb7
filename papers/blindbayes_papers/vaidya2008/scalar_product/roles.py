"""Roles of scalar_product: training attribute by attribute, and the evaluation protocol. Step numbers as in SPEC.md."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import TypeAlias

from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.circuits import Number
from blindbayes.crypto.garbling.garbling import Gates
from blindbayes.errors import DataError, LocalProtocolError
from blindbayes.protocols.core import Role, open_value
from blindbayes_papers.primitives.paillier import Ciphertext
from blindbayes_papers.vaidya2008.primitives import polynomial as poly
from blindbayes_papers.vaidya2008.primitives import scalar_product as sp
from blindbayes_papers.vaidya2008.scalar_product import training
from blindbayes_papers.vaidya2008.scalar_product.channel import Channel, ScalarProductSetup
from blindbayes_papers.vaidya2008.scalar_product.exponential import EXP_ERROR, HEIGHT, IN_BITS, exp
from blindbayes_papers.vaidya2008.scalar_product.logarithm import FRACTION, ln_error, ln_evaluator, ln_garbler
from blindbayes_papers.vaidya2008.scalar_product.training import Moments, Shares, mean_bits


@dataclass(frozen=True, slots=True)
class Nominal:
    """A nominal attribute of the attribute holder: codes 0 .. values - 1."""

    name: str
    values: int


@dataclass(frozen=True, slots=True)
class Measured:
    """A numeric attribute of the attribute holder: whole numbers 0 .. span, and the least variance."""

    name: str
    span: int
    variance_floor: Fraction


Attribute: TypeAlias = Nominal | Measured


@dataclass(slots=True)
class HeldShare:
    """One party's result of training. `tables`: the class holder's shares under its key, with the attribute holder."""

    nominal: dict[str, Shares] = field(default_factory=dict, repr=False)
    numeric: dict[str, Moments] = field(default_factory=dict, repr=False)
    class_counts: list[int] | None = field(default=None, repr=False)
    tables: dict[str, list[list[Ciphertext]]] = field(default_factory=dict, repr=False)


# -- training ----------------------------------------------------------------------------------------------------------------


def train_class_holder(channel: Channel, attributes: Sequence[Attribute], labels: Sequence[int]) -> Role[HeldShare]:
    """P_c."""
    share = HeldShare(class_counts=training.class_counts(labels, channel.terms.classes))
    for attribute in attributes:
        if isinstance(attribute, Nominal):
            shares = yield from training.nominal_class_holder(channel, labels, attribute.values)
            share.nominal[attribute.name] = shares
            for row in shares:  # step 6 of Protocol 4: for evaluation
                yield from channel.send(channel.private.public, channel.private.encrypt_many(row, channel.coins))
        else:
            share.numeric[attribute.name] = yield from training.numeric_class_holder(channel, labels, attribute.span)
    return share


def train_attribute_holder(
    channel: Channel, attributes: Sequence[Attribute], columns: Mapping[str, Sequence[int]]
) -> Role[HeldShare]:
    """P_d."""
    share = HeldShare()
    for attribute in attributes:
        column = columns[attribute.name]
        if isinstance(attribute, Nominal):
            share.nominal[attribute.name] = yield from training.nominal_attribute_holder(channel, column, attribute.values)
            table = []
            for _ in range(channel.terms.classes):
                table.append((yield from channel.receive(channel.public, attribute.values)))
            share.tables[attribute.name] = table
        else:
            share.numeric[attribute.name] = yield from training.numeric_attribute_holder(channel, column, attribute.span)
    return share


# -- evaluation ----------------------------------------------------------------------------------------------------------------


def score_bits(attributes: int) -> int:
    """Width of a score: every attribute, and what the class holder knows alone, adds less than 2^(HEIGHT + 1), and an empty
    class lies below all of that."""
    return FRACTION + HEIGHT + 4 + (attributes + 2).bit_length()


def empty_prior(attributes: int) -> float:
    """The prior of a class without rows: below every other score."""
    return -(attributes + 2) * 2.0 ** (HEIGHT + 2)


def score_error(terms: ScalarProductSetup, nominal: Sequence[Nominal], numeric: Sequence[tuple[Measured, float]]) -> float:
    """Bound on the error of one class's score, 2 ln P up to a constant; numeric attributes come with (x - mean)^2 / variance.

    ln and exp have their own bounds; the rest is truncation by Const: of a probability, of the mean (by up to n span / Const)
    and of the variance, and the cut of both to Const times their value. A quotient beyond 2^HEIGHT is capped: no bound.
    """
    ln = ln_error(terms.degree)
    error = 2.0**-FRACTION
    for each in nominal:
        error += 2 * (ln + (terms.rows + terms.alpha * each.values) * (1 + 1 / terms.alpha) / terms.const)
    for attribute, quotient in numeric:
        if quotient >= 2.0**HEIGHT / 2:
            return math.inf
        floor = float(attribute.variance_floor) or 1 / terms.const
        moved = terms.rows * attribute.span / (terms.const * math.sqrt(floor))
        spread = terms.rows / terms.const + 2 * moved**2 + 2 / (terms.const * floor)
        exact = 2 * math.sqrt(quotient) * moved + moved**2 + (quotient + 1) * spread
        error += ln + 2 * spread + 2 * exact + quotient * (math.expm1(2 * ln) + 2 * EXP_ERROR) + 2.0 ** (1 - FRACTION)
    return error


def _split(attributes: Sequence[Attribute]) -> tuple[list[Nominal], list[Measured]]:
    nominal = [each for each in attributes if isinstance(each, Nominal)]
    return nominal, [each for each in attributes if isinstance(each, Measured)]


def _quotient_bits(terms: ScalarProductSetup, numeric: Sequence[Measured]) -> int:
    return terms.const_bits + 2 * max(each.span for each in numeric).bit_length() + 3


def _min_variance(terms: ScalarProductSetup, attribute: Measured) -> int:
    return max(1, int(attribute.variance_floor * terms.const))


def classify_class_holder(
    channel: Channel, attributes: Sequence[Attribute], share: HeldShare, local: Sequence[Sequence[float]]
) -> Role[list[int]]:
    """P_c. `local`: per instance and class, twice the ln of what it knows alone (besides the prior).

    Only differences between classes count; one that reaches 2^(HEIGHT + 1) is capped there, as quotients are.
    """
    terms, count = channel.terms, len(local)
    nominal, numeric = _split(attributes)
    if share.class_counts is None or any(len(row) != terms.classes for row in local):
        raise LocalProtocolError("the class holder brings the class counts and one local score per class")
    total = sum(share.class_counts)
    prior = [2 * math.log(each / total) if each else empty_prior(len(attributes)) for each in share.class_counts]
    scores = [[_fixed(prior[at] + own) for at, own in enumerate(_capped(row))] for row in local]
    if nominal:
        answers = []
        for _ in nominal:  # step 19
            answers += yield from channel.receive(channel.private.public, terms.classes * count)
        logs = yield from ln_garbler(channel, channel.decrypt(answers), terms.const_bits + 2)  # step 21
        _gather(scores, logs, 2)
    if numeric:
        yield from _numeric_class_holder(channel, numeric, share, scores, score_bits(len(attributes)))
    bits = score_bits(len(attributes))
    circuit = partial(_best, terms.classes, bits)
    outputs = yield from channel.garble_open(circuit, [_packed(row, bits) for row in scores], bits * terms.classes)  # step 24
    return (yield from open_value("class", outputs))


def classify_attribute_holder(
    channel: Channel, attributes: Sequence[Attribute], share: HeldShare, columns: Mapping[str, Sequence[int]], count: int
) -> Role[list[int]]:
    """P_d. `columns`: its attributes of the instances."""
    terms, key, coins = channel.terms, channel.public, channel.coins
    nominal, numeric = _split(attributes)
    if any(len(columns[each.name]) != count for each in attributes) or count < 1:
        raise LocalProtocolError("every attribute brings a value per instance")
    scores = [[0] * terms.classes for _ in range(count)]
    if nominal:
        shares = []
        for attribute in nominal:  # step 19: pick the other's encrypted share, add ours, mask anew
            table, own = share.tables[attribute.name], share.nominal[attribute.name]
            answers = []
            for at in range(terms.classes):
                for code in columns[attribute.name]:
                    if not 0 <= code < attribute.values:
                        raise DataError("scalar_product takes complete data: a value is missing or outside the codebook")
                    mask = sp.draw_mask(terms.const_bits + 1, coins)
                    answers.append(sp.answer(key, table[at][code], own[at][code] + mask, coins))
                    shares.append(-mask)
            yield from channel.send(key, answers)
        logs = yield from ln_evaluator(channel, shares, terms.const_bits + 2)  # step 21
        _gather(scores, logs, 2)
    if numeric:
        yield from _numeric_attribute_holder(channel, numeric, share, columns, scores, score_bits(len(attributes)))
    bits = score_bits(len(attributes))
    circuit = partial(_best, terms.classes, bits)
    outputs = yield from channel.evaluate_open(circuit, [_packed(row, bits) for row in scores], bits * terms.classes)
    return (yield from open_value("class", outputs))


def _numeric_class_holder(
    channel: Channel, numeric: Sequence[Measured], share: HeldShare, scores: list[list[int]], width: int
) -> Role[None]:
    terms, key, coins, count = channel.terms, channel.public, channel.coins, len(scores)
    distances: list[int] = []
    for attribute in numeric:  # step 20
        means = share.numeric[attribute.name].means
        encrypted = yield from channel.receive(key, 2 * terms.classes * count)
        answers = []
        for at in range(terms.classes * count):
            mask = sp.draw_mask(2 * mean_bits(terms, attribute.span), coins)
            around = poly.square_around(-means[at // count], mask)
            answers.append(poly.evaluate(key, encrypted[2 * at : 2 * at + 2], around, coins))
            distances.append((-mask >> terms.const_bits) + 1)  # plus 1: two cut shares must not fall below 0
        yield from channel.send(key, answers)
    bits = _quotient_bits(terms, numeric)
    above = yield from ln_garbler(channel, distances, bits)  # step 21
    below = []
    for attribute in numeric:
        shares = [(each >> 2 * terms.const_bits) + 1 for each in share.numeric[attribute.name].variances]
        below += yield from ln_garbler(channel, shares, bits, _min_variance(terms, attribute))
    quotients = _differences(above, below, count)
    masks = [coins.bits(width) for _ in quotients]
    circuit = partial(quotient, width)
    yield from channel.garble(circuit, [quotients, masks], [IN_BITS, width], IN_BITS)  # step 22
    _gather(scores, masks, 1)
    _gather(scores, [value for value in below for _ in range(count)], -1)


def _numeric_attribute_holder(
    channel: Channel,
    numeric: Sequence[Measured],
    share: HeldShare,
    columns: Mapping[str, Sequence[int]],
    scores: list[list[int]],
    width: int,
) -> Role[None]:
    terms, key, count = channel.terms, channel.private.public, len(scores)
    distances: list[int] = []
    for attribute in numeric:  # step 20
        means = share.numeric[attribute.name].means
        powers: list[int] = []
        for at in range(terms.classes):
            for value in columns[attribute.name]:
                if not 0 <= value <= attribute.span:
                    raise DataError("scalar_product takes complete data: a number is missing or outside its bounds")
                powers += poly.powers(terms.const * value - means[at], 2, int(key.n))
        yield from channel.send(key, channel.private.encrypt_many(powers, channel.coins))
        squares = channel.decrypt((yield from channel.receive(key, terms.classes * count)))
        distances += [each >> terms.const_bits for each in squares]
    bits = _quotient_bits(terms, numeric)
    above = yield from ln_evaluator(channel, distances, bits)  # step 21
    below = []
    for attribute in numeric:
        shares = [each >> 2 * terms.const_bits for each in share.numeric[attribute.name].variances]
        below += yield from ln_evaluator(channel, shares, bits, _min_variance(terms, attribute))
    circuit = partial(quotient, width)
    outputs = yield from channel.evaluate(circuit, _differences(above, below, count), IN_BITS, [IN_BITS, width])  # step 22
    _gather(scores, outputs, -1)
    _gather(scores, [value for value in below for _ in range(count)], -1)


def _differences(above: Sequence[int], below: Sequence[int], count: int) -> list[int]:
    """ln distance - ln variance, which is the same for every instance."""
    return [value - below[at // count] for at, value in enumerate(above)]


def _gather(scores: list[list[int]], terms: Sequence[int], factor: int) -> None:
    """Step 23: add shares, ordered by attribute, class, instance."""
    count, classes = len(scores), len(scores[0])
    for at, value in enumerate(terms):
        scores[at % count][at // count % classes] += factor * value


def _capped(row: Sequence[float]) -> list[float]:
    """Local scores below the best of them, and no further than fits the width of a score."""
    best = max(row)
    if not math.isfinite(best):
        raise LocalProtocolError("local scores must be finite")
    return [max(value - best, -(2.0 ** (HEIGHT + 1))) for value in row]


def _fixed(value: float) -> int:
    return round(Fraction(value) * (1 << FRACTION))


def _packed(row: Sequence[int], bits: int) -> int:
    """The scores of an instance, modulo 2^bits, side by side."""
    return sum((value % (1 << bits)) << (bits * at) for at, value in enumerate(row))


# -- circuits ------------------------------------------------------------------------------------------------------------------


def quotient(width: int, g: Gates, own: Number, other: Number) -> Number:
    """exp of a shared logarithm, under the garbler's mask, modulo 2^width."""
    y = c.add(g, own[:IN_BITS], other, bits=IN_BITS)
    return c.add(g, c.widen(exp(g, y), width), own[IN_BITS:], bits=width)


def _best(classes: int, bits: int, g: Gates, own: Number, other: Number) -> Number:
    """The first class with the largest score."""
    scores = [
        c.add(g, own[at * bits : (at + 1) * bits], other[at * bits : (at + 1) * bits], bits=bits) for at in range(classes)
    ]
    return c.argmax_by_turns(g, scores)
