"""The sessions of one pair of parties: the one that stands, the one that is being made, and what the peer is owed.

An offer is repeated with the key that it had; whoever meets it again gives the answer that it gave, byte for byte. Each pair
of keys makes one session, ever. What a session carries is the link's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.net.envelope import EnvelopePair, Offer, Session, fresh_key

_MAX_MET = 64
_MAX_BEATS = 256


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds by the monotonic clock, and the window of bytes under way. The calendar clock is never asked."""

    step: float = 60.0  # how long a party may be silent, and how long a quorum step collects
    join: float = 600.0  # how long the others have to come to the run
    run: float = 3600.0  # the whole run
    beat: float = 2.0  # how often a quiet link says that it lives
    retry: float = 1.0  # how often a session is offered again
    gone: float = 30.0  # how long a connection that is known to be down is waited for, if a step lasts longer
    window: int = 16 * 1024**2


class Way(Protocol):
    """How frames reach the other site."""

    async def send(self, frame: bytes) -> None: ...

    def is_up(self) -> bool: ...

    def vouches(self) -> bool: ...


class Sessions:
    """See the module's docstring. `listen` is told (session, True) to route its frames here, (session, False) to stop."""

    def __init__(
        self,
        pair: EnvelopePair,
        timing: Timing,
        clock: Callable[[], float],
        listen: Callable[[bytes, bool], None],
        wake: Callable[[], None],
    ) -> None:
        self._pair, self._timing, self._clock, self._listen, self._wake = pair, timing, clock, listen, wake
        self._coins = Coins.system()
        self._key: AgreementKey | None = None
        self._met: set[bytes] = set()  # the peer's keys that mine was joined with
        self._owed_offer = False
        self._retry = timing.retry / 4
        self.next_offer = 0.0
        self.asked_at = 0.0  # when this key was first offered
        self.owed: Session | None = None  # whose offer and confirmation of mine go out next
        self.pending: Session | None = None
        self.current: Session | None = None

    def restart(self) -> None:
        """A fresh connection: offer at once."""
        self.forget()
        self._retry = self._timing.retry / 4
        self.next_offer = 0.0

    def hurry(self, when: float) -> None:
        """Offer again by then."""
        self.next_offer = min(self.next_offer, when)
        self._wake()

    def forget(self) -> None:
        """Leave whatever there is."""
        self.unlisten()
        self.pending = self.current = self.owed = None
        self._key = None

    def unlisten(self) -> None:
        """Take no more frames."""
        for session in (self.pending, self.current):
            if session is not None:
                self._listen(session.id, False)

    def due(self, now: float, *, silent: bool, slowest: float, passive: bool) -> Offer | None:
        """The offer that goes out now, if one does: a new one, its repeat, or the one that the peer is owed."""
        wanted = self.current is None or self.pending is not None or silent
        if wanted and now >= self.next_offer and not passive:
            self._retry = min(2 * self._retry, max(4 * self._timing.retry, slowest))
            self.next_offer = now + self._retry
            if self.pending is None and (self._key is None or self._is_used(self._key)):
                self._renew_key()
            self.owed, self._owed_offer = self.pending, False
            if self._key is not None:
                return self._pair.offer(self._key)
        owed = self.owed
        if owed is not None and self._owed_offer and self._key is not None and owed.my_ephemeral == self._key.public:
            self._owed_offer = False
            return self._pair.offer(self._key)
        return None

    def meet(self, offer: Offer) -> None:
        """Join the peer's latest key with my latest one. Each pair of keys makes one session, ever."""
        pending, current = self.pending, self.current
        if pending is not None and pending.peer_ephemeral == offer.ephemeral:  # it lacks my answer, or did when it asked
            self.owe(pending)
            return
        if current is not None and current.peer_ephemeral == offer.ephemeral:
            self.owed = self.owed or current  # it confirmed, so it has my offer: at most my confirmation was lost
            self._wake()
            return
        self._pair.require_offer(offer)
        key = self._key
        if key is None or self._is_used(key) or offer.ephemeral in self._met or len(self._met) >= _MAX_MET:
            key = self._renew_key()
        if pending is not None:
            self._listen(pending.id, False)
        self._met.add(offer.ephemeral)
        self.pending = self._pair.agree(key, offer)
        self._listen(self.pending.id, True)
        self.owe(self.pending)

    def owe(self, session: Session) -> None:
        """Give the peer my part of this session, or give it again."""
        # Of a session whose confirmation is still to be sent the offer is not repeated: two sides that answer offers with
        # offers, each faster than the other confirms, would do nothing else.
        self._owed_offer = self._owed_offer or self.owed is not session
        self.owed = session
        self._wake()

    def stand(self, session: Session) -> bool:
        """The peer has confirmed this session; whether another one stood before."""
        before = self.current
        if before is not None:
            self._listen(before.id, False)
        self.current, self.pending = session, None
        if not session.confirmation:
            self.owe(session)
        self._retry = self._timing.retry / 4
        return before is not None

    def _is_used(self, key: AgreementKey) -> bool:
        return self.current is not None and self.current.my_ephemeral == key.public

    def _renew_key(self) -> AgreementKey:
        self._key = fresh_key(self._coins)
        self._met = set()
        self.asked_at = self._clock()
        return self._key


class Pulse:
    """Beats, their echoes, and the round trip that they measure."""

    def __init__(self) -> None:
        self.round = 0.0  # seconds from a beat to its echo, smoothed
        self.echo = 0  # the number of the peer's last beat
        self._number = 0
        self._left: dict[int, float] = {}  # when those left that were not echoed

    def beat(self, now: float) -> int:
        """The number of the beat that leaves now."""
        self._number += 1
        if len(self._left) >= _MAX_BEATS:
            self._left.clear()
        self._left[self._number] = now
        return self._number

    def heard(self, number: int, echo: int, now: float) -> None:
        """A beat of the peer came, and says which of ours it has."""
        self.echo = max(self.echo, number)
        if (left := self._left.pop(echo, None)) is not None:
            self.round = (self.round + now - left) / 2
            self._left = {number: at for number, at in self._left.items() if number > echo}
