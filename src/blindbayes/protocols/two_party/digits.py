"""Functions of two small numbers, one of each party, as XOR shares: by one-of-n transfers (Naor and Pinkas 1999).

The sender's number is a row of a public table, the chooser's a column of it; the sender masks the row by a share of its own,
and the chooser takes its entry. Entries have a few bits, so that the choice, 4 bytes per bit, is most of what is sent.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.ot.base import bits_for, choice_bits, chooser_pads, sender_pads
from blindbayes.crypto.ot.softspoken import ChooserStream, SenderStream
from blindbayes.crypto.tweaks import Block128, Domain, TweakedHash
from blindbayes.errors import PeerProtocolError
from blindbayes.wire import U64Array

Bits = npt.NDArray[np.uint8]
_ROWS_AT_ONCE = 1 << 13  # keeps pads in the cache
_KERNEL_BITS = 6  # of a choice, at most


def masked_words(rows: int, entries: int, width: int = 1) -> int:
    """Return how many words a sender sends for `count` transfers: all entries but the first, `width` bits each."""
    return -(-(entries - 1) * rows * width // 64)


def offer(
    hash_: TweakedHash, stream: SenderStream, corrections: U64Array, own: Bits, table: Bits, width: int, party: str
) -> tuple[Bits, U64Array]:
    """Return the sender's shares of table[own, choice] and what it sends; the first entry needs nothing."""
    rows, entries = len(own), table.shape[1]
    bits, mask, columns = bits_for(entries), np.uint8((1 << width) - 1), np.ascontiguousarray(table.T)
    q = stream.extend(corrections, bits * rows, party).reshape(rows, bits, 2)
    share, sent = np.empty(rows, dtype=np.uint8), np.empty((entries - 1, rows), dtype=np.uint8)
    for low in range(0, rows, _ROWS_AT_ONCE):
        part = slice(low, low + _ROWS_AT_ONCE)
        if hash_.kernel is not None and bits <= _KERNEL_BITS:
            first, some = hash_.reserve(Domain.TRANSFER, entries * len(own[part])), (share[part], sent[:, part])
            tweaks = hash_.tweaks(Domain.TRANSFER, first)
            hash_.kernel.offer_digits(tweaks, q[part], stream.delta, own[part], table, width, *some)
            continue
        made = sender_pads(hash_, q[part], stream.delta, entries, 1)[..., 0].astype(np.uint8)
        made &= mask
        made ^= columns.take(own[part], axis=1)
        share[part] = made[0]
        np.bitwise_xor(made[1:], made[0], out=sent[:, part])
    return share, pack(sent, width)


def choose(hash_: TweakedHash, stream: ChooserStream, choices: Bits, entries: int, width: int) -> tuple[U64Array, Bits]:
    """Return the chooser's corrections to send, and the pads of its choices."""
    rows, bits, wide = len(choices), bits_for(entries), choices.astype(np.uint64)
    corrections, t = stream.extend(choice_bits(wide, entries).reshape(-1))
    return corrections, _pads(hash_, t.reshape(rows, bits, 2), wide, entries) & np.uint8((1 << width) - 1)


def take(pads: Bits, sent: U64Array, choices: Bits, entries: int, width: int, party: str) -> Bits:
    """Return the chooser's shares, given the sender's masked entries."""
    rows = len(choices)
    if sent.shape != (masked_words(rows, entries, width),):
        raise PeerProtocolError("masked digits have the wrong length", party=party)
    at = (np.maximum(choices, 1).astype(np.int64) - 1) * rows + np.arange(rows)
    return pads ^ np.where(choices == 0, np.uint8(0), unpack(sent, (entries - 1) * rows, width)[at])


def _pads(hash_: TweakedHash, t: Block128, choices: U64Array, entries: int) -> Bits:
    pads = np.empty(len(choices), dtype=np.uint8)
    for low in range(0, len(choices), _ROWS_AT_ONCE):
        part = slice(low, low + _ROWS_AT_ONCE)
        pads[part] = chooser_pads(hash_, t[part], choices[part], entries, 1)[:, 0].astype(np.uint8)
    return pads


def pack(values: Bits, width: int = 1) -> U64Array:
    """Pack small numbers into words, one plane of bits after the other."""
    planes = [values >> np.uint8(plane) & np.uint8(1) for plane in range(width)] if width > 1 else values
    packed = np.packbits(planes, axis=None, bitorder="little")
    return np.concatenate([packed, np.zeros(-len(packed) % 8, dtype=np.uint8)]).view("<u8").astype(np.uint64, copy=False)


def unpack(words: U64Array, count: int, width: int = 1) -> Bits:
    """Unpack the first `count` numbers."""
    bits = np.unpackbits(words.astype("<u8", copy=False).view(np.uint8), bitorder="little")[: count * width]
    numbers: Bits = bits[:count].copy()
    for plane in range(1, width):
        numbers |= bits[plane * count : (plane + 1) * count] << np.uint8(plane)
    return numbers
