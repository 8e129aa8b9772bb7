"""A proxy on loopback that holds every byte for half of a round trip, lets no more through than a bandwidth, and counts the
longest chain of messages.

What is read from one side after something was delivered to it may depend on that: its chain is one longer. For one instance
the count is exact; where chunks overlap it is an upper bound.
"""

from __future__ import annotations

import math
import queue
import socket
import threading
import time
from types import TracebackType

_CHUNK = 1 << 16


class Delaying:
    """Connections to `port` go on to `target`, each way `seconds` / 2 late and at most so many megabits per second."""

    def __init__(self, target: int, seconds: float, mbit: float = math.inf) -> None:
        self._target, self._half, self._rate = target, seconds / 2, 1e6 * mbit / 8
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.chain, self._lock = 0, threading.Lock()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Delaying:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for each in (self._listener, *self._open):
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:  # closed
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:  # the target does not listen yet, or no more: what connects tries again
                near.close()
                continue
            self._open += [near, far]
            depth = {near: 0, far: 0}  # the longest chain that was delivered to this side
            for source, sink in ((near, far), (far, near)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                held: queue.SimpleQueue[tuple[float, int, bytes]] = queue.SimpleQueue()
                threading.Thread(target=self._read, args=(source, held, depth), daemon=True).start()
                threading.Thread(target=self._write, args=(sink, held, depth), daemon=True).start()

    def _read(
        self, source: socket.socket, held: queue.SimpleQueue[tuple[float, int, bytes]], depth: dict[socket.socket, int]
    ) -> None:
        while True:
            try:
                data = source.recv(_CHUNK)
            except OSError:
                data = b""
            held.put((time.monotonic() + self._half, depth[source] + 1, data))
            if not data:
                return

    def _write(
        self, sink: socket.socket, held: queue.SimpleQueue[tuple[float, int, bytes]], depth: dict[socket.socket, int]
    ) -> None:
        free = 0.0  # when the line has carried what came before
        while True:
            due, chain, data = held.get()
            free = max(free, due - self._half) + len(data) / self._rate
            time.sleep(max(0.0, free + self._half - time.monotonic()))
            with self._lock:
                depth[sink] = max(depth[sink], chain)
                self.chain = max(self.chain, chain)
            try:
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(data)
            except OSError:
                return
