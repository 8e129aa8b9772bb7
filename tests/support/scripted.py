"""Coins whose every bit is chosen by the test."""

from __future__ import annotations

from blindbayes.crypto.coins import Coins


class Script:
    """A stream that hands out what it is given, for coins whose every bit is chosen."""

    def __init__(self, *parts: bytes) -> None:
        self.data = b"".join(parts)

    def read(self, size: int) -> bytes:
        out, self.data = self.data[:size], self.data[size:]
        return out.ljust(size, b"\0")


def scripted(*parts: bytes) -> Coins:
    return Coins(Script(*parts), None)
