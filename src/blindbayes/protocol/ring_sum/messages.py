"""Messages of the ring sum."""

from __future__ import annotations

from typing import ClassVar

from blindbayes.wire import Message, Trust, U64Array


class PartialPassed(Message, frozen=True):
    """Steps 2 and 3: the starter's mask plus the shares of everybody before on this ring."""

    trust: ClassVar[Trust] = Trust.MASKED
    ring: int
    partial_masked: U64Array


class TotalTold(Message, frozen=True):
    """Step 5: the sum."""

    trust: ClassVar[Trust] = Trust.CLEAR
    total: U64Array
