"""Roles of private_ratio. Step numbers as in SPEC.md."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook
from blindbayes.errors import ConfigError, LocalProtocolError, PeerProtocolError, PrivacyError
from blindbayes.primitives import circuits as c
from blindbayes.primitives.circuits import Number
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.garbling import Evaluator, Garbler, Gates, Plain, Wires
from blindbayes.primitives.prg import KEY_BYTES, expand
from blindbayes.primitives.softspoken import OtReceiver, OtSender
from blindbayes.primitives.tweaks import TweakedHash
from blindbayes.protocol import transfer
from blindbayes.protocol.core import Role, Run, Send, open_value, receive
from blindbayes.protocol.garbled import receive_step, send_step
from blindbayes.protocol.private_ratio.messages import (
    LabelsReturned,
    MaskSent,
    RatiosGarbled,
    RatiosTold,
    TotalsChosen,
    VectorMasked,
)
from blindbayes.protocol.shared_model.score_layout import dyadic
from blindbayes.statistics import Layout
from blindbayes.statistics.layout import is_histogram
from blindbayes.wire import U64Array

Opening = Literal["shares", "coarse", "noisy", "fine"]
_WORD_BITS = 64
_ALPHA_BITS = 16
SHARE_BITS = 32  # fraction bits of probabilities that stay in shares
NONE_OPENED = np.zeros(0, dtype=np.uint64)


def coarse_bits(minimum: int) -> int:
    """The most fraction bits that may be opened when every class has at least `minimum` rows: two fewer than it has bits."""
    return max(0, minimum.bit_length() - 1 - 2)


@dataclass(frozen=True)
class PrivateRatioSetup:
    """What is public about one run: how the parties' counts become probabilities, and what of them is opened."""

    codebook: Codebook
    opening: Opening = "shares"
    fraction: int = SHARE_BITS
    minimum: int = 0  # every class must have so many rows, or nothing is opened
    alpha: float = 1.0
    noise_bound: int = 0  # noise in a total lies within +- this

    def __post_init__(self) -> None:
        wrong = [feature.name for feature in self.codebook.features if not is_histogram(feature)]
        if wrong:
            raise ConfigError(f"feature {wrong[0]!r} is Gaussian; private_ratio opens probabilities of values: give it bins")
        if not 1 <= self.fraction <= 48:
            raise ConfigError("probabilities have 1 to 48 fraction bits")
        if not 2**-8 <= self.alpha <= 2**16:
            raise ConfigError("alpha must lie between 2^-8 and 2^16")
        if not 0 <= self.minimum <= self.codebook.max_rows:
            raise ConfigError("the minimum class size lies between 0 and the codebook's max_rows")
        if not 0 <= self.noise_bound < 2**62 - self.codebook.max_rows:
            raise ConfigError("counts and their noise must fit 62 bits: declare a smaller max_rows or a larger epsilon")
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
    def label(self) -> str | None:
        """The label under which probabilities are opened."""
        names = {"shares": None, "coarse": "probabilities", "noisy": "noisy_probabilities", "fine": "probabilities_and_counts"}
        return names[self.opening]

    @property
    def lanes(self) -> int:
        """Ratios: K priors, and K per value of each feature."""
        return self.layout.size

    @property
    def count_bits(self) -> int:
        """Width of a count."""
        return (self.codebook.max_rows + self.noise_bound).bit_length()

    def facts(self) -> bytes:
        """What both computing parties must agree on."""
        return repr((self.codebook.sha256, self.opening, self.fraction, self.minimum, self.alpha, self.noise_bound)).encode()


# -- the circuit ---------------------------------------------------------------------------------------------------------
#
# Lanes are the cells of the layout: class counts, then per feature class by class, value by value.


def _counts(g: Gates, total: Number, ratios: PrivateRatioSetup) -> Number:
    """Counts of all cells; a noisy count below 0 counts as 0."""
    negative = total[-1]
    return g.and_(total[: ratios.count_bits], np.broadcast_to(g.not_(negative)[None], (ratios.count_bits, *negative.shape)))


def _too_small(g: Gates, counts: Number, ratios: PrivateRatioSetup) -> Wires:
    """1 where some class has fewer rows than the minimum."""
    classes = len(ratios.codebook.classes)
    least = c.public(g, ratios.minimum, ratios.count_bits, classes)
    small = c.is_less(g, counts[:, :classes], least)
    return g.not_(c.is_zero(g, np.stack([small[at : at + 1] for at in range(classes)])))


def _ratios(g: Gates, counts: Number, ratios: PrivateRatioSetup) -> Number:
    """floor(2^fraction (count + alpha) / (total + alpha cells)); priors are not smoothed."""
    classes = len(ratios.codebook.classes)
    alpha, shift, _ = dyadic(Fraction(ratios.alpha), _ALPHA_BITS)
    over, under = [], []
    bits = ratios.count_bits + max(1, max(group.columns for group in ratios.layout.groups).bit_length()) + 1
    width = bits + shift + alpha.bit_length()
    for group in ratios.layout.groups:
        own = counts[:, ratios.layout.slice(group)]
        if group.feature is None:
            whole = c.add_many(g, [(0, own[:, at : at + 1]) for at in range(classes)], bits)
            over.append(c.widen(c.shift_up(own, shift), width))
            under.append(np.repeat(c.widen(c.shift_up(whole, shift), width), classes, axis=1))
            continue
        rows = [own[:, at * group.columns : (at + 1) * group.columns] for at in range(classes)]
        totals = [c.add_many(g, [(0, row[:, at : at + 1]) for at in range(group.columns)], bits) for row in rows]
        smooth = c.public(g, alpha, width, group.columns)
        spread = c.public(g, alpha * group.columns, width, 1)
        for row, total in zip(rows, totals, strict=True):
            over.append(c.add(g, c.widen(c.shift_up(row, shift), width), smooth, bits=width))
            whole = c.add(g, c.widen(c.shift_up(total, shift), width), spread, bits=width)
            under.append(np.repeat(whole, group.columns, axis=1))
    numerator = c.shift_up(c.join_lanes(over), ratios.fraction)
    return c.divide(g, numerator, c.join_lanes(under), ratios.fraction + 1)


def plain_ratios(totals: U64Array, ratios: PrivateRatioSetup) -> tuple[list[int], bool]:
    """The oracle: what the circuit computes, and whether every class reaches the minimum."""
    g = Plain()
    counts = _counts(g, c.to_bits(totals, _WORD_BITS), ratios)
    return c.from_bits(_ratios(g, counts, ratios)), not bool(_too_small(g, counts, ratios)[0])


# -- roles ---------------------------------------------------------------------------------------------------------------


def contributor(
    run: Run, ratios: PrivateRatioSetup, vector: U64Array, first: str, second: str, coins: Coins
) -> Role[list[int] | None]:
    """A party that does not compute: it splits its vector, and later hears what is opened."""
    _require_vector(vector, ratios)
    key = coins.bytes(KEY_BYTES)
    yield Send(first, MaskSent(key))  # step 1
    yield Send(second, VectorMasked(vector - expand(key, len(vector))))
    if ratios.label is None:
        return None
    told = yield from receive(second, RatiosTold)  # step 6
    if len(told.ratios) not in (0, ratios.lanes):
        raise PeerProtocolError("the told probabilities have the wrong length", party=second)
    yield from open_value("minimum_reached", bool(len(told.ratios)))
    if not len(told.ratios):
        raise PrivacyError("a class has fewer rows than the study's minimum; nothing was opened")
    return (yield from open_value(ratios.label, [int(value) for value in told.ratios]))


def first_party(run: Run, ratios: PrivateRatioSetup, vector: U64Array, second: str, coins: Coins) -> Role[list[int]]:
    """The garbler. Returns its shares of the probabilities modulo 2^(fraction + 1), or the opened ones."""
    _require_vector(vector, ratios)
    share = vector.astype(np.uint64, copy=True)
    for name in _others(run, second):
        sent = yield from receive(name, MaskSent)
        if len(sent.key) != KEY_BYTES:
            raise PeerProtocolError("a mask key has the wrong length", party=name)
        share += expand(sent.key, len(share))
    ot_sender = yield from transfer.ot_sender(run, second, coins)
    session = yield from transfer.agree(run, second, "private_ratio", ratios.facts(), coins)  # step 2
    return (yield from _garble(run, ratios, share, second, ot_sender, session, coins))


def second_party(run: Run, ratios: PrivateRatioSetup, vector: U64Array, first: str, coins: Coins) -> Role[list[int]]:
    """The evaluator. Returns its shares of the probabilities, or the opened ones, which it tells the others."""
    _require_vector(vector, ratios)
    share = vector.astype(np.uint64, copy=True)
    for name in _others(run, first):
        sent = yield from receive(name, VectorMasked)
        if sent.vector.shape != share.shape:
            raise PeerProtocolError("a masked vector has the wrong length", party=name)
        share += sent.vector
    ot_receiver = yield from transfer.ot_receiver(run, first, coins)
    session = yield from transfer.agree(run, first, "private_ratio", ratios.facts(), coins)  # step 2
    return (yield from _evaluate(run, ratios, share, first, ot_receiver, session))


def _garble(
    run: Run, ratios: PrivateRatioSetup, share: U64Array, other: str, ot_sender: OtSender, session: bytes, coins: Coins
) -> Role[list[int]]:
    stream = ot_sender.session(session)
    chosen = yield from receive(other, TotalsChosen)
    transfer.require_mark(chosen.mark, session, TotalsChosen, 0, other)
    labels = stream.extend(chosen.corrections, _WORD_BITS * ratios.lanes, other).reshape(_WORD_BITS, -1, 2)
    garbler = Garbler(TweakedHash.of_block(session, 0), ot_sender.delta)
    total = c.add(garbler, garbler.own(c.to_bits(share, _WORD_BITS)), labels, bits=_WORD_BITS)
    counts = _counts(garbler, total, ratios)
    if ratios.label is not None:  # step 4
        small = _too_small(garbler, counts, ratios)
        yield from send_step(other, garbler, small[None], RatiosGarbled, session)
        returned = yield from receive(other, LabelsReturned)
        transfer.require_mark(returned.mark, session, LabelsReturned, 0, other)
        yield from _require_minimum(garbler.read(small[None], returned.labels, other))
        garbler.hash_ = TweakedHash.of_block(session, 1)
    out = _ratios(garbler, counts, ratios)  # step 5
    if ratios.label is None:
        size = len(out) * ratios.lanes
        drawn = np.unpackbits(np.frombuffer(coins.bytes(-(-size // 8)), dtype=np.uint8))
        mask = drawn[:size].reshape(len(out), -1)
        out = c.add(garbler, out, garbler.own(mask), bits=len(out))
        yield from send_step(other, garbler, out, RatiosGarbled, session)
        return [-value % (1 << len(out)) for value in c.from_bits(mask)]
    yield from send_step(other, garbler, out, RatiosGarbled, session)
    returned = yield from receive(other, LabelsReturned)
    transfer.require_mark(returned.mark, session, LabelsReturned, 1, other)
    found = c.from_bits(garbler.read(out, returned.labels, other))
    return (yield from open_value(ratios.label, found))


def _evaluate(
    run: Run, ratios: PrivateRatioSetup, share: U64Array, other: str, ot_receiver: OtReceiver, session: bytes
) -> Role[list[int]]:
    stream = ot_receiver.session(session)
    corrections, t = stream.extend(c.to_bits(share, _WORD_BITS))
    yield Send(other, TotalsChosen(transfer.mark(session, TotalsChosen, 0), corrections))  # step 3
    evaluator = Evaluator(TweakedHash.of_block(session, 0), other)
    labels = t.reshape(_WORD_BITS, -1, 2)
    tags = yield from receive_step(other, evaluator, RatiosGarbled, session)
    total = c.add(evaluator, evaluator.own((_WORD_BITS, ratios.lanes)), labels, bits=_WORD_BITS)
    counts = _counts(evaluator, total, ratios)
    if ratios.label is not None:  # step 4
        small = _too_small(evaluator, counts, ratios)
        evaluator.require_finished()
        bit = evaluator.read(small[None], tags)
        yield Send(other, LabelsReturned(transfer.mark(session, LabelsReturned, 0), evaluator.skip_read(small[None])))
        if bit.any():
            for name in _others(run, other):
                yield Send(name, RatiosTold(NONE_OPENED))
        yield from _require_minimum(bit)
        tags = yield from receive_step(other, evaluator, RatiosGarbled, session)
        evaluator.hash_ = TweakedHash.of_block(session, 1)
    out = _ratios(evaluator, counts, ratios)  # step 5
    if ratios.label is None:
        out = c.add(evaluator, out, evaluator.own(out.shape[:-1]), bits=len(out))
    evaluator.require_finished()
    found = c.from_bits(evaluator.read(out, tags))
    if ratios.label is None:
        return found
    yield Send(other, LabelsReturned(transfer.mark(session, LabelsReturned, 1), evaluator.skip_read(out)))
    for name in _others(run, other):  # step 6
        yield Send(name, RatiosTold(np.array(found, dtype=np.uint64)))
    return (yield from open_value(ratios.label, found))


def _require_minimum(small: npt.NDArray[np.uint8]) -> Role[None]:
    reached = yield from open_value("minimum_reached", not small.any())
    if not reached:
        raise PrivacyError("a class has fewer rows than the study's minimum; nothing was opened")


def _others(run: Run, computing: str) -> list[str]:
    """The parties that do not compute, from a computing party's view."""
    return [name for name in run.others if name != computing]


def _require_vector(vector: U64Array, ratios: PrivateRatioSetup) -> None:
    if vector.dtype != np.uint64 or vector.shape != (ratios.layout.word_count,) or ratios.layout.is_wide:
        raise LocalProtocolError("a vector has one word per cell of the codebook's layout")
