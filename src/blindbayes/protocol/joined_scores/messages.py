"""Messages of joined_scores. Those of the oblivious function and of the store are joined_sums's."""

from __future__ import annotations

from blindbayes.wire import KeyMessage, MaskedMessage, ShareMessage, U64Array


class BinsCommitted(KeyMessage, frozen=True):
    """A hash of the scorer's part of what names the bins."""

    mark: int
    commitment: bytes


class BinsOffered(KeyMessage, frozen=True):
    """A helper's part of what names the bins."""

    mark: int
    seed: bytes


class BinsFixed(KeyMessage, frozen=True):
    """The scorer's part, and those of all helpers."""

    mark: int
    seed: bytes
    offered: bytes


class CodesChosen(MaskedMessage, frozen=True):
    """Corrections of the transfers by which the helper enters its tags and masks into the comparison of a block of bins."""

    mark: int
    corrections: U64Array


class CodesCompared(MaskedMessage, frozen=True):
    """Garbled comparisons of a block of bins, the scorer's table entries under the labels of their outcomes, and corrections
    of the transfers by which it chooses in the helper's tables."""

    mark: int
    tables: U64Array
    entries: U64Array
    corrections: U64Array


class CodesAnswered(MaskedMessage, frozen=True):
    """The helper's table entries for a block of bins, under transfer pads."""

    mark: int
    entries: U64Array


class ScoresGated(MaskedMessage, frozen=True):
    """Shares of the scores of a block of bins, under pads of which the reader can open one: theirs, or those of zero."""

    mark: int
    entries: U64Array


class SharedTold(ShareMessage, frozen=True):
    """The helper's shares of the bits that say which identifiers of the scorer it has too, if the scope is "shared"."""

    mark: int
    bits: U64Array
