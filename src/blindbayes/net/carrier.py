"""A courier over a federated learning engine: frames pass a socket file to the engine's process on the same machine.

The agent imports no engine, and an engine's process needs nothing of this package: both exchange records. A record is 4 bytes
length of what follows the head, 1 byte kind, 1 byte length of the name, name, body.

    HELLO   to the agent, always first: mode as name ("stream" or "turns"), one byte of version as body
    UP      to the agent: the engine reaches the site of this name
    DOWN    to the agent: the engine no longer reaches it
    FRAME   to the agent: a frame that came, with the claimed sender; from it: a frame to be carried
    TAKEN   to the agent, stream: 4 bytes, how many more frames for this site arrived or were lost
    TURN    to the agent, turns: no more frames, send what waits; from it: no more frames for now

A stream lasts as long as the engine does, and its sites go down with it. Turns are for engines that start a process for every
message: each connection hands over what came and takes what waits. An engine can delay and drop frames, no
more: they are sealed and signed end to end, and what does not fit is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import os
import socket
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from blindbayes.errors import ConfigError, PeerLost, PeerProtocolError
from blindbayes.net.courier import Connection, Latency, Listener
from blindbayes.net.envelope import MAX_ENVELOPE_BYTES
from blindbayes.net.events import log_event
from blindbayes.net.identity import Card

VERSION = 1
_HEAD = struct.Struct("!IBB")
_COUNT = struct.Struct("!I")
_NAME_BYTES = 255
_PATH_BYTES = 100  # what every POSIX system takes
_UNDER_WAY = 32  # frames per site that the engine has not acknowledged
_TURN_BYTES = 4 * 1024**2
_QUIET, _LONGEST = 0.5, 3.0  # seconds that a turn waits for answers: a round of such engines costs more


class Kind(enum.IntEnum):
    """The kind of a record."""

    HELLO = 0
    UP = 1
    DOWN = 2
    FRAME = 3
    TAKEN = 4
    TURN = 5


def record(kind: Kind, name: bytes = b"", body: bytes = b"") -> bytes:
    return _HEAD.pack(len(name) + len(body), kind, len(name)) + name + body


async def read_record(reader: asyncio.StreamReader) -> tuple[int, bytes, bytes]:
    """Return kind, name and body. Raise `PeerProtocolError` if the bytes are no record."""
    size, kind, named = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    if named > size or size > MAX_ENVELOPE_BYTES + _NAME_BYTES:
        raise PeerProtocolError("the engine sent a malformed record")
    raw = await reader.readexactly(size)
    return kind, raw[:named], raw[named:]


class _Way(Connection):
    """Frames for one site, and how many of them the engine has under way."""

    def __init__(self, site: str, engine_name: bytes, writer: asyncio.StreamWriter | None) -> None:
        super().__init__(site)
        self.engine_name = engine_name
        self.writer = writer  # of the stream that reaches the site; none where turns do
        self._under_way = 0
        self._acknowledged = asyncio.Event()
        self._carrying = asyncio.create_task(self._carry(writer)) if writer is not None else None

    def close(self) -> None:
        self.closed.set()
        if self._carrying is not None:
            self._carrying.cancel()

    async def _carry(self, writer: asyncio.StreamWriter) -> None:
        """Hand frames to the engine, a few at a time."""
        with contextlib.suppress(OSError):  # the reader of the stream notices
            while True:
                frame = await self.outgoing.get()
                while self._under_way >= _UNDER_WAY:
                    self._acknowledged.clear()
                    await self._acknowledged.wait()
                self._under_way += 1
                writer.write(record(Kind.FRAME, self.engine_name, frame))
                await writer.drain()

    def taken(self, count: int) -> None:
        self._under_way = max(self._under_way - count, 0)
        self._acknowledged.set()


class CarrierCourier:
    """Frames over an engine that a local process connects to. `called` maps sites to other names in the engine."""

    port = 0

    def __init__(self, path: Path, sites: Iterable[str], latency: Latency, called: Mapping[str, str]) -> None:
        if len(os.fsencode(path)) > _PATH_BYTES:
            raise ConfigError(f"carrier.socket: a socket's path has at most {_PATH_BYTES} bytes, this one has more")
        self.latency = latency
        self._path, self._called = path, dict(called)
        self._names = self._names_of(sites)
        self._ways: dict[str, _Way] = {}
        self._listener: Listener | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()
        self.bytes_in = 0
        self.bytes_out = 0
        self._handed = 0  # frames by the agent

    async def start(self, listener: Listener) -> None:
        self._listener = listener
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.settimeout(1.0)
            probe.connect(str(self._path))
            raise ConfigError(f"carrier.socket: something else listens on {self._path.name} already")
        try:
            self._server = await asyncio.start_unix_server(self._serve, str(self._path), limit=2 * MAX_ENVELOPE_BYTES)
            self._path.chmod(0o660)  # the folder decides who gets there; the engine often runs as another user of a group
        except OSError as cause:
            raise ConfigError(f"carrier.socket: cannot listen there ({cause.strerror})") from cause

    def _names_of(self, sites: Iterable[str]) -> dict[bytes, str]:
        pairs = [(self._called.get(site, site).encode(), site) for site in sites]
        names = dict(pairs)
        if len(names) != len(pairs) or any(not 0 < len(name) <= _NAME_BYTES for name in names):
            raise ConfigError("carrier.sites: every site has a name of its own in the engine")
        return names

    async def repin(self, peers: Mapping[str, Card]) -> bool:
        """Know these sites from now on, and no others; whether that is new. The engine comes again and says whom it reaches."""
        names = self._names_of(peers)
        if names == self._names:
            return False
        self._names = names
        for site in list(self._ways):
            self._down(site)
        for writer in list(self._connections):
            writer.close()
        return True

    async def stop(self) -> None:
        for site in list(self._ways):
            self._down(site)
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
        for writer in list(self._connections):
            writer.close()
        await asyncio.sleep(0)

    async def send(self, to: str, frame: bytes) -> None:
        way = self._ways.get(to)
        if way is None:
            raise PeerLost("not connected", party=to)
        self.bytes_out += len(frame)
        self._handed += 1
        await way.put(frame)

    def is_up(self, peer: str) -> bool:
        return peer in self._ways

    def vouches(self, peer: str) -> bool:
        return False

    # -- the engine's side -------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            kind, mode, version = await read_record(reader)
            if kind != Kind.HELLO or mode not in (b"stream", b"turns") or version != bytes([VERSION]):
                raise PeerProtocolError("the engine's process has another version: install that of this release")
            if mode == b"turns" and self.latency is Latency.MILLISECONDS:
                raise PeerProtocolError('an engine that takes turns takes seconds: set carrier.latency to "seconds"')
            brought = 0  # frames
            while True:
                kind, name, body = await read_record(reader)
                if kind == Kind.TURN:
                    await self._turn(writer, brought)
                else:
                    brought += kind == Kind.FRAME
                    self._take(kind, name, body, writer if mode == b"stream" else None)
        except PeerProtocolError as error:
            log_event("carrier_refused", level=logging.ERROR, error=error)
        except (asyncio.IncompleteReadError, OSError):
            pass  # it went away
        finally:
            self._connections.discard(writer)
            writer.close()
            for site in [site for site, way in self._ways.items() if way.writer is writer]:
                self._down(site)

    def _take(self, kind: int, name: bytes, body: bytes, stream: asyncio.StreamWriter | None) -> None:
        site = self._names.get(name)
        if site is None or self._listener is None:
            return  # the engine knows other sites, too
        way = self._ways.get(site)
        if kind == Kind.FRAME:
            self.bytes_in += len(body)
            self._listener.frame_arrived(site, body)
        elif kind == Kind.UP:
            if way is None or way.writer is not stream:
                self._up(_Way(site, name, stream))
        elif kind == Kind.DOWN:
            self._down(site)
        elif kind == Kind.TAKEN and len(body) == _COUNT.size:
            if way is not None and way.writer is stream:
                way.taken(_COUNT.unpack(body)[0])
        else:
            raise PeerProtocolError("the engine sent a malformed record")

    def _up(self, way: _Way) -> None:
        old = self._ways.get(way.name)
        if old is not None:
            old.close()  # the newer one wins: the older may be half dead
        self._ways[way.name] = way
        if self._listener is not None:
            self._listener.peer_up(way.name)

    def _down(self, site: str) -> None:
        way = self._ways.pop(site, None)
        if way is not None:
            way.close()
            if self._listener is not None:
                self._listener.peer_down(site)

    async def _turn(self, writer: asyncio.StreamWriter, brought: int) -> None:
        """Send the waiting frames, after the frames that the engine brought were answered."""
        loop = asyncio.get_running_loop()
        ends, before, first = loop.time() + _LONGEST, -1, self._handed
        while loop.time() < ends and ((handed := self._handed) != before or (brought and handed == first)):
            before = handed
            await asyncio.sleep(_QUIET)
        left = _TURN_BYTES
        for way in list(self._ways.values()):
            while way.writer is None and left > 0 and not way.outgoing.empty():
                frame = way.outgoing.get_nowait()
                left -= len(frame)
                writer.write(record(Kind.FRAME, way.engine_name, frame))
        writer.write(record(Kind.TURN))
        await writer.drain()
