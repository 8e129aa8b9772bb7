"""Zero-knowledge proof that one list is another one under a secret power, in an order that stays hidden. SPEC.md, Proofs.

The proof is that of graph isomorphism (Goldreich, Micali and Wigderson 1991) for lists of group elements. Z = z G is the
public key of the secret z, and B is A under z. In each round the prover fixes the sorted list w A, and w G, for a random w by
their hash, and shows w or w / z: the same from A and G, or from B and Z. Both answers together give z, so that a lie passes a
round with chance 1/2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from blindbayes.crypto import ristretto
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.ristretto import ORDER
from blindbayes.errors import PeerProtocolError

ROUNDS = 128
SCALAR_BYTES = 32
PROOF_BYTES = ROUNDS // 8 + ROUNDS * SCALAR_BYTES


@dataclass(frozen=True, slots=True)
class PowerStatement:
    """`after` holds the elements of `before` under the secret of a public key.

    `context` is what the proof is bound to besides: session, prover and the list that the prover locked.
    """

    context: bytes
    before: Sequence[bytes]
    after: Sequence[bytes]
    ordered: bool = False  # in the order of `before`: where the matching is revealed

    def prove(self, secret: bytes, coins: Coins) -> bytes:
        """Return the proof. Coins are derived from the statement, so that two statements never share a nonce."""
        root = self._root(public_of(secret))
        coins = coins.derive(f"power of {root.hex()}")
        nonces = [ristretto.random_scalar(coins) for _ in range(ROUNDS)]
        bits = _challenge(root, [self._digest(nonce, None, self.before) for nonce in nonces])
        inverse = pow(int.from_bytes(secret, "little"), -1, ORDER)
        shown = (_times(nonce, inverse) if bit else nonce for nonce, bit in zip(nonces, _each(bits), strict=True))
        return bits + b"".join(shown)

    def require(self, public: bytes, proof: bytes, party: str) -> None:
        """Raise `PeerProtocolError` naming `party` unless the proof holds."""
        if len(proof) != PROOF_BYTES or len(self.before) != len(self.after):
            raise _refusal(party)
        ristretto.require_point(public, party)
        bits = proof[: ROUNDS // 8]
        digests = []
        for at, bit in enumerate(_each(bits)):
            start = ROUNDS // 8 + SCALAR_BYTES * at
            scalar = proof[start : start + SCALAR_BYTES]
            if not 0 < int.from_bytes(scalar, "little") < ORDER:
                raise _refusal(party)
            digests.append(self._digest(scalar, public, self.after) if bit else self._digest(scalar, None, self.before))
        if _challenge(self._root(public), digests) != bits:
            raise _refusal(party)

    def _root(self, public: bytes) -> bytes:
        digest = hashlib.sha512(b"blindbayes power of a list v1")
        for part in (self.context, public, bytes([self.ordered]), b"".join(self.before), b"".join(self.after)):
            digest.update(len(part).to_bytes(8, "big") + part)
        return digest.digest()

    def _digest(self, scalar: bytes, base: bytes | None, elements: Sequence[bytes]) -> bytes:
        """Hash the base (the generator if None) and the elements, all under `scalar`."""
        first = ristretto.base_multiply(scalar) if base is None else ristretto.multiply(scalar, base)
        raised = [ristretto.multiply(scalar, element) for element in elements]
        return hashlib.sha256(first + b"".join(raised if self.ordered else sorted(raised))).digest()


def _challenge(root: bytes, digests: Sequence[bytes]) -> bytes:
    return hashlib.sha512(root + b"".join(digests)).digest()[: ROUNDS // 8]


def public_of(secret: bytes) -> bytes:
    """Return the public key of a secret power."""
    return ristretto.base_multiply(secret)


def _times(scalar: bytes, factor: int) -> bytes:
    return (int.from_bytes(scalar, "little") * factor % ORDER).to_bytes(SCALAR_BYTES, "little")


def _each(bits: bytes) -> list[int]:
    return [byte >> at & 1 for byte in bits for at in range(8)]


def _refusal(party: str) -> PeerProtocolError:
    return PeerProtocolError("it did not prove that it raised all elements to one power of its own", party=party)
