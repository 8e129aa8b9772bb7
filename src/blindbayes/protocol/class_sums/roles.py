"""Roles of class_sums. Step numbers as in SPEC.md."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes import kernels
from blindbayes.errors import IntegrityError, LocalProtocolError, PeerProtocolError
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.ot import Bits, bits_for, chooser_pads, sender_pads
from blindbayes.primitives.softspoken import OtReceiver, OtSender
from blindbayes.primitives.tweaks import Block128, Domain, TweakedHash, column_sums
from blindbayes.protocol.class_sums.layout import RowLayout
from blindbayes.protocol.class_sums.messages import ClassesChosen, RowsCounted, RowsMasked
from blindbayes.protocol.core import Role, Run, Send, receive
from blindbayes.protocol.transfer import agree, mark, require_mark
from blindbayes.statistics import CodedRows
from blindbayes.wire import U64Array

_BLOCK_BYTES = 1 << 24  # of one message, about
_MAX_BLOCK = 1 << 16
_DOMAINS = Domain.TRANSFER, Domain.TREE
_ROWS_AT_ONCE = 1 << 11  # expanded at once: keeps leaves and rows in the cache


@dataclass(frozen=True, slots=True)
class ClassSumsSetup:
    """What is public about one run of class_sums."""

    rows: int
    words: int  # per row
    classes: int
    facts: bytes = b""  # anything else both must agree on
    stretch: int = 0  # rows that are added up together; 0: all

    def __post_init__(self) -> None:
        if self.classes < 2 or self.rows < 1 or self.words < 1 or self.stretch < 0:
            raise LocalProtocolError("class_sums needs rows, words and at least two classes")

    @property
    def levels(self) -> int:
        """Levels of a row's tree."""
        return bits_for(self.classes)

    @property
    def level_sums(self) -> int:
        """Sums of nodes that are sent per row: two for each level below the first, or one where one node alone is split."""
        return sum(1 if _splits(level, self) == 1 else 2 for level in range(2, self.levels + 1))

    @property
    def stretches(self) -> int:
        """How many sums come out for each class."""
        return -(-self.rows // (self.stretch or self.rows))

    @property
    def block(self) -> int:
        """Rows per message, at most."""
        fits = _BLOCK_BYTES // (8 * self.words + 32 * self.levels)
        return max(64, min(_MAX_BLOCK, 1 << (max(1, fits).bit_length() - 1)))

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Sizes of the blocks, and the stretch of each."""
        stretch = self.stretch or self.rows
        for number in range(self.stretches):
            size = min(stretch, self.rows - number * stretch)
            for low in range(0, size, self.block):
                yield min(self.block, size - low), number

    def agreed(self) -> bytes:
        """Bytes of all of it."""
        return repr((self.rows, self.words, self.classes, self.stretch)).encode() + self.facts


@dataclass(frozen=True, slots=True)
class Coded:
    """A block of rows that become words where they are wanted."""

    layout: RowLayout
    block: CodedRows

    def __len__(self) -> int:
        return self.block.rows

    def write(self, part: slice, out: U64Array) -> None:
        """Some rows as words."""
        self.layout.write(self.block, part, out)


def attribute_holder(
    run: Run,
    class_holder_name: str,
    shape: ClassSumsSetup,
    blocks: Iterable[U64Array | Coded],
    ot_sender: OtSender,
    coins: Coins,
) -> Role[U64Array]:
    """The party with the rows, words (rows, words) in blocks of any size. Returns its share, (classes, stretches * words)."""
    session = yield from agree(run, class_holder_name, "class_sums", shape.agreed(), coins)  # step 1
    stream = ot_sender.session(session)
    share = np.zeros((shape.stretches, shape.classes, shape.words + 1), dtype=np.uint64)
    source = _Rows(blocks, shape.words)
    for index, (count, stretch) in enumerate(shape.blocks()):
        hash_, masked = TweakedHash.of_block(session, index), source.take(count)
        chosen = yield from receive(class_holder_name, ClassesChosen)
        require_mark(chosen.mark, session, ClassesChosen, index, class_holder_name)
        q = stream.extend(chosen.corrections, count * shape.levels, class_holder_name).reshape(count, shape.levels, 2)
        leaves, sums = _grow(hash_, q, ot_sender.delta, shape)  # step 3
        _mask(hash_, leaves, masked, share[stretch])  # step 4
        yield Send(class_holder_name, RowsMasked(mark(session, RowsMasked, index), sums.reshape(-1), masked.reshape(-1)))
    source.require_end()
    counted = share[:, :, -1].sum(axis=0, dtype=np.uint64)
    yield Send(class_holder_name, RowsCounted(mark(session, RowsCounted, 0), counted))  # step 7
    return _flat(share)


def class_holder(
    run: Run,
    attribute_holder_name: str,
    shape: ClassSumsSetup,
    labels: Iterable[npt.NDArray[np.int64]],
    ot_receiver: OtReceiver,
    coins: Coins,
) -> Role[U64Array]:
    """The party with the class of every row, in blocks of any size. Returns its share, (classes, stretches * words)."""
    session = yield from agree(run, attribute_holder_name, "class_sums", shape.agreed(), coins)  # step 1
    stream = ot_receiver.session(session)
    share = np.zeros((shape.stretches, shape.classes, shape.words + 1), dtype=np.uint64)
    rows = np.zeros(shape.classes, dtype=np.uint64)
    source = _Labels(labels)
    for index, (count, stretch) in enumerate(shape.blocks()):
        hash_, own = TweakedHash.of_block(session, index), source.take(count)
        if not 0 <= own.min() <= own.max() < shape.classes:
            raise LocalProtocolError("every row needs one of the classes")
        sides = _sides(own, shape)
        corrections, t = stream.extend(sides)
        yield Send(attribute_holder_name, ClassesChosen(mark(session, ClassesChosen, index), corrections))  # step 2
        sent = yield from receive(attribute_holder_name, RowsMasked)
        require_mark(sent.mark, session, RowsMasked, index, attribute_holder_name)
        if sent.levels.size != 2 * count * shape.level_sums or sent.rows.size != count * (shape.words + 1):
            raise PeerProtocolError("a block of masked rows has the wrong length", party=attribute_holder_name)
        sums = sent.levels.reshape(shape.level_sums, count, 2)
        leaves = _regrow(hash_, t.reshape(count, shape.levels, 2), own, sides, sums, shape)  # step 5
        rows += np.array([np.count_nonzero(own == label) for label in range(shape.classes)], dtype=np.uint64)
        _unmask(hash_, leaves, sent.rows.reshape(count, shape.words + 1), own, share[stretch])  # step 6
    source.require_end()
    counted = yield from receive(attribute_holder_name, RowsCounted)
    require_mark(counted.mark, session, RowsCounted, 0, attribute_holder_name)
    if counted.share.shape != rows.shape:
        raise PeerProtocolError("the share of the rows per class has the wrong length", party=attribute_holder_name)
    _require_counts(counted.share + share[:, :, -1].sum(axis=0, dtype=np.uint64), rows, attribute_holder_name)  # step 7
    return _flat(share)


def _flat(share: U64Array) -> U64Array:
    """(stretches, classes, words and the count) to (classes, words of all stretches)."""
    return np.ascontiguousarray(share[:, :, :-1].transpose(1, 0, 2)).reshape(share.shape[1], -1)


def _mask(hash_: TweakedHash, leaves: Block128, masked: U64Array, share: U64Array) -> None:
    """Take the expanded leaves (classes, rows, 2) off the rows, and add those of each class to its line of the share."""
    (classes, count, _), width = leaves.shape, masked.shape[1]
    each = -(-width // 2)
    first = hash_.reserve(Domain.LEAF, classes * count * each)
    if hash_.kernel is not None and width <= kernels.MOST_WORDS:
        hash_.kernel.mask_rows(hash_.schedule, leaves, first, Domain.LEAF, masked, share)
        return
    for low in range(0, count, _ROWS_AT_ONCE):
        part = slice(low, min(count, low + _ROWS_AT_ONCE))
        for label, leaf in enumerate(leaves):
            pad = hash_.expand(leaf[part], Domain.LEAF, first + (label * count + low) * each, width, keep=False)
            masked[part] -= pad
            share[label] += column_sums(pad)


def _unmask(hash_: TweakedHash, leaves: Block128, masked: U64Array, own: npt.NDArray[np.int64], share: U64Array) -> None:
    """Take the expanded leaves off the share, class by class; add each row, and all its leaves, to the line of its class. The
    leaf of a row's own class is unknown. What stands in its place is taken off the class's share, and is in the row's total:
    so the share grows by row - g_c, as it should. The same operations for every row, whatever its class."""
    (classes, count, _), width = leaves.shape, masked.shape[1]
    each = -(-width // 2)
    first = hash_.reserve(Domain.LEAF, classes * count * each)
    if hash_.kernel is not None and width <= kernels.MOST_WORDS:
        hash_.kernel.unmask_rows(hash_.schedule, leaves, own, first, Domain.LEAF, masked, share)
        return
    picked = np.empty((min(count, _ROWS_AT_ONCE), width), dtype=np.uint64)
    for low in range(0, count, _ROWS_AT_ONCE):
        part = slice(low, min(count, low + _ROWS_AT_ONCE))
        total = masked[part].copy()
        for label, leaf in enumerate(leaves):
            pad = hash_.expand(leaf[part], Domain.LEAF, first + (label * count + low) * each, width, keep=False)
            total += pad
            share[label] -= column_sums(pad)
        rest = column_sums(total)
        for label in range(1, classes):
            mine = np.uint64(0) - (own[part] == label).astype(np.uint64)[:, None]
            found = column_sums(np.bitwise_and(total, mine, out=picked[: len(total)]))
            share[label] += found
            rest -= found
        share[0] += rest


def _require_counts(found: U64Array, rows: U64Array, party: str) -> None:
    """Refuse sums in which a row does not count once: a leaf or a row is not what it should be."""
    if not np.array_equal(found, rows):
        raise IntegrityError(party=party)


class _Source:
    """Blocks of any size, taken in the protocol's."""

    def __init__(self, blocks: Iterable[Any]) -> None:
        self._blocks, self._block, self._at = iter(blocks), None, 0

    def parts(self, count: int) -> Iterator[tuple[Any, slice, slice]]:
        """Blocks with so many rows in all: the block, which of its rows, and where they go."""
        done = 0
        while done < count:
            if self._block is None or self._at == len(self._block):
                self._block, self._at = next(self._blocks, None), 0
                if self._block is None:
                    raise LocalProtocolError("there are fewer rows than declared")
            some = min(count - done, len(self._block) - self._at)
            yield self._block, slice(self._at, self._at + some), slice(done, done + some)
            self._at, done = self._at + some, done + some

    def require_end(self) -> None:
        if (self._block is not None and self._at < len(self._block)) or next(self._blocks, None) is not None:
            raise LocalProtocolError("there are more rows than declared")


class _Rows(_Source):
    """Rows of words."""

    def __init__(self, blocks: Iterable[U64Array | Coded], words: int) -> None:
        super().__init__(blocks)
        self._words = words

    def take(self, count: int) -> U64Array:
        """(count, words + 1): a row counts one in the last word."""
        taken = np.empty((count, self._words + 1), dtype=np.uint64)
        for block, part, to in self.parts(count):
            if isinstance(block, Coded) and block.layout.words == self._words:
                block.write(part, taken[to, :-1])
            elif isinstance(block, np.ndarray) and block.shape[1:] == (self._words,) and block.dtype == np.uint64:
                taken[to, :-1] = block[part]
            else:
                raise LocalProtocolError("rows are of another kind than declared")
        taken[:, -1] = 1
        return taken


class _Labels(_Source):
    """Classes of rows."""

    def take(self, count: int) -> npt.NDArray[np.int64]:
        parts = []
        for block, part, _ in self.parts(count):
            if block.ndim != 1 or block.dtype != np.int64:
                raise LocalProtocolError("classes are of another kind than declared")
            parts.append(block[part])
        return np.concatenate(parts) if len(parts) > 1 else np.ascontiguousarray(parts[0])


# -- trees ---------------------------------------------------------------------------------------------------------------
#
# Level 1 of a row's tree is the pair of pads of its first transfer, so it costs no message. Below, each node is expanded into
# two children, but for the last one of a level where only one of its two halves holds classes: it stands on the next level
# unchanged. So a level has no node that leads to no class, and a chooser misses exactly one leaf whatever it chooses (SPEC.md).
# Where one node alone is split, its children are the pads of the level's transfer, and the sum of both goes out under a hash of
# the node: who has the node gets the other one, who lacks it has one of them already.


def _sides(own: npt.NDArray[np.int64], shape: ClassSumsSetup) -> Bits:
    """(rows, levels): on each level the side that is not on the path of the row's class, from the top."""
    return (1 - ((own[:, None] >> np.arange(shape.levels - 1, -1, -1)) & 1)).astype(np.uint8)


def _splits(level: int, shape: ClassSumsSetup) -> int:
    """How many nodes have two children on `level` (1 = the two below the root). At most one node is carried over."""
    return -(-shape.classes >> (shape.levels - level)) // 2


def _grow(hash_: TweakedHash, q: Block128, delta: Block128, shape: ClassSumsSetup) -> tuple[Block128, U64Array]:
    """All leaves (classes, rows, 2), and the level sums under pads (level_sums, rows, 2)."""
    if hash_.kernel is not None and shape.classes <= kernels.MOST_CLASSES:
        firsts, own = _reserve(hash_, len(q), shape), np.ascontiguousarray(q)
        return hash_.kernel.grow(hash_.schedule, own, delta, shape.classes, shape.level_sums, firsts, _DOMAINS)
    nodes, sums = list(sender_pads(hash_, q[:, :1], delta, 2, 2)), []
    for level in range(2, shape.levels + 1):
        splits = _splits(level, shape)
        children = [] if splits == 1 else _children(hash_, nodes[:splits])
        under = _under(hash_, nodes[0]) if splits == 1 else None
        pads = sender_pads(hash_, q[:, level - 1 : level], delta, 2, 2)
        if under is not None:
            sums.append(pads[0] ^ pads[1] ^ under)
            children = list(pads)
        else:
            sums += [functools.reduce(np.bitwise_xor, children[side::2], pads[side]) for side in (0, 1)]
        nodes = children + nodes[splits:]
    return np.stack(nodes), np.stack(sums) if sums else np.zeros((0, len(q), 2), dtype=np.uint64)


def _reserve(hash_: TweakedHash, count: int, shape: ClassSumsSetup) -> tuple[int, int]:
    """The tweaks of a block's transfers and trees, as the steps below reserve them one by one."""
    splits = [_splits(level, shape) for level in range(2, shape.levels + 1)]
    trees = count * sum(1 if each == 1 else 2 * each for each in splits)
    return hash_.reserve(Domain.TRANSFER, 2 * count * shape.levels), hash_.reserve(Domain.TREE, trees)


def _children(hash_: TweakedHash, nodes: list[Block128]) -> list[Block128]:
    """Two of each node."""
    count = nodes[0].shape[0]
    children: list[Block128] = []
    first = hash_.reserve(Domain.TREE, 2 * count * len(nodes))
    for position, node in enumerate(nodes):
        both = hash_.expand(node, Domain.TREE, first + 2 * count * position, 4, keep=False)
        children.extend((both[:, :2].copy(), both[:, 2:].copy()))  # of one row too, which needs no room of its own
    return children


def _under(hash_: TweakedHash, node: Block128) -> Block128:
    """What hides the sum of a node's children from who lacks the node."""
    return hash_.run(node, Domain.TREE, hash_.reserve(Domain.TREE, len(node)))


def _regrow(
    hash_: TweakedHash, t: Block128, own: npt.NDArray[np.int64], sides: Bits, sums: U64Array, shape: ClassSumsSetup
) -> Block128:
    """All leaves but the one on each row's path (noise stands in its place). The same operations whatever the path."""
    if hash_.kernel is not None and shape.classes <= kernels.MOST_CLASSES:
        firsts = _reserve(hash_, len(t), shape)
        return hash_.kernel.regrow(hash_.schedule, t, own, shape.classes, sums, firsts, _DOMAINS)
    path = 1 - sides.astype(np.int64)
    known = chooser_pads(hash_, t[:, :1], sides[:, 0].astype(np.uint64), 2, 2)
    nodes = [known.copy() for _ in range(2)]  # right where the node is on the chosen side
    missing, at = path[:, 0], 0
    for level in range(2, shape.levels + 1):
        splits, side = _splits(level, shape), sides[:, level - 1]
        right = _full(side == 1)
        children = [] if splits == 1 else _children(hash_, nodes[:splits])
        under = _under(hash_, nodes[0]) if splits == 1 else None
        pads = chooser_pads(hash_, t[:, level - 1 : level], side.astype(np.uint64), 2, 2)
        if under is not None:
            change = sums[at] ^ under  # between the two children
            children = [pads ^ (change & right), pads ^ (change & ~right)]
        else:
            total = sums[at] ^ ((sums[at] ^ sums[at + 1]) & right) ^ pads
            # The sum of the chosen side minus its known nodes is the sibling of the next node on the path.
            sibling = 2 * missing + side
            places = [_full(sibling == position) for position in range(2 * splits)]
            for position, (child, here) in enumerate(zip(children, places, strict=True)):
                total ^= child & ~here & (right if position & 1 else ~right)
            for child, here in zip(children, places, strict=True):
                child ^= (child ^ total) & here
        at += 1 if splits == 1 else 2
        missing = 2 * missing + path[:, level - 1] * (missing < splits)
        nodes = children + nodes[splits:]
    return np.stack(nodes)


def _full(chosen: npt.NDArray[np.bool_]) -> Block128:
    """A block of ones where chosen, of zeros elsewhere; laid out in full, since numpy stretches a column slowly."""
    return np.repeat(np.uint64(0) - chosen.astype(np.uint64), 2).reshape(-1, 2)
