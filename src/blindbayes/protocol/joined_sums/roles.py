"""Roles of joined_sums. Step numbers as in SPEC.md.

The *row holder* has a vector of words per identifier, the *label holder* a few small whole numbers (labels) per identifier.
Both end with additive shares of  sum over identifiers that both have of  label * vector,  for each label, and of the number of
these identifiers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple

import numpy as np
import numpy.typing as npt

from blindbayes.errors import ConfigError, DataError, LocalProtocolError, PeerProtocolError
from blindbayes.primitives import circuits as c
from blindbayes.primitives import cuckoo, okvs
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.garbling import ROW_WORDS, Evaluator, Garbler, Gates, Wires
from blindbayes.primitives.oprf import MOST_WORDS, WIDTH, Asker, Owner, codewords, hashed
from blindbayes.primitives.ot import chooser_pads, sender_pads
from blindbayes.primitives.softspoken import ChooserStream, OtReceiver, OtSender, SenderStream
from blindbayes.primitives.tweaks import Block128, Domain, TweakedHash
from blindbayes.protocol.core import Role, Run, Send, receive
from blindbayes.protocol.joined_sums.counts import Count, S, count_gates
from blindbayes.protocol.joined_sums.inputs import Entries
from blindbayes.protocol.joined_sums.messages import BinsCompared, ItemsMasked, SeedsChosen, StoreFilled, TagsChosen
from blindbayes.protocol.transfer import agree, answer_coins, commit_coins, hear_coins, mark, open_coins, require_mark
from blindbayes.wire import U64Array

MIN_BOUND = cuckoo.MIN_ITEMS
MAX_BOUND = 12_000_000
FAILURE_BITS = 43  # one run fails with probability below 2^-43, so that a study of at most eight stays below 2^-40
_BLOCK_BYTES = 1 << 24  # of one message, about
_ASK_BINS = 1 << 17  # bins per message of questions: 8 MB
_ROWS_AT_ONCE = 1 << 11  # expanded at once: keeps pads in the cache
_HASH_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True)
class JoinedSumsSetup:
    """What is public about one run of joined_sums."""

    row_ids: int  # agreed bound on the row holder's identifiers: what is padded to
    label_ids: int  # the same for the label holder
    words: int  # per entry of the row holder
    labels: int  # per entry of the label holder
    max_label: int = 1  # largest value of a label
    facts: bytes = b""  # anything else both must agree on
    counted: bool = False  # whether the number of common identifiers is counted

    def __post_init__(self) -> None:
        if min(self.row_ids, self.label_ids) < MIN_BOUND or max(self.row_ids, self.label_ids) > MAX_BOUND:
            raise ConfigError(f"bounds on the number of identifiers lie between {MIN_BOUND} and {MAX_BOUND}")
        if self.max_label < 1 or (min(self.words, self.labels) < 1 and not (self.words == self.labels == 0 and self.counted)):
            raise LocalProtocolError("joined_sums needs words and labels, or counts alone")
        if self.payload_words > MOST_WORDS:
            most = 64 * MOST_WORDS - self.tag_bits
            raise ConfigError(f"classes times bits of the multiplicity pass {most}; lower the multiplicity")

    @property
    def bins(self) -> int:
        """Bins of the row holder's identifiers."""
        return cuckoo.bin_count(self.row_ids)

    @property
    def tag_bits(self) -> int:
        """Bits of a tag: a false match anywhere has probability below 2^-43 / 1.32, since empty bins add nothing."""
        return FAILURE_BITS + (self.bins - 1).bit_length()

    @property
    def planes(self) -> int:
        """Bits of all labels of one entry."""
        return self.labels * self.max_label.bit_length()

    @property
    def payload_words(self) -> int:
        """Words per entry in the store: the tag, then the labels' bits; two or more, as the function has 128 bits."""
        return max(2, -(-(self.tag_bits + self.planes) // 64))

    @property
    def count_bits(self) -> int:
        """Bits of the number of common identifiers."""
        return self.bins.bit_length()

    def gates(self, bins: int) -> int:
        """AND gates over a block of bins."""
        return bins * (self.tag_bits - 1 + self.planes) + (count_gates(bins, self.count_bits) if self.counted else 0)

    @property
    def keys(self) -> int:
        """Keys of the store."""
        return 3 * self.label_ids

    @property
    def block(self) -> int:
        """Bins per message of comparisons."""
        each = 32 * (self.tag_bits - 1 + self.planes + self.counted) + 8 * self.words * self.planes
        return max(64, 1 << (max(1, _BLOCK_BYTES // each).bit_length() - 1))

    def blocks(self, size: int | None = None) -> Iterator[slice]:
        """The bins, cut."""
        step = self.block if size is None else size
        for low in range(0, self.bins, step):
            yield slice(low, min(self.bins, low + step))

    def agreed(self) -> bytes:
        """Bytes of all of it."""
        parts = (self.row_ids, self.label_ids, self.words, self.labels, self.max_label, self.counted)
        return b"joined_sums v4" + repr(parts).encode() + self.facts


class JoinedShares(NamedTuple, Generic[S]):
    """What one party is left with."""

    sums: U64Array  # (labels, words)
    matches: Count[S]  # of the identifiers that both have, on wires; 0 unless the shape has it counted


def row_holder(
    run: Run, other: str, shape: JoinedSumsSetup, entries: Entries, ot_sender: OtSender, coins: Coins
) -> Role[JoinedShares[SenderStream]]:
    """The party with the vectors."""
    if entries.words.shape != (len(entries), shape.words):
        raise LocalProtocolError("the entries do not have the shape's words")
    _require_size(len(entries), shape.row_ids)
    session = yield from agree(run, other, "joined_sums", shape.agreed(), coins)  # step 1
    stream = ot_sender.session(session)
    part_of_bins = yield from commit_coins(session, other, coins)
    name = yield from open_coins(session, other, part_of_bins)
    items, table = _placed(name, shape, entries, coins)  # step 2
    words = np.concatenate([entries.words, np.zeros((1, shape.words), dtype=np.uint64)])  # of no entry: zeros
    chosen = yield from receive(other, SeedsChosen)
    require_mark(chosen.mark, session, SeedsChosen, 0, other)
    q = stream.extend(chosen.corrections, WIDTH, other).reshape(WIDTH, 1, 2)
    asker = Asker(session, sender_pads(TweakedHash(session), q, ot_sender.delta, 2, 2))  # step 3
    learned = np.empty((shape.bins, shape.payload_words), dtype=np.uint64)
    for index, part in enumerate(shape.blocks(_ASK_BINS)):  # step 4
        planes, rows = asker.ask(items[part])
        yield Send(other, ItemsMasked(mark(session, ItemsMasked, index), planes))
        learned[part] = hashed(session, rows, np.arange(part.start, part.stop), shape.payload_words)
    store = yield from _receive_store(session, shape, other)
    keys = _store_keys(name, items, np.arange(shape.bins))
    learned ^= okvs.decode(store, okvs.places(name, keys, len(store)))  # step 6
    del store, keys, items
    share = np.zeros((shape.planes, shape.words), dtype=np.uint64)
    found = Count(session, other, stream, np.zeros((shape.count_bits, 1, 2), dtype=np.uint64))  # labels of 0, so far
    for index, part in enumerate(shape.blocks()):  # step 7
        count = part.stop - part.start
        tags = yield from receive(other, TagsChosen)
        require_mark(tags.mark, session, TagsChosen, index, other)
        wires = stream.extend(tags.corrections, (shape.tag_bits + shape.planes) * count, other)
        theirs = wires.reshape(shape.tag_bits + shape.planes, count, 2)
        hash_ = TweakedHash.of_block(session, index)
        garbler = Garbler(hash_, ot_sender.delta)
        equal, outcomes = _compare(garbler, garbler.own(_bits(learned[part], shape)), theirs, shape)
        if shape.counted:
            found.add(garbler, equal)
        masked = _offer(hash_, ot_sender.delta, outcomes, words[table[part]], share)  # step 8
        yield Send(other, BinsCompared(mark(session, BinsCompared, index), garbler.take_tables(), masked.reshape(-1)))
    return JoinedShares(_weighted(share, shape), found)


def label_holder(
    run: Run, other: str, shape: JoinedSumsSetup, entries: Entries, ot_receiver: OtReceiver, coins: Coins
) -> Role[JoinedShares[ChooserStream]]:
    """The party with the labels: `entries.words` are the labels (n, labels)."""
    if entries.words.shape != (len(entries), shape.labels):
        raise LocalProtocolError("the entries do not have the shape's labels")
    if entries.words.size and int(entries.words.max()) > shape.max_label:
        raise DataError("a label is larger than the study's multiplicity allows")
    _require_size(len(entries), shape.label_ids)
    session = yield from agree(run, other, "joined_sums", shape.agreed(), coins)  # step 1
    stream = ot_receiver.session(session)
    answered = yield from answer_coins(session, other, coins)
    bits = np.unpackbits(np.frombuffer(coins.bytes(WIDTH // 8), dtype=np.uint8))
    corrections, t = stream.extend(bits)
    yield Send(other, SeedsChosen(mark(session, SeedsChosen, 0), corrections))  # step 3
    seeds = chooser_pads(TweakedHash(session), t.reshape(WIDTH, 1, 2), bits.astype(np.uint64), 2, 2)
    owner = Owner(session, bits, seeds)
    name = yield from hear_coins(session, other, answered)
    masked = []
    for index, part in enumerate(shape.blocks(_ASK_BINS)):
        asked = yield from receive(other, ItemsMasked)
        require_mark(asked.mark, session, ItemsMasked, index, other)
        masked.append(owner.answer(asked.planes, part.stop - part.start, other))
    secret = coins.words(shape.bins * shape.payload_words).reshape(shape.bins, -1)  # tag and label masks of each bin
    store = _fill(name, shape, entries, owner, np.concatenate(masked), secret, coins)  # step 5
    del masked
    flat = store.reshape(-1)
    for index, low in enumerate(range(0, len(flat), _BLOCK_BYTES // 8)):
        yield Send(other, StoreFilled(mark(session, StoreFilled, index), flat[low : low + _BLOCK_BYTES // 8]))
    del store, flat
    share = np.zeros((shape.planes, shape.words), dtype=np.uint64)
    found = Count(session, other, stream, np.zeros((shape.count_bits, 1, 2), dtype=np.uint64))
    for index, part in enumerate(shape.blocks()):  # step 7
        count = part.stop - part.start
        corrections, t = stream.extend(_bits(secret[part], shape))
        yield Send(other, TagsChosen(mark(session, TagsChosen, index), corrections))
        compared = yield from receive(other, BinsCompared)
        require_mark(compared.mark, session, BinsCompared, index, other)
        if (len(compared.tables), len(compared.rows)) != (
            ROW_WORDS * shape.gates(count),
            shape.planes * count * shape.words,
        ):
            raise PeerProtocolError("a block of comparisons has the wrong length", party=other)
        hash_ = TweakedHash.of_block(session, index)
        evaluator = Evaluator(hash_, other)
        evaluator.give_tables(compared.tables)
        theirs = t.reshape(shape.tag_bits + shape.planes, count, 2)
        equal, outcomes = _compare(evaluator, evaluator.own(theirs.shape[:-1]), theirs, shape)
        if shape.counted:
            found.add(evaluator, equal)
        evaluator.require_finished()
        _take(hash_, outcomes, compared.rows.reshape(shape.planes, count, shape.words), share)  # step 9
    return JoinedShares(_weighted(share, shape), found)


def _require_size(count: int, bound: int) -> None:
    if count > bound:
        raise DataError(f"there are more identifiers than the agreed bound of {bound}; agree on a larger one")


# -- steps 2 to 6: which bins match, hidden in words -----------------------------------------------------------------------


def padded(items: Block128, bound: int, coins: Coins) -> Block128:
    """The items and, up to the bound, random ones that nobody has: the work is that of the bound, whatever the number."""
    return np.concatenate([items, coins.words(2 * (bound - len(items))).reshape(-1, 2)])


def _placed(name: bytes, shape: JoinedSumsSetup, entries: Entries, coins: Coins) -> tuple[Block128, npt.NDArray[np.int64]]:
    """The item of each bin (random where it is empty), and which entry it is: the number of entries for an empty bin."""
    own = padded(entries.items, shape.row_ids, coins)
    table = cuckoo.place(cuckoo.bins_of(name, own, shape.bins), shape.bins, coins)
    items = coins.words(2 * shape.bins).reshape(-1, 2)
    items[table >= 0] = own[table[table >= 0]]
    return items, np.where((table >= 0) & (table < len(entries)), table, len(entries))


def _store_keys(name: bytes, items: Block128, bins: npt.NDArray[np.int64]) -> Block128:
    """The store's key of an item in a bin."""
    return TweakedHash(name + b" key").at(items, Domain.TRANSFER, bins.astype(np.uint64))


def _fill(
    name: bytes, shape: JoinedSumsSetup, entries: Entries, owner: Owner, rows: U64Array, secret: U64Array, coins: Coins
) -> U64Array:
    """Step 5: under the function's value of (item, bin), the bin's tag and the item's labels under the bin's mask."""
    items = padded(entries.items, shape.label_ids, coins)
    three = cuckoo.bins_of(name, items, shape.bins)
    keys = np.empty((shape.keys, 2), dtype=np.uint64)
    values = np.empty((shape.keys, shape.payload_words), dtype=np.uint64)
    labels = np.zeros((len(items), shape.labels), dtype=np.uint64)
    labels[: len(entries)] = entries.words
    payload, code = _payload(labels, shape), codewords(items)
    for choice in range(3):
        for low in range(0, len(items), _HASH_AT_ONCE):
            part = slice(low, min(len(items), low + _HASH_AT_ONCE))
            bins = three[part, choice]
            at = slice(choice * len(items) + part.start, choice * len(items) + part.stop)
            keys[at] = _store_keys(name, items[part], bins)
            values[at] = owner.evaluate(rows[bins], code[part], bins, shape.payload_words) ^ secret[bins] ^ payload[part]
    size = okvs.cells(shape.keys)
    return okvs.encode(okvs.places(name, keys, size), values, size, coins)


def _payload(labels: U64Array, shape: JoinedSumsSetup) -> U64Array:
    """Labels (n, labels) as the bits behind the tag: the bits of one label after those of the other."""
    width, first = shape.max_label.bit_length(), shape.tag_bits
    bits = ((labels[:, :, None] >> np.arange(width, dtype=np.uint64)) & np.uint64(1)).astype(np.uint8)
    padded = np.zeros((len(labels), 64 * shape.payload_words), dtype=np.uint8)
    padded[:, first : first + shape.planes] = bits.reshape(len(labels), shape.planes)
    packed = np.ascontiguousarray(np.packbits(padded, axis=1, bitorder="little"))
    return packed.view("<u8").astype(np.uint64)


def _receive_store(session: bytes, shape: JoinedSumsSetup, other: str) -> Role[U64Array]:
    size = okvs.cells(shape.keys)
    store = np.empty(size * shape.payload_words, dtype=np.uint64)
    for index, low in enumerate(range(0, len(store), _BLOCK_BYTES // 8)):
        piece = yield from receive(other, StoreFilled)
        require_mark(piece.mark, session, StoreFilled, index, other)
        expected = min(_BLOCK_BYTES // 8, len(store) - low)
        if len(piece.cells) != expected:
            raise PeerProtocolError("a piece of the store has the wrong length", party=other)
        store[low : low + expected] = piece.cells
    return store.reshape(size, shape.payload_words)


# -- steps 7 to 9: comparison, and the rows under its outcome ----------------------------------------------------------------


def _bits(words: U64Array, shape: JoinedSumsSetup) -> npt.NDArray[np.uint8]:
    """Tag bits, then label bits, of (n, payload) words: (tag_bits + planes, n)."""
    columns = np.ascontiguousarray(words.T)
    count = shape.tag_bits + shape.planes
    planes = [(columns[bit // 64] >> np.uint64(bit % 64)) & np.uint64(1) for bit in range(count)]
    return np.stack(planes).astype(np.uint8)


def _compare(g: Gates, mine: Wires, theirs: Wires, shape: JoinedSumsSetup) -> tuple[Wires, Wires]:
    """Per bin: whether the tags are equal, (bins,) wires, and each bit of the labels if they are, (planes, bins) wires.

    tag_bits - 1 + planes AND.
    """
    both = mine ^ theirs
    equal = c.is_zero(g, both[: shape.tag_bits])
    return equal, g.and_(np.broadcast_to(equal[None], both[shape.tag_bits :].shape), both[shape.tag_bits :])


def _offer(hash_: TweakedHash, delta: Block128, outcomes: Wires, rows: U64Array, share: U64Array) -> U64Array:
    """Step 8: the garbler turns the labels of each outcome into pads. `outcomes` are the labels of 0.

    The label of colour k leads to the pad r_k. With a, the colour of the label of 0, the outcome is k ^ a, so the other side
    must get  a x  for colour 0 and  (1 - a) x  for colour 1, up to r_0: it gets r_0 itself, or r_1 + (r_0 - r_1 + (1 - 2a) x).
    """
    planes, count, words = len(outcomes), len(rows), rows.shape[1]
    blocks = -(-words // 2)
    masked = np.empty((planes, count, words), dtype=np.uint64)
    for plane in range(planes):
        first = hash_.reserve(Domain.TRANSFER, count * blocks)
        colour = (outcomes[plane, :, 0] & np.uint64(1)).astype(np.bool_)
        label = outcomes[plane] ^ (np.uint64(0) - colour.astype(np.uint64))[:, None] & delta  # the one of colour 0
        for low in range(0, count, _ROWS_AT_ONCE):
            part = slice(low, min(count, low + _ROWS_AT_ONCE))
            own, flip = rows[part], colour[part]
            zero = hash_.expand(label[part], Domain.TRANSFER, first + low * blocks, words)
            share[plane] -= zero.sum(axis=0, dtype=np.uint64)
            share[plane] += own[flip].sum(axis=0, dtype=np.uint64)
            zero -= hash_.expand(label[part] ^ delta, Domain.TRANSFER, first + low * blocks, words)
            np.add(zero, own, out=zero, where=~flip[:, None])
            np.subtract(zero, own, out=zero, where=flip[:, None])
            masked[plane, part] = zero
    return masked


def _take(hash_: TweakedHash, outcomes: Wires, masked: U64Array, share: U64Array) -> None:
    """Step 9: the evaluator opens the pad of the label it has, without knowing which outcome that is."""
    planes, count, words = masked.shape
    blocks = -(-words // 2)
    for plane in range(planes):
        first = hash_.reserve(Domain.TRANSFER, count * blocks)
        colour = (outcomes[plane, :, 0] & np.uint64(1)).astype(np.bool_)
        for low in range(0, count, _ROWS_AT_ONCE):
            part = slice(low, min(count, low + _ROWS_AT_ONCE))
            pads = hash_.expand(outcomes[plane, part], Domain.TRANSFER, first + low * blocks, words)
            share[plane] += pads.sum(axis=0, dtype=np.uint64)
            share[plane] += masked[plane, part][colour[part]].sum(axis=0, dtype=np.uint64)


def _weighted(share: U64Array, shape: JoinedSumsSetup) -> U64Array:
    """Shares of bits of labels to shares of labels: bit b counts 2^b times."""
    width = shape.max_label.bit_length()
    parts = share.reshape(shape.labels, width, shape.words)
    weights = np.uint64(1) << np.arange(width, dtype=np.uint64)
    total: U64Array = (parts * weights[None, :, None]).sum(axis=1, dtype=np.uint64)
    return total
