"""Couriers move opaque frames between sites and know nothing else.

A courier is best effort: while a connection lasts, frames arrive whole and in order; when it breaks, frames under way may be
lost. `link` adds numbers, acknowledgements and repetition. Where a courier vouches for a site, a frame comes from the owner of
its pinned certificate; elsewhere (a relay, an engine) the sender's name is a claim. The envelope proves it either way, end to
end.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from blindbayes.errors import ConfigError, PeerLost
from blindbayes.net.identity import Card


class Latency(enum.Enum):
    """The order of magnitude of one message's delay. Protocols of many rounds refuse a courier of seconds."""

    MILLISECONDS = "milliseconds"
    SECONDS = "seconds"


_QUEUE_FRAMES = 32
SLOW_STEP = 60.0
"""Minimum `step` deadline for couriers of seconds: polling engines were measured at 14 seconds a round."""


def require_latency(offered: Latency, protocol: str, step: float, *, few_rounds: bool) -> None:
    """Refuse a courier of seconds, unless the protocol has few rounds and the study's deadline allows it."""
    if offered is Latency.MILLISECONDS:
        return
    if not few_rounds:
        raise ConfigError(
            f"{protocol} sends too many messages one after another for a courier that takes {offered.value} for each; "
            "use the grpc courier, or a protocol whose rounds do not grow with the parties, columns or rows"
        )
    if step < SLOW_STEP:
        raise ConfigError(
            f"the study lets a party be silent for {step:g} s, and this courier may take {offered.value} for each message: "
            f"set deadlines.step to at least {SLOW_STEP:g}, or use the grpc courier"
        )


class Listener(Protocol):
    """The receiver of frames. Called on the event loop; must not block."""

    def frame_arrived(self, sender: str, frame: bytes) -> None: ...

    def peer_up(self, peer: str) -> None: ...

    def peer_down(self, peer: str) -> None: ...


@runtime_checkable
class Repinned(Protocol):
    """A courier that knows sites by their cards."""

    async def repin(self, peers: Mapping[str, Card]) -> bool:
        """Know exactly these sites from now on; return True if that is new. Connections may break and come again."""


@runtime_checkable
class Listening(Protocol):
    """A courier with a port of its own, 0 if nobody can dial in."""

    port: int


@runtime_checkable
class Metered(Protocol):
    """A courier that counts the bytes of frames."""

    bytes_in: int
    bytes_out: int


class Courier(Protocol):
    latency: Latency

    async def start(self, listener: Listener) -> None: ...

    async def stop(self) -> None: ...

    async def send(self, to: str, frame: bytes) -> None:
        """Hand over one frame; wait while the queue is full. Raise `PeerLost` if there is no connection."""

    def is_up(self, peer: str) -> bool: ...

    def vouches(self, peer: str) -> bool:
        """Return True if frames in this site's name are known to be its own."""


class Connection:
    """One connection to one site: a short outgoing queue, and a way to close it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.outgoing: asyncio.Queue[bytes] = asyncio.Queue(_QUEUE_FRAMES)
        self.closed = asyncio.Event()

    async def put(self, frame: bytes) -> None:
        """Queue a frame; raise `PeerLost` if the connection closes first."""
        if self.closed.is_set():
            raise PeerLost("not connected", party=self.name)
        with contextlib.suppress(asyncio.QueueFull):
            self.outgoing.put_nowait(frame)
            return
        putting = asyncio.ensure_future(self.outgoing.put(frame))
        closing = asyncio.ensure_future(self.closed.wait())
        try:
            await asyncio.wait({putting, closing}, return_when=asyncio.FIRST_COMPLETED)
            if not putting.done():
                raise PeerLost("the connection closed", party=self.name)
        finally:
            putting.cancel()
            closing.cancel()

    async def serve(
        self,
        read: Callable[[], Awaitable[Any]],
        write: Callable[[bytes], Awaitable[Any]],
        arrived: Callable[[Any], Any],
    ) -> None:
        """Carry frames both ways until either side ends."""

        async def writing() -> None:
            while True:
                await write(await self.outgoing.get())

        async def reading() -> None:
            while True:
                frame = await read()
                if not isinstance(frame, bytes):  # gRPC's end of stream
                    return
                waits = arrived(frame)
                if waits is not None:
                    await waits

        tasks = {asyncio.ensure_future(each) for each in (writing(), reading(), self.closed.wait())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.exception()  # every error of a connection means the same: it is gone
        finally:
            self.closed.set()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
