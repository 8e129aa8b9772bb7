"""The gRPC courier: pinned sites reach each other, strangers get nothing, connections come back."""

from __future__ import annotations

import asyncio

import pytest

from blindbayes.errors import PeerLost
from blindbayes.net.envelope import MAX_ENVELOPE_BYTES
from blindbayes.net.grpc_courier import GrpcCourier
from support.courier import run, two_sites, until


def test_frames_arrive_in_order_both_ways() -> None:
    async def test() -> None:
        listening, north_inbox, dialling, south_inbox, *_ = await two_sites()
        frames = [bytes([index]) * (index * 1000) for index in range(60)] + [bytes(MAX_ENVELOPE_BYTES)]
        await asyncio.gather(
            *(asyncio.create_task(send_all(c, to, frames)) for c, to in ((listening, "south"), (dialling, "north")))
        )
        for inbox, name in ((north_inbox, "south"), (south_inbox, "north")):
            assert [await inbox.frames.get() for _ in frames] == [(name, frame) for frame in frames]
        await dialling.stop()
        await until(lambda: north_inbox.downs == ["south"])
        with pytest.raises(PeerLost) as caught:
            await listening.send("south", b"x")
        assert caught.value.party == "south"
        await listening.stop()

    run(test)


async def send_all(courier: GrpcCourier, to: str, frames: list[bytes]) -> None:
    for frame in frames:
        await courier.send(to, frame)


def test_a_broken_connection_comes_back() -> None:
    async def test() -> None:
        listening, north_inbox, dialling, south_inbox, *_ = await two_sites()
        dialling._streams["north"].closed.set()
        await until(lambda: len(south_inbox.ups) == 2 and len(north_inbox.ups) == 2)
        await dialling.send("north", b"again")
        assert await north_inbox.frames.get() == ("south", b"again")
        await asyncio.gather(dialling.stop(), listening.stop())

    run(test)


def test_a_slow_receiver_holds_the_sender_back() -> None:
    async def test() -> None:
        listening, _, dialling, _, *_ = await two_sites()
        gate = asyncio.Event()
        listening._arrived = lambda name, raw: gate.wait()  # type: ignore[method-assign, assignment, return-value]
        sent = 0

        async def flood() -> None:
            nonlocal sent
            for _ in range(1000):
                await dialling.send("north", bytes(MAX_ENVELOPE_BYTES))
                sent += 1

        task = asyncio.create_task(flood())
        await asyncio.sleep(0.7)
        held = sent
        assert held < 200  # some fill the queue and the windows of HTTP/2; the rest waits
        gate.set()
        await until(lambda: sent > held)
        task.cancel()
        await asyncio.gather(dialling.stop(), listening.stop())

    run(test)


def test_an_oversize_frame_closes_the_connection_and_nothing_else() -> None:
    async def test() -> None:
        listening, north_inbox, dialling, south_inbox, *_ = await two_sites()
        await dialling.send("north", bytes(MAX_ENVELOPE_BYTES + 100))
        await until(lambda: len(south_inbox.ups) == 2)
        await dialling.send("north", b"fine")
        assert await north_inbox.frames.get() == ("south", b"fine")
        await asyncio.gather(dialling.stop(), listening.stop())

    run(test)
