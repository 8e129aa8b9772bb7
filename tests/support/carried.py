"""Agents over an engine that a test plays: honest, or changed. It joins the socket files of `CarrierCourier`s."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

from blindbayes.net.carrier import CarrierCourier, Kind, read_record, record
from blindbayes.net.courier import Latency
from support.hub import MemoryHub

Carried = Iterable[tuple[str, str, bytes]]
Alter = Callable[[str, str, bytes], Carried]


def honest(sender: str, to: str, frame: bytes) -> Carried:
    """What came arrives."""
    return [(sender, to, frame)]


class CarriedHub(MemoryHub):
    """A hub whose couriers are socket files. `alter` maps (sender, to, frame) to what arrives: (claimed sender, to, frame)."""

    def __init__(
        self, folder: Path, names: tuple[str, ...], alter: Alter = honest, *, round_seconds: float | None = None
    ) -> None:
        super().__init__()
        self.folder, self.names, self.alter_carried = folder, names, alter
        self._round = round_seconds  # of turns; None for streams
        self._writers: dict[str, asyncio.StreamWriter] = {}
        self._tasks: list[asyncio.Task[None]] = []
        folder.mkdir(parents=True, exist_ok=True)

    def courier(self, name: str) -> CarrierCourier:  # type: ignore[override]
        latency = Latency.MILLISECONDS if self._round is None else Latency.SECONDS
        others = {other: f"engine-{other}" for other in self.names if other != name}
        return CarrierCourier(self.folder / name, others, latency, others)

    async def connect(self) -> None:
        """The engine comes up: after the agents."""
        if self._round is not None:
            self._tasks.append(asyncio.create_task(self._turns(self._round)))
            return
        for name in self.names:
            reader, writer = await asyncio.open_unix_connection(str(self.folder / name))
            self._writers[name] = writer
            writer.write(record(Kind.HELLO, b"stream", b"\x01"))
            self._tasks.append(asyncio.create_task(self._pass_on(name, reader)))
        for name in self.names:
            for other in self.names:
                if other != name:
                    self._writers[name].write(record(Kind.UP, f"engine-{other}".encode()))

    async def _pass_on(self, name: str, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                _, to, frame = await read_record(reader)
                self._writers[name].write(record(Kind.TAKEN, to, struct.pack("!I", 1)))
                for sender, site, each in self.alter_carried(name, to.decode().removeprefix("engine-"), frame):
                    self.put(sender, site, each)

    def put(self, sender: str, to: str, frame: bytes) -> None:
        """A frame arrives at `to`, as if from `sender`."""
        self._writers[to].write(record(Kind.FRAME, f"engine-{sender}".encode(), frame))

    def lose(self, name: str) -> None:
        """The engine's process at one site dies, and the others' see it."""
        self._writers.pop(name).close()
        for writer in self._writers.values():
            writer.write(record(Kind.DOWN, f"engine-{name}".encode()))

    async def _turns(self, seconds: float) -> None:
        mail: dict[str, list[tuple[str, bytes]]] = {name: [] for name in self.names}
        while True:
            taken = await asyncio.gather(*(self._turn(name, mail[name]) for name in self.names))
            for each in mail.values():
                each.clear()
            for name, frames in zip(self.names, taken, strict=True):
                for to, frame in frames:
                    for sender, site, one in self.alter_carried(name, to.removeprefix("engine-"), frame):
                        mail[site].append((sender, one))
            await asyncio.sleep(seconds)

    async def _turn(self, name: str, mail: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        reader, writer = await asyncio.open_unix_connection(str(self.folder / name))
        writer.write(record(Kind.HELLO, b"turns", b"\x01"))
        for other in self.names:
            writer.write(record(Kind.UP, f"engine-{other}".encode()))
        for sender, frame in mail:
            writer.write(record(Kind.FRAME, f"engine-{sender}".encode(), frame))
        writer.write(record(Kind.TURN))
        found = []
        while True:
            kind, to, frame = await read_record(reader)
            if kind == Kind.TURN:
                writer.close()
                return found
            found.append((to.decode(), frame))

    async def close(self) -> None:
        """The engine ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers.values():
            writer.close()
