"""The courier over TLS: one method for pinned sites, nothing for others, and refusals that are logged."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import grpc
import pytest
from grpc import aio

from blindbayes.errors import ConfigError
from blindbayes.net.grpc_courier import METHOD, GrpcCourier, open_channel, open_port
from blindbayes.net.identity import Identity
from support.courier import Inbox, run, two_sites, until


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
