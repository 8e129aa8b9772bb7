"""The circuits of shared_model: from shares of sums to masked logarithms and Gaussian coefficients.

`build` runs unchanged for the garbler, the evaluator and the plain oracle. It yields one stack of output wires (bits, lanes)
after another; between two of them lie at most some thousand lanes, so that tables can be sent as they are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from blindbayes.primitives import circuits as c
from blindbayes.primitives.circuits import Number
from blindbayes.primitives.garbling import Gates, Wires
from blindbayes.protocol.class_sums.layout import Field, GaussianFields, HistogramFields, RowLayout
from blindbayes.protocol.shared_model.noise import Key, gaussian_bits
from blindbayes.protocol.shared_model.score_layout import GaussianLayout, Guard, ScoreLayout

LN_LANES = 256
_ALIKE = 1.2  # Gaussian features whose circuits differ by less share gates


class Side(Protocol):
    """What only one party can feed into the circuit: the garbler its bits, the evaluator nothing."""

    gates: Gates

    def words(self, indices: Sequence[int]) -> Number:
        """Summed words: bits (64) x lanes, where a lane is (word, class), classes fastest."""

    def class_counts(self) -> Number:
        """Rows per class."""

    def mask(self, lanes: int) -> Number:
        """A fresh uniform mask of the plan's bits, known to the garbler alone."""

    def noise(self, key: Key) -> list[Number]:
        """Both parties' noise; nothing where the plan has none."""


def histogram_lanes(layout: RowLayout, plan: ScoreLayout) -> list[tuple[str, int]]:
    """(feature, value) of each group of K lanes that `build` takes the logarithm of; value -1 is the denominator."""
    lanes: list[tuple[str, int]] = []
    for fields in layout.fields:
        if isinstance(fields, HistogramFields):
            name = fields.feature.name
            lanes.extend((name, value) for value in range(len(fields.counts)))
            if fields.feature.optional:
                lanes.append((name, -1))
    return lanes


def gaussian_groups(layout: RowLayout, plan: ScoreLayout) -> list[list[GaussianFields]]:
    """Gaussian features, grouped so that one circuit's widths suit all of a group."""
    found = [fields for fields in layout.fields if isinstance(fields, GaussianFields)]
    found.sort(key=lambda fields: _cost(fields, plan))
    groups: list[list[GaussianFields]] = []
    for fields in found:
        if groups and _cost(fields, plan) <= _ALIKE * _cost(groups[-1][0], plan):
            groups[-1].append(fields)
        else:
            groups.append([fields])
    return groups


def build(side: Side, layout: RowLayout, plan: ScoreLayout) -> Iterator[Wires]:
    """All outputs: first the logarithms of histogram cells in the order of `histogram_lanes`, `LN_LANES` lanes at a time; then
    per group of Gaussian features, feature by feature, its selectors (constant, bits of z, bits of z^2), each K lanes."""
    g = side.gates
    cells = _cells(side, layout, plan)
    if cells is not None:
        lanes = c.lanes_of(cells)
        for low in range(0, lanes, LN_LANES):
            part = cells[:, low : low + LN_LANES]
            logs = c.ln(g, part, plan.fraction)
            yield c.add(g, logs, side.mask(c.lanes_of(part)), bits=plan.bits)
    for group in gaussian_groups(layout, plan):
        yield from _coefficients(side, layout, plan, group)


def _field(words: Number, indices: dict[int, int], field: Field, classes: int) -> Number:
    lane = indices[field.word] * classes
    return words[field.shift : field.shift + field.width, lane : lane + classes]


def _word(words: Number, indices: dict[int, int], word: int, classes: int) -> Number:
    lane = indices[word] * classes
    return words[:, lane : lane + classes]


# -- histograms ----------------------------------------------------------------------------------------------------------


def cell_bits(layout: RowLayout, plan: ScoreLayout) -> int:
    """Width of a smoothed count or denominator, in units of 2^-alpha_shift."""
    sizes = [len(fields.counts) for fields in layout.fields if isinstance(fields, HistogramFields)]
    return ((layout.rows << plan.alpha_shift) + max(sizes, default=1) * plan.alpha).bit_length()


def _cells(side: Side, layout: RowLayout, plan: ScoreLayout) -> Number | None:
    """Smoothed counts and denominators, all lanes side by side."""
    found = [fields for fields in layout.fields if isinstance(fields, HistogramFields)]
    if not found:
        return None
    g, classes, bits = side.gates, plan.classes, layout.count_bits
    used = sorted({field.word for fields in found for field in fields.counts if field is not None})
    words = side.words(used) if used else None
    indices = {word: at for at, word in enumerate(used)}
    class_counts = side.class_counts()
    counts: list[Number] = []
    added: list[int] = []
    fields_of = {
        fields.feature.name: [
            None if field is None or words is None else _field(words, indices, field, classes) for field in fields.counts
        ]
        for fields in found
    }
    if plan.guard.acts:
        fields_of = _guarded_cells(side, layout, plan, fields_of)
    for fields in found:
        own = fields_of[fields.feature.name]
        present = [number for number in own if number is not None]
        total = _total(g, present, layout, plan) if present else None
        rest = class_counts if total is None else c.subtract(g, class_counts, total, bits=bits)
        counts.extend(rest if number is None else number for number in own)
        added.extend([plan.alpha] * len(own))
        if fields.feature.optional and total is not None:
            counts.append(total)
            added.append(plan.alpha * len(own))
    width = cell_bits(layout, plan)
    joined = c.widen(c.shift_up(c.join_lanes(counts), plan.alpha_shift), width)
    pattern = np.repeat(c.to_bits(added, width), classes, axis=1)
    smoothing = np.stack([g.constant(pattern[:, lane], 1)[:, 0] for lane in range(pattern.shape[1])], axis=1)
    return c.add(g, joined, smoothing, bits=width)


def _total(g: Gates, cells: list[Number], layout: RowLayout, plan: ScoreLayout) -> Number:
    """The sum of a feature's cells. Exact ones add up to the rows at most; noisy ones are held to that."""
    terms, bits = [(0, number) for number in cells], layout.count_bits
    if not plan.guard.noise_bits:
        return c.add_many(g, terms, bits)
    return _at_most(g, c.add_many(g, terms, bits + (len(cells) - 1).bit_length()), layout.rows)[:bits]


# -- guards: noise, and small cells -----------------------------------------------------------------------------------------


def _guarded_cells(
    side: Side, layout: RowLayout, plan: ScoreLayout, fields_of: Mapping[str, list[Number | None]]
) -> dict[str, list[Number | None]]:
    """All counters of all histograms with noise, held to 0 and to the rows, and small ones set to 0; all lanes side by side."""
    cells: list[Number] = []
    for own in fields_of.values():
        for number in own:
            if number is None:
                raise TypeError("with a guard every value has a counter")
            cells.append(number)
    pairs = [side.noise((name, 0)) for name in fields_of]
    noise = [c.join_lanes(list(part)) for part in zip(*pairs, strict=True)]
    kept = guarded(side.gates, c.join_lanes(cells), noise, plan.guard, layout.rows)
    sizes = [len(own) for own in fields_of.values()]
    split = [kept[:, at * plan.classes : (at + 1) * plan.classes] for at in range(sum(sizes))]
    found: dict[str, list[Number | None]] = {}
    for name, size in zip(fields_of, sizes, strict=True):
        found[name], split = [*split[:size]], split[size:]
    return found


def guarded(g: Gates, counts: Number, noise: Sequence[Number], guard: Guard, rows: int) -> Number:
    """Counters with noise, held to 0 and to the rows; those below the least cell set to 0. As wide as they came."""
    bits = len(counts)
    if noise:
        width = len(noise[0])
        whole = c.add_many(g, [(0, counts), *((0, number) for number in noise)], width)
        counts = _at_most(g, _not_negative(g, whole), rows)
        counts = c.widen(counts, bits)
    if guard.min_cell:
        wide = max(bits, guard.min_cell.bit_length())
        least = c.public(g, guard.min_cell, wide, c.lanes_of(counts))
        counts = _keep(g, g.not_(c.is_less(g, c.widen(counts, wide), least)), counts)
    return counts


def _keep(g: Gates, condition: Wires, number: Number) -> Number:
    """The number where the condition is 1, else 0."""
    kept: Number = g.and_(np.broadcast_to(condition[None], number.shape), number)
    return kept


def _not_negative(g: Gates, number: Number) -> Number:
    """max(0, a two's complement number), a bit narrower."""
    return _keep(g, g.not_(number[-1]), number[:-1])


def _at_most(g: Gates, number: Number, limit: int) -> Number:
    """min(number, a public limit)."""
    bits = max(len(number), limit.bit_length())
    top = c.public(g, limit, bits, c.lanes_of(number))
    number = c.widen(number, bits)
    return c.select(g, c.is_less(g, top, number), top, number)


def _at_most_number(g: Gates, number: Number, limit: Number) -> Number:
    bits = max(len(number), len(limit))
    number, limit = c.widen(number, bits), c.widen(limit, bits)
    return c.select(g, c.is_less(g, limit, number), limit, number)


def _guarded_moments(
    side: Side, layout: RowLayout, plan: ScoreLayout, fields: GaussianFields, n: Number, total: Number, squares: Number
) -> tuple[Number, Number, Number]:
    """n, sum and sum of squares with noise, held to what n values within the bounds can have; nothing of too few values."""
    g, name, size = side.gates, fields.feature.name, fields.magnitude
    sum_bits, square_bits = len(total), len(squares)
    n = guarded(g, n, side.noise((name, 0)), plan.guard, layout.rows)
    if plan.guard.noise_bits:
        _, wide, wider = gaussian_bits(fields, plan)
        wide, wider = max(wide, sum_bits + 1), max(wider, square_bits + 2)
        drawn = [_extended(number, wide) for number in side.noise((name, 1))]
        whole = c.add_many(g, [(0, _extended(total, wide)), *((0, number) for number in drawn)], wide)
        sign = whole[-1]
        limit = c.times(g, n, max(1, size), len(n) + max(1, size).bit_length())
        held = c.widen(_at_most_number(g, c.negate_if(g, sign, whole)[:-1], limit), sum_bits - 1)
        total = c.negate_if(g, sign, c.widen(held, sum_bits))
        drawn = [_extended(number, wider) for number in side.noise((name, 2))]
        whole = c.add_many(g, [(0, c.widen(squares, wider)), *((0, number) for number in drawn)], wider)
        square = max(1, size * size)
        limit = c.times(g, n, square, len(n) + square.bit_length())
        squares = c.widen(_at_most_number(g, _not_negative(g, whole), limit), square_bits)
        return n, total, squares
    there = g.not_(c.is_zero(g, n))
    return n, _keep(g, there, total), _keep(g, there, squares)


# -- Gaussian coefficients -------------------------------------------------------------------------------------------------
#
# n, S1, S2 are exact. D = n S2 - S1^2 = n^2 variance; D' = max(D, n^2 floor). All in units of 2^-floor_shift:
#   A = -1 / (2 var) = -n^2 / 2D'        B = mean / var = n S1 / D'        C = -S1^2 / 2D' - ln(D')/2 + ln n


@dataclass(frozen=True, slots=True)
class _Widths:
    divisor: int
    quotient: int


def _widths(fields: GaussianFields, layout: RowLayout, plan: ScoreLayout) -> _Widths:
    own = plan.features[fields.feature.name]
    if not isinstance(own, GaussianLayout):
        raise TypeError("a Gaussian feature has a Gaussian plan")
    rows, size = layout.rows, fields.magnitude
    divisor = max((rows * rows * size * size << own.floor_shift).bit_length(), (rows * rows * own.floor).bit_length())
    scale = 1 << (plan.fraction + own.floor_shift)
    largest = max(
        (scale << (own.square_bits - 1)) // (2 * own.floor),
        (size * scale << (own.code_bits - 1)) // own.floor,
        size * size * scale // (2 * own.floor),
    )
    return _Widths(divisor, max(1, largest.bit_length()))


def _cost(fields: GaussianFields, plan: ScoreLayout) -> int:
    own = plan.features[fields.feature.name]
    if not isinstance(own, GaussianLayout):
        raise TypeError("a Gaussian feature has a Gaussian plan")
    divisor = 2 * plan.rows.bit_length() + own.square_bits + own.floor_shift
    return divisor * max(1, plan.fraction + own.square_bits + own.floor_shift - own.floor.bit_length())


def _coefficients(side: Side, layout: RowLayout, plan: ScoreLayout, group: Sequence[GaussianFields]) -> Iterator[Wires]:
    g = side.gates
    widths = [_widths(fields, layout, plan) for fields in group]
    divisor_bits = max(item.divisor for item in widths)
    quotient_bits = max(item.quotient for item in widths)
    divisors, numerators, present, signs = [], [], [], []
    for fields in group:
        n, sign, size, divisor, squares = _moments(side, layout, plan, fields)
        own = _gaussian_plan(plan, fields)
        up = own.floor_shift + plan.fraction
        divisors.append(c.widen(divisor, divisor_bits))
        present.append(n)
        signs.append(sign)
        over = divisor_bits + quotient_bits
        numerators.append(
            (
                c.widen(c.shift_up(squares[0], up + own.square_bits - 2), over),  # n^2 2^(F + J) / 2
                c.widen(c.shift_up(c.multiply(g, n, size), up + own.code_bits - 1), over),
                c.widen(c.shift_up(squares[1], up - 1), over),
            )
        )
    together = c.join_lanes([row[kind] for kind in range(3) for row in numerators])
    divisor = c.join_lanes(divisors)
    quotients = c.divide(g, together, c.join_lanes([divisor] * 3), quotient_bits)
    log_divisor = c.ln(g, divisor, plan.fraction)
    log_n = c.ln(g, c.join_lanes(present), plan.fraction)
    width = max(len(log_divisor), len(log_n) + 1) + 1
    twice = c.subtract(g, c.shift_up(log_n, 1), log_divisor, bits=width)  # 2 ln n - ln D', signed
    half = _extended(twice[1:], plan.bits)
    lanes = c.lanes_of(divisor)
    a, b, square = (quotients[:, kind * lanes : (kind + 1) * lanes] for kind in range(3))
    constant = c.subtract(g, half, square, bits=plan.bits)
    minus = c.public(g, 1, 1, plan.classes)[0]
    for at, fields in enumerate(group):
        own = _gaussian_plan(plan, fields)
        lane = slice(at * plan.classes, (at + 1) * plan.classes)
        numbers, flips = [], []
        for bit in range(own.code_bits):
            top = own.code_bits - 1
            numbers.append(c.widen(b[top - bit :, lane], plan.bits))
            flips.append(g.not_(signs[at]) if bit == top else signs[at])
        for bit in range(own.square_bits):
            numbers.append(c.widen(a[own.square_bits - 1 - bit :, lane], plan.bits))
            flips.append(minus)
        joined, flip = c.join_lanes(numbers), np.concatenate(flips)
        mask = side.mask(plan.classes + c.lanes_of(joined))
        first = c.add(g, constant[:, lane], mask[:, : plan.classes], bits=plan.bits)
        linear = c.add(g, joined ^ flip[None], mask[:, plan.classes :], bits=plan.bits, carry=flip)
        yield c.join_lanes([first, linear])


def _gaussian_plan(plan: ScoreLayout, fields: GaussianFields) -> GaussianLayout:
    own = plan.features[fields.feature.name]
    if not isinstance(own, GaussianLayout):
        raise TypeError("a Gaussian feature has a Gaussian plan")
    return own


def _extended(number: Number, bits: int) -> Number:
    """Two's complement, wider (or its low bits)."""
    if len(number) >= bits:
        return number[:bits]
    return np.concatenate([number, np.repeat(number[-1:], bits - len(number), axis=0)])


def _moments(
    side: Side, layout: RowLayout, plan: ScoreLayout, fields: GaussianFields
) -> tuple[Number, Wires, Number, Number, tuple[Number, Number]]:
    """n >= 1, sign and size of S1, D' in units of 2^-floor_shift, and (n^2, S1^2)."""
    g, classes, rows = side.gates, plan.classes, layout.rows
    own = _gaussian_plan(plan, fields)
    used = sorted({fields.total, *fields.squares} | ({fields.present.word} if fields.present else set()))
    words = side.words(used)
    indices = {word: at for at, word in enumerate(used)}
    sum_bits = (rows * fields.magnitude).bit_length() + 1
    square_bits = max(1, (rows * fields.magnitude**2).bit_length())
    total = _word(words, indices, fields.total, classes)[:sum_bits]
    limbs = [_word(words, indices, word, classes) for word in fields.squares]
    squares = limbs[0] if len(limbs) == 1 else c.add_many(g, [(32 * at, limb) for at, limb in enumerate(limbs)], square_bits)
    squares = c.widen(squares, square_bits)
    if fields.present is None:
        n = side.class_counts()
    else:
        n = _field(words, indices, fields.present, classes)
        if plan.guard.acts:
            n, total, squares = _guarded_moments(side, layout, plan, fields, n, total, squares)
    if fields.present is not None and not plan.guard.noise_bits:
        # A class that has rows but no value here takes the moments of all classes together.
        empty = c.is_zero(g, n)
        n = c.select(g, empty, _over_classes(g, n), n)
        total = c.select(g, empty, _over_classes(g, total), total)
        squares = c.select(g, empty, _over_classes(g, squares), squares)
    # No row at all (then the sums are 0 too): n = 1, mean 0, variance at the floor; the same for every class.
    n = np.concatenate([n[:1] ^ c.is_zero(g, n)[None], n[1:]])
    sign = total[-1]
    size = c.negate_if(g, sign, total)[: max(1, sum_bits - 1)]
    n_squared, size_squared = c.square(g, n), c.square(g, size)
    exact_bits = max(1, (rows * rows * fields.magnitude**2).bit_length())
    signed = exact_bits + bool(plan.guard.noise_bits)  # noisy sums may be those of no numbers: then the variance is negative
    whole = c.subtract(g, c.multiply(g, n, squares), size_squared, bits=signed)
    bits = _widths(fields, layout, plan).divisor
    spread = c.widen(c.shift_up(whole[:exact_bits], own.floor_shift), bits)
    least = c.times(g, n_squared, own.floor, bits)
    low = c.is_less(g, spread, least)
    divisor = c.select(g, _or(g, low, whole[-1]) if plan.guard.noise_bits else low, least, spread)
    return n, sign, size, divisor, (n_squared, size_squared)


def _or(g: Gates, left: Wires, right: Wires) -> Wires:
    return g.not_(g.and_(g.not_(left), g.not_(right)))


def _over_classes(g: Gates, number: Number) -> Number:
    """The sum over all class lanes, on every lane (modulo the width)."""
    lanes = c.lanes_of(number)
    whole = c.add_many(g, [(0, number[:, lane : lane + 1]) for lane in range(lanes)], len(number))
    return np.repeat(whole, lanes, axis=1)
