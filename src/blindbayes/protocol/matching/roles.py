"""Roles of matching. Step numbers as in SPEC.md."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blindbayes.errors import ConfigError, DataError, PeerProtocolError
from blindbayes.primitives import cuckoo
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.oprf import WIDTH, Asker, Owner, codewords, hashed
from blindbayes.primitives.ot import chooser_pads, sender_pads
from blindbayes.primitives.softspoken import Keeper, Planter
from blindbayes.primitives.tweaks import Blocks, TweakedHash
from blindbayes.protocol.core import Role, Run, Send, open_value, receive
from blindbayes.protocol.joined_sums.messages import ItemsMasked, SeedsChosen
from blindbayes.protocol.joined_sums.roles import padded
from blindbayes.protocol.matching.messages import MatchesTold, ValuesListed
from blindbayes.protocol.transfer import agree, mark, require_mark
from blindbayes.wire import Words

LABEL = "matching"
_ASK_BINS = 1 << 17
_PIECE_WORDS = 1 << 21
_TAG_WORDS, _ROW_WORDS = 2, 3  # of the function's value: what is compared, and the mask of a name behind it
_RANK_BITS = 24
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is public: the bounds that both numbers of items are padded to."""

    asker: int
    owner: int
    facts: bytes = b""

    def __post_init__(self) -> None:
        if min(self.asker, self.owner) < cuckoo.LEAST or max(self.asker, self.owner) > 1 << _RANK_BITS:
            raise ConfigError(f"bounds on the number of identifiers lie between {cuckoo.LEAST} and 2^24")

    @property
    def bins(self) -> int:
        """Bins of the asker's items."""
        return cuckoo.bin_count(self.asker)

    def blocks(self) -> list[slice]:
        """The bins, cut."""
        return [slice(low, min(self.bins, low + _ASK_BINS)) for low in range(0, self.bins, _ASK_BINS)]

    def agreed(self) -> bytes:
        """Bytes of all of it."""
        return b"matching v1" + repr((self.asker, self.owner)).encode() + self.facts


def asker(run: Run, other: str, sizes: Sizes, items: Blocks, keeper: Keeper, coins: Coins) -> Role[Positions]:
    """Learns which of its items (n, 2), all different, the other has: their positions."""
    _require_size(len(items), sizes.asker)
    session = yield from agree(run, other, "matching", sizes.agreed(), coins)  # step 1
    tmmo = TweakedHash(session)
    every = padded(items, sizes.asker, coins)
    table = cuckoo.place(cuckoo.bins_of(session, every, sizes.bins), sizes.bins, coins)  # step 2
    placed = coins.words(2 * sizes.bins).reshape(-1, 2)
    placed[table >= 0] = every[table[table >= 0]]
    chosen = yield from receive(other, SeedsChosen)
    require_mark(chosen.mark, session, SeedsChosen, 0, other)
    q = keeper.session(session).extend(chosen.corrections, WIDTH, other).reshape(WIDTH, 1, 2)
    source = Asker(session, sender_pads(tmmo, q, keeper.delta, 2, 2))  # step 3
    parts = []
    for index, part in enumerate(sizes.blocks()):  # step 4
        planes, rows = source.ask(placed[part])
        yield Send(other, ItemsMasked(mark(session, ItemsMasked, index), planes))
        parts.append(hashed(session, rows, np.arange(part.start, part.stop), _ROW_WORDS))
    own = np.concatenate(parts)
    listed = yield from _receive_values(other, session, 3 * sizes.owner)
    places = find(own[:, :_TAG_WORDS], listed[:, :_TAG_WORDS])
    matched = np.flatnonzero((table >= 0) & (table < len(items)) & (places >= 0))  # step 6
    names = np.sort(listed[places[matched], _TAG_WORDS] ^ own[matched, _TAG_WORDS])
    yield Send(other, MatchesTold(mark(session, MatchesTold, len(names)), names))
    return (yield from open_value(LABEL, np.sort(table[matched])))


def owner(run: Run, other: str, sizes: Sizes, items: Blocks, planter: Planter, coins: Coins) -> Role[Positions]:
    """Learns which of its items the other has: their positions."""
    _require_size(len(items), sizes.owner)
    session = yield from agree(run, other, "matching", sizes.agreed(), coins)  # step 1
    tmmo = TweakedHash(session)
    bits = np.unpackbits(np.frombuffer(coins.bytes(WIDTH // 8), dtype=np.uint8))
    corrections, t = planter.session(session).extend(bits)
    yield Send(other, SeedsChosen(mark(session, SeedsChosen, 0), corrections))  # step 3
    source = Owner(session, bits, chooser_pads(tmmo, t.reshape(WIDTH, 1, 2), bits.astype(np.uint64), 2, 2))
    rows = []
    for index, part in enumerate(sizes.blocks()):
        asked = yield from receive(other, ItemsMasked)
        require_mark(asked.mark, session, ItemsMasked, index, other)
        rows.append(source.answer(asked.planes, part.stop - part.start, other))
    every = padded(items, sizes.owner, coins)
    whole, three, code = np.concatenate(rows), cuckoo.bins_of(session, every, sizes.bins), codewords(every)
    values = np.concatenate([source.evaluate(whole[bins], code, bins, _ROW_WORDS) for bins in three.T])  # step 5
    names = _draw_names(sizes.owner, coins)
    values[:, _TAG_WORDS] ^= np.tile(names, 3)
    flat = _sorted(values).reshape(-1)
    for index, low in enumerate(range(0, len(flat), _PIECE_WORDS)):
        yield Send(other, ValuesListed(mark(session, ValuesListed, index), flat[low : low + _PIECE_WORDS]))
    told = yield from receive(other, MatchesTold)
    require_mark(told.mark, session, MatchesTold, len(told.names), other)
    found = np.isin(names[: len(items)], told.names)
    if int(found.sum()) != len(told.names):
        raise PeerProtocolError("a match is none", party=other)
    return (yield from open_value(LABEL, np.flatnonzero(found)))


def _draw_names(count: int, coins: Coins) -> Words:
    """A random name for each item, all different: a rank in random order, and 40 random bits so that none can be guessed."""
    ranks = np.argsort(coins.words(count), kind="stable").astype(np.uint64)
    return (coins.words(count) << np.uint64(_RANK_BITS)) | ranks


def _require_size(count: int, bound: int) -> None:
    if count > bound:
        raise DataError(f"there are more identifiers than the agreed bound of {bound}; agree on a larger one")


def _sorted(values: Words) -> Words:
    return values[np.lexsort((values[:, 1], values[:, 0]))]


def find(values: Words, listed: Words) -> Positions:
    """Where each of the values (n, 2) stands in the sorted list (m, 2); -1 if nowhere. First words of random values are all
    different but by accident; where they are not, the neighbours are looked at too."""
    places = np.full(len(values), -1, dtype=np.int64)
    if not len(listed) or not len(values):
        return places
    at = np.searchsorted(np.ascontiguousarray(listed[:, 0]), values[:, 0])
    for step in range(4):
        near = np.minimum(at + step, len(listed) - 1)
        same = (listed[near] == values).all(axis=1)
        places[same] = near[same]
    return places


def _receive_values(other: str, session: bytes, count: int) -> Role[Words]:
    parts = []
    for index, low in enumerate(range(0, _ROW_WORDS * count, _PIECE_WORDS)):
        piece = yield from receive(other, ValuesListed)
        require_mark(piece.mark, session, ValuesListed, index, other)
        if len(piece.values) != min(_PIECE_WORDS, _ROW_WORDS * count - low):
            raise PeerProtocolError("a piece of the list has the wrong length", party=other)
        parts.append(piece.values)
    return np.concatenate(parts).reshape(-1, _ROW_WORDS)
