"""Bit planes of transfers: streams of many keys, read side by side, and transpositions between planes and rows."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from blindbayes.crypto import kernels

U64Array = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
_SWAPS = ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0))


class Streams:
    """AES in counter mode under many keys."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._at, self.kernel = 0, kernels.active()
        if self.kernel is not None:
            self.schedules = self.kernel.schedules(b"".join(keys))
        else:
            self._encryptors = [Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor() for key in keys]

    def take(self, size: int) -> int:
        """Take the next bytes of every stream for a kernel, and return the place of the first."""
        self._at += size
        return self._at - size

    def read(self, size: int) -> Bytes:
        """Return the next bytes of every stream, (n, size)."""
        if self.kernel is not None:
            return self.kernel.streams(self.schedules, self.take(size), size)
        zeros = bytes(size)
        made = bytearray().join([encryptor.update(zeros) for encryptor in self._encryptors])
        return np.frombuffer(made, dtype=np.uint8).reshape(len(self._encryptors), size)


def _swap(blocks: U64Array) -> None:
    """Transpose 8 x 8 bits, in place."""
    for shift, mask in _SWAPS:
        moved = blocks >> np.uint64(shift)
        moved ^= blocks
        moved &= np.uint64(mask)
        blocks ^= moved
        moved <<= np.uint64(shift)
        blocks ^= moved


def to_rows(planes: Bytes) -> U64Array:
    """Transpose bit planes, (bits, n/8) bytes, to rows, (n, bits/64) words."""
    width, across = planes.shape[1], planes.shape[0] // 8
    kernel = kernels.active()
    if kernel is not None and width % 8 == 0 and across % 8 == 0:
        rows = np.empty((8 * width, across // 8), dtype=np.uint64)
        kernel.transpose(np.ascontiguousarray(planes) if planes.strides[1] != 1 else planes, rows)
        return rows
    blocks = np.ascontiguousarray(planes.reshape(across, 8, width).transpose(2, 0, 1)).view(np.uint64).reshape(-1)
    _swap(blocks)
    turned = blocks.view(np.uint8).reshape(width, across, 8).transpose(0, 2, 1)
    return np.ascontiguousarray(turned).reshape(8 * width, across).view(np.uint64)


def to_planes(rows: U64Array) -> Bytes:
    """Invert `to_rows`."""
    count, across = len(rows), 8 * rows.shape[1]
    kernel = kernels.active()
    if kernel is not None and count % 64 == 0:
        planes = np.empty((8 * across, count // 8), dtype=np.uint8)
        kernel.transpose(np.ascontiguousarray(rows).view(np.uint8), planes)
        return planes
    parts = np.ascontiguousarray(rows).view(np.uint8).reshape(count // 8, 8, across)
    blocks = np.ascontiguousarray(parts.transpose(2, 0, 1)).reshape(-1, 8).view(np.uint64).reshape(-1)
    _swap(blocks)
    turned = blocks.view(np.uint8).reshape(across, count // 8, 8).transpose(0, 2, 1)
    return np.ascontiguousarray(turned).reshape(8 * across, count // 8)
