"""What a run left behind: who sent what kind of message to whom, what it cost, what was opened."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field

from blindbayes.wire import Message, Trust


class Keep(enum.Enum):
    """How much of the messages a driver keeps. Counts are always kept."""

    COUNTS = "counts"  # nothing per message: for thousands of parties
    HEADERS = "headers"  # who, to whom, kind, size
    FRAMES = "frames"  # and the bytes, and what each role was handed: for views, replay and simulators


@dataclass(frozen=True, slots=True)
class SentMessage:
    """One message on the wire."""

    index: int  # order of sending in the run
    sender: str
    to: str
    kind: type[Message]
    depth: int  # length of the longest chain of messages that ends in this one
    size: int  # bytes of the frame
    frame: bytes | None = field(default=None, repr=False)

    @property
    def trust(self) -> Trust:
        """What the receiver holds with it."""
        return self.kind.trust


Delivery = tuple[tuple[str, bytes], ...]
"""What satisfied one `Receive` or `ReceiveAll`: pairs of sender and frame. A role's journal is a sequence of them."""


Way = tuple[str, str, type[Message]]
"""Sender, receiver and kind of messages."""
Amount = tuple[int, int]
"""How many messages, and their bytes."""


@dataclass(slots=True)
class Transcript:
    """The messages of a run, as far as they were kept, and per party the kinds that it was handed."""

    keep: Keep
    entries: list[SentMessage] = field(default_factory=list)
    deliveries: dict[str, list[Delivery]] = field(default_factory=dict)
    received: dict[str, Counter[type[Message]]] = field(default_factory=dict)
    traffic: dict[Way, Amount] = field(default_factory=dict)  # of a site, which sees its own messages only, as they first came


@dataclass(slots=True)
class PartyCost:
    """What a run cost one party."""

    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    effects: int = 0
    seconds: float = 0.0  # CPU time inside the role


@dataclass(slots=True)
class Cost:
    """What a run cost. `rounds` is causal depth: the longest chain of messages that each wait for the one before."""

    rounds: int = 0
    messages: int = 0
    bytes: int = 0
    parties: dict[str, PartyCost] = field(default_factory=dict)
