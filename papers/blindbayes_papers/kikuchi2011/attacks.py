"""Two flaws of Algorithms 2 and 3: what their dummies show, and what a party learns that does not follow them.

Random integers as dummies (Algorithm 3 as printed) show how far Bob thinned his set: items H(y)^v are quadratic residues; an
integer r_i drawn from all of Z_p* is one only half of the time. Alice counts the non-residues, doubles their number, and so
knows p = s_B / n_B, which was to hide the size of the intersection (section 3.3).

Either algorithm gives an Alice that deviates the matching, though Bob shuffles: `read_matching`.
"""

from __future__ import annotations

from collections.abc import Sequence

import gmpy2

from blindbayes.crypto.coins import Coins
from blindbayes.errors import PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, receive
from blindbayes.protocols.two_party.transfer.roles import agree
from blindbayes_papers.kikuchi2011.set_intersection.groups import RISTRETTO, SafePrime
from blindbayes_papers.kikuchi2011.set_intersection.messages import ItemsLocked, ItemsLockedTwice, PowerProved
from blindbayes_papers.kikuchi2011.set_intersection.roles import cut, facts


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


def read_matching(
    run: Run, bob_name: str, items: Sequence[bytes], coins: Coins, *, thinned: bool = False, proofs: bool = False
) -> Role[tuple[int, ...]]:
    """Play Alice with a power of its own for each item, and return the positions of those that Bob has (or kept).

    An item that came back under Bob's power v and its own u_i stands in Bob's list under v: under u_i the two are equal.
    """
    name = "distorted_intersection" if thinned else "set_intersection"
    public = RISTRETTO.name.encode() if thinned else facts(RISTRETTO, False, proofs)
    yield from agree(run, bob_name, name, public, coins)
    powers = [RISTRETTO.secret(coins) for _ in items]
    locked = [RISTRETTO.power(power, RISTRETTO.hash(item)) for power, item in zip(powers, items, strict=True)]
    yield Send(bob_name, ItemsLocked(b"".join(locked)))
    if thinned:
        twice = yield from receive(bob_name, ItemsLockedTwice)
        theirs = yield from receive(bob_name, ItemsLocked)
    else:
        theirs = yield from receive(bob_name, ItemsLocked)
        twice = yield from receive(bob_name, ItemsLockedTwice)
        if proofs:
            yield from receive(bob_name, PowerProved)
    returned, listed = set(cut(twice.elements, RISTRETTO, bob_name)), cut(theirs.elements, RISTRETTO, bob_name)
    return tuple(
        at for at, power in enumerate(powers) if any(RISTRETTO.power(power, element) in returned for element in listed)
    )
