"""Roles of opened_ratio. Step numbers as in SPEC.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.circuits import Number
from blindbayes.crypto.garbling.garbling import Evaluator, Garbler, Gates, Plain, Wires
from blindbayes.crypto.ot.softspoken import OtReceiver, OtSender
from blindbayes.crypto.tweaks import TweakedHash
from blindbayes.errors import ConfigError, LocalProtocolError, PeerProtocolError, PrivacyError
from blindbayes.protocols.core import Role, Run, Send, mark, open_value, receive, receive_marked
from blindbayes.protocols.shared_rows.split import collect, deal, others
from blindbayes.protocols.shared_training.shared_model.score_layout import dyadic
from blindbayes.protocols.two_party.garbled import receive_step, send_step
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.statistics import Layout, Statistics
from blindbayes.statistics.layout import CellGroup
from blindbayes.wire import U64Array
from blindbayes_papers.vaidya2008.opened_ratio.messages import LabelsReturned, RatiosGarbled, RatiosTold, TotalsChosen

Opening = Literal["coarse", "noisy", "fine"]
_WORD_BITS = 64
_ALPHA_BITS = 16
FINE_BITS = 32  # fraction bits where nothing limits them
_TOO_SMALL = (
    "a class, or what of it has a value of some feature, has fewer rows than the study's minimum; nothing was opened. So it is "
    "too if a party brought a vector of no table"
)
NONE_OPENED = np.zeros(0, dtype=np.uint64)


def coarse_bits(minimum: int) -> int:
    """The most fraction bits that may be opened when every class has at least `minimum` rows: two fewer than it has bits."""
    return max(0, minimum.bit_length() - 1 - 2)


@dataclass(frozen=True)
class PrivateRatioSetup:
    """The public facts of one run: how the parties' counts become probabilities, and what of them is opened."""

    codebook: Codebook
    opening: Opening
    fraction: int = FINE_BITS
    minimum: int = 0  # rows that every class must have; otherwise nothing is opened
    alpha: float = 1.0
    noise_bound: int = 0  # noise in the total of a count lies within +- this, in that of a sum within its bound times this

    def __post_init__(self) -> None:
        if not 1 <= self.fraction <= 48:
            raise ConfigError("probabilities have 1 to 48 fraction bits")
        if not 2**-8 <= self.alpha <= 2**16:
            raise ConfigError("alpha must lie between 2^-8 and 2^16")
        if not 0 <= self.minimum <= self.codebook.max_rows:
            raise ConfigError("the minimum class size lies between 0 and the codebook's max_rows")
        if not self.noise_bound >= 0 or (self.codebook.max_rows + self.noise_bound) * max(self.bounds) >= 2**62:
            raise ConfigError(
                "totals and their noise must fit 62 bits: declare a smaller max_rows, a coarser precision or a larger epsilon"
            )
        if self.opening == "coarse" and self.fraction > coarse_bits(self.minimum):
            raise PrivacyError(
                f"with classes of at least {self.minimum} rows at most {coarse_bits(self.minimum)} bits may be opened: finer "
                "probabilities open the counts; raise minimum, keep them in shares, add noise, or choose opening='fine'"
            )

    @cached_property
    def layout(self) -> Layout:
        """The statistics' layout."""
        return Layout(self.codebook)

    @property
    def label(self) -> str:
        """The label under which probabilities are opened."""
        return {"coarse": "probabilities", "noisy": "noisy_probabilities", "fine": "probabilities_and_counts"}[self.opening]

    @property
    def cells(self) -> int:
        """Numbers that each party brings."""
        return self.layout.size

    @property
    def lanes(self) -> int:
        """Return what is opened: K priors, K per value of a feature, K means and K deviations of a Gaussian one."""
        return sum(group.columns for group in self.layout.groups if group.kind != "n") * len(self.codebook.classes)

    @cached_property
    def bounds(self) -> tuple[int, ...]:
        """The most that one row adds to each number: 1 to a count, the width of the grid to a sum, its square to a square."""
        power = {"sum": 1, "square": 2}
        bounds = ((_width(group) ** power.get(group.kind, 0), group.columns) for group in self.layout.groups)
        return tuple(bound for bound, columns in bounds for _ in range(columns * len(self.codebook.classes)))

    def vector(self, statistics: Statistics) -> U64Array:
        """A party's numbers: counts, and of a Gaussian feature sums of codes counted from the lowest one, so that all are
        at least 0."""
        made = [int(value) for value in statistics.vector]
        for group in self.layout.groups:
            if group.kind != "sum" or not isinstance(group.feature, Numeric):
                continue
            low, name = group.feature.code_low, group.feature.name
            own, square = self.layout.slice(group), self.layout.slice(self.layout.require("square", name))
            triples = zip(statistics.n[name], statistics.sums[name], statistics.squares[name], strict=True)
            moved = [(int(s) - low * int(n), int(q) - 2 * low * int(s) + low * low * int(n)) for n, s, q in triples]
            made[own], made[square] = [pair[0] for pair in moved], [pair[1] for pair in moved]
        return np.array(made, dtype=np.uint64)

    @property
    def count_bits(self) -> int:
        """Width of a count."""
        return (self.codebook.max_rows + self.noise_bound).bit_length()

    def bits(self, group: CellGroup) -> int:
        """Width of the totals of a group."""
        return ((self.codebook.max_rows + self.noise_bound) * self.bounds[group.start]).bit_length()

    def facts(self) -> bytes:
        """Return what both computing parties must agree on."""
        return repr((self.codebook.sha256, self.opening, self.fraction, self.minimum, self.alpha, self.noise_bound)).encode()


# -- the circuit ---------------------------------------------------------------------------------------------------------
#
# Lanes are the cells of the layout: class counts, then per feature class by class, value by value.


def _width(group: CellGroup) -> int:
    return group.feature.code_high - group.feature.code_low if isinstance(group.feature, Numeric) else 1


def _at_least_zero(g: Gates, total: Number) -> Number:
    """Totals of all cells; a noisy one below 0 counts as 0."""
    return g.and_(total[:-1], np.broadcast_to(g.not_(total[-1])[None], (len(total) - 1, *total[-1].shape)))


def _counted(g: Gates, totals: Number, ratios: PrivateRatioSetup) -> dict[int, Number]:
    """Per class the rows in the cells of a feature that is counted by its values, by where it starts: what those are
    divided by."""
    classes, layout = len(ratios.codebook.classes), ratios.layout
    results = {}
    for group in (group for group in layout.groups if group.kind == "count"):
        own, bits = totals[: ratios.count_bits, layout.slice(group)], ratios.count_bits + group.columns.bit_length()
        rows = np.arange(classes) * group.columns
        results[group.start] = c.add_many(g, [(0, own[:, rows + at]) for at in range(group.columns)], bits)
    return results


def _too_small(g: Gates, below: Wires, totals: Number, counted: dict[int, Number], ratios: PrivateRatioSetup) -> Wires:
    """1 where some class has fewer rows than the minimum. Where that is all that hides a count, `coarse`, also where one of
    what is divided by has: a total that is `below` zero, values that are not as many as rows, or too few where rows lack one.
    """
    classes, layout = len(ratios.codebook.classes), ratios.layout
    rows = totals[: ratios.count_bits, :classes]
    wrong = [c.is_less(g, rows, c.public(g, ratios.minimum, len(rows), classes))]
    if ratios.opening == "coarse":
        wrong.append(below)
        for group in (group for group in layout.groups if group.kind in ("count", "n")):
            number = counted[group.start] if group.kind == "count" else totals[: len(rows), layout.slice(group)]
            maximum, minimum = c.widen(rows, len(number)), c.public(g, ratios.minimum, len(number), classes)
            if group.feature is not None and group.feature.optional:
                wrong += [c.is_less(g, number, minimum), c.is_less(g, maximum, number)]
            else:
                wrong.append(g.not_(c.is_zero(g, number ^ maximum)))
    flags = c.join_lanes([each[None] for each in wrong])[0]
    return g.not_(c.is_zero(g, flags[:, None]))


def _ratios(g: Gates, totals: Number, counted: dict[int, Number], ratios: PrivateRatioSetup) -> Number:
    """floor(2^fraction (count + alpha) / (total + alpha cells)) of counts; priors are not smoothed. Of a Gaussian feature the
    mean and the deviation, as parts of the grid's width and of half of it."""
    classes, layout = len(ratios.codebook.classes), ratios.layout
    alpha, shift, _ = dyadic(Fraction(ratios.alpha), _ALPHA_BITS)
    over, under = [], []
    histograms = [group for group in layout.groups if group.kind in ("class_count", "count")]
    bits = ratios.count_bits + max(1, max(group.columns for group in histograms).bit_length(), classes.bit_length()) + 1
    width = bits + shift + alpha.bit_length()
    for group in histograms:
        own = totals[: ratios.count_bits, layout.slice(group)]
        if group.feature is None:
            whole = c.add_many(g, [(0, own[:, at : at + 1]) for at in range(classes)], bits)
            over.append(c.widen(c.shift_up(own, shift), width))
            under.append(np.repeat(c.widen(c.shift_up(whole, shift), width), classes, axis=1))
            continue
        smooth = c.public(g, alpha, width, group.columns * classes)
        spread = c.public(g, alpha * group.columns, width, classes)
        over.append(c.add(g, c.widen(c.shift_up(own, shift), width), smooth, bits=width))
        whole = c.add(g, c.widen(c.shift_up(counted[group.start], shift), width), spread, bits=width)
        under.append(np.repeat(whole, group.columns, axis=1))
    numerator = c.shift_up(c.join_lanes(over), ratios.fraction)
    quotient = c.divide(g, numerator, c.join_lanes(under), ratios.fraction + 1)
    made, at = [], 0
    for group in layout.groups:  # in the layout's order
        if group in histograms:
            made.append(quotient[:, at : at + group.columns * classes])
            at += group.columns * classes
        elif group.kind == "sum":
            made += _moments(g, totals, ratios, group)
    return c.join_lanes(made)


def _moments(g: Gates, totals: Number, ratios: PrivateRatioSetup, group: CellGroup) -> list[Number]:
    """floor(2^f S / (n w)) and floor(2^f 2 sqrt(n Q - S^2) / (n w)), w the width of the grid; a class without a value takes
    all classes' sums. Noisy sums are held to what n values can have."""
    layout, name, fraction, classes = ratios.layout, _name(group), ratios.fraction, len(ratios.codebook.classes)
    counted, square = layout.find("n", name) or layout.require("class_count"), layout.require("square", name)
    width, extra = max(1, _width(group)), classes.bit_length()
    parts = [totals[: ratios.bits(part), layout.slice(part)] for part in (counted, group, square)]
    alone = c.is_zero(g, parts[0])
    own = []
    for part in parts:
        whole = c.add_many(g, [(0, part[:, at : at + 1]) for at in range(classes)], len(part) + extra)
        own.append(c.select(g, alone, np.repeat(whole, classes, axis=1), c.widen(part, len(whole))))
    n, total, squares = own
    n = np.concatenate([n[:1] ^ c.is_zero(g, n)[None], n[1:]])  # nobody has a value: one at the low end
    maximum = c.times(g, n, width, len(n) + width.bit_length())
    total = c.select(g, c.is_less(g, c.widen(total, len(maximum)), maximum), c.widen(total, len(maximum)), maximum)
    mean = c.divide(g, c.shift_up(total, fraction), maximum, fraction + 1)
    product, taken = c.multiply(g, n, squares), c.square(g, total)
    size = max(len(product), len(taken)) + 1
    spread = _at_least_zero(g, c.subtract(g, c.widen(product, size), c.widen(taken, size), bits=size))
    bound = c.square(g, maximum)  # 4 (n Q - S^2) <= (n w)^2, but for noise
    spread = c.shift_up(spread, 2)
    size = max(len(spread), len(bound))
    spread, bound = c.widen(spread, size), c.widen(bound, size)
    spread = c.select(g, c.is_less(g, spread, bound), spread, bound)
    return [mean, _root(g, c.divide(g, c.shift_up(spread, 2 * fraction), bound, 2 * fraction + 1))]


def _root(g: Gates, number: Number) -> Number:
    """floor(sqrt(number)), of half as many bits, rounded up: one comparison per bit."""
    number = c.widen(number, len(number) + len(number) % 2)
    half = len(number) // 2
    root = c.zeros(number, half)
    left = number
    for bit in reversed(range(half)):
        one = c.public(g, 1 << (2 * bit), len(number), c.lanes_of(number))
        trial = c.widen(c.shift_up(root, bit + 1), len(number)) ^ one  # 2 root 2^bit + 4^bit: their bits do not meet
        fits = g.not_(c.is_less(g, left, trial))
        left = c.select(g, fits, c.subtract(g, left, trial, bits=len(number)), left)
        root = np.concatenate([root[:bit], fits[None], root[bit + 1 :]])
    return root


def _name(group: CellGroup) -> str:
    if group.feature is None:
        raise LocalProtocolError("a sum belongs to a feature")
    return group.feature.name


def plain_ratios(totals: U64Array, ratios: PrivateRatioSetup) -> tuple[list[int], bool]:
    """The oracle: what the circuit computes, and whether every class reaches the minimum."""
    g, signed = Plain(), c.to_bits(totals, _WORD_BITS)
    counts = _at_least_zero(g, signed)
    counted = _counted(g, counts, ratios)
    small = _too_small(g, signed[-1], counts, counted, ratios)
    return c.from_bits(_ratios(g, counts, counted, ratios)), not bool(small[0])


# -- roles ---------------------------------------------------------------------------------------------------------------


def contributor(
    run: Run, ratios: PrivateRatioSetup, vector: U64Array, first: str, second: str, coins: Coins
) -> Role[list[int]]:
    """A party that does not compute: it splits its vector, and later hears what is opened."""
    _require_vector(vector, ratios)
    yield from deal(vector, (first, second), coins)  # step 1
    message = yield from receive(second, RatiosTold)  # step 6
    if len(message.ratios) not in (0, ratios.lanes) or (message.ratios >> np.uint64(ratios.fraction + 1)).any():
        raise PeerProtocolError("the received probabilities have the wrong length or width", party=second)
    yield from open_value("minimum_reached", bool(len(message.ratios)))
    if not len(message.ratios):
        raise PrivacyError(_TOO_SMALL)
    return (yield from open_value(ratios.label, [int(value) for value in message.ratios]))


def first_party(run: Run, ratios: PrivateRatioSetup, vector: U64Array, second: str, coins: Coins) -> Role[list[int]]:
    """The garbler. Returns the opened probabilities."""
    _require_vector(vector, ratios)
    share = yield from collect(run, vector, (run.me, second))
    ot_sender = yield from transfer.ot_sender(run, second, coins)
    session = yield from transfer.agree(run, second, "opened_ratio", ratios.facts(), coins)  # step 2
    return (yield from _garble(ratios, share, second, ot_sender, session))


def second_party(run: Run, ratios: PrivateRatioSetup, vector: U64Array, first: str, coins: Coins) -> Role[list[int]]:
    """Run the evaluator. Return the opened probabilities, which it sends to the others."""
    _require_vector(vector, ratios)
    share = yield from collect(run, vector, (first, run.me))
    ot_receiver = yield from transfer.ot_receiver(run, first, coins)
    session = yield from transfer.agree(run, first, "opened_ratio", ratios.facts(), coins)  # step 2
    return (yield from _evaluate(run, ratios, share, first, ot_receiver, session))


def _garble(ratios: PrivateRatioSetup, share: U64Array, other: str, ot_sender: OtSender, session: bytes) -> Role[list[int]]:
    stream = ot_sender.session(session)
    chosen = yield from receive_marked(other, TotalsChosen, session, 0)
    labels = stream.extend(chosen.corrections, _WORD_BITS * ratios.cells, other).reshape(_WORD_BITS, -1, 2)
    garbler = Garbler(TweakedHash.for_block(session, 0), ot_sender.delta)
    total = c.add(garbler, garbler.own(c.to_bits(share, _WORD_BITS)), labels, bits=_WORD_BITS)
    totals = _at_least_zero(garbler, total)
    counted = _counted(garbler, totals, ratios)
    small = _too_small(garbler, total[-1], totals, counted, ratios)  # step 4
    yield from send_step(other, garbler, small[None], RatiosGarbled, session)
    returned = yield from receive_marked(other, LabelsReturned, session, 0)
    yield from _require_minimum(garbler.read(small[None], returned.labels, other))
    garbler.hash_ = TweakedHash.for_block(session, 1)
    out = _ratios(garbler, totals, counted, ratios)  # step 5
    yield from send_step(other, garbler, out, RatiosGarbled, session)
    returned = yield from receive_marked(other, LabelsReturned, session, 1)
    values = c.from_bits(garbler.read(out, returned.labels, other))
    return (yield from open_value(ratios.label, values))


def _evaluate(
    run: Run, ratios: PrivateRatioSetup, share: U64Array, other: str, ot_receiver: OtReceiver, session: bytes
) -> Role[list[int]]:
    stream = ot_receiver.session(session)
    corrections, t = stream.extend(c.to_bits(share, _WORD_BITS))
    yield Send(other, TotalsChosen(mark(session, TotalsChosen, 0), corrections))  # step 3
    evaluator = Evaluator(TweakedHash.for_block(session, 0), other)
    labels = t.reshape(_WORD_BITS, -1, 2)
    tags = yield from receive_step(other, evaluator, RatiosGarbled, session)
    total = c.add(evaluator, evaluator.own((_WORD_BITS, ratios.cells)), labels, bits=_WORD_BITS)
    totals = _at_least_zero(evaluator, total)
    counted = _counted(evaluator, totals, ratios)
    small = _too_small(evaluator, total[-1], totals, counted, ratios)  # step 4
    evaluator.require_finished()
    bit = evaluator.read(small[None], tags)
    yield Send(other, LabelsReturned(mark(session, LabelsReturned, 0), evaluator.skip_read(small[None])))
    if bit.any():
        for name in others(run, (other,)):
            yield Send(name, RatiosTold(NONE_OPENED))
    yield from _require_minimum(bit)
    tags = yield from receive_step(other, evaluator, RatiosGarbled, session)
    evaluator.hash_ = TweakedHash.for_block(session, 1)
    out = _ratios(evaluator, totals, counted, ratios)  # step 5
    evaluator.require_finished()
    values = c.from_bits(evaluator.read(out, tags))
    yield Send(other, LabelsReturned(mark(session, LabelsReturned, 1), evaluator.skip_read(out)))
    for name in others(run, (other,)):  # step 6
        yield Send(name, RatiosTold(np.array(values, dtype=np.uint64)))
    return (yield from open_value(ratios.label, values))


def _require_minimum(small: npt.NDArray[np.uint8]) -> Role[None]:
    reached = yield from open_value("minimum_reached", not small.any())
    if not reached:
        raise PrivacyError(_TOO_SMALL)


def _require_vector(vector: U64Array, ratios: PrivateRatioSetup) -> None:
    if vector.dtype != np.uint64 or vector.shape != (ratios.cells,):
        raise LocalProtocolError("a vector has one word per cell of the codebook's layout")
