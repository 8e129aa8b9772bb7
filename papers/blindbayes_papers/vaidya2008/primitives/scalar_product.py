"""Scalar product under Paillier (Goethals, Laur, Lipmaa and Mielikainen 2004; Vaidya 2008, A.2): the local steps.

The key holder encrypts its vector; the other raises each ciphertext to its own number, multiplies, adds a mask and sends one
ciphertext back. The result lies in shares: the key holder has x.y + mask, the other -mask.

    ciphertexts = private.encrypt_many(xs, coins)                       # key holder
    w = combine(public, ciphertexts, ys)                                # other: encrypts x.y
    sent = answer(public, w, mask, coins)                               # encrypts x.y + mask, with fresh uniform randomness
    share = private.decrypt(sent)                                       # key holder

**Shares are integers.** A mask has `STATISTICAL` bits more than the value it hides, and both fit into the plaintext ring:
x.y + mask does not wrap. Shares add up over the integers, and so modulo N and modulo any power of two as well, which is what
the circuits need. What a share reveals of the value is at most 2^-64 in statistical distance.

**Boolean optimisation.** `combine` multiplies the ciphertexts of equal numbers first and raises each product once: for a vector
of zeros and ones no exponentiation is left, for c times zeros and ones a single one. `grouped=False` raises each one by
itself, as the paper counts it for numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gmpy2 import mpz

from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError, LocalProtocolError
from blindbayes_papers.primitives.paillier import Ciphertext, PublicKey

STATISTICAL = 64
"""How many bits a mask is wider than what it hides."""


def draw_mask(bits: int, coins: Coins) -> int:
    """A mask for a value of at most `bits` bits."""
    return coins.bits(bits + STATISTICAL)


def require_capacity(public: PublicKey, bits: int) -> None:
    """Refuse a key whose plaintexts cannot hold a value of `bits` bits (and a sign) under its mask."""
    if required_bits(bits) > public.bits:
        raise ConfigError(f"a key of {public.bits} bits is too short: values of {bits} bits ask for {required_bits(bits)}")


def required_bits(bits: int) -> int:
    """Bits of the smallest modulus in which a masked value of `bits` bits does not wrap."""
    return bits + STATISTICAL + 3


def product(public: PublicKey, ciphertexts: Iterable[Ciphertext]) -> Ciphertext:
    """A ciphertext of the sum. Not re-randomised."""
    total = mpz(1)
    for ciphertext in ciphertexts:
        total = total * ciphertext % public.n_squared
    return total


def combine(
    public: PublicKey, ciphertexts: Sequence[Ciphertext], numbers: Sequence[int], *, grouped: bool = True
) -> Ciphertext:
    """A ciphertext of the scalar product. Not re-randomised: `answer` does that."""
    if len(ciphertexts) != len(numbers):
        raise LocalProtocolError("a scalar product needs two vectors of one length")
    if not grouped:
        return product(public, (public.multiply(c, y) for c, y in zip(ciphertexts, numbers, strict=True)))
    groups: dict[int, list[Ciphertext]] = {}
    for ciphertext, number in zip(ciphertexts, numbers, strict=True):
        if number:
            groups.setdefault(int(number), []).append(ciphertext)
    total = mpz(1)
    for number, group in groups.items():
        sums = product(public, group)
        total = total * (sums if number == 1 else public.multiply(sums, number)) % public.n_squared
    return total


def answer(public: PublicKey, ciphertext: Ciphertext, plus: int, coins: Coins) -> Ciphertext:
    """The ciphertext with `plus` added, as it may be sent to the key holder: its randomness is fresh and uniform."""
    return public.rerandomise(public.add_plain(ciphertext, plus), coins)
