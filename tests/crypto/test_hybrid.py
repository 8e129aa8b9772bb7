"""Hybrid agreement: both sides get one secret per direction, and it is lost without either of the two private keys."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.hybrid import CIPHERTEXT_BYTES, OPENING_BYTES, PUBLIC_BYTES, HybridKey, seal_to
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


def test_many_are_encapsulated_from_coins_and_decapsulated_at_once() -> None:
    mine, others = key("mine"), {name: key(name) for name in ("north", "south", "west")}
    publics = {name: each.public for name, each in others.items()}
    made = mine.encapsulate_many(publics, COINS.derive("made"))
    assert made == mine.encapsulate_many(publics, COINS.derive("made")) != mine.encapsulate_many(publics, COINS.derive("x"))
    for (secret, ciphertext), other in zip(made, others.values(), strict=True):
        assert other.decapsulate(mine.public, ciphertext) == secret
        assert other.decapsulate_many({"mine": mine.public}, [ciphertext]) == [secret]
        assert other.decapsulate_many({"else": key("else").public}, [ciphertext]) != [secret]  # whose it is counts
    assert mine.encapsulate_many({}, COINS) == mine.decapsulate_many({}, []) == []


def test_a_malformed_key_among_many_names_its_party() -> None:
    mine, good = key("mine"), key("north").public
    small, unreduced = bytes(32) + good[32:], good[:32] + b"\xff" * 1184
    for public in (b"", good[:-1], small, unreduced):
        with pytest.raises(IntegrityError) as caught:
            mine.encapsulate_many({"north": good, "south": public}, COINS.derive("x"))
        assert caught.value.party == "south"
    for public in (b"", good[:-1], small):
        with pytest.raises(IntegrityError) as caught:
            mine.decapsulate_many({"south": public}, [bytes(CIPHERTEXT_BYTES)])
        assert caught.value.party == "south"


def test_a_sealed_secret_takes_both_private_keys_of_its_receiver() -> None:
    curve, seed = AgreementKey.generate(COINS.derive("curve")), COINS.derive("seed").bytes(64)
    card = HybridKey(curve, seed)
    secret, opening = seal_to(card.public, COINS.derive("sealed"))
    assert len(opening) == OPENING_BYTES
    assert card.open(opening) == secret
    for guess in (HybridKey(curve, bytes(64)), HybridKey(AgreementKey(bytes(32)), seed)):
        guess.public = card.public
        assert guess.open(opening) != secret
    for at in (0, 40, OPENING_BYTES - 1):
        assert card.open(opening[:at] + bytes([opening[at] ^ 1]) + opening[at + 1 :]) != secret
    for public in (b"", card.public[:-1], card.public[:32] + b"\xff" * 1184, bytes(32) + card.public[32:]):
        with pytest.raises(IntegrityError) as caught:
            seal_to(public, COINS, party="south")
        assert caught.value.party == "south"
    for short in (b"", opening[:32], opening[:-1], opening + b"x", bytes(32) + opening[32:]):
        with pytest.raises(IntegrityError) as caught:
            card.open(short, party="north")
        assert caught.value.party == "north"
