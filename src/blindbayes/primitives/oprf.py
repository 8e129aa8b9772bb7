"""A batched oblivious pseudo-random function (Kolesnikov, Kumaresan, Rosulek and Trieu, CCS 2016).

One side (the *asker*) evaluates F_j at one item per bin j and learns F_j(item); the other (the *owner*) can evaluate every F_j
anywhere and does not learn the items. 512 oblivious transfers of seeds (made from correlated transfers), then 64 bytes per bin:

    asker:  t_j,  sends  u = t ^ t' ^ C(x_j) bit by bit         owner:  q_j = t_j ^ (C(x_j) & s)
    F_j(x) = H(j, q_j ^ (C(x) & s)),   for the asker's own item  F_j(x_j) = H(j, t_j)

C is a pseudo-random code of 512 bits: two different items differ in fewer than 128 places with probability below 2^-96 (a
binomial tail), so at least 128 bits of s stay in whatever the asker does not know. H is BLAKE2b, salted with the session.
Outputs have 128 bits or more. Against parties that follow the protocol.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from blindbayes.errors import LocalProtocolError, PeerProtocolError
from blindbayes.primitives.cuckoo import fixed_words
from blindbayes.primitives.tweaks import Blocks, TweakedHash

WIDTH = 512
ROW_WORDS = WIDTH // 64
MOST_WORDS = 8  # of an output
Words = npt.NDArray[np.uint64]
Bits = npt.NDArray[np.uint8]
Bytes = npt.NDArray[np.uint8]
_SWAPS = ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0))


def codewords(session: bytes, items: Blocks) -> Words:
    """C of each item, (n, 8) words."""
    return fixed_words(TweakedHash(session + b" code"), items, ROW_WORDS)


class Asker:
    """Holds both seeds of every transfer."""

    def __init__(self, session: bytes, seeds: Words) -> None:
        if seeds.shape != (2, WIDTH, 2):
            raise LocalProtocolError("an asker has two seeds for each of 512 transfers")
        self._session = session
        self._streams = [[_Stream(seed) for seed in side] for side in seeds]

    def ask(self, items: Blocks) -> tuple[Words, Words]:
        """What to send for the next bins (a multiple of 64), and t (n, 8) words, to be hashed."""
        own, other = (_planes(side, len(items)) for side in self._streams)
        other ^= own
        other ^= to_planes(codewords(self._session, items))
        return other.reshape(-1).view(np.uint64), to_rows(own)


class Owner:
    """Holds the seeds of its bits s."""

    def __init__(self, session: bytes, bits: Bits, seeds: Words) -> None:
        if seeds.shape != (WIDTH, 2) or bits.shape != (WIDTH,):
            raise LocalProtocolError("an owner has one seed for each of 512 transfers")
        self._session = session
        self._streams = [_Stream(seed) for seed in seeds]
        self._chosen = np.flatnonzero(bits)
        self._mask = np.packbits(bits, bitorder="little").view(np.uint64)

    def answer(self, sent: Words, bins: int, party: str | None = None) -> Words:
        """q of the next bins, (n, 8) words."""
        if sent.shape != (bins * ROW_WORDS,):
            raise PeerProtocolError("masked questions have the wrong length", party=party)
        planes = _planes(self._streams, bins)
        received = sent.view(np.uint8).reshape(WIDTH, bins // 8)
        planes[self._chosen] ^= received[self._chosen]
        return to_rows(planes)

    def evaluate(self, rows: Words, items_code: Words, bins: npt.NDArray[np.int64], words: int) -> Words:
        """F_j(x), (n, words), from q_j and C(x)."""
        return hashed(self._session, rows ^ (items_code & self._mask), bins, words)


def hashed(session: bytes, rows: Words, bins: npt.NDArray[np.int64], words: int) -> Words:
    """H(j, row), (n, words)."""
    if not 2 <= words <= MOST_WORDS:
        raise LocalProtocolError("an output has 128 to 512 bits")
    framed = np.empty((len(rows), ROW_WORDS + 1), dtype=np.uint64)
    framed[:, :ROW_WORDS] = rows
    framed[:, ROW_WORDS] = bins
    raw, step = framed.tobytes(), 8 * (ROW_WORDS + 1)
    begun = hashlib.blake2b(digest_size=8 * words, salt=session[:16], person=b"blindbayes oprf").copy
    made = []
    for low in range(0, len(raw), step):  # a copy costs less than the parameters each time
        state = begun()
        state.update(raw[low : low + step])
        made.append(state.digest())
    return np.frombuffer(b"".join(made), dtype="<u8").astype(np.uint64).reshape(-1, words)


class _Stream:
    __slots__ = ("_encryptor",)

    def __init__(self, seed: Words) -> None:
        self._encryptor = Cipher(algorithms.AES(seed.tobytes()), modes.CTR(bytes(16))).encryptor()

    def read(self, zeros: bytes) -> bytes:
        return self._encryptor.update(zeros)


def _planes(streams: list[_Stream], bins: int) -> Bytes:
    if bins % 64:
        raise LocalProtocolError("bins come in units of 64")
    zeros = bytes(bins // 8)
    return np.frombuffer(b"".join([stream.read(zeros) for stream in streams]), dtype=np.uint8).reshape(WIDTH, -1).copy()


def _swap(blocks: Words) -> None:
    """Transpose 8 x 8 bits, in place."""
    for shift, mask in _SWAPS:
        moved = blocks >> np.uint64(shift)
        moved ^= blocks
        moved &= np.uint64(mask)
        blocks ^= moved
        moved <<= np.uint64(shift)
        blocks ^= moved


def to_rows(planes: Bytes) -> Words:
    """(512, n/8) bytes of bit planes to n rows of 512 bits, (n, 8) words."""
    width, across = planes.shape[1], WIDTH // 8
    blocks = np.ascontiguousarray(planes.reshape(across, 8, width).transpose(2, 0, 1)).view(np.uint64).reshape(-1)
    _swap(blocks)
    turned = blocks.view(np.uint8).reshape(width, across, 8).transpose(0, 2, 1)
    return np.ascontiguousarray(turned).reshape(8 * width, across).view(np.uint64)


def to_planes(rows: Words) -> Bytes:
    """The inverse of `to_rows`."""
    count, across = len(rows), WIDTH // 8
    parts = np.ascontiguousarray(rows).view(np.uint8).reshape(count // 8, 8, across)
    blocks = np.ascontiguousarray(parts.transpose(2, 0, 1)).reshape(-1, 8).view(np.uint64).reshape(-1)
    _swap(blocks)
    turned = blocks.view(np.uint8).reshape(across, count // 8, 8).transpose(0, 2, 1)
    return np.ascontiguousarray(turned).reshape(WIDTH, count // 8)
