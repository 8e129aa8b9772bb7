"""Roles of matching. Step numbers as in SPEC.md."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.ot.softspoken import OtReceiver, OtSender
from blindbayes.crypto.psi import cuckoo, okvs
from blindbayes.crypto.psi.oprf import codewords, hashed
from blindbayes.crypto.tweaks import Block128
from blindbayes.errors import ConfigError, PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, mark, open_value, receive, receive_marked, require_mark
from blindbayes.protocols.private_join.matching.messages import MatchesTold, ValuesListed
from blindbayes.protocols.private_join.sums.roles import answer_function, ask_function, padded, require_size
from blindbayes.protocols.two_party.transfer.roles import agree, answer_coins, commit_coins, hear_coins, open_coins
from blindbayes.wire import U64Array

LABEL = "matching"
_PIECE_WORDS = 1 << 21
_WORDS = 2  # of the listed value, and of the name of a match: the two halves of the function
_MAX_BOUND = 1 << 24
_AT_ONCE = 1 << 16  # items whose values are made at once
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MatchingSetup:
    """The public facts: the bounds to which both numbers of items are padded."""

    asker: int
    owner: int
    facts: bytes = b""

    def __post_init__(self) -> None:
        if min(self.asker, self.owner) < cuckoo.MIN_ITEMS or max(self.asker, self.owner) > _MAX_BOUND:
            raise ConfigError(f"bounds on the number of identifiers lie between {cuckoo.MIN_ITEMS} and 2^24")

    @property
    def keys(self) -> int:
        """Number of items in the asker's store: as many as it takes for one to exist."""
        return max(self.asker, okvs.MIN_KEYS)

    @property
    def cells(self) -> int:
        return -(-okvs.cells(self.keys) // 64) * 64

    def agreed(self) -> bytes:
        return b"matching v1" + repr((self.asker, self.owner)).encode() + self.facts


def asker(run: Run, other: str, sizes: MatchingSetup, items: Block128, ot_sender: OtSender, coins: Coins) -> Role[Positions]:
    """Learn which of this party's items (n, 2), all different, the other has; return their positions."""
    require_size(len(items), sizes.asker)
    session = yield from agree(run, other, "matching", sizes.agreed(), coins)  # step 1
    part_of_places = yield from commit_coins(session, other, coins)
    name = yield from open_coins(session, other, part_of_places)
    every = padded(items, sizes.keys, coins)
    places = okvs.places(name, every, sizes.cells)
    store = okvs.encode(places, every, sizes.cells, coins)  # step 2
    rows: list[U64Array] = []
    yield from ask_function(session, other, store, ot_sender.session(session), lambda *learned: rows.append(learned[2]))
    values, names = _halves(_values(session, np.concatenate(rows), items, places.part(slice(0, len(items)))))
    listed = yield from _receive_values(other, session, sizes.owner)
    matched = np.flatnonzero(find(values, listed) >= 0)  # step 6
    named = _sorted(names[matched]).reshape(-1)
    yield Send(other, MatchesTold(mark(session, MatchesTold, len(named)), named))
    return (yield from open_value(LABEL, matched))


def owner(
    run: Run, other: str, sizes: MatchingSetup, items: Block128, ot_receiver: OtReceiver, coins: Coins
) -> Role[Positions]:
    """Learn which of this party's items the other has; return their positions."""
    require_size(len(items), sizes.owner)
    session = yield from agree(run, other, "matching", sizes.agreed(), coins)  # step 1
    answered = yield from answer_coins(session, other, coins)
    stream, named = ot_receiver.session(session), hear_coins(session, other, answered)
    name, source, whole = yield from answer_function(session, other, sizes.cells, stream, coins, named)  # steps 3 and 4
    every = padded(items, sizes.owner, coins)
    places = okvs.places(name, every, sizes.cells)
    both = np.empty((len(every), 2 * _WORDS), dtype=np.uint64)
    for low in range(0, len(every), _AT_ONCE):  # step 5
        part = slice(low, low + _AT_ONCE)
        own = okvs.decode(whole, places.part(part))
        both[part] = source.evaluate(own, codewords(every[part]), every[part, 0].view(np.int64), 2 * _WORDS)
    values, names = _halves(both)
    flat = _sorted(values).reshape(-1)
    for index, low in enumerate(range(0, len(flat), _PIECE_WORDS)):
        yield Send(other, ValuesListed(mark(session, ValuesListed, index), flat[low : low + _PIECE_WORDS]))
    reply = yield from receive(other, MatchesTold)
    require_mark(reply, session, len(reply.names), other)
    if len(reply.names) % _WORDS or len(reply.names) > _WORDS * sizes.asker:
        raise PeerProtocolError("the list of matches has the wrong length", party=other)
    matched = find(names[: len(items)], _sorted(reply.names.reshape(-1, _WORDS))) >= 0
    if int(matched.sum()) * _WORDS != len(reply.names):
        raise PeerProtocolError("the other party reported a match that does not exist", party=other)
    return (yield from open_value(LABEL, np.flatnonzero(matched)))


def _values(session: bytes, rows: U64Array, items: Block128, places: okvs.Places) -> U64Array:
    """Evaluate the function at the asker's own items, from its t of every cell."""
    values = np.empty((len(items), 2 * _WORDS), dtype=np.uint64)
    for low in range(0, len(items), _AT_ONCE):
        part = slice(low, low + _AT_ONCE)
        values[part] = hashed(session, okvs.decode(rows, places.part(part)), items[part, 0].view(np.int64), 2 * _WORDS)
    return values


def _halves(values: U64Array) -> tuple[U64Array, U64Array]:
    """Return what is listed and what proves a match: to have seen one of an item does not reveal the other."""
    return values[:, :_WORDS], values[:, _WORDS:]


def _sorted(values: U64Array) -> U64Array:
    return values[np.lexsort((values[:, 1], values[:, 0]))]


def find(values: U64Array, listed: U64Array) -> Positions:
    """Return where each of the values (n, 2) is in the sorted list (m, 2); -1 if nowhere.

    First words of random values differ, except by accident; then the neighbours are compared, too.
    """
    places = np.full(len(values), -1, dtype=np.int64)
    if not len(listed) or not len(values):
        return places
    at = np.searchsorted(np.ascontiguousarray(listed[:, 0]), values[:, 0])
    for step in range(4):
        near = np.minimum(at + step, len(listed) - 1)
        same = (listed[near] == values).all(axis=1)
        places[same] = near[same]
    return places


def _receive_values(other: str, session: bytes, count: int) -> Role[U64Array]:
    parts = []
    for index, low in enumerate(range(0, _WORDS * count, _PIECE_WORDS)):
        piece = yield from receive_marked(other, ValuesListed, session, index)
        if len(piece.values) != min(_PIECE_WORDS, _WORDS * count - low):
            raise PeerProtocolError("a piece of the list has the wrong length", party=other)
        parts.append(piece.values)
    return np.concatenate(parts).reshape(-1, _WORDS)
