"""Groups in which raising to a secret power is a commutative encryption: f_u(f_v(x)) = f_v(f_u(x)).

`RISTRETTO` is the default. `SAFE_PRIME` is the squares modulo the 2,048-bit safe prime of RFC 3526 (group 14): the kind
of group the paper uses, for its reproduction. In both, an item is hashed to a group element whose logarithm nobody knows.
"""

from __future__ import annotations

import hashlib
from typing import Protocol

import gmpy2

from blindbayes.crypto import ristretto
from blindbayes.crypto.coins import Coins
from blindbayes.errors import PeerProtocolError


class CommutingGroup(Protocol):
    """Elements are bytes of one length."""

    name: str
    size: int  # bytes of an element

    def secret(self, coins: Coins) -> bytes: ...

    def hash(self, item: bytes) -> bytes: ...

    def power(self, secret: bytes, element: bytes) -> bytes: ...

    def draw(self, coins: Coins) -> bytes: ...

    def require(self, element: bytes, party: str | None) -> bytes: ...


class Ristretto:
    """ristretto255."""

    name = "ristretto255"
    size = ristretto.POINT_BYTES

    def secret(self, coins: Coins) -> bytes:
        """A uniform exponent."""
        return ristretto.random_scalar(coins)

    def hash(self, item: bytes) -> bytes:
        """The item's element."""
        return ristretto.hash_to_point(b"blindbayes intersection v1" + item)

    def power(self, secret: bytes, element: bytes) -> bytes:
        """element^secret."""
        return ristretto.multiply(secret, element)

    def draw(self, coins: Coins) -> bytes:
        """A uniform element that is nobody's item."""
        return ristretto.random_point(coins)

    def require(self, element: bytes, party: str | None) -> bytes:
        """The element, or `PeerProtocolError`."""
        return ristretto.require_point(element, party)


_RFC_3526_14 = (
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD"
    "EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED"
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F"
    "83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B"
    "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510"
    "15728E5A8AACAA68FFFFFFFFFFFFFFFF"
)


class SafePrime:
    """Quadratic residues modulo a safe prime p = 2q + 1: the subgroup of prime order q."""

    name = "2,048-bit safe prime"
    size = 256

    def __init__(self) -> None:
        self._p = gmpy2.mpz(int(_RFC_3526_14, 16))
        self._q = (self._p - 1) // 2

    @property
    def modulus(self) -> gmpy2.mpz:
        return self._p

    def secret(self, coins: Coins) -> bytes:
        """A uniform exponent in 1..q-1."""
        return (1 + coins.below(int(self._q) - 1)).to_bytes(self.size, "big")

    def hash(self, item: bytes) -> bytes:
        """SHAKE-256 to 128 bits more than p has, reduced, squared."""
        raw = hashlib.shake_256(b"blindbayes intersection v1" + item).digest(self.size + 16)
        return self._bytes(gmpy2.mpz(int.from_bytes(raw, "big")) % self._p)

    def power(self, secret: bytes, element: bytes) -> bytes:
        """element^secret."""
        power = gmpy2.powmod(int.from_bytes(element, "big"), int.from_bytes(secret, "big"), self._p)
        return int(power).to_bytes(self.size, "big")

    def draw(self, coins: Coins) -> bytes:
        """A uniform square: a random integer instead would show by its Legendre symbol that it is nobody's item."""
        return self._bytes(gmpy2.mpz(1 + coins.below(int(self._p) - 1)))

    def require(self, element: bytes, party: str | None) -> bytes:
        """The element, or `PeerProtocolError` unless it is a square other than 0 and 1."""
        value = int.from_bytes(element, "big")
        if len(element) != self.size or not 1 < value < self._p or gmpy2.legendre(value, self._p) != 1:
            raise PeerProtocolError("a group element is not valid", party=party)
        return element

    def _bytes(self, root: gmpy2.mpz) -> bytes:
        return int(root * root % self._p).to_bytes(self.size, "big")


RISTRETTO = Ristretto()
SAFE_PRIME = SafePrime()
