"""Roles of class_sums. Step numbers as in SPEC.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.ot import trees
from blindbayes.crypto.ot.base import bits_for
from blindbayes.crypto.ot.softspoken import OtReceiver, OtSender
from blindbayes.crypto.tweaks import TweakedHash
from blindbayes.errors import IntegrityError, LocalProtocolError, PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, mark, receive_marked
from blindbayes.protocols.shared_training.class_sums.layout import RowLayout
from blindbayes.protocols.shared_training.class_sums.messages import ClassesChosen, RowsCounted, RowsMasked
from blindbayes.protocols.two_party.transfer.roles import agree
from blindbayes.statistics import CodedRows
from blindbayes.wire import U64Array

_BLOCK_BYTES = 1 << 24  # of one message, about
_MAX_BLOCK = 1 << 16


@dataclass(frozen=True, slots=True)
class ClassSumsSetup:
    """The public facts of one run of class_sums."""

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
        return bits_for(self.classes)

    @property
    def level_sums(self) -> int:
        """Sums of nodes that are sent per row: two per level below the first, or one where a single node is split."""
        return trees.level_sums(self.classes)

    @property
    def stretches(self) -> int:
        return -(-self.rows // (self.stretch or self.rows))

    @property
    def block(self) -> int:
        """Maximum number of rows per message."""
        fits = _BLOCK_BYTES // (8 * self.words + 32 * self.levels)
        return max(64, min(_MAX_BLOCK, 1 << (max(1, fits).bit_length() - 1)))

    def blocks(self) -> Iterator[tuple[int, int]]:
        """Return the sizes of the blocks, and the stretch of each."""
        stretch = self.stretch or self.rows
        for number in range(self.stretches):
            size = min(stretch, self.rows - number * stretch)
            for low in range(0, size, self.block):
                yield min(self.block, size - low), number

    def agreed(self) -> bytes:
        return repr((self.rows, self.words, self.classes, self.stretch)).encode() + self.facts


@dataclass(frozen=True, slots=True)
class Coded:
    """A block of rows that are encoded as words on demand."""

    layout: RowLayout
    block: CodedRows

    def __len__(self) -> int:
        return self.block.rows

    def write(self, part: slice, out: U64Array) -> None:
        self.layout.write(self.block, part, out)


def attribute_holder(
    run: Run,
    class_holder_name: str,
    shape: ClassSumsSetup,
    blocks: Iterable[U64Array | Coded],
    ot_sender: OtSender,
    coins: Coins,
) -> Role[U64Array]:
    """Run the party with the rows, words (rows, words) in blocks of any size; return its share, (classes, sums)."""
    session = yield from agree(run, class_holder_name, "class_sums", shape.agreed(), coins)  # step 1
    stream = ot_sender.session(session)
    share = np.zeros((shape.stretches, shape.classes, shape.words + 1), dtype=np.uint64)
    source = _Rows(blocks, shape.words)
    for index, (count, stretch) in enumerate(shape.blocks()):
        hash_, masked = TweakedHash.for_block(session, index), source.take(count)
        chosen = yield from receive_marked(class_holder_name, ClassesChosen, session, index)
        q = stream.extend(chosen.corrections, count * shape.levels, class_holder_name).reshape(count, shape.levels, 2)
        leaves, sums = trees.grow(hash_, q, ot_sender.delta, shape.classes)  # step 3
        trees.mask(hash_, leaves, masked, share[stretch])  # step 4
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
    """Run the party with the class of every row, in blocks of any size; return its share, (classes, sums)."""
    session = yield from agree(run, attribute_holder_name, "class_sums", shape.agreed(), coins)  # step 1
    stream = ot_receiver.session(session)
    share = np.zeros((shape.stretches, shape.classes, shape.words + 1), dtype=np.uint64)
    rows = np.zeros(shape.classes, dtype=np.uint64)
    source = _Labels(labels)
    for index, (count, stretch) in enumerate(shape.blocks()):
        hash_, own = TweakedHash.for_block(session, index), source.take(count)
        if not 0 <= own.min() <= own.max() < shape.classes:
            raise LocalProtocolError("every row needs one of the classes")
        sides = trees.sides(own, shape.classes)
        corrections, t = stream.extend(sides)
        yield Send(attribute_holder_name, ClassesChosen(mark(session, ClassesChosen, index), corrections))  # step 2
        sent = yield from receive_marked(attribute_holder_name, RowsMasked, session, index)
        if sent.levels.size != 2 * count * shape.level_sums or sent.rows.size != count * (shape.words + 1):
            raise PeerProtocolError("a block of masked rows has the wrong length", party=attribute_holder_name)
        sums = sent.levels.reshape(shape.level_sums, count, 2)
        leaves = trees.regrow(hash_, t.reshape(count, shape.levels, 2), own, sides, sums, shape.classes)  # step 5
        rows += np.array([np.count_nonzero(own == label) for label in range(shape.classes)], dtype=np.uint64)
        trees.unmask(hash_, leaves, sent.rows.reshape(count, shape.words + 1), own, share[stretch])  # step 6
    source.require_end()
    counted = yield from receive_marked(attribute_holder_name, RowsCounted, session, 0)
    if counted.share.shape != rows.shape:
        raise PeerProtocolError("the share of the rows per class has the wrong length", party=attribute_holder_name)
    _require_counts(counted.share + share[:, :, -1].sum(axis=0, dtype=np.uint64), rows, attribute_holder_name)  # step 7
    return _flat(share)


def _flat(share: U64Array) -> U64Array:
    return np.ascontiguousarray(share[:, :, :-1].transpose(1, 0, 2)).reshape(share.shape[1], -1)


def _require_counts(counted: U64Array, rows: U64Array, party: str) -> None:
    """Raise unless every row counts exactly once in the sums; otherwise the peer changed a leaf or a row."""
    if not np.array_equal(counted, rows):
        raise IntegrityError(party=party)


class _Source:
    """A stream of blocks of any size, cut into the protocol's blocks."""

    def __init__(self, blocks: Iterable[Any]) -> None:
        self._blocks, self._block, self._at = iter(blocks), None, 0

    def parts(self, count: int) -> Iterator[tuple[Any, slice, slice]]:
        """Yield parts of blocks with `count` rows in all: the block, which of its rows, and where they go."""
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
    def __init__(self, blocks: Iterable[U64Array | Coded], words: int) -> None:
        super().__init__(blocks)
        self._words = words

    def take(self, count: int) -> U64Array:
        """Return (count, words + 1): a row counts one in the last word."""
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
    def take(self, count: int) -> npt.NDArray[np.int64]:
        parts = []
        for block, part, _ in self.parts(count):
            if block.ndim != 1 or block.dtype != np.int64:
                raise LocalProtocolError("classes are of another kind than declared")
            parts.append(block[part])
        return np.concatenate(parts) if len(parts) > 1 else np.ascontiguousarray(parts[0])
