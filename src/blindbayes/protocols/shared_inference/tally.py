"""Totals of instances by true and predicted class, without opening any instance's class. See SPEC.md, "Tally".

After the comparison the garbler knows the colour of each output wire's label of 0, and the evaluator the colour of the label
that it has: XOR shares of the bits of the class's position, at no cost. One look-up per instance at that shared position, in
the garbler's table of unit vectors (one per predicted class, in the row of the true class), leaves both with additive shares
of the instance's unit vector. Their sums are shares of the totals.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.garbling.garbling import Wires
from blindbayes.crypto.ot.base import choice_bits
from blindbayes.crypto.ot.softspoken import ChooserStream, SenderStream
from blindbayes.crypto.tweaks import TweakedHash
from blindbayes.errors import LocalProtocolError, PeerProtocolError
from blindbayes.protocols.core import Role, Send, mark, receive_marked
from blindbayes.protocols.shared_inference.messages import EntriesChosen, EntriesMasked, TotalsShared
from blindbayes.protocols.shared_inference.query import SharedArgmaxSetup
from blindbayes.protocols.two_party import lookups
from blindbayes.wire import U64Array

Counts = npt.NDArray[np.int64]
_TALLIED = 1 << 33  # blocks of the session's hash, behind those of the comparison
_AFTER = 1 << 24  # places of the messages, behind those of the look-ups


def _positions(outputs: Wires) -> U64Array:
    """Return this party's XOR share of each instance's position, from the colours of its output labels."""
    colours = outputs[..., 0] & np.uint64(1)
    return np.asarray((colours << np.arange(len(outputs), dtype=np.uint64)[:, None]).sum(axis=0), dtype=np.uint64)


def offer_tally(
    query: SharedArgmaxSetup, outputs: list[Wires], labels: Counts | None, hash_: TweakedHash, stream: SenderStream, me: str
) -> Role[Counts | None]:
    """Run the garbler's side: steps T1 to T3. A label of -1 keeps a place out of the totals."""
    classes, other = query.plan.classes, query.holders[0]
    if labels is None or labels.shape != (query.count,):
        raise LocalProtocolError("a tally needs the class of every instance")
    entries, shares = 1 << len(outputs[0]), np.zeros((classes * classes, 1), dtype=np.uint64)
    for at, (part, out) in enumerate(zip(query.chunks(), outputs, strict=True)):
        count, bits = part.stop - part.start, len(out)
        table = np.zeros((count, 1, entries, classes * classes, 1), dtype=np.uint64)
        known = np.flatnonzero(labels[part] >= 0)  # a place without a class is in no total
        for value in range(classes):
            table[known, 0, value, labels[part][known] * classes + value] = 1
        chosen = yield from receive_marked(other, EntriesChosen, hash_.session, _AFTER + at)  # T1
        q = stream.extend(chosen.corrections, count * bits, other).reshape(-1, bits, 2)
        total = np.zeros((count, classes * classes, 1), dtype=np.uint64)
        block = TweakedHash.for_block(hash_.session, _TALLIED + at)
        sent = lookups.offer(block, q, stream.delta, lookups.Offered(table, _positions(out)[:, None]), total)
        yield Send(other, EntriesMasked(mark(hash_.session, EntriesMasked, _AFTER + at), sent))  # T2
        shares += total.sum(axis=0)
    return (yield from _open(query, shares.reshape(-1), other, hash_.session, me))


def take_tally(
    query: SharedArgmaxSetup, outputs: list[Wires], hash_: TweakedHash, stream: ChooserStream, me: str
) -> Role[Counts | None]:
    """Run the evaluator's side: steps T1 to T3."""
    classes, other = query.plan.classes, query.class_holder
    entries, shares, waiting = 1 << len(outputs[0]), np.zeros((classes * classes, 1), dtype=np.uint64), []
    for at, out in enumerate(outputs):
        choices = _positions(out)
        corrections, t = stream.extend(choice_bits(choices, entries).reshape(-1))
        yield Send(other, EntriesChosen(mark(hash_.session, EntriesChosen, _AFTER + at), corrections))  # T1
        waiting.append((choices, t.reshape(-1, len(out), 2)))
    for at, (choices, t) in enumerate(waiting):
        masked = yield from receive_marked(other, EntriesMasked, hash_.session, _AFTER + at)  # T2
        if masked.entries.size != (entries - 1) * len(choices) * classes * classes:
            raise PeerProtocolError("masked table entries have the wrong length", party=other)
        total = np.zeros((len(choices), classes * classes, 1), dtype=np.uint64)
        lookups.take(TweakedHash.for_block(hash_.session, _TALLIED + at), t, choices, masked.entries, total)
        shares += total.sum(axis=0)
    return (yield from _open(query, shares.reshape(-1), other, hash_.session, me))


def _open(query: SharedArgmaxSetup, shares: U64Array, other: str, session: bytes, me: str) -> Role[Counts | None]:
    """Send the shares of the totals to the other if it learns them, and return the totals for a learner (T3).

    Impossible totals are an error only if the other has learned them too. Otherwise a failure would answer a guess of the
    other's, so they are returned, and the learner's site refuses them by itself (`is_possible`).
    """
    if other in query.learners:
        yield Send(other, TotalsShared(mark(session, TotalsShared, 0), shares))
    if me not in query.learners:
        return None
    theirs = yield from receive_marked(other, TotalsShared, session, 0)
    if theirs.shares.shape != shares.shape:
        raise PeerProtocolError("the shares of totals have the wrong length", party=other)
    totals = _add(shares, theirs.shares)
    return require_totals(totals, query.count, other) if other in query.learners else totals


def _add(mine: U64Array, theirs: U64Array) -> Counts:
    return (mine + theirs).view(np.int64)


def is_possible(totals: Counts, count: int) -> bool:
    """Return True for totals of that many instances."""
    return bool(totals.min() >= 0 and totals.max() <= count and totals.sum() == count)


def require_totals(totals: Counts, count: int, party: str) -> Counts:
    """Return totals of that many instances. Raises `PeerProtocolError` for other numbers."""
    if not is_possible(totals, count):
        raise PeerProtocolError("the totals are not those of the instances", party=party)
    return totals
