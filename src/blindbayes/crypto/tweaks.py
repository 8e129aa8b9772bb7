"""Tweakable hash of 128-bit blocks, and allocation of its tweaks.

`TweakedHash` is TMMO of Guo, Katz, Wang and Yu, "Efficient and Secure Multiparty Computation from Fixed-Key Block Ciphers"
(IEEE S&P 2020): H(x, i) = P(P(x) ^ i) ^ P(x), tweakable circular correlation robust (TCCR) for *any* tweaks if P is a random
permutation. P is AES-128 under a public key derived from the session, so that hashes of different sessions are independent.

A tweak is (domain, index): the domain is the purpose of the hash, the index a counter. `reserve` allocates ranges of indices
and never repeats one; two parties that run the same steps reserve the same ranges. Garbling with one tweak for all lanes
reveals the secret offset (tests/attacks/test_garbling_shared_tweak.py runs that attack).
"""

from __future__ import annotations

import enum
import functools
import hashlib
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from blindbayes.crypto import kernels
from blindbayes.errors import LocalProtocolError

Block128: TypeAlias = npt.NDArray[np.uint64]
"""128-bit blocks, shape (..., 2)."""


class Domain(enum.IntEnum):
    """Purpose of a hash."""

    ITEM = 0  # words that depend on an identifier and the session alone
    TREE = 1  # inner nodes of GGM trees
    LEAF = 2  # leaves of GGM trees, expanded into rows
    TRANSFER = 3  # pads made from correlated transfers
    GATE = 4  # rows of garbled AND gates
    OUTPUT = 5  # tags of output labels
    STREAM = 6  # first bytes of the transfers' leaf streams


class TweakedHash:
    """TMMO under the session's key, with a tweak counter per domain. One object per session and party."""

    def __init__(self, session: bytes) -> None:
        self.session = session
        self._key = hashlib.sha256(b"blindbayes tmmo v1" + session).digest()[:16]  # public
        self._next = dict.fromkeys(Domain, 0)

    @functools.cached_property
    def _permutation(self) -> CipherContext:
        # ECB is the bare permutation of the construction; nothing is encrypted with it.
        return Cipher(algorithms.AES(self._key), modes.ECB()).encryptor()  # noqa: S305

    @property
    def kernel(self) -> kernels.Kernels | None:
        """The kernels in use, or None for numpy. Subclasses that override `outer`, which kernels bypass, override this too."""
        return kernels.active()

    @functools.cached_property
    def schedule(self) -> npt.NDArray[np.uint8]:
        """The expanded key of the permutation, for kernels."""
        kernel = self.kernel
        if kernel is None:
            raise LocalProtocolError("an expanded key needs kernels")
        return kernel.schedules(self._key)

    def tweaks(self, domain: Domain, first: int) -> kernels.Tweaks:
        """Return the argument of kernels that hash from tweak `first`."""
        return kernels.Tweaks(self.schedule, first, domain)

    @classmethod
    def for_block(cls, session: bytes, index: int) -> TweakedHash:
        """Return the hash for a block of a session: security falls with the hashes under one key, so blocks have their own."""
        return cls(hashlib.sha256(b"blindbayes block" + session + index.to_bytes(8, "big")).digest())

    def reserve(self, domain: Domain, count: int) -> int:
        """Reserve `count` unused tweak indices of this session and return the first."""
        first = self._next[domain]
        if count < 0 or first + count > 2**63:
            raise LocalProtocolError("the tweaks of the session are exhausted")
        self._next[domain] = first + count
        return first

    def permute(self, blocks: Block128) -> Block128:
        """Apply P to each of (n, 2) contiguous blocks."""
        size = blocks.shape[0] * 16
        out = np.empty(size + 16, dtype=np.uint8)  # `update_into` needs one spare block
        self._permutation.update_into(blocks.data.cast("B"), out.data)
        return out[:size].view(np.uint64).reshape(-1, 2)

    def at(self, blocks: Block128, domain: Domain, indices: npt.NDArray[np.uint64]) -> Block128:
        """Hash (n, 2) blocks under the tweaks (domain, indices[row])."""
        return self.expand_at(blocks, domain, indices, 2)

    def run(self, blocks: Block128, domain: Domain, first: int) -> Block128:
        """Hash (n, 2) blocks under consecutive tweaks from `first`."""
        return self.expand(blocks, domain, first, 2)

    def expand(self, seeds: Block128, domain: Domain, first: int, words: int) -> npt.NDArray[np.uint64]:
        """Expand (n, 2) seeds to (n, words); block b of row r has the tweak first + r * blocks + b.

        The same hash as `at`, with the inner permutation computed once per seed. An odd number of words drops half a block.
        """
        blocks, kernel = -(-words // 2), self.kernel
        if kernel is not None:
            return kernel.expand(self.schedule, np.ascontiguousarray(seeds), domain, words, first=first, step=blocks)
        return self.expand_at(seeds, domain, np.arange(first, first + len(seeds) * blocks, blocks, dtype=np.uint64), words)

    def expand_at(self, seeds: Block128, domain: Domain, firsts: npt.NDArray[np.uint64], words: int) -> npt.NDArray[np.uint64]:
        """Expand seeds where block b of row r has the tweak firsts[r] + b."""
        seeds, blocks, kernel = np.ascontiguousarray(seeds), -(-words // 2), self.kernel
        if kernel is not None:
            return kernel.expand(self.schedule, seeds, domain, words, firsts=np.ascontiguousarray(firsts))
        if not len(seeds):
            return np.empty((0, words), dtype=np.uint64)
        indices = np.add.outer(firsts, np.arange(blocks, dtype=np.uint64)).reshape(-1)
        inner = np.repeat(self.permute(seeds), blocks, axis=0)
        return self.outer(inner, domain, indices).reshape(-1, 2 * blocks)[:, :words]

    def outer(self, inner: Block128, domain: Domain, indices: npt.NDArray[np.uint64]) -> Block128:
        """Return the hash from P of each block, without kernels."""
        tweaked = np.empty_like(inner)
        tweaked[:, 0], tweaked[:, 1] = indices, domain
        tweaked ^= inner
        return self.permute(tweaked) ^ inner


def turned(blocks: Block128) -> Block128:
    """Transpose (a, b, 2) to (b, a, 2), as a copy; blocks are moved as items of 16 bytes."""
    rows, columns, _ = blocks.shape
    items = np.ascontiguousarray(blocks).view(np.complex128).reshape(rows, columns)
    return items.T.copy().view(np.uint64).reshape(columns, rows, 2)


def column_sums(rows: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return column sums, of 32 rows side by side, since numpy adds long rows three times as fast as short ones."""
    whole, width = len(rows) // 32 * 32, rows.shape[1]
    wide = rows[:whole].reshape(whole // 32, 32 * width).sum(axis=0, dtype=np.uint64).reshape(32, width)
    total: npt.NDArray[np.uint64] = wide.sum(axis=0, dtype=np.uint64) + rows[whole:].sum(axis=0, dtype=np.uint64)
    return total
