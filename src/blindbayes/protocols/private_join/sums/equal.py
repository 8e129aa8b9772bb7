"""Equality of two tags, bin by bin, as XOR shares, by one-of-16 transfers (Chandran, Gupta and Shah 2022): step 7.

A tag is cut into digits of 4 bits. For each digit the chooser takes, by a one-of-16 transfer at its own digit, a bit that says
whether the other's digit is the same, under a random bit of the sender; then the AND of each four shares in the same way, until
one is left. A step costs 16 hashes at the sender and one at the chooser; 17.9 bytes are sent for it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.ot.softspoken import ChooserStream, SenderStream
from blindbayes.crypto.tweaks import TweakedHash
from blindbayes.protocols.core import Role, Send, mark, receive_marked
from blindbayes.protocols.private_join.sums.messages import DigitsMasked, TagsChosen
from blindbayes.protocols.two_party import digits as small
from blindbayes.wire import U64Array

BINS = 1 << 13  # per message
_DIGIT_BITS, _ENTRIES = 4, 16
_EQUAL = np.eye(_ENTRIES, dtype=np.uint8)
_FIRST_BLOCK = 1 << 32  # blocks of the session's hash, behind those of the comparisons
Bits = npt.NDArray[np.uint8]


def levels(tag_bits: int) -> list[int]:
    """Return how many transfers of each bin belong to each level: digits, and their ANDs."""
    transfers = [-(-tag_bits // _DIGIT_BITS)]
    while transfers[-1] > 1:
        transfers.append(-(-transfers[-1] // _DIGIT_BITS))
    return transfers


def digits(words: U64Array, tag_bits: int) -> Bits:
    """Return (digits, n) from the first bits of (n, words)."""
    cut = np.empty((levels(tag_bits)[0], len(words)), dtype=np.uint8)
    for at in range(len(cut)):
        first = _DIGIT_BITS * at
        mask = np.uint64((1 << min(_DIGIT_BITS, tag_bits - first)) - 1)
        cut[at] = words[:, first // 64] >> np.uint64(first % 64) & mask
    return cut


def _grouped(shares: Bits, neutral: int) -> Bits:
    """Pack each four shares into one digit; what is missing in the last is `neutral`."""
    groups = -(-len(shares) // _DIGIT_BITS)
    padded = np.full((_DIGIT_BITS * groups, shares.shape[1]), neutral, dtype=np.uint8)
    padded[: len(shares)] = shares
    weights = np.arange(_DIGIT_BITS, dtype=np.uint8)[None, :, None]
    packed: Bits = np.bitwise_or.reduce(padded.reshape(groups, _DIGIT_BITS, -1) << weights, axis=1)
    return packed


def _hash(session: bytes, at: int) -> TweakedHash:
    return TweakedHash.for_block(session, _FIRST_BLOCK + at)


def send_equal(session: bytes, other: str, own: Bits, stream: SenderStream) -> Role[Bits]:
    """Test tags for equality; return the row holder's bit shares (bins,). Tags are given as digits (digits, bins)."""
    wanted, bins, at = own, own.shape[1], 0
    while True:
        shares: Bits = np.empty(wanted.shape, dtype=np.uint8)
        for low in range(0, bins, BINS):
            part = slice(low, min(bins, low + BINS))
            rows = np.ascontiguousarray(wanted[:, part]).reshape(-1)
            chosen = yield from receive_marked(other, TagsChosen, session, at)
            share, sent = small.offer(_hash(session, at), stream, chosen.corrections, rows, _EQUAL, 1, other)
            shares[:, part] = share.reshape(len(wanted), -1)
            yield Send(other, DigitsMasked(mark(session, DigitsMasked, at), sent))
            at += 1
        if len(shares) == 1:
            return shares.reshape(-1)
        wanted = _grouped(shares, 1) ^ np.uint8(_ENTRIES - 1)  # the other's shares at which all four bits are 1


def choose_equal(session: bytes, other: str, tags: Bits, stream: ChooserStream) -> Role[Bits]:
    """Return the label holder's shares. All messages of a level go out before the first answer is awaited."""
    choices, bins, at = tags, tags.shape[1], 0
    while True:
        shares: Bits = np.empty(choices.shape, dtype=np.uint8)
        first = at
        parts = [slice(low, min(bins, low + BINS)) for low in range(0, bins, BINS)]
        for part in parts:
            rows = np.ascontiguousarray(choices[:, part]).reshape(-1)
            corrections, pads = small.choose(_hash(session, at), stream, rows, _ENTRIES, 1)
            yield Send(other, TagsChosen(mark(session, TagsChosen, at), corrections))
            shares[:, part] = pads.reshape(len(choices), -1)
            at += 1
        for index, part in enumerate(parts, first):
            masked = yield from receive_marked(other, DigitsMasked, session, index)
            own, pads = (np.ascontiguousarray(each[:, part]).reshape(-1) for each in (choices, shares))
            shares[:, part] = small.take(pads, masked.bits, own, _ENTRIES, 1, other).reshape(len(choices), -1)
        if len(shares) == 1:
            return shares.reshape(-1)
        choices = _grouped(shares, 0)
