"""Roles of joined_sums. Step numbers as in SPEC.md.

The *row holder* has a vector of words per identifier, the *label holder* a few small whole numbers (labels) per identifier.
Both end with additive shares of  sum over identifiers that both have of  label * vector,  for each label, and of the number of
these identifiers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.garbling.garbling import ROW_WORDS, Evaluator, Garbler, Gates, Wires, colour_zero
from blindbayes.crypto.ot.base import chooser_pads, sender_pads
from blindbayes.crypto.ot.softspoken import ChooserStream, OtReceiver, OtSender, SenderStream
from blindbayes.crypto.psi import cuckoo, okvs
from blindbayes.crypto.psi.oprf import MAX_WORDS, WIDTH, Asker, Owner, codewords, hashed
from blindbayes.crypto.tweaks import Block128, Domain, TweakedHash, column_sums
from blindbayes.errors import ConfigError, DataError, LocalProtocolError, PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, mark, receive_marked
from blindbayes.protocols.private_join.sums.counts import Count, S, count_gates
from blindbayes.protocols.private_join.sums.equal import choose_equal, digits, send_equal
from blindbayes.protocols.private_join.sums.inputs import Entries
from blindbayes.protocols.private_join.sums.messages import (
    BinsCompared,
    ItemsMasked,
    MatchesChosen,
    SeedsChosen,
    StoreFilled,
    TagsMasked,
)
from blindbayes.protocols.two_party.garbled import answer_equality, ask_equality
from blindbayes.protocols.two_party.transfer.roles import agree, answer_coins, commit_coins, hear_coins, open_coins
from blindbayes.wire import U64Array

MIN_BOUND = cuckoo.MIN_ITEMS
MAX_BOUND = 12_000_000
FAILURE_BITS = 43  # one run fails with probability below 2^-43, so that a study of at most eight stays below 2^-40
_BLOCK_BYTES = 1 << 24  # of one message, about
_PIECE_WORDS = _BLOCK_BYTES // 8  # of the store
_ASK_AT_ONCE = 1 << 17  # questions per message: 8 MB
_ROWS_AT_ONCE = 1 << 11  # expanded at once: keeps pads in the cache
_HASH_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True)
class JoinedSumsSetup:
    """The public facts of one run of joined_sums."""

    row_ids: int  # agreed bound on the row holder's identifiers: what is padded to
    label_ids: int  # the same for the label holder
    words: int  # per entry of the row holder
    labels: int  # per entry of the label holder
    max_label: int = 1  # largest value of a label
    facts: bytes = b""  # anything else both must agree on
    counted: bool = False  # whether the number of common identifiers is counted, by the row holder's circuit

    def __post_init__(self) -> None:
        if min(self.row_ids, self.label_ids) < MIN_BOUND or max(self.row_ids, self.label_ids) > MAX_BOUND:
            raise ConfigError(f"bounds on the number of identifiers lie between {MIN_BOUND} and {MAX_BOUND}")
        if min(self.max_label, self.words, self.labels) < 1:
            raise LocalProtocolError("joined_sums needs words and labels")
        if self.payload_words > MAX_WORDS:
            limit = 64 * MAX_WORDS - self.tag_bits
            raise ConfigError(f"classes times bits of the multiplicity pass {limit}; lower the multiplicity")

    @property
    def bins(self) -> int:
        return cuckoo.bin_count(self.row_ids)

    @property
    def tag_bits(self) -> int:
        """Bits of a tag: a false match anywhere has probability below 2^-43 / 1.32, since empty bins add nothing."""
        return FAILURE_BITS + (self.bins - 1).bit_length()

    @property
    def planes(self) -> int:
        return self.labels * self.max_label.bit_length()

    @property
    def payload_words(self) -> int:
        """Words per entry in the store: the tag, then the labels' bits; two or more, as the function has 128 bits."""
        return max(2, -(-(self.tag_bits + self.planes) // 64))

    @property
    def count_bits(self) -> int:
        return self.bins.bit_length()

    def gates(self, bins: int) -> int:
        return bins * self.planes + (count_gates(bins, self.count_bits) if self.counted else 0)

    @property
    def keys(self) -> int:
        return 3 * self.label_ids

    @property
    def block(self) -> int:
        each = 32 * (self.planes + self.counted) + 8 * self.words * self.planes + 16
        return max(64, 1 << (max(1, _BLOCK_BYTES // each).bit_length() - 1))

    def blocks(self) -> Iterator[slice]:
        return cut(self.bins, self.block)

    def agreed(self) -> bytes:
        parts = (self.row_ids, self.label_ids, self.words, self.labels, self.max_label, self.counted)
        return b"joined_sums v2" + repr(parts).encode() + self.facts


class JoinedShares(NamedTuple, Generic[S]):
    """The shares of one party."""

    sums: U64Array  # (labels, words)
    matches: Count[S]  # of the identifiers that both have, on wires; 0 unless the shape has it counted


RowShares: TypeAlias = JoinedShares[SenderStream]
LabelShares: TypeAlias = JoinedShares[ChooserStream]
Transfers: TypeAlias = tuple[OtSender, OtReceiver]
"""With one other party, in both directions."""
NOTHING: U64Array = np.zeros(0, dtype=np.uint64)


def row_holder(
    run: Run,
    other: str,
    shape: JoinedSumsSetup,
    entries: Entries,
    transfers: Transfers,
    coins: Coins,
    known: U64Array = NOTHING,
) -> Role[RowShares]:
    """Run the party with the vectors. `known` are its shares of what the sums of the last words of label 0 must be."""
    if entries.words.shape != (len(entries), shape.words):
        raise LocalProtocolError("the entries do not have the shape's words")
    require_size(len(entries), shape.row_ids)
    session = yield from agree(run, other, "joined_sums", shape.agreed(), coins)  # step 1
    ot_sender, ot_receiver = transfers
    stream, back = ot_sender.session(session), _back(session)
    back_stream = ot_receiver.session(back)
    part_of_bins = yield from commit_coins(session, other, coins)
    name = yield from open_coins(session, other, part_of_bins)
    items, table = _placed(name, shape, entries, coins)  # step 2
    words = np.concatenate([entries.words, np.zeros((1, shape.words), dtype=np.uint64)])  # of no entry: zeros
    learned = np.empty((shape.bins, shape.payload_words), dtype=np.uint64)

    def learn(part: slice, asked: Block128, rows: U64Array) -> None:
        learned[part] = hashed(session, rows, bound(asked, np.arange(part.start, part.stop)), shape.payload_words)

    yield from ask_function(session, other, items, stream, learn)  # steps 3 and 4
    store = yield from receive_store(session, shape.keys, shape.payload_words, other)
    keys = store_keys(name, items, np.arange(shape.bins))
    learned ^= okvs.decode(store, okvs.places(name, keys, len(store)))  # step 6
    del store, keys, items
    tags, mine = _tags(learned, shape), (yield from send_equal(session, other, digits(learned, shape.tag_bits), stream))
    share, check = np.zeros((shape.planes, shape.words), dtype=np.uint64), np.zeros((2, 1), dtype=np.uint64)
    matches = _count(session, other, stream, shape)
    for index, part in enumerate(shape.blocks()):  # step 7
        count = part.stop - part.start
        entered = yield from receive_marked(other, MatchesChosen, session, index)
        theirs = stream.extend(entered.corrections, (1 + shape.planes) * count, other).reshape(-1, count, 2)
        hash_ = TweakedHash.for_block(session, index)
        garbler = Garbler(hash_, ot_sender.delta)
        equal = garbler.own(mine[part]) ^ theirs[0]
        outcomes = _labelled(garbler, equal, garbler.own(_label_bits(learned[part], shape)) ^ theirs[1:], shape)
        if shape.counted:
            matches.add(garbler, equal)
        masked = _offer(hash_, ot_sender.delta, outcomes, words[table[part]], share)  # step 8
        proof = _offer(hash_, ot_sender.delta, equal[None], tags[part], check[:1])
        corrections, labels = back_stream.extend(mine[part])
        sent = np.concatenate([masked.reshape(-1), proof.reshape(-1)])
        yield Send(other, BinsCompared(mark(session, BinsCompared, index), garbler.take_tables(), sent, corrections))
        reply = yield from receive_marked(other, TagsMasked, back, index)  # step 9
        if len(reply.tags) != count:
            raise PeerProtocolError("a block of tags has the wrong length", party=other)
        _take(TweakedHash.for_block(back, index), labels[None], reply.tags.reshape(1, -1, 1), check[1:])
    sums = _weighted(share, shape)
    secret = np.concatenate([check[0] - check[1], _last(sums, known) - known])
    yield from ask_equality(other, back, secret.tobytes(), coins)
    return JoinedShares(sums, matches)


def label_holder(
    run: Run,
    other: str,
    shape: JoinedSumsSetup,
    entries: Entries,
    transfers: Transfers,
    coins: Coins,
    known: U64Array = NOTHING,
) -> Role[LabelShares]:
    """Run the party with the labels: `entries.words` are the labels (n, labels). `known` as for the row holder."""
    if entries.words.shape != (len(entries), shape.labels):
        raise LocalProtocolError("the entries do not have the shape's labels")
    if entries.words.size and int(entries.words.max()) > shape.max_label:
        raise DataError("a label is larger than the study's multiplicity allows")
    require_size(len(entries), shape.label_ids)
    session = yield from agree(run, other, "joined_sums", shape.agreed(), coins)  # step 1
    ot_sender, ot_receiver = transfers
    stream, back = ot_receiver.session(session), _back(session)
    back_stream = ot_sender.session(back)
    answered = yield from answer_coins(session, other, coins)
    named = hear_coins(session, other, answered)
    name, owner, masked = yield from answer_function(session, other, shape.bins, stream, coins, named)  # steps 3 and 4
    secret = coins.words(shape.bins * shape.payload_words).reshape(shape.bins, -1)  # tag and label masks of each bin
    store = _fill(name, shape, entries, owner, masked, secret, coins)  # step 5
    del masked
    yield from send_store(session, store, other)
    del store
    tags, mine = _tags(secret, shape), (yield from choose_equal(session, other, digits(secret, shape.tag_bits), stream))
    share, check = np.zeros((shape.planes, shape.words), dtype=np.uint64), np.zeros((2, 1), dtype=np.uint64)
    matches = _count(session, other, stream, shape)
    for index, part in enumerate(shape.blocks()):  # step 7
        count = part.stop - part.start
        entered = np.concatenate([mine[None, part], _label_bits(secret[part], shape)])
        corrections, t = stream.extend(entered)
        yield Send(other, MatchesChosen(mark(session, MatchesChosen, index), corrections))
        compared = yield from receive_marked(other, BinsCompared, session, index)
        size = shape.planes * count * shape.words
        if (len(compared.tables), len(compared.rows)) != (ROW_WORDS * shape.gates(count), size + count):
            raise PeerProtocolError("a block of comparisons has the wrong length", party=other)
        hash_ = TweakedHash.for_block(session, index)
        evaluator = Evaluator(hash_, other)
        evaluator.give_tables(compared.tables)
        labels = t.reshape(-1, count, 2)
        outcomes = _labelled(evaluator, labels[0], labels[1:], shape)
        if shape.counted:
            matches.add(evaluator, labels[0])
        evaluator.require_finished()
        _take(hash_, outcomes, compared.rows[:size].reshape(shape.planes, count, shape.words), share)  # step 8
        _take(hash_, labels[:1], compared.rows[size:].reshape(1, count, 1), check[:1])
        hash_ = TweakedHash.for_block(back, index)  # step 9
        garbler = Garbler(hash_, ot_sender.delta)
        equal = back_stream.extend(compared.corrections, count, other) ^ garbler.own(mine[part])
        proof = _offer(hash_, ot_sender.delta, equal[None], tags[part], check[1:])
        yield Send(other, TagsMasked(mark(back, TagsMasked, index), proof.reshape(-1)))
    sums = _weighted(share, shape)
    secret = np.concatenate([check[1] - check[0], known - _last(sums, known)])
    yield from answer_equality(other, back, secret.tobytes(), coins)
    return JoinedShares(sums, matches)


def _last(sums: U64Array, known: U64Array) -> U64Array:
    return sums[0, sums.shape[1] - len(known) :] if len(known) else known


def _back(session: bytes) -> bytes:
    return hashlib.sha256(b"blindbayes matches proved" + session).digest()


def _count(session: bytes, other: str, stream: S, shape: JoinedSumsSetup) -> Count[S]:
    return Count(session, other, stream, np.zeros((shape.count_bits, 1, 2), dtype=np.uint64))  # labels of 0, so far


def require_size(count: int, bound: int) -> None:
    """Raise if a party has more identifiers than was agreed."""
    if count > bound:
        raise DataError(f"there are more identifiers than the agreed bound of {bound}; agree on a larger one")


# -- steps 2 to 6: which bins match, hidden in words -----------------------------------------------------------------------


def padded(items: Block128, bound: int, coins: Coins) -> Block128:
    """Return the items and, up to the bound, random ones that nobody has: the work is that of the bound."""
    return np.concatenate([items, coins.words(2 * (bound - len(items))).reshape(-1, 2)])


def cut(bins: int, size: int) -> Iterator[slice]:
    """Return consecutive parts of the bins, of at most this size."""
    for low in range(0, bins, size):
        yield slice(low, min(bins, low + size))


def place(name: bytes, bins: int, bound: int, items: Block128, coins: Coins) -> tuple[Block128, npt.NDArray[np.int64]]:
    """Run step 2: put each identifier alone in one of its three bins, which follow from `name`.

    Return the item of each bin (random if empty), and which of the identifiers that is (-1: none).
    """
    own = padded(items, bound, coins)
    table = cuckoo.place(cuckoo.bins_of(name, own, bins), bins, coins)
    placed = coins.words(2 * bins).reshape(-1, 2)
    placed[table >= 0] = own[table[table >= 0]]
    return placed, np.where(table < len(items), table, -1)


def _placed(name: bytes, shape: JoinedSumsSetup, entries: Entries, coins: Coins) -> tuple[Block128, npt.NDArray[np.int64]]:
    """Return the item of each bin and the index of its entry; an empty bin has the index after the last."""
    items, table = place(name, shape.bins, shape.row_ids, entries.items, coins)
    return items, np.where(table < 0, len(entries), table)


def ask_function(
    session: bytes, other: str, items: Block128, stream: SenderStream, learn: Callable[[slice, Block128, U64Array], None]
) -> Role[None]:
    """Run steps 3 and 4 of the party that evaluates the oblivious function, at one item per bin.

    `learn` gets, part by part, the items and the rows whose hashes are the values.
    """
    chosen = yield from receive_marked(other, SeedsChosen, session, 0)
    q = stream.extend(chosen.corrections, WIDTH, other).reshape(WIDTH, 1, 2)
    asker = Asker(session, sender_pads(TweakedHash(session), q, stream.delta, 2, 2))
    for index, part in enumerate(cut(len(items), _ASK_AT_ONCE)):
        planes, rows = asker.ask(items[part])
        yield Send(other, ItemsMasked(mark(session, ItemsMasked, index), planes))
        learn(part, items[part], rows)


def answer_function(
    session: bytes, other: str, places: int, stream: ChooserStream, coins: Coins, named: Role[bytes]
) -> Role[tuple[bytes, Owner, U64Array]]:
    """Run steps 3 and 4 of the owner of the oblivious function; the role `named` receives the name of bins or places.

    Return that name, the function, and the masked question of each place.
    """
    bits = coins.bit_rows(1, WIDTH)[0]
    corrections, t = stream.extend(bits)
    yield Send(other, SeedsChosen(mark(session, SeedsChosen, 0), corrections))
    owner = Owner(session, bits, chooser_pads(TweakedHash(session), t.reshape(WIDTH, 1, 2), bits.astype(np.uint64), 2, 2))
    name = yield from named
    masked = []
    for index, part in enumerate(cut(places, _ASK_AT_ONCE)):
        asked = yield from receive_marked(other, ItemsMasked, session, index)
        masked.append(owner.answer(asked.planes, part.stop - part.start, other))
    return name, owner, np.concatenate(masked)


def bound(items: Block128, bins: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the bytes, besides the key, that are hashed into a value of the function.

    They include the item: otherwise an owner whose key is all zeros would know the values of items that it does not hold.
    """
    return items[:, 0].view(np.int64) ^ bins


def store_keys(name: bytes, items: Block128, bins: npt.NDArray[np.int64]) -> Block128:
    return TweakedHash(name + b" key").at(items, Domain.TRANSFER, bins.astype(np.uint64))


def _fill(
    name: bytes, shape: JoinedSumsSetup, entries: Entries, owner: Owner, rows: U64Array, secret: U64Array, coins: Coins
) -> U64Array:
    """Run step 5: under the function's value of (item, bin), the bin's tag and the item's labels under the bin's mask."""
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
            keys[at] = store_keys(name, items[part], bins)
            value = owner.evaluate(rows[bins], code[part], bound(items[part], bins), shape.payload_words)
            values[at] = value ^ secret[bins] ^ payload[part]
    size = okvs.cells(shape.keys)
    return okvs.encode(okvs.places(name, keys, size), values, size, coins)


def _payload(labels: U64Array, shape: JoinedSumsSetup) -> U64Array:
    """Return labels (n, labels) as the bits behind the tag: the bits of one label after those of the other."""
    width, first = shape.max_label.bit_length(), shape.tag_bits
    bits = ((labels[:, :, None] >> np.arange(width, dtype=np.uint64)) & np.uint64(1)).astype(np.uint8)
    padded = np.zeros((len(labels), 64 * shape.payload_words), dtype=np.uint8)
    padded[:, first : first + shape.planes] = bits.reshape(len(labels), shape.planes)
    packed = np.ascontiguousarray(np.packbits(padded, axis=1, bitorder="little"))
    return packed.view("<u8").astype(np.uint64)


def send_store(session: bytes, store: U64Array, other: str) -> Role[None]:
    """Send the store in pieces: step 5."""
    flat = store.reshape(-1)
    for index, low in enumerate(range(0, len(flat), _PIECE_WORDS)):
        yield Send(other, StoreFilled(mark(session, StoreFilled, index), flat[low : low + _PIECE_WORDS]))


def receive_store(session: bytes, keys: int, words: int, other: str) -> Role[U64Array]:
    """Receive the store of `keys` keys, (cells, words)."""
    size = okvs.cells(keys)
    store = np.empty(size * words, dtype=np.uint64)
    for index, low in enumerate(range(0, len(store), _PIECE_WORDS)):
        piece = yield from receive_marked(other, StoreFilled, session, index)
        expected = min(_PIECE_WORDS, len(store) - low)
        if len(piece.cells) != expected:
            raise PeerProtocolError("a piece of the store has the wrong length", party=other)
        store[low : low + expected] = piece.cells
    return store.reshape(size, words)


# -- steps 7 to 9: comparison, and the rows under its outcome ----------------------------------------------------------------


def _tags(words: U64Array, shape: JoinedSumsSetup) -> U64Array:
    """Return the tags of (n, payload) words as one word each, (n, 1): equal where the tags are."""
    return words[:, :1] & np.uint64((1 << min(64, shape.tag_bits)) - 1)


def _label_bits(words: U64Array, shape: JoinedSumsSetup) -> npt.NDArray[np.uint8]:
    bits = range(shape.tag_bits, shape.tag_bits + shape.planes)
    planes = [(words[:, bit // 64] >> np.uint64(bit % 64)) & np.uint64(1) for bit in bits]
    return np.array(planes, dtype=np.uint8).reshape(shape.planes, len(words))


def _labelled(g: Gates, equal: Wires, labels: Wires, shape: JoinedSumsSetup) -> Wires:
    """Return per bin each bit of the labels if the tags are equal, (planes, bins) wires; as many AND.

    Where labels are 0 or 1, an entry has at most one of them, even if its holder enters more: the first one set masks the later
    ones.
    """
    if shape.max_label > 1 or shape.labels < 2:
        return g.and_(np.broadcast_to(equal[None], labels.shape), labels)
    left, gated = equal[None], []
    for label in labels:
        gated.append(g.and_(left, label[None]))
        left = left ^ gated[-1]
    return np.concatenate(gated)


def _offer(hash_: TweakedHash, delta: Block128, outcomes: Wires, rows: U64Array, share: U64Array) -> U64Array:
    """Run step 8: turn the labels of each outcome into pads. `outcomes` are the labels of 0.

    The label of colour k leads to the pad r_k. With a, the colour of the label of 0, the outcome is k ^ a, so the other side
    must get  a x  for colour 0 and  (1 - a) x  for colour 1, up to r_0: it gets r_0 itself, or r_1 + (r_0 - r_1 + (1 - 2a) x).
    """
    planes, count, words = len(outcomes), len(rows), rows.shape[1]
    blocks = -(-words // 2)
    masked = np.empty((planes, count, words), dtype=np.uint64)
    for plane in range(planes):
        first = hash_.reserve(Domain.TRANSFER, count * blocks)
        colour = outcomes[plane, :, 0] & np.uint64(1)
        label = colour_zero(outcomes[plane], delta)
        for low in range(0, count, _ROWS_AT_ONCE):
            part = slice(low, min(count, low + _ROWS_AT_ONCE))
            own, flip, made = rows[part], np.repeat(colour[part], words).reshape(-1, words), masked[plane, part]
            made[:] = hash_.expand(label[part], Domain.TRANSFER, first + low * blocks, words)
            share[plane] -= column_sums(made)
            made -= hash_.expand(label[part] ^ delta, Domain.TRANSFER, first + low * blocks, words)
            made += own
            flip *= own  # (1 - 2a) x
            share[plane] += column_sums(flip)
            flip += flip
            made -= flip
    return masked


def _take(hash_: TweakedHash, outcomes: Wires, masked: U64Array, share: U64Array) -> None:
    """Run step 9: the evaluator opens the pad of the label it has, without knowing which outcome that is."""
    planes, count, words = masked.shape
    blocks = -(-words // 2)
    for plane in range(planes):
        first = hash_.reserve(Domain.TRANSFER, count * blocks)
        colour = outcomes[plane, :, 0] & np.uint64(1)
        for low in range(0, count, _ROWS_AT_ONCE):
            part = slice(low, min(count, low + _ROWS_AT_ONCE))
            opened = np.repeat(colour[part], words).reshape(-1, words)
            opened *= masked[plane, part]
            opened += hash_.expand(outcomes[plane, part], Domain.TRANSFER, first + low * blocks, words)
            share[plane] += column_sums(opened)


def _weighted(share: U64Array, shape: JoinedSumsSetup) -> U64Array:
    """Turn shares of bits of labels into shares of labels: bit b counts 2^b times."""
    width = shape.max_label.bit_length()
    parts = share.reshape(shape.labels, width, shape.words)
    weights = np.uint64(1) << np.arange(width, dtype=np.uint64)
    total: U64Array = (parts * weights[None, :, None]).sum(axis=1, dtype=np.uint64)
    return total
