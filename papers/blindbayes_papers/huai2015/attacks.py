"""The printed schemes of Huai et al. 2015, as things attacked: never used by the product.

Section 4.4 encrypts x as (1 + x p) H(t)^sk mod p^2 with a *prime* p. The map L: c -> (c^(p-1) - 1) / p mod p is then a
homomorphism that anybody computes: it takes H(t)^sk to sk * L(H(t)) and 1 + x p to -x. Section 5.4 encrypts a count as
n H(t)^sk. The attacks take what travels: the modulus, ciphertexts, and the public hash of their labels. They are written once
and run against the printed scheme, where they must succeed, and against Joye-Libert with a composite modulus, where they
must fail.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import gmpy2
import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.errors import IntegrityError
from blindbayes_papers.huai2015.primitives.joye_libert import JoyeLibert, deal_modulus
from blindbayes_papers.huai2015.primitives.ristretto_sum import RistrettoSum

DOMAIN = 60
"""Counts 1 to this are looked up by the dictionary attacks; the time grows linearly with it."""
Seen = tuple[int, int]
"""A ciphertext and the hash of its label."""


class PrintedSum:
    """Section 4.4: (1 + x p) H(t)^sk modulo the square of a prime."""

    def __init__(self, bits: int, coins: Coins) -> None:
        self.modulus = int(gmpy2.next_prime(coins.bits(bits) | 1 << (bits - 1)))
        self.square = self.modulus**2
        self._key = coins.bits(2 * bits)

    def hash(self, label: int) -> int:
        """H(t)."""
        size = self.square.bit_length() // 8 + 16
        return int.from_bytes(hashlib.shake_256(b"huai2015 %d" % label).digest(size), "big") % self.square

    def _mask(self, label: int) -> int:
        return int(gmpy2.powmod(self.hash(label), self._key, self.square))

    def encrypt(self, x: int, label: int) -> Seen:
        """Return what an eavesdropper sees."""
        return (1 + x * self.modulus) * self._mask(label) % self.square, self.hash(label)


class PrintedProduct(PrintedSum):
    """Section 5.4: x H(t)^sk."""

    def encrypt(self, x: int, label: int) -> Seen:
        """Return what an eavesdropper sees."""
        return x * self._mask(label) % self.square, self.hash(label)


class Ours:
    """Joye-Libert with a composite modulus behind the same face. The product never reuses a label; here the caller picks it."""

    def __init__(self, bits: int, coins: Coins, *, toy_keys: bool = False) -> None:
        self.modulus = deal_modulus(bits, coins, toy_keys=toy_keys)
        self._scheme = JoyeLibert(self.modulus, toy_keys=toy_keys)
        self._key = self._scheme.random_key(coins)

    def encrypt(self, x: int, label: int) -> Seen:
        """Return what an eavesdropper sees."""
        name = b"label %d" % label
        return int.from_bytes(self._scheme.encrypt([x], self._key, name)[0], "big"), self._scheme.base(name, 0)


Target = PrintedSum | Ours


# -- attacks -----------------------------------------------------------------------------------------------------------


def logarithm(element: int, modulus: int) -> int:
    """L(c) = (c^(m-1) - 1) / m mod m: for a prime m, a homomorphism to addition; for another m, a meaningless number."""
    square = modulus * modulus
    return int((gmpy2.powmod(element, modulus - 1, square) - 1) // modulus % modulus)


def with_known_plaintext(modulus: int, known: Seen, plaintext: int, others: Sequence[Seen]) -> list[int]:
    """One known plaintext gives the key modulo p, and with it every other plaintext."""
    element, base = known
    key = (logarithm(element, modulus) + plaintext) * int(gmpy2.invert(logarithm(base, modulus), modulus)) % modulus
    return [int((key * logarithm(base, modulus) - logarithm(element, modulus)) % modulus) for element, base in others]


def without_plaintext(modulus: int, first: Seen, second: Seen, bound: int) -> tuple[int, int] | None:
    """Two ciphertexts of numbers below `bound`: x2 = r x1 + b (mod p), solved in a lattice of dimension two."""
    l1, l2 = logarithm(first[0], modulus), logarithm(second[0], modulus)
    h1, h2 = logarithm(first[1], modulus), logarithm(second[1], modulus)
    r = int(h2 * gmpy2.invert(h1, modulus) % modulus)
    b = (l1 * r - l2) % modulus
    u, v = _reduced((1, r), (0, modulus))
    # The lattice vector nearest to (0, -b) differs from it by (x1, x2).
    area = u[0] * v[1] - u[1] * v[0]
    near_u, near_v = _rounded(b * v[0], area), _rounded(-b * u[0], area)
    for du in (-1, 0, 1):
        for dv in (-1, 0, 1):
            s, t = near_u + du, near_v + dv
            x1, x2 = s * u[0] + t * v[0], s * u[1] + t * v[1] + b
            if 0 <= x1 < bound and 0 <= x2 < bound:
                return x1, x2
    return None


def _reduced(u: tuple[int, int], v: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """Gauss and Lagrange's shortest basis."""
    while True:
        if u[0] ** 2 + u[1] ** 2 > v[0] ** 2 + v[1] ** 2:
            u, v = v, u
        m = _rounded(u[0] * v[0] + u[1] * v[1], u[0] ** 2 + u[1] ** 2)
        if m == 0:
            return u, v
        v = (v[0] - m * u[0], v[1] - m * u[1])


def _rounded(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)


def with_repeated_label(modulus: int, first: Seen, second: Seen) -> int | None:
    """Two ciphertexts that should share a mask: their quotient is 1 + (x1 - x2) m. No key needed. None if it is not so."""
    square = modulus * modulus
    quotient = first[0] * int(gmpy2.invert(second[0], square)) % square
    if quotient % modulus != 1:
        return None
    difference = (quotient - 1) // modulus
    return difference - modulus if difference > modulus // 2 else difference


def residue_bit(modulus: int, seen: Seen, *, key_is_odd: bool) -> int:
    """The quadratic character of x in x H(t)^sk: a bit about x in every ciphertext."""
    return int(gmpy2.jacobi(seen[0] % modulus, modulus) * (gmpy2.jacobi(seen[1] % modulus, modulus) if key_is_odd else 1))


def by_dictionary(modulus: int, known: Seen, plaintext: int, others: Sequence[Seen], domain: Sequence[int]) -> list[int | None]:
    """x H(t)^sk: one known plaintext gives sk modulo p, then L(x) is looked up in a table of the domain."""
    key = (logarithm(known[0], modulus) - logarithm(plaintext, modulus)) * int(
        gmpy2.invert(logarithm(known[1], modulus), modulus)
    )
    table = {logarithm(x, modulus): x for x in domain}
    return [table.get(int((logarithm(c, modulus) - key * logarithm(base, modulus)) % modulus)) for c, base in others]


def by_dictionary_alone(modulus: int, first: Seen, second: Seen, domain: Sequence[int]) -> list[tuple[int, int]]:
    """x H(t)^sk with nothing known: every x1 of the domain proposes a key, which the second ciphertext confirms or not."""
    table = {logarithm(x, modulus): x for x in domain}
    l1, l2 = logarithm(first[0], modulus), logarithm(second[0], modulus)
    h1, h2 = logarithm(first[1], modulus), logarithm(second[1], modulus)
    inverse = int(gmpy2.invert(h1, modulus))
    pairs = []
    for tag, x1 in table.items():
        x2 = table.get((l2 - (l1 - tag) * inverse * h2) % modulus)
        if x2 is not None:
            pairs.append((x1, x2))
    return pairs


def counts_from_products(
    product: Callable[[Sequence[int]], int], sizes: Sequence[int], total: int
) -> tuple[list[list[int]], int]:
    """All counts of one class from products alone, with ideal encryption: vary one attribute at a time.

    `product(x)` is n_1,x1 * ... * n_m,xm for a query x; `total` is the public class size. Returns the counts and how many
    products were asked for. Needs a query without zero counts to start from.
    """
    asked: dict[tuple[int, ...], int] = {}

    def ask(query: tuple[int, ...]) -> int:
        if query not in asked:
            asked[query] = product(query)
        return asked[query]

    rng = np.random.default_rng(0)  # any queries will do until one has no zero count
    start = tuple(0 for _ in sizes)
    while not ask(start):
        start = tuple(int(rng.integers(size)) for size in sizes)
    counts = []
    for at, size in enumerate(sizes):
        varied = [(*start[:at], value, *start[at + 1 :]) for value in range(size)]
        ratios = [Fraction(ask(query), ask(start)) for query in varied]
        counts.append([int(total * ratio / sum(ratios)) for ratio in ratios])
    return counts, len(asked)


# -- the experiment ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack on one scheme."""

    attack: str
    scheme: str
    read: int  # plaintexts (or bits, or differences) recovered
    tried: int
    seconds: float


def run_attacks(coins: Coins, *, prime_bits: int = 1024, our_bits: int = 3072, toy_keys: bool = False) -> list[Attack]:
    """Every attack against the printed schemes and, where it makes sense, against ours."""
    printed = PrintedSum(prime_bits, coins.derive("printed"))
    product = PrintedProduct(prime_bits, coins.derive("product"))
    ours = Ours(our_bits, coins.derive("ours"), toy_keys=toy_keys)
    made: list[Attack] = []

    def record(attack: str, scheme: str, work: Callable[[], tuple[int, int]]) -> None:
        begun = time.process_time()
        try:
            read, tried = work()
        except ZeroDivisionError:  # the attack's algebra does not even go through
            read, tried = 0, 1
        made.append(Attack(attack, scheme, read, tried, time.process_time() - begun))

    def known(target: Target) -> tuple[int, int]:
        truth = [coins.below(10**6) for _ in range(10)]
        seen = [target.encrypt(x, at) for at, x in enumerate(truth)]
        guesses = with_known_plaintext(target.modulus, seen[0], truth[0], seen[1:])
        return sum(a == b for a, b in zip(guesses, truth[1:], strict=True)), len(truth) - 1

    def alone(target: Target) -> tuple[int, int]:
        read = 0
        for at in range(3):
            truth = (coins.below(1 << 20), coins.below(1 << 20))
            first, second = (target.encrypt(x, 100 + 2 * at + side) for side, x in enumerate(truth))
            read += without_plaintext(target.modulus, first, second, 1 << 20) == truth
        return read, 3

    def repeated(target: Target) -> tuple[int, int]:
        read = 0
        for at in range(3):
            truth = (coins.below(1000), coins.below(1000))
            # The printed protocol encrypts all counts of a round under the same t; ours gives each its own label.
            labels = (at, at) if isinstance(target, PrintedSum) else (200 + 2 * at, 201 + 2 * at)
            first, second = (target.encrypt(x, label) for x, label in zip(truth, labels, strict=True))
            read += with_repeated_label(target.modulus, first, second) == truth[0] - truth[1]
        return read, 3

    for name, work in (("known plaintext", known), ("no known plaintext", alone), ("repeated label", repeated)):
        record(name, "printed, 4.4", partial(work, printed))
        record(name, "ours", partial(work, ours))

    def residue(target: Target) -> tuple[int, int]:
        truth = [1 + coins.below(5000) for _ in range(40)]
        seen = [target.encrypt(x, 300 + at) for at, x in enumerate(truth)]
        want = [int(gmpy2.jacobi(x, target.modulus)) for x in truth]
        # The key's parity is one bit for all: the attacker takes the better guess.
        guesses = [[residue_bit(target.modulus, one, key_is_odd=odd) for one in seen] for odd in (True, False)]
        return max(sum(a == b for a, b in zip(bits, want, strict=True)) for bits in guesses), len(truth)

    def dictionary(target: Target) -> tuple[int, int]:
        truth = [1 + coins.below(DOMAIN) for _ in range(6)]
        seen = [target.encrypt(x, 400 + at) for at, x in enumerate(truth)]
        guesses = by_dictionary(target.modulus, seen[0], truth[0], seen[1:], range(1, DOMAIN + 1))
        return sum(a == b for a, b in zip(guesses, truth[1:], strict=True)), len(truth) - 1

    def dictionary_alone(target: Target) -> tuple[int, int]:
        truth = (1 + coins.below(DOMAIN), 1 + coins.below(DOMAIN))
        first, second = (target.encrypt(x, 500 + side) for side, x in enumerate(truth))
        return int(by_dictionary_alone(target.modulus, first, second, range(1, DOMAIN + 1)) == [truth]), 1

    def zero(target: Target) -> tuple[int, int]:
        return int(target.encrypt(0, 600)[0] == 0), 1

    for name, work in (
        ("quadratic residue", residue),
        ("dictionary, one known plaintext", dictionary),
        ("dictionary, nothing known", dictionary_alone),
        ("zero", zero),
    ):
        record(name, "printed, 5.4", partial(work, product))
        record(name, "ours", partial(work, ours))
    return made


@dataclass(frozen=True, slots=True)
class Decryption:
    """The miner's time for one count, by the number of binary digits of the largest total."""

    bits: int
    scheme: str
    milliseconds: float


def decryption_times(coins: Coins, bits: Sequence[int], modulus: int) -> list[Decryption]:
    """Section 4.4's claim: Joye-Libert beside the baseline of Shi et al., whose sum is a discrete logarithm."""
    made = []
    for size in bits:
        for scheme in (JoyeLibert(modulus), RistrettoSum(1 << size)):
            key, label, total = scheme.random_key(coins), b"%d" % size, (1 << size) - 1
            sent = scheme.encrypt([total], key, label)
            begun = time.process_time()
            if scheme.open(scheme.multiply([sent, scheme.masks(-key, label, 1)])) != [total]:
                raise IntegrityError
            made.append(Decryption(size, scheme.name, 1e3 * (time.process_time() - begun)))
    return made
