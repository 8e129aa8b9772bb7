"""Messages of matching, beside those of the oblivious function (`joined_sums`)."""

from __future__ import annotations

from typing import ClassVar

from blindbayes.wire import Message, Trust, Words


class ValuesListed(Message, frozen=True):
    """A piece of the function's values at all items of the owner, sorted, with random ones up to the bound."""

    trust: ClassVar[Trust] = Trust.MASKED
    values: Words


class MatchesTold(Message, frozen=True):
    """The values of the items that match, sorted."""

    trust: ClassVar[Trust] = Trust.CLEAR
    values: Words
