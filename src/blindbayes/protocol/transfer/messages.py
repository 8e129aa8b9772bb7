"""Messages of the transfer setup."""

from __future__ import annotations

from typing import ClassVar

from blindbayes.wire import Message, Trust


class SessionOffered(Message, frozen=True):
    """A fresh nonce, and the digest of what this party takes to be public."""

    trust: ClassVar[Trust] = Trust.KEY
    nonce: bytes
    digest: bytes


class CoinsCommitted(Message, frozen=True):
    """A commitment to one's part of a random choice."""

    trust: ClassVar[Trust] = Trust.KEY
    mark: int
    commitment: bytes


class CoinsAnswered(Message, frozen=True):
    """The other's part."""

    trust: ClassVar[Trust] = Trust.KEY
    mark: int
    part: bytes


class CoinsOpened(Message, frozen=True):
    """The part that was committed to."""

    trust: ClassVar[Trust] = Trust.KEY
    mark: int
    part: bytes


class PointsChosen(Message, frozen=True):
    """Two points per base transfer."""

    trust: ClassVar[Trust] = Trust.KEY
    mark: int
    points: bytes


class TreesPlanted(Message, frozen=True):
    """The base point, and the level sums of the trees under the base keys."""

    trust: ClassVar[Trust] = Trust.ENCRYPTED
    mark: int
    point: bytes
    corrections: bytes
