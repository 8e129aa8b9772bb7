"""Messages of the ring sum."""

from __future__ import annotations

from blindbayes.wire import ClearMessage, MaskedMessage, U64Array


class PartialPassed(MaskedMessage, frozen=True):
    """Steps 2 and 3: the starter's mask plus the shares of everybody before on this ring."""

    ring: int
    partial_masked: U64Array


class TotalTold(ClearMessage, frozen=True):
    """Step 5: the sum."""

    total: U64Array
