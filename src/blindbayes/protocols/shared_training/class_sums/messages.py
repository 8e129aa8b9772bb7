"""Messages of class_sums."""

from __future__ import annotations

from blindbayes.wire import Marked, MaskedMessage, U64Array


class ClassesChosen(Marked, MaskedMessage, frozen=True):
    """Corrections of the transfers by which the class holder chooses, for one block of rows."""

    corrections: U64Array


class RowsCounted(Marked, MaskedMessage, frozen=True):
    """The attribute holder's share of the number of rows of each class, which the class holder knows."""

    share: U64Array


class RowsMasked(Marked, MaskedMessage, frozen=True):
    """Level sums of the rows' trees under transfer pads, and the rows minus all their expanded leaves."""

    levels: U64Array
    rows: U64Array
