"""Roles of set_intersection. Step numbers as in SPEC.md."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from blindbayes.crypto.coins import Coins
from blindbayes.errors import DataError, LocalProtocolError, PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, open_value, receive
from blindbayes.protocols.two_party.transfer.roles import agree
from blindbayes_papers.kikuchi2011.set_intersection.groups import RISTRETTO, CommutingGroup
from blindbayes_papers.kikuchi2011.set_intersection.messages import ItemsLocked, ItemsLockedTwice, PowerProved
from blindbayes_papers.kikuchi2011.set_intersection.proof import PowerStatement, public_of

SIZE, MATCHING = "intersection_size", "matching"


@dataclass(frozen=True, slots=True)
class Intersection:
    """The intersection as Alice learns it."""

    size: int
    matching: tuple[int, ...] | None = field(default=None, repr=False)  # positions of her items, if the study reveals them


def alice(
    run: Run,
    bob_name: str,
    items: Sequence[bytes],
    coins: Coins,
    *,
    matching: bool = False,
    proofs: bool = False,
    group: CommutingGroup = RISTRETTO,
) -> Role[Intersection]:
    """Learns the size of the intersection; with `matching`, which of her items are in it."""
    require_distinct(items)
    session = yield from agree(run, bob_name, "set_intersection", facts(group, matching, proofs), coins)
    secret, order = group.secret(coins), list(range(len(items)))
    coins.shuffle(order)
    locked = [group.power(secret, group.hash(items[at])) for at in order]
    yield Send(bob_name, ItemsLocked(b"".join(locked)))  # step 1
    theirs = yield from receive(bob_name, ItemsLocked)
    twice = yield from receive(bob_name, ItemsLockedTwice)
    known = Counter(group.power(secret, element) for element in cut(theirs.elements, group, bob_name))  # step 3
    own = cut(twice.elements, group, bob_name)
    if len(own) != len(items):
        raise PeerProtocolError("the items did not all come back", party=bob_name)
    if proofs:
        shown = yield from receive(bob_name, PowerProved)
        statement = _statement(session, bob_name, theirs.elements, locked, own, matching)
        statement.require(shown.public, shown.proof, bob_name)
    size = sum(element in known for element in own)
    if not matching:
        return Intersection((yield from open_value(SIZE, size)))
    positions = tuple(sorted(order[at] for at, element in enumerate(own) if element in known))
    return Intersection(size, (yield from open_value(MATCHING, positions)))


def bob(
    run: Run,
    alice_name: str,
    items: Sequence[bytes],
    coins: Coins,
    *,
    matching: bool = False,
    proofs: bool = False,
    group: CommutingGroup = RISTRETTO,
) -> Role[None]:
    """Learns the number of Alice's items."""
    require_distinct(items)
    session = yield from agree(run, alice_name, "set_intersection", facts(group, matching, proofs), coins)
    secret = group.secret(coins)
    received = yield from receive(alice_name, ItemsLocked)
    own = [group.power(secret, group.hash(item)) for item in items]
    coins.shuffle(own)
    yield Send(alice_name, ItemsLocked(b"".join(own)))  # step 2
    locked = cut(received.elements, group, alice_name)
    twice = [group.power(secret, element) for element in locked]
    if not matching:
        coins.shuffle(twice)  # in Alice's order they would show her which items match
    yield Send(alice_name, ItemsLockedTwice(b"".join(twice)))
    if proofs:
        mine = _statement(session, run.me, b"".join(own), locked, twice, matching)
        yield Send(alice_name, PowerProved(public_of(secret), mine.prove(secret, coins)))


def _statement(
    session: bytes, party: str, own: bytes, before: Sequence[bytes], after: Sequence[bytes], ordered: bool
) -> PowerStatement:
    """Return what `party` proves of `after`, bound to the list `own` that it sent."""
    return PowerStatement(session + hashlib.sha512(own).digest() + party.encode(), before, after, ordered)


def facts(group: CommutingGroup, matching: bool, proofs: bool) -> bytes:
    """Return what both must agree on."""
    if proofs and group.name != RISTRETTO.name:
        raise LocalProtocolError("proofs are made in ristretto255 alone")
    return repr((group.name, matching, proofs)).encode()


def require_distinct(items: Sequence[bytes]) -> None:
    """Sets have no item twice."""
    if len(set(items)) != len(items):
        raise DataError("an identifier stands twice in a set; remove duplicates before")


def cut(elements: bytes, group: CommutingGroup, party: str) -> list[bytes]:
    """The elements of a message, each checked; none may stand twice."""
    if len(elements) % group.size:
        raise PeerProtocolError("group elements have the wrong length", party=party)
    checked = [group.require(elements[low : low + group.size], party) for low in range(0, len(elements), group.size)]
    if len(set(checked)) != len(checked):
        raise PeerProtocolError("a group element came twice", party=party)
    return checked
