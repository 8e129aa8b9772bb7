"""Messages of set_intersection and distorted_intersection."""

from __future__ import annotations

from blindbayes.wire import EncryptedMessage, KeyMessage


class ItemsLocked(EncryptedMessage, frozen=True):
    """Group elements under the sender's secret power, in an order that says nothing."""

    elements: bytes


class ItemsLockedTwice(EncryptedMessage, frozen=True):
    """The receiver's own elements under both powers."""

    elements: bytes


class PowerProved(KeyMessage, frozen=True):
    """The public key of Bob's secret power, and the proof that he raised all of Alice's elements to it."""

    public: bytes
    proof: bytes
