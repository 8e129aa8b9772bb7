"""SFE1 and SFE2: which of several shared values is largest, by a garbled circuit; only the winner's position is opened.

Shares add up (`sums`, as scalar products leave them) or multiply (`products`, as distorted intersections leave them).
Alice garbles, Bob evaluates. All shares are whole numbers of `bits` bits, not negative.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.circuits import Number
from blindbayes.crypto.garbling.garbling import Evaluator, Garbler, Gates, Plain
from blindbayes.crypto.ot.softspoken import OtReceiver, OtSender
from blindbayes.crypto.tweaks import TweakedHash
from blindbayes.errors import DataError, LocalProtocolError, PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, open_value, receive
from blindbayes.protocols.two_party.transfer.roles import agree
from blindbayes.wire import ClearMessage, MaskedMessage, U64Array
from blindbayes_papers.kikuchi2011.distorted_intersection.roles import ThinningSetup

Kind = Literal["sums", "products"]
LABEL = "winner"
_FRACTION = 16  # significant bits of a factor after the point


class SharesChosen(MaskedMessage, frozen=True):
    """Corrections of the transfers by which Bob enters his shares."""

    corrections: U64Array


class ComparisonGarbled(MaskedMessage, frozen=True):
    """Garbled tables, and the tags of the winner's position."""

    tables: U64Array
    tags: U64Array


class WinnerTold(ClearMessage, frozen=True):
    """The winner's position."""

    position: int


@dataclass(frozen=True, slots=True)
class ComparisonSetup:
    """The public facts of a comparison: how shares combine, how many values there are, widths of either side's shares."""

    kind: Kind
    values: int
    alice_bits: int
    bob_bits: int

    def __post_init__(self) -> None:
        if self.values < 2 or min(self.alice_bits, self.bob_bits) < 1 or max(self.alice_bits, self.bob_bits) > 512:
            raise LocalProtocolError("a comparison takes two or more values of 1 to 512 bits")

    def gates(self) -> int:
        """AND gates."""
        plain = Plain()
        mine, theirs = (np.zeros((bits, self.values), dtype=np.uint8) for bits in (self.alice_bits, self.bob_bits))
        circuit(plain, mine, theirs, self)
        return plain.and_count

    def facts(self) -> bytes:
        """Return what both must agree on."""
        return repr((self.kind, self.values, self.alice_bits, self.bob_bits)).encode()


def circuit(g: Gates, mine: Number, theirs: Number, shape: ComparisonSetup) -> Number:
    """The position of the first maximum; one lane per value goes in."""
    if shape.kind == "sums":
        width = max(shape.alice_bits, shape.bob_bits)
        whole = c.add(g, c.widen(mine, width), c.widen(theirs, width))
    else:
        whole = c.multiply(g, mine, theirs)
    signed = c.widen(whole, len(whole) + 1)
    return c.argmax_by_turns(g, [signed[:, lane : lane + 1] for lane in range(shape.values)])


def alice(
    run: Run, bob_name: str, shares: Sequence[int], shape: ComparisonSetup, ot_sender: OtSender, coins: Coins
) -> Role[int]:
    """The garbler. Returns the winner's position."""
    _require_fit(shares, shape.alice_bits, shape)
    session = yield from agree(run, bob_name, "comparison", shape.facts(), coins)
    garbler = Garbler(TweakedHash(session), ot_sender.delta)
    chosen = yield from receive(bob_name, SharesChosen)
    count = shape.bob_bits * shape.values
    labels = ot_sender.session(session).extend(chosen.corrections, count, bob_name).reshape(shape.bob_bits, shape.values, 2)
    out = circuit(garbler, garbler.own(c.to_bits(list(shares), shape.alice_bits)), labels, shape)
    tags = garbler.tags(out)
    yield Send(bob_name, ComparisonGarbled(garbler.take_tables(), tags))
    message = yield from receive(bob_name, WinnerTold)
    if not 0 <= message.position < shape.values:
        raise PeerProtocolError("the winner is not one of the values", party=bob_name)
    return (yield from open_value(LABEL, message.position))


def bob(
    run: Run, alice_name: str, shares: Sequence[int], shape: ComparisonSetup, ot_receiver: OtReceiver, coins: Coins
) -> Role[int]:
    """Run the evaluator. Return the winner's position and send it."""
    _require_fit(shares, shape.bob_bits, shape)
    session = yield from agree(run, alice_name, "comparison", shape.facts(), coins)
    corrections, t = ot_receiver.session(session).extend(c.to_bits(list(shares), shape.bob_bits))
    yield Send(alice_name, SharesChosen(corrections))
    garbled = yield from receive(alice_name, ComparisonGarbled)
    evaluator = Evaluator(TweakedHash(session), alice_name)
    evaluator.give_tables(garbled.tables)
    mine = evaluator.own((shape.alice_bits, shape.values))
    out = circuit(evaluator, mine, t.reshape(shape.bob_bits, shape.values, 2), shape)
    evaluator.require_finished()
    position = c.from_bits(evaluator.read(out, garbled.tags))[0]
    yield Send(alice_name, WinnerTold(position))
    return (yield from open_value(LABEL, position))


def _require_fit(shares: Sequence[int], bits: int, shape: ComparisonSetup) -> None:
    if len(shares) != shape.values or any(not 0 <= share < 1 << bits for share in shares):
        raise DataError("a share does not fit the agreed width")


# -- classification from thinned sizes -------------------------------------------------------------------------------------


def alice_factor(sizes: Sequence[int]) -> int:
    """Alice's factor of one class: the product of (s_A + 1) over the attributes of the instance.

    A thinned size of 0 would make the whole product 0 whatever the others say; one is added to each, for every class alike.
    """
    return math.prod(size + 1 for size in sizes)


def bob_factor(thinnings: Sequence[ThinningSetup], maximum: int) -> int:
    """Bob's factor of one class with n rows: n * product over attributes of (n / s_B) / n, as a whole number.

    P(c) prod P(a|c) is proportional to n prod(z_a / n), and z_a is about s_A n / s_B: so n prod(s_A / s_B) with s_B at least
    1. `maximum`, a public bound on n, fixes the scale, so that 16 significant bits are left for the smallest factor.
    """
    count = thinnings[0].items
    if count > maximum or any(item.items != count for item in thinnings):
        raise DataError("the class is larger than the public bound, or its sets differ in size")
    exact = Fraction(count) * (1 << scale_bits(len(thinnings), maximum))
    for item in thinnings:
        exact /= item.sample_size
    return round(exact)


def scale_bits(attributes: int, maximum: int) -> int:
    """Bits by which Bob's factors are scaled up: enough for 1 / maximum^attributes."""
    return _FRACTION + attributes * maximum.bit_length()


def factors(attributes: int, classes: int, alice_max: int, bob_max: int) -> ComparisonSetup:
    """The comparison of the classes' products: widths from public bounds on the sets' sizes."""
    alice_bits = ((alice_max + 1) ** attributes).bit_length()
    return ComparisonSetup("products", classes, alice_bits, scale_bits(attributes, bob_max) + bob_max.bit_length())
