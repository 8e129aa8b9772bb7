"""Messages of class_sums."""

from __future__ import annotations

from blindbayes.wire import MaskedMessage, U64Array


class ClassesChosen(MaskedMessage, frozen=True):
    """Corrections of the transfers by which the class holder chooses, for one block of rows."""

    mark: int
    corrections: U64Array


class RowsCounted(MaskedMessage, frozen=True):
    """The attribute holder's share of the number of rows of each class, which the class holder knows."""

    mark: int
    share: U64Array


class RowsMasked(MaskedMessage, frozen=True):
    """Level sums of the rows' trees under transfer pads, and the rows minus all their expanded leaves."""

    mark: int
    levels: U64Array
    rows: U64Array
