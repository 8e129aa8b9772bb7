"""Terms of the paper's route, and a channel between two parties: keys, ciphertexts, garbled circuits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

import numpy as np

from blindbayes.crypto import ristretto
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.circuits import Number
from blindbayes.crypto.garbling.garbling import Evaluator, Garbler, Gates, Wires
from blindbayes.crypto.tweaks import TweakedHash
from blindbayes.errors import ConfigError, LocalProtocolError, PeerProtocolError
from blindbayes.protocols.core import K, Role, Run, Send, mark, receive, receive_marked
from blindbayes.protocols.two_party.transfer.roles import agree
from blindbayes.wire import U64Array
from blindbayes_papers.primitives.paillier import DEFAULT_BITS, Ciphertext, PrivateKey, PublicKey, generate_keypair
from blindbayes_papers.vaidya2008.primitives import naor_pinkas
from blindbayes_papers.vaidya2008.primitives.scalar_product import require_capacity
from blindbayes_papers.vaidya2008.scalar_product.messages import (
    CentreOffered,
    ChoicesMade,
    CiphertextsSent,
    CircuitGarbled,
    LabelsGivenBack,
    ModulusPublished,
)

_PIECE_BYTES = 1 << 24
_LANES_AT_ONCE = 1 << 9  # of one garbled circuit: bounds its message
Circuit = Callable[[Gates, Number, Number], Number]
"""(gates, garbler's input, evaluator's input) -> outputs."""


@dataclass(frozen=True, slots=True)
class ScalarProductSetup:
    """The terms that both parties agree on before anything is sent."""

    rows: int
    classes: int
    const_bits: int = 64
    """Const is 2^const_bits."""
    degree: int = 20
    """Terms of the Taylor polynomial of ln (the paper's u)."""
    divisor: Literal["n", "n-1"] = "n"
    """Of the variance: n as in scikit-learn, n-1 as in the paper's Algorithm 2."""
    alpha: float = 1.0
    key_bits: int = DEFAULT_BITS
    toy_keys: bool = False
    """Allow keys below 2,048 bits: for tests and for the paper's own sizes."""
    as_printed: bool = False
    """One exponentiation per row where rows share their factor, as the paper counts them; else one per class."""

    def __post_init__(self) -> None:
        if self.rows < 1 or self.classes < 2:
            raise ConfigError("scalar_product needs rows and at least two classes")
        if not 16 <= self.const_bits <= 128:
            raise ConfigError("Const has 16 to 128 bits")
        if not 2 <= self.degree <= 40:
            raise ConfigError("the Taylor polynomial has degree 2 to 40")
        if self.divisor not in ("n", "n-1"):
            raise ConfigError("the variance is divided by n or by n-1")
        if not 0 < self.alpha <= 2**16:
            raise ConfigError("alpha must lie between 0 and 2^16")

    @property
    def const(self) -> int:
        """The paper's Const."""
        return 1 << self.const_bits

    def to_dict(self) -> dict[str, Any]:
        """Plain builtins, for a share file."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def facts(self) -> bytes:
        """Bytes of all of it."""
        return repr(list(self.to_dict().items())).encode()


@dataclass(slots=True)
class Channel:
    """One party's end: its key, the other's public key, and the place in the session."""

    run: Run
    other: str
    terms: ScalarProductSetup
    session: bytes
    private: PrivateKey = field(repr=False)
    public: PublicKey  # the other's
    coins: Coins = field(repr=False)
    hashes: TweakedHash = field(repr=False)
    _sent: int = 0
    _received: int = 0
    _circuits: int = 0

    # -- ciphertexts ---------------------------------------------------------------------------------------------------

    @property
    def piece(self) -> int:
        """Rows per message: the same under either key."""
        return max(1, _PIECE_BYTES // (self.terms.key_bits // 4))

    def pieces(self, count: int) -> Iterator[slice]:
        """Rows cut into messages."""
        for low in range(0, count, self.piece):
            yield slice(low, min(count, low + self.piece))

    def send(self, key: PublicKey, ciphertexts: Sequence[Ciphertext]) -> Role[None]:
        """Ciphertexts under a key, in one message."""
        yield Send(self.other, CiphertextsSent(self.next_mark(CiphertextsSent), key.pack_ciphertexts(ciphertexts)))

    def receive(self, key: PublicKey, count: int) -> Role[list[Ciphertext]]:
        """Receive and check `count` ciphertexts under a key."""
        message = yield from self.due(CiphertextsSent)
        return key.unpack_ciphertexts(message.ciphertexts, count, party=self.other)

    def decrypt(self, ciphertexts: Sequence[Ciphertext]) -> list[int]:
        """Signed plaintexts under the own key."""
        return [self.private.public.signed(self.private.decrypt(each, party=self.other)) for each in ciphertexts]

    def require_capacity(self, bits: int) -> None:
        """Refuse terms whose values do not fit into the plaintexts."""
        require_capacity(self.private.public, bits)
        require_capacity(self.public, bits)

    # -- garbled circuits ------------------------------------------------------------------------------------------------

    def garble(self, circuit: Circuit, own: Sequence[Sequence[int]], widths: Sequence[int], other_width: int) -> Role[None]:
        """The garbler's part: `own` numbers (each with its width) side by side; the other alone reads the outputs."""
        for part in _parts(len(own[0])):
            yield from self._garble(circuit, [column[part] for column in own], widths, other_width)

    def evaluate(self, circuit: Circuit, own: Sequence[int], width: int, other_widths: Sequence[int]) -> Role[list[int]]:
        """The evaluator's part. Returns its outputs, one number per lane."""
        values: list[int] = []
        for part in _parts(len(own)):
            out, evaluator, tags = yield from self._evaluate(circuit, own[part], width, other_widths)
            values.extend(c.from_bits(evaluator.read(out, tags)))
        return values

    def garble_open(self, circuit: Circuit, own: Sequence[int], width: int) -> Role[list[int]]:
        """Run `garble`; then the evaluator gives the outputs' labels back: both learn them."""
        values: list[int] = []
        for part in _parts(len(own)):
            garbler, out = yield from self._garble(circuit, [own[part]], [width], width)
            back = yield from self.due(LabelsGivenBack)
            values.extend(c.from_bits(garbler.read(out, back.labels, self.other)))
        return values

    def evaluate_open(self, circuit: Circuit, own: Sequence[int], width: int) -> Role[list[int]]:
        """The evaluator's part of `garble_open`."""
        values: list[int] = []
        for part in _parts(len(own)):
            out, evaluator, tags = yield from self._evaluate(circuit, own[part], width, [width])
            values.extend(c.from_bits(evaluator.read(out, tags)))
            yield Send(self.other, LabelsGivenBack(self.next_mark(LabelsGivenBack), evaluator.skip_read(out)))
        return values

    def _garble(
        self, circuit: Circuit, own: Sequence[Sequence[int]], widths: Sequence[int], other_width: int
    ) -> Role[tuple[Garbler, Wires]]:
        lanes = len(own[0])
        delta = self.coins.words(2)
        delta[0] |= np.uint64(1)  # the colour bit
        session = self._circuit_session()
        centre = ristretto.random_point(self.coins)
        yield Send(self.other, CentreOffered(self.next_mark(CentreOffered), centre))
        chosen = yield from self.due(ChoicesMade)
        zero = self.coins.words(2 * other_width * lanes).reshape(-1, 2)
        pairs = [(low.tobytes(), high.tobytes()) for low, high in zip(zero, zero ^ delta, strict=True)]
        boxes = naor_pinkas.transfer(pairs, centre, chosen.points, session, self.coins, self.other)
        garbler = Garbler(self.hashes, delta)
        bits = np.concatenate([c.to_bits(list(column), width) for column, width in zip(own, widths, strict=True)])
        out = circuit(garbler, garbler.own(bits), zero.reshape(other_width, lanes, 2))
        tables = garbler.take_tables()
        yield Send(self.other, CircuitGarbled(self.next_mark(CircuitGarbled), boxes, tables, garbler.tags(out)))
        return garbler, out

    def _evaluate(
        self, circuit: Circuit, own: Sequence[int], width: int, other_widths: Sequence[int]
    ) -> Role[tuple[Wires, Evaluator, U64Array]]:
        lanes = len(own)
        session = self._circuit_session()
        centre = yield from self.due(CentreOffered)
        bits = c.to_bits(list(own), width)
        flat = [int(bit) for bit in bits.reshape(-1)]
        choice = naor_pinkas.choose(flat, centre.point, session, self.coins, self.other)
        yield Send(self.other, ChoicesMade(self.next_mark(ChoicesMade), choice.points))
        garbled = yield from self.due(CircuitGarbled)
        labels = np.frombuffer(b"".join(choice.finish(garbled.boxes, self.other)), dtype=np.uint64)
        evaluator = Evaluator(self.hashes, self.other)
        evaluator.give_tables(garbled.tables)
        out = circuit(evaluator, evaluator.own((sum(other_widths), lanes)), labels.reshape(width, lanes, 2).copy())
        evaluator.require_finished()
        return out, evaluator, garbled.tags

    def _circuit_session(self) -> bytes:
        self._circuits += 1
        return self.session + b" circuit %d" % self._circuits

    def next_mark(self, kind: type[K]) -> int:
        """The mark of the next message to the other."""
        self._sent += 1
        return mark(self.session + self.run.me.encode(), kind, self._sent)

    def due(self, kind: type[K]) -> Role[K]:
        """The next message of the other, its mark checked."""
        self._received += 1
        return receive_marked(self.other, kind, self.session + self.other.encode(), self._received)


def _parts(lanes: int) -> Iterator[slice]:
    if lanes < 1:
        raise LocalProtocolError("a circuit needs a lane")
    for low in range(0, lanes, _LANES_AT_ONCE):
        yield slice(low, low + _LANES_AT_ONCE)


def connect(
    run: Run, other: str, terms: ScalarProductSetup, coins: Coins, key: PrivateKey | None = None, known: PublicKey | None = None
) -> Role[Channel]:
    """Steps 1 and 2: agree on the terms, exchange moduli. `key` is a ready one of the terms' size; else it is made here.

    `known` is the other's key of an earlier session (training), which it must come with again: ciphertexts are kept under it.
    """
    session = yield from agree(run, other, "scalar_product", terms.facts(), coins)  # step 1
    private = generate_keypair(terms.key_bits, coins, toy_keys=terms.toy_keys) if key is None else key
    if private.public.bits != terms.key_bits:
        raise LocalProtocolError("the key has another size than the terms say")
    yield Send(other, ModulusPublished(private.public.to_bytes()))  # step 2
    published = yield from receive(other, ModulusPublished)
    public = PublicKey.from_bytes(published.modulus, toy_keys=terms.toy_keys, party=other)
    if public.bits != terms.key_bits or public == private.public:
        raise PeerProtocolError("the public key has another size than the terms say", party=other)
    if known is not None and public != known:
        raise PeerProtocolError("the public key is not that of the training", party=other)
    return Channel(run, other, terms, session, private, public, coins, TweakedHash(session))
