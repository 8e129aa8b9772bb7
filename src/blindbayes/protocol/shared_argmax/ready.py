"""Material that was made before the instances came, as a classification uses it. See SPEC.md, "Before the data comes".

Transfers of random choices stand in for those that are made online: the chooser tells by which bits its choices differ from the
random ones. Comparisons were garbled for random bits of the evaluator: it tells by how much its shares differ from the numbers
that these are, the garbler adds that to its own shares and sends the labels of the sum. Where material ends, either party goes
on without, at the same place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from blindbayes.errors import IntegrityError, PeerProtocolError
from blindbayes.primitives import limbs as lm
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.garbling import Evaluator, Gates, Wires
from blindbayes.primitives.limbs import Limbs
from blindbayes.primitives.ot import KEY_BYTES, bits_for
from blindbayes.primitives.softspoken import LEAVES, TREES, ChooserStream, OtReceiver, OtSender, SenderStream
from blindbayes.primitives.tweaks import Block128, TweakedHash
from blindbayes.protocol import digits
from blindbayes.protocol.shared_argmax.decoys import widened
from blindbayes.protocol.shared_argmax.levels import levels
from blindbayes.protocol.shared_argmax.query import SharedArgmaxSetup, look_up_shape
from blindbayes.wire import U64Array

PIECE = 1 << 17  # transfers of one record
Bits = npt.NDArray[np.uint8]
Circuit = Callable[[Gates, Wires, Wires, SharedArgmaxSetup], Wires]


class Records(Protocol):
    """What one party kept, record by record, in the order in which it was made."""

    def read(self, index: int) -> bytes:
        """One record; raises `IntegrityError` if it is not what was kept."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the class holder and one attribute holder make ahead, from public facts: for a run with these batches."""

    query: SharedArgmaxSetup
    transfers: int
    blocks: tuple[int, ...]  # instances of each garbled comparison

    @classmethod
    def of(cls, batches: Sequence[SharedArgmaxSetup], holder: str) -> Shape:
        """Enough for all batches; a batch of fewer instances takes no more."""
        transfers, blocks = 0, list[int]()
        for query in batches:
            each = sum(selectors * bits_for(entries) for entries, selectors in look_up_shape(query, holder))
            places = query.count + query.decoys
            asked = query.count if not query.shared.get(holder, ()) else query.count + query.dummies
            is_first = holder == query.holders[0] and not query.compare_all
            if is_first and query.decoys:  # with noise the places take transfers of their own
                transfers += asked * each + places if query.opens_cells else places * (each + 1)
            else:
                transfers += asked * each
            if is_first and query.by_transfers:  # every other level's
                made = levels(query.plan.bits, query.plan.classes)[::2]
                transfers += query.count * sum(level.rows * level.bits for level in made)
            elif is_first:
                blocks += [part.stop - part.start for part in widened(query).chunks()]
        return cls(batches[0], transfers, tuple(blocks))

    def facts(self) -> bytes:
        """What both must agree on."""
        return self.query.facts() + repr((self.transfers, self.blocks)).encode()

    @property
    def pieces(self) -> list[int]:
        """Transfers of each record."""
        return [min(PIECE, self.transfers - low) for low in range(0, self.transfers, PIECE)]

    @property
    def groups(self) -> int:
        """Numbers of one instance that are compared."""
        return self.query.compared

    def most_bytes(self, gates: int) -> int:
        """What either party keeps at most; `gates`: AND gates of one instance."""
        each = 16 * self.query.plan.bits * self.groups + 32 * gates + 64 * math.ceil(math.log2(self.query.plan.classes))
        return 17 * self.transfers + each * sum(self.blocks) + (1 << 14)


class Material:
    """One party's half, opened: each transfer and each comparison is handed out once."""

    def __init__(self, shape: Shape, records: Records, party: str, *, has_choices: bool) -> None:
        self.shape, self.party, self._records, self._has_choices = shape, party, records, has_choices
        head = records.read(0)
        self.session, self.setup = head[:32], head[32:]
        self._left, self._piece, self._block = shape.transfers, 0, 0
        self._held: Block128 = np.zeros((0, 2), dtype=np.uint64)
        self._choices: Bits = np.zeros(0, dtype=np.uint8)

    def take(self, count: int) -> tuple[Block128, Bits] | None:
        """The next transfers, and for the chooser its random choices; None, to both, if there are not so many."""
        if count > self._left:
            self._left = 0
            return None
        self._left -= count
        while len(self._held) < count:
            size, raw = self.shape.pieces[self._piece], self._records.read(1 + self._piece)
            self._piece += 1
            if len(raw) != 16 * size + (-(-size // 8) if self._has_choices else 0):
                raise IntegrityError()
            self._held = np.concatenate([self._held, words(raw[: 16 * size]).reshape(-1, 2)])
            if self._has_choices:
                fresh = np.frombuffer(raw, dtype=np.uint8, offset=16 * size)
                self._choices = np.concatenate([self._choices, np.unpackbits(fresh, bitorder="little")[:size]])
        taken, chosen = self._held[:count], self._choices[:count]
        self._held, self._choices = self._held[count:], self._choices[count:]
        return taken, chosen

    def block(self, instances: int) -> int | None:
        """The number of the next comparison, if there is one for so many instances."""
        if self._block == len(self.shape.blocks) or self.shape.blocks[self._block] < instances:
            return None
        self._block += 1
        return self._block - 1

    def record(self, index: int) -> bytes:
        """One behind those of the transfers."""
        return self._records.read(1 + len(self.shape.pieces) + index)

    def gate_hash(self, index: int) -> TweakedHash:
        """Of the gates of one comparison."""
        return TweakedHash.of_block(self.session, index)


def words(raw: bytes) -> U64Array:
    """Words as records have them."""
    return np.frombuffer(raw, dtype="<u8").astype(np.uint64, copy=False)


# -- the class holder --------------------------------------------------------------------------------------------------------


def head_of_sender(session: bytes, keeper: OtSender) -> bytes:
    """The first record."""
    leaves = b"".join(leaf or bytes(KEY_BYTES) for tree in keeper.leaves for leaf in tree)
    return session + keeper.delta.astype("<u8").tobytes() + leaves


class ReadySender(OtSender):
    """Transfers that were set up and made ahead."""

    def __init__(self, material: Material) -> None:
        delta, leaves = words(material.setup[:16]).copy(), _leaves(material.setup[16:])
        super().__init__(delta, tuple((None, *tree[1:]) for tree in leaves))
        self.material = material

    def session(self, name: bytes) -> SenderStream:
        return ReadySenderStream(super().session(name), self.material)


class ReadySenderStream(SenderStream):
    """The sender's side."""

    def __init__(self, plain: SenderStream, material: Material) -> None:
        self.delta, self._plain, self.material = plain.delta, plain, material

    def extend(self, corrections: U64Array, count: int, party: str | None = None) -> Block128:
        """q, for the choices that the other tells now."""
        found = self.material.take(count)
        if found is None:
            return self._plain.extend(corrections, count, party)
        if corrections.shape != (-(-count // 64),):
            raise PeerProtocolError("the transfer corrections have the wrong length", party=party)
        full = np.uint64(0) - digits.unpack(corrections, count).astype(np.uint64)
        q = found[0].copy()
        for word in (0, 1):
            q[:, word] ^= full & self.delta[word]
        return q

    def comparison(self, instances: int) -> GarbledAhead | None:
        """The next comparison that was garbled, if there is one."""
        at = self.material.block(instances)
        return None if at is None else GarbledAhead.of(self.material, at, instances, self.delta)


def own_labels(seed: bytes, shape: Shape, instances: int) -> Wires:
    """The garbler's labels of 0 for its own bits, (bits, lanes, 2)."""
    bits, lanes = shape.query.plan.bits, shape.groups * instances
    return Coins.seeded(seed).words(2 * bits * lanes).reshape(bits, lanes, 2)


@dataclass(slots=True)
class GarbledAhead:
    """One comparison, the garbler's side: what its own labels are made of, and the labels of its outputs."""

    shape: Shape
    seed: bytes = field(repr=False)
    outputs: Wires = field(repr=False)
    delta: Block128 = field(repr=False)
    size: int
    instances: int

    @classmethod
    def of(cls, material: Material, at: int, instances: int, delta: Block128) -> GarbledAhead:
        """From its record."""
        raw, size = material.record(at), material.shape.blocks[at]
        outputs = words(raw[32:]).reshape(-1, size, 2)
        return cls(material.shape, raw[:32], outputs, delta, size, instances)

    def enter(self, compared: Limbs, shifts: U64Array, party: str) -> tuple[Wires, U64Array]:
        """The output labels of 0, and the active labels of the sum of its shares and the other's shifts."""
        if shifts.size != compared.size:
            raise PeerProtocolError("the shifts of scores do not fit the query", party=party)
        bits = lm.to_bits(lm.add(compared, shifts.reshape(compared.shape)), self.shape.query.plan.bits)
        zero = own_labels(self.seed, self.shape, self.size)
        labels = zero.reshape(len(bits), self.shape.groups, self.size, 2)[:, :, : self.instances].reshape(*bits.shape, 2)
        full, active = np.uint64(0) - bits.astype(np.uint64), np.empty_like(labels)
        for word in (0, 1):
            np.bitwise_xor(full & self.delta[word], labels[..., word], out=active[..., word])
        return np.ascontiguousarray(self.outputs[:, : self.instances]), active.reshape(-1)


# -- the attribute holder ----------------------------------------------------------------------------------------------------


def head_of_receiver(session: bytes, planted: OtReceiver) -> bytes:
    """The first record."""
    return session + b"".join(map(b"".join, planted.leaves))


def _leaves(raw: bytes) -> tuple[tuple[bytes, ...], ...]:
    if len(raw) != TREES * LEAVES * KEY_BYTES:
        raise IntegrityError()
    keys = [raw[at : at + KEY_BYTES] for at in range(0, len(raw), KEY_BYTES)]
    return tuple(tuple(keys[at : at + LEAVES]) for at in range(0, len(keys), LEAVES))


class ReadyReceiver(OtReceiver):
    """Transfers that were set up and made ahead."""

    def __init__(self, material: Material) -> None:
        super().__init__(_leaves(material.setup))
        self.material = material

    def session(self, name: bytes) -> ChooserStream:
        return ReadyChooserStream(super().session(name), self.material)


class ReadyChooserStream(ChooserStream):
    """The chooser's side."""

    def __init__(self, plain: ChooserStream, material: Material) -> None:
        self._plain, self.material = plain, material

    def extend(self, bits: Bits) -> tuple[U64Array, Block128]:
        """By which bits its choices differ from those made ahead, and t."""
        flat = bits.reshape(-1)
        found = self.material.take(len(flat))
        if found is None:
            return self._plain.extend(bits)
        t, chosen = found
        return digits.pack(flat ^ chosen), t

    def comparison(self, instances: int) -> TablesAhead | None:
        """The next comparison that was garbled, if there is one."""
        at = self.material.block(instances)
        return None if at is None else TablesAhead(self.material, at, instances)


class TablesAhead:
    """One comparison, the evaluator's side: random numbers with the labels of their bits, and the tables."""

    def __init__(self, material: Material, at: int, instances: int) -> None:
        self._material, self._at, self._instances = material, at, instances
        plan, self._lanes = material.shape.query.plan, material.shape.groups * material.shape.blocks[at]
        raw = words(material.record(at))
        self._masks, self._labels = raw[: self._lanes * plan.limbs], raw[self._lanes * plan.limbs :]

    def shifts(self, compared: Limbs) -> U64Array:
        """By how much its shares differ from the numbers made ahead."""
        shape, plan = self._material.shape, self._material.shape.query.plan
        masks = self._masks.reshape(shape.groups, -1, plan.limbs)[:, : self._instances]
        return lm.cut(lm.subtract(compared, masks.reshape(compared.shape)), plan.bits).reshape(-1)

    def evaluate(self, active: U64Array, circuit: Circuit, party: str) -> Wires:
        """The labels of the outputs, from those of the garbler's bits."""
        shape, count = self._material.shape, self._instances
        bits = shape.query.plan.bits
        if active.size != 2 * bits * shape.groups * count:
            raise PeerProtocolError("the labels of the garbler's bits have the wrong length", party=party)
        theirs = np.zeros((bits, shape.groups, shape.blocks[self._at], 2), dtype=np.uint64)
        theirs[:, :, :count] = active.reshape(bits, shape.groups, count, 2)
        evaluator = Evaluator(self._material.gate_hash(self._at), party)
        evaluator.give_tables(words(self._material.record(len(shape.blocks) + self._at)))
        labels = self._labels.reshape(bits, self._lanes, 2)
        out = circuit(evaluator, theirs.reshape(labels.shape), labels, shape.query)
        evaluator.require_finished()
        return np.ascontiguousarray(out[:, :count])
