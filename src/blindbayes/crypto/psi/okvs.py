"""Oblivious key-value store: a table with the right value for its keys and noise for every other key.

It does not reveal its keys if their values are random. It is linear over GF(2) (Garimella et al., CRYPTO 2021; Raghuraman and
Rindal, CCS 2022): the value of a key is the XOR of three sparse cells and of those of the 64 dense cells that are set in its
mask. Encoding peels cells that only one remaining key uses; the few keys that are left (the 2-core) are solved in the dense
cells.

Failure below 2^-70 for `MIN_KEYS` keys or more at 1.45 cells per key, by counting (tests compute it, without a measured law):

- More than 24 keys stay. The core is the largest set K of keys whose cells, S, all serve at least two of K; so no other key
  reads inside S. With n keys, m cells, k = |K|, s = |S| and a = C(s, 3) / C(m, 3) the expected number of such pairs (K, S) is
  at most  C(n, k) C(m, s) (1 - a)^(n - k) (3k)! min_z (e^z - 1 - z)^s z^(-3k) / (m (m-1) (m-2))^k.  Over all k > 24 and all s
  this adds up to less than 2^-90. (Without the factor (1 - a)^(n - k) large cores would need 1.52 cells per key.)
- k <= 24 keys stay, and their random masks of 64 bits are dependent: at most 2^(k - 64) times the number above, below 2^-70
  in all; cores of two keys are the most frequent.

Raghuraman and Rindal's law, fitted to measurements (IACR eprint 2022/320; the repository volePSI, PaxosParam), has large cores
with probability 2^-(a (e - 1.223) - 9.2) at e cells per key, log2 a = 0.555 log2 n + 2.336; at 1.45 it gives more than 200
bits. Tests compare it with frequencies measured where failures can be seen (1.22 to 1.24 cells per key).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blindbayes.crypto import kernels
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.psi.cuckoo import Positions, distinct_triples, fixed_words
from blindbayes.crypto.tweaks import Block128, TweakedHash
from blindbayes.errors import LocalProtocolError

MIN_KEYS = 12_288
DENSE = 64
MAX_LEFT = 24
_RATE = 145  # per cent
U64Array = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Places:
    """Cells of keys: three sparse cells, (n, 3), and a mask of dense cells, (n,)."""

    sparse: Positions
    dense: U64Array

    def part(self, keys: slice) -> Places:
        return Places(self.sparse[keys], self.dense[keys])


def cells(keys: int) -> int:
    """Return the number of cells of a store for exactly `keys` keys."""
    if keys < MIN_KEYS:
        raise LocalProtocolError(f"a store needs at least {MIN_KEYS} keys; pad smaller sets")
    return DENSE + -(-_RATE * keys // 100)


def places(session: bytes, keys: Block128, size: int) -> Places:
    """Return the cells of (n, 2) keys in a store of `size` cells, which depend only on key and session."""
    words = fixed_words(TweakedHash(session + b" store"), keys, 4)
    return Places(DENSE + distinct_triples(words, size - DENSE), np.ascontiguousarray(words[:, 3]))


def encode(at: Places, values: U64Array, size: int, coins: Coins) -> U64Array:
    """Return the store (size, width) of values (n, width) of distinct keys."""
    count, width = values.shape
    order, left = _peel(at.sparse, size)
    if sum(len(keys) for keys, _ in order) + len(left) != count:
        raise LocalProtocolError("a key of the store was lost")
    table = coins.words(size * width).reshape(size, width)  # free cells must look like all others
    if len(left):
        _solve(at, values, left, table)
    wanted = values ^ _dense(table, at.dense)
    kernel = kernels.active()
    for keys, pivots in reversed(order):
        if kernel is not None:
            kernel.store_assign(at.sparse, keys, pivots, wanted, table)
            continue
        table[pivots] = 0
        table[pivots] = wanted[keys] ^ _sparse(table, at.sparse[keys])
    return table


def decode(table: U64Array, at: Places) -> U64Array:
    """Return the values (n, width) of keys in the store."""
    kernel = kernels.active()
    if kernel is not None:
        return kernel.store_decode(table, at.sparse, at.dense)
    return _sparse(table, at.sparse) ^ _dense(table, at.dense)


def _sparse(table: U64Array, positions: Positions) -> U64Array:
    out = table[positions[:, 0]]
    out ^= table[positions[:, 1]]
    out ^= table[positions[:, 2]]
    return out


def _dense(table: U64Array, masks: U64Array) -> U64Array:
    """Return the XOR of the dense cells in each mask, by one look-up per byte of the mask."""
    kernel = kernels.active()
    if kernel is not None:
        return kernel.store_decode(table, None, masks)
    out = np.zeros((len(masks), table.shape[1]), dtype=np.uint64)
    parts = masks.astype("<u8").view(np.uint8).reshape(-1, 8)
    for byte in range(8):
        sums = np.zeros((1, table.shape[1]), dtype=np.uint64)
        for bit in range(8):
            sums = np.concatenate([sums, sums ^ table[8 * byte + bit]])
        out ^= sums[parts[:, byte]]
    return out


def _peel(sparse: Positions, size: int) -> tuple[list[tuple[Positions, Positions]], Positions]:
    """Return rounds of (keys, the cell that only this key still used), and the remaining keys.

    A kernel returns one round, of which keys are assigned one by one, the last first.
    """
    count = len(sparse)
    waiting = np.ones(count, dtype=np.bool_)
    kernel = kernels.active()
    if kernel is not None:
        freed, cells_of = kernel.store_order(np.ascontiguousarray(sparse), size)
        waiting[freed] = False
        return [(freed, cells_of)], np.flatnonzero(waiting)
    flat = sparse.reshape(-1)
    degree = np.bincount(flat, minlength=size)
    users = np.zeros(size, dtype=np.int64)  # XOR of the keys that use a cell: with one user, the user
    np.bitwise_xor.at(users, flat, np.repeat(np.arange(count), 3))
    order: list[tuple[Positions, Positions]] = []
    single = np.flatnonzero(degree == 1)
    while len(single):
        keys, first = np.unique(users[single], return_index=True)
        pivots = single[first]
        order.append((keys, pivots))
        waiting[keys] = False
        touched = sparse[keys].reshape(-1)
        np.subtract.at(degree, touched, 1)
        np.bitwise_xor.at(users, touched, np.repeat(keys, 3))
        single = np.unique(touched[degree[touched] == 1])
    return order, np.flatnonzero(waiting)


def _solve(at: Places, values: U64Array, left: Positions, table: U64Array) -> None:
    """Solve for dense cells that give the keys of the core their values; their sparse cells remain random."""
    if len(left) > MAX_LEFT:
        raise LocalProtocolError("a store could not be made (chance below 2^-70); start a new run")
    gaps = values[left] ^ _sparse(table, at.sparse[left]) ^ _dense(table, at.dense[left])
    pivots: list[tuple[int, int, U64Array]] = []  # (bit, mask, gap), each mask clear of the earlier bits
    for mask, gap in zip(at.dense[left].tolist(), gaps, strict=True):
        change = gap.copy()
        for bit, other, other_gap in pivots:
            if mask >> bit & 1:
                mask ^= other
                change ^= other_gap
        if not mask:
            raise LocalProtocolError("a store could not be made (chance below 2^-70); start a new run")
        pivots.append((mask.bit_length() - 1, mask, change))
    # Back substitution: the pivot cells close all gaps, the other dense cells keep their random values.
    changes: dict[int, U64Array] = {}
    for bit, mask, gap in reversed(pivots):
        change = gap.copy()
        for other, later in changes.items():
            if mask >> other & 1:
                change ^= later
        changes[bit] = change
    for bit, change in changes.items():
        table[bit] ^= change
