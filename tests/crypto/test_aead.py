"""Sealing: AES-256-GCM, bound to key, nonce and context."""

from __future__ import annotations

import pytest

from blindbayes.crypto import aead
from blindbayes.errors import IntegrityError

SEED = bytes(range(32))


def test_sealing_binds_key_nonce_and_context() -> None:
    sealed = aead.seal(SEED, b"secret", associated=b"slot", nonce=3)
    assert aead.unseal(SEED, sealed, associated=b"slot", nonce=3) == b"secret"
    assert len(sealed) == 6 + aead.TAG_BYTES
    for key, box, associated, nonce in [
        (bytes(32), sealed, b"slot", 3),
        (SEED, sealed, b"other", 3),
        (SEED, sealed, b"slot", 4),
        (SEED, sealed[:-1], b"slot", 3),
        (SEED, b"", b"slot", 3),
    ]:
        with pytest.raises(IntegrityError):
            aead.unseal(key, box, associated=associated, nonce=nonce)


def test_sealing_is_aes_256_gcm() -> None:
    """McGrew and Viega, test case 14: zero key, zero nonce, one zero block."""
    sealed = aead.seal(bytes(32), bytes(16), associated=b"")
    assert sealed.hex() == "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"
