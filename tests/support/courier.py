"""Two sites on the courier over TLS, and what arrives at them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from blindbayes.net.grpc_courier import GrpcCourier
from blindbayes.net.identity import Identity


class Inbox:
    def __init__(self) -> None:
        self.frames: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self.ups: list[str] = []
        self.downs: list[str] = []

    def frame_arrived(self, sender: str, frame: bytes) -> None:
        self.frames.put_nowait((sender, frame))

    def peer_up(self, peer: str) -> None:
        self.ups.append(peer)

    def peer_down(self, peer: str) -> None:
        self.downs.append(peer)


async def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            await test()

    asyncio.run(bounded())


async def two_sites() -> tuple[GrpcCourier, Inbox, GrpcCourier, Inbox, Identity, Identity]:
    """`north` listens, `south` only dials."""
    north, south = Identity.generate("north"), Identity.generate("south")
    listening = GrpcCourier(north, {"south": south.card}, listen="127.0.0.1:0")
    north_inbox, south_inbox = Inbox(), Inbox()
    await listening.start(north_inbox)
    north = north.with_address(f"127.0.0.1:{listening.port}")
    dialling = GrpcCourier(south, {"north": north.card})
    await dialling.start(south_inbox)
    await until(lambda: dialling.is_up("north") and listening.is_up("south"))
    return listening, north_inbox, dialling, south_inbox, north, south
