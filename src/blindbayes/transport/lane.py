"""A lane: a second connection of two sites for frames as they are, since most of the cost of gRPC is that of moving bytes.

The site that listens draws a key, of which a token is made, and shows it to the other over their mutual TLS connection, which
stays open; its end is the lane's. Every record of a lane is a frame under AES-256-GCM, with its place as nonce and a key per
direction: whoever stands on the way can cut the lane, and cannot read, change, move, repeat or leave out a record. The first
`CLEAR_AFTER` bytes of a frame are encrypted, which is all that an envelope does not seal; the rest, which it did seal, is
authenticated as it stands. Where no lane can be had (a firewall, a proxy, a relay, an older release), frames go by gRPC as
before.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from blindbayes.errors import BlindbayesError, ConfigError, PeerLost, PeerProtocolError
from blindbayes.primitives.aead import TAG_BYTES, seal, unseal
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.prg import derive_key
from blindbayes.transport.envelope import CLEAR_AFTER, MAX_ENVELOPE_BYTES

_TOKEN_BYTES = 16
_OFFER_BYTES = 2 + 32
PATIENCE = 3.0  # seconds to find each other; then there is no lane
_MOST_STRANGERS = 64
_HELLO = b"blindbayes lane v1"
_KEEPALIVE = (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))


def _token(key: bytes) -> bytes:
    """By which an offer is found: of the key, so that who offers cannot choose what the other sends to whom it names."""
    return derive_key(key, "lane", b"token")[:_TOKEN_BYTES]


class Lane:
    """One connection, both ways. `dials` tells the two ends apart."""

    def __init__(self, conn: socket.socket, key: bytes, *, dials: bool) -> None:
        conn.setblocking(False)
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                conn.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._conn = conn
        self._loop = asyncio.get_running_loop()
        up, down = derive_key(key, "lane", b"dials"), derive_key(key, "lane", b"listens")
        self._send_key, self._receive_key = (up, down) if dials else (down, up)
        self._sent = self._received = 0

    def close(self) -> None:
        """The other end sees the end."""
        self._conn.close()

    async def write(self, frame: bytes) -> None:
        """One frame; what follows its head is not copied."""
        rest = memoryview(frame)[CLEAR_AFTER:]
        head = seal(self._send_key, memoryview(frame)[:CLEAR_AFTER], associated=rest, nonce=self._sent)
        self._sent += 1
        pieces = (memoryview(len(frame).to_bytes(4, "big") + head), rest)
        try:
            sent = self._conn.sendmsg(pieces)
        except (BlockingIOError, InterruptedError):
            sent = 0
        for piece in pieces:
            if sent < len(piece):
                await self._loop.sock_sendall(self._conn, piece[sent:])
            sent = max(0, sent - len(piece))

    async def read(self, most: int = MAX_ENVELOPE_BYTES) -> memoryview:
        """The next frame, of `most` bytes or fewer. Raises `PeerLost` at the end, and `BlindbayesError` for what the other end
        did not write."""
        size = int.from_bytes(await _exactly(self._conn, 4), "big")
        if size > most:
            raise PeerProtocolError("a frame is over the size limit")
        record = await _exactly(self._conn, TAG_BYTES + size)
        cut = min(size, CLEAR_AFTER) + TAG_BYTES
        head = unseal(self._receive_key, record[:cut], associated=record[cut:], nonce=self._received)
        self._received += 1
        record[TAG_BYTES:cut] = head
        return record[TAG_BYTES:].toreadonly()


@dataclass(slots=True)
class Offered:
    """What the other site was shown, until it comes."""

    token: bytes
    key: bytes = field(repr=False)
    port: int
    lane: Lane | None = None

    def shown(self) -> bytes:
        """What the other site needs to come."""
        return self.port.to_bytes(2, "big") + self.key


class Lanes:
    """The port at which lanes begin. Whoever shows no token of an offer that stands is closed out without a word."""

    def __init__(self) -> None:
        self._offers: dict[bytes, Offered] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._port: socket.socket | None = None

    @property
    def port(self) -> int:
        """Where it listens."""
        return 0 if self._port is None else int(self._port.getsockname()[1])

    def start(self, listen: str) -> None:
        """Listen; raises `ConfigError`."""
        host, _, port = listen.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._port = socket.create_server((host.strip("[]"), int(port)), family=family, backlog=_MOST_STRANGERS)
        except OSError as cause:
            raise ConfigError(f"cannot listen on {listen}: in use, or not an address of this machine") from cause
        self._port.setblocking(False)
        self._tasks.add(asyncio.create_task(self._accept(self._port)))

    async def stop(self) -> None:
        """Close the port. A lane that stands ends with its connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._port is not None:
            self._port.close()
        self._tasks, self._port = set(), None

    @contextlib.contextmanager
    def offered(self) -> Iterator[Offered]:
        """An offer, which stands as long as the connection on which it is shown; its lane ends with it."""
        key = Coins.system().bytes(32)
        offer = Offered(_token(key), key, self.port)
        self._offers[offer.token] = offer
        try:
            yield offer
        finally:
            self.withdraw(offer)
            if offer.lane is not None:
                offer.lane.close()

    def withdraw(self, offer: Offered) -> None:
        """Nobody comes by it any more."""
        self._offers.pop(offer.token, None)

    async def _accept(self, port: socket.socket) -> None:
        while True:
            try:
                conn, _ = await asyncio.get_running_loop().sock_accept(port)
            except OSError:  # it has gone again, or there are too many files open
                await asyncio.sleep(0.1)
                continue
            if not self._offers or len(self._tasks) > _MOST_STRANGERS:
                conn.close()
                continue
            task = asyncio.create_task(self._meet(conn))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _meet(self, conn: socket.socket) -> None:
        """Who comes has the key, or is closed out; an offer is taken once, and not used up by strangers."""
        conn.setblocking(False)
        try:
            async with asyncio.timeout(PATIENCE):
                token = bytes(await _exactly(conn, _TOKEN_BYTES))
                offer = self._offers.get(token)
                if offer is None:
                    raise PeerLost("shows no offer")
                lane = Lane(conn, offer.key, dials=False)
                if bytes(await lane.read(len(_HELLO))) != _HELLO or self._offers.pop(token, None) is not offer:
                    raise PeerLost("shows no offer")
                offer.lane = lane
                await lane.write(_HELLO)
        except (TimeoutError, OSError, ValueError, BlindbayesError):  # a value: the offer ended, and closed it
            conn.close()
        except asyncio.CancelledError:
            conn.close()
            raise


async def join_lane(host: str, shown: bytes) -> Lane | None:
    """The lane that a site offers; None if it cannot be had."""
    if len(shown) != _OFFER_BYTES:
        return None
    port, key = int.from_bytes(shown[:2], "big"), shown[2:]
    loop, conn = asyncio.get_running_loop(), None
    try:
        async with asyncio.timeout(PATIENCE):
            family, kind, proto, _, place = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
            conn = socket.socket(family, kind, proto)
            conn.setblocking(False)
            await loop.sock_connect(conn, place)
            await loop.sock_sendall(conn, _token(key))
            lane = Lane(conn, key, dials=True)
            await lane.write(_HELLO)
            if bytes(await lane.read(len(_HELLO))) != _HELLO:
                raise PeerLost("is another")
            return lane
    except (TimeoutError, OSError, BlindbayesError):
        if conn is not None:
            conn.close()
        return None
    except asyncio.CancelledError:
        if conn is not None:
            conn.close()
        raise


async def _exactly(conn: socket.socket, size: int) -> memoryview:
    whole, done = np.empty(size, dtype=np.uint8).data, 0  # not zeroed first
    while done < size:
        count = await asyncio.get_running_loop().sock_recv_into(conn, whole[done:])
        if count == 0:
            raise PeerLost("the connection closed")
        done += count
    return whole
