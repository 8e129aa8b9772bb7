"""The argmax by all parties at once: no coalition short of all but one learns more than the class.

Scores stay in additive shares of all parties until the end (Vaidya 5.4). The comparison is a boolean circuit on XOR shares
(Goldreich, Micali, Wigderson), its AND gates on multiplication triples that every two parties make by correlated transfers in
both directions. Step numbers as in SPEC.md, "All parties together".
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from blindbayes.crypto import limbs as lm
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.traces import RecordedCircuit, bases
from blindbayes.crypto.limbs import Limbs
from blindbayes.crypto.ot.base import chooser_pads, sender_pads
from blindbayes.crypto.ot.softspoken import ChooserStream, OtReceiver, OtSender, SenderStream
from blindbayes.crypto.tweaks import TweakedHash
from blindbayes.errors import PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, mark, receive_all, receive_marked, require_mark
from blindbayes.protocols.shared_inference.messages import GatesMasked, OutputsShared, TriplesChosen, TriplesMasked
from blindbayes.protocols.two_party import digits
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.wire import Marked, U64Array

_TRIPLES_AT_ONCE = 1 << 21
Bits = npt.NDArray[np.uint8]
Classes = npt.NDArray[np.int64]
UNREADABLE = -2  # in place of a class


@dataclass(slots=True)
class Mesh:
    """One party's transfers with every other party, in both directions."""

    ot_senders: dict[str, OtSender] = field(default_factory=dict, repr=False)
    ot_receivers: dict[str, OtReceiver] = field(default_factory=dict, repr=False)


def connect(run: Run, coins: Coins) -> Role[Mesh]:
    """Set up transfers between every two parties, in roster order, so that there is no circular wait."""
    mesh = Mesh()
    for at, first in enumerate(run.parties):
        for second in run.parties[at + 1 :]:
            if run.me == first:
                mesh.ot_senders[second] = yield from transfer.ot_sender(run, second, coins)
                mesh.ot_receivers[second] = yield from transfer.ot_receiver(run, second, coins)
            elif run.me == second:
                mesh.ot_receivers[first] = yield from transfer.ot_receiver(run, first, coins)
                mesh.ot_senders[first] = yield from transfer.ot_sender(run, first, coins)
    return mesh


@functools.cache
def sign_circuit(parties: int, bits: int) -> tuple[RecordedCircuit, tuple[int, ...]]:
    """Return the circuit of the sign of a sum of one share per party; inputs by party, lowest bit first."""
    trace = RecordedCircuit()
    numbers = [trace.inputs(bits) for _ in range(parties)]
    return trace, (int(c.sign_of_many(trace, numbers)[0]),)


@functools.cache
def winner_circuit(classes: int) -> tuple[RecordedCircuit, tuple[int, ...]]:
    """Return the circuit of the position of the first maximum, from the signs of all pairs."""
    trace = RecordedCircuit()
    behind = trace.inputs(len(c.pairs_of(classes)))
    return trace, tuple(int(wire) for wire in c.argmax_by_pairs(trace, behind, classes)[:, 0])


def triples_needed(parties: int, bits: int, classes: int, count: int) -> int:
    """Return the number of AND gates of a batch."""
    pairs = len(c.pairs_of(classes))
    return count * (pairs * sign_circuit(parties, bits)[0].and_count + winner_circuit(classes)[0].and_count)


def compare(
    run: Run, shares: Limbs, bits: int, sessions: Mapping[str, bytes], mesh: Mesh, learners: tuple[str, ...], coins: Coins
) -> Role[Classes | None]:
    """Run this party's part of the comparison of its shares of K - 1 differences to class 0, (count, K - 1, limbs)."""
    count, classes = shares.shape[0], shares.shape[1] + 1
    parties, pairs = len(run.parties), c.pairs_of(classes)
    party = _Party(run, sessions, mesh)
    learnt: list[Classes] = []
    step = max(1, _TRIPLES_AT_ONCE // triples_needed(parties, bits, classes, 1))  # instances compared at once
    for low in range(0, count, step):
        part = shares[low : low + step]
        triples = yield from party.triples(triples_needed(parties, bits, classes, len(part)), coins)  # step 4
        full = np.concatenate([np.zeros((len(part), 1, part.shape[2]), dtype=np.uint64), part], axis=1)
        compared = np.concatenate([lm.subtract(full[:, i], full[:, j]) for i, j in pairs])
        own = lm.to_bits(compared, bits)
        inputs = np.zeros((parties, bits, own.shape[1]), dtype=np.uint8)
        inputs[run.parties.index(run.me)] = own  # XOR shares: the owner has the bits, everybody else 0
        trace, outputs = sign_circuit(parties, bits)
        signs = yield from party.evaluate(trace, outputs, inputs.reshape(parties * bits, -1), triples)  # step 5
        trace, outputs = winner_circuit(classes)
        winners = yield from party.evaluate(trace, outputs, signs.reshape(len(pairs), len(part)), triples)
        opened = yield from party.open(winners, learners)  # step 6
        if opened is not None:
            learnt.append(classes_of(opened, classes))
    return np.concatenate(learnt) if learnt else None


def classes_of(bits: Bits, classes: int, fits: npt.NDArray[np.bool_] | None = None) -> Classes:
    """Read positions (bits, instances) as classes; `fits` marks the bits that could be read.

    A position that is no class comes from another circuit or a wrong share and becomes `UNREADABLE`: to fail here would reveal
    something about the class to its sender, so the run goes on to its end.
    """
    weights = 1 << np.arange(len(bits), dtype=np.int64)
    numbers = (bits.astype(np.int64) * weights[:, None]).sum(axis=0)
    right = numbers < classes if fits is None else (numbers < classes) & fits.all(axis=0)
    return np.where(right, numbers, UNREADABLE)


class _Triples:
    """XOR shares of (a, b, ab), handed out once each."""

    def __init__(self, a: Bits, b: Bits, product: Bits) -> None:
        self._bits = np.stack([a, b, product])
        self._at = 0

    def take(self, shape: tuple[int, int]) -> Bits:
        size = shape[0] * shape[1]
        part = self._bits[:, self._at : self._at + size]
        self._at += size
        return part.reshape(3, *shape)


class _Party:
    def __init__(self, run: Run, sessions: Mapping[str, bytes], mesh: Mesh) -> None:
        self.run = run
        self.first = run.me == run.parties[0]
        self.sessions = dict(sessions)
        self.steps = 0  # exchanges so far: every party makes the same ones
        self.senders: dict[str, SenderStream] = {}
        self.choosers: dict[str, ChooserStream] = {}
        for other in sessions:
            out, back = self._names(other)
            self.senders[other] = mesh.ot_senders[other].session(out)
            self.choosers[other] = mesh.ot_receivers[other].session(back)

    def _names(self, other: str) -> tuple[bytes, bytes]:
        session = self.sessions[other]
        return session + b" from " + self.run.me.encode(), session + b" from " + other.encode()

    def _mark(self, other: str, kind: type[Marked]) -> int:
        return mark(self.sessions.get(other, b""), kind, self.steps)

    def triples(self, count: int, coins: Coins) -> Role[_Triples]:
        """Make random shares of a and b; cross terms a_i b_j by one correlated transfer for each ordered pair."""
        others = self.run.others
        a, b = (np.unpackbits(np.frombuffer(coins.bytes(-(-count // 8)), dtype=np.uint8))[:count] for _ in range(2))
        product = a & b
        rows = {}
        self.steps += 1  # and a hash key for each batch of triples
        hashes = {other: [TweakedHash.for_block(name, self.steps) for name in self._names(other)] for other in others}
        for other in others:
            corrections, t = self.choosers[other].extend(b)
            rows[other] = t
            yield Send(other, TriplesChosen(self._mark(other, TriplesChosen), corrections))
        for other in others:
            chosen = yield from receive_marked(other, TriplesChosen, self.sessions[other], self.steps)
            q = self.senders[other].extend(chosen.corrections, count, other)
            pads = sender_pads(hashes[other][0], q[:, None], self.senders[other].delta, 2, 1)[..., 0]
            zero, one = ((pad & np.uint64(1)).astype(np.uint8) for pad in pads)
            product ^= zero
            yield Send(other, TriplesMasked(self._mark(other, TriplesMasked), digits.pack(zero ^ one ^ a)))
        for other in others:
            masked = yield from receive_marked(other, TriplesMasked, self.sessions[other], self.steps)
            bits = _unpack(masked.bits, count, other)
            pad = chooser_pads(hashes[other][1], rows[other][:, None], b.astype(np.uint64), 2, 1)[:, 0]
            product ^= (pad & np.uint64(1)).astype(np.uint8) ^ (b & bits)
        return _Triples(a, b, product)

    def evaluate(self, trace: RecordedCircuit, outputs: tuple[int, ...], inputs: Bits, triples: _Triples) -> Role[Bits]:
        """Return shares of the outputs, (outputs, lanes), from shares of the inputs, (inputs, lanes). One round per layer."""
        lanes = inputs.shape[1]
        one = np.full(lanes, 1 if self.first else 0, dtype=np.uint8)
        wires: dict[int, Bits] = {0: one, **{at + 1: row for at, row in enumerate(inputs)}}

        def value(wire: int) -> Bits:
            total = np.zeros(lanes, dtype=np.uint8)
            for base in bases(wire):
                total ^= wires[base]
            return total

        for layer in trace.layers():
            x, y = np.stack([value(gate.left) for gate in layer]), np.stack([value(gate.right) for gate in layer])
            a, b, product = triples.take(x.shape)
            masked = np.stack([x ^ a, y ^ b])
            total = yield from self._add_up(masked)
            d, e = total
            out = product ^ (d & b) ^ (e & a)
            if self.first:
                out = out ^ (d & e)
            for gate, row in zip(layer, out, strict=True):
                wires[gate.out] = row
        return np.stack([value(wire) for wire in outputs])

    def _add_up(self, masked: Bits) -> Role[Bits]:
        packed = digits.pack(masked)
        self.steps += 1
        for other in self.run.others:
            yield Send(other, GatesMasked(self._mark(other, GatesMasked), packed))
        return (yield from self._received(GatesMasked, masked))

    def _received(self, kind: type[GatesMasked] | type[OutputsShared], own: Bits) -> Role[Bits]:
        """Add everybody's bits of this step to this party's."""
        received = yield from receive_all(self.run.others, kind)
        total = own
        for other, message in received.items():
            require_mark(message, self.sessions.get(other, b""), self.steps, other)
            total = total ^ _unpack(message.bits, own.size, other).reshape(own.shape)
        return total

    def open(self, share: Bits, learners: tuple[str, ...]) -> Role[Bits | None]:
        """Send everybody's share of the outputs to the parties that learn them."""
        self.steps += 1
        for other in learners:
            if other != self.run.me:
                yield Send(other, OutputsShared(self._mark(other, OutputsShared), digits.pack(share)))
        if self.run.me not in learners:
            return None
        return (yield from self._received(OutputsShared, share))


def _unpack(words: U64Array, count: int, party: str) -> Bits:
    if len(words) != -(-count // 64):
        raise PeerProtocolError("packed bits have the wrong length", party=party)
    return digits.unpack(words, count)
