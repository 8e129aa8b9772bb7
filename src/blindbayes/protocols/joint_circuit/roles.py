"""Roles of joint_circuit. Step numbers as in SPEC.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.garbling.recording import Operation, Recording, public_bits
from blindbayes.crypto.ot.base import chooser_pads, sender_pads
from blindbayes.crypto.ot.softspoken import ChooserStream, OtReceiver, OtSender, SenderStream
from blindbayes.crypto.tweaks import TweakedHash
from blindbayes.errors import LocalProtocolError, PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, mark, receive_all, receive_marked, require_mark
from blindbayes.protocols.joint_circuit.messages import GatesMasked, OutputsShared, TriplesChosen, TriplesMasked
from blindbayes.protocols.two_party import digits
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.wire import Marked, U64Array

TRIPLES_AT_ONCE = 1 << 21
Bits = npt.NDArray[np.uint8]


@dataclass(slots=True)
class Mesh:
    """One party's transfers with every other party, in both directions."""

    ot_senders: dict[str, OtSender] = field(default_factory=dict, repr=False)
    ot_receivers: dict[str, OtReceiver] = field(default_factory=dict, repr=False)


def connect(run: Run, coins: Coins) -> Role[Mesh]:
    """Set up transfers between every two parties (step 1), in roster order, so that there is no circular wait."""
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


class Triples:
    """XOR shares of (a, b, ab), handed out once each."""

    def __init__(self, a: Bits, b: Bits, product: Bits) -> None:
        self._bits = np.stack([a, b, product])
        self._at = 0

    def take(self, count: int) -> Bits:
        if self._at + count > self._bits.shape[1]:
            raise LocalProtocolError("a circuit has more AND gates than there are triples")
        part = self._bits[:, self._at : self._at + count]
        self._at += count
        return part


class CircuitParty:
    """One party's side of circuits on bits that all parties of the run share."""

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

    def triples(self, count: int, coins: Coins) -> Role[Triples]:
        """Make random shares of a and b and shares of their products (step 2)."""
        parts = []
        for low in range(0, count, TRIPLES_AT_ONCE):
            parts.append((yield from self._triples(min(TRIPLES_AT_ONCE, count - low), coins)))
        a, b, product = np.concatenate(parts, axis=1) if parts else np.zeros((3, 0), dtype=np.uint8)
        return Triples(a, b, product)

    def _triples(self, count: int, coins: Coins) -> Role[Bits]:
        """Multiply the cross terms a_i b_j by one correlated transfer for each ordered pair."""
        others = self.run.others
        a, b = (coins.bit_rows(1, count)[0] for _ in range(2))
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
        return np.stack([a, b, product])

    def evaluate(self, circuit: Recording, own: Mapping[int, Bits], triples: Triples) -> Role[list[Bits]]:
        """Return shares of the outputs (step 3). `own` are this party's inputs by their number; of others' its share is 0."""
        values: list[Any] = [None] * circuit.size
        for number, (place, shape) in enumerate(circuit.inputs):
            values[place] = own.get(number, np.zeros(shape, dtype=np.uint8))
            if values[place].shape != shape:
                raise LocalProtocolError("an input of a circuit has the wrong shape")
        for layer in circuit.layers:
            for operation in layer.local:
                values[operation.place] = self._local(operation, values)
            if layer.gates:
                both = [np.broadcast_arrays(*(values[place] for place in gate.arguments)) for gate in layer.gates]
                x, y = (np.concatenate([pair[side].reshape(-1) for pair in both]) for side in (0, 1))
                out, start = (yield from self._and(x, y, triples)), 0
                for gate, (shaped, _) in zip(layer.gates, both, strict=True):
                    values[gate.place] = out[start : start + shaped.size].reshape(shaped.shape)
                    start += shaped.size
        return [values[place] for place in circuit.outputs]

    def _local(self, operation: Operation, values: list[Any]) -> Any:
        made = operation.run(values)
        return made if self.first or operation.function is not public_bits else np.zeros_like(made)

    def _and(self, x: Bits, y: Bits, triples: Triples) -> Role[Bits]:
        a, b, product = triples.take(len(x))
        d, e = yield from self._add_up(np.stack([x ^ a, y ^ b]))
        out: Bits = product ^ (d & b) ^ (e & a)
        return out ^ (d & e) if self.first else out

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
        """Send this party's share of the outputs to the parties that learn them (step 4)."""
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
