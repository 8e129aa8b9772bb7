"""On counts: are there enough joined identifiers, about how many, and the classes' priors. Step numbers as in SPEC.md.

The number of joined identifiers is the output of the circuit that finds them: the label holder has its labels, the row holder
knows both of each bit. Nobody can add to it. The rows per class are words of the shares that joined_sums left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from blindbayes.errors import LocalProtocolError, PrivacyError
from blindbayes.primitives import circuits as c
from blindbayes.primitives import limbs as lm
from blindbayes.primitives.circuits import Number
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.garbling import Evaluator, Garbler, Gates, Wires
from blindbayes.primitives.limbs import Limbs
from blindbayes.primitives.softspoken import ChooserStream, OtReceiver, OtSender, SenderStream
from blindbayes.primitives.tweaks import TweakedHash
from blindbayes.protocol.core import Role, Run, Send, open_value, receive
from blindbayes.protocol.garbled import Circuit, dual_first, dual_second
from blindbayes.protocol.joined_sums.messages import (
    CountsChosen,
    CountsGarbled,
    NoiseChosen,
    NoisedTold,
    OverlapGarbled,
    OverlapNoised,
    OverlapTold,
)
from blindbayes.protocol.shared_model.circuit import guarded
from blindbayes.protocol.shared_model.score_layout import ScoreLayout
from blindbayes.protocol.transfer import agree, mark, require_mark
from blindbayes.wire import U64Array

LABEL = "enough_overlap"
NOISY_LABEL = "noisy_overlap"
_ENOUGH, _NOISY = 1 << 62, (1 << 62) + 1  # blocks of the session's hash, behind those of the bins
S = TypeVar("S", SenderStream, ChooserStream)


@dataclass(slots=True)
class Count(Generic[S]):
    """The number of joined identifiers on wires, (bits, 1), at the row holder (garbler) or the label holder (evaluator)."""

    session: bytes
    other: str
    stream: S = field(repr=False)
    wires: Number = field(repr=False)

    def add(self, g: Gates, equal: Wires) -> None:
        """Count the matches of one more block of bins. bins - bins.bit_count() AND, and one less than the count's bits."""
        found = c.count_ones(g, equal)
        bits = len(self.wires)
        self.wires = c.add(g, self.wires, c.widen(found, bits), bits=bits)


def count_gates(bins: int, bits: int) -> int:
    """AND gates of `Count.add`."""
    return bins - bins.bit_count() + bits - 1


# -- step 10: enough joined identifiers? ------------------------------------------------------------------------------------


def _is_enough(g: Gates, total: Number, least: int) -> Wires:
    """1 where the count is at least `least`; (1, 1) wires."""
    return g.not_(c.is_less(g, total, c.public(g, least, len(total), 1)))[None]


def overlap_row_holder(count: Count[SenderStream], least: int) -> Role[None]:
    """Goes on if at least `least` identifiers joined, else raises `PrivacyError`."""
    session, other = count.session, count.other
    garbler = Garbler(TweakedHash.of_block(session, _ENOUGH), count.stream.delta)
    out = _is_enough(garbler, count.wires, least)
    tags = garbler.tags(out)
    yield Send(other, OverlapGarbled(mark(session, OverlapGarbled, 0), garbler.take_tables(), tags))
    told = yield from receive(other, OverlapTold)
    require_mark(told.mark, session, OverlapTold, 0, other)
    enough = bool(garbler.read(out, told.labels, other)[0, 0])  # a label that is neither is refused: the bit cannot be made up
    _require_enough((yield from open_value(LABEL, enough)), least)


def overlap_label_holder(count: Count[ChooserStream], least: int) -> Role[None]:
    """The evaluator's side: it reads the bit and tells it."""
    session, other = count.session, count.other
    garbled = yield from receive(other, OverlapGarbled)
    require_mark(garbled.mark, session, OverlapGarbled, 0, other)
    evaluator = Evaluator(TweakedHash.of_block(session, _ENOUGH), other)
    evaluator.give_tables(garbled.tables)
    out = _is_enough(evaluator, count.wires, least)
    evaluator.require_finished()
    enough = bool(evaluator.read(out, garbled.tags)[0, 0])
    yield Send(other, OverlapTold(mark(session, OverlapTold, 0), evaluator.skip_read(out)))
    _require_enough((yield from open_value(LABEL, enough)), least)


def _require_enough(enough: bool, least: int) -> None:
    if not enough:
        raise PrivacyError(f"fewer than {least} identifiers joined, the study's min_overlap; nothing else was opened")


# -- step 11: about how many joined identifiers -------------------------------------------------------------------------------


def noisy_total(g: Gates, total: Number, mine: Number, theirs: Number) -> Number:
    """The count and the noise of both, modulo 2 to the number of bits that the noise has."""
    both = c.add(g, mine, theirs, bits=len(mine))
    return c.add(g, c.widen(total, len(mine)), both, bits=len(mine))


def noise_bits(noise: int, bits: int) -> npt.NDArray[np.uint8]:
    """A party's noise as it enters the circuit, (bits, 1)."""
    return c.to_bits([noise % (1 << bits)], bits)


def noisy_row_holder(count: Count[SenderStream], noise: int, bits: int) -> Role[int]:
    """The number of joined identifiers plus the noise of both, in `bits` bits. `noise` alone must protect this party's own."""
    session, other = count.session, count.other
    chosen = yield from receive(other, NoiseChosen)
    require_mark(chosen.mark, session, NoiseChosen, 0, other)
    theirs = count.stream.extend(chosen.corrections, bits, other).reshape(bits, 1, 2)
    garbler = Garbler(TweakedHash.of_block(session, _NOISY), count.stream.delta)
    out = noisy_total(garbler, count.wires, garbler.own(noise_bits(noise, bits)), theirs)
    tags = garbler.tags(out)
    yield Send(other, OverlapNoised(mark(session, OverlapNoised, 0), garbler.take_tables(), tags))
    told = yield from receive(other, NoisedTold)
    require_mark(told.mark, session, NoisedTold, 0, other)
    return (yield from open_value(NOISY_LABEL, _signed(garbler.read(out, told.labels, other))))


def noisy_label_holder(count: Count[ChooserStream], noise: int, bits: int) -> Role[int]:
    """The evaluator's side."""
    session, other = count.session, count.other
    corrections, t = count.stream.extend(noise_bits(noise, bits))
    yield Send(other, NoiseChosen(mark(session, NoiseChosen, 0), corrections))
    garbled = yield from receive(other, OverlapNoised)
    require_mark(garbled.mark, session, OverlapNoised, 0, other)
    evaluator = Evaluator(TweakedHash.of_block(session, _NOISY), other)
    evaluator.give_tables(garbled.tables)
    out = noisy_total(evaluator, count.wires, evaluator.own((bits, 1)), t.reshape(bits, 1, 2))
    evaluator.require_finished()
    found = _signed(evaluator.read(out, garbled.tags))
    yield Send(other, NoisedTold(mark(session, NoisedTold, 0), evaluator.skip_read(out)))
    return (yield from open_value(NOISY_LABEL, found))


def _signed(bits: npt.NDArray[np.uint8]) -> int:
    value = c.from_bits(bits)[0]
    return value - (1 << len(bits)) if bits[-1, 0] else value


# -- step 12: priors in shares ---------------------------------------------------------------------------------------------


def _logs(g: Gates, mine: Number, theirs: Number, plan: ScoreLayout, noise: Sequence[Number]) -> Number:
    """ln of each class count (lanes); a class without rows lies below everything."""
    total = c.add(g, mine, theirs, bits=len(mine))
    total = guarded(g, total, noise, plan.guard, plan.rows)
    empty = c.is_zero(g, total)
    at_least_one = np.concatenate([total[:1] ^ empty[None], total[1:]])
    logs = c.widen(c.ln(g, at_least_one, plan.fraction), plan.bits)
    below = math.floor((plan.below + math.log(plan.rows + 1)) * 2.0**plan.fraction)
    return c.select(g, empty, c.public(g, below, plan.bits, plan.classes), logs)


def _prior_bits(plan: ScoreLayout) -> tuple[int, int]:
    """Bits of the class holder and of the attribute holder: share and noise, and the class holder's mask."""
    both = (plan.rows.bit_length() + plan.guard.noise_bits) * plan.classes
    return both + plan.bits * plan.classes, both


def _prior_circuit(plan: ScoreLayout) -> Circuit:
    def outputs(g: Gates, first: Wires, second: Wires) -> Iterator[Wires]:
        bits, drawn = plan.rows.bit_length(), plan.guard.noise_bits
        mine, theirs = (wires.reshape(-1, plan.classes, *wires.shape[1:]) for wires in (first, second))
        noises = [part[bits : bits + drawn] for part in (mine, theirs)] if drawn else []
        logs = _logs(g, mine[:bits], theirs[:bits], plan, noises)
        yield c.add(g, logs, mine[bits + drawn :], bits=plan.bits)

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
    """Its share of the priors, as a score table (1, 2, K - 1, limbs) that is looked up at entry 1."""
    session = yield from agree(run, other, "joined_sums prior", plan.facts(), coins)
    raw = np.frombuffer(coins.bytes(-(-plan.bits * plan.classes // 8)), dtype=np.uint8)
    mask = np.unpackbits(raw)[: plan.bits * plan.classes].reshape(plan.bits, plan.classes)
    own = np.concatenate([_share_bits(share, noise, plan), mask]).reshape(-1)
    bits, kinds = (own, _prior_bits(plan)[1]), (CountsChosen, CountsGarbled)
    yield from dual_first(other, session, _prior_circuit(plan), 1, bits, transfers_with, kinds, coins)
    values = _limbs(mask, plan)
    return _table(lm.subtract(np.zeros_like(values), values), plan)


def prior_attribute_holder(
    run: Run,
    other: str,
    share: U64Array,
    plan: ScoreLayout,
    transfers_with: tuple[OtSender, OtReceiver],
    coins: Coins,
    noise: Sequence[int] | None = None,
) -> Role[Limbs]:
    """Its share of the priors."""
    session = yield from agree(run, other, "joined_sums prior", plan.facts(), coins)
    bits, kinds = (_share_bits(share, noise, plan).reshape(-1), _prior_bits(plan)[0]), (CountsChosen, CountsGarbled)
    opened = yield from dual_second(other, session, _prior_circuit(plan), 1, bits, transfers_with, kinds, coins)
    return _table(_limbs(opened[0], plan), plan)


def _share_bits(share: U64Array, noise: Sequence[int] | None, plan: ScoreLayout) -> npt.NDArray[np.uint8]:
    return np.concatenate([c.to_bits(share, plan.rows.bit_length()), _noise_bits(noise, plan)])


def _noise_bits(noise: Sequence[int] | None, plan: ScoreLayout) -> npt.NDArray[np.uint8]:
    """A party's noise on the class counts, as bits; none where the plan has no noise."""
    if (noise is None) != (plan.guard.noise_bits == 0):
        raise LocalProtocolError("a model with noise needs each party's own, and one without takes none")
    if noise is None:
        return np.zeros((0, plan.classes), dtype=np.uint8)
    return c.to_bits([int(value) for value in noise], plan.guard.noise_bits)


def _limbs(bits: npt.NDArray[np.uint8], plan: ScoreLayout) -> Limbs:
    return lm.from_integers(c.from_bits(bits), plan.limbs)


def _table(values: Limbs, plan: ScoreLayout) -> Limbs:
    """(K, limbs) to differences to class 0, behind the zero entry."""
    change = lm.cut(lm.subtract(values[1:], np.broadcast_to(values[:1], values[1:].shape)), plan.bits)
    return np.stack([np.zeros_like(change), change])[None]
