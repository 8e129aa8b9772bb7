"""The role of a party on the rings. Step numbers as in SPEC.md."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError, PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, open_value, receive, receive_all
from blindbayes.protocols.registry import Coalition, Smallest, SumProtocol, SumSetup, Total, require_options, require_vector
from blindbayes.wire import U64Array
from blindbayes_papers.vaidya2008.ring_sum.cycles import max_rings, ring, seating
from blindbayes_papers.vaidya2008.ring_sum.messages import PartialPassed, TotalTold
from blindbayes_papers.vaidya2008.ring_sum.params import RingSumParams

OPTIONS = msgspec.structs.asdict(RingSumParams())
MINIMUM = 3


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a party on one ring."""

    hop: int  # 0 for the starter
    before: str
    after: str


def places(run: Run, setting: SumSetup, rings: int) -> list[Place]:
    """Our place on each ring."""
    names = setting.contributors
    seats = seating(run.study, run.run_id, len(names))
    places = []
    for number in range(rings):
        order = [names[seats[vertex]] for vertex in ring(len(names), number)]
        hop = order.index(run.me)
        places.append(Place(hop, order[hop - 1], order[(hop + 1) % len(order)]))
    return places


def ring_count(setting: SumSetup) -> int:
    """The declared number of rings; by default two where they fit, else one."""
    parties, wanted = len(setting.contributors), require_options(setting, OPTIONS)["rings"]
    if parties < MINIMUM:
        raise ConfigError(f"ring_sum needs {MINIMUM} contributors or more")
    if setting.quorum_size != parties:
        raise ConfigError("ring_sum needs every contributor: it has no quorum")
    if wanted is None:
        return min(2, max_rings(parties))
    if not 1 <= wanted <= max_rings(parties):
        raise ConfigError(f"{parties} contributors have 1 to {max_rings(parties)} disjoint rings")
    return int(wanted)


def party(run: Run, setting: SumSetup, vector: U64Array, coins: Coins) -> Role[Total]:
    """Everybody's role; the party at hop 0 of all rings starts and ends them."""
    rings = ring_count(setting)
    spots = places(run, setting, rings)
    modulus = _mask(setting)

    # 1. One share per ring; they add up to the vector.
    shares = [coins.words(setting.length) & modulus for _ in range(rings - 1)]
    shares.append((vector - sum(shares, np.zeros(setting.length, np.uint64))) & modulus)

    if spots[0].hop == 0:
        total = yield from _start(setting, spots, shares, coins, modulus)
        for name in run.others:  # 5
            if name in setting.contributors:
                yield Send(name, TotalTold(total))
        starter = run.me
    else:
        # 3. Hop by hop over all rings at once, so that no ring waits for another.
        for hop in sorted({spot.hop for spot in spots}):
            due = [number for number, spot in enumerate(spots) if spot.hop == hop]
            came = yield from receive_all([spots[number].before for number in due], PartialPassed)
            for number in due:
                partial = _require(came[spots[number].before], number, setting, spots[number].before)
                yield Send(spots[number].after, PartialPassed(number, (partial + shares[number]) & modulus))
        starter = setting.contributors[seating(run.study, run.run_id, len(setting.contributors))[-1]]
        message = yield from receive(starter, TotalTold)  # 5
        if len(message.total) != setting.length:
            raise PeerProtocolError("the total has another length", party=starter)
        total = message.total
    yield from open_value(setting.label, total)
    return Total(total, setting.contributors)


def _start(setting: SumSetup, spots: list[Place], shares: list[U64Array], coins: Coins, modulus: np.uint64) -> Role[U64Array]:
    """Start every ring under a mask of its own, take the masks off at the end."""
    # 2.
    masks = [coins.words(setting.length) & modulus for _ in spots]
    for number, (spot, mask, share) in enumerate(zip(spots, masks, shares, strict=True)):
        yield Send(spot.after, PartialPassed(number, (mask + share) & modulus))
    # 4.
    ended = yield from receive_all([spot.before for spot in spots], PartialPassed)
    total = np.zeros(setting.length, np.uint64)
    for number, (spot, mask) in enumerate(zip(spots, masks, strict=True)):
        total += _require(ended[spot.before], number, setting, spot.before) - mask
    return total & modulus


def _mask(setting: SumSetup) -> np.uint64:
    """The modulus is 2^64; a smaller power of two serves the exhaustive tests."""
    bits = require_options(setting, OPTIONS)["modulus_bits"]
    if not 1 <= bits <= 64:
        raise ConfigError("the modulus has 1 to 64 bits")
    return np.uint64((1 << bits) - 1)


def _require(message: PartialPassed, number: int, setting: SumSetup, sender: str) -> U64Array:
    if message.ring != number:
        raise PeerProtocolError("the partial sum belongs to another ring", party=sender)
    if len(message.partial_masked) != setting.length or (message.partial_masked & ~_mask(setting)).any():
        raise PeerProtocolError("the partial sum has another length or modulus", party=sender)
    return message.partial_masked


class RingSum(SumProtocol):
    """Masked rings."""

    name = "ring_sum"
    params = RingSumParams

    def check(self, setting: SumSetup) -> None:
        """Refuse a setting that no run can have."""
        ring_count(setting)
        _mask(setting)

    def roster(self, setting: SumSetup) -> tuple[str, ...]:
        """The contributors."""
        return setting.contributors

    def learners(self, setting: SumSetup) -> tuple[str, ...]:
        """Everybody."""
        return setting.contributors

    def resists(self, setting: SumSetup) -> bool:
        """The law of the rings holds for parties that deviate too."""
        return True

    def bears(self, setting: SumSetup) -> Coalition:
        """Fewer than twice as many colluders as rings, whatever they do; everybody reads."""
        colluders = 2 * ring_count(setting) - 1
        return Coalition("", colluders, colluders)

    def smallest(self, setting: SumSetup, corrupt: int, *, malicious: bool) -> Smallest:
        """Fewer than twice as many colluders as rings leave the honest in one part."""
        return Smallest(len(setting.contributors) - corrupt if corrupt <= self.bears(setting).passive else 0)

    def role(self, run: Run, setting: SumSetup, vector: U64Array | None, coins: Coins) -> Role[Total | None]:
        """The role of `run.me`."""
        return (yield from party(run, setting, require_vector(vector, setting, run.me), coins))


PROTOCOL = RingSum()
