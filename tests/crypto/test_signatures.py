"""Ed25519 signatures: known answers and refusals."""

from __future__ import annotations

import pytest

from blindbayes.crypto import signatures
from blindbayes.errors import IntegrityError

SEED = bytes(range(32))


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
