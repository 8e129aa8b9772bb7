"""A courier as polling engines are: once in a round a site hands over what it has, and gets what came in the round before."""

from __future__ import annotations

import asyncio
import random

from support.hub import MemoryHub


class PollHub(MemoryHub):
    """Rounds of about `seconds`, some frames lost."""

    def __init__(self, seconds: float, *, lost: float = 0.0, seed: int = 1) -> None:
        super().__init__()
        self._seconds, self._lost, self._random = seconds, lost, random.Random(seed)
        self._handed: list[tuple[str, str, bytes]] = []
        self._rounds: asyncio.Task[None] | None = None
        self.rounds = 0

    def _carry(self, sender: str, to: str, frame: bytes) -> None:
        if self._random.random() >= self._lost:
            self._handed.append((sender, to, frame))
        if self._rounds is None:
            self._rounds = asyncio.get_running_loop().create_task(self._deliver())

    async def _deliver(self) -> None:
        held: list[tuple[str, str, bytes]] = []
        while True:
            await asyncio.sleep(self._seconds * self._random.uniform(0.7, 1.4))
            self.rounds += 1
            for sender, to, frame in held:
                if to in self._seats:
                    self._seats[to][1].frame_arrived(sender, frame)
            held, self._handed = self._handed, []
