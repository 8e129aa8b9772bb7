"""Messages of set_intersection and distorted_intersection."""

from __future__ import annotations

from blindbayes.wire import EncryptedMessage


class ItemsLocked(EncryptedMessage, frozen=True):
    """Group elements under the sender's secret power, in an order that says nothing."""

    elements: bytes


class ItemsLockedTwice(EncryptedMessage, frozen=True):
    """The receiver's own elements under both powers."""

    elements: bytes
