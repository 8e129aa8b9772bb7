"""The comparison between the class holder, which garbles, and the evaluator: steps 4 to 6 of SPEC.md."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from blindbayes.crypto import limbs as lm
from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.garbling import Evaluator, Garbler, Gates, Plain, Wires
from blindbayes.crypto.limbs import Limbs
from blindbayes.crypto.ot.softspoken import ChooserStream, SenderStream
from blindbayes.crypto.tweaks import Block128, TweakedHash
from blindbayes.errors import IntegrityError, PeerProtocolError
from blindbayes.protocols.core import Role, Send, mark, receive_marked
from blindbayes.protocols.shared_inference.compare_all import UNREADABLE, classes_of
from blindbayes.protocols.shared_inference.decoys import Placed, hear_decoys
from blindbayes.protocols.shared_inference.messages import ArgmaxGarbled, DecoysTagged, LabelsReturned, ScoresChosen
from blindbayes.protocols.shared_inference.query import SharedArgmaxSetup
from blindbayes.protocols.shared_inference.tally import offer_tally, take_tally

Classes = npt.NDArray[np.int64]
_COMPARED = 1 << 32  # blocks of the session's hash, behind those of the look-ups


def differences(shares: Limbs, query: SharedArgmaxSetup) -> Limbs:
    """Return the shares that enter the circuit, (lanes, limbs): differences of all pairs, or K - 1 to class 0."""
    plan = query.plan
    if not query.pairwise:
        return np.ascontiguousarray(shares.transpose(1, 0, 2)).reshape(-1, plan.limbs)
    full = np.concatenate([np.zeros((len(shares), 1, plan.limbs), dtype=np.uint64), shares], axis=1)
    return np.concatenate([lm.subtract(full[:, i], full[:, j]) for i, j in c.pairs_of(plan.classes)])


def circuit(g: Gates, mine: Wires, theirs: Wires, query: SharedArgmaxSetup) -> Wires:
    """Return the output wires: the bits of the class's position, so that a circuit reveals no more than a class."""
    classes = query.plan.classes
    if query.pairwise:
        behind = c.sign_of_sum(g, mine, theirs)
        return c.argmax_by_pairs(g, behind.reshape(len(c.pairs_of(classes)), -1, *behind.shape[1:]), classes)
    whole = c.add(g, mine, theirs, bits=query.plan.bits)
    scores = np.split(whole, classes - 1, axis=1)
    return c.argmax_by_turns(g, [np.zeros_like(scores[0]), *scores])


def positions(g: Garbler | Evaluator, shares: Limbs | None, labels: Wires, query: SharedArgmaxSetup) -> Wires:
    """Run the circuit on the garbler's shares and the labels of the other's."""
    if query.pairwise and g.hash_.kernel is not None:
        return g.compare(shares, labels, query.plan.classes)
    none = np.zeros(labels.shape, dtype=np.uint64)
    own = g.own(lm.to_bits(shares, query.plan.bits)) if isinstance(g, Garbler) and shares is not None else none
    return circuit(g, own, labels, query)


def and_gates(query: SharedArgmaxSetup) -> int:
    """Return the AND gates of one instance's comparison."""
    plain, none = Plain(), np.zeros((query.plan.bits, query.compared), dtype=np.uint8)
    circuit(plain, none, none, query)
    return plain.and_count


def garble(
    query: SharedArgmaxSetup,
    shares: Limbs,
    hash_: TweakedHash,
    stream: SenderStream,
    me: str,
    chosen_places: Block128 | None = None,
    truth: Classes | None = None,
) -> Role[Classes | None]:
    """Run the class holder's side of steps 4 to 6, or of the tally, for which `truth` are the instances' classes.

    `shares` are of the instances or, with what their choices are checked by, of all places.
    """
    plan, other, classes = query.plan, query.holders[0], []
    wide = query if chosen_places is None else query.widened(query.decoys)
    outputs = []
    garbler = Garbler(hash_, stream.delta)
    for index, part in enumerate(wide.chunks()):
        garbler.hash_ = TweakedHash.for_block(hash_.session, _COMPARED + index)
        compared = differences(shares[part], query)
        chosen = yield from receive_marked(other, ScoresChosen, hash_.session, index)
        labels = stream.extend(chosen.corrections, plan.bits * len(compared), other).reshape(plan.bits, -1, 2)
        out, tables = positions(garbler, compared, labels, query), garbler.take_tables()
        tags = garbler.tags(out) if other in query.readers else np.zeros(0, dtype=np.uint64)
        yield Send(other, ArgmaxGarbled(mark(hash_.session, ArgmaxGarbled, index), tables, tags))
        outputs.append(out)
    if chosen_places is not None:
        instances = yield from hear_decoys(query, chosen_places, hash_, stream)
        whole = np.concatenate(outputs, axis=1)
        if other not in query.readers:
            garbler.hash_ = hash_
            tags = garbler.tags(np.delete(whole, instances, axis=1))
            yield Send(other, DecoysTagged(mark(hash_.session, DecoysTagged, 0), tags))
        outputs = [np.ascontiguousarray(whole[:, instances[part]]) for part in query.chunks()]
    if query.tally:
        return (yield from offer_tally(query, outputs, truth, hash_, stream, me))
    if me not in query.readers:
        return None
    for index, out in enumerate(outputs):
        returned = yield from receive_marked(other, LabelsReturned, hash_.session, index)
        classes.append(classes_of(garbler.read(out, returned.labels, other), plan.classes))
    return np.concatenate(classes)


def evaluate(
    query: SharedArgmaxSetup,
    total: Limbs | Placed,
    hash_: TweakedHash,
    stream: ChooserStream,
    me: str,
    later: Callable[[int], Role[Limbs]] | None = None,
) -> Role[Classes | None]:
    """Run the evaluator's side of steps 4 to 6.

    `total` are its shares of the scores, of the instances or of all places; `later` adds what a chunk still waits for.
    """
    plan, other, wide, placed = query.plan, query.class_holder, query, None
    if isinstance(total, Placed):
        wide, placed, total = query.widened(query.decoys), total, total.shares
    waiting: list[Wires] = []
    for at, part in enumerate(wide.chunks()):
        shares = total[part]
        if later is not None:
            shares = lm.add(shares, (yield from later(at)))
        compared = differences(shares, query)
        corrections, t = stream.extend(lm.to_bits(compared, plan.bits))
        waiting.append(t.reshape(plan.bits, -1, 2))
        yield Send(other, ScoresChosen(mark(hash_.session, ScoresChosen, at), corrections))
    evaluator = Evaluator(hash_, other)
    classes, outputs = [], []
    for at, labels in enumerate(waiting):
        garbled = yield from receive_marked(other, ArgmaxGarbled, hash_.session, at)
        evaluator.hash_ = TweakedHash.for_block(hash_.session, _COMPARED + at)
        evaluator.give_tables(garbled.tables)
        out = positions(evaluator, None, labels, query)
        evaluator.require_finished()
        if me in query.readers:
            bits, fits = evaluator.try_read(out, garbled.tags)
            classes.append(classes_of(bits, plan.classes, fits))
        elif len(garbled.tags):
            raise PeerProtocolError("tags came for a class that this party is not to learn", party=other)
        outputs.append(out)
    learnt = np.concatenate(classes) if classes else None
    if placed is not None:
        whole = np.concatenate(outputs, axis=1)
        if learnt is not None:
            placed.require(learnt[placed.places], other)
        yield from placed.tell(other, hash_.session)
        if learnt is None:
            tagged = yield from receive_marked(other, DecoysTagged, hash_.session, 0)
            evaluator.hash_ = hash_
            read = evaluator.read(np.ascontiguousarray(whole[:, placed.places]), tagged.tags)
            placed.require(classes_of(read, plan.classes), other)
        learnt = None if learnt is None else learnt[placed.instances]
        outputs = [np.ascontiguousarray(whole[:, placed.instances[part]]) for part in query.chunks()]
    if query.tally:
        return (yield from take_tally(query, outputs, hash_, stream, me))
    if other in query.readers:
        if learnt is not None and (learnt == UNREADABLE).any():  # it gets no labels, and learns no more than from them
            raise IntegrityError(party=other)
        for at, output in enumerate(outputs):
            yield Send(other, LabelsReturned(mark(hash_.session, LabelsReturned, at), evaluator.skip_read(output)))
    return learnt
