"""Encapsulation of ML-KEM-768 from given coins (FIPS 203, Algorithm 17), to many public keys at once.

A role is replayed from its coins after a crash and must send the same bytes again; `cryptography` draws the coins of an
encapsulation itself. Keys and decapsulation are its own (`hybrid`), and decapsulation encrypts again and compares every bit: a
ciphertext that differs from the standard's gives another secret, and the pair fails to agree. Arrays have one row per key, and
no step depends on the value of a secret.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

PUBLIC_BYTES = 1184
CIPHERTEXT_BYTES = 1088
COINS_BYTES = 32
_Q, _K, _N = 3329, 3, 256
_XOF_BYTES = 672  # 448 candidates of 12 bits, of which 256 must be below q: fewer in less than 2^-100 of all streams
Ints = npt.NDArray[np.int32]


def _reversed7(number: int) -> int:
    return int(f"{number:07b}"[::-1], 2)


_ZETAS = np.array([pow(17, _reversed7(i), _Q) for i in range(128)], np.int32)
_GAMMAS = np.array([pow(17, 2 * _reversed7(i) + 1, _Q) for i in range(128)], np.int32)


def is_proper(public: bytes) -> bool:
    """Return True if the bytes are a public key with reduced coefficients."""
    return len(public) == PUBLIC_BYTES and bool((_twelves(np.frombuffer(public[:-32], np.uint8)) < _Q).all())


def encapsulate(publics: Sequence[bytes], coins: bytes) -> list[tuple[bytes, bytes]]:
    """Return the secret and the ciphertext for each of these proper public keys, from 32 bytes of coins for each."""
    if len(coins) != COINS_BYTES * len(publics) or any(len(public) != PUBLIC_BYTES for public in publics):
        raise ValueError("an encapsulation takes a whole public key and 32 bytes of coins")
    if not publics:
        return []
    messages = [coins[at : at + COINS_BYTES] for at in range(0, len(coins), COINS_BYTES)]
    seeds = [
        hashlib.sha3_512(message + hashlib.sha3_256(public).digest()).digest()
        for message, public in zip(messages, publics, strict=True)
    ]
    ciphertexts = _encrypt(publics, messages, [seed[32:] for seed in seeds])
    return [(seed[:32], ciphertext) for seed, ciphertext in zip(seeds, ciphertexts, strict=True)]


def _encrypt(publics: Sequence[bytes], messages: Sequence[bytes], seeds: Sequence[bytes]) -> list[bytes]:
    """K-PKE.Encrypt (Algorithm 14), whose names these are."""
    count = len(publics)
    keys = np.frombuffer(b"".join(publics), np.uint8).reshape(count, PUBLIC_BYTES)
    t = _twelves(keys[:, :-32]).reshape(count, _K, _N)
    a = _matrices([public[-32:] for public in publics])
    noise = _noise(seeds)
    y, e1, e2 = _ntt(noise[:, :_K]), noise[:, _K : 2 * _K], noise[:, -1]
    u = (_inverse(_products(a.swapaxes(1, 2), y[:, None])) + e1) % _Q
    bits = np.unpackbits(np.frombuffer(b"".join(messages), np.uint8), bitorder="little").reshape(count, _N)
    v = (_inverse(_products(t, y)) + e2 + bits.astype(np.int32) * ((_Q + 1) // 2)) % _Q
    packed = np.concatenate([_compressed(u, 10).reshape(count, -1), _compressed(v, 4)], axis=1)
    return [row.tobytes() for row in packed]


def _twelves(octets: npt.NDArray[np.uint8]) -> Ints:
    """Return two numbers of 12 bits for every three bytes."""
    b = octets.reshape(*octets.shape[:-1], -1, 3).astype(np.int32)
    pairs = np.stack([b[..., 0] | (b[..., 1] & 15) << 8, b[..., 1] >> 4 | b[..., 2] << 4], axis=-1)
    return pairs.reshape(*octets.shape[:-1], -1)


def _matrices(seeds: Sequence[bytes]) -> Ints:
    """Return the matrix of each key, in the transformed domain (Algorithm 7)."""
    streams = [
        hashlib.shake_128(seed + bytes((j, i))).digest(_XOF_BYTES) for seed in seeds for i in range(_K) for j in range(_K)
    ]
    candidates = _twelves(np.frombuffer(b"".join(streams), np.uint8).reshape(len(streams), -1))
    fits = candidates < _Q
    places = fits.cumsum(axis=1, dtype=np.int32)
    if int(places[:, -1].min()) < _N:  # public, and never seen
        raise ValueError("a public key whose matrix takes more of its stream than is read")
    return candidates[fits & (places <= _N)].reshape(len(seeds), _K, _K, _N)


def _noise(seeds: Sequence[bytes]) -> Ints:
    """Return 2 k + 1 polynomials of each seed, with coefficients of the centred binomial distribution (Algorithm 8)."""
    streams = b"".join([hashlib.shake_256(seed + bytes((n,))).digest(128) for seed in seeds for n in range(2 * _K + 1)])
    bits = np.unpackbits(np.frombuffer(streams, np.uint8), bitorder="little").astype(np.int32)
    return (bits[0::4] + bits[1::4] - bits[2::4] - bits[3::4]).reshape(len(seeds), 2 * _K + 1, _N)


def _ntt(polynomials: Ints) -> Ints:
    """Algorithm 9."""
    f = polynomials
    for blocks in (1, 2, 4, 8, 16, 32, 64):
        parts = f.reshape(*polynomials.shape[:-1], blocks, 2, -1)
        turned = parts[..., 1, :] * _ZETAS[blocks : 2 * blocks, None] % _Q
        f = np.stack([parts[..., 0, :] + turned, parts[..., 0, :] - turned], axis=-2)  # below 8 q: reduced at the end
    return f.reshape(polynomials.shape) % _Q


def _inverse(transformed: Ints) -> Ints:
    """Algorithm 10."""
    f = transformed
    for blocks in (64, 32, 16, 8, 4, 2, 1):
        parts = f.reshape(*transformed.shape[:-1], blocks, 2, -1)
        zetas = _ZETAS[blocks : 2 * blocks][::-1, None]
        low, high = parts[..., 0, :], parts[..., 1, :]
        f = np.stack([low + high, (high - low) * zetas % _Q], axis=-2)  # below 128 q: reduced at the end
    return f.reshape(transformed.shape) * 3303 % _Q


def _products(left: Ints, right: Ints) -> Ints:
    """Return the sum of the products of polynomials (Algorithms 11 and 12) along the last axis but one."""
    a, b = left.reshape(*left.shape[:-1], 128, 2), right.reshape(*right.shape[:-1], 128, 2)
    even = a[..., 0] * b[..., 0] + a[..., 1] * b[..., 1] % _Q * _GAMMAS
    odd = a[..., 0] * b[..., 1] + a[..., 1] * b[..., 0]
    summed: Ints = (np.stack([even, odd], axis=-1) % _Q).sum(axis=-3, dtype=np.int32) % _Q
    return summed.reshape(*summed.shape[:-2], _N)


def _compressed(coefficients: Ints, bits: int) -> npt.NDArray[np.uint8]:
    """Compress to this number of bits each, and pack (Algorithm 5). A product divides, so that no time depends on the value."""
    scaled = (coefficients.astype(np.int64) << bits) + _Q // 2
    rounded = (scaled * 1290168 >> 32) & ((1 << bits) - 1)
    fours = (rounded.reshape(*coefficients.shape[:-1], -1, 4) << bits * np.arange(4)).sum(axis=-1)
    octets: npt.NDArray[np.uint8] = fours.astype("<i8").view(np.uint8).reshape(*fours.shape, 8)[..., : bits // 2]
    return octets.reshape(*coefficients.shape[:-1], -1)
