"""Messages of the transfer setup."""

from __future__ import annotations

from blindbayes.wire import EncryptedMessage, KeyMessage


class SessionOffered(KeyMessage, frozen=True):
    """A fresh nonce, and the digest of what this party takes to be public."""

    nonce: bytes
    digest: bytes


class CoinsCommitted(KeyMessage, frozen=True):
    """A commitment to one's part of a random choice."""

    mark: int
    commitment: bytes


class CoinsAnswered(KeyMessage, frozen=True):
    """The other's part."""

    mark: int
    part: bytes


class CoinsOpened(KeyMessage, frozen=True):
    """The part that was committed to."""

    mark: int
    part: bytes


class PointsChosen(KeyMessage, frozen=True):
    """Two points per base transfer."""

    mark: int
    points: bytes


class TreesPlanted(EncryptedMessage, frozen=True):
    """The base point, and the level sums of the trees under the base keys."""

    mark: int
    point: bytes
    corrections: bytes
