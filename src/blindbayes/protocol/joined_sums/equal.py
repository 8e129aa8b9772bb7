"""Whether two tags are equal, bin by bin, as XOR shares, by one-of-16 transfers (Chandran, Gupta and Shah 2022): step 7.

A tag is cut into digits of 4 bits. Of each digit the chooser takes, by a one-of-16 transfer at its own digit, a bit that says
whether the other's is the same, under a random bit of the sender; then the AND of each four shares in the same way, until one
is left. The work of a step is that of 16 hashes at the sender and one at the chooser; 17.9 bytes are sent for it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from blindbayes.errors import PeerProtocolError
from blindbayes.primitives.ot import choice_bits, chooser_pads, sender_pads
from blindbayes.primitives.softspoken import ChooserStream, SenderStream
from blindbayes.primitives.tweaks import Block128, TweakedHash
from blindbayes.protocol.core import Role, Send, receive
from blindbayes.protocol.joined_sums.messages import DigitsMasked, TagsChosen
from blindbayes.protocol.transfer import mark, require_mark
from blindbayes.wire import U64Array

BINS = 1 << 13  # per message
_DIGIT_BITS, _ENTRIES = 4, 16
_ROWS_AT_ONCE = 1 << 13  # keeps pads in the cache
_FIRST_BLOCK = 1 << 32  # blocks of the session's hash, behind those of the comparisons
Bits = npt.NDArray[np.uint8]


def levels(tag_bits: int) -> list[int]:
    """How many transfers of each bin stand at each level: digits, and their ANDs."""
    found = [-(-tag_bits // _DIGIT_BITS)]
    while found[-1] > 1:
        found.append(-(-found[-1] // _DIGIT_BITS))
    return found


def masked_words(rows: int) -> int:
    """Words that a sender sends for so many transfers: 15 bits each."""
    return -(-(_ENTRIES - 1) * rows // 64)


def digits(words: U64Array, tag_bits: int) -> Bits:
    """(digits, n) from the first bits of (n, words)."""
    found = np.empty((levels(tag_bits)[0], len(words)), dtype=np.uint8)
    for at in range(len(found)):
        first = _DIGIT_BITS * at
        kept = np.uint64((1 << min(_DIGIT_BITS, tag_bits - first)) - 1)
        found[at] = words[:, first // 64] >> np.uint64(first % 64) & kept
    return found


def _grouped(shares: Bits, neutral: int) -> Bits:
    """Each four shares as one digit; what is missing in the last is `neutral`."""
    groups = -(-len(shares) // _DIGIT_BITS)
    padded = np.full((_DIGIT_BITS * groups, shares.shape[1]), neutral, dtype=np.uint8)
    padded[: len(shares)] = shares
    weights = np.arange(_DIGIT_BITS, dtype=np.uint8)[None, :, None]
    found: Bits = np.bitwise_or.reduce(padded.reshape(groups, _DIGIT_BITS, -1) << weights, axis=1)
    return found


def _hash(session: bytes, at: int) -> TweakedHash:
    return TweakedHash.of_block(session, _FIRST_BLOCK + at)


def send_equal(session: bytes, other: str, own: Bits, stream: SenderStream) -> Role[Bits]:
    """The row holder: its shares (bins,) of whether its tags, as digits (digits, bins), are the other's."""
    wanted, bins, at = own, own.shape[1], 0
    while True:
        shares: Bits = np.empty(wanted.shape, dtype=np.uint8)
        for low in range(0, bins, BINS):
            part = slice(low, min(bins, low + BINS))
            rows = np.ascontiguousarray(wanted[:, part]).reshape(-1)
            chosen = yield from receive(other, TagsChosen)
            require_mark(chosen.mark, session, TagsChosen, at, other)
            q = stream.extend(chosen.corrections, _DIGIT_BITS * len(rows), other).reshape(-1, _DIGIT_BITS, 2)
            share, sent = _offer(_hash(session, at), q, stream.delta, rows)
            shares[:, part] = share.reshape(len(wanted), -1)
            yield Send(other, DigitsMasked(mark(session, DigitsMasked, at), sent))
            at += 1
        if len(shares) == 1:
            return shares.reshape(-1)
        wanted = _grouped(shares, 1) ^ np.uint8(_ENTRIES - 1)  # the other's shares at which all four bits are 1


def choose_equal(session: bytes, other: str, tags: Bits, stream: ChooserStream) -> Role[Bits]:
    """The label holder's shares. All messages of a level go out before the first answer is awaited."""
    choices, bins, at = tags, tags.shape[1], 0
    while True:
        shares: Bits = np.empty(choices.shape, dtype=np.uint8)
        first = at
        parts = [slice(low, min(bins, low + BINS)) for low in range(0, bins, BINS)]
        for part in parts:
            rows = np.ascontiguousarray(choices[:, part]).reshape(-1).astype(np.uint64)
            corrections, t = stream.extend(choice_bits(rows, _ENTRIES).reshape(-1))
            yield Send(other, TagsChosen(mark(session, TagsChosen, at), corrections))
            pads = _pads(_hash(session, at), t.reshape(-1, _DIGIT_BITS, 2), rows)
            shares[:, part] = pads.reshape(len(choices), -1)
            at += 1
        for index, part in enumerate(parts, first):
            masked = yield from receive(other, DigitsMasked)
            require_mark(masked.mark, session, DigitsMasked, index, other)
            own = np.ascontiguousarray(choices[:, part]).reshape(-1)
            if len(masked.bits) != masked_words(len(own)):
                raise PeerProtocolError("masked digits have the wrong length", party=other)
            shares[:, part] ^= _picked(masked.bits, own).reshape(len(choices), -1)
        if len(shares) == 1:
            return shares.reshape(-1)
        choices = _grouped(shares, 0)


def _offer(hash_: TweakedHash, q: Block128, delta: Block128, wanted: Bits) -> tuple[Bits, U64Array]:
    """The sender's shares of whether each choice is the wanted one, and what it sends: the first entry needs no bit."""
    share, sent = np.empty(len(wanted), dtype=np.uint8), np.empty((_ENTRIES - 1, len(wanted)), dtype=np.uint8)
    every = np.arange(_ENTRIES, dtype=np.uint8)[:, None]
    for low in range(0, len(wanted), _ROWS_AT_ONCE):
        part = slice(low, low + _ROWS_AT_ONCE)
        bits = sender_pads(hash_, q[part], delta, _ENTRIES, 1)[..., 0].astype(np.uint8) & np.uint8(1)
        bits ^= every == wanted[part]
        share[part] = bits[0]
        np.bitwise_xor(bits[1:], bits[0], out=sent[:, part])
    packed = np.zeros(8 * masked_words(len(wanted)), dtype=np.uint8)
    found = np.packbits(sent, axis=None, bitorder="little")
    packed[: len(found)] = found
    return share, packed.view("<u8").astype(np.uint64)


def _pads(hash_: TweakedHash, t: Block128, choices: U64Array) -> Bits:
    found = np.empty(len(choices), dtype=np.uint8)
    for low in range(0, len(choices), _ROWS_AT_ONCE):
        part = slice(low, low + _ROWS_AT_ONCE)
        found[part] = chooser_pads(hash_, t[part], choices[part], _ENTRIES, 1)[:, 0].astype(np.uint8) & np.uint8(1)
    return found


def _picked(words: U64Array, choices: Bits) -> Bits:
    """What was sent for the chosen entries; 0 for the first."""
    rows = len(choices)
    sent = np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")[: (_ENTRIES - 1) * rows]
    at = (np.maximum(choices, 1).astype(np.int64) - 1) * rows + np.arange(rows)
    found: Bits = sent[at] & (choices != 0)
    return found
