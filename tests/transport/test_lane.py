"""The second connection for large frames: whoever stands on the way can cut it, and nothing else; without it gRPC carries."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import closing

import pytest

from blindbayes.errors import BlindbayesError, ConfigError, IntegrityError, LocalProtocolError, PeerLost
from blindbayes.primitives.aead import TAG_BYTES
from blindbayes.primitives.coins import Coins
from blindbayes.site.config import SiteConfig
from blindbayes.transport import grpc_courier
from blindbayes.transport.envelope import CLEAR_AFTER, MAX_ENVELOPE_BYTES, EnvelopePair, Refused, Session, fresh_key, pack
from blindbayes.transport.grpc_courier import GrpcCourier
from blindbayes.transport.identity import Identity
from blindbayes.transport.lane import Lane, Lanes, join_lane

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
NORTH, SOUTH = Identity.generate("north"), Identity.generate("south")
FRAMES = [b"one" * 5, b"", b"two" * 4000, bytes(300_000), b"x" * CLEAR_AFTER, b"y" * (CLEAR_AFTER + 1)]


def ends() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        return one, server.accept()[0]


async def written(frames: Sequence[bytes], key: bytes = KEY, *, dials: bool = True) -> list[bytes]:
    """What stands on the wire for each frame."""
    one, other = ends()
    found = []
    with closing(one), closing(other):
        lane = Lane(one, key, dials=dials)
        other.setblocking(False)
        for frame in frames:
            task = asyncio.create_task(lane.write(frame))
            raw = b""
            while len(raw) < 4 + TAG_BYTES + len(frame):
                raw += await asyncio.get_running_loop().sock_recv(other, 1 << 20)
            await task
            found.append(raw)
    return found


async def read(raw: bytes, key: bytes = KEY, *, dials: bool = False) -> tuple[list[bytes], BlindbayesError]:
    """The frames that come out at the other end, and what ends it."""
    one, other = ends()
    with closing(one), closing(other):
        lane, frames = Lane(other, key, dials=dials), []
        one.setblocking(False)

        async def feed() -> None:
            await asyncio.get_running_loop().sock_sendall(one, raw)
            one.shutdown(socket.SHUT_WR)

        task = asyncio.create_task(feed())
        try:
            while True:
                frames.append(bytes(await lane.read()))
        except BlindbayesError as error:
            task.cancel()
            return frames, error


def test_frames_of_all_sizes_arrive_as_they_were() -> None:
    async def check() -> None:
        for dials in (True, False):
            raw = await written(FRAMES, dials=dials)
            frames, error = await read(b"".join(raw), dials=not dials)
            assert frames == FRAMES
            assert isinstance(error, PeerLost)

    asyncio.run(check())


ATTACKS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "repeated": lambda raw: [raw[0], raw[0], *raw[1:]],
    "reordered": lambda raw: [raw[1], raw[0], *raw[2:]],
    "left out": lambda raw: raw[1:],
    "tag": lambda raw: [flipped(raw[0], len(raw[0]) - 1), *raw[1:]],
    "names": lambda raw: [raw[0], raw[1], flipped(raw[2], 10), *raw[3:]],
    "sealed rest": lambda raw: [*raw[:3], flipped(raw[3], 200_000), *raw[4:]],
    "shorter": lambda raw: [*raw[:3], (299_999).to_bytes(4, "big") + raw[3][4:-1], *raw[4:]],
    "too long": lambda raw: [(MAX_ENVELOPE_BYTES + 1).to_bytes(4, "big") + raw[0][4:], *raw[1:]],
    "rest of another": lambda raw: [*raw[:3], raw[3][: -len(raw[2]) + 5000] + raw[2][-len(raw[2]) + 5000 :], *raw[4:]],
}


def flipped(raw: bytes, at: int) -> bytes:
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


@pytest.mark.parametrize("attack", ATTACKS)
def test_whoever_stands_on_the_way_gets_nothing_past(attack: str) -> None:
    async def main() -> None:
        raw = await written(FRAMES)
        frames, error = await read(b"".join(ATTACKS[attack](raw)))
        assert frames == FRAMES[: len(frames)]  # a beginning of what was sent
        assert len(frames) < len(FRAMES)
        assert not isinstance(error, PeerLost)

    asyncio.run(main())


def test_a_cut_ends_the_lane_and_delivers_no_half_frame() -> None:
    async def main() -> None:
        raw = b"".join(await written(FRAMES[:3]))
        frames, error = await read(raw[:-1])
        assert frames == FRAMES[:2]
        assert isinstance(error, PeerLost)

    asyncio.run(main())


def test_records_of_another_lane_or_direction_are_refused() -> None:
    async def main() -> None:
        for raw in (await written(FRAMES[:1], OTHER), await written(FRAMES[:1], dials=False)):
            frames, error = await read(b"".join(raw))
            assert frames == []
            assert isinstance(error, IntegrityError)

    asyncio.run(main())


def test_the_wire_shows_no_name_and_nothing_in_clear() -> None:
    pair = EnvelopePair("ab" * 32, "run-canary", "north", "south", SOUTH.signing.public, NORTH.signing)
    session = Session(pair, fresh_key(Coins.system()), fresh_key(Coins.system()).public)
    sealed = session.seal("StepCanary", b"payload-canary" * 20_000, index=3, parts=1)
    offer = pack(pair.offer(fresh_key(Coins.system())))

    async def main() -> None:
        raw = b"".join(await written([offer, sealed]))
        for word in (b"canary", b"Canary", b"north", b"south", b"ab" * 32, session.id):
            assert word not in raw

    asyncio.run(main())


def test_what_an_envelope_does_not_seal_is_short() -> None:
    with pytest.raises(LocalProtocolError):
        pack(Refused("s", "r", "north", "south", "x" * CLEAR_AFTER, b""))
    pair = EnvelopePair("s", "r" * CLEAR_AFTER, "north", "south", SOUTH.signing.public, NORTH.signing)
    session = Session(pair, fresh_key(Coins.system()), fresh_key(Coins.system()).public)
    with pytest.raises(LocalProtocolError):
        session.seal("Step", b"body")


def test_strangers_learn_nothing_and_use_no_offer_up() -> None:
    async def main() -> None:
        lanes, loop = Lanes(), asyncio.get_running_loop()
        lanes.start("127.0.0.1:0")

        async def answer(said: bytes) -> bytes:
            with closing(socket.create_connection(("127.0.0.1", lanes.port))) as conn:
                conn.setblocking(False)
                try:
                    await loop.sock_sendall(conn, said)
                    return await asyncio.wait_for(loop.sock_recv(conn, 100), 5)
                except ConnectionError:
                    return b""

        assert await answer(b"GET / HTTP/1.1\r\n") == b""  # nobody is waited for
        with lanes.offered() as offer:
            shown = offer.shown()
            assert await answer(bytes(16) + b"stranger" * 9) == b""
            hello = await written([b"blindbayes lane v1"], OTHER)
            assert await answer(offer.token + hello[0]) == b""  # a token that was seen on the way, without the key
            hello = await written([b"blindbayes lane v0"], offer.key)
            assert await answer(offer.token + hello[0]) == b""  # of another version
            assert await join_lane("127.0.0.1", shown[:-1] + bytes([shown[-1] ^ 1])) is None
            lane = await join_lane("127.0.0.1", shown)
            assert lane is not None
            hello = await written([b"blindbayes lane v1"], offer.key)
            assert await answer(offer.token + hello[0]) == b""  # the whole greeting, again
            assert offer.lane is not None
            await lane.write(b"frame")
            assert await offer.lane.read() == b"frame"
        with pytest.raises((PeerLost, OSError)):  # the offer is over, and the lane with it
            await lane.read()
        lane.close()
        assert await join_lane("127.0.0.1", shown) is None
        await lanes.stop()

    asyncio.run(main())


class Heard:
    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.up, self.changed = False, asyncio.Event()

    def frame_arrived(self, sender: str, frame: bytes) -> None:
        self.frames.append(bytes(frame))
        self.changed.set()

    def peer_up(self, peer: str) -> None:
        self.up = True
        self.changed.set()

    def peer_down(self, peer: str) -> None:
        self.up = False
        self.changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():
                self.changed.clear()
                await self.changed.wait()


@pytest.mark.parametrize("way", ["lane", "none", "blocked"])
def test_two_sites_speak_by_the_lane_or_without_it(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Lane | None] = []

    async def join(host: str, shown: bytes) -> Lane | None:
        shut = ends()[0].getsockname()[1].to_bytes(2, "big") + shown[2:]  # nobody listens there
        taken.append(await join_lane(host, shut if way == "blocked" else shown))
        return taken[-1]

    monkeypatch.setattr(grpc_courier, "join_lane", join)

    async def main() -> None:
        listens = GrpcCourier(NORTH, {"south": SOUTH.card}, listen="127.0.0.1:0", bulk=None if way == "none" else "127.0.0.1:0")
        north, south = Heard(), Heard()
        await listens.start(north)
        card = NORTH.with_address(f"127.0.0.1:{listens.port}").card
        dials = GrpcCourier(SOUTH, {"north": card})
        await dials.start(south)
        await south.until(lambda: south.up)
        await north.until(lambda: north.up)
        for frame in FRAMES[:5]:
            await dials.send("north", frame)
            await listens.send("south", frame)
        await south.until(lambda: len(south.frames) == 5)
        await north.until(lambda: len(north.frames) == 5)
        assert south.frames == north.frames == FRAMES[:5]
        assert [lane is not None for lane in taken] == {"lane": [True], "none": [], "blocked": [False]}[way]
        assert not listens._lanes._offers  # taken, or withdrawn
        if way == "lane":
            taken[0]._conn.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]  # the lane is cut: both see it, and find each other again
            await north.until(lambda: not north.up)
            await north.until(lambda: north.up)
            await south.until(lambda: south.up)
            await dials.send("north", b"again")
            await north.until(lambda: north.frames[-1] == b"again")
        await dials.stop()
        await north.until(lambda: not north.up)
        await listens.stop()

    asyncio.run(main())


def test_the_second_port_is_for_sites_that_listen() -> None:
    with pytest.raises(ConfigError, match="bulk"):
        SiteConfig(bulk="127.0.0.1:7443")


def test_a_site_that_asks_for_lanes_and_says_nothing_keeps_nobody_out() -> None:
    """Before, each of its streams kept its place for ever, and others were refused for want of one."""
    west = Identity.generate("west")

    async def main() -> None:
        listens = GrpcCourier(NORTH, {"south": SOUTH.card, "west": west.card}, listen="127.0.0.1:0", bulk="127.0.0.1:0")
        heard = Heard()
        await listens.start(heard)
        card = NORTH.with_address(f"127.0.0.1:{listens.port}").card
        channels, calls = [grpc_courier.open_channel(SOUTH, card) for _ in range(8)], []
        for channel in channels:
            for _ in range(4):
                calls.append(channel.stream_stream(grpc_courier.METHOD)(metadata=((grpc_courier._LANE, b""),)))
                await asyncio.wait_for(calls[-1].initial_metadata(), 10)
        async with asyncio.timeout(10):
            while sum(not call.done() for call in calls) > 1:
                await asyncio.sleep(0.02)
        dials = GrpcCourier(west, {"north": card})
        await dials.start(Heard())
        await heard.until(lambda: listens.is_up("west"))
        for call in calls:
            call.cancel()
        for channel in channels:
            await channel.close()
        await dials.stop()
        await listens.stop()

    asyncio.run(main())
