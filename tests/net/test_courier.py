"""The gRPC courier: pinned sites reach each other, strangers get nothing, connections come back."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

import grpc
import pytest
from grpc import aio

from blindbayes.errors import ConfigError, PeerLost
from blindbayes.net.envelope import MAX_ENVELOPE_BYTES
from blindbayes.net.grpc_courier import METHOD, GrpcCourier, open_channel, open_port
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


async def code_of(channel: aio.Channel, path: str = METHOD) -> grpc.StatusCode:
    """What a caller that is not welcome is told: a status, no frame."""
    try:
        call = channel.stream_stream(path)()
        await call.write(b"hello")
        assert await call.read() is aio.EOF
        return await call.code()
    except aio.AioRpcError as error:
        return error.code()
    finally:
        await channel.close()


def test_strangers_get_nothing() -> None:
    async def test() -> None:
        listening, north_inbox, dialling, _, north, _south = await two_sites()
        ups = list(north_inbox.ups)
        assert (
            await code_of(open_channel(Identity.generate("south"), north.card)) is grpc.StatusCode.UNAVAILABLE
        )  # right name, other certificate
        anyone = aio.secure_channel(
            north.card.address,
            grpc.ssl_channel_credentials(north.card.certificate),
            options=[("grpc.ssl_target_name_override", north.card.tls_name), ("grpc.enable_http_proxy", 0)],
        )
        assert await code_of(anyone) is grpc.StatusCode.UNAVAILABLE  # no certificate at all
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            answer = await reader.read(1000)
            assert b"blindbayes" not in answer
            assert b"HTTP" not in answer
        writer.close()
        assert north_inbox.ups == ups
        assert north_inbox.frames.empty()
        await asyncio.gather(dialling.stop(), listening.stop())

    run(test)


def test_a_pinned_site_finds_one_method_only() -> None:
    async def test() -> None:
        listening, _, dialling, _, north, south = await two_sites()
        assert await code_of(open_channel(south, north.card), "/blindbayes.Courier/Other") is grpc.StatusCode.UNIMPLEMENTED
        await asyncio.gather(dialling.stop(), listening.stop())

    run(test)


def test_a_site_that_dials_another_certificate_is_not_connected_and_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        north, south = Identity.generate("north"), Identity.generate("south")
        listening = GrpcCourier(north, {"south": south.card}, listen="127.0.0.1:0")
        await listening.start(Inbox())
        impostor = Identity.generate("north").with_address(f"127.0.0.1:{listening.port}")
        dialling = GrpcCourier(south, {"north": impostor.card})  # pinned another north than the one that listens
        inbox = Inbox()
        await dialling.start(inbox)
        await until(lambda: "wrong_certificate site=north" in caplog.text)
        assert inbox.ups == []
        await asyncio.gather(dialling.stop(), listening.stop())

    run(test)


async def renewed_while_away(caplog: pytest.LogCaptureFixture, dials: str, listens: str, renewed: str, wanted: str) -> None:
    """Two sites connect; one goes away and comes back with another certificate. `wanted` is logged once, and no more."""
    sites = {name: Identity.generate(name) for name in (dials, listens)}
    port = GrpcCourier(sites[listens], {dials: sites[dials].card}, listen="127.0.0.1:0")
    await port.start(Inbox())
    where = f"127.0.0.1:{port.port}"
    card = sites[listens].with_address(where).card
    if renewed == listens:
        call, inbox = GrpcCourier(sites[dials], {listens: card}), Inbox()
        await call.start(inbox)
        await until(lambda: inbox.ups == [listens])
        await port.stop()
        await until(lambda: inbox.downs == [listens])
        await asyncio.sleep(0.5)  # some attempts find nobody at all
        port = GrpcCourier(Identity.generate(listens), {dials: sites[dials].card}, listen=where)
        await port.start(Inbox())
    else:
        call = GrpcCourier(Identity.generate(dials), {listens: card})
        await call.start(Inbox())
    await until(lambda: wanted in caplog.text)
    await asyncio.sleep(3.0)  # further attempts
    assert caplog.text.count(wanted) == 1
    await asyncio.gather(call.stop(), port.stop())


def test_a_site_that_comes_back_with_another_certificate_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """It was logged only where the very first attempt met the certificate: never after a restart."""
    run(lambda: renewed_while_away(caplog, "north", "south", "south", "wrong_certificate site=south"))


def test_a_site_whose_own_certificate_is_refused_logs_who_refuses_it(caplog: pytest.LogCaptureFixture) -> None:
    run(lambda: renewed_while_away(caplog, "north", "south", "north", "certificate_refused site=south"))


def test_the_listening_site_names_who_is_refused(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """north dials south with a certificate that south has not pinned; south looks at north's port, and names it."""
    monkeypatch.setattr("blindbayes.net.grpc_courier._WATCH_SECONDS", 0.1)

    async def test() -> None:
        north, south = Identity.generate("north"), Identity.generate("south")
        other = GrpcCourier(Identity.generate("north"), {"south": south.card}, listen="127.0.0.1:0")
        await other.start(Inbox())
        pinned = north.with_address(f"127.0.0.1:{other.port}").card
        listening = GrpcCourier(south, {"north": pinned}, listen="127.0.0.1:0")
        inbox = Inbox()
        await listening.start(inbox)
        await until(lambda: "wrong_certificate site=north" in caplog.text)
        await asyncio.sleep(1.0)
        assert caplog.text.count("wrong_certificate site=north") == 1
        assert inbox.ups == []
        await asyncio.gather(other.stop(), listening.stop())

    run(test)


def test_a_site_that_is_down_or_right_is_not_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blindbayes.net.grpc_courier._WATCH_SECONDS", 0.1)

    async def test() -> None:
        north, south = Identity.generate("north"), Identity.generate("south")
        listening = GrpcCourier(south, {"north": north.with_address("127.0.0.1:9").card}, listen="127.0.0.1:0")
        await listening.start(Inbox())
        await asyncio.sleep(1.0)  # nobody at its port
        other = GrpcCourier(north, {"south": south.card}, listen="127.0.0.1:0")
        await other.start(Inbox())
        await listening.repin({"north": north.with_address(f"127.0.0.1:{other.port}").card})
        await asyncio.sleep(1.0)  # right, and not yet dialling
        assert "certificate" not in caplog.text
        await asyncio.gather(other.stop(), listening.stop())

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


def test_a_taken_port_is_a_typed_error() -> None:
    async def test() -> None:
        listening, _, dialling, *_ = await two_sites()
        other = GrpcCourier(
            Identity.generate("west"), {"south": Identity.generate("south").card}, listen=f"127.0.0.1:{listening.port}"
        )
        with pytest.raises(ConfigError, match="cannot listen"):
            await other.start(Inbox())
        await asyncio.gather(dialling.stop(), listening.stop())

    run(test)


def test_a_port_in_use_is_named_with_what_to_change() -> None:
    north, south = Identity.generate("north"), Identity.generate("south")

    async def serve(*_: object) -> None: ...

    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot listen on 127.0.0.1:{port}.*change listen in site.toml"):
            asyncio.run(open_port(north, {"south": south.card}, f"127.0.0.1:{port}", serve))
