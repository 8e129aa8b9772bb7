"""Queries, and look-ups in shared tables: steps 2 and 3 of SPEC.md."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.limbs import Limbs
from blindbayes.crypto.ot.base import bits_for, choice_bits
from blindbayes.crypto.ot.softspoken import ChooserStream, SenderStream
from blindbayes.crypto.tweaks import Block128, TweakedHash
from blindbayes.errors import LocalProtocolError, PeerProtocolError
from blindbayes.protocols.core import Role, Send, mark, receive_marked
from blindbayes.protocols.shared_inference.messages import EntriesChosen, EntriesMasked
from blindbayes.protocols.shared_training.shared_model.score_layout import Choices, ScoreLayout
from blindbayes.protocols.shared_training.shared_model.tables import Tables
from blindbayes.protocols.two_party import lookups
from blindbayes.wire import U64Array

_CHUNK_BYTES = 1 << 23
_MAX_CHUNK = 1 << 10
MAX_DUMMIES = 0.5


@dataclass(frozen=True, slots=True)
class SharedArgmaxSetup:
    """The public facts of one batch."""

    plan: ScoreLayout
    count: int
    class_holder: str
    holders: tuple[str, ...]  # attribute holders; the first one evaluates
    shared: Mapping[str, tuple[str, ...]]  # per holder, the features that are looked up in shared tables
    learners: tuple[str, ...]  # who learns the class
    compare_all: bool = False  # whether all parties compare, so that no pair is trusted
    audit_rate: float = 0.0  # share of dummies among what is looked up
    tally: bool = False  # whether only totals by true and predicted class are opened, to the learners, and no class

    def __post_init__(self) -> None:
        if self.count < 1:
            raise LocalProtocolError("a batch has at least one instance")
        if not 0 <= self.audit_rate <= MAX_DUMMIES:
            raise LocalProtocolError("the share of dummies lies between 0 and one half")
        if not self.holders or self.class_holder in self.holders or len(set(self.holders)) != len(self.holders):
            raise LocalProtocolError("a query needs attribute holders beside the class holder")
        if not self.learners or not set(self.learners) <= {self.class_holder, *self.holders}:
            raise LocalProtocolError("somebody of the query's parties must learn the class")
        if not self.compare_all and set(self.learners) & set(self.holders[1:]) and self.class_holder not in self.learners:
            raise LocalProtocolError("further holders learn the class from the class holder, who must learn it too")
        if self.tally and self.compare_all:
            raise LocalProtocolError("with compare_all no totals are opened")

    def facts(self) -> bytes:
        """Return the encoded public parameters on which all parties must agree."""
        shared = [(name, self.shared.get(name, ())) for name in self.holders]
        parts = (self.count, self.class_holder, self.holders, shared, sorted(self.learners))
        return self.plan.facts() + repr((*parts, self.compare_all, self.audit_rate, self.tally)).encode()

    @property
    def readers(self) -> tuple[str, ...]:
        """The parties that learn the class of each instance."""
        return () if self.tally else self.learners

    @property
    def dummies(self) -> int:
        """Number of dummies among the instances, so that they are at least their share of all look-ups."""
        return math.ceil(self.count * self.audit_rate / (1 - self.audit_rate))

    @property
    def apart(self) -> int:
        """Number of instances that share one decoy in the comparison."""
        return max(1, math.floor(1 / self.audit_rate) - 1)

    @property
    def decoys(self) -> int:
        """Number of decoys among the instances in the comparison: one for each group, begun or full."""
        return math.ceil(self.count / self.apart) if self.audit_rate else 0

    def widened(self, extra: int) -> SharedArgmaxSetup:
        """Return the batch with more instances among the others: dummies or decoys."""
        return replace(self, count=self.count + extra, audit_rate=0.0)

    def chunk(self) -> int:
        """Return the instances per message: comparisons dominate, or look-ups where there are many selectors."""
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
        size = self.chunk()
        return [slice(low, min(self.count, low + size)) for low in range(0, self.count, size)]

    def blinds(self, holder: str) -> bool:
        """Return True if a holder must blind the scores that it hands on, as no look-up does it."""
        return holder in self.holders[1:] and not self.shared.get(holder, ())

    @property
    def pairwise(self) -> bool:
        """True if every pair of classes is compared; else one champion meets each in turn."""
        return self.plan.classes <= c.PAIRWISE_CLASSES

    @property
    def compared(self) -> int:
        return len(c.pairs_of(self.plan.classes)) if self.pairwise else self.plan.classes - 1


@dataclass(frozen=True, slots=True)
class Labelled:
    """The class holder's scores of instances, with the classes that it knows."""

    scores: Any = field(repr=False)
    labels: npt.NDArray[np.int64] = field(repr=False)


# -- look-ups ------------------------------------------------------------------------------------------------------------


def _groups(query: SharedArgmaxSetup, holder: str) -> list[tuple[int, list[str]]]:
    """Return (entries, features) of the shared features of a holder: selectors of one size go together."""
    sizes: dict[int, list[str]] = {}
    for name in query.shared.get(holder, ()):
        sizes.setdefault(query.plan.features[name].entries, []).append(name)
    return sorted(sizes.items())


def _pieces(query: SharedArgmaxSetup, groups: list[tuple[int, list[str]]]) -> list[slice]:
    """Return the chunks of a batch; a batch with an output gate alone is one chunk, as little is sent."""
    return query.chunks() if groups else [slice(0, query.count)]


def look_up_shape(query: SharedArgmaxSetup, holder: str) -> list[tuple[int, int]]:
    """Return (entries, selectors) of each group."""
    plan = query.plan
    return [(entries, sum(plan.features[name].selectors for name in names)) for entries, names in _groups(query, holder)]


@dataclass(slots=True)
class OutputGate:
    """One more transfer per instance, by which the chooser keeps some of the sender's scores or drops them."""

    scores: Limbs = field(repr=False)  # (count, K - 1, limbs) of the sender; the chooser's shares, once they came
    choices: U64Array = field(repr=False)  # (count,) of the chooser: 1 where the scores stand
    transfers: list[Block128] = field(default_factory=list, repr=False)  # q, or t

    @classmethod
    def offering(cls, scores: Limbs) -> OutputGate:
        return cls(scores, np.zeros(0, dtype=np.uint64))

    @classmethod
    def choosing(cls, choices: U64Array, plan: ScoreLayout) -> OutputGate:
        return cls(np.zeros((len(choices), plan.classes - 1, plan.limbs), dtype=np.uint64), choices)


def serve(
    query: SharedArgmaxSetup,
    holder: str,
    tables: Tables,
    hash_: TweakedHash,
    stream: SenderStream,
    gate: OutputGate | None = None,
) -> Role[Limbs]:
    """Run the class holder's side of steps 2 and 3; return its shares of the looked-up sums, (count, K - 1, limbs).

    The scores of an output gate become its shares of them.
    """
    plan, groups = query.plan, _groups(query, holder)
    total = np.zeros((query.count, plan.classes - 1, plan.limbs), dtype=np.uint64)
    if not groups and gate is None:
        return total
    shape = look_up_shape(query, holder)
    per_instance = sum(selectors * bits_for(entries) for entries, selectors in shape) + (gate is not None)
    entered = sum(selectors * (entries - 1) for entries, selectors in shape) + (gate is not None)
    stacked = [lookups.Offered(np.concatenate([tables[name] for name in names])[None]) for _, names in groups]
    for index, part in enumerate(_pieces(query, groups)):
        count = part.stop - part.start
        chosen = yield from receive_marked(holder, EntriesChosen, hash_.session, index)
        q = stream.extend(chosen.corrections, count * per_instance, holder)
        words = np.empty(count * entered * _width(plan), dtype=np.uint64)
        at, sent, block = 0, 0, TweakedHash.for_block(hash_.session, index)
        for (entries, selectors), table in zip(shape, stacked, strict=True):
            bits = bits_for(entries)
            own = q[at : at + count * selectors * bits].reshape(-1, bits, 2)
            at += count * selectors * bits
            size = (entries - 1) * count * selectors * _width(plan)
            lookups.offer(block, own, stream.delta, table, total[part], words[sent : sent + size])
            sent += size
        if gate is not None:
            gate.transfers.append(q[at:])
            offered = lookups.Offered.gate(gate.scores[part])
            gate.scores[part] = 0
            lookups.offer(block, q[at:, None], stream.delta, offered, gate.scores[part], words[sent:])
        yield Send(holder, EntriesMasked(mark(hash_.session, EntriesMasked, index), words))
    return total


@dataclass(slots=True)
class PendingLookup:
    """Choices of one chunk that wait for the class holder's answer."""

    index: int
    part: slice
    choices: list[Choices]
    t: Block128
    gate: OutputGate | None


def ask(
    query: SharedArgmaxSetup,
    columns: Mapping[str, npt.NDArray[np.int64]],
    me: str,
    hash_: TweakedHash,
    stream: ChooserStream,
    gate: OutputGate | None = None,
) -> Role[list[PendingLookup]]:
    """Run step 2: send an attribute holder's choices, chunk by chunk."""
    plan, groups, asked = query.plan, _groups(query, me), []
    if not groups and gate is None:
        return []
    for index, part in enumerate(_pieces(query, groups)):
        choices = [
            np.concatenate([plan.features[name].choices(columns[name][part]) for name in names], axis=1).reshape(-1)
            for _, names in groups
        ]
        bits = [choice_bits(own, entries).reshape(-1) for own, (entries, _) in zip(choices, groups, strict=True)]
        if gate is not None:
            bits.append(gate.choices[part].astype(np.uint8))
        corrections, t = stream.extend(np.concatenate(bits))
        yield Send(query.class_holder, EntriesChosen(mark(hash_.session, EntriesChosen, index), corrections))
        asked.append(PendingLookup(index, part, choices, t, gate))
    return asked


def hear(query: SharedArgmaxSetup, me: str, asked: PendingLookup, hash_: TweakedHash) -> Role[Limbs]:
    """Run step 3: return the attribute holder's shares of the looked-up sums of a chunk, (instances, K - 1, limbs)."""
    plan, shape, sender = query.plan, look_up_shape(query, me), query.class_holder
    count = asked.part.stop - asked.part.start
    total = np.zeros((count, plan.classes - 1, plan.limbs), dtype=np.uint64)
    masked = yield from receive_marked(sender, EntriesMasked, hash_.session, asked.index)
    gate, entered = asked.gate, sum(selectors * (entries - 1) for entries, selectors in shape)
    expected = count * (entered + (gate is not None)) * _width(plan)
    if masked.entries.size != expected:
        raise PeerProtocolError("masked table entries have the wrong length", party=sender)
    at, read, block = 0, 0, TweakedHash.for_block(hash_.session, asked.index)
    for (entries, _), own in zip(shape, asked.choices, strict=True):
        bits, size = bits_for(entries), (entries - 1) * len(own) * _width(plan)
        t = asked.t[at : at + len(own) * bits].reshape(-1, bits, 2)
        lookups.take(block, t, own, masked.entries[read : read + size], total)
        at += len(own) * bits
        read += size
    if gate is not None:
        gate.transfers.append(asked.t[at:])
        chosen, words = gate.choices[asked.part], masked.entries[read:]
        lookups.take(block, asked.t[at:, None], chosen, words, gate.scores[asked.part])
    return total


def look_up(
    query: SharedArgmaxSetup,
    columns: Mapping[str, npt.NDArray[np.int64]],
    me: str,
    hash_: TweakedHash,
    stream: ChooserStream,
    gate: OutputGate | None = None,
) -> Role[Limbs]:
    """Run steps 2 and 3 for the whole batch."""
    total = np.zeros((query.count, query.plan.classes - 1, query.plan.limbs), dtype=np.uint64)
    for asked in (yield from ask(query, columns, me, hash_, stream, gate)):
        total[asked.part] = yield from hear(query, me, asked, hash_)
    return total


def _width(plan: ScoreLayout) -> int:
    return (plan.classes - 1) * plan.limbs
