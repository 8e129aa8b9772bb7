"""Where a role stands, for people, and what it ends in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from blindbayes.wire import Message
from blindbayes.wire.transcript import Amount, PartyCost, Way


@dataclass(slots=True)
class Progress:
    """Where a role stands, for people. No value of any message."""

    state: str = "joining"  # joining, running, finishing, done, failed
    kind: str = ""  # the message waited for
    waiting_for: tuple[str, ...] = ()
    arrived: int = 0
    wanted: int = 0
    since: float = 0.0  # by the loop's clock: when this wait began
    deadline: float | None = None
    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    cpu_seconds: float = 0.0
    received: Counter[type[Message]] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Finished:
    """What a role returned, and what it opened on the way."""

    value: Any = field(repr=False)
    opened: tuple[str, ...]
    received: Mapping[type[Message], int]
    lost: tuple[str, ...]  # parties the role went on without
    cost: PartyCost
    traffic: Mapping[Way, Amount] = field(default_factory=dict)
    receipts: Mapping[str, bytes] = field(default_factory=dict, repr=False)  # by role, its own too, as they were sent
