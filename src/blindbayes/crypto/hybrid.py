"""Hybrid key agreement: X25519 and ML-KEM-768 (FIPS 203), over `cryptography`.

A secret is safe as long as one of the two problems is hard: traffic recorded today stays secret if the curve is broken later.
The sessions of the envelope encapsulate fresh keys to each other, one per direction; the pairs of a sum encapsulate between the
keys of their cards, from coins, since roles are replayed; a notice is sealed to the key of a card by a fresh one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cryptography.hazmat.backends.openssl import backend  # noqa: F401 - the first key would import it, on the event loop
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey

from blindbayes.crypto import key_agreement, ml_kem
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.crypto.prg import derive_key
from blindbayes.errors import IntegrityError

_CURVE_BYTES = key_agreement.PUBLIC_BYTES
PUBLIC_BYTES = _CURVE_BYTES + ml_kem.PUBLIC_BYTES
CIPHERTEXT_BYTES = ml_kem.CIPHERTEXT_BYTES
OPENING_BYTES = _CURVE_BYTES + CIPHERTEXT_BYTES
SEED_BYTES = 64


class HybridKey:
    """A pair of private keys: fresh for each session, or that of a card."""

    __slots__ = ("_lattice", "curve", "public")

    def __init__(self, curve: AgreementKey, seed: bytes) -> None:
        self.curve = curve
        self._lattice = MLKEM768PrivateKey.from_seed_bytes(seed)
        self.public: bytes = curve.public + self._lattice.public_key().public_bytes_raw()

    @classmethod
    def generate(cls, coins: Coins) -> HybridKey:
        return cls(AgreementKey.generate(coins), coins.bytes(SEED_BYTES))

    def __repr__(self) -> str:
        return "HybridKey(<redacted>)"

    def encapsulate(self, public: bytes, *, party: str | None = None) -> tuple[bytes, bytes]:
        """Return a fresh secret for messages to the owner of `public`, and the ciphertext from which the owner gets it.

        Raises `IntegrityError` naming `party` for a public key that is not well formed, or of small order.
        """
        point = self._point(public, party)
        secret, ciphertext = _encapsulated(public, party)
        return _joined(point, secret, ciphertext, self.public, public), ciphertext

    def decapsulate(self, public: bytes, ciphertext: bytes, *, party: str | None = None) -> bytes:
        """Return the secret that the owner of `public` encapsulated to this key. An altered ciphertext gives another secret."""
        point = self._point(public, party)
        if len(ciphertext) != CIPHERTEXT_BYTES:
            raise IntegrityError(party=party)
        return _joined(point, self._lattice.decapsulate(ciphertext), ciphertext, public, self.public)

    def encapsulate_many(self, publics: Mapping[str, bytes], coins: Coins) -> list[tuple[bytes, bytes]]:
        """Return the secret and the ciphertext for each party's public key: the same from the same coins."""
        for party, public in publics.items():
            if not is_proper(public):
                raise IntegrityError(party=party)
        points = self.curve.agree_many([public[:_CURVE_BYTES] for public in publics.values()], list(publics))
        lattices = [public[_CURVE_BYTES:] for public in publics.values()]
        made = ml_kem.encapsulate(lattices, coins.bytes(ml_kem.COINS_BYTES * len(publics)))
        return [
            (_joined(point, secret, ciphertext, self.public, public), ciphertext)
            for point, (secret, ciphertext), public in zip(points, made, publics.values(), strict=True)
        ]

    def decapsulate_many(self, publics: Mapping[str, bytes], ciphertexts: Sequence[bytes]) -> list[bytes]:
        """Return the secrets that the owners of these keys encapsulated to this one."""
        for party, public in publics.items():
            if len(public) != PUBLIC_BYTES:
                raise IntegrityError(party=party)
        points = self.curve.agree_many([public[:_CURVE_BYTES] for public in publics.values()], list(publics))
        return [
            _joined(point, self._lattice.decapsulate(ciphertext), ciphertext, public, self.public)
            for point, ciphertext, public in zip(points, ciphertexts, publics.values(), strict=True)
        ]

    def open(self, opening: bytes, *, party: str | None = None) -> bytes:
        """Return the secret of `seal_to`. Raise `IntegrityError` naming `party` for what is not well formed."""
        if len(opening) != OPENING_BYTES:
            raise IntegrityError(party=party)
        fresh, ciphertext = opening[:_CURVE_BYTES], opening[_CURVE_BYTES:]
        point = self.curve.agree(fresh, party=party)
        return _joined(point, self._lattice.decapsulate(ciphertext), ciphertext, fresh, self.public, "hybrid sealed")

    def _point(self, public: bytes, party: str | None) -> bytes:
        if len(public) != PUBLIC_BYTES:
            raise IntegrityError(party=party)
        return self.curve.agree(public[:_CURVE_BYTES], party=party)


def seal_to(public: bytes, coins: Coins, *, party: str | None = None) -> tuple[bytes, bytes]:
    """Return a fresh secret for the owner of `public`, and the 1,120 bytes from which the owner gets it. It shows no sender."""
    if len(public) != PUBLIC_BYTES:
        raise IntegrityError(party=party)
    fresh = AgreementKey.generate(coins)
    point = fresh.agree(public[:_CURVE_BYTES], party=party)
    secret, ciphertext = _encapsulated(public, party)
    return _joined(point, secret, ciphertext, fresh.public, public, "hybrid sealed"), fresh.public + ciphertext


def is_proper(public: bytes) -> bool:
    """Return True if the bytes are a public key of both kinds, the lattice's with reduced coefficients."""
    return len(public) == PUBLIC_BYTES and ml_kem.is_proper(public[_CURVE_BYTES:])


def curve_of(public: bytes) -> bytes:
    """Return the X25519 public key of a hybrid one, for what the curve alone protects."""
    return public[:_CURVE_BYTES]


def _encapsulated(public: bytes, party: str | None) -> tuple[bytes, bytes]:
    try:
        return MLKEM768PublicKey.from_public_bytes(public[_CURVE_BYTES:]).encapsulate()
    except ValueError as cause:
        raise IntegrityError(party=party) from cause


def _joined(point: bytes, secret: bytes, ciphertext: bytes, sender: bytes, receiver: bytes, purpose: str = "hybrid") -> bytes:
    """Derive one secret from both, bound to the ciphertext and to both public keys. All parts have fixed lengths."""
    return derive_key(point, purpose, secret + ciphertext + sender + receiver)
