"""X25519 agreement: known answers, refused keys, and secrets that are not shown."""

from __future__ import annotations

import hashlib

import pytest

from blindbayes.crypto import signatures
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.errors import IntegrityError

SEED = bytes(range(32))


def test_agreement_is_x25519() -> None:
    """RFC 7748, section 6.1: Bob's keys, and the point that he shares with Alice, under the hash."""
    bob = AgreementKey(bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"))
    alice = bytes.fromhex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
    assert bob.public.hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    point = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    low, high = sorted((alice, bob.public))
    assert bob.agree(alice) == hashlib.blake2b(point + low + high, digest_size=32, person=b"blindbayes x1").digest()


def test_both_ends_agree() -> None:
    one, other, third = (AgreementKey.generate(Coins.seeded(bytes([at]) * 32)) for at in range(3))
    assert one.agree(other.public) == other.agree(one.public)
    assert one.agree(other.public) != one.agree(third.public)


SMALL_ORDER = [
    bytes(32),
    bytes([1]) + bytes(31),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"),
]


@pytest.mark.parametrize("public", [*SMALL_ORDER, b"", bytes(31), bytes(33)])
def test_agreement_refuses_keys_without_a_secret(public: bytes) -> None:
    with pytest.raises(IntegrityError) as caught:
        AgreementKey(SEED).agree(public, party="b")
    assert caught.value.party == "b"


def test_secrets_do_not_show() -> None:
    key = AgreementKey(SEED)
    assert "redacted" in repr(key)
    assert "redacted" in repr(signatures.SigningKey(SEED))
    with pytest.raises(ValueError):
        AgreementKey(bytes(31))
    with pytest.raises(ValueError):
        signatures.SigningKey(bytes(31))
