"""Couriers of one process, whose frames a test may count, change, lose or hold back, and whose connections it may cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from blindbayes.errors import ConfigError, PeerLost
from blindbayes.net.courier import Latency, Listener

Filter = Callable[[str, str, bytes], list[bytes]]
"""(sender, receiver, frame) -> the frames that arrive: none, one, changed, several."""


class MemoryHub:
    """Couriers of one process."""

    def __init__(self, alter: Filter | None = None) -> None:
        self.alter = alter
        self._seats: dict[str, tuple[MemoryCourier, Listener]] = {}
        self._cut: set[frozenset[str]] = set()

    def courier(self, name: str) -> MemoryCourier:
        """The courier of one site."""
        return MemoryCourier(self, name)

    def cut(self, one: str, other: str) -> None:
        """Break the connection of two sites."""
        self._cut.add(frozenset((one, other)))
        for me, peer in ((one, other), (other, one)):
            if me in self._seats:
                self._seats[me][1].peer_down(peer)

    def mend(self, one: str, other: str) -> None:
        """Connect two sites again."""
        self._cut.discard(frozenset((one, other)))
        for me, peer in ((one, other), (other, one)):
            if me in self._seats and peer in self._seats:
                self._seats[me][1].peer_up(peer)

    def _joins(self, courier: MemoryCourier, listener: Listener) -> None:
        if courier.name in self._seats:
            raise ConfigError("two sites have the same name")
        for name, (_, other) in self._seats.items():
            if frozenset((name, courier.name)) not in self._cut:
                other.peer_up(courier.name)
                listener.peer_up(name)
        self._seats[courier.name] = (courier, listener)

    def _leaves(self, name: str) -> None:
        self._seats.pop(name, None)
        for other, (_, listener) in self._seats.items():
            if frozenset((name, other)) not in self._cut:
                listener.peer_down(name)

    def _is_up(self, one: str, other: str) -> bool:
        return other in self._seats and one in self._seats and frozenset((one, other)) not in self._cut

    def _carry(self, sender: str, to: str, frame: bytes) -> None:
        listener = self._seats[to][1]
        for each in [frame] if self.alter is None else self.alter(sender, to, frame):
            asyncio.get_running_loop().call_soon(listener.frame_arrived, sender, each)


class MemoryCourier:
    """One site's place at a `MemoryHub`."""

    latency = Latency.MILLISECONDS

    def __init__(self, hub: MemoryHub, name: str) -> None:
        self._hub = hub
        self.name = name

    async def start(self, listener: Listener) -> None:
        self._hub._joins(self, listener)

    async def stop(self) -> None:
        self._hub._leaves(self.name)

    async def send(self, to: str, frame: bytes) -> None:
        if not self._hub._is_up(self.name, to):
            raise PeerLost("not connected", party=to)
        self._hub._carry(self.name, to, frame)
        await asyncio.sleep(0)

    def is_up(self, peer: str) -> bool:
        return self._hub._is_up(self.name, peer)

    def vouches(self, peer: str) -> bool:
        return True
