"""Hybrid key agreement of two fresh keys: X25519 and ML-KEM-768 (FIPS 203), over `cryptography`.

A secret is safe as long as one of the two problems is hard: traffic recorded today stays secret if the curve is broken later.
Each direction has its own encapsulation, so that both sides contribute to both secrets.
"""

from __future__ import annotations

from cryptography.hazmat.backends.openssl import backend  # noqa: F401 - the first key would import it, on the event loop
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey

from blindbayes.crypto import key_agreement
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.crypto.prg import derive_key
from blindbayes.errors import IntegrityError

PUBLIC_BYTES = key_agreement.PUBLIC_BYTES + 1184
CIPHERTEXT_BYTES = 1088
_SEED_BYTES = 64


class HybridKey:
    """A pair of private keys. Make a fresh one per session."""

    __slots__ = ("_curve", "_lattice", "public")

    def __init__(self, curve: AgreementKey, seed: bytes) -> None:
        self._curve = curve
        self._lattice = MLKEM768PrivateKey.from_seed_bytes(seed)
        self.public: bytes = curve.public + self._lattice.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, coins: Coins) -> HybridKey:
        return cls(AgreementKey.generate(coins), coins.bytes(_SEED_BYTES))

    def __repr__(self) -> str:
        return "HybridKey(<redacted>)"

    def encapsulate(self, public: bytes, *, party: str | None = None) -> tuple[bytes, bytes]:
        """Return a fresh secret for messages to the owner of `public`, and the ciphertext from which the owner gets it.

        Raises `IntegrityError` naming `party` for a public key that is not well formed, or of small order.
        """
        point = self._point(public, party)
        try:
            secret, ciphertext = MLKEM768PublicKey.from_public_bytes(public[key_agreement.PUBLIC_BYTES :]).encapsulate()
        except ValueError as cause:
            raise IntegrityError(party=party) from cause
        return _joined(point, secret, ciphertext, self.public, public), ciphertext

    def decapsulate(self, public: bytes, ciphertext: bytes, *, party: str | None = None) -> bytes:
        """Return the secret that the owner of `public` encapsulated to this key. An altered ciphertext gives another secret."""
        point = self._point(public, party)
        if len(ciphertext) != CIPHERTEXT_BYTES:
            raise IntegrityError(party=party)
        return _joined(point, self._lattice.decapsulate(ciphertext), ciphertext, public, self.public)

    def _point(self, public: bytes, party: str | None) -> bytes:
        if len(public) != PUBLIC_BYTES:
            raise IntegrityError(party=party)
        return self._curve.agree(public[: key_agreement.PUBLIC_BYTES], party=party)


def _joined(point: bytes, secret: bytes, ciphertext: bytes, sender: bytes, receiver: bytes) -> bytes:
    """Derive one secret from both, bound to the ciphertext and to both public keys. All parts have fixed lengths."""
    return derive_key(point, "hybrid", secret + ciphertext + sender + receiver)
