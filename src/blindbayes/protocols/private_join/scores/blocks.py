"""Steps 7 to 10 of joined_scores: one block of bins, between the scorer and one helper. Step numbers as in SPEC.md.

A block has hashes of its own. Both sides take pads in the same order: for the scorer's tables, for the helper's tables, for the
scorer's own features, for the gate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from blindbayes.crypto import limbs as lm
from blindbayes.crypto.garbling.garbling import ROW_WORDS, Evaluator, Garbler, Wires, colour_zero
from blindbayes.crypto.limbs import Limbs
from blindbayes.crypto.ot.softspoken import ChooserStream, SenderStream
from blindbayes.crypto.tweaks import Block128, TweakedHash
from blindbayes.errors import PeerProtocolError
from blindbayes.protocols.core import K, Role, Send, mark, receive_marked
from blindbayes.protocols.private_join.joined import Links
from blindbayes.protocols.private_join.scores.match import matched, unpacked
from blindbayes.protocols.private_join.scores.messages import CodesAnswered, CodesChosen, CodesCompared, ScoresGated
from blindbayes.protocols.private_join.scores.shape import Bits, LookupSetup
from blindbayes.protocols.two_party import lookups
from blindbayes.wire import Marked, U64Array

_ONE = np.uint64(1)
T = TypeVar("T", bound=np.generic)


def _no_words() -> U64Array:
    return np.zeros(0, dtype=np.uint64)


def _no_blocks() -> Block128:
    return np.zeros((0, 2), dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class ScoringPair:
    """A session with one party, and its transfers of both directions, which go on from block to block."""

    session: bytes
    other: str
    shape: LookupSetup
    sends: SenderStream = field(repr=False)
    chooses: ChooserStream = field(repr=False)

    @classmethod
    def start(cls, session: bytes, other: str, shape: LookupSetup, links: Links) -> ScoringPair:
        return cls(session, other, shape, links.ot_sender.session(session), links.ot_receiver.session(session))


@dataclass(slots=True)
class BinBlock:
    """One block of bins with one party: its hash, the transfers of both directions, and what the output gate needs."""

    other: str
    shape: LookupSetup
    count: int
    hash_: TweakedHash = field(repr=False)
    sends: SenderStream = field(repr=False)
    chooses: ChooserStream = field(repr=False)
    equal: Wires = field(default_factory=_no_blocks, repr=False)  # labels of "the identifier is shared", (count, 2)
    gate: Block128 = field(default_factory=_no_blocks, repr=False)  # transfers on the scorer's share of that bit, (count, 2)

    @classmethod
    def start(cls, pair: ScoringPair, index: int, count: int) -> BinBlock:
        """Open block number `index` of a session."""
        name = hashlib.sha256(b"blindbayes joined_scores block" + pair.session + b" %d" % index).digest()
        return cls(pair.other, pair.shape, count, TweakedHash(name), pair.sends, pair.chooses)

    @property
    def equal_share(self) -> U64Array:
        """XOR share of "the identifier is shared": the colour of its label."""
        colours: U64Array = self.equal[:, 0] & _ONE
        return colours

    @property
    def score_shape(self) -> tuple[int, int]:
        return self.shape.plan.classes - 1, self.shape.plan.limbs

    @property
    def choice_count(self) -> int:
        """Number of transfers on the scorer's shares of choices, and of the output gate."""
        return self.count * (self.shape.planes + self.shape.shared)

    def zeros(self) -> Limbs:
        return np.zeros((self.count, *self.score_shape), dtype=np.uint64)

    def mark(self, kind: type[Marked]) -> int:
        return mark(self.hash_.session, kind, 0)

    def receive(self, kind: type[K]) -> Role[K]:
        return receive_marked(self.other, kind, self.hash_.session, 0)

    def require_words(self, words: U64Array, count: int) -> U64Array:
        if len(words) != count:
            raise PeerProtocolError("masked table entries have the wrong length", party=self.other)
        return words

    # -- look-ups --------------------------------------------------------------------------------------------------------

    def offer(self, keys: Sequence[Block128], shares: Sequence[Bits], tables: Sequence[Limbs]) -> tuple[Limbs, U64Array]:
        """Return the sender's shares of scores in step 8, and what to send.

        Per group: `keys` (rows, bits, 2) lead to the pads where the chooser's bit is 0; `shares` (rows, bits) are its XOR
        shares of the choices; `tables` are stacked.
        """
        total, sent = self.zeros(), [_no_words()]
        for group, own, bits, table in zip(self.shape.groups, keys, shares, tables, strict=True):
            offered = lookups.Offered(table[None], _numbers(bits).reshape(self.count, group.selectors))
            sent.append(lookups.offer(self.hash_, own, self.sends.delta, offered, total))
        return total, np.concatenate(sent)

    def take(self, keys: Sequence[Block128], shares: Sequence[Bits], sent: U64Array) -> Limbs:
        """Return the chooser's shares of scores in step 8."""
        self.require_words(sent, self.count * self.shape.entry_words)
        total, at = self.zeros(), 0
        for group, own, bits in zip(self.shape.groups, keys, shares, strict=True):
            size = self.count * group.selectors * (group.entries - 1) * self.shape.width
            lookups.take(self.hash_, own, _numbers(bits), sent[at : at + size], total)
            at += size
        return total

    def by_group(self, planes: npt.NDArray[T], words: int) -> list[npt.NDArray[T]]:
        """Split an array of all planes, (count, planes, words), into one array (rows, bits, words) per group."""
        whole = planes.reshape(self.count, -1, words)
        parts = [whole[:, group.first : group.first + group.planes] for group in self.shape.groups]
        return [
            np.ascontiguousarray(own).reshape(-1, group.bits, words)
            for group, own in zip(self.shape.groups, parts, strict=True)
        ]

    def transfers(self, keys: Block128) -> list[Block128]:
        """Return the transfers on the scorer's shares per group, (rows, bits, 2). The rest belong to the output gate."""
        groups, at = [], 0
        for group in self.shape.groups:
            size = self.count * group.planes
            groups.append(keys[at : at + size].reshape(-1, group.bits, 2))
            at += size
        self.gate = keys[at:]
        return groups


def _numbers(bits: Bits) -> U64Array:
    """Read (rows, bits) as numbers, lowest bit first."""
    packed = np.packbits(bits, axis=1, bitorder="little").astype(np.uint64)
    if packed.shape[1] == 1:
        return packed[:, 0]
    numbers: U64Array = np.bitwise_or.reduce(packed << np.arange(0, 8 * packed.shape[1], 8, dtype=np.uint64), axis=1)
    return numbers


# -- the scorer ------------------------------------------------------------------------------------------------------------


def scorer_block(block: BinBlock, learned: U64Array, tables: Sequence[Limbs]) -> Role[Limbs]:
    """Run steps 7 and 8; return the scorer's shares of what the helper's features add.

    `learned` is what it read in the store; `tables` are its shares of the helper's tables, per group, if it has any.
    """
    shape, delta = block.shape, block.sends.delta
    chosen = yield from block.receive(CodesChosen)
    inputs = shape.tag_bits + shape.planes
    theirs = block.sends.extend(chosen.corrections, inputs * block.count, block.other).reshape(inputs, block.count, 2)
    garbler = Garbler(block.hash_, delta)
    block.equal, labels, colours = matched(garbler, np.ascontiguousarray(learned), theirs, shape)  # step 7
    keys, shares = block.by_group(labels, 2), [own[..., 0] for own in block.by_group(colours, 1)]
    total, sent = block.zeros(), _no_words()
    if shape.both:  # step 8: the labels of the outcomes lead to the pads
        total, sent = block.offer(keys, shares, tables)
    bits = [own.reshape(-1) for own in shares] + ([block.equal_share.astype(np.uint8)] if shape.shared else [])
    corrections, t = block.chooses.extend(np.concatenate([np.zeros(0, dtype=np.uint8), *bits]))
    yield Send(block.other, CodesCompared(block.mark(CodesCompared), garbler.take_tables(), sent, corrections))
    answered = yield from block.receive(CodesAnswered)
    return lm.add(total, block.take(block.transfers(t), shares, answered.entries))


def scorer_gate(block: BinBlock, scores: Limbs) -> Role[Limbs]:
    """Run step 10: return shares of the scores where the identifier is shared, of 0 elsewhere."""
    delta, flips, share = block.sends.delta, block.equal_share, block.zeros()
    keys = colour_zero(block.equal, delta)[:, None]
    sent = lookups.offer(block.hash_, keys, delta, lookups.Offered.gate(scores, flips), share)
    yield Send(block.other, ScoresGated(block.mark(ScoresGated), sent))
    words = yield from _receive_gated(block)
    lookups.take(block.hash_, block.gate[:, None], flips, words, share)
    return share


# -- the helper ------------------------------------------------------------------------------------------------------------


def helper_block(block: BinBlock, secret: U64Array, tables: Sequence[Limbs]) -> Role[Limbs]:
    """Run steps 7 and 8; return the helper's shares of what its own features add.

    `secret` are its tags and masks; `tables` are stacked per group.
    """
    shape = block.shape
    corrections, t = block.chooses.extend(unpacked(secret, shape))
    yield Send(block.other, CodesChosen(block.mark(CodesChosen), corrections))
    compared = yield from block.receive(CodesCompared)
    if len(compared.tables) != ROW_WORDS * block.count * (shape.tag_bits - 1 + shape.planes):
        raise PeerProtocolError("a block of comparisons has the wrong length", party=block.other)
    evaluator = Evaluator(block.hash_, block.other)
    evaluator.give_tables(compared.tables)
    theirs = t.reshape(-1, block.count, 2)
    block.equal, labels, colours = matched(evaluator, None, theirs, shape)  # step 7
    evaluator.require_finished()
    shares = [own[..., 0] for own in block.by_group(colours, 1)]
    total = block.zeros()
    if shape.both:  # step 8
        total = block.take(block.by_group(labels, 2), shares, compared.entries)
    else:
        block.require_words(compared.entries, 0)
    keys = block.transfers(block.sends.extend(compared.corrections, block.choice_count, block.other))
    share, sent = block.offer(keys, shares, tables)
    yield Send(block.other, CodesAnswered(block.mark(CodesAnswered), sent))
    return lm.add(total, share)


def helper_gate(block: BinBlock, scores: Limbs) -> Role[Limbs]:
    """Run the helper's side of step 10."""
    flips, share = block.equal_share, block.zeros()
    words = yield from _receive_gated(block)
    lookups.take(block.hash_, block.equal[:, None], flips, words, share)
    offered = lookups.Offered.gate(scores, flips)
    sent = lookups.offer(block.hash_, block.gate[:, None], block.sends.delta, offered, share)
    yield Send(block.other, ScoresGated(block.mark(ScoresGated), sent))
    return share


def _receive_gated(block: BinBlock) -> Role[U64Array]:
    gated = yield from block.receive(ScoresGated)
    return block.require_words(gated.entries, block.count * block.shape.width)
