"""Messages of joined_scores. Those of the oblivious function and of the store are joined_sums's."""

from __future__ import annotations

from blindbayes.wire import KeyMessage, Marked, MaskedMessage, ShareMessage, U64Array


class BinsCommitted(Marked, KeyMessage, frozen=True):
    """A hash of the scorer's part of what names the bins."""

    commitment: bytes


class BinsOffered(Marked, KeyMessage, frozen=True):
    """A helper's part of what names the bins."""

    seed: bytes


class BinsFixed(Marked, KeyMessage, frozen=True):
    """The scorer's part, and those of all helpers."""

    seed: bytes
    offered: bytes


class CodesChosen(Marked, MaskedMessage, frozen=True):
    """Corrections of the transfers by which the helper enters its tags and masks into the comparison of a block of bins."""

    corrections: U64Array


class CodesCompared(Marked, MaskedMessage, frozen=True):
    """Garbled comparisons of a block of bins, with the scorer's table entries under the labels of their outcomes.

    The corrections are of the transfers by which it chooses in the helper's tables.
    """

    tables: U64Array
    entries: U64Array
    corrections: U64Array


class CodesAnswered(Marked, MaskedMessage, frozen=True):
    """The helper's table entries for a block of bins, under transfer pads."""

    entries: U64Array


class ScoresGated(Marked, MaskedMessage, frozen=True):
    """Shares of the scores of a block of bins, encrypted twice: the reader can open either the scores or zeros."""

    entries: U64Array


class SharedTold(Marked, ShareMessage, frozen=True):
    """The helper's shares of the bits that say which identifiers of the scorer it has too, if the scope is "shared"."""

    bits: U64Array
