"""Ed25519 signatures, over libsodium. Verification raises; it never returns a bool.

Always sign the context of a run (study, run, step, sender, receiver) with the payload; `Run.context` makes those bytes.
"""

from __future__ import annotations

from nacl import bindings
from nacl.exceptions import CryptoError

from blindbayes.crypto.coins import Coins
from blindbayes.errors import IntegrityError

PUBLIC_BYTES = 32
SIGNATURE_BYTES = 64


class SigningKey:
    """A party's identity; implements `protocols.core.Signer`."""

    __slots__ = ("_secret", "public")

    def __init__(self, seed: bytes) -> None:
        if len(seed) != 32:
            raise ValueError("a signing seed must have 32 bytes")
        public, secret = bindings.crypto_sign_seed_keypair(bytes(seed))
        self._secret: bytes = secret
        self.public: bytes = public

    @classmethod
    def generate(cls, coins: Coins) -> SigningKey:
        return cls(coins.bytes(32))

    def __repr__(self) -> str:
        return "SigningKey(<redacted>)"

    def sign(self, payload: bytes) -> bytes:
        """Return the 64-byte signature of `payload`."""
        signed: bytes = bindings.crypto_sign(payload, self._secret)
        return signed[:SIGNATURE_BYTES]


def verify(public: bytes, payload: bytes, signature: bytes, *, party: str | None = None) -> None:
    """Raise `IntegrityError` naming `party` unless `signature` is `public`'s signature of `payload`."""
    if len(public) != PUBLIC_BYTES or len(signature) != SIGNATURE_BYTES:
        raise IntegrityError(party=party)
    try:
        bindings.crypto_sign_open(signature + payload, public)
    except (CryptoError, ValueError) as cause:
        raise IntegrityError(party=party) from cause
