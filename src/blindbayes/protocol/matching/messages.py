"""Messages of matching, beside those of the oblivious function (`joined_sums`)."""

from __future__ import annotations

from typing import ClassVar

from blindbayes.wire import Message, Trust, U64Array


class ValuesListed(Message, frozen=True):
    """A piece of the function's values at all items of the owner, padded and sorted: one each."""

    trust: ClassVar[Trust] = Trust.MASKED
    mark: int
    values: U64Array


class MatchesTold(Message, frozen=True):
    """The names of the items that match, sorted. A name is a function of item and session: it says which item, nothing else."""

    trust: ClassVar[Trust] = Trust.CLEAR
    mark: int
    names: U64Array
