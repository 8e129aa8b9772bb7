"""Messages of the transfer setup."""

from __future__ import annotations

from blindbayes.wire import EncryptedMessage, KeyMessage, Marked


class SessionOffered(KeyMessage, frozen=True):
    """A fresh nonce, and the digest of what this party takes to be public."""

    nonce: bytes
    digest: bytes


class CoinsCommitted(Marked, KeyMessage, frozen=True):
    """A commitment to one party's part of a random choice."""

    commitment: bytes


class CoinsAnswered(Marked, KeyMessage, frozen=True):
    """The other party's part."""

    part: bytes


class CoinsOpened(Marked, KeyMessage, frozen=True):
    """The part that was committed to."""

    part: bytes


class PointsChosen(Marked, KeyMessage, frozen=True):
    """Two points per base transfer."""

    points: bytes


class TreesPlanted(Marked, EncryptedMessage, frozen=True):
    """The base point, and the level sums of the trees under the base keys."""

    point: bytes
    corrections: bytes
