"""Ed25519 signatures: known answers and refusals; lasting ones, of two schemes, of which both must verify."""

from __future__ import annotations

import pytest

from blindbayes.crypto import signatures
from blindbayes.crypto.coins import Coins
from blindbayes.errors import IntegrityError

SEED = bytes(range(32))
NORTH, SOUTH = (signatures.SigningKey.generate(Coins.seeded(bytes([at]) * 32)) for at in range(2))
SIGNED = NORTH.sign_lasting(b"payload")


def test_signatures_are_ed25519() -> None:
    """RFC 8032, section 7.1, test 2."""
    key = signatures.SigningKey(bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"))
    assert key.public.hex() == "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c"
    expected = (
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
    )
    assert key.sign(b"\x72").hex() == expected
    signatures.verify(key.public, b"\x72", bytes.fromhex(expected))


def test_a_changed_signature_payload_or_key_raises() -> None:
    key, other = signatures.SigningKey(SEED), signatures.SigningKey(bytes(32))
    good = key.sign(b"payload")
    bad = [(other.public, b"payload", good), (key.public, b"payloax", good), (key.public, b"payload", good[:-1] + b"\0")]
    for public, payload, signature in [*bad, (key.public, b"payload", b""), (b"", b"payload", good)]:
        with pytest.raises(IntegrityError) as caught:
            signatures.verify(public, payload, signature, party="a")
        assert caught.value.party == "a"


def refused(public: bytes, payload: bytes, signature: bytes) -> bool:
    try:
        signatures.verify_lasting(public, payload, signature, party="north")
    except IntegrityError as error:
        return error.party == "north"
    return False


def test_both_signatures_are_of_the_payload() -> None:
    signatures.verify_lasting(NORTH.lasting_public, b"payload", SIGNED)
    signatures.verify(NORTH.public, b"payload", SIGNED[: signatures.SIGNATURE_BYTES])
    assert (len(SIGNED), len(NORTH.lasting_public)) == (signatures.LASTING_BYTES, signatures.LASTING_PUBLIC_BYTES)
    assert NORTH.lasting_public == signatures.SigningKey.generate(Coins.seeded(bytes(32))).lasting_public
    assert refused(NORTH.lasting_public, b"other", SIGNED)
    assert refused(SOUTH.lasting_public, b"payload", SIGNED)


def test_a_forger_of_either_scheme_alone_is_refused() -> None:
    """Who has broken one of them can make its half for any payload, and has no other half."""
    other, size = NORTH.sign_lasting(b"other"), signatures.SIGNATURE_BYTES
    assert refused(NORTH.lasting_public, b"other", other[:size] + SIGNED[size:])  # the curve is broken
    assert refused(NORTH.lasting_public, b"other", SIGNED[:size] + other[size:])  # the lattice is
    mixed = NORTH.public + SOUTH.lasting_public[32:]
    assert refused(mixed, b"payload", SIGNED)
    assert refused(SOUTH.public + NORTH.lasting_public[32:], b"payload", SIGNED)


@pytest.mark.parametrize("cut", [0, signatures.SIGNATURE_BYTES, signatures.LASTING_BYTES - 1])
def test_a_missing_half_is_refused(cut: int) -> None:
    assert refused(NORTH.lasting_public, b"payload", SIGNED[:cut])
    assert refused(NORTH.lasting_public, b"payload", SIGNED[cut + 1 :])
    assert refused(NORTH.lasting_public, b"payload", SIGNED[:cut] + bytes(signatures.LASTING_BYTES - cut))
    assert refused(NORTH.lasting_public[:32], b"payload", SIGNED)
    assert refused(NORTH.lasting_public[:32] + bytes(1952), b"payload", SIGNED)
