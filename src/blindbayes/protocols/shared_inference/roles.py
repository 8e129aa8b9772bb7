"""Roles of shared_argmax. Step numbers as in SPEC.md.

The class holder has a role with everybody; the first attribute holder evaluates the comparison; further ones hand it their
shares. Every phase runs over all chunks of the batch before the next begins, so that rounds do not grow with the batch.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from blindbayes.crypto import limbs as lm
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.limbs import Limbs
from blindbayes.crypto.ot.softspoken import OtReceiver, OtSender
from blindbayes.crypto.tweaks import TweakedHash
from blindbayes.errors import LocalProtocolError, PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, mark, open_value, receive_marked
from blindbayes.protocols.joint_circuit import Mesh
from blindbayes.protocols.shared_inference.compare_all import UNREADABLE, compare
from blindbayes.protocols.shared_inference.comparing import Classes, evaluate, garble
from blindbayes.protocols.shared_inference.decoys import Decoys, Placed, fresh, offer_places, place_decoys
from blindbayes.protocols.shared_inference.messages import ClassesTold, ScoresBlinded, ScoresHanded
from blindbayes.protocols.shared_inference.query import Labelled, PendingLookup, SharedArgmaxSetup, ask, hear
from blindbayes.protocols.shared_inference.references import look_up_audited, pick, serve_audited
from blindbayes.protocols.shared_inference.tally import require_totals
from blindbayes.protocols.shared_training.shared_model.tables import Tables
from blindbayes.protocols.two_party.transfer.roles import agree, agree_all

LABEL = "class"
TALLY = "class_totals"
_STEP = "shared_argmax"


def class_holder(
    run: Run,
    query: SharedArgmaxSetup,
    local: Limbs | Labelled,
    tables: Mapping[str, Tables],
    ot_senders: Mapping[str, OtSender],
    coins: Coins,
    mesh: Mesh | None = None,
) -> Role[Classes | None]:
    """Run the garbler, or one part among equals where all parties compare.

    `local` is its own part of the scores, (count, K - 1, limbs), for a tally with the instances' classes; `tables` are, per
    holder, its shares of tables; `mesh` are the transfers for comparing together.
    """
    local, labels = (local.scores, local.labels) if isinstance(local, Labelled) else (local, None)
    _require_scores(local, query)
    for name in query.holders:
        if set(tables.get(name, {})) != set(query.shared.get(name, ())):
            raise LocalProtocolError("the tables are not those of the shared features")
    sessions = yield from agree_all(run, dict.fromkeys(query.holders, _STEP), query.facts(), coins)  # step 1
    total = local
    first = query.holders[0]
    hashes = {name: TweakedHash(session) for name, session in sessions.items()}
    streams = {name: ot_senders[name].session(session) for name, session in sessions.items()}
    if query.compare_all:
        for name in sessions:
            served = serve_audited(run, query, name, tables.get(name, {}), hashes[name], streams[name])
            total = lm.add(total, (yield from served))
        return (yield from _compare_all(run, query, total, mesh, coins))
    checked_by = None
    for name in reversed(query.holders):  # the first one last: with decoys among its look-ups stand all other shares
        their = tables.get(name, {})
        if name == first and query.decoys:
            total, checked_by = yield from offer_places(query, total, their, hashes[name], streams[name])
        else:
            served = serve_audited(run, query, name, their, hashes[name], streams[name])
            total = lm.add(total, (yield from served))
        if query.blinds(name):
            total = lm.subtract(total, (yield from _hear_blinds(query, name, sessions[name])))
    classes = yield from garble(query, total, hashes[first], streams[first], run.me, checked_by, labels)
    for name in query.holders[1:]:  # step 7
        if name in query.learners and classes is not None:
            known = classes if query.tally else np.where(classes == UNREADABLE, query.plan.classes, classes)
            yield Send(name, ClassesTold(mark(sessions[name], ClassesTold, 0), known.astype(np.uint64)))
    return (yield from open_value(_label(query), classes)) if run.me in query.learners else None


def attribute_holder(
    run: Run,
    query: SharedArgmaxSetup,
    local: Limbs,
    columns: Mapping[str, npt.NDArray[np.int64]],
    ot_receiver: OtReceiver,
    coins: Coins,
    references: Decoys | None = None,
    mesh: Mesh | None = None,
) -> Role[Classes | None]:
    """Run an attribute holder.

    `local` is what it knows of the scores (its share tables at its values, and its own tables); `references` are what training
    left for audits; `mesh` are the transfers for comparing together.
    """
    _require_scores(local, query)
    sender = query.class_holder
    if query.compare_all:
        session = yield from agree(run, sender, _STEP, query.facts(), coins)  # step 1
        looked = look_up_audited(run, query, columns, references, TweakedHash(session), ot_receiver.session(session), coins)
        return (yield from _compare_all(run, query, lm.add(local, (yield from looked)), mesh, coins))
    first = query.holders[0]
    handings = dict.fromkeys(query.holders[1:] if run.me == first else (first,), "shared_argmax handing")
    sessions = yield from agree_all(run, {sender: _STEP, **handings}, query.facts(), coins)  # step 1
    session = sessions[sender]
    hash_, stream = TweakedHash(session), ot_receiver.session(session)
    if run.me != first:
        total = lm.add(local, (yield from look_up_audited(run, query, columns, references, hash_, stream, coins)))
        if query.blinds(run.me):
            blinds = coins.words(total.size)
            total = lm.add(total, blinds.reshape(total.shape))
            yield Send(sender, ScoresBlinded(mark(session, ScoresBlinded, 0), blinds))
        shares = lm.cut(total, query.plan.bits).reshape(-1)
        yield Send(first, ScoresHanded(mark(sessions[first], ScoresHanded, 0), shares))
        if run.me not in query.learners:
            return None
        reply = yield from receive_marked(sender, ClassesTold, session, 0)
        if query.tally:
            if reply.classes.shape != (query.plan.classes**2,):
                raise PeerProtocolError("the totals sent do not fit the query", party=sender)
            return (yield from open_value(TALLY, require_totals(reply.classes.view(np.int64), query.count, sender)))
        if reply.classes.shape != (query.count,) or (reply.classes > np.uint64(query.plan.classes)).any():
            raise PeerProtocolError("the classes sent do not fit the query", party=sender)
        known = reply.classes.astype(np.int64)
        return (yield from open_value(LABEL, np.where(known == query.plan.classes, UNREADABLE, known)))
    total, later = local, None
    if not query.decoys:
        asked = yield from ask(query, columns, run.me, hash_, stream)
        if asked:  # each chunk goes on to step 4 as soon as its look-ups are done
            later = functools.partial(_hear, query, run.me, asked, hash_)
    for name in query.holders[1:]:
        handed = yield from receive_marked(name, ScoresHanded, sessions[name], 0)
        if handed.shares.size != total.size:
            raise PeerProtocolError("handed shares have the wrong length", party=name)
        total = lm.add(total, handed.shares.reshape(total.shape))
    placed: Limbs | Placed = total
    if query.decoys:
        decoys = pick(references, query.decoys, coins) if query.shared.get(run.me, ()) else fresh(query, coins)
        placed = yield from place_decoys(query, total, columns, decoys, hash_, stream, coins)
    classes = yield from evaluate(query, placed, hash_, stream, run.me, later)
    return (yield from open_value(_label(query), classes)) if run.me in query.learners else None


def _label(query: SharedArgmaxSetup) -> str:
    return TALLY if query.tally else LABEL


def _hear(query: SharedArgmaxSetup, me: str, asked: list[PendingLookup], hash_: TweakedHash, at: int) -> Role[Limbs]:
    return (yield from hear(query, me, asked[at], hash_))


def _compare_all(run: Run, query: SharedArgmaxSetup, total: Limbs, mesh: Mesh | None, coins: Coins) -> Role[Classes | None]:
    if mesh is None:
        raise LocalProtocolError("comparing together needs transfers between all parties")
    if set(run.parties) != {query.class_holder, *query.holders}:
        raise LocalProtocolError("the parties of the run are not those of the query")
    sessions = yield from agree_all(run, dict.fromkeys(run.others, "shared_argmax together"), query.facts(), coins)
    classes = yield from compare(run, total, query.plan.bits, sessions, mesh, query.learners, coins)
    return (yield from open_value(LABEL, classes)) if run.me in query.learners else None


def _hear_blinds(query: SharedArgmaxSetup, holder: str, session: bytes) -> Role[Limbs]:
    """Run step 3 of the class holder: return a holder's blinding of its scores, (count, K - 1, limbs)."""
    blinded = yield from receive_marked(holder, ScoresBlinded, session, 0)
    shape = query.count, query.plan.classes - 1, query.plan.limbs
    if blinded.blinds.size != shape[0] * shape[1] * shape[2]:
        raise PeerProtocolError("the blinds of handed scores have the wrong length", party=holder)
    return blinded.blinds.reshape(shape)


def _require_scores(local: Limbs, query: SharedArgmaxSetup) -> None:
    if local.shape != (query.count, query.plan.classes - 1, query.plan.limbs) or local.dtype != np.uint64:
        raise LocalProtocolError("local scores have the wrong shape")
