"""The only source of randomness of the package.

`Coins.system()` reads the operating system's generator. `Coins.seeded(seed)` expands a 32-byte seed by AES-256-CTR, so that a
journal with the seed can replay a role bit for bit. Every randomised function takes `Coins`; tests/test_walls.py checks it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import MutableSequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

SEED_BYTES = 32
_CHUNK = 4096


class _Stream(Protocol):
    def read(self, size: int) -> bytes: ...


class _System:
    def read(self, size: int) -> bytes:
        return os.urandom(size)


class _Keyed:
    """AES-256-CTR from block 0. A key is used for one stream: `derive` makes a fresh key for each label."""

    def __init__(self, key: bytes) -> None:
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def read(self, size: int) -> bytes:
        return self._encryptor.update(bytes(size))


class Coins:
    """A stream of uniform bits. Not thread safe; each role needs its own."""

    def __init__(self, stream: _Stream, seed: bytes | None) -> None:
        self._stream = stream
        self._seed = seed
        self._buffer = b""
        self._at = 0

    @classmethod
    def system(cls) -> Coins:
        """Return coins from the operating system, for what is never replayed (central releases, key generation)."""
        return cls(_System(), None)

    @classmethod
    def seeded(cls, seed: bytes) -> Coins:
        """Return coins expanded from a 32-byte seed, for roles that a journal can replay."""
        if len(seed) != SEED_BYTES:
            raise ValueError(f"a coin seed must have {SEED_BYTES} bytes")
        return cls(_Keyed(hashlib.sha256(b"blindbayes coins v1 stream" + seed).digest()), bytes(seed))

    @property
    def is_seeded(self) -> bool:
        return self._seed is not None

    @staticmethod
    def fresh_seed() -> bytes:
        """Return a new seed from the operating system."""
        return os.urandom(SEED_BYTES)

    def derive(self, label: str) -> Coins:
        """Return an independent child stream. For seeded coins it depends only on seed and label, not on earlier draws."""
        if self._seed is None:
            return Coins.system()
        child = hashlib.sha256(b"blindbayes coins v1 child" + self._seed + label.encode()).digest()
        return Coins.seeded(child)

    def __repr__(self) -> str:
        return "Coins(<redacted>)"

    def __reduce__(self) -> Any:
        raise TypeError("coins are not copied or pickled: a copy would draw the same noise twice")

    def bit_rows(self, rows: int, columns: int) -> npt.NDArray[np.uint8]:
        """Return uniform bits, (rows, columns)."""
        raw = np.frombuffer(self.bytes(-(-rows * columns // 8)), dtype=np.uint8)
        return np.unpackbits(raw)[: rows * columns].reshape(rows, columns)

    def bytes(self, size: int) -> bytes:
        """Draw `size` uniform bytes."""
        if size >= _CHUNK:
            return self._stream.read(size)
        if self._at + size > len(self._buffer):
            self._buffer = self._buffer[self._at :] + self._stream.read(_CHUNK)
            self._at = 0
        out = self._buffer[self._at : self._at + size]
        self._at += size
        return out

    def bits(self, count: int) -> int:
        """Draw a uniform integer of `count` bits."""
        return int.from_bytes(self.bytes((count + 7) // 8), "little") & ((1 << count) - 1)

    def below(self, bound: int) -> int:
        """Draw a uniform integer in [0, bound), by rejection."""
        if bound <= 0:
            raise ValueError("bound must be positive")
        count = (bound - 1).bit_length()
        while True:
            value = self.bits(count)
            if value < bound:
                return value

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """Draw `count` uniform 64-bit words."""
        return np.frombuffer(self.bytes(8 * count), dtype="<u8").astype(np.uint64)

    def shuffle(self, items: MutableSequence[Any]) -> None:
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]
