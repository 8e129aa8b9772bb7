"""Roles of shared_argmax. Step numbers as in SPEC.md.

The class holder has a role with everybody; the first attribute holder evaluates the comparison; further ones hand it their
shares. Every phase runs over all chunks of the batch before the next begins, so that rounds do not grow with the batch.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from blindbayes.errors import LocalProtocolError, PeerProtocolError
from blindbayes.primitives import circuits as c
from blindbayes.primitives import limbs as lm
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.garbling import Evaluator, Garbler, Gates, Wires
from blindbayes.primitives.limbs import Limbs
from blindbayes.primitives.softspoken import ChooserStream, OtReceiver, OtSender, SenderStream
from blindbayes.primitives.tweaks import TweakedHash
from blindbayes.protocol.core import Role, Run, Send, open_value, receive
from blindbayes.protocol.shared_argmax.audit import Committed, look_up_audited, serve_audited
from blindbayes.protocol.shared_argmax.compare_all import Mesh, compare
from blindbayes.protocol.shared_argmax.messages import (
    ArgmaxGarbled,
    ClassesTold,
    LabelsReturned,
    ScoresBlinded,
    ScoresChosen,
    ScoresHanded,
)
from blindbayes.protocol.shared_argmax.query import SharedArgmaxSetup, ask, hear
from blindbayes.protocol.shared_model.tables import Tables
from blindbayes.protocol.transfer import agree, agree_all, mark, require_mark

LABEL = "class"
_STEP = "shared_argmax"
Classes = npt.NDArray[np.int64]


# -- comparison ----------------------------------------------------------------------------------------------------------


def _compared(shares: Limbs, query: SharedArgmaxSetup) -> Limbs:
    """The shares that enter the circuit, (lanes, limbs): differences of all pairs, or the K - 1 differences to class 0."""
    plan = query.plan
    if not query.pairwise:
        return np.ascontiguousarray(shares.transpose(1, 0, 2)).reshape(-1, plan.limbs)
    full = np.concatenate([np.zeros((len(shares), 1, plan.limbs), dtype=np.uint64), shares], axis=1)
    return np.concatenate([lm.subtract(full[:, i], full[:, j]) for i, j in c.pairs_of(plan.classes)])


def _circuit(g: Gates, mine: Wires, theirs: Wires, query: SharedArgmaxSetup) -> Wires:
    """Output wires: one per class but the last, or the bits of the class's position."""
    classes = query.plan.classes
    if query.pairwise:
        behind = c.sign_of_sum(g, mine, theirs)
        return c.argmax_by_pairs(g, behind.reshape(len(c.pairs_of(classes)), -1, *behind.shape[1:]), classes)
    whole = c.add(g, mine, theirs, bits=query.plan.bits)
    scores = np.split(whole, classes - 1, axis=1)
    return c.argmax_by_turns(g, [np.zeros_like(scores[0]), *scores])


def _classes(bits: npt.NDArray[np.uint8], query: SharedArgmaxSetup) -> Classes:
    if query.pairwise:
        last = np.ones((1, bits.shape[1]), dtype=np.uint8)
        first: Classes = np.concatenate([bits, last]).argmax(axis=0).astype(np.int64)
        return first
    found = np.array(c.from_bits(bits), dtype=np.int64)
    if found.size and found.max() >= query.plan.classes:
        raise LocalProtocolError("a class out of range")
    return found


def _garble(
    query: SharedArgmaxSetup, shares: Limbs, hash_: TweakedHash, stream: SenderStream, run: Run
) -> Role[Classes | None]:
    """Steps 4 to 6, the class holder's side."""
    plan, other, classes = query.plan, query.holders[0], []
    outputs = []
    garbler = Garbler(hash_, stream.delta)
    for index, part in enumerate(query.chunks()):
        compared = _compared(shares[part], query)
        chosen = yield from receive(other, ScoresChosen)
        require_mark(chosen.mark, hash_.session, ScoresChosen, index, other)
        labels = stream.extend(chosen.corrections, plan.bits * len(compared), other).reshape(plan.bits, -1, 2)
        out = _circuit(garbler, garbler.own(lm.to_bits(compared, plan.bits)), labels, query)
        tags = garbler.tags(out) if other in query.learners else np.zeros(0, dtype=np.uint64)
        yield Send(other, ArgmaxGarbled(mark(hash_.session, ArgmaxGarbled, index), garbler.take_tables(), tags))
        outputs.append(out)
    if run.me not in query.learners:
        return None
    for index, out in enumerate(outputs):
        returned = yield from receive(other, LabelsReturned)
        require_mark(returned.mark, hash_.session, LabelsReturned, index, other)
        classes.append(_classes(garbler.read(out, returned.labels, other), query))
    return np.concatenate(classes)


def _evaluate(
    query: SharedArgmaxSetup,
    local: Limbs,
    columns: Mapping[str, npt.NDArray[np.int64]],
    hash_: TweakedHash,
    stream: ChooserStream,
    run: Run,
    sessions: Mapping[str, bytes],
    root: bytes | None,
    coins: Coins,
) -> Role[Classes | None]:
    """Steps 2 to 6, the first attribute holder's side. Each chunk goes on to step 4 as soon as its look-ups are done; with
    dummies among them all are done and checked before."""
    plan, other = query.plan, query.class_holder
    asked = []
    if query.dummies:
        local = lm.add(local, (yield from look_up_audited(run, query, columns, root, hash_, stream, coins)))
    else:
        asked = yield from ask(query, columns, run.me, hash_, stream)
    total = local
    for name in query.holders[1:]:
        handed = yield from receive(name, ScoresHanded)
        require_mark(handed.mark, sessions[name], ScoresHanded, 0, name)
        if handed.shares.size != total.size:
            raise PeerProtocolError("handed shares have the wrong length", party=name)
        total = lm.add(total, handed.shares.reshape(total.shape))
    waiting = []
    for at, part in enumerate(query.chunks()):
        shares = total[part]
        if asked:
            shares = lm.add(shares, (yield from hear(query, run.me, asked[at], hash_)))
        corrections, t = stream.extend(lm.to_bits(_compared(shares, query), plan.bits))
        yield Send(other, ScoresChosen(mark(hash_.session, ScoresChosen, at), corrections))
        waiting.append(t.reshape(plan.bits, -1, 2))
    evaluator = Evaluator(hash_, other)
    classes, returned = [], []
    for at, labels in enumerate(waiting):
        garbled = yield from receive(other, ArgmaxGarbled)
        require_mark(garbled.mark, hash_.session, ArgmaxGarbled, at, other)
        evaluator.give_tables(garbled.tables)
        out = _circuit(evaluator, evaluator.own(labels.shape[:-1]), labels, query)
        evaluator.require_finished()
        if run.me in query.learners:
            classes.append(_classes(evaluator.read(out, garbled.tags), query))
        elif len(garbled.tags):
            raise PeerProtocolError("tags came for a class that this party is not to learn", party=other)
        returned.append(evaluator.skip_read(out))
    if other in query.learners:
        for at, output in enumerate(returned):
            yield Send(other, LabelsReturned(mark(hash_.session, LabelsReturned, at), output))
    return np.concatenate(classes) if classes else None


# -- roles ---------------------------------------------------------------------------------------------------------------


def class_holder(
    run: Run,
    query: SharedArgmaxSetup,
    local: Limbs,
    tables: Mapping[str, Tables],
    ot_senders: Mapping[str, OtSender],
    coins: Coins,
    commitments: Mapping[str, Committed] | None = None,
) -> Role[Classes | None]:
    """The garbler. `local`: its own part of the scores, (count, K - 1, limbs); `tables`: per holder, its shares of tables;
    `commitments`: per holder, to those tables, where look-ups are audited."""
    _require_scores(local, query)
    for name in query.holders:
        if set(tables.get(name, {})) != set(query.shared.get(name, ())):
            raise LocalProtocolError("the tables are not those of the shared features")
    sessions = yield from agree_all(run, dict.fromkeys(query.holders, _STEP), query.facts(), coins)  # step 1
    total = local
    first = query.holders[0]
    hashes = {name: TweakedHash(session) for name, session in sessions.items()}
    streams = {name: ot_senders[name].session(session) for name, session in sessions.items()}
    for name in query.holders:
        committed = (commitments or {}).get(name)
        total = lm.add(
            total,
            (yield from serve_audited(run, query, name, tables.get(name, {}), committed, hashes[name], streams[name], coins)),
        )
        if query.blinds(name):
            total = lm.subtract(total, (yield from _hear_blinds(query, name, sessions[name])))
    classes = yield from _garble(query, total, hashes[first], streams[first], run)
    for name in query.holders[1:]:  # step 7
        if name in query.learners and classes is not None:
            told = ClassesTold(mark(sessions[name], ClassesTold, 0), classes.astype(np.uint64))
            yield Send(name, told)
    return (yield from open_value(LABEL, classes)) if run.me in query.learners else None


def attribute_holder(
    run: Run,
    query: SharedArgmaxSetup,
    local: Limbs,
    columns: Mapping[str, npt.NDArray[np.int64]],
    ot_receiver: OtReceiver,
    coins: Coins,
    root: bytes | None = None,
) -> Role[Classes | None]:
    """An attribute holder. `local`: what it knows of the scores (its share tables at its values, and its own tables); `root`:
    what the class holder committed its tables with, where look-ups are audited."""
    _require_scores(local, query)
    sender = query.class_holder
    first = query.holders[0]
    handings = dict.fromkeys(query.holders[1:] if run.me == first else (first,), "shared_argmax handing")
    sessions = yield from agree_all(run, {sender: _STEP, **handings}, query.facts(), coins)  # step 1
    session = sessions[sender]
    hash_, stream = TweakedHash(session), ot_receiver.session(session)
    if run.me != first:
        total = lm.add(local, (yield from look_up_audited(run, query, columns, root, hash_, stream, coins)))
        if query.blinds(run.me):
            blinds = coins.words(total.size)
            total = lm.add(total, blinds.reshape(total.shape))
            yield Send(sender, ScoresBlinded(mark(session, ScoresBlinded, 0), blinds))
        shares = lm.cut(total, query.plan.bits).reshape(-1)
        yield Send(first, ScoresHanded(mark(sessions[first], ScoresHanded, 0), shares))
        if run.me not in query.learners:
            return None
        told = yield from receive(sender, ClassesTold)
        require_mark(told.mark, session, ClassesTold, 0, sender)
        if told.classes.shape != (query.count,) or (told.classes >= np.uint64(query.plan.classes)).any():
            raise PeerProtocolError("the told classes do not fit the query", party=sender)
        return (yield from open_value(LABEL, told.classes.astype(np.int64)))
    classes = yield from _evaluate(query, local, columns, hash_, stream, run, sessions, root, coins)
    return (yield from open_value(LABEL, classes)) if run.me in query.learners else None


def class_holder_compare_all(
    run: Run,
    query: SharedArgmaxSetup,
    local: Limbs,
    tables: Mapping[str, Tables],
    ot_senders: Mapping[str, OtSender],
    mesh: Mesh,
    coins: Coins,
    commitments: Mapping[str, Committed] | None = None,
) -> Role[Classes | None]:
    """The class holder, where all parties compare: the look-ups as before, then one part among equals."""
    _require_scores(local, query)
    total = local
    sessions = yield from agree_all(run, dict.fromkeys(query.holders, _STEP), query.facts(), coins)  # step 1
    for name, session in sessions.items():
        stream, committed = ot_senders[name].session(session), (commitments or {}).get(name)
        served = serve_audited(run, query, name, tables.get(name, {}), committed, TweakedHash(session), stream, coins)
        total = lm.add(total, (yield from served))
    return (yield from _compare_all(run, query, total, mesh, coins))


def attribute_holder_compare_all(
    run: Run,
    query: SharedArgmaxSetup,
    local: Limbs,
    columns: Mapping[str, npt.NDArray[np.int64]],
    ot_receiver: OtReceiver,
    mesh: Mesh,
    coins: Coins,
    root: bytes | None = None,
) -> Role[Classes | None]:
    """An attribute holder, where all parties compare."""
    _require_scores(local, query)
    session = yield from agree(run, query.class_holder, _STEP, query.facts(), coins)  # step 1
    looked = look_up_audited(run, query, columns, root, TweakedHash(session), ot_receiver.session(session), coins)
    total = lm.add(local, (yield from looked))
    return (yield from _compare_all(run, query, total, mesh, coins))


def _compare_all(run: Run, query: SharedArgmaxSetup, total: Limbs, mesh: Mesh, coins: Coins) -> Role[Classes | None]:
    if set(run.parties) != {query.class_holder, *query.holders}:
        raise LocalProtocolError("the parties of the run are not those of the query")
    sessions = yield from agree_all(run, dict.fromkeys(run.others, "shared_argmax together"), query.facts(), coins)
    classes = yield from compare(run, total, query.plan.bits, sessions, mesh, query.learners, coins)
    return (yield from open_value(LABEL, classes)) if run.me in query.learners else None


def _hear_blinds(query: SharedArgmaxSetup, holder: str, session: bytes) -> Role[Limbs]:
    """Step 3, the class holder: what a holder blinded its scores with, (count, K - 1, limbs)."""
    blinded = yield from receive(holder, ScoresBlinded)
    require_mark(blinded.mark, session, ScoresBlinded, 0, holder)
    shape = query.count, query.plan.classes - 1, query.plan.limbs
    if blinded.blinds.size != shape[0] * shape[1] * shape[2]:
        raise PeerProtocolError("the blinds of handed scores have the wrong length", party=holder)
    return blinded.blinds.reshape(shape)


def _require_scores(local: Limbs, query: SharedArgmaxSetup) -> None:
    if local.shape != (query.count, query.plan.classes - 1, query.plan.limbs) or local.dtype != np.uint64:
        raise LocalProtocolError("local scores have the wrong shape")
