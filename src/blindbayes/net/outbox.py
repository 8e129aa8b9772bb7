"""Messages on their way to one party: numbered, kept until the peer has them on disk, cut into parts for the envelope."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from blindbayes.net.envelope import PART_BYTES
from blindbayes.net.journal import SentDigest


@dataclass(frozen=True, slots=True)
class MessagePart:
    step: str
    index: int
    part: int
    parts: int
    body: memoryview = field(repr=False)


class Outbox:
    """The queue of outgoing messages. Sans I/O: it says what comes next and keeps account."""

    def __init__(self, window: int, account: SentDigest) -> None:
        self._window = window
        self._sent = account
        self._digests: list[bytes] = [self._sent.digest]
        self._pending: deque[tuple[int, str, bytes]] = deque()
        self._bytes = 0
        self._cursor = 0  # next message to send in this session
        self._part = 0
        self.acked = 0  # messages that the other side has on disk

    @property
    def count(self) -> int:
        return self._sent.count

    @property
    def sent(self) -> int:
        """Number of messages sent whole in this session, or acknowledged."""
        return self._cursor

    @property
    def is_empty(self) -> bool:
        return not self._pending

    def digest(self, count: int) -> bytes:
        """Return the running digest of the first `count` messages."""
        return self._digests[count]

    def fits(self, size: int) -> bool:
        """Return True if a message of this size fits the window. A single message may be larger."""
        return not self._pending or self._bytes + size <= self._window

    def add(self, step: str, payload: bytes) -> None:
        index = self._sent.count
        self._sent.add(step, payload)
        self._digests.append(self._sent.digest)
        if index >= self.acked:
            self._pending.append((index, step, payload))
            self._bytes += len(payload)

    def acknowledge(self, have: int) -> None:
        """Drop the first `have` messages: the peer has them on disk."""
        self.acked = max(self.acked, have)
        while self._pending and self._pending[0][0] < have:
            self._bytes -= len(self._pending.popleft()[2])
        if have > self._cursor:
            self._cursor, self._part = have, 0

    def rewind(self, have: int, part: int = 0) -> None:
        """Continue after the first `have` messages and some parts of the next: in a new session, or when frames were lost."""
        self.acknowledge(have)
        known = have < self._sent.count and 0 <= part < _parts(self._pending[have - self._pending[0][0]][2])
        self._cursor, self._part = have, part if known else 0

    def next_part(self) -> MessagePart | None:
        """Return the next part to send in this session, or None."""
        if not self._pending or self._cursor > self._pending[-1][0]:
            return None
        index, step, payload = self._pending[self._cursor - self._pending[0][0]]
        parts = _parts(payload)
        part, self._part = self._part, self._part + 1
        if self._part == parts:
            self._cursor, self._part = index + 1, 0
        return MessagePart(step, index, part, parts, memoryview(payload)[part * PART_BYTES : (part + 1) * PART_BYTES])


def _parts(payload: bytes) -> int:
    return max(1, -(-len(payload) // PART_BYTES))
