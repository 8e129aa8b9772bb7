"""Roles of shared_argmax. Step numbers as in SPEC.md.

The class holder has a role with everybody; the first attribute holder evaluates the comparison; further ones hand it their
shares. Every phase runs over all chunks of the batch before the next begins, so that rounds do not grow with the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blindbayes.errors import LocalProtocolError, PeerProtocolError
from blindbayes.primitives import circuits as c
from blindbayes.primitives import limbs as lm
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.garbling import Evaluator, Garbler, Gates, Wires
from blindbayes.primitives.limbs import Limbs
from blindbayes.primitives.ot import bits_for, choice_bits, chooser_pads, sender_pads
from blindbayes.primitives.softspoken import ChooserStream, Keeper, Planter, SenderStream
from blindbayes.primitives.tweaks import Blocks, TweakedHash
from blindbayes.protocol.core import Role, Run, Send, open_value, receive
from blindbayes.protocol.shared_argmax.messages import (
    ArgmaxGarbled,
    ClassesTold,
    EntriesChosen,
    EntriesMasked,
    LabelsReturned,
    ScoresBlinded,
    ScoresChosen,
    ScoresHanded,
)
from blindbayes.protocol.shared_argmax.together import Mesh, compare
from blindbayes.protocol.shared_model.plan import ScorePlan
from blindbayes.protocol.shared_model.tables import Tables
from blindbayes.protocol.transfer import agree, agree_all, mark, require_mark
from blindbayes.wire import Words

LABEL = "class"
_STEP = "shared_argmax"
_CHUNK_BYTES = 1 << 23
_MAX_CHUNK = 1 << 10
Classes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Query:
    """What is public about one batch."""

    plan: ScorePlan
    count: int
    class_holder: str
    holders: tuple[str, ...]  # attribute holders; the first one evaluates
    shared: Mapping[str, tuple[str, ...]]  # per holder, the features that are looked up in shared tables
    learners: tuple[str, ...]  # who learns the class
    together: bool = False  # whether all parties compare, so that no pair is trusted

    def __post_init__(self) -> None:
        if self.count < 1:
            raise LocalProtocolError("a batch has at least one instance")
        if not self.holders or self.class_holder in self.holders or len(set(self.holders)) != len(self.holders):
            raise LocalProtocolError("a query needs attribute holders beside the class holder")
        if not self.learners or not set(self.learners) <= {self.class_holder, *self.holders}:
            raise LocalProtocolError("somebody of the query's parties must learn the class")
        if not self.together and set(self.learners) & set(self.holders[1:]) and self.class_holder not in self.learners:
            raise LocalProtocolError("further holders learn the class from the class holder, who must learn it too")

    def facts(self) -> bytes:
        """What all must agree on."""
        shared = [(name, self.shared.get(name, ())) for name in self.holders]
        parts = (self.count, self.class_holder, self.holders, shared, sorted(self.learners), self.together)
        return self.plan.facts() + repr(parts).encode()

    def chunk(self) -> int:
        """Instances per message: comparisons dominate, or look-ups where there are many selectors."""
        pairs = len(c.pairs_of(self.plan.classes)) if self.pairwise else 4 * self.plan.classes
        compare = 36 * pairs * self.plan.bits
        selectors = sum(
            self.plan.features[name].selectors * self.plan.features[name].entries
            for names in self.shared.values()
            for name in names
        )
        look_up = 8 * selectors * self.plan.limbs * (self.plan.classes - 1)
        return max(1, min(_MAX_CHUNK, _CHUNK_BYTES // max(compare, look_up)))

    def chunks(self) -> list[slice]:
        """The batch, cut."""
        size = self.chunk()
        return [slice(low, min(self.count, low + size)) for low in range(0, self.count, size)]

    def blinds(self, holder: str) -> bool:
        """Whether a holder must blind the scores that it hands on: no look-up does it."""
        return holder in self.holders[1:] and not self.shared.get(holder, ())

    @property
    def pairwise(self) -> bool:
        """Whether every pair of classes is compared, or one champion meets each in turn."""
        return self.plan.classes <= c.PAIRWISE_CLASSES


# -- look-ups ------------------------------------------------------------------------------------------------------------


def _groups(query: Query, holder: str) -> list[tuple[int, list[str]]]:
    """(entries, features) of the shared features of a holder: selectors of one size go together."""
    sizes: dict[int, list[str]] = {}
    for name in query.shared.get(holder, ()):
        sizes.setdefault(query.plan.features[name].entries, []).append(name)
    return sorted(sizes.items())


def _look_up_shape(query: Query, holder: str) -> list[tuple[int, int]]:
    """(entries, selectors) of each group."""
    plan = query.plan
    return [(entries, sum(plan.features[name].selectors for name in names)) for entries, names in _groups(query, holder)]


def serve(query: Query, holder: str, tables: Tables, tmmo: TweakedHash, stream: SenderStream) -> Role[Limbs]:
    """Steps 2 and 3, the class holder's side: its shares of the looked-up sums, (count, K - 1, limbs)."""
    plan, groups = query.plan, _groups(query, holder)
    total = np.zeros((query.count, plan.classes - 1, plan.limbs), dtype=np.uint64)
    if not groups:
        return total
    shape = _look_up_shape(query, holder)
    per_instance = sum(selectors * bits_for(entries) for entries, selectors in shape)
    stacked = [np.concatenate([tables[name] for name in names]) for _, names in groups]
    for index, part in enumerate(query.chunks()):
        count = part.stop - part.start
        chosen = yield from receive(holder, EntriesChosen)
        require_mark(chosen.mark, tmmo.session, EntriesChosen, index, holder)
        q = stream.extend(chosen.corrections, count * per_instance, holder)
        sent, at = [], 0
        for (entries, selectors), table in zip(shape, stacked, strict=True):
            rows, bits = count * selectors, bits_for(entries)
            pads = sender_pads(tmmo, q[at : at + rows * bits].reshape(rows, bits, 2), stream.delta, entries, _width(plan))
            at += rows * bits
            pads = pads.reshape(entries, count, selectors, plan.classes - 1, plan.limbs)
            # Entry 0 of a table is 0, so pad 0 itself is the class holder's share, and entry 0 needs no message.
            total[part] = lm.add(total[part], lm.total(pads[0], axis=1))
            for value in range(1, entries):
                masked = lm.subtract(np.broadcast_to(table[None, :, value], pads[0].shape), pads[0])
                sent.append(lm.subtract(masked, pads[value]).reshape(-1))
        yield Send(holder, EntriesMasked(mark(tmmo.session, EntriesMasked, index), np.concatenate(sent)))
    return total


@dataclass(slots=True)
class _Asked:
    """Choices of one chunk that wait for the class holder's answer."""

    index: int
    part: slice
    choices: list[Words]
    t: Blocks


def _ask(
    query: Query, columns: Mapping[str, npt.NDArray[np.int64]], me: str, tmmo: TweakedHash, stream: ChooserStream
) -> Role[list[_Asked]]:
    """Step 2: an attribute holder's choices, chunk by chunk."""
    plan, groups, asked = query.plan, _groups(query, me), []
    if not groups:
        return []
    for index, part in enumerate(query.chunks()):
        choices = [
            np.concatenate([plan.features[name].choices(columns[name][part]) for name in names], axis=1).reshape(-1)
            for _, names in groups
        ]
        bits = [choice_bits(own, entries).reshape(-1) for own, (entries, _) in zip(choices, groups, strict=True)]
        corrections, t = stream.extend(np.concatenate(bits))
        yield Send(query.class_holder, EntriesChosen(mark(tmmo.session, EntriesChosen, index), corrections))
        asked.append(_Asked(index, part, choices, t))
    return asked


def _hear(query: Query, me: str, asked: _Asked, tmmo: TweakedHash) -> Role[Limbs]:
    """Step 3: the attribute holder's shares of the looked-up sums of one chunk, (instances, K - 1, limbs)."""
    plan, shape, sender = query.plan, _look_up_shape(query, me), query.class_holder
    count = asked.part.stop - asked.part.start
    total = np.zeros((count, plan.classes - 1, plan.limbs), dtype=np.uint64)
    masked = yield from receive(sender, EntriesMasked)
    require_mark(masked.mark, tmmo.session, EntriesMasked, asked.index, sender)
    expected = sum(count * selectors * (entries - 1) for entries, selectors in shape) * _width(plan)
    if masked.entries.size != expected:
        raise PeerProtocolError("masked table entries have the wrong length", party=sender)
    at, read = 0, 0
    for (entries, selectors), own in zip(shape, asked.choices, strict=True):
        rows, bits_each = count * selectors, bits_for(entries)
        t = asked.t[at : at + rows * bits_each].reshape(rows, bits_each, 2)
        pads = chooser_pads(tmmo, t, own, entries, _width(plan)).reshape(rows, plan.classes - 1, plan.limbs)
        at += rows * bits_each
        size = (entries - 1) * rows * _width(plan)
        table = masked.entries[read : read + size].reshape(entries - 1, rows, plan.classes - 1, plan.limbs)
        read += size
        index = own.astype(np.int64)
        picked = table[np.maximum(index - 1, 0), np.arange(rows)]
        zero = (index == 0)[:, None, None]
        share = np.where(zero, lm.subtract(np.zeros_like(pads), pads), lm.add(picked, pads))
        total = lm.add(total, lm.total(share.reshape(count, selectors, *pads.shape[1:]), axis=1))
    return total


def look_up(
    query: Query, columns: Mapping[str, npt.NDArray[np.int64]], me: str, tmmo: TweakedHash, stream: ChooserStream
) -> Role[Limbs]:
    """Steps 2 and 3 for the whole batch."""
    total = np.zeros((query.count, query.plan.classes - 1, query.plan.limbs), dtype=np.uint64)
    for asked in (yield from _ask(query, columns, me, tmmo, stream)):
        total[asked.part] = yield from _hear(query, me, asked, tmmo)
    return total


def _width(plan: ScorePlan) -> int:
    return (plan.classes - 1) * plan.limbs


# -- comparison ----------------------------------------------------------------------------------------------------------


def _compared(shares: Limbs, query: Query) -> Limbs:
    """The shares that enter the circuit, (lanes, limbs): differences of all pairs, or the K - 1 differences to class 0."""
    plan = query.plan
    if not query.pairwise:
        return np.ascontiguousarray(shares.transpose(1, 0, 2)).reshape(-1, plan.limbs)
    full = np.concatenate([np.zeros((len(shares), 1, plan.limbs), dtype=np.uint64), shares], axis=1)
    return np.concatenate([lm.subtract(full[:, i], full[:, j]) for i, j in c.pairs_of(plan.classes)])


def _circuit(g: Gates, mine: Wires, theirs: Wires, query: Query) -> Wires:
    """Output wires: one per class but the last, or the bits of the class's position."""
    classes = query.plan.classes
    if query.pairwise:
        behind = c.sign_of_sum(g, mine, theirs)
        return c.argmax_by_pairs(g, behind.reshape(len(c.pairs_of(classes)), -1, *behind.shape[1:]), classes)
    whole = c.add(g, mine, theirs, bits=query.plan.bits)
    scores = np.split(whole, classes - 1, axis=1)
    return c.argmax_by_turns(g, [np.zeros_like(scores[0]), *scores])


def _classes(bits: npt.NDArray[np.uint8], query: Query) -> Classes:
    if query.pairwise:
        last = np.ones((1, bits.shape[1]), dtype=np.uint8)
        first: Classes = np.concatenate([bits, last]).argmax(axis=0).astype(np.int64)
        return first
    found = np.array(c.from_bits(bits), dtype=np.int64)
    if found.size and found.max() >= query.plan.classes:
        raise LocalProtocolError("a class out of range")
    return found


def _garble(query: Query, shares: Limbs, tmmo: TweakedHash, stream: SenderStream, run: Run) -> Role[Classes | None]:
    """Steps 4 to 6, the class holder's side."""
    plan, other, classes = query.plan, query.holders[0], []
    outputs = []
    garbler = Garbler(tmmo, stream.delta)
    for index, part in enumerate(query.chunks()):
        compared = _compared(shares[part], query)
        chosen = yield from receive(other, ScoresChosen)
        require_mark(chosen.mark, tmmo.session, ScoresChosen, index, other)
        labels = stream.extend(chosen.corrections, plan.bits * len(compared), other).reshape(plan.bits, -1, 2)
        out = _circuit(garbler, garbler.own(lm.to_bits(compared, plan.bits)), labels, query)
        tags = garbler.tags(out) if other in query.learners else np.zeros(0, dtype=np.uint64)
        yield Send(other, ArgmaxGarbled(garbler.take_tables(), tags))
        outputs.append(out)
    if run.me not in query.learners:
        return None
    for out in outputs:
        returned = yield from receive(other, LabelsReturned)
        classes.append(_classes(garbler.read(out, returned.labels, other), query))
    return np.concatenate(classes)


def _evaluate(
    query: Query,
    local: Limbs,
    columns: Mapping[str, npt.NDArray[np.int64]],
    tmmo: TweakedHash,
    stream: ChooserStream,
    run: Run,
    sessions: Mapping[str, bytes],
) -> Role[Classes | None]:
    """Steps 2 to 6, the first attribute holder's side. Each chunk goes on to step 4 as soon as its look-ups are done."""
    plan, other = query.plan, query.class_holder
    asked = yield from _ask(query, columns, run.me, tmmo, stream)
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
            shares = lm.add(shares, (yield from _hear(query, run.me, asked[at], tmmo)))
        corrections, t = stream.extend(lm.to_bits(_compared(shares, query), plan.bits))
        yield Send(other, ScoresChosen(mark(tmmo.session, ScoresChosen, at), corrections))
        waiting.append(t.reshape(plan.bits, -1, 2))
    evaluator = Evaluator(tmmo, other)
    classes, returned = [], []
    for labels in waiting:
        garbled = yield from receive(other, ArgmaxGarbled)
        evaluator.give_tables(garbled.tables)
        out = _circuit(evaluator, evaluator.own(labels.shape[:-1]), labels, query)
        evaluator.require_finished()
        if run.me in query.learners:
            classes.append(_classes(evaluator.read(out, garbled.tags), query))
        elif len(garbled.tags):
            raise PeerProtocolError("tags came for a class that this party is not to learn", party=other)
        returned.append(evaluator.skip_read(out))
    if other in query.learners:
        for output in returned:
            yield Send(other, LabelsReturned(output))
    return np.concatenate(classes) if classes else None


# -- roles ---------------------------------------------------------------------------------------------------------------


def class_holder(
    run: Run,
    query: Query,
    local: Limbs,
    tables: Mapping[str, Tables],
    keepers: Mapping[str, Keeper],
    coins: Coins,
) -> Role[Classes | None]:
    """The garbler. `local`: its own part of the scores, (count, K - 1, limbs); `tables`: per holder, its shares of tables."""
    _require_scores(local, query)
    for name in query.holders:
        if set(tables.get(name, {})) != set(query.shared.get(name, ())):
            raise LocalProtocolError("the tables are not those of the shared features")
    sessions = yield from agree_all(run, dict.fromkeys(query.holders, _STEP), query.facts(), coins)  # step 1
    total = local
    first = query.holders[0]
    hashes = {name: TweakedHash(session) for name, session in sessions.items()}
    streams = {name: keepers[name].session(session) for name, session in sessions.items()}
    for name in query.holders:
        total = lm.add(total, (yield from serve(query, name, tables.get(name, {}), hashes[name], streams[name])))
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
    query: Query,
    local: Limbs,
    columns: Mapping[str, npt.NDArray[np.int64]],
    planter: Planter,
    coins: Coins,
) -> Role[Classes | None]:
    """An attribute holder. `local`: what it knows of the scores (its share tables at its values, and its own tables)."""
    _require_scores(local, query)
    sender = query.class_holder
    first = query.holders[0]
    handings = dict.fromkeys(query.holders[1:] if run.me == first else (first,), "shared_argmax handing")
    sessions = yield from agree_all(run, {sender: _STEP, **handings}, query.facts(), coins)  # step 1
    session = sessions[sender]
    tmmo, stream = TweakedHash(session), planter.session(session)
    if run.me != first:
        total = lm.add(local, (yield from look_up(query, columns, run.me, tmmo, stream)))
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
    classes = yield from _evaluate(query, local, columns, tmmo, stream, run, sessions)
    return (yield from open_value(LABEL, classes)) if run.me in query.learners else None


def class_holder_together(
    run: Run,
    query: Query,
    local: Limbs,
    tables: Mapping[str, Tables],
    keepers: Mapping[str, Keeper],
    mesh: Mesh,
    coins: Coins,
) -> Role[Classes | None]:
    """The class holder, where all parties compare: the look-ups as before, then one part among equals."""
    _require_scores(local, query)
    total = local
    sessions = yield from agree_all(run, dict.fromkeys(query.holders, _STEP), query.facts(), coins)  # step 1
    for name, session in sessions.items():
        stream = keepers[name].session(session)
        total = lm.add(total, (yield from serve(query, name, tables.get(name, {}), TweakedHash(session), stream)))
    return (yield from _together(run, query, total, mesh, coins))


def attribute_holder_together(
    run: Run,
    query: Query,
    local: Limbs,
    columns: Mapping[str, npt.NDArray[np.int64]],
    planter: Planter,
    mesh: Mesh,
    coins: Coins,
) -> Role[Classes | None]:
    """An attribute holder, where all parties compare."""
    _require_scores(local, query)
    session = yield from agree(run, query.class_holder, _STEP, query.facts(), coins)  # step 1
    total = lm.add(local, (yield from look_up(query, columns, run.me, TweakedHash(session), planter.session(session))))
    return (yield from _together(run, query, total, mesh, coins))


def _together(run: Run, query: Query, total: Limbs, mesh: Mesh, coins: Coins) -> Role[Classes | None]:
    if set(run.parties) != {query.class_holder, *query.holders}:
        raise LocalProtocolError("the parties of the run are not those of the query")
    sessions = yield from agree_all(run, dict.fromkeys(run.others, "shared_argmax together"), query.facts(), coins)
    classes = yield from compare(run, total, query.plan.bits, sessions, mesh, query.learners, coins)
    return (yield from open_value(LABEL, classes)) if run.me in query.learners else None


def _hear_blinds(query: Query, holder: str, session: bytes) -> Role[Limbs]:
    """Step 3, the class holder: what a holder blinded its scores with, (count, K - 1, limbs)."""
    blinded = yield from receive(holder, ScoresBlinded)
    require_mark(blinded.mark, session, ScoresBlinded, 0, holder)
    shape = query.count, query.plan.classes - 1, query.plan.limbs
    if blinded.blinds.size != shape[0] * shape[1] * shape[2]:
        raise PeerProtocolError("the blinds of handed scores have the wrong length", party=holder)
    return blinded.blinds.reshape(shape)


def _require_scores(local: Limbs, query: Query) -> None:
    if local.shape != (query.count, query.plan.classes - 1, query.plan.limbs) or local.dtype != np.uint64:
        raise LocalProtocolError("local scores have the wrong shape")
