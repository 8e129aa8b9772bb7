"""Transcript of a run: who sent which kind of message to whom, and what it cost."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field

from blindbayes.wire import Message, Trust


class Keep(enum.Enum):
    """Amount of detail that a driver records of messages."""

    COUNTS = "counts"  # nothing per message: for thousands of parties
    HEADERS = "headers"  # who, to whom, kind, size
    FRAMES = "frames"  # headers, bytes and the deliveries of each role: for views, replay and simulators


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message on the wire."""

    index: int  # order of sending in the run
    sender: str
    to: str
    kind: type[Message]
    depth: int  # length of the longest chain of messages that ends in this one
    size: int  # bytes of the frame
    frame: bytes | None = field(default=None, repr=False)

    @property
    def trust(self) -> Trust:
        return self.kind.trust


Delivery = tuple[tuple[str, bytes], ...]
"""Answer to one `Receive` or `ReceiveAll`: pairs of sender and frame. A role's journal is a sequence of them."""

Way = tuple[str, str, type[Message]]
"""Sender, receiver and kind of messages."""
Amount = tuple[int, int]
"""Number of messages, and their bytes."""


@dataclass(slots=True)
class Transcript:
    """The recorded messages of a run, and the kinds that each party received."""

    keep: Keep
    entries: list[SentMessage] = field(default_factory=list)
    deliveries: dict[str, list[Delivery]] = field(default_factory=dict)
    received: dict[str, Counter[type[Message]]] = field(default_factory=dict)
    traffic: dict[Way, Amount] = field(default_factory=dict)  # at a site, in order of first arrival


@dataclass(slots=True)
class PartyCost:
    """Cost of a run for one party."""

    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    effects: int = 0
    seconds: float = 0.0  # CPU time inside the role


@dataclass(slots=True)
class Cost:
    """Cost of a run; `rounds` is causal depth, the longest chain of messages that wait for one another."""

    rounds: int = 0
    messages: int = 0
    bytes: int = 0
    parties: dict[str, PartyCost] = field(default_factory=dict, repr=False)
