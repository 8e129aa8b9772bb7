"""X25519 key agreement, over libsodium.

The agreed secret is BLAKE2b of the curve point and both public keys in a fixed order, as in libsodium's `crypto_kx`: a uniform
key that is bound to the pair.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from nacl import bindings
from nacl.exceptions import CryptoError

from blindbayes.crypto import kernels
from blindbayes.crypto.coins import Coins
from blindbayes.errors import IntegrityError

PUBLIC_BYTES = 32
SECRET_BYTES = 32


class AgreementKey:
    """A private X25519 key. Make a fresh one per run and purpose."""

    __slots__ = ("_secret", "public")

    def __init__(self, secret: bytes) -> None:
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"an agreement key must have {SECRET_BYTES} bytes")
        self._secret = bytes(secret)
        self.public: bytes = bindings.crypto_scalarmult_base(self._secret)

    @classmethod
    def generate(cls, coins: Coins) -> AgreementKey:
        return cls(coins.bytes(SECRET_BYTES))

    def secret_bytes(self) -> bytes:
        """Return the private key, to be secret-shared or journalled, never sent in clear."""
        return self._secret

    def __repr__(self) -> str:
        return "AgreementKey(<redacted>)"

    def agree(self, public: bytes, *, party: str | None = None) -> bytes:
        """Return the 32-byte secret that only the two key holders can compute.

        Raises `IntegrityError` naming `party` for a public key of wrong size or small order.
        """
        return self.agree_many([public], [party])[0]

    def agree_many(self, publics: Sequence[bytes], parties: Sequence[str | None]) -> list[bytes]:
        for public, party in zip(publics, parties, strict=True):
            if len(public) != PUBLIC_BYTES:
                raise IntegrityError(party=party)
        engine = kernels.active() if len(publics) > 2 else None
        points = None if engine is None else engine.agreements(self._secret, b"".join(publics))
        secrets = []
        for i, (public, party) in enumerate(zip(publics, parties, strict=True)):
            point = self._point(public, party) if points is None else points[32 * i : 32 * i + 32]
            if point == bytes(32):
                raise IntegrityError(party=party)
            low, high = (self.public, public) if self.public < public else (public, self.public)
            secrets.append(hashlib.blake2b(point + low + high, digest_size=32, person=b"blindbayes x1").digest())
        return secrets

    def _point(self, public: bytes, party: str | None) -> bytes:
        try:
            point: bytes = bindings.crypto_scalarmult(self._secret, public)
        except (CryptoError, RuntimeError) as cause:
            raise IntegrityError(party=party) from cause
        return point
