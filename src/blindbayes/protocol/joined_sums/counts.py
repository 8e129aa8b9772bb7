"""On shared counts: are there enough joined identifiers, about how many, and the classes' priors. Step numbers as in SPEC.md.

In the circuits the class holder garbles, the attribute holder evaluates. The number of joined identifiers and the rows per
class are words of the shares that joined_sums left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from blindbayes.errors import LocalProtocolError, PeerProtocolError, PrivacyError
from blindbayes.primitives import circuits as c
from blindbayes.primitives import limbs as lm
from blindbayes.primitives.circuits import Number
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.garbling import Evaluator, Garbler, Gates, Wires
from blindbayes.primitives.limbs import Limbs
from blindbayes.primitives.softspoken import Keeper, Planter
from blindbayes.primitives.tweaks import TweakedHash
from blindbayes.protocol.core import Role, Run, Send, open_value, receive
from blindbayes.protocol.joined_sums.messages import CountsChosen, CountsGarbled, OverlapNoised, OverlapTold
from blindbayes.protocol.shared_model.circuit import guarded
from blindbayes.protocol.shared_model.plan import ScorePlan
from blindbayes.protocol.transfer import agree, mark, require_mark
from blindbayes.wire import Words

LABEL = "enough_overlap"
NOISY_LABEL = "noisy_overlap"


# -- step 10: enough joined identifiers? ------------------------------------------------------------------------------------


def _is_enough(g: Gates, mine: Number, theirs: Number, least: int) -> Wires:
    """1 where the sum of two shares is at least `least`; (1, 1) wires."""
    bits = len(mine)
    total = c.add(g, mine, theirs, bits=bits)
    return g.not_(c.is_less(g, total, c.public(g, least, bits, 1)))[None]


def overlap_class_holder(
    run: Run, other: str, matched: Words, bound: int, least: int, keeper: Keeper, coins: Coins
) -> Role[None]:
    """Goes on if at least `least` of at most `bound` identifiers joined, else raises `PrivacyError`."""
    bits = _count_bits(bound, least)
    garbler, theirs = yield from _begin_garbling(run, other, "overlap", _facts(bound, least), bits, 1, keeper, coins)
    out = _is_enough(garbler, garbler.own(c.to_bits(matched, bits)), theirs, least)
    tags = garbler.tags(out)
    yield Send(other, CountsGarbled(garbler.take_tables(), tags))
    told = yield from receive(other, OverlapTold)
    enough = bool(garbler.read(out, told.labels, other)[0, 0])  # a label that is neither is refused: the bit cannot be made up
    _require_enough((yield from open_value(LABEL, enough)), least)


def overlap_attribute_holder(
    run: Run, other: str, matched: Words, bound: int, least: int, planter: Planter, coins: Coins
) -> Role[None]:
    """The evaluator's side: it reads the bit and tells it."""
    own = c.to_bits(matched, _count_bits(bound, least))
    evaluator, theirs, tags = yield from _begin_evaluating(run, other, "overlap", _facts(bound, least), own, planter, coins)
    out = _is_enough(evaluator, evaluator.own(own.shape), theirs, least)
    evaluator.require_finished()
    enough = bool(evaluator.read(out, tags)[0, 0])
    yield Send(other, OverlapTold(evaluator.skip_read(out)))
    _require_enough((yield from open_value(LABEL, enough)), least)


def _count_bits(bound: int, least: int) -> int:
    return max(bound, least).bit_length() + 1


def _require_enough(enough: bool, least: int) -> None:
    if not enough:
        raise PrivacyError(f"fewer than {least} identifiers joined, the study's min_overlap; nothing else was opened")


# -- step 11: about how many joined identifiers -------------------------------------------------------------------------------


def noisy_overlap(run: Run, other: str, matched: Words, noise: int) -> Role[int]:
    """Both run this: the number of joined identifiers plus the noise of both. `noise` alone must protect this party's own."""
    own = matched + np.array([noise], dtype=np.int64).view(np.uint64)
    yield Send(other, OverlapNoised(mark(run.context(NOISY_LABEL, run.me, other), OverlapNoised, 0), own))
    told = yield from receive(other, OverlapNoised)
    require_mark(told.mark, run.context(NOISY_LABEL, other, run.me), OverlapNoised, 0, other)
    if told.share.shape != (1,):
        raise PeerProtocolError("a share of the overlap is one word", party=other)
    return (yield from open_value(NOISY_LABEL, int((own + told.share).view(np.int64)[0])))


# -- step 12: priors in shares ---------------------------------------------------------------------------------------------


def _logs(g: Gates, mine: Number, theirs: Number, plan: ScorePlan, noise: Sequence[Number]) -> Number:
    """ln of each class count (lanes); a class without rows lies below everything."""
    total = c.add(g, mine, theirs, bits=len(mine))
    total = guarded(g, total, noise, plan.guard, plan.rows)
    empty = c.is_zero(g, total)
    at_least_one = np.concatenate([total[:1] ^ empty[None], total[1:]])
    logs = c.widen(c.ln(g, at_least_one, plan.fraction), plan.bits)
    below = math.floor((plan.below + math.log(plan.rows + 1)) * 2.0**plan.fraction)
    return c.select(g, empty, c.public(g, below, plan.bits, plan.classes), logs)


def prior_class_holder(
    run: Run, other: str, share: Words, plan: ScorePlan, keeper: Keeper, coins: Coins, noise: Sequence[int] | None = None
) -> Role[Limbs]:
    """Its share of the priors, as a score table (1, 2, K - 1, limbs) that is looked up at entry 1."""
    bits = plan.rows.bit_length()
    drawn = _noise_bits(noise, plan)
    wide = bits + len(drawn)
    garbler, theirs = yield from _begin_garbling(run, other, "prior", plan.facts(), wide, plan.classes, keeper, coins)
    noises = [garbler.own(drawn), theirs[bits:]] if len(drawn) else []
    logs = _logs(garbler, garbler.own(c.to_bits(share, bits)), theirs[:bits], plan, noises)
    raw = np.frombuffer(coins.bytes(-(-plan.bits * plan.classes // 8)), dtype=np.uint8)
    mask = np.unpackbits(raw)[: plan.bits * plan.classes].reshape(plan.bits, plan.classes)
    out = c.add(garbler, logs, garbler.own(mask), bits=plan.bits)
    tags = garbler.tags(out)
    yield Send(other, CountsGarbled(garbler.take_tables(), tags))
    values = _limbs(mask, plan)
    return _table(lm.subtract(np.zeros_like(values), values), plan)


def prior_attribute_holder(
    run: Run, other: str, share: Words, plan: ScorePlan, planter: Planter, coins: Coins, noise: Sequence[int] | None = None
) -> Role[Limbs]:
    """Its share of the priors."""
    bits, drawn = plan.rows.bit_length(), _noise_bits(noise, plan)
    own = np.concatenate([c.to_bits(share, bits), drawn])
    evaluator, theirs, tags = yield from _begin_evaluating(run, other, "prior", plan.facts(), own, planter, coins)
    noises = [evaluator.own(drawn.shape), theirs[bits:]] if len(drawn) else []
    logs = _logs(evaluator, evaluator.own((bits, plan.classes)), theirs[:bits], plan, noises)
    out = c.add(evaluator, logs, evaluator.own((plan.bits, plan.classes)), bits=plan.bits)
    evaluator.require_finished()
    return _table(_limbs(evaluator.read(out, tags), plan), plan)


def _noise_bits(noise: Sequence[int] | None, plan: ScorePlan) -> npt.NDArray[np.uint8]:
    """A party's noise on the class counts, as bits; none where the plan has no noise."""
    if (noise is None) != (plan.guard.noise_bits == 0):
        raise LocalProtocolError("a model with noise needs each party's own, and one without takes none")
    if noise is None:
        return np.zeros((0, plan.classes), dtype=np.uint8)
    return c.to_bits([int(value) for value in noise], plan.guard.noise_bits)


def _limbs(bits: npt.NDArray[np.uint8], plan: ScorePlan) -> Limbs:
    return lm.from_integers(c.from_bits(bits), plan.limbs)


def _table(values: Limbs, plan: ScorePlan) -> Limbs:
    """(K, limbs) to differences to class 0, behind the zero entry."""
    change = lm.cut(lm.subtract(values[1:], np.broadcast_to(values[:1], values[1:].shape)), plan.bits)
    return np.stack([np.zeros_like(change), change])[None]


# -- both ------------------------------------------------------------------------------------------------------------------


def _facts(bound: int, least: int) -> bytes:
    return repr((bound, least)).encode()


def _begin_garbling(
    run: Run, other: str, step: str, facts: bytes, bits: int, lanes: int, keeper: Keeper, coins: Coins
) -> Role[tuple[Garbler, Wires]]:
    session = yield from agree(run, other, f"joined_sums {step}", facts, coins)
    tmmo, stream = TweakedHash(session), keeper.session(session)
    chosen = yield from receive(other, CountsChosen)
    labels = stream.extend(chosen.corrections, bits * lanes, other).reshape(bits, lanes, 2)
    return Garbler(tmmo, keeper.delta), labels


def _begin_evaluating(
    run: Run, other: str, step: str, facts: bytes, own: npt.NDArray[np.uint8], planter: Planter, coins: Coins
) -> Role[tuple[Evaluator, Wires, Words]]:
    session = yield from agree(run, other, f"joined_sums {step}", facts, coins)
    tmmo, stream = TweakedHash(session), planter.session(session)
    corrections, t = stream.extend(own)
    yield Send(other, CountsChosen(corrections))
    garbled = yield from receive(other, CountsGarbled)
    evaluator = Evaluator(tmmo, other)
    evaluator.give_tables(garbled.tables)
    return evaluator, t.reshape(*own.shape, 2), garbled.tags
