"""One-of-two oblivious transfer of Naor and Pinkas (SODA 2001; Vaidya 2008, A.3), on ristretto255.

The sender publishes a point C; the chooser sends P_0, where it knows the logarithm of P_choice and P_0 + P_1 = C; the sender
sends (r_0 G, H(r_0 P_0) ^ m_0) and (r_1 G, H(r_1 P_1) ^ m_1). Many transfers run side by side under one C; the hash is bound
to the session, the transfer and the position. P_0 is uniform whatever the choice is. What the chooser does not choose is
hidden by the computational Diffie-Hellman assumption, in the random oracle model, as long as the chooser does not know C's
logarithm.

The product's own protocols use `ot` and `softspoken`, which are a hundred times cheaper per transfer; this is the paper's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from blindbayes.crypto import ristretto
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.ristretto import POINT_BYTES
from blindbayes.errors import LocalProtocolError, PeerProtocolError

MESSAGE_BYTES = 16
BOX_BYTES = POINT_BYTES + MESSAGE_BYTES


@dataclass(frozen=True, slots=True)
class Choice:
    """The chooser's secrets until the boxes come."""

    session: bytes
    bits: tuple[int, ...] = field(repr=False)
    scalars: tuple[bytes, ...] = field(repr=False)
    points: bytes  # P_0 of every transfer, to be sent

    def finish(self, boxes: bytes, party: str | None = None) -> list[bytes]:
        """The chosen messages."""
        if len(boxes) != 2 * BOX_BYTES * len(self.bits):
            raise PeerProtocolError("the boxes of a transfer have the wrong length", party=party)
        choices = []
        for index, (bit, scalar) in enumerate(zip(self.bits, self.scalars, strict=True)):
            at = (2 * index + bit) * BOX_BYTES
            point = ristretto.require_point(boxes[at : at + POINT_BYTES], party)
            pad = _pad(self.session, index, bit, ristretto.multiply(scalar, point))
            choices.append(_xor(pad, boxes[at + POINT_BYTES : at + BOX_BYTES]))
        return choices


def choose(bits: Sequence[int], centre: bytes, session: bytes, coins: Coins, party: str | None = None) -> Choice:
    """The chooser's step, after the sender published `centre` (C)."""
    ristretto.require_point(centre, party)
    scalars, points = [], []
    for bit in bits:
        if bit not in (0, 1):
            raise LocalProtocolError("a choice is 0 or 1")
        while True:
            scalar = ristretto.random_scalar(coins)
            own = ristretto.base_multiply(scalar)
            if own != centre:  # else the other point would be the identity
                break
        scalars.append(scalar)
        points.append(ristretto.subtract(centre, own) if bit else own)
    return Choice(session, tuple(int(bit) for bit in bits), tuple(scalars), b"".join(points))


def transfer(
    messages: Sequence[tuple[bytes, bytes]],
    centre: bytes,
    points: bytes,
    session: bytes,
    coins: Coins,
    party: str | None = None,
) -> bytes:
    """The sender's step: two boxes per transfer. Raises `PeerProtocolError` for what is no point."""
    if len(points) != POINT_BYTES * len(messages):
        raise PeerProtocolError("the points of a transfer have the wrong length", party=party)
    boxes = []
    for index, pair in enumerate(messages):
        first = ristretto.require_point(points[index * POINT_BYTES : (index + 1) * POINT_BYTES], party)
        second = ristretto.subtract(centre, first)
        if second == ristretto.IDENTITY:
            raise PeerProtocolError("a group element is not valid", party=party)
        for position, (point, message) in enumerate(zip((first, second), pair, strict=True)):
            if len(message) != MESSAGE_BYTES:
                raise LocalProtocolError(f"a message has {MESSAGE_BYTES} bytes")
            scalar = ristretto.random_scalar(coins)
            pad = _pad(session, index, position, ristretto.multiply(scalar, point))
            boxes.append(ristretto.base_multiply(scalar) + _xor(pad, message))
    return b"".join(boxes)


def _pad(session: bytes, index: int, position: int, point: bytes) -> bytes:
    prefix = b"blindbayes naor-pinkas v1" + len(session).to_bytes(4, "big") + session
    return hashlib.sha256(prefix + index.to_bytes(4, "big") + bytes([position]) + point).digest()[:MESSAGE_BYTES]


def _xor(left: bytes, right: bytes) -> bytes:
    return (int.from_bytes(left, "little") ^ int.from_bytes(right, "little")).to_bytes(MESSAGE_BYTES, "little")
