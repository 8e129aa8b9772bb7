"""Circuits on counts: whether enough identifiers joined, about how many, and the classes' priors. Step numbers as in SPEC.md.

The number of joined identifiers is the output of the circuit that finds them: the label holder has its labels, the row holder
knows both of each bit. No party can add to it. The rows per class are words of the shares that joined_sums left.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from blindbayes.crypto import limbs as lm
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.circuits import Number
from blindbayes.crypto.garbling.garbling import Evaluator, Garbler, Gates, Wires
from blindbayes.crypto.limbs import Limbs
from blindbayes.crypto.logarithm import ln
from blindbayes.crypto.ot.softspoken import ChooserStream, OtReceiver, OtSender, SenderStream
from blindbayes.crypto.tweaks import TweakedHash
from blindbayes.errors import LocalProtocolError, PrivacyError
from blindbayes.protocols.core import Role, Run, Send, mark, open_value, receive_marked
from blindbayes.protocols.private_join.sums.messages import (
    CountsChosen,
    CountsGarbled,
    NoiseChosen,
    OverlapGarbled,
    OverlapNoised,
)
from blindbayes.protocols.shared_training.shared_model.circuit import guarded
from blindbayes.protocols.shared_training.shared_model.score_layout import ScoreLayout
from blindbayes.protocols.two_party.garbled import (
    BitsChosen,
    Circuit,
    TablesGarbled,
    answer_equality,
    ask_equality,
    dual_first,
    dual_second,
    receive_step,
    send_step,
)
from blindbayes.protocols.two_party.transfer.roles import agree
from blindbayes.wire import U64Array

LABEL = "enough_overlap"
NOISY_LABEL = "noisy_overlap"
S = TypeVar("S", SenderStream, ChooserStream)


@dataclass(slots=True)
class Count(Generic[S]):
    """The number of joined identifiers on wires, (bits, 1), at the row holder (garbler) or the label holder (evaluator)."""

    session: bytes
    other: str
    stream: S = field(repr=False)
    wires: Number = field(repr=False)

    def add(self, g: Gates, equal: Wires) -> None:
        """Count the matches of one more block of bins.

        It takes bins - bins.bit_count() AND, and one less than the count's bits.
        """
        matches = c.count_ones(g, equal)
        bits = len(self.wires)
        self.wires = c.add(g, self.wires, c.widen(matches, bits), bits=bits)


def count_gates(bins: int, bits: int) -> int:
    return bins - bins.bit_count() + bits - 1


# -- steps 11 and 12: what is opened of the count, by both executions ---------------------------------------------------------


class Executions(NamedTuple):
    """Two counts of the same identifiers, by circuits of either party: what this party garbled, what it evaluated."""

    mine: Count[SenderStream]
    theirs: Count[ChooserStream]


def _opened(
    both: Executions,
    circuit: Callable[[Gates, Number, Number, Number], Number],
    own: npt.NDArray[np.uint8],
    asks: bool,
    kinds: tuple[type[BitsChosen], type[TablesGarbled]],
    coins: Coins,
) -> Role[npt.NDArray[np.uint8]]:
    """Open a function of the count, of the garbler's bits and of the evaluator's, (bits, 1) each, by dual execution.

    Both garble it and both read it; what they read, and the labels behind it, must agree. One of the two `asks` for the
    comparison.
    """
    mine, theirs = both
    other, (chosen_kind, kind) = mine.other, kinds
    labels, own_labels = np.zeros((2, len(own), 1, 2), dtype=np.uint64)
    if len(own):
        corrections, t = theirs.stream.extend(own)
        yield Send(other, chosen_kind(mark(theirs.session, chosen_kind, 0), corrections))
        chosen = yield from receive_marked(other, chosen_kind, mine.session, 0)
        labels = mine.stream.extend(chosen.corrections, len(own), other).reshape(labels.shape)
        own_labels = t.reshape(own_labels.shape)
    garbler = Garbler(TweakedHash(_name(mine.session, kind)), mine.stream.delta)
    out = circuit(garbler, mine.wires, garbler.own(own), labels)
    yield from send_step(other, garbler, out, kind, mine.session)
    evaluator = Evaluator(TweakedHash(_name(theirs.session, kind)), other)
    tags = yield from receive_step(other, evaluator, kind, theirs.session)
    got = circuit(evaluator, theirs.wires, evaluator.own(own.shape), own_labels)
    evaluator.require_finished()
    first, second = (mine.session, theirs.session) if asks else (theirs.session, mine.session)
    session = hashlib.sha256(_name(first, kind) + _name(second, kind)).digest()
    read, fits = evaluator.try_read(got, tags)
    parts = [(out ^ garbler.own(read)).tobytes(), got.tobytes()]  # what the other must hold, what this party holds
    secret = hashlib.sha256(b"".join(parts if asks else parts[::-1])).digest()
    if not fits.all():  # shows in the comparison, as any other difference does
        secret = coins.bytes(32)
    yield from (ask_equality if asks else answer_equality)(other, session, secret, coins)
    return read


def _name(session: bytes, kind: type[TablesGarbled]) -> bytes:
    return hashlib.sha256(session + kind.__name__.encode()).digest()


def enough(both: Executions, minimum: int, asks: bool, coins: Coins) -> Role[None]:
    """Continue if at least `minimum` identifiers joined, else raise `PrivacyError`."""

    def circuit(g: Gates, total: Number, *_: Number) -> Number:
        return g.not_(c.is_less(g, total, c.public(g, minimum, len(total), 1)))[None]

    none = np.zeros((0, 1), dtype=np.uint8)
    read = yield from _opened(both, circuit, none, asks, (NoiseChosen, OverlapGarbled), coins)
    _require_enough((yield from open_value(LABEL, bool(read[0, 0]))), minimum)


def _require_enough(enough: bool, minimum: int) -> None:
    if not enough:
        raise PrivacyError(f"fewer than {minimum} identifiers joined, the study's min_overlap; nothing else was opened")


def noisy_total(g: Gates, total: Number, mine: Number, theirs: Number) -> Number:
    """Return the count plus the noise of both, modulo 2 to the number of bits that the noise has."""
    both = c.add(g, mine, theirs, bits=len(mine))
    return c.add(g, c.widen(total, len(mine)), both, bits=len(mine))


def noise_bits(noise: int, bits: int) -> npt.NDArray[np.uint8]:
    return c.to_bits([noise % (1 << bits)], bits)


def noisy(both: Executions, noise: int, bits: int, asks: bool, coins: Coins) -> Role[int]:
    """Return the joined identifiers plus the noise of both, in `bits` bits. `noise` alone must protect this party's own."""
    read = yield from _opened(both, noisy_total, noise_bits(noise, bits), asks, (NoiseChosen, OverlapNoised), coins)
    value = c.from_bits(read)[0]
    return (yield from open_value(NOISY_LABEL, value - (1 << bits) if read[-1, 0] else value))


# -- step 13: priors in shares ---------------------------------------------------------------------------------------------


def log_counts(g: Gates, shares: Sequence[Number], plan: ScoreLayout) -> Number:
    """Return ln of each class count (lanes) from the parties' shares; a class without rows lies below everything."""
    total = guarded(g, c.add_up(g, shares, len(shares[0])), plan.guard, plan.rows, plan.classes)
    empty = c.is_zero(g, total)
    at_least_one = np.concatenate([total[:1] ^ empty[None], total[1:]])
    logs = c.widen(ln(g, at_least_one, plan.fraction), plan.bits)
    below = math.floor((plan.below + math.log(plan.units + 1)) * 2.0**plan.fraction)
    return c.select(g, empty, c.public(g, below, plan.bits, plan.classes), logs)


def _prior_bits(plan: ScoreLayout) -> tuple[int, int]:
    """Return how many input bits each side has: class holder (its share and a mask), attribute holder (its share)."""
    both = plan.guard.count_bits(plan.rows) * plan.classes
    return both + plan.bits * plan.classes, both


def _prior_circuit(plan: ScoreLayout) -> Circuit:
    def outputs(g: Gates, first: Wires, second: Wires) -> Iterator[Wires]:
        mine, theirs = (wires.reshape(-1, plan.classes, *wires.shape[1:]) for wires in (first, second))
        bits = len(theirs)
        yield c.add(g, log_counts(g, (mine[:bits], theirs), plan), mine[bits:], bits=plan.bits)

    return outputs


def prior_class_holder(
    run: Run,
    other: str,
    share: U64Array,
    plan: ScoreLayout,
    transfers_with: tuple[OtSender, OtReceiver],
    coins: Coins,
    noise: Sequence[int] | None = None,
) -> Role[Limbs]:
    """Return the class holder's share of the priors, as a score table (1, 2, K - 1, limbs) looked up at entry 1."""
    session = yield from agree(run, other, "joined_sums prior", plan.facts(), coins)
    mask = coins.bit_rows(plan.bits, plan.classes)
    own = np.concatenate([_share_bits(share, noise, plan, raised=True), mask]).reshape(-1)
    bits, kinds = (own, _prior_bits(plan)[1]), (CountsChosen, CountsGarbled)
    yield from dual_first(other, session, _prior_circuit(plan), 1, bits, transfers_with, kinds, coins)
    return prior_table(mask, plan, negative=True)


def prior_attribute_holder(
    run: Run,
    other: str,
    share: U64Array,
    plan: ScoreLayout,
    transfers_with: tuple[OtSender, OtReceiver],
    coins: Coins,
    noise: Sequence[int] | None = None,
) -> Role[Limbs]:
    """Return the attribute holder's share of the priors."""
    session = yield from agree(run, other, "joined_sums prior", plan.facts(), coins)
    bits, kinds = (_share_bits(share, noise, plan).reshape(-1), _prior_bits(plan)[0]), (CountsChosen, CountsGarbled)
    opened = yield from dual_second(other, session, _prior_circuit(plan), 1, bits, transfers_with, kinds, coins)
    return prior_table(opened[0], plan)


def _share_bits(
    share: U64Array, noise: Sequence[int] | None, plan: ScoreLayout, *, raised: bool = False
) -> npt.NDArray[np.uint8]:
    """Return a party's share of the class counts with its noise, where the plan has any; one party raises them."""
    if (noise is None) != (plan.guard.noise_bits == 0):
        raise LocalProtocolError("a model with noise needs each party's own, and one without takes none")
    added = [0] * plan.classes if noise is None else [int(value) + (raised << plan.guard.noise_bits) for value in noise]
    return c.to_bits([int(own) + more for own, more in zip(share, added, strict=True)], plan.guard.count_bits(plan.rows))


def prior_table(bits: npt.NDArray[np.uint8], plan: ScoreLayout, *, negative: bool = False) -> Limbs:
    """Return a share of the priors as a score table, from the opened logarithms or minus a mask of them."""
    values = lm.from_integers(c.from_bits(bits), plan.limbs)
    if negative:
        values = lm.subtract(np.zeros_like(values), values)
    change = lm.cut(lm.subtract(values[1:], np.broadcast_to(values[:1], values[1:].shape)), plan.bits)
    return np.stack([np.zeros_like(change), change])[None]
