"""Paillier encryption with short-exponent randomness, over gmpy2.

    private = generate_keypair(3072, coins)          # .public is what others get: the modulus N, nothing else
    c = private.public.encrypt(5, coins)             # c is a bare integer modulo N^2
    public.add(c, d), public.add_plain(c, 7), public.multiply(c, 3), public.rerandomise(c, coins)
    private.decrypt(c)                               # in [0, N); `public.signed` maps it to (-N/2, N/2)

A ciphertext is `(1 + m N) * rho mod N^2`. Three ways to draw the randomiser rho:

- `encrypt` and `randomisers` take `rho = h^r` with r uniform of half the modulus' bits, from a comb table of h. The base is
  `h = (x^2)^N mod N^2`, where x is hashed from N, so nobody chooses it and N alone is the public key.
- the key holder's `randomisers` draws the same distribution modulo p^2 and q^2 and joins the two.
- `rerandomise` takes `rho = s^N` with s uniform modulo N: uniform among the N-th residues, so the result is distributed as
  a fresh ciphertext *even to the key holder* and shows nothing of how it was computed. It costs a full exponentiation.

Assumption for `encrypt`: decisional composite residuosity (Paillier 1999), and that h^r with r of |N|/2 bits cannot be
distinguished from h^s with s uniform modulo the order of h. This is the short-exponent variant of Damgard, Jurik and Nielsen
(2010, section 4.2); Hastad, Schrift and Shamir (1993) and Goldreich and Rosen (2003) reduce the second part to factoring N.
They take h = -x^2, of Jacobi symbol 1; we take a square, which drops the sign: (1+N)^m is a square too, since N is odd, so
squares hide m by the same argument. Two things it does not give: short exponents hide nothing unconditionally from the holder
of the factors (use `rerandomise` where that matters), and gmpy2's arithmetic is not constant in time.

Key sizes: 3,072 bits by default (128-bit security), 2,048 at least (ISO/IEC 18033-6 leaves the size to the user; NIST SP
800-57 puts 2,048 at 112 bits). `toy_keys=True` lifts the bound, for reproductions of papers and for tests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeAlias

import gmpy2
from gmpy2 import gcd, invert, is_prime, mpz, powmod

from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError, PeerProtocolError

DEFAULT_BITS = 3072
MINIMUM_BITS = 2048
_TOY_BITS = 64
_MAXIMUM_BITS = 16384  # a longer modulus from a peer would only burn our time
_TEETH = 8
_PUBLIC_TABLES = 8
_PRIVATE_TABLES = 4  # the key holder has two combs: as much memory together as one public one, 11% slower than with 8
_PRIME_ROUNDS = 32  # for GMP: Baillie-PSW, then 8 Miller-Rabin rounds
_SMALL_PRIMES = gmpy2.primorial(10_000)
_TINY_PRIMES = gmpy2.primorial(100)

Ciphertext: TypeAlias = Any  # mpz, which has no type stubs; an integer modulo N^2


class PublicKey:
    """The modulus N. Everything a party without the private key can do.

    The constructor checks what can be checked of a modulus without its factors (NIST SP 800-56B, partial validation): size,
    no small factor, composite, no perfect power. The last two cost an exponentiation; `composite=False` leaves them out where
    another party does them. That N has exactly two good prime factors is *not* proved, nor that a plaintext under it lies in
    its range: **a key holder that lies about either can read what others put under its key**. With a malformed modulus it may
    decrypt more than the sum that it should, and with plaintexts of its choice, 2^(200 + row) in place of a 0 or 1, an answer
    that should be one sum holds every term of it apart. Protocols that rest on this key hold against parties that follow them.
    """

    def __init__(self, n: int, *, toy_keys: bool = False, composite: bool = True) -> None:
        self.n = mpz(n)
        self.bits: int = self.n.bit_length()
        _require_size(self.bits, toy_keys)
        small = _SMALL_PRIMES if self.bits >= MINIMUM_BITS else _TINY_PRIMES
        if self.n < 0 or gcd(self.n, small) != 1 or (composite and (gmpy2.is_power(self.n) or is_prime(self.n))):
            raise ConfigError("the modulus is no product of two large primes")
        self.n_squared = self.n * self.n
        self.ciphertext_bytes: int = (self.n_squared.bit_length() + 7) // 8

    @classmethod
    def from_bytes(cls, data: bytes, *, toy_keys: bool = False, composite: bool = True, party: str | None = None) -> PublicKey:
        """The key another party sent; raises `PeerProtocolError` naming `party` unless it passes the checks."""
        if len(data) > _MAXIMUM_BITS // 8 or (data and data[0] == 0):
            raise PeerProtocolError("the public key is malformed", party=party)
        try:
            return cls(int.from_bytes(data, "big"), toy_keys=toy_keys, composite=composite)
        except ConfigError as cause:
            raise PeerProtocolError(f"the public key is refused: {cause}", party=party) from cause

    def to_bytes(self) -> bytes:
        """N, big-endian, without leading zeros."""
        return _bytes(self.n, (self.bits + 7) // 8)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKey) and bool(self.n == other.n)

    def __hash__(self) -> int:
        return hash(self.n)

    def __repr__(self) -> str:
        digest = hashlib.sha256(self.to_bytes()).hexdigest()[:16]
        return f"PublicKey({self.bits} bits, sha256 {digest})"

    @property
    def exponent_bits(self) -> int:
        """Bits of a short exponent: half of N's."""
        return (self.bits + 1) // 2

    @cached_property
    def _square(self) -> Any:
        """x^2 mod N with x hashed from N."""
        seed = hashlib.shake_256(b"blindbayes paillier base v1" + self.to_bytes())
        x = mpz(int.from_bytes(seed.digest((self.bits + 7) // 8 + 16), "big")) % self.n
        return x * x % self.n

    @cached_property
    def _base(self) -> Any:
        """h = (x^2)^N mod N^2."""
        return powmod(self._square, self.n, self.n_squared)

    @cached_property
    def _comb(self) -> _Comb:
        return _Comb(self._base, self.n_squared, self.exponent_bits, _PUBLIC_TABLES)

    # -- encrypting --------------------------------------------------------------------------------------------------

    def encrypt(self, m: int, coins: Coins) -> Ciphertext:
        """A fresh ciphertext of m, any integer, taken modulo N."""
        return self.encrypt_with(m, self._comb.power(self._comb.draw(coins)))

    def encrypt_many(self, ms: Iterable[int], coins: Coins, *, threads: int = 1) -> list[Ciphertext]:
        """Fresh ciphertexts, with the same coins in the same order for any number of threads."""
        values = list(ms)
        return [self.encrypt_with(m, rho) for m, rho in zip(values, self.randomisers(len(values), coins, threads), strict=True)]

    def encrypt_with(self, m: int, randomiser: Any) -> Ciphertext:
        """A ciphertext of m from a ready randomiser, which must not be used again."""
        return (1 + mpz(m) % self.n * self.n) * randomiser % self.n_squared

    def randomisers(self, count: int, coins: Coins, threads: int = 1) -> list[Any]:
        """`count` fresh short-exponent randomisers: encryptions of zero."""
        comb = self._comb
        return _parallel(comb.power, [comb.draw(coins) for _ in range(count)], threads)

    # -- computing on ciphertexts ------------------------------------------------------------------------------------

    def add(self, c: Ciphertext, d: Ciphertext) -> Ciphertext:
        """A ciphertext of the sum. Not re-randomised."""
        return c * d % self.n_squared

    def add_plain(self, c: Ciphertext, m: int) -> Ciphertext:
        """A ciphertext of the sum with a known m. Not re-randomised: the quotient of the two ciphertexts shows m."""
        return c * (1 + mpz(m) % self.n * self.n) % self.n_squared

    def multiply(self, c: Ciphertext, k: int) -> Ciphertext:
        """A ciphertext of k times the plaintext. Not re-randomised, and its time depends on the size of |k|."""
        return powmod(c, mpz(k), self.n_squared)  # a negative k inverts c

    def rerandomise(self, c: Ciphertext, coins: Coins) -> Ciphertext:
        """A ciphertext of the same plaintext with uniform randomness: nobody, the key holder included, sees c in it."""
        return c * powmod(_unit(self.n, coins), self.n, self.n_squared) % self.n_squared

    def signed(self, m: int) -> int:
        """The representative of m modulo N in (-N/2, N/2)."""
        residue = int(m) % int(self.n)
        return residue - int(self.n) if residue > int(self.n) // 2 else residue

    # -- to and from the wire ----------------------------------------------------------------------------------------

    def require_ciphertext(self, c: Ciphertext, *, party: str | None = None) -> None:
        """Raise `PeerProtocolError` unless c is a unit modulo N^2."""
        if not 0 < c < self.n_squared or gcd(c, self.n) != 1:
            raise PeerProtocolError("a ciphertext is outside its ring", party=party)

    def pack_ciphertexts(self, ciphertexts: Sequence[Ciphertext]) -> bytes:
        """The ciphertexts one after the other, each big-endian in `ciphertext_bytes`."""
        return b"".join(_bytes(c, self.ciphertext_bytes) for c in ciphertexts)

    def unpack_ciphertexts(self, data: bytes, count: int, *, party: str | None = None) -> list[Ciphertext]:
        """`count` checked ciphertexts; raises `PeerProtocolError` for another length or a value outside the ring."""
        size = self.ciphertext_bytes
        if len(data) != count * size:
            raise PeerProtocolError("the wrong number of ciphertext bytes", party=party)
        ciphertexts = [mpz(int.from_bytes(data[at : at + size], "big")) for at in range(0, len(data), size)]
        for c in ciphertexts:
            self.require_ciphertext(c, party=party)
        return ciphertexts


class PrivateKey:
    """The two primes of N. Checked when made: sizes, primality, distance, gcd(N, phi(N)) = 1."""

    def __init__(self, p: int, q: int, *, toy_keys: bool = False) -> None:
        p, q = mpz(p), mpz(q)
        _require_size((p * q).bit_length(), toy_keys)
        half = p.bit_length()
        if q.bit_length() != half or (p * q).bit_length() != 2 * half:
            raise ConfigError("the primes of a Paillier key have the same size and fill the modulus")
        if not (is_prime(p, _PRIME_ROUNDS) and is_prime(q, _PRIME_ROUNDS)):
            raise ConfigError("a factor of the Paillier modulus is not prime")
        if abs(p - q).bit_length() <= half - min(100, half // 2):  # FIPS 186-5: the primes are not close
            raise ConfigError("the primes of a Paillier key are too close")
        if gcd(p * q, (p - 1) * (q - 1)) != 1:  # equal sizes imply it; decryption rests on it
            raise ConfigError("N and phi(N) have a common factor")
        self._p, self._q = p, q
        self._p2, self._q2 = p * p, q * q
        self._p_inverse = invert(p, q)
        self._p2_inverse = invert(self._p2, self._q2)
        self._hp = invert((p - 1) * q % p, p)  # 1 / L_p((1+N)^(p-1) mod p^2) modulo p
        self._hq = invert((q - 1) * p % q, q)
        self.public = PublicKey(p * q, toy_keys=toy_keys, composite=False)

    def __repr__(self) -> str:
        return f"PrivateKey({self.public.bits} bits, <redacted>)"

    def __reduce__(self) -> Any:
        raise TypeError("a private key is not copied or pickled")

    @property
    def primes(self) -> tuple[bytes, bytes]:
        """The secret itself, big-endian: for the owner's own file and nothing else."""
        size = (self.public.bits // 2 + 7) // 8
        return _bytes(self._p, size), _bytes(self._q, size)

    @cached_property
    def _combs(self) -> tuple[_Comb, _Comb]:
        bits, square = self.public.exponent_bits, self.public._square
        return (
            _Comb(self._power_p(square), self._p2, bits, _PRIVATE_TABLES),
            _Comb(self._power_q(square), self._q2, bits, _PRIVATE_TABLES),
        )

    def decrypt(self, c: Ciphertext, *, party: str | None = None) -> int:
        """The plaintext in [0, N); raises `PeerProtocolError` naming `party` for what is no ciphertext."""
        self.public.require_ciphertext(c, party=party)
        return self._decrypt(c)

    def decrypt_many(self, cs: Iterable[Ciphertext], *, threads: int = 1, party: str | None = None) -> list[int]:
        """The plaintexts. All ciphertexts are checked before the first is decrypted."""
        ciphertexts = list(cs)
        for c in ciphertexts:
            self.public.require_ciphertext(c, party=party)
        return _parallel(self._decrypt, ciphertexts, threads)

    def _decrypt(self, c: Ciphertext) -> int:
        p, q = self._p, self._q
        mp = (powmod(c % self._p2, p - 1, self._p2) - 1) // p * self._hp % p
        mq = (powmod(c % self._q2, q - 1, self._q2) - 1) // q * self._hq % q
        return int(mp + p * ((mq - mp) * self._p_inverse % q))

    def encrypt(self, m: int, coins: Coins) -> Ciphertext:
        """Encrypt to the ciphertext of `PublicKey.encrypt` with the same coins, faster."""
        return self.public.encrypt_with(m, self.randomisers(1, coins)[0])

    def encrypt_many(self, ms: Iterable[int], coins: Coins, *, threads: int = 1) -> list[Ciphertext]:
        """Encrypt to the ciphertexts of `PublicKey.encrypt_many`, faster."""
        values = list(ms)
        ready = self.randomisers(len(values), coins, threads)
        return [self.public.encrypt_with(m, rho) for m, rho in zip(values, ready, strict=True)]

    def randomisers(self, count: int, coins: Coins, threads: int = 1) -> list[Any]:
        """Return the values of `PublicKey.randomisers` from the same coins, computed modulo p^2 and q^2."""
        comb = self._combs[0]
        return _parallel(self._randomiser, [comb.draw(coins) for _ in range(count)], threads)

    def _randomiser(self, digits: bytes) -> Any:
        a, b = (comb.power(digits) for comb in self._combs)
        return self._join(a, b)

    def rerandomise(self, c: Ciphertext, coins: Coins) -> Ciphertext:
        """Return the value of `PublicKey.rerandomise` from the same coins, computed modulo p^2 and q^2."""
        s = _unit(self.public.n, coins)
        return c * self._join(self._power_p(s), self._power_q(s)) % self.public.n_squared

    def _power_p(self, s: Any) -> Any:
        """s^N mod p^2. The p-th power modulo p^2 depends on its argument modulo p only, so s^q is taken modulo p."""
        return powmod(powmod(s % self._p, self._q % (self._p - 1), self._p), self._p, self._p2)

    def _power_q(self, s: Any) -> Any:
        return powmod(powmod(s % self._q, self._p % (self._q - 1), self._q), self._q, self._q2)

    def _join(self, a: Any, b: Any) -> Any:
        return a + self._p2 * ((b - a) * self._p2_inverse % self._q2)


def generate_keypair(bits: int = DEFAULT_BITS, coins: Coins | None = None, *, toy_keys: bool = False) -> PrivateKey:
    """A fresh key with a modulus of exactly `bits` bits; its `.public` is for the others.

    The primes are 3 modulo 4 with gcd(p-1, q-1) = 2, so that the squares modulo N are a cyclic group.
    """
    _require_size(bits, toy_keys)
    if bits % 2:
        raise ConfigError("a Paillier modulus has an even number of bits")
    coins = coins or Coins.system()
    while True:
        p = _prime(bits // 2, coins)
        q = _prime(bits // 2, coins, other=p)
        try:
            return PrivateKey(p, q, toy_keys=toy_keys)
        except ConfigError:  # too close, or a common factor of N and phi(N): both only ever met at toy sizes
            continue


class _Comb:
    """Powers of one base by Lim and Lee's comb (1994): `_TEETH` rows of the exponent's bits, `tables` blocks of columns.

    An exponent is a string of bytes, one per column: bit t of byte j is bit `t * columns + j` of the exponent. A uniform string
    is a uniform exponent. A power costs `columns + columns / tables` multiplications, the tables `256 * tables` entries.
    """

    def __init__(self, base: Any, modulus: Any, exponent_bits: int, tables: int) -> None:
        self.modulus = modulus
        self.columns = 8 * -(-exponent_bits // (8 * _TEETH))  # a multiple of 8, whatever divisor of it `tables` is
        block = self.columns // tables
        self._block = block
        step = mpz(1) << block
        teeth = [base % modulus]
        for _ in range(_TEETH - 1):
            teeth.append(powmod(teeth[-1], mpz(1) << self.columns, modulus))
        self._tables: list[list[Any]] = []
        for index in range(tables):
            if index:
                teeth = [powmod(tooth, step, modulus) for tooth in teeth]
            table = [mpz(1)]
            for tooth in teeth:
                table += [entry * tooth % modulus for entry in table]
            self._tables.append(table)

    def draw(self, coins: Coins) -> bytes:
        """A uniform exponent."""
        return coins.bytes(self.columns)

    def power(self, digits: bytes) -> Any:
        """The base to the exponent."""
        modulus, block = self.modulus, self._block
        result = mpz(1)
        for row in range(block - 1, -1, -1):
            result = result * result % modulus
            for table, digit in zip(self._tables, digits[row::block], strict=True):
                result = result * table[digit] % modulus
        return result


def _parallel(work: Callable[[Any], Any], items: list[Any], threads: int) -> list[Any]:
    """`work` on every item, in order. gmpy2 lets go of the interpreter lock only in a context that says so."""
    if threads <= 1 or len(items) < 2:
        return [work(item) for item in items]

    def share(part: list[Any]) -> list[Any]:
        with gmpy2.context(gmpy2.get_context(), allow_release_gil=True):
            return [work(item) for item in part]

    size = -(-len(items) // threads)
    with ThreadPoolExecutor(threads) as executor:
        parts = executor.map(share, [items[at : at + size] for at in range(0, len(items), size)])
        return [result for part in parts for result in part]


def _prime(bits: int, coins: Coins, *, other: Any = 3) -> Any:
    """A uniform prime among those of `bits` bits, both top bits set, 3 modulo 4, with gcd(prime - 1, other - 1) = 2."""
    top = mpz(3) << (bits - 2)
    small = _SMALL_PRIMES if bits >= 64 else mpz(1)
    while True:
        candidate = mpz(coins.bits(bits)) | top | 3
        if gcd(candidate, small) == 1 and gcd(candidate - 1, other - 1) == 2 and is_prime(candidate):
            return candidate  # `PrivateKey` tests it again, harder


def _unit(n: Any, coins: Coins) -> Any:
    while True:
        s = mpz(coins.below(int(n)))
        if gcd(s, n) == 1:
            return s


def _require_size(bits: int, toy_keys: bool) -> None:
    minimum = _TOY_BITS if toy_keys else MINIMUM_BITS
    if not minimum <= bits <= _MAXIMUM_BITS:
        raise ConfigError(f"a Paillier modulus has {minimum} to {_MAXIMUM_BITS} bits")


def _bytes(value: Any, size: int) -> bytes:
    return int(value).to_bytes(size, "big")
