"""Messages of matching; those of the oblivious function are joined_sums's."""

from __future__ import annotations

from blindbayes.wire import ClearMessage, Marked, MaskedMessage, U64Array


class ValuesListed(Marked, MaskedMessage, frozen=True):
    """A piece of the function's values at all items of the owner, padded and sorted: one each."""

    values: U64Array


class MatchesTold(Marked, ClearMessage, frozen=True):
    """The names of the items that match, sorted. A name is a function of item and session: it says which item, nothing else."""

    names: U64Array
