"""Messages of joined_scores. Those of the oblivious function and of the store are joined_sums's."""

from __future__ import annotations

from typing import ClassVar

from blindbayes.wire import Message, Trust, U64Array


class BinsCommitted(Message, frozen=True):
    """A hash of the scorer's part of what names the bins."""

    trust: ClassVar[Trust] = Trust.KEY
    mark: int
    commitment: bytes


class BinsOffered(Message, frozen=True):
    """A helper's part of what names the bins."""

    trust: ClassVar[Trust] = Trust.KEY
    mark: int
    seed: bytes


class BinsFixed(Message, frozen=True):
    """The scorer's part, and those of all helpers."""

    trust: ClassVar[Trust] = Trust.KEY
    mark: int
    seed: bytes
    offered: bytes


class CodesChosen(Message, frozen=True):
    """Corrections of the transfers by which the helper enters its tags and masks into the comparison of a block of bins."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    corrections: U64Array


class CodesCompared(Message, frozen=True):
    """Garbled comparisons of a block of bins, the scorer's table entries under the labels of their outcomes, and corrections
    of the transfers by which it chooses in the helper's tables."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    tables: U64Array
    entries: U64Array
    corrections: U64Array


class CodesAnswered(Message, frozen=True):
    """The helper's table entries for a block of bins, under transfer pads."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    entries: U64Array


class ScoresGated(Message, frozen=True):
    """Shares of the scores of a block of bins, under pads of which the reader can open one: theirs, or those of zero."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    entries: U64Array


class SharedTold(Message, frozen=True):
    """The helper's shares of the bits that say which identifiers of the scorer it has too, if the scope is "shared"."""

    trust: ClassVar[Trust] = Trust.SHARE
    mark: int
    bits: U64Array
