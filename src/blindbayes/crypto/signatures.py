"""Ed25519 signatures, over libsodium, and lasting ones, which are signed by ML-DSA-65 (FIPS 204) as well, over `cryptography`.

Within a run a forger would need the signature at its time: Ed25519 alone. What is read for years (releases, receipts, cards)
has both signatures, and both must verify: it cannot be forged as long as one of the two schemes holds. Both keys come from one
seed, which neither public key reveals. Verification raises; it never returns a bool.

Always sign the context of a run (study, run, step, sender, receiver) with the payload; `Run.context` makes those bytes.
"""

from __future__ import annotations

from functools import cached_property

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA65PrivateKey, MLDSA65PublicKey
from nacl import bindings
from nacl.exceptions import CryptoError

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.prg import derive_key
from blindbayes.errors import IntegrityError

PUBLIC_BYTES = 32
SIGNATURE_BYTES = 64
LASTING_PUBLIC_BYTES = PUBLIC_BYTES + 1952
LASTING_BYTES = SIGNATURE_BYTES + 3309
_CONTEXT = b"blindbayes lasting v1"


class SigningKey:
    """A party's identity; implements `protocols.core.Signer`."""

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

    @cached_property
    def _lattice(self) -> MLDSA65PrivateKey:
        return MLDSA65PrivateKey.from_seed_bytes(derive_key(self._secret[:32], "ml-dsa-65"))

    @cached_property
    def lasting_public(self) -> bytes:
        """Both public keys, for `verify_lasting`."""
        return self.public + self._lattice.public_key().public_bytes_raw()

    def sign_lasting(self, payload: bytes) -> bytes:
        """Return the signatures of both keys, 3,373 bytes."""
        return self.sign(payload) + self._lattice.sign(payload, _CONTEXT)


def is_of(public: bytes, identity: bytes) -> bool:
    """Return True if both public keys of a lasting signature are those named: an Ed25519 key alone, or both."""
    return len(identity) in (PUBLIC_BYTES, LASTING_PUBLIC_BYTES) and public[: len(identity)] == identity


def verify(public: bytes, payload: bytes, signature: bytes, *, party: str | None = None) -> None:
    """Raise `IntegrityError` naming `party` unless `signature` is `public`'s signature of `payload`."""
    if len(public) != PUBLIC_BYTES or len(signature) != SIGNATURE_BYTES:
        raise IntegrityError(party=party)
    try:
        bindings.crypto_sign_open(signature + payload, public)
    except (CryptoError, ValueError) as cause:
        raise IntegrityError(party=party) from cause


def verify_lasting(public: bytes, payload: bytes, signature: bytes, *, party: str | None = None) -> None:
    """Raise `IntegrityError` naming `party` unless the Ed25519 and the ML-DSA-65 signature verify under `public`."""
    if len(public) != LASTING_PUBLIC_BYTES or len(signature) != LASTING_BYTES:
        raise IntegrityError(party=party)
    verify(public[:PUBLIC_BYTES], payload, signature[:SIGNATURE_BYTES], party=party)
    try:
        lattice = MLDSA65PublicKey.from_public_bytes(public[PUBLIC_BYTES:])
        lattice.verify(signature[SIGNATURE_BYTES:], payload, _CONTEXT)
    except (InvalidSignature, ValueError) as cause:
        raise IntegrityError(party=party) from cause
