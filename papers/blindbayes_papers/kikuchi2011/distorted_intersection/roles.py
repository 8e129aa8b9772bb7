"""Roles of distorted_intersection. Step numbers as in SPEC.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from blindbayes.crypto.coins import Coins
from blindbayes.errors import DataError, PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, open_value, receive
from blindbayes.protocols.two_party.transfer.roles import agree
from blindbayes_papers.kikuchi2011.set_intersection.groups import RISTRETTO, CommutingGroup
from blindbayes_papers.kikuchi2011.set_intersection.messages import ItemsLocked, ItemsLockedTwice
from blindbayes_papers.kikuchi2011.set_intersection.roles import cut, require_distinct

LABEL = "thinned_size"


@dataclass(frozen=True, slots=True)
class ThinningSetup:
    """Bob's thinning: the expected size of the intersection is Alice's thinned size times `items` / `sample_size`."""

    items: int
    sample_size: int = field(repr=False)


def alice(run: Run, bob_name: str, items: Sequence[bytes], coins: Coins, *, group: CommutingGroup = RISTRETTO) -> Role[int]:
    """Learns s_A, the size of the intersection with Bob's thinned set."""
    require_distinct(items)
    yield from agree(run, bob_name, "distorted_intersection", group.name.encode(), coins)
    secret = group.secret(coins)
    locked = sorted(group.power(secret, group.hash(item)) for item in items)
    yield Send(bob_name, ItemsLocked(b"".join(locked)))  # step 1
    twice = yield from receive(bob_name, ItemsLockedTwice)
    theirs = yield from receive(bob_name, ItemsLocked)
    known = {group.power(secret, element) for element in cut(theirs.elements, group, bob_name)}  # step 4
    own = cut(twice.elements, group, bob_name)
    if len(own) != len(items):
        raise PeerProtocolError("the items did not all come back", party=bob_name)
    return (yield from open_value(LABEL, sum(element in known for element in own)))


def bob(
    run: Run, alice_name: str, items: Sequence[bytes], coins: Coins, *, group: CommutingGroup = RISTRETTO
) -> Role[ThinningSetup]:
    """Draws s_B and keeps it."""
    require_distinct(items)
    if len(items) < 2:
        raise DataError("a set of fewer than two identifiers cannot be thinned")
    yield from agree(run, alice_name, "distorted_intersection", group.name.encode(), coins)
    secret = group.secret(coins)
    received = yield from receive(alice_name, ItemsLocked)
    twice = [group.power(secret, element) for element in cut(received.elements, group, alice_name)]
    coins.shuffle(twice)
    yield Send(alice_name, ItemsLockedTwice(b"".join(twice)))  # step 2
    sample_size = 1 + coins.below(len(items) - 1)  # step 3
    sent = []
    for item in items:
        is_kept = coins.below(len(items)) < sample_size
        # A dummy is raised to v as well: it took as long, and it is a uniform element like the others.
        sent.append(group.power(secret, group.hash(item) if is_kept else group.draw(coins)))
    coins.shuffle(sent)
    yield Send(alice_name, ItemsLocked(b"".join(sent)))
    return ThinningSetup(len(items), sample_size)
