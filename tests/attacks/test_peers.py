"""Attacks on other people's software, in the form in which it ships: what falls, and why ours does not.

Each scheme is written down here in a few lines, so that the attack runs everywhere; where the peer itself is installed the
same attack runs on its own functions (`BLINDBAYES_PEERS=require` makes its absence a failure). docs/attacks.md is the page.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import math
import os
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import gmpy2
import numpy as np
import pytest

from blindbayes.crypto.coins import Coins
from blindbayes_papers.huai2015.primitives.joye_libert import deal_modulus

coins = Coins.seeded(b"attacks on peers".ljust(32, b"."))


def peer(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        if os.environ.get("BLINDBAYES_PEERS") == "require":
            raise
        package = {"declearn": "declearn", "flwr": "flwr"}[name.split(".")[0]]
        pytest.skip(f"{package} is not installed: pip install {package}")


# -- DecLearn: a Joye-Libert sum whose default modulus has its primes in the source --------------------------------------

Encrypt = Callable[[int, int, int, int], int]  # value, index, secret, modulus
Hash = Callable[[int, int], int]  # index, modulus


def hash_into(index: int, modulus: int) -> int:
    stream = b"".join(
        hashlib.sha256(bytes([at]) + index.to_bytes(8, "big")).digest() for at in range(modulus.bit_length() // 128)
    )
    return int.from_bytes(stream, "big") % modulus**2


def encrypt(value: int, index: int, secret: int, modulus: int) -> int:
    square = modulus**2
    return int((1 + value * modulus) * gmpy2.powmod(hash_into(index, modulus), secret, square) % square)


def cells_from_one(ciphertexts: Sequence[int], known: int, hashes: Sequence[int], p: int, q: int) -> list[int]:
    """All cells of a client from its ciphertexts and the value of its first cell.

    Whoever knows the primes raises to lcm(p - 1, q - 1): what is left is 1 + N times a number that is linear in the value and
    in the key. One known value gives the key, and the key every other value.
    """
    modulus = p * q
    power, square = math.lcm(p - 1, q - 1), modulus**2

    def logarithm(element: int) -> int:
        return int((gmpy2.powmod(element, power, square) - 1) // modulus)

    key = (logarithm(ciphertexts[0]) - known * power) * gmpy2.invert(logarithm(hashes[0]), modulus) % modulus
    unit = gmpy2.invert(power, modulus)
    return [
        int((logarithm(each) - key * logarithm(base)) * unit % modulus) for each, base in zip(ciphertexts, hashes, strict=True)
    ]


def read_client(encrypt: Encrypt, hash_: Hash, p: int, q: int) -> None:
    cells = [4, 10**6, 0, 77, 31_337]
    secret = int.from_bytes(coins.derive("client").bytes(256), "big")
    sent = [encrypt(value, index, secret, p * q) for index, value in enumerate(cells, start=1)]
    hashes = [hash_(index, p * q) for index in range(1, len(cells) + 1)]
    assert cells_from_one(sent, cells[0], hashes, p, q) == cells
    assert cells_from_one(sent, cells[0] + 1, hashes, p, q) != cells  # a wrong guess of the one cell reads nothing


def test_one_known_cell_opens_a_client_whose_modulus_has_known_primes() -> None:
    p, q = (int(gmpy2.next_prime(int.from_bytes(coins.derive(name).bytes(64), "big") | 1 << 511)) for name in "pq")
    read_client(encrypt, hash_into, p, q)


def test_declearns_default_modulus_has_its_primes_in_the_source() -> None:
    found = peer("declearn.secagg.joye_libert._primitives")
    assert found.PRIME_P * found.PRIME_Q == found.DEFAULT_BIPRIME
    read_client(found.encrypt, found.hash_into_domain, found.PRIME_P, found.PRIME_Q)


def test_our_modulus_is_dealt_for_one_run_and_only_the_product_comes_back() -> None:
    one, other = deal_modulus(2048, coins.derive("one")), deal_modulus(2048, coins.derive("other"))
    assert isinstance(one, int)
    assert one.bit_length() == 2048
    assert math.gcd(one, other) == 1  # no prime is used twice


# -- Flower: masks from 28 bits, and counts that are clipped -------------------------------------------------------------


def folded_seed(key: bytes) -> int:
    """How SecAgg+ turns a key into a seed: its 32-bit words, XORed."""
    seed = 0
    for at in range(0, len(key), 4):
        seed ^= int.from_bytes(key[at : at + 4], "little")
    return seed


def flower_mask(seed: int, length: int, modulus: int) -> np.ndarray[Any, Any]:
    return np.random.RandomState(seed).randint(0, modulus - 1, length, dtype=np.int64)


def fernet_key(number: int) -> bytes:
    return base64.urlsafe_b64encode(coins.derive(f"pair {number}").bytes(32))


def test_flowers_mask_seeds_have_at_most_28_bits() -> None:
    """A pair key is base64 text: the top bit of every byte is 0, so four bits of the folded seed are always 0."""
    seeds = [folded_seed(fernet_key(at)) for at in range(2000)]
    assert all(seed & 0x80808080 == 0 for seed in seeds)
    assert len(set(seeds)) == len(seeds)  # else there would be no need for a search


def test_a_server_that_searches_the_seeds_reads_the_counts() -> None:
    """The whole space is 2^28: minutes of one core. Here the search starts 12 bits away, which changes its length alone."""
    modulus, length = 1 << 32, 6
    seed = folded_seed(fernet_key(0))
    counts = np.array([333_332, 12, 0, 5, 7, 1], dtype=np.int64)
    masked = (counts + flower_mask(seed, length, modulus)) % modulus
    low = seed & ~0xFFF
    interval = 10**6  # counts of a table are small against the modulus: five wrong cells in a row never are
    found = [
        candidate
        for candidate in range(low, low + 0x1000)
        if ((masked - flower_mask(candidate, length, modulus)) % modulus < interval).all()
    ]
    assert found == [seed]
    assert ((masked - flower_mask(found[0], length, modulus)) % modulus == counts).all()


def test_flowers_own_functions_fold_the_seed_and_clip_the_counts() -> None:
    utils, quantization = (peer(f"flwr.common.secure_aggregation.{name}") for name in ("secaggplus_utils", "quantization"))
    key = fernet_key(0)
    own = utils.pseudo_rand_gen(key, 1 << 32, [(6,)])[0]
    assert (own == flower_mask(folded_seed(key), 6, 1 << 32)).all()
    counts = np.array([333_332.0])
    back = quantization.dequantize(quantization.quantize([counts], 8.0, 1 << 22), 8.0, 1 << 22)[0]
    assert back[0] == pytest.approx(8.0)  # its default range: every larger count becomes 8, without a word
