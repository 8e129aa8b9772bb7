"""Oblivious evaluation of polynomials under Paillier (Vaidya 2008, A.4): the local steps, and the Taylor polynomial of ln.

The owner of x encrypts its powers x, x^2, ..., x^k under its own key; the owner of the polynomial combines them with its
coefficients (a scalar product) and adds the constant one. Everything is modulo the plaintext ring's N.

Square computation is the case (x_a + x)^2 = x^2 + 2 x_a x + x_a^2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from blindbayes.crypto.coins import Coins
from blindbayes.errors import LocalProtocolError
from blindbayes_papers.primitives.paillier import Ciphertext, PublicKey
from blindbayes_papers.vaidya2008.primitives.scalar_product import answer, combine


def powers(x: int, degree: int, modulus: int) -> list[int]:
    """x, x^2, ..., x^degree modulo the plaintext ring."""
    coefficients, power = [], 1
    for _ in range(degree):
        power = power * x % modulus
        coefficients.append(power)
    return coefficients


def evaluate(
    public: PublicKey, encrypted_powers: Sequence[Ciphertext], coefficients: Sequence[int], coins: Coins
) -> Ciphertext:
    """A ciphertext of the polynomial's value; `coefficients` from the constant one upwards. Fresh randomness."""
    if len(coefficients) != len(encrypted_powers) + 1:
        raise LocalProtocolError("a polynomial of degree k has k + 1 coefficients")
    return answer(public, combine(public, encrypted_powers, coefficients[1:]), coefficients[0], coins)


def square_around(own: int, mask: int) -> list[int]:
    """Coefficients of (own + x)^2 + mask."""
    return [own * own + mask, 2 * own, 1]


def shifted(coefficients: Sequence[int], by: int, modulus: int) -> list[int]:
    """Coefficients of P(x + by), modulo the ring, by Horner."""
    out: list[int] = []
    for coefficient in reversed(coefficients):
        raised = [0, *out]
        for at, value in enumerate(out):
            raised[at] = (raised[at] + by * value) % modulus
        raised[0] = (raised[0] + coefficient) % modulus
        out = raised
    return out


# -- ln(1 + e) -----------------------------------------------------------------------------------------------------------


@cache
def taylor(degree: int, fraction: int) -> tuple[int, ...]:
    """Integer coefficients of `scale(degree, fraction)` times the Taylor polynomial of ln(1 + e), in e * 2^fraction.

    The paper divides by 2^(N(i-1)) inside the field, which is integer division only where it comes out even; here every term is
    scaled up to the last one's denominator.
    """
    lcm = math.lcm(*range(1, degree + 1))
    return (0, *((-1) ** (i - 1) * (lcm // i) << (fraction * (degree - i)) for i in range(1, degree + 1)))


def scale(degree: int, fraction: int) -> int:
    """Return what `taylor` is scaled by."""
    return math.lcm(*range(1, degree + 1)) << (fraction * degree)


def taylor_error(degree: int) -> float:
    """Bound on |ln(1 + e) - T(e)| for -1/4 <= e < 1/2: half of the paper's 1 / (2^u (u + 1))."""
    return 2.0 ** -(degree + 1) / (degree + 1)
