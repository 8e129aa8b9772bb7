"""Steps 2 to 7 of joined_scores: shares of what the helper's codes select, bin by bin. Step numbers as in SPEC.md.

The scorer's identifiers lie in bins. Of each bin both parties end with a wire per bit of the choices: the helper's codes where
it has the bin's identifier, and 0 ("missing") where it has not. A wire is an XOR share: the helper has one label, the scorer
knows both; the colours of the helper's label and of the scorer's label of 0 add up to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.garbling import circuits as c
from blindbayes.crypto.garbling.garbling import Evaluator, Garbler, Gates, Wires
from blindbayes.crypto.ot.softspoken import ChooserStream, SenderStream
from blindbayes.crypto.psi import cuckoo, okvs
from blindbayes.crypto.psi.cuckoo import fixed_words
from blindbayes.crypto.psi.oprf import Owner, codewords, hashed
from blindbayes.crypto.tweaks import Block128, TweakedHash, turned
from blindbayes.errors import LocalProtocolError
from blindbayes.protocols.core import Role
from blindbayes.protocols.private_join.scores.shape import Bits, LookupSetup
from blindbayes.protocols.private_join.sums.roles import (
    answer_function,
    ask_function,
    bound,
    cut,
    padded,
    receive_store,
    require_size,
    send_store,
    store_keys,
)
from blindbayes.wire import U64Array

_AT_ONCE = 1 << 16  # identifiers whose values are made at once
_SEED_WORDS = 2


def ask(session: bytes, other: str, shape: LookupSetup, items: Block128, stream: SenderStream) -> Role[U64Array]:
    """Run steps 3, 4 and 6 of the scorer; return what it reads in the store, (bins, payload) words: random without a match."""
    learned = np.empty((shape.bins, shape.payload_words), dtype=np.uint64)

    def learn(part: slice, asked: Block128, rows: U64Array) -> None:
        seeds = hashed(session, rows, bound(asked, np.arange(part.start, part.stop)), _SEED_WORDS)
        learned[part] = _stretched(session, seeds, shape)

    yield from ask_function(session, other, items, stream, learn)  # steps 3 and 4
    store = yield from receive_store(session, shape.keys, shape.payload_words, other)
    for part in cut(shape.bins, _AT_ONCE):  # step 6
        keys = store_keys(session, items[part], np.arange(part.start, part.stop))
        learned[part] ^= okvs.decode(store, okvs.places(session, keys, len(store)))
    return learned


def answer(
    bins: Role[bytes],
    session: bytes,
    other: str,
    shape: LookupSetup,
    items: Block128,
    choices: Bits,
    stream: ChooserStream,
    coins: Coins,
) -> Role[U64Array]:
    """Run steps 3 to 5 of the helper; return its tags and masks, (bins, payload) words.

    `choices` are (items, planes) bits; the role `bins` receives the name of the bins.
    """
    require_size(len(items), shape.helper_ids)
    if choices.shape != (len(items), shape.planes):
        raise LocalProtocolError("the choices do not have the shape's bits")
    name, owner, masked = yield from answer_function(session, other, shape.bins, stream, coins, bins)  # steps 2 to 4
    secret = coins.words(shape.bins * shape.payload_words).reshape(shape.bins, -1)
    count, items = len(items), padded(items, shape.helper_ids, coins)
    choices = np.concatenate([choices, np.zeros((len(items) - count, shape.planes), dtype=np.uint8)])
    three = cuckoo.bins_of(name, items, shape.bins)
    function = partial(_function, owner, masked)
    del masked
    store = _fill(session, shape, items, choices, three, function, secret, coins)  # step 5
    del function
    yield from send_store(session, store, other)
    return secret


def _function(owner: Owner, rows: U64Array, code: U64Array, items: Block128, bins: npt.NDArray[np.int64]) -> U64Array:
    return owner.evaluate(rows[bins], code, bound(items, bins), _SEED_WORDS)


def _fill(
    session: bytes,
    shape: LookupSetup,
    items: Block128,
    choices: Bits,
    three: npt.NDArray[np.int64],
    function: Callable[[U64Array, Block128, npt.NDArray[np.int64]], U64Array],
    secret: U64Array,
    coins: Coins,
) -> U64Array:
    """Run step 5: store, encrypted under the function's value of (item, bin), the bin's tag and the item's masked choices."""
    keys = np.empty((shape.keys, 2), dtype=np.uint64)
    values = np.empty((shape.keys, shape.payload_words), dtype=np.uint64)
    for low in range(0, len(items), _AT_ONCE):
        part = slice(low, min(len(items), low + _AT_ONCE))
        code, payload = codewords(items[part]), packed(choices[part], shape)
        for choice in range(3):
            bins = three[part, choice]
            at = slice(choice * len(items) + part.start, choice * len(items) + part.stop)
            keys[at] = store_keys(session, items[part], bins)
            seeds = function(code, items[part], bins)
            values[at] = _stretched(session, seeds, shape) ^ secret[bins] ^ payload
    size = okvs.cells(shape.keys)
    return okvs.encode(okvs.places(session, keys, size), values, size, coins)


def packed(choices: Bits, shape: LookupSetup) -> U64Array:
    """Return (n, planes) bits as the words of the store: zeros in place of the tag, then the choices."""
    bits = np.zeros((len(choices), 64 * shape.payload_words), dtype=np.uint8)
    bits[:, shape.tag_bits : shape.tag_bits + shape.planes] = choices
    return np.packbits(bits, axis=1, bitorder="little").view("<u8").astype(np.uint64)


def unpacked(words: U64Array, shape: LookupSetup) -> Bits:
    """Return tag bits, then choice bits, of (n, payload) words: (tag_bits + planes, n)."""
    raw = np.ascontiguousarray(words.astype("<u8", copy=False)).view(np.uint8).reshape(len(words), -1)
    bits = np.unpackbits(raw, axis=1, bitorder="little")[:, : shape.tag_bits + shape.planes]
    return np.ascontiguousarray(bits.T)


def compare(g: Gates, both: Wires, shape: LookupSetup) -> tuple[Wires, Wires]:
    """Compare tags per bin, from the XOR of both parties' words, and gate the choices by the outcome: step 7.

    Return (bins,) wires that are 1 where the tags are equal, and (planes, bins) wires of the choices there, 0 elsewhere. It
    takes tag_bits - 1 + planes AND.
    """
    equal = c.is_zero(g, both[: shape.tag_bits])
    if not shape.planes:
        return equal, both[shape.tag_bits :]
    return equal, g.and_(np.broadcast_to(equal[None], both[shape.tag_bits :].shape), both[shape.tag_bits :])


def matched(g: Garbler | Evaluator, own: U64Array | None, theirs: Wires, shape: LookupSetup) -> tuple[Wires, Block128, Bits]:
    """Run step 7 on the words of the garbler and the labels of the other's.

    Return the labels of whether the tags are equal and, of the choices (bins, planes), what leads to the pads where the other's
    share is 0, and the own share.
    """
    if g.hash_.kernel is not None:
        return g.match(own, theirs, shape.tag_bits)
    both = theirs ^ g.own(unpacked(own, shape)) if isinstance(g, Garbler) and own is not None else theirs
    equal, outcomes = compare(g, both, shape)
    labels = turned(outcomes)
    return (
        equal,
        g.colour_zero(labels) if isinstance(g, Garbler) else labels,
        (labels[..., 0] & np.uint64(1)).astype(np.uint8),
    )


def _stretched(session: bytes, seeds: U64Array, shape: LookupSetup) -> U64Array:
    """Return the function's value, stretched to the payload: a stream of its 128 bits."""
    return fixed_words(TweakedHash(session + b" stretch"), seeds, shape.payload_words)
