"""Integers modulo 2^64 or 2^128 in numpy: the last axis holds one or two 64-bit limbs, lowest first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Limbs = npt.NDArray[np.uint64]
MAX_LIMBS = 2
_WORD = 2.0**64


def limbs_for(bits: int) -> int:
    return -(-bits // 64)


def add(left: Limbs, right: Limbs) -> Limbs:
    total: Limbs = left + right
    if total.shape[-1] == 2:
        total[..., 1] += total[..., 0] < right[..., 0]
    return total


def subtract(left: Limbs, right: Limbs) -> Limbs:
    rest: Limbs = left - right
    if rest.shape[-1] == 2:
        rest[..., 1] -= np.broadcast_to(left[..., 0] < right[..., 0], rest.shape[:-1])
    return rest


def total(values: Limbs, axis: int) -> Limbs:
    """Return the sum over an axis other than the last."""
    if values.shape[-1] == 1:
        whole: Limbs = values.sum(axis=axis, dtype=np.uint64)
        return whole
    rows = np.moveaxis(values, axis, 0)
    out = np.zeros(rows.shape[1:], dtype=np.uint64)
    for row in rows:
        out = add(out, row)
    return out


def from_integers(values: Sequence[int], limbs: int) -> Limbs:
    """Reduce integers of any sign to (len(values), limbs)."""
    mask = (1 << (64 * limbs)) - 1
    raw = b"".join((int(value) & mask).to_bytes(8 * limbs, "little") for value in values)
    return np.frombuffer(raw, dtype="<u8").astype(np.uint64).reshape(len(values), limbs)


def from_floats(values: npt.NDArray[np.float64], limbs: int) -> Limbs:
    """Reduce whole floats with |value| < 2^(64 limbs - 1), exactly: they are split by powers of two only."""
    size = np.abs(values)
    out = np.zeros((*values.shape, limbs), dtype=np.uint64)
    high = np.floor(size / _WORD)
    out[..., 0] = (size - high * _WORD).astype(np.uint64)
    if limbs == 2:
        out[..., 1] = high.astype(np.uint64)
    return np.where((values < 0)[..., None], subtract(np.zeros_like(out), out), out)


def to_bits(values: Limbs, bits: int) -> npt.NDArray[np.uint8]:
    """Return the bits (bits, n) of (n, limbs), lowest first."""
    raw = np.ascontiguousarray(values.astype("<u8", copy=False)).view(np.uint8).reshape(len(values), -1)
    return np.ascontiguousarray(np.unpackbits(raw, axis=1, bitorder="little")[:, :bits].T)


def cut(values: Limbs, bits: int) -> Limbs:
    """Reduce modulo 2^bits."""
    low: Limbs = values & from_integers([(1 << bits) - 1], values.shape[-1])[0]
    return low
