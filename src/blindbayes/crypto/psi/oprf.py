"""Batched oblivious pseudo-random function (Kolesnikov, Kumaresan, Rosulek and Trieu, CCS 2016), with malicious checks.

The *asker* evaluates F_j at one item per bin j and learns F_j(item); the *owner* can evaluate every F_j anywhere and does not
learn the items. 512 oblivious transfers of seeds (made from correlated transfers), then 64 bytes per bin:

    asker:  t_j,  sends  u = t ^ t' ^ C(x_j) bit by bit         owner:  q_j = t_j ^ (C(x_j) & s)
    F_j(x) = H(j, q_j ^ (C(x) & s)),   for the asker's own item  F_j(x_j) = H(j, t_j)

C is a linear code: 128 dimensions of the extended narrow-sense BCH code [512, 130] with roots a^1 .. a^110 in GF(2^9), so that
two different items differ in at least 112 places, and every value unknown to the asker depends on at least 112 bits of s. H is
BLAKE2b, salted with the session. Outputs have 128 bits or more.

**Malicious askers** could send words that are not codewords: one bit off a codeword with a recognisable value reveals that bit
of s, and s allows them to evaluate every F_j. Each block of questions therefore ends in a proof that every bin holds a codeword
(Orru, Orsini and Scholl 2017; `linear_hash` in place of random sums): the asker sends H of its 128 planes of items, from which
the owner computes H of the 512 planes of code, and a digest of H of its t. Wrong planes pass only if the asker guesses their
bits of s. The owner draws a new s for each session.
"""

from __future__ import annotations

import functools
import hashlib
import hmac

import numpy as np
import numpy.typing as npt

from blindbayes.crypto import kernels
from blindbayes.crypto.bit_planes import Bytes, Streams, U64Array, to_planes, to_rows
from blindbayes.crypto.linear_hash import DIGEST_BYTES, HASH_BYTES, MASK_BITS, LinearHash, digest
from blindbayes.crypto.tweaks import Block128
from blindbayes.errors import IntegrityError, LocalProtocolError, PeerProtocolError

WIDTH = 512
ROW_WORDS = WIDTH // 64
ITEM_BITS = 128
PROOF_WORDS = (ITEM_BITS * HASH_BYTES + DIGEST_BYTES) // 8
MAX_WORDS = 8  # of an output
_CODES_AT_ONCE = 1 << 11  # keeps codewords in the cache
Bits = npt.NDArray[np.uint8]


def question_words(bins: int) -> int:
    """Return the words of the questions of `bins` bins, of 128 random ones after them, and of their proof."""
    return (bins + MASK_BITS) * ROW_WORDS + PROOF_WORDS


def codewords(items: Block128) -> U64Array:
    """Return the codeword of each item, (n, 8)."""
    tables, raw = _code_tables(), np.ascontiguousarray(items).view(np.uint8).reshape(-1, ITEM_BITS // 8)
    code = np.empty((len(raw), ROW_WORDS), dtype=np.uint64)
    part = np.empty((_CODES_AT_ONCE, ROW_WORDS), dtype=np.uint64)
    for low in range(0, len(raw), _CODES_AT_ONCE):
        own, here = code[low : low + _CODES_AT_ONCE], np.ascontiguousarray(raw[low : low + _CODES_AT_ONCE].T)
        np.take(tables[0], here[0], axis=0, out=own, mode="clip")
        for table, places in zip(tables[1:], here[1:], strict=True):
            own ^= np.take(table, places, axis=0, out=part[: len(own)], mode="clip")
    return code


@functools.cache
def _code_tables() -> U64Array:
    """Return the part of the codeword for each value of each byte of an item, (16, 256, 8) words."""
    generator = code_generator()
    tables = np.zeros((ITEM_BITS // 8, 256, ROW_WORDS), dtype=np.uint64)
    for i in range(ITEM_BITS):
        word = generator << i
        word |= (word.bit_count() & 1) << (WIDTH - 1)  # the extended code has even weights
        row = np.frombuffer(word.to_bytes(WIDTH // 8, "little"), dtype="<u8").astype(np.uint64)
        size = 1 << (i % 8)
        tables[i // 8, size : 2 * size] = tables[i // 8, :size] ^ row
    return tables


def code_generator() -> int:
    """Return the generator polynomial of the BCH code, with its coefficients as bits.

    It is the product of (x - r) over all conjugates r of the roots a^1 .. a^110, a primitive in GF(2)[z] / (z^9 + z^4 + 1).
    """
    powers = [1]
    for _ in range(510):
        doubled = powers[-1] << 1
        powers.append(doubled ^ 0b1000010001 if doubled >> 9 else doubled)
    logs = {power: i for i, power in enumerate(powers)}
    roots = {root * 2**turn % 511 for root in range(1, 111) for turn in range(9)}
    polynomial = [1]  # coefficients in the field, lowest first
    for root in roots:
        scaled = [powers[(logs[value] + root) % 511] if value else 0 for value in polynomial]
        polynomial = [low ^ high for low, high in zip([*scaled, 0], [0, *polynomial], strict=True)]
    return sum(value << i for i, value in enumerate(polynomial))


class Asker:
    """The party that evaluates, with both seeds of every transfer."""

    def __init__(self, session: bytes, seeds: U64Array) -> None:
        if seeds.shape != (2, WIDTH, 2):
            raise LocalProtocolError("an asker needs two seeds for each of 512 transfers")
        self._session = session
        self._streams = [Streams(map(bytes, side)) for side in seeds]
        self._masks = Streams([hashlib.sha256(b"oprf masks" + seeds.tobytes()).digest()[:16]])
        self._asked = 0

    def ask(self, items: Block128) -> tuple[U64Array, U64Array]:
        """Return the message for the next bins (a multiple of 64), and t, (n, 8) words to be hashed."""
        if len(items) % 64:
            raise LocalProtocolError("the number of bins must be a multiple of 64")
        hidden = self._masks.read(2 * 8 * MASK_BITS).view(np.uint64).reshape(MASK_BITS, 2)
        every = np.concatenate([items, hidden])  # random items at the end hide the others in the proof
        own, other = (side.read(len(every) // 8) for side in self._streams)
        other ^= own
        other ^= to_planes(codewords(every))
        check = LinearHash(self._session + b" questions", self._asked, other)
        self._asked += 1
        proof = check.masked(to_planes(every)).tobytes() + digest(check.masked(own))
        sent = np.concatenate([other.reshape(-1), np.frombuffer(proof, dtype=np.uint8)])
        return sent.view(np.uint64), to_rows(own[:, :-HASH_BYTES])


class Owner:
    """The party with the function, with the seeds of its bits s."""

    def __init__(self, session: bytes, bits: Bits, seeds: U64Array) -> None:
        if seeds.shape != (WIDTH, 2) or bits.shape != (WIDTH,):
            raise LocalProtocolError("an owner needs one seed for each of 512 transfers")
        self._session = session
        self._streams = Streams(map(bytes, seeds))
        self._chosen = np.flatnonzero(bits)
        self._mask = np.packbits(bits, bitorder="little").view(np.uint64)
        self._answered = 0

    def answer(self, sent: U64Array, bins: int, party: str | None = None) -> U64Array:
        """Return q of the next bins, (n, 8) words, or raise `IntegrityError` unless every bin holds a codeword."""
        if sent.shape != (question_words(bins),):
            raise PeerProtocolError("masked questions have the wrong length", party=party)
        raw, width = sent.view(np.uint8), (bins + MASK_BITS) // 8
        received, proof = raw[: WIDTH * width].reshape(WIDTH, width), raw[WIDTH * width :]
        planes = self._streams.read(width)
        planes[self._chosen] ^= received[self._chosen]
        if not self._holds(received, proof, planes):
            raise IntegrityError(party=party)
        return to_rows(planes[:, :-HASH_BYTES])

    def _holds(self, received: Bytes, proof: Bytes, planes: Bytes) -> bool:
        """Return True if H(q) is H(t) where s is 0, and H(t) ^ H(code) where it is 1; hashing and the code commute."""
        hashes = LinearHash(self._session + b" questions", self._answered, received).masked(planes)
        self._answered += 1
        items = to_rows(proof[: ITEM_BITS * HASH_BYTES].reshape(ITEM_BITS, HASH_BYTES))
        hashes[self._chosen] ^= to_planes(codewords(items))[self._chosen]
        return hmac.compare_digest(digest(hashes), proof[ITEM_BITS * HASH_BYTES :].tobytes())

    def evaluate(self, rows: U64Array, items_code: U64Array, bins: npt.NDArray[np.int64], words: int) -> U64Array:
        """Return F_j(x), (n, words), from q_j and C(x)."""
        return hashed(self._session, rows ^ (items_code & self._mask), bins, words)


def hashed(session: bytes, rows: U64Array, bins: npt.NDArray[np.int64], words: int) -> U64Array:
    """Return H(j, row), (n, words)."""
    if not 2 <= words <= MAX_WORDS:
        raise LocalProtocolError("an output must have 128 to 512 bits")
    kernel = kernels.active()
    if kernel is not None:
        # The parameter block of BLAKE2b: digest length, no key, fan-out and depth 1; salt and person.
        head = bytes([8 * words, 0, 1, 1]) + bytes(28) + session[:16].ljust(16, b"\0") + b"blindbayes oprf\0"
        return kernel.blake2b_rows(np.ascontiguousarray(rows), np.ascontiguousarray(bins), head, words)
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
