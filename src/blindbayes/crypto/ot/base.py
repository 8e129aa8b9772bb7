"""Oblivious transfer: the base transfers, and pads made from correlated transfers.

**Base transfers** (128 of them, once per pair of parties): endemic OT of Masny and Rindal (CCS 2019) over ristretto255, both
messages bound to the session. The chooser sends two points per transfer and knows the logarithm of one; the sender does not
learn which, and derives a key from each.

**Pads.** `softspoken` extends the base transfers to any number of correlated ones: the sender holds q and the one secret
offset, the chooser t = q ^ (bit * offset). Here these become one-of-two or one-of-n pads by the tweaked hash, so that the
chooser can compute exactly one of them (Naor and Pinkas for n > 2: the pad of a value is the XOR of one hash per bit).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from blindbayes.crypto import ristretto
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.tweaks import Block128, Domain, TweakedHash, turned
from blindbayes.errors import PeerProtocolError

BASE_COUNT = 128
KEY_BYTES = 16

Bits = npt.NDArray[np.uint8]
U64Array = npt.NDArray[np.uint64]


# -- base transfers ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BaseChoice:
    """State of the chooser of base transfers until the sender answers."""

    session: bytes
    bits: tuple[int, ...] = field(repr=False)
    scalars: tuple[bytes, ...] = field(repr=False)
    points: bytes  # to send: two points per transfer

    def finish(self, sender_point: bytes, party: str | None = None) -> tuple[bytes, ...]:
        """Return one key per transfer, that of the chosen bit."""
        ristretto.require_point(sender_point, party)
        keys = []
        for index, (bit, scalar) in enumerate(zip(self.bits, self.scalars, strict=True)):
            pair = self.points[64 * index : 64 * index + 64]
            keys.append(_base_key(self.session, index, bit, sender_point, pair, ristretto.multiply(scalar, sender_point)))
        return tuple(keys)


def choose_base(bits: Bits, session: bytes, coins: Coins) -> BaseChoice:
    """Choose: for each bit b draw a pair (r_0, r_1) with r_b = tG - H_b(r_{1-b}) and r_{1-b} random."""
    scalars, points = [], []
    chosen = tuple(int(bit) for bit in bits)
    for index, bit in enumerate(chosen):
        scalar = ristretto.random_scalar(coins)
        other = ristretto.random_point(coins)
        own = ristretto.subtract(ristretto.base_multiply(scalar), _other_hash(session, index, bit, other))
        scalars.append(scalar)
        points.append(own + other if bit == 0 else other + own)
    return BaseChoice(session, chosen, tuple(scalars), b"".join(points))


def answer_base(
    points: bytes, count: int, session: bytes, coins: Coins, party: str | None = None
) -> tuple[bytes, tuple[tuple[bytes, bytes], ...]]:
    """Answer: return the sender's point aG, and both keys of every transfer."""
    if len(points) != 64 * count:
        raise PeerProtocolError("the base transfers have the wrong length", party=party)
    scalar = ristretto.random_scalar(coins)
    own = ristretto.base_multiply(scalar)
    keys = []
    for index in range(count):
        pair = points[64 * index : 64 * index + 64]
        halves = (ristretto.require_point(pair[:32], party), ristretto.require_point(pair[32:], party))
        both = []
        for bit in (0, 1):
            target = ristretto.add(halves[bit], _other_hash(session, index, bit, halves[1 - bit]))
            ristretto.require_point(target, party)
            both.append(_base_key(session, index, bit, own, pair, ristretto.multiply(scalar, target)))
        keys.append((both[0], both[1]))
    return own, tuple(keys)


def _other_hash(session: bytes, index: int, bit: int, other: bytes) -> bytes:
    return ristretto.hash_to_point(_framed(b"blindbayes endemic v1 point", session, index, bit) + other)


def _base_key(session: bytes, index: int, bit: int, sender_point: bytes, pair: bytes, secret: bytes) -> bytes:
    head = _framed(b"blindbayes endemic v1 key", session, index, bit)
    return hashlib.sha256(head + sender_point + pair + secret).digest()[:KEY_BYTES]


def _framed(label: bytes, session: bytes, index: int, bit: int) -> bytes:
    return label + len(session).to_bytes(4, "big") + session + index.to_bytes(4, "big") + bytes([bit])


# -- pads from correlated transfers ------------------------------------------------------------------------------------
#
# The key of entry v in a transfer is the sum over the bits b of v of x^b (q_b + v_b delta) in GF(2^128), and a pad is `width`
# words of hashes of that key. The chooser of c has the key of c; that of v differs from it by (c ^ v)(x) delta, a nonzero
# multiple of what it does not know (fewer than 128 bits: the x^b are independent). Block number `block` of the pad of entry
# `value` in transfer `row` has the tweak first + (value * rows + row) * blocks + block: every hash of a session has its own.


def bits_for(entries: int) -> int:
    """Return the number of correlated transfers per choice among `entries`."""
    return max(1, (entries - 1).bit_length())


def sender_pads(hash_: TweakedHash, q: Block128, delta: Block128, entries: int, width: int) -> U64Array:
    """Return all pads (entries, rows, width) from q (rows, bits, 2); the chooser can compute one per row."""
    rows, blocks = q.shape[0], -(-width // 2)
    first = hash_.reserve(Domain.TRANSFER, rows * entries * blocks)
    if hash_.kernel is not None:
        own = np.ascontiguousarray(q)
        return hash_.kernel.sender_pads(hash_.tweaks(Domain.TRANSFER, first), own, delta, entries, width)
    pads, keys, places = np.empty((entries, rows, width), dtype=np.uint64), _combined(q), np.arange(q.shape[1], dtype=np.uint64)
    for value in range(entries):
        change = _combined((np.uint64(value) >> places & np.uint64(1))[None, :, None] * delta)
        pads[value] = hash_.expand(keys ^ change, Domain.TRANSFER, first + value * rows * blocks, width)
    return pads


def chooser_pads(hash_: TweakedHash, t: Block128, choices: U64Array, entries: int, width: int) -> U64Array:
    """Return the pads (rows, width) of the chosen entries from t (rows, bits, 2)."""
    rows, blocks = t.shape[0], -(-width // 2)
    first = hash_.reserve(Domain.TRANSFER, rows * entries * blocks)
    if hash_.kernel is not None:
        own, chosen = np.ascontiguousarray(t), np.ascontiguousarray(choices)
        return hash_.kernel.chooser_pads(hash_.tweaks(Domain.TRANSFER, first), own, chosen, width)
    places = choices * np.uint64(rows) + np.arange(rows, dtype=np.uint64)
    tweaks = np.uint64(first) + places.astype(np.uint64) * np.uint64(blocks)
    return hash_.expand_at(_combined(t), Domain.TRANSFER, tweaks, width)


def _combined(transfers: Block128) -> Block128:
    """Combine (rows, bits, 2) to (rows, 2): the sum of x^b times transfer b, in GF(2^128), x^128 = x^7 + x^2 + x + 1."""
    planes = turned(transfers)
    total: Block128 = planes[-1]
    for plane in planes[-2::-1]:
        top = total >> np.uint64(63)
        total <<= np.uint64(1)
        total[:, 1] |= top[:, 0]
        total[:, 0] ^= top[:, 1] * np.uint64(0x87)
        total ^= plane
    return total


def choice_bits(choices: U64Array | Bits, entries: int) -> Bits:
    """Return the bits (rows, bits) of the choices, lowest first, for the extension."""
    if entries <= 2:
        return choices.astype(np.uint8, copy=False)[:, None]
    if entries <= 256:
        return np.unpackbits(choices.astype(np.uint8, copy=False)[:, None], axis=1, count=bits_for(entries), bitorder="little")
    shifts = np.arange(bits_for(entries), dtype=np.uint64)
    return ((choices[:, None] >> shifts) & np.uint64(1)).astype(np.uint8)
