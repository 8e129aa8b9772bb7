"""The two schemes that Kikuchi et al. compare with, on Paillier: the scalar product, and intersection by polynomials.

Both as plain functions that do both parties' work, for measuring: the scalar product of Algorithm 1, and Freedman, Nissim and
Pinkas 2004 with balanced bins (a polynomial per bin whose roots are Alice's items; Bob evaluates it at his, masked).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from blindbayes.crypto.coins import Coins
from blindbayes.errors import LocalProtocolError
from blindbayes_papers.primitives.paillier import Ciphertext, PrivateKey, PublicKey

ITEM_BITS = 64
_MASK_BITS = 128


def scalar_product(key: PrivateKey, mine: Sequence[int], theirs: Sequence[int], coins: Coins) -> tuple[int, int]:
    """Algorithm 1 on 0/1 vectors: shares s_A and s_B with s_A + s_B = the number of common ones, modulo the key's N."""
    public = key.public
    sent = public.encrypt_many(mine, coins)
    share = coins.below(public.n)
    total = public.encrypt(-share % public.n, coins)
    for ciphertext, bit in zip(sent, theirs, strict=True):
        if bit:
            total = public.add(total, ciphertext)
    return key.decrypt(total) % public.n, share


@dataclass(frozen=True, slots=True)
class Polynomials:
    """The public facts about the bins: how many, and the degree of each polynomial."""

    bins: int
    degree: int

    @classmethod
    def plan(cls, count: int) -> Polynomials:
        """Two choices per item: n / ln ln n bins, whose largest load is ln ln n + O(1)."""
        double_log = max(1.0, math.log(max(math.e, math.log(max(3, count)))))
        return cls(max(1, round(count / double_log)), math.ceil(math.e * double_log) + 3)


Encrypted = list[list[Ciphertext]]
"""The coefficients of each bin's polynomial, lowest first."""


def polynomial_intersection(key: PrivateKey, mine: Sequence[bytes], theirs: Sequence[bytes], coins: Coins) -> int:
    """The size of the intersection, to Alice."""
    encrypted = encrypt_polynomials(key, mine, coins)
    return count_roots(key, mine, evaluate_polynomials(key.public, encrypted, theirs, coins))


def encrypt_polynomials(key: PrivateKey, mine: Sequence[bytes], coins: Coins) -> Encrypted:
    """Alice: one polynomial per bin, whose roots are her items there."""
    public, plan = key.public, Polynomials.plan(len(mine))
    loads: list[list[int]] = [[] for _ in range(plan.bins)]
    for item in mine:
        value, first, second = _hashed(item, plan.bins)
        (loads[first] if len(loads[first]) <= len(loads[second]) else loads[second]).append(value)
    if max(len(load) for load in loads) > plan.degree:
        raise LocalProtocolError("a bin overflowed; hash again")
    encrypted = []
    for load in loads:
        padding = ((1 << ITEM_BITS) + coins.bits(ITEM_BITS) for _ in range(plan.degree - len(load)))  # outside the items
        encrypted.append(public.encrypt_many(_coefficients([*load, *padding], public.n), coins))
    return encrypted


def evaluate_polynomials(public: PublicKey, encrypted: Encrypted, theirs: Sequence[bytes], coins: Coins) -> list[Ciphertext]:
    """Bob: for each of his items and each of its two bins, the item plus a random multiple of the polynomial at it."""
    answers = []
    for item in theirs:
        value, first, second = _hashed(item, len(encrypted))
        for at in {first, second}:
            total = encrypted[at][-1]  # Horner's rule, under encryption
            for coefficient in reversed(encrypted[at][:-1]):
                total = public.add(public.multiply(total, value), coefficient)
            masked = public.multiply(total, 1 + coins.bits(_MASK_BITS))
            answers.append(public.rerandomise(public.add_plain(masked, value), coins))
    coins.shuffle(answers)
    return answers


def count_roots(key: PrivateKey, mine: Sequence[bytes], answers: Sequence[Ciphertext]) -> int:
    """Alice: how many of her items come back."""
    own = {_hashed(item, 1)[0] for item in mine}
    return len(own & set(key.decrypt_many(answers)))


def _hashed(item: bytes, bins: int) -> tuple[int, int, int]:
    raw = hashlib.blake2b(item, digest_size=24, person=b"fnp").digest()
    value, first, second = (int.from_bytes(raw[low : low + 8], "big") for low in (0, 8, 16))
    return value, first % bins, second % bins


def _coefficients(roots: Sequence[int], n: int) -> list[int]:
    """Coefficients of the product of (x - root), lowest first, modulo n."""
    product = [1]
    for root in roots:
        shifted = [0, *product]
        for at, coefficient in enumerate(product):
            shifted[at] = (shifted[at] - root * coefficient) % n
        product = shifted
    return product
