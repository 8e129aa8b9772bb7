"""Roles of class_sums. Step numbers as in SPEC.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.errors import IntegrityError, LocalProtocolError, PeerProtocolError
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.ot import bits_for, chooser_pads, sender_pads
from blindbayes.primitives.softspoken import OtReceiver, OtSender
from blindbayes.primitives.tweaks import Block128, Domain, TweakedHash, column_sums
from blindbayes.protocol.class_sums.messages import ClassesChosen, RowsCounted, RowsMasked
from blindbayes.protocol.core import Role, Run, Send, receive
from blindbayes.protocol.transfer import agree, mark, require_mark
from blindbayes.wire import U64Array

_BLOCK_BYTES = 1 << 24  # of one message, about
_MAX_BLOCK = 1 << 16
_ROWS_AT_ONCE = 1 << 11  # expanded at once: keeps leaves and rows in the cache


@dataclass(frozen=True, slots=True)
class ClassSumsSetup:
    """What is public about one run of class_sums."""

    rows: int
    words: int  # per row
    classes: int
    facts: bytes = b""  # anything else both must agree on

    def __post_init__(self) -> None:
        if self.classes < 2 or self.rows < 1 or self.words < 1:
            raise LocalProtocolError("class_sums needs rows, words and at least two classes")

    @property
    def levels(self) -> int:
        """Levels of a row's tree."""
        return bits_for(self.classes)

    @property
    def block(self) -> int:
        """Rows per message."""
        fits = _BLOCK_BYTES // (8 * self.words + 32 * self.levels)
        return max(64, min(_MAX_BLOCK, 1 << (max(1, fits).bit_length() - 1)))

    def blocks(self) -> Iterator[int]:
        """Sizes of the blocks."""
        for low in range(0, self.rows, self.block):
            yield min(self.block, self.rows - low)

    def agreed(self) -> bytes:
        """Bytes of all of it."""
        return repr((self.rows, self.words, self.classes)).encode() + self.facts


def attribute_holder(
    run: Run, class_holder_name: str, shape: ClassSumsSetup, blocks: Iterable[U64Array], ot_sender: OtSender, coins: Coins
) -> Role[U64Array]:
    """The party with the rows: words (rows, words) in blocks of any size. Returns its share, (classes, words)."""
    session = yield from agree(run, class_holder_name, "class_sums", shape.agreed(), coins)  # step 1
    stream = ot_sender.session(session)
    share = np.zeros((shape.classes, shape.words + 1), dtype=np.uint64)
    source = _Blocks(blocks, (shape.words,), np.uint64)
    for index, count in enumerate(shape.blocks()):
        hash_, rows = TweakedHash.of_block(session, index), source.take(count)
        chosen = yield from receive(class_holder_name, ClassesChosen)
        require_mark(chosen.mark, session, ClassesChosen, index, class_holder_name)
        q = stream.extend(chosen.corrections, count * shape.levels, class_holder_name).reshape(count, shape.levels, 2)
        leaves, levels = _grow(hash_, q, ot_sender.delta, shape)  # step 3
        masked = np.empty((count, shape.words + 1), dtype=np.uint64)
        masked[:, :-1], masked[:, -1] = rows, 1  # a row counts one in the last word
        blocks_per_leaf = -(-(shape.words + 1) // 2)
        first = hash_.reserve(Domain.LEAF, shape.classes * count * blocks_per_leaf)
        for low in range(0, count, _ROWS_AT_ONCE):  # step 4
            part = slice(low, min(count, low + _ROWS_AT_ONCE))
            for label, leaf in enumerate(leaves):
                at = first + (label * count + low) * blocks_per_leaf
                hash_.accumulate(leaf[part], Domain.LEAF, at, masked[part], share[label], minus=True)
        yield Send(class_holder_name, RowsMasked(mark(session, RowsMasked, index), levels.reshape(-1), masked.reshape(-1)))
    source.require_end()
    counted = np.ascontiguousarray(share[:, -1])
    yield Send(class_holder_name, RowsCounted(mark(session, RowsCounted, 0), counted))  # step 7
    return np.ascontiguousarray(share[:, :-1])


def class_holder(
    run: Run,
    attribute_holder_name: str,
    shape: ClassSumsSetup,
    labels: Iterable[npt.NDArray[np.int64]],
    ot_receiver: OtReceiver,
    coins: Coins,
) -> Role[U64Array]:
    """The party with the class of every row, in blocks of any size. Returns its share, (classes, words)."""
    session = yield from agree(run, attribute_holder_name, "class_sums", shape.agreed(), coins)  # step 1
    stream = ot_receiver.session(session)
    share = np.zeros((shape.classes, shape.words + 1), dtype=np.uint64)
    rows = np.zeros(shape.classes, dtype=np.uint64)
    source = _Blocks(labels, (), np.int64)
    scratch = np.empty((_ROWS_AT_ONCE, shape.words + 1), dtype=np.uint64)
    for index, count in enumerate(shape.blocks()):
        hash_, own = TweakedHash.of_block(session, index), source.take(count)
        if not 0 <= own.min() <= own.max() < shape.classes:
            raise LocalProtocolError("every row needs one of the classes")
        path = (own[:, None] >> np.arange(shape.levels - 1, -1, -1)) & 1  # highest bit first
        sides = (1 - path).astype(np.uint8)
        corrections, t = stream.extend(sides)
        yield Send(attribute_holder_name, ClassesChosen(mark(session, ClassesChosen, index), corrections))  # step 2
        sent = yield from receive(attribute_holder_name, RowsMasked)
        require_mark(sent.mark, session, RowsMasked, index, attribute_holder_name)
        if sent.levels.size != 4 * count * (shape.levels - 1) or sent.rows.size != count * (shape.words + 1):
            raise PeerProtocolError("a block of masked rows has the wrong length", party=attribute_holder_name)
        levels = sent.levels.reshape(shape.levels - 1, 2, count, 2)
        leaves = _regrow(hash_, t.reshape(count, shape.levels, 2), sides, path, levels, shape)  # step 5
        masked = sent.rows.reshape(count, shape.words + 1)
        blocks_per_leaf = -(-(shape.words + 1) // 2)
        rows += np.array([np.count_nonzero(own == label) for label in range(shape.classes)], dtype=np.uint64)
        first = hash_.reserve(Domain.LEAF, shape.classes * count * blocks_per_leaf)
        for low in range(0, count, _ROWS_AT_ONCE):  # step 6
            part = slice(low, min(count, low + _ROWS_AT_ONCE))
            total = masked[part].copy()
            for label, leaf in enumerate(leaves):  # the same operations for every row, whatever its class
                at = first + (label * count + low) * blocks_per_leaf
                hash_.accumulate(leaf[part], Domain.LEAF, at, total, share[label], minus=False)
            # The leaf of a row's own class is unknown. What stands in its place was taken off the class's share, and is in the
            # row's total: so the share grows by row - g_c, as it should.
            if hash_.kernel is not None:
                hash_.kernel.add_by_class(total, own[part], share)
                continue
            picked, rest = scratch[: len(total)], column_sums(total)
            for label in range(1, shape.classes):
                mine = np.uint64(0) - (own[part] == label).astype(np.uint64)[:, None]
                found = column_sums(np.bitwise_and(total, mine, out=picked))
                share[label] += found
                rest -= found
            share[0] += rest
    source.require_end()
    counted = yield from receive(attribute_holder_name, RowsCounted)
    require_mark(counted.mark, session, RowsCounted, 0, attribute_holder_name)
    if counted.share.shape != rows.shape:
        raise PeerProtocolError("the share of the rows per class has the wrong length", party=attribute_holder_name)
    _require_counts(counted.share + share[:, -1], rows, attribute_holder_name)  # step 7
    return np.ascontiguousarray(share[:, :-1])


def _require_counts(found: U64Array, rows: U64Array, party: str) -> None:
    """Refuse sums in which a row does not count once: a leaf or a row is not what it should be."""
    if not np.array_equal(found, rows):
        raise IntegrityError(party=party)


class _Blocks:
    """Blocks of any size, cut to the protocol's."""

    def __init__(self, blocks: Iterable[npt.NDArray[Any]], tail: tuple[int, ...], kind: type) -> None:
        self._blocks = iter(blocks)
        self._tail = tail
        self._rest: npt.NDArray[Any] = np.zeros((0, *tail), dtype=kind)

    def take(self, count: int) -> npt.NDArray[Any]:
        parts, missing = [self._rest] if len(self._rest) else [], count - len(self._rest)
        while missing > 0:
            block = next(self._blocks, None)
            if block is None or block.shape[1:] != self._tail or block.dtype != self._rest.dtype:
                raise LocalProtocolError("there are fewer rows than declared, or rows of another kind")
            parts.append(block)
            missing -= len(block)
        joined = np.concatenate(parts) if len(parts) > 1 else parts[0]
        self._rest = joined[count:]
        return joined[:count]

    def require_end(self) -> None:
        if len(self._rest) or next(self._blocks, None) is not None:
            raise LocalProtocolError("there are more rows than declared")


# -- trees ---------------------------------------------------------------------------------------------------------------
#
# Level 1 of a row's tree is the pair of pads of its first transfer, so it costs no message. Below, each node is expanded into
# two children, but for the last one of a level where only one of its two halves holds classes: it stands on the next level
# unchanged. So a level has no node that leads to no class, and a chooser misses exactly one leaf whatever it chooses (SPEC.md).


def _splits(level: int, shape: ClassSumsSetup) -> int:
    """How many nodes have two children on `level` (1 = the two below the root). At most one node is carried over."""
    return -(-shape.classes >> (shape.levels - level)) // 2


def _grow(hash_: TweakedHash, q: Block128, delta: Block128, shape: ClassSumsSetup) -> tuple[list[Block128], U64Array]:
    """All leaves, and the level sums under pads: (levels - 1, 2 sides, rows, 2)."""
    nodes = list(sender_pads(hash_, q[:, :1], delta, 2, 2))
    sums = np.empty((shape.levels - 1, 2, q.shape[0], 2), dtype=np.uint64)
    for level in range(2, shape.levels + 1):
        children, carried = _children(hash_, nodes, _splits(level, shape))
        pads = sender_pads(hash_, q[:, level - 1 : level], delta, 2, 2)
        for side in (0, 1):
            total = pads[side]
            for node in children[side::2]:
                total = total ^ node
            sums[level - 2, side] = total
        nodes = children + carried
    return nodes, sums


def _children(hash_: TweakedHash, nodes: list[Block128], splits: int) -> tuple[list[Block128], list[Block128]]:
    """The children of the nodes that have two, and the nodes that have one: these are their child."""
    count = nodes[0].shape[0]
    children: list[Block128] = []
    first = hash_.reserve(Domain.TREE, 2 * count * splits)
    for position, node in enumerate(nodes[:splits]):
        both = hash_.expand(node, Domain.TREE, first + 2 * count * position, 4, keep=False)
        children.extend((np.ascontiguousarray(both[:, :2]), np.ascontiguousarray(both[:, 2:])))
    return children, nodes[splits:]


def _regrow(
    hash_: TweakedHash,
    t: Block128,
    sides: npt.NDArray[np.uint8],
    path: npt.NDArray[np.int64],
    levels: U64Array,
    shape: ClassSumsSetup,
) -> list[Block128]:
    """All leaves but the one on each row's path (noise stands in its place). The same operations whatever the path."""
    known = chooser_pads(hash_, t[:, :1], sides[:, 0].astype(np.uint64), 2, 2)
    nodes = [known.copy() for _ in range(2)]  # right where the node is on the chosen side
    missing = path[:, 0]
    for level in range(2, shape.levels + 1):
        splits = _splits(level, shape)
        children, carried = _children(hash_, nodes, splits)
        side = sides[:, level - 1]
        right = _full(side == 1)
        left_sum, right_sum = levels[level - 2]
        total = left_sum ^ ((left_sum ^ right_sum) & right)
        total ^= chooser_pads(hash_, t[:, level - 1 : level], side.astype(np.uint64), 2, 2)
        # The sum of the chosen side minus its known nodes is the sibling of the next node on the path.
        sibling = 2 * missing + side
        places = [_full(sibling == position) for position in range(2 * splits)]
        for position, (child, here) in enumerate(zip(children, places, strict=True)):
            total ^= child & ~here & (right if position & 1 else ~right)
        for child, here in zip(children, places, strict=True):
            child ^= (child ^ total) & here
        missing = 2 * missing + path[:, level - 1] * (missing < splits)
        nodes = children + carried
    return nodes


def _full(chosen: npt.NDArray[np.bool_]) -> Block128:
    """A block of ones where chosen, of zeros elsewhere; laid out in full, since numpy stretches a column slowly."""
    return np.repeat(np.uint64(0) - chosen.astype(np.uint64), 2).reshape(-1, 2)
