"""Messages of class_sums."""

from __future__ import annotations

from typing import ClassVar

from blindbayes.wire import Message, Trust, U64Array


class ClassesChosen(Message, frozen=True):
    """Corrections of the transfers by which the class holder chooses, for one block of rows."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    corrections: U64Array


class RowsCounted(Message, frozen=True):
    """The attribute holder's share of the number of rows of each class, which the class holder knows."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    share: U64Array


class RowsMasked(Message, frozen=True):
    """Level sums of the rows' trees under transfer pads, and the rows minus all their expanded leaves."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    levels: U64Array
    rows: U64Array
