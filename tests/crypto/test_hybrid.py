"""Hybrid agreement: both sides get one secret per direction, and it is lost without either of the two private keys."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.hybrid import CIPHERTEXT_BYTES, PUBLIC_BYTES, HybridKey
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.errors import IntegrityError

COINS = Coins.seeded(bytes(32))


def key(name: str) -> HybridKey:
    return HybridKey.generate(COINS.derive(name))


def test_both_sides_have_one_secret_per_direction() -> None:
    north, south = key("north"), key("south")
    assert len(north.public) == PUBLIC_BYTES
    there, sealed = north.encapsulate(south.public)
    back, answer = south.encapsulate(north.public)
    assert (len(sealed), len(there)) == (CIPHERTEXT_BYTES, 32)
    assert south.decapsulate(north.public, sealed) == there
    assert north.decapsulate(south.public, answer) == back
    assert len({there, back, north.encapsulate(south.public)[0]}) == 3


def test_a_key_follows_from_its_coins_and_shows_nothing() -> None:
    assert key("north").public == key("north").public != key("south").public
    assert repr(key("north")) == "HybridKey(<redacted>)"


def test_neither_part_alone_gives_the_secret() -> None:
    """Who has broken the curve has its private key, and not the lattice's; and the other way round."""
    curve, seed = AgreementKey.generate(COINS.derive("curve")), COINS.derive("seed").bytes(64)
    south, north = HybridKey(curve, seed), key("north")
    secret, sealed = north.encapsulate(south.public)
    assert HybridKey(curve, seed).decapsulate(north.public, sealed) == secret
    other = COINS.derive("other")
    for guess in (HybridKey(curve, other.bytes(64)), HybridKey(AgreementKey.generate(other), seed)):
        guess.public = south.public
        assert guess.decapsulate(north.public, sealed) != secret


@pytest.mark.parametrize("at", [0, 500, CIPHERTEXT_BYTES - 1])
def test_an_altered_ciphertext_gives_another_secret(at: int) -> None:
    north, south = key("north"), key("south")
    secret, sealed = north.encapsulate(south.public)
    altered = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
    assert south.decapsulate(north.public, altered) != secret


def test_what_is_not_well_formed_is_refused() -> None:
    north, south = key("north"), key("south")
    small = bytes(32) + MLKEM768PrivateKey.generate().public_key().public_bytes_raw()
    beyond = south.public[:32] + b"\xff" * 1184  # coefficients that are not reduced
    for public in (b"", south.public[:-1], south.public + b"x", small, beyond):
        with pytest.raises(IntegrityError):
            north.encapsulate(public)
    for sealed in (b"", bytes(CIPHERTEXT_BYTES - 1), bytes(CIPHERTEXT_BYTES + 1)):
        with pytest.raises(IntegrityError):
            north.decapsulate(south.public, sealed)
