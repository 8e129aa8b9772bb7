"""Garbled tables on the wire, and circuits that are garbled twice, once by either party.

One step of a circuit goes in pieces, with the tags of its outputs behind the last.

**Dual execution** (Mohassel and Franklin 2006; Huang, Katz and Evans 2012), for a circuit of which the *second* party learns an
output that is masked by inputs of the first, and the first learns nothing. The first party garbles, the second evaluates and
reads. Then the second garbles the same circuit and the first evaluates it, without tags, so that it ends with labels that it
cannot read; the second knows which labels these must be if what it read is right. Both compare a hash of these labels by a
password-authenticated key exchange with that hash as password (Jablon's SPEKE, with proofs of the key in both directions): it
reveals whether the two are equal and nothing else. A party that garbles another circuit is caught unless its outputs are the
right ones on the other's inputs, and whether it was caught is the one bit that it learns. The asker learns it first, so one
that leaves before it has proved its side is caught as well.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
from collections.abc import Iterator
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from blindbayes.crypto import ristretto
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.garbling.garbling import Evaluator, Garbler, Gates, HalfGates, Wires
from blindbayes.crypto.ot.softspoken import OtReceiver, OtSender
from blindbayes.crypto.tweaks import TweakedHash
from blindbayes.errors import IntegrityError, LocalProtocolError, PeerLost, PeerProtocolError, ProtocolError
from blindbayes.protocols.core import Role, Send, mark, receive_marked
from blindbayes.wire import EncryptedMessage, Marked, MaskedMessage, U64Array

PIECE_WORDS = 1 << 21
"""Of tables per message: 16 MB."""
_BACK = 1 << 32  # pieces of the second execution are counted from here
Bits = npt.NDArray[np.uint8]


class TablesGarbled(Marked, EncryptedMessage, frozen=True):
    """Garbled tables of one step, in pieces; the last piece has the tags of the step's outputs. Subclassed per protocol."""

    tables: U64Array
    tags: U64Array
    last: bool


class BitsChosen(Marked, MaskedMessage, frozen=True):
    """Corrections of the transfers by which an evaluator gets the labels of its bits. Subclassed per protocol."""

    corrections: U64Array


class EqualityAsked(Marked, EncryptedMessage, frozen=True):
    """The asker's point in the comparison of labels: it garbled last."""

    point: bytes


class EqualityAnswered(Marked, EncryptedMessage, frozen=True):
    """The answerer's point, and its proof that the labels are the same."""

    point: bytes
    proof: bytes


class EqualityProved(Marked, EncryptedMessage, frozen=True):
    """The asker's proof in return."""

    proof: bytes


P = TypeVar("P", bound=TablesGarbled)
B = TypeVar("B", bound=BitsChosen)


def send_step(
    other: str, garbler: Garbler, outputs: Wires, kind: type[P], session: bytes, *, tagged: bool = True
) -> Role[None]:
    """Send the tables since the last step, and the outputs' tags: the garbler's side."""
    none = np.zeros(0, dtype=np.uint64)
    tables, tags = garbler.take_tables(), garbler.tags(outputs) if tagged else none
    while len(tables) > PIECE_WORDS:
        yield Send(other, kind(mark(session, kind, garbler.pieces), tables[:PIECE_WORDS], none, False))
        garbler.pieces += 1
        tables = tables[PIECE_WORDS:]
    yield Send(other, kind(mark(session, kind, garbler.pieces), tables, tags, True))
    garbler.pieces += 1


def receive_step(other: str, evaluator: Evaluator, kind: type[P], session: bytes) -> Role[U64Array]:
    """Pass the tables on and return the tags: the evaluator's side."""
    while True:
        piece = yield from receive_marked(other, kind, session, evaluator.pieces)
        evaluator.pieces += 1
        if len(piece.tables) > PIECE_WORDS or (not piece.last and (len(piece.tags) or len(piece.tables) != PIECE_WORDS)):
            raise PeerProtocolError("a piece of garbled tables has the wrong length", party=other)
        evaluator.give_tables(piece.tables)
        if piece.last:
            return piece.tags


# -- dual execution --------------------------------------------------------------------------------------------------------


class Circuit(Protocol):
    """A circuit: it yields stacks of outputs, given the wires of the first party's bits and of the second's."""

    def __call__(self, g: Gates, first: Wires, second: Wires) -> Iterator[Wires]: ...


Kinds: TypeAlias = tuple[type[B], type[P]]


def dual_first(
    other: str,
    session: bytes,
    circuit: Circuit,
    steps: int,
    bits: tuple[Bits, int],
    transfers: tuple[OtSender, OtReceiver],
    kinds: Kinds[B, P],
    coins: Coins,
) -> Role[None]:
    """Run the party that garbles first and learns nothing. `bits` are its own, and how many the other has."""
    (own, theirs), (ot_sender, ot_receiver), (chosen_kind, tables_kind) = bits, transfers, kinds
    corrections, t = ot_receiver.session(session).extend(own)
    yield Send(other, chosen_kind(mark(session, chosen_kind, 1), corrections))
    labels = yield from _receive_labels(other, session, theirs, ot_sender, chosen_kind, 0)
    garbler = Garbler(_step_hash(session, 0, 0), ot_sender.delta)
    for outputs in _keyed(garbler, circuit(garbler, garbler.own(own), labels), session, 0):
        yield from send_step(other, garbler, outputs, tables_kind, session)
    evaluator = Evaluator(_step_hash(session, 1, 0), other)
    evaluator.pieces = _BACK
    labels_hash = hashlib.sha256(session)
    stacks = _keyed(evaluator, circuit(evaluator, t, evaluator.own((theirs,))), session, 1)
    for _ in range(steps):
        tags = yield from receive_step(other, evaluator, tables_kind, session)
        if len(tags):
            raise PeerProtocolError("tags came for outputs that this party is not to learn", party=other)
        labels_hash.update(next(stacks).tobytes())
        evaluator.require_finished()
    yield from answer_equality(other, session, labels_hash.digest(), coins)


def dual_second(
    other: str,
    session: bytes,
    circuit: Circuit,
    steps: int,
    bits: tuple[Bits, int],
    transfers: tuple[OtSender, OtReceiver],
    kinds: Kinds[B, P],
    coins: Coins,
) -> Role[list[Bits]]:
    """Run the party that evaluates first; return its outputs once both executions agree. `bits` as in `dual_first`."""
    (own, theirs), (ot_sender, ot_receiver), (chosen_kind, tables_kind) = bits, transfers, kinds
    corrections, t = ot_receiver.session(session).extend(own)
    yield Send(other, chosen_kind(mark(session, chosen_kind, 0), corrections))
    labels = yield from _receive_labels(other, session, theirs, ot_sender, chosen_kind, 1)
    evaluator = Evaluator(_step_hash(session, 0, 0), other)
    stacks, read, readable = _keyed(evaluator, circuit(evaluator, evaluator.own((theirs,)), t), session, 0), [], True
    for _ in range(steps):
        tags = yield from receive_step(other, evaluator, tables_kind, session)
        outputs = next(stacks)
        evaluator.require_finished()
        opened, fits = evaluator.try_read(outputs, tags)
        read.append(opened)
        readable = readable and bool(fits.all())  # where and when labels do not fit would tell more than one bit
    garbler = Garbler(_step_hash(session, 1, 0), ot_sender.delta)
    garbler.pieces = _BACK
    expected = hashlib.sha256(session)
    stacks = _keyed(garbler, circuit(garbler, labels, garbler.own(own)), session, 1)
    for outputs, opened in zip(stacks, read, strict=True):
        expected.update((outputs ^ garbler.own(opened)).tobytes())
        yield from send_step(other, garbler, outputs, tables_kind, session, tagged=False)
    yield from ask_equality(other, session, expected.digest() if readable else coins.bytes(32), coins)
    return read


def _step_hash(session: bytes, execution: int, step: int) -> TweakedHash:
    """Return the hash of a step: one key per step of either execution, as security falls with the hashes per key."""
    return TweakedHash.for_block(session, 2 * step + execution)


def _keyed(gates: HalfGates, stacks: Iterator[Wires], session: bytes, execution: int) -> Iterator[Wires]:
    """Yield the outputs of a circuit, each step computed and read under its own key."""
    for step in itertools.count():
        gates.hash_ = _step_hash(session, execution, step)
        outputs = next(stacks, None)
        if outputs is None:
            return
        yield outputs


def _receive_labels(other: str, session: bytes, count: int, ot_sender: OtSender, kind: type[B], index: int) -> Role[Wires]:
    chosen = yield from receive_marked(other, kind, session, index)
    return ot_sender.session(session).extend(chosen.corrections, count, other)


def _point(session: bytes, secret: bytes, coins: Coins) -> tuple[bytes, bytes]:
    scalar = ristretto.random_scalar(coins)
    base = ristretto.hash_to_point(b"blindbayes equality v1" + hashlib.sha256(session + secret).digest())
    return scalar, ristretto.multiply(scalar, base)


def _proofs(session: bytes, asked: bytes, answered: bytes, key: bytes) -> tuple[bytes, bytes]:
    whole = b"".join((session, asked, answered, key))
    return hashlib.sha256(b"answers" + whole).digest(), hashlib.sha256(b"asks" + whole).digest()


def ask_equality(other: str, session: bytes, secret: bytes, coins: Coins) -> Role[None]:
    """Continue if the other party has the same secret; else both learn that it differs, and nothing else of it."""
    scalar, mine = _point(session, secret, coins)
    yield Send(other, EqualityAsked(mark(session, EqualityAsked, 0), mine))
    answered = yield from receive_marked(other, EqualityAnswered, session, 0)
    key = ristretto.multiply(scalar, ristretto.require_point(answered.point, other))
    theirs, own = _proofs(session, mine, answered.point, key)
    if not hmac.compare_digest(theirs, answered.proof):
        raise IntegrityError(party=other)
    yield Send(other, EqualityProved(mark(session, EqualityProved, 0), own))


def answer_equality(other: str, session: bytes, secret: bytes, coins: Coins) -> Role[None]:
    """Answer the comparison.

    The asker knows the outcome first: if it then leaves without its proof, it counts as caught.
    """
    asked = yield from receive_marked(other, EqualityAsked, session, 0)
    scalar, mine = _point(session, secret, coins)
    key = ristretto.multiply(scalar, ristretto.require_point(asked.point, other))
    own, theirs = _proofs(session, asked.point, mine, key)
    yield Send(other, EqualityAnswered(mark(session, EqualityAnswered, 0), mine, own))
    try:
        proved = yield from receive_marked(other, EqualityProved, session, 0)
    except LocalProtocolError:
        raise
    except ProtocolError as error:  # a third party may have ended the run, for the asker or not
        thirds = () if isinstance(error, PeerLost) else tuple(name for name in error.suspects if name != other)
        raise IntegrityError(party=None if thirds else other, suspects=(other, *thirds)) from error
    if not hmac.compare_digest(theirs, proved.proof):
        raise IntegrityError(party=other)
