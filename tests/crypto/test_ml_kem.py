"""Encapsulation from given coins is the standard's: decapsulation by `cryptography` encrypts again and compares every bit."""

from __future__ import annotations

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey

from blindbayes.crypto import ml_kem
from blindbayes.crypto.coins import Coins

COINS = Coins.seeded(bytes(32))
KEYS = [MLKEM768PrivateKey.from_seed_bytes(COINS.derive(f"key {at}").bytes(64)) for at in range(60)]
PUBLICS = [key.public_key().public_bytes_raw() for key in KEYS]


def test_every_key_gets_the_secret_of_the_standard() -> None:
    made = ml_kem.encapsulate(PUBLICS, COINS.derive("coins").bytes(32 * len(KEYS)))
    assert len({secret for secret, _ in made}) == len(KEYS)
    for key, (secret, ciphertext) in zip(KEYS, made, strict=True):
        assert len(ciphertext) == ml_kem.CIPHERTEXT_BYTES
        assert key.decapsulate(ciphertext) == secret
        altered = bytes([ciphertext[0] ^ 1]) + ciphertext[1:]
        assert key.decapsulate(altered) != secret  # the comparison is one of the library, and sees one bit


def test_the_same_coins_give_the_same_bytes_and_others_do_not() -> None:
    one, other = bytes(32), bytes(31) + b"\1"
    assert ml_kem.encapsulate(PUBLICS[:1], one) == ml_kem.encapsulate([PUBLICS[0]], one)
    assert ml_kem.encapsulate(PUBLICS[:2], one + other)[1] == ml_kem.encapsulate([PUBLICS[1]], other)[0]
    assert ml_kem.encapsulate(PUBLICS[:1], one) != ml_kem.encapsulate(PUBLICS[:1], other)
    assert ml_kem.encapsulate([], b"") == []


def test_every_coefficient_is_compressed_as_the_standard_rounds() -> None:
    """Algorithm 5's rounding, halves up, for all of them and both sizes."""
    import numpy as np

    values = np.arange(3329, dtype=np.int32)
    padded = np.concatenate([values, np.zeros(3, np.int32)])
    for bits in (4, 10):
        packed = ml_kem._compressed(padded, bits).tobytes()
        number = int.from_bytes(packed, "little")
        found = [number >> bits * at & (1 << bits) - 1 for at in range(3329)]
        assert found == [(2 * (int(x) << bits) + 3329) // (2 * 3329) % (1 << bits) for x in values]


def test_unreduced_and_short_keys_are_not_proper() -> None:
    public = PUBLICS[0]
    assert ml_kem.is_proper(public)
    unreduced = (3329 | 1 << 12).to_bytes(3, "little")  # the first coefficient is q
    for other in (b"", public[:-1], public + b"x", unreduced + public[3:], b"\xff" * 1184):
        assert not ml_kem.is_proper(other)
    for publics, coins in (([public], bytes(31)), ([public[:-1]], bytes(32)), ([public, public], bytes(32))):
        with pytest.raises(ValueError):
            ml_kem.encapsulate(publics, coins)


def test_the_secret_is_bound_to_the_whole_key() -> None:
    """As in the standard, by a hash of the key: the first half of G(m, H(key))."""
    secret, _ = ml_kem.encapsulate(PUBLICS[:1], bytes(32))[0]
    assert secret == hashlib.sha3_512(bytes(32) + hashlib.sha3_256(PUBLICS[0]).digest()).digest()[:32]
