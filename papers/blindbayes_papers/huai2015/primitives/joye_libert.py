"""Aggregator-oblivious encryption with a composite modulus (Joye and Libert 2013), over gmpy2.

    c_i = (1 + x_i N) * H(label)^{k_i} mod N^2,     k_0 + k_1 + ... + k_n = 0 over the integers,
    H(label)^{k_0} * c_1 * ... * c_n = 1 + N (x_1 + ... + x_n)

The holder of k_0 reads the sum, in time that does not depend on the plaintext, and nothing else. Rules a caller must keep:

- A label is used once per key: two plaintexts under one label show their difference to anybody.
- Keys are added over the *integers*, because the order of the group is secret. Security (decisional composite residuosity,
  in the random oracle model) needs keys that are statistically uniform modulo N * phi(N): `key_bits` = 2 |N| + 128, so that
  the distance is below 2^-128 per key. Shorter keys are faster and need a further assumption; they are not offered.
- A party that knows the factors of N reads every ciphertext (an attack in the tests does it). N comes from somebody who is not
  the miner and does not keep the factors: `deal_modulus` returns N alone. Python cannot promise to erase memory, so
  the dealer is a process that ends.

Keys can be shared: a secret integer is spread with a polynomial over the integers (Rabin 1998; Damgard and Thorbek 2006), so
that any `threshold` of m holders recover H(label)^{scale * key} from H(label)^{share}, with scale = (m!)^2; fewer learn
nothing (distance below 2^-128). Nobody ever computes the key itself.

Elements cross the interface as bytes. Exponentiations with secret exponents are GMP's constant-time ones.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import Any

import gmpy2
from gmpy2 import gcd, invert, mpz, powmod_sec

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.prg import expand_bytes
from blindbayes.errors import IntegrityError, LocalProtocolError, PeerProtocolError
from blindbayes_papers.primitives import paillier
from blindbayes_papers.primitives.packing import Packing

DEFAULT_BITS = paillier.DEFAULT_BITS
STATISTICAL = 128
_GUARD = 8  # guard bits of the packing; a wrong key already fails the check modulo N


def deal_modulus(bits: int, coins: Coins, *, toy_keys: bool = False) -> int:
    """A fresh modulus. Its factors go out of scope here."""
    return int(paillier.generate_keypair(bits, coins, toy_keys=toy_keys).public.n)


class JoyeLibert:
    """One modulus, and everything that can be done with it. See the module."""

    name = "joye_libert"

    def __init__(self, modulus: int, *, toy_keys: bool = False) -> None:
        public = paillier.PublicKey(modulus, toy_keys=toy_keys)  # size, composite, no small factor, no perfect power
        self._n: Any = public.n
        self._square: Any = public.n_squared
        self.bits: int = public.bits
        self.element_bytes: int = public.ciphertext_bytes
        self.key_bits = 2 * self.bits + STATISTICAL
        self._tag = hashlib.sha256(b"blindbayes joye-libert v1" + int(self._n).to_bytes((self.bits + 7) // 8, "big")).digest()

    @property
    def digest(self) -> bytes:
        """Binds keys and labels to this modulus."""
        return self._tag

    # -- keys --------------------------------------------------------------------------------------------------------

    def random_key(self, coins: Coins) -> int:
        """A uniform key."""
        return coins.bits(self.key_bits)

    def pair_key(self, secret: bytes) -> int:
        """The key that two parties derive from a 32-byte secret of theirs."""
        return int.from_bytes(expand_bytes(secret, (self.key_bits + 7) // 8), "little") >> (-self.key_bits % 8)

    def total(self, keys: Iterable[int]) -> int:
        """The sum of keys, over the integers."""
        return sum(keys)

    def split(self, key: int, holders: int, threshold: int, coins: Coins, *, count: int = 1) -> list[int]:
        """Shares at the points 1..holders of a key that is a sum of at most `count` keys; any `threshold` recover it."""
        if not 1 <= threshold <= holders:
            raise LocalProtocolError("a threshold lies between 1 and the number of share holders")
        factor = math.factorial(holders)
        spread = self.key_bits + count.bit_length() + (threshold * (holders + 1) * factor).bit_length() + STATISTICAL
        coefficients = [factor * key, *(coins.bits(spread) for _ in range(threshold - 1))]
        shares = []
        for point in range(1, holders + 1):
            value = 0
            for coefficient in reversed(coefficients):
                value = value * point + coefficient
            shares.append(value)
        return shares

    def share_bits(self, holders: int, threshold: int, count: int) -> int:
        """No honest share, nor a sum of `count` of them, is longer: a bound for what is accepted from others."""
        factor = math.factorial(holders)
        spread = self.key_bits + count.bit_length() + (threshold * (holders + 1) * factor).bit_length() + STATISTICAL
        return spread + threshold * (holders + 1).bit_length() + count.bit_length() + 2

    def scale(self, holders: int) -> int:
        """Return what recovered masks are multiplied with."""
        return math.factorial(holders) ** 2

    def weights(self, points: Sequence[int], holders: int) -> list[int]:
        """Integers w with sum(w_j * share_j) = scale * key."""
        factor = math.factorial(holders)
        elements = []
        for j in points:
            above, below = factor, 1
            for other in points:
                if other != j:
                    above *= -other
                    below *= j - other
            elements.append(above // below)  # exact: the denominator divides holders!
        return elements

    # -- elements ----------------------------------------------------------------------------------------------------

    def packing(self, length: int, bound: int) -> Packing:
        """Return how a vector whose totals lie within +-bound becomes plaintexts."""
        return Packing([(-bound, bound, length)], self.bits - 2, guard=_GUARD)

    def encrypt(self, plaintexts: Sequence[int], key: int, label: bytes) -> list[bytes]:
        """One ciphertext per signed plaintext, under labels of their own (`label`, position)."""
        return [
            self._encode((1 + plaintext % self._n * self._n) * self._mask(key, label, at) % self._square)
            for at, plaintext in enumerate(plaintexts)
        ]

    def masks(self, key: int, label: bytes, count: int) -> list[bytes]:
        """H(label, position)^key for each position."""
        return [self._encode(self._mask(key, label, at)) for at in range(count)]

    def multiply(self, columns: Sequence[Sequence[bytes]]) -> list[bytes]:
        """Position by position, the product of the elements of several parties."""
        products = []
        for elements in zip(*columns, strict=True):
            product = mpz(1)
            for element in elements:
                product = product * self._decode(element) % self._square
            products.append(self._encode(product))
        return products

    def power(self, elements: Sequence[bytes], exponent: int) -> list[bytes]:
        """Every element to a public exponent."""
        return [self._encode(gmpy2.powmod(self._decode(element), exponent, self._square)) for element in elements]

    def open(self, elements: Sequence[bytes], scale: int = 1) -> list[int]:
        """The signed plaintexts of elements without mask; `scale` as recovered. Raises `IntegrityError` if a mask is left."""
        plaintexts = []
        inverse = invert(mpz(scale), self._n)
        for element in elements:
            value = self._decode(element)
            if value % self._n != 1:
                raise IntegrityError
            plaintext = (value - 1) // self._n * inverse % self._n
            plaintexts.append(int(plaintext - self._n if plaintext > self._n // 2 else plaintext))
        return plaintexts

    def is_zero(self, elements: Sequence[bytes]) -> list[bool]:
        """Return whether the plaintext is zero, of elements without mask."""
        return [plaintext == 0 for plaintext in self.open(elements)]

    def random_plaintext(self, coins: Coins) -> int:
        """Uniform over all plaintexts but zero: in a sum it hides everything but whether it is there."""
        return 1 + coins.below(int(self._n) - 1)

    def require_elements(self, elements: Sequence[bytes], count: int, *, party: str | None = None) -> None:
        """Refuse what is not `count` invertible integers modulo N^2."""
        if len(elements) != count:
            raise PeerProtocolError("the wrong number of ciphertexts", party=party)
        for element in elements:
            if len(element) != self.element_bytes:
                raise PeerProtocolError("a ciphertext has the wrong size", party=party)
            value = int.from_bytes(element, "big")
            if not 0 < value < self._square or gcd(value, self._n) != 1:
                raise PeerProtocolError("a ciphertext is not of this modulus", party=party)

    def base(self, label: bytes, at: int) -> int:
        """H: a label and position to a unit modulo N^2, statistically uniform."""
        size = 2 * ((self.bits + 7) // 8) + STATISTICAL // 8
        digest = hashlib.shake_256(self._tag + len(label).to_bytes(4, "big") + label + at.to_bytes(4, "big")).digest(size)
        return int.from_bytes(digest, "big") % int(self._square)

    def _mask(self, key: int, label: bytes, at: int) -> Any:
        base = mpz(self.base(label, at))
        if key == 0:
            return mpz(1)
        return powmod_sec(base if key > 0 else invert(base, self._square), abs(key), self._square)

    def _encode(self, value: Any) -> bytes:
        return int(value).to_bytes(self.element_bytes, "big")

    def _decode(self, element: bytes) -> Any:
        return mpz(int.from_bytes(element, "big"))
