"""Messages of set_intersection and distorted_intersection."""

from __future__ import annotations

from typing import ClassVar

from blindbayes.wire import Message, Trust


class ItemsLocked(Message, frozen=True):
    """Group elements under the sender's secret power, in an order that says nothing."""

    trust: ClassVar[Trust] = Trust.ENCRYPTED
    elements: bytes


class ItemsLockedTwice(Message, frozen=True):
    """The receiver's own elements under both powers."""

    trust: ClassVar[Trust] = Trust.ENCRYPTED
    elements: bytes
