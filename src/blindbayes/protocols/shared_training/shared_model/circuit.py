"""The circuits of shared_model: from shares of sums to masked logarithms and Gaussian coefficients.

`build` runs unchanged for the garbler, the evaluator and the plain oracle. It yields one stack of output wires (bits, lanes)
after another; between two of them lie at most some thousand lanes, so that tables can be sent as they are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.circuits import Number
from blindbayes.crypto.garbling.garbling import Gates, Wires
from blindbayes.crypto.logarithm import ln
from blindbayes.protocols.shared_training.class_sums.layout import Field, GaussianFields, HistogramFields, RowLayout
from blindbayes.protocols.shared_training.shared_model.score_layout import GaussianLayout, Guard, ScoreLayout

LN_LANES = 512
GAUSSIAN_LANES = 4096  # outputs of one group of Gaussian features, unless one alone has more
_ALIKE = 1.2  # Gaussian features whose circuits differ by less share the gates of a division


class Side(Protocol):
    """The inputs that only one party can feed into the circuit: the garbler has bits, the evaluator nothing."""

    gates: Gates

    def sums(self, fields: Iterable[Field]) -> Number:
        """Return sums over all rows of fields of one width, side by side: a lane is (field, class), classes fastest."""

    def class_counts(self) -> Number: ...

    def mask(self, lanes: int) -> Number:
        """Return a fresh uniform mask of the plan's bits, known to the garbler alone."""


def histogram_lanes(layout: RowLayout) -> list[tuple[str, int]]:
    """Return (feature, value) of each group of K lanes whose logarithm `build` takes; value -1 is the denominator."""
    lanes: list[tuple[str, int]] = []
    for fields in layout.fields:
        if isinstance(fields, HistogramFields):
            name = fields.feature.name
            lanes.extend((name, value) for value in range(len(fields.counts)))
            if fields.feature.optional:
                lanes.append((name, -1))
    return lanes


def gaussian_groups(layout: RowLayout, plan: ScoreLayout) -> list[list[list[GaussianFields]]]:
    """Group the Gaussian features: a list per circuit, and circuits together that can share the widths of one division."""
    gaussians = [fields for fields in layout.fields if isinstance(fields, GaussianFields)]
    gaussians.sort(key=lambda fields: (_cost(fields, plan), repr(_circuit_of(fields, plan))))
    groups: list[list[list[GaussianFields]]] = []
    for fields in gaussians:
        lanes = plan.features[fields.feature.name].selectors * plan.classes
        if not groups or _cost(fields, plan) > _ALIKE * _cost(groups[-1][0][0], plan):
            groups.append([[fields]])
        elif _circuit_of(fields, plan) != _circuit_of(groups[-1][-1][0], plan) or (
            (len(groups[-1][-1]) + 1) * lanes > GAUSSIAN_LANES
        ):
            groups[-1].append([fields])
        else:
            groups[-1][-1].append(fields)
    return groups


def _circuit_of(fields: GaussianFields, plan: ScoreLayout) -> tuple[object, ...]:
    own = _gaussian_plan(plan, fields)
    return fields.present is None, fields.magnitude, own.code_bits, own.floor, own.floor_shift


def build(side: Side, layout: RowLayout, plan: ScoreLayout) -> Iterator[Wires]:
    """Yield all outputs.

    First the logarithms of histogram cells in the order of `histogram_lanes`, `LN_LANES` lanes at a time; then, per list of
    `gaussian_groups` and feature by feature, its selectors (constant, bits of z, bits of z^2), each K lanes.
    """
    g = side.gates
    cells = _cells(side, layout, plan)
    if cells is not None:
        lanes = c.lanes_of(cells)
        for low in range(0, lanes, LN_LANES):
            part = cells[:, low : low + LN_LANES]
            logs = ln(g, part, plan.fraction)
            yield c.add(g, logs, side.mask(c.lanes_of(part)), bits=plan.bits)
    for group in gaussian_groups(layout, plan):
        yield from _coefficients(side, layout, plan, group)


# -- histograms ----------------------------------------------------------------------------------------------------------


def cell_bits(layout: RowLayout, plan: ScoreLayout) -> int:
    """Return the width of a smoothed count or denominator, in units of 2^-alpha_shift."""
    sizes = [len(fields.counts) for fields in layout.fields if isinstance(fields, HistogramFields)]
    return (((layout.rows << plan.alpha_shift) + max(sizes, default=1) * plan.alpha) * plan.guard.units).bit_length()


def _cells(side: Side, layout: RowLayout, plan: ScoreLayout) -> Number | None:
    """Return smoothed counts and denominators, all lanes side by side. Features with as many values share gates."""
    histograms = [fields for fields in layout.fields if isinstance(fields, HistogramFields)]
    if not histograms:
        return None
    g, classes, bits = side.gates, plan.classes, layout.count_bits
    cells: dict[tuple[str, int], Number] = {}
    for like in sorted({(len(fields.counts), fields.feature.optional) for fields in histograms}):
        alike = [fields for fields in histograms if (len(fields.counts), fields.feature.optional) == like]
        placed = [[field for field in fields.counts if field is not None] for fields in alike]  # of values that have a counter
        own = [side.sums(column) for column in zip(*placed, strict=True)]
        if plan.guard.acts:
            safe = guarded(g, c.join_lanes(own), plan.guard, layout.rows, classes)
            own = [safe[:, low : low + len(alike) * classes] for low in range(0, c.lanes_of(safe), len(alike) * classes)]
        total = _total(g, own, layout, plan) if own else None
        if like[1]:
            own = [*own, *([] if total is None else [total])]  # the denominator
        else:
            counts = c.join_lanes([side.class_counts()] * len(alike))
            own = [counts if total is None else c.subtract(g, counts, total, bits=bits), *own]
        for at, fields in enumerate(alike):
            for value, number in enumerate(own):
                lane = number[:, at * classes : (at + 1) * classes]
                cells[fields.feature.name, value if value < len(fields.counts) else -1] = lane
    lanes, sizes = histogram_lanes(layout), {fields.feature.name: len(fields.counts) for fields in histograms}
    added = [plan.alpha * plan.guard.units * (sizes[name] if value < 0 else 1) for name, value in lanes]
    width = cell_bits(layout, plan)
    joined = c.widen(c.shift_up(c.join_lanes([cells[lane] for lane in lanes]), plan.alpha_shift), width)
    smoothing = g.constant(np.repeat(c.to_bits(added, width), classes, axis=1), 1)[:, :, 0]
    return c.add(g, joined, smoothing, bits=width)


def _total(g: Gates, cells: list[Number], layout: RowLayout, plan: ScoreLayout) -> Number:
    """Return the sum of a feature's cells. Exact ones add up to the rows at most; estimates are clamped to that."""
    terms, limit = [(0, number) for number in cells], layout.rows * plan.guard.units
    bits = limit.bit_length()
    if not plan.guard.estimates:
        return c.add_many(g, terms, bits)
    return _at_most(g, c.add_many(g, terms, bits + (len(cells) - 1).bit_length()), limit)[:bits]


# -- guards: noise, small cells, randomised labels --------------------------------------------------------------------------


def guarded(g: Gates, counts: Number, guard: Guard, rows: int, classes: int) -> Number:
    """Return counters as the model takes them: in units of 1 / `guard.units`, within 0 and the rows, small cells 0.

    Counters with noise are raised; classes are the fastest lanes. The result is as wide as the rows in these units.
    """
    bits = rows.bit_length()
    if guard.noise_bits:
        counts = _lowered(g, counts, guard.noise_bits)
        if guard.min_cell or not guard.randomised:
            counts = _at_most(g, _not_negative(g, counts), rows)[:bits]
    if guard.min_cell:
        counts = _keep(g, _enough(g, counts, guard.min_cell), counts)
    if not guard.randomised:
        return counts
    if guard.min_cell or not guard.noise_bits:
        counts = c.widen(counts, len(counts) + 1)  # the sign
    limit = rows * guard.units
    return _at_most(g, _not_negative(g, debiased(g, counts, guard, classes)), limit)[: limit.bit_length()]


def debiased(g: Gates, sums: Number, guard: Guard, classes: int) -> Number:
    """Return unbiased estimates of sums over the true labels, times `guard.units`, from sums over randomised ones.

    In two's complement: (a + (K - 1) b) s_k - b (s_1 + ... + s_K) for the odds a : b.
    """
    true_odds, other = guard.odds
    whole = true_odds + (classes - 1) * other
    bits = len(sums) + whole.bit_length() + 1
    extended = _extended(sums, bits)
    share = c.times(g, _over_classes(g, extended, classes), other, bits)
    return c.subtract(g, c.times(g, extended, whole, bits), share, bits=bits)


def _enough(g: Gates, counts: Number, minimum: int) -> Wires:
    wide = max(len(counts), minimum.bit_length())
    return g.not_(c.is_less(g, c.widen(counts, wide), c.public(g, minimum, wide, c.lanes_of(counts))))


def _lowered(g: Gates, number: Number, raised: int) -> Number:
    """Return a number minus 2^raised, in two's complement. It takes as many AND as it has bits above, if more than one."""
    low, high = number[:raised], number[raised:]
    if len(high) > 1:
        high = c.subtract(g, high, c.public(g, 1, 1, c.lanes_of(high)), bits=len(high) + 1)
    else:
        high = g.not_(high)
    return np.concatenate([low, high])


def _keep(g: Gates, condition: Wires, number: Number) -> Number:
    gated: Number = g.and_(np.broadcast_to(condition[None], number.shape), number)
    return gated


def _not_negative(g: Gates, number: Number) -> Number:
    """Return max(0, number) of a two's complement number, a bit narrower."""
    return _keep(g, g.not_(number[-1]), number[:-1])


def _at_most(g: Gates, number: Number, limit: int) -> Number:
    """Return min(number, limit) for a public limit."""
    bits = max(len(number), limit.bit_length())
    top = c.public(g, limit, bits, c.lanes_of(number))
    number = c.widen(number, bits)
    return c.select(g, c.is_less(g, top, number), top, number)


def _at_most_number(g: Gates, number: Number, limit: Number) -> Number:
    bits = max(len(number), len(limit))
    number, limit = c.widen(number, bits), c.widen(limit, bits)
    return c.select(g, c.is_less(g, limit, number), limit, number)


def _guarded_moments(
    side: Side, layout: RowLayout, plan: ScoreLayout, alike: Sequence[GaussianFields], n: Number, total: Number, squares: Number
) -> tuple[Number, Number, Number]:
    """Return n, sum and sum of squares as the model takes them.

    Estimates are clamped to what n values within the bounds can have; of too few values nothing is left.
    """
    g, size, guard, classes = side.gates, alike[0].magnitude, plan.guard, plan.classes
    if guard.noise_bits:
        total = _lowered(g, total, alike[0].total.raised)
        squares = _lowered(g, squares, alike[0].squares[0].raised)
    elif guard.estimates:
        squares = c.widen(squares, len(squares) + 1)  # the sign
    if guard.min_cell and (guard.randomised or not guard.noise_bits):
        raw = _not_negative(g, _lowered(g, n, guard.noise_bits)) if guard.noise_bits else n
        there = _enough(g, raw, guard.min_cell)
        total, squares = _keep(g, there, total), _keep(g, there, squares)
    n = guarded(g, n, guard, layout.rows, classes)
    if not guard.estimates:
        return n, total, squares
    if guard.randomised:
        total, squares = (debiased(g, number, guard, classes) for number in (total, squares))
    rows = layout.rows * guard.units
    sign, sum_bits = total[-1], max(1, (rows * size).bit_length()) + 1
    limit = c.times(g, n, max(1, size), len(n) + max(1, size).bit_length())
    clamped = c.widen(_at_most_number(g, c.negate_if(g, sign, total)[:-1], limit), sum_bits - 1)
    total = c.negate_if(g, sign, c.widen(clamped, sum_bits))
    square = max(1, size * size)
    limit = c.times(g, n, square, len(n) + square.bit_length())
    clamped = _at_most_number(g, _not_negative(g, squares), limit)
    return n, total, c.widen(clamped, max(1, (rows * size * size).bit_length()))


# -- Gaussian coefficients -------------------------------------------------------------------------------------------------
#
# n, S1, S2 are exact. D = n S2 - S1^2 = n^2 variance; D' = max(D, n^2 floor). All in units of 2^-floor_shift:
#   A = -1 / (2 var) = -n^2 / 2D'        B = mean / var = n S1 / D'        C = -S1^2 / 2D' - ln(D')/2 + ln n


@dataclass(frozen=True, slots=True)
class _Widths:
    divisor: int
    quotient: int


def _widths(fields: GaussianFields, layout: RowLayout, plan: ScoreLayout) -> _Widths:
    """Return the bits of D', and of the largest of A, B and C that its floor allows."""
    own, rows, size = _gaussian_plan(plan, fields), layout.rows * plan.guard.units, fields.magnitude
    divisor = max((rows * rows * size * size << own.floor_shift).bit_length(), (rows * rows * own.floor).bit_length())
    scale = 1 << (plan.fraction + own.floor_shift)
    largest = max(
        (scale << (own.square_bits - 1)) // (2 * own.floor),
        (size * scale << (own.code_bits - 1)) // own.floor,
        size * size * scale // (2 * own.floor),
    )
    return _Widths(divisor, max(1, largest.bit_length()))


def _cost(fields: GaussianFields, plan: ScoreLayout) -> int:
    """Estimate the gates of a feature's division: features of like cost share one."""
    own = _gaussian_plan(plan, fields)
    divisor = 2 * plan.units.bit_length() + own.square_bits + own.floor_shift
    return divisor * max(1, plan.fraction + own.square_bits + own.floor_shift - own.floor.bit_length())


def _coefficients(
    side: Side, layout: RowLayout, plan: ScoreLayout, group: Sequence[Sequence[GaussianFields]]
) -> Iterator[Wires]:
    """Yield A, B and C of the features of one group by one division and two logarithms, as masked selectors."""
    g = side.gates
    widths = [_widths(alike[0], layout, plan) for alike in group]
    divisor_bits = max(item.divisor for item in widths)
    quotient_bits = max(item.quotient for item in widths)
    divisors, numerators, present, signs = [], [], [], []
    over = divisor_bits + quotient_bits
    for alike in group:
        n, sign, size, divisor, squares = _moments(side, layout, plan, alike)
        own = _gaussian_plan(plan, alike[0])
        up, lanes = own.floor_shift + plan.fraction, c.lanes_of(divisor)
        divisors.append(c.widen(divisor, divisor_bits))
        present.append(n)
        signs.append(sign)
        numerators.append(
            (
                c.widen(c.shift_up(_tiled(squares[0], lanes), up + own.square_bits - 2), over),  # n^2 2^(F + J) / 2
                c.widen(c.shift_up(c.multiply(g, _tiled(n, lanes), size), up + own.code_bits - 1), over),
                c.widen(c.shift_up(squares[1], up - 1), over),
            )
        )
    together = c.join_lanes([row[kind] for kind in range(3) for row in numerators])
    divisor = c.join_lanes(divisors)
    quotients = c.divide(g, together, c.join_lanes([divisor] * 3), quotient_bits)
    log_divisor = ln(g, divisor, plan.fraction)
    log_n = ln(g, c.join_lanes(present), plan.fraction)
    lanes, at, logs = c.lanes_of(divisor), 0, []
    for number, own_divisor in zip(present, divisors, strict=True):
        logs.append(_tiled(log_n[:, at : at + c.lanes_of(number)], c.lanes_of(own_divisor)))
        at += c.lanes_of(number)
    width = max(len(log_divisor), len(log_n) + 1) + 1
    twice = c.subtract(g, c.shift_up(c.join_lanes(logs), 1), log_divisor, bits=width)  # 2 ln n - ln D', signed
    half = _extended(twice[1:], plan.bits)
    a, b, square = (quotients[:, kind * lanes : (kind + 1) * lanes] for kind in range(3))
    constant = c.subtract(g, half, square, bits=plan.bits)
    at = 0
    for alike, sign in zip(group, signs, strict=True):
        end = at + len(alike) * plan.classes
        yield _masked(side, plan, alike, constant[:, at:end], a[:, at:end], b[:, at:end], sign)
        at = end


def _masked(
    side: Side, plan: ScoreLayout, alike: Sequence[GaussianFields], constant: Number, a: Number, b: Number, sign: Wires
) -> Number:
    """Yield the selectors of some features, feature by feature, each K lanes, under masks."""
    g, own = side.gates, _gaussian_plan(plan, alike[0])
    numbers, flips = [constant], [np.zeros_like(sign)]
    minus = c.public(g, 1, 1, c.lanes_of(constant))[0]
    for bit in range(own.code_bits):
        top = own.code_bits - 1
        numbers.append(c.widen(b[top - bit :], plan.bits))
        flips.append(g.not_(sign) if bit == top else sign)
    for bit in range(own.square_bits):
        numbers.append(c.widen(a[own.square_bits - 1 - bit :], plan.bits))
        flips.append(minus)
    lane = np.arange(own.selectors * len(alike) * plan.classes).reshape(own.selectors, len(alike), plan.classes)
    order = lane.transpose(1, 0, 2).reshape(-1)  # of (selector, feature, class), by feature
    joined, flip = c.join_lanes(numbers)[:, order], np.concatenate(flips)[order]
    return c.add(g, joined ^ flip[None], side.mask(c.lanes_of(joined)), bits=plan.bits, carry=flip)


def _tiled(number: Number, lanes: int) -> Number:
    """Repeat a number per class for each feature, unless it is per feature already."""
    return c.join_lanes([number] * (lanes // c.lanes_of(number)))


def _gaussian_plan(plan: ScoreLayout, fields: GaussianFields) -> GaussianLayout:
    own = plan.features[fields.feature.name]
    if not isinstance(own, GaussianLayout):
        raise TypeError("a Gaussian feature has a Gaussian plan")
    return own


def _extended(number: Number, bits: int) -> Number:
    """Return a two's complement number with more bits, or its low bits."""
    if len(number) >= bits:
        return number[:bits]
    return np.concatenate([number, np.repeat(number[-1:], bits - len(number), axis=0)])


def _moments(
    side: Side, layout: RowLayout, plan: ScoreLayout, alike: Sequence[GaussianFields]
) -> tuple[Number, Wires, Number, Number, tuple[Number, Number]]:
    """Return n >= 1, sign and size of S1, D' in units of 2^-floor_shift, and (n^2, S1^2).

    n and n^2 have the lanes of one feature where they are the class counts.
    """
    g, classes, rows, size_of = side.gates, plan.classes, layout.rows * plan.guard.units, alike[0].magnitude
    own = _gaussian_plan(plan, alike[0])
    square_bits = max(1, (layout.rows * size_of**2).bit_length())
    total = side.sums([fields.total for fields in alike])
    limbs = [side.sums(limb) for limb in zip(*(fields.squares for fields in alike), strict=True)]
    squares = limbs[0] if len(limbs) == 1 else c.add_many(g, [(32 * at, limb) for at, limb in enumerate(limbs)], square_bits)
    present = [fields.present for fields in alike if fields.present is not None]
    if not present:
        n = side.class_counts()
    else:
        n = side.sums(present)
        if plan.guard.acts:
            n, total, squares = _guarded_moments(side, layout, plan, alike, n, total, squares)
    if present and not plan.guard.estimates:
        # A class that has rows but no value here takes the moments of all classes together.
        empty = c.is_zero(g, n)
        n = c.select(g, empty, _over_classes(g, n, classes), n)
        total = c.select(g, empty, _over_classes(g, total, classes), total)
        squares = c.select(g, empty, _over_classes(g, squares, classes), squares)
    # No row at all (then the sums are 0 too): n = 1, mean 0, variance at the floor; the same for every class.
    n = np.concatenate([n[:1] ^ c.is_zero(g, n)[None], n[1:]])
    sign, lanes = total[-1], c.lanes_of(total)
    size = c.negate_if(g, sign, total)[: max(1, len(total) - 1)]
    n_squared, size_squared = c.square(g, n), c.square(g, size)
    exact_bits = max(1, (rows * rows * size_of**2).bit_length())
    signed = exact_bits + plan.guard.estimates  # estimates may be the sums of no numbers: then the variance is negative
    whole = c.subtract(g, c.multiply(g, _tiled(n, lanes), squares), size_squared, bits=signed)
    bits = _widths(alike[0], layout, plan).divisor
    spread = c.widen(c.shift_up(whole[:exact_bits], own.floor_shift), bits)
    floor = _tiled(c.times(g, n_squared, own.floor, bits), lanes)
    low = c.is_less(g, spread, floor)
    divisor = c.select(g, _or(g, low, whole[-1]) if plan.guard.estimates else low, floor, spread)
    return n, sign, size, divisor, (n_squared, size_squared)


def _or(g: Gates, left: Wires, right: Wires) -> Wires:
    return g.not_(g.and_(g.not_(left), g.not_(right)))


def _over_classes(g: Gates, number: Number, classes: int) -> Number:
    whole = c.add_many(g, [(0, number[:, lane::classes]) for lane in range(classes)], len(number))
    return np.repeat(whole, classes, axis=1)
