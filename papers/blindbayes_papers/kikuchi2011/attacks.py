"""The flaw of Algorithm 3 as printed: random integers as dummies show how far Bob thinned his set.

Items H(y)^v are quadratic residues; an integer r_i drawn from all of Z_p* is one only half of the time. Alice counts the
non-residues, doubles their number, and so knows p = s_B / n_B, which was to hide the size of the intersection (section 3.3).
"""

from __future__ import annotations

from collections.abc import Sequence

import gmpy2

from blindbayes.crypto.coins import Coins
from blindbayes.errors import PeerProtocolError
from blindbayes_papers.kikuchi2011.set_intersection.groups import SafePrime


class PrintedGroup(SafePrime):
    """The group with dummies as in step 3 of Algorithm 3: r_i is a uniform integer and is sent as it is."""

    def __init__(self) -> None:
        super().__init__()
        self._dummies: set[bytes] = set()

    def draw(self, coins: Coins) -> bytes:
        dummy = (2 + coins.below(int(self.modulus) - 3)).to_bytes(self.size, "big")
        self._dummies.add(dummy)
        return dummy

    def power(self, secret: bytes, element: bytes) -> bytes:
        return element if element in self._dummies else super().power(secret, element)

    def require(self, element: bytes, party: str | None) -> bytes:
        if len(element) != self.size or not 1 < int.from_bytes(element, "big") < self.modulus:
            raise PeerProtocolError("a group element is not valid", party=party)
        return element


def kept_share(elements: Sequence[bytes], modulus: gmpy2.mpz) -> float:
    """Estimate s_B / n_B from what Bob sent: 1 minus twice the share of non-residues."""
    odd: int = sum(gmpy2.legendre(int.from_bytes(element, "big"), modulus) == -1 for element in elements)
    return 1 - 2 * odd / len(elements)
