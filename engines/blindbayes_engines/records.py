"""The socket file between an agent and an engine's process: records, as blindbayes' `net/carrier.py` has them.

A record is 4 bytes length of what follows the head, 1 byte kind, 1 byte length of the name, name, body.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
from collections.abc import Iterable, Iterator

HELLO, UP, DOWN, FRAME, TAKEN, TURN = range(6)
VERSION = b"\x01"
MAX_FRAME_BYTES = 2 * 1024**2
MAX_MAIL_BYTES = 64 * 1024**2  # that a mailman keeps for a site
SOCKET_VARIABLE = "BLINDBAYES_SOCKET"
_HEAD = struct.Struct("!IBB")
_SIZE = struct.Struct("!I")


class Broken(Exception):
    """What the agent sends is no record, or it does not answer."""


def socket_path() -> str:
    """Where the site's agent listens. The site's own environment says so, never a job."""
    path = os.environ.get(SOCKET_VARIABLE, "")
    if not path:
        raise Broken(f"{SOCKET_VARIABLE} is not set at this site")
    return path


class Agent:
    """The connection to the agent of this site. `write` may be called from any thread, `records` from one."""

    def __init__(self, mode: str, timeout: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._lock = threading.Lock()
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(socket_path())
            self.write(HELLO, mode, VERSION)
        except BaseException:
            self._socket.close()
            raise

    def write(self, kind: int, name: str = "", body: bytes = b"") -> None:
        """One record to the agent. Raises `OSError`; then the connection is over, since half a record may have left."""
        raw = name.encode()
        with self._lock:
            try:
                self._socket.sendall(_HEAD.pack(len(raw) + len(body), kind, len(raw)) + raw + body)
            except OSError:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)  # whoever reads notices
                raise

    def records(self, until: float | None = None) -> Iterator[tuple[int, str, bytes] | None]:
        """Yield records of the agent, or None after `until` seconds without one; end with the agent."""
        held = b""
        while True:
            while len(held) >= _HEAD.size:
                size, kind, named = _HEAD.unpack_from(held)
                if named > size or size > MAX_FRAME_BYTES:
                    raise Broken("no record")
                end = _HEAD.size + size
                if len(held) < end:
                    break
                name = held[_HEAD.size : _HEAD.size + named].decode()
                body, held = held[_HEAD.size + named : end], held[end:]
                yield kind, name, body
            if not select.select([self._socket], [], [], until)[0]:
                yield None
                continue
            got = self._socket.recv(1 << 20)
            if not got:
                return
            held += got

    def close(self) -> None:
        """Close the connection; to the agent all its sites go down."""
        self._socket.close()


def join(frames: Iterable[bytes]) -> bytes:
    """Several frames as one value of an engine's message."""
    return b"".join(_SIZE.pack(len(frame)) + frame for frame in frames)


def split(raw: object) -> list[bytes]:
    """Return the frames of a value, or raise `Broken` if it is malformed."""
    if not isinstance(raw, bytes):
        raise Broken("no frames")
    found, at = [], 0
    while at < len(raw):
        if at + _SIZE.size > len(raw):
            raise Broken("no frames")
        (size,) = _SIZE.unpack_from(raw, at)
        at += _SIZE.size
        if size > MAX_FRAME_BYTES or at + size > len(raw):
            raise Broken("no frames")
        found.append(raw[at : at + size])
        at += size
    return found


def taken(count: int) -> bytes:
    """Return the body of a TAKEN record."""
    return _SIZE.pack(count)
