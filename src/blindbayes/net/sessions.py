"""The sessions of one pair of parties: the open one, the one that is being agreed on, and what the peer is owed.

Sans I/O: the states are those of `states.SESSION`, the link sends what is due. An offer is repeated with the key that it had,
and a repeated offer gets the same answer, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.hybrid import HybridKey
from blindbayes.net.envelope import EnvelopePair, Offer, Session, fresh_key
from blindbayes.net.states import SESSION, SessionEvent, SessionState, follow

_MAX_MET = 64
_MAX_BEATS = 256


@dataclass(frozen=True, slots=True)
class Timing:
    """Deadlines and intervals in seconds of the monotonic clock, and the window of unacknowledged bytes."""

    step: float = 60.0  # how long a party may be silent, and how long a quorum step collects
    join: float = 600.0  # how long the others have to join the run
    run: float = 3600.0  # the whole run
    beat: float = 2.0  # interval of beats on a quiet link
    retry: float = 1.0  # interval of repeated offers
    gone: float = 30.0  # how long to wait for a connection that is known to be down, if a step lasts longer
    window: int = 16 * 1024**2


class Sessions:
    """The sessions of one pair. `listen(session, True)` routes a session's frames here, `listen(session, False)` stops that."""

    def __init__(self, pair: EnvelopePair, timing: Timing, listen: Callable[[bytes, bool], None]) -> None:
        self._pair, self._timing, self._listen = pair, timing, listen
        self._coins = Coins.system()
        self._key: HybridKey | None = None
        self._met: set[bytes] = set()  # the peer's keys that this side's key was joined with
        self._owed_offer = False
        self._retry = timing.retry / 4
        self.next_offer = 0.0
        self.asked_at = 0.0  # when this key was first offered
        self.owed: Session | None = None  # the session whose offer and confirmation go out next
        self.state = SessionState.NONE
        self.pending: Session | None = None  # in AGREED and RENEWING
        self.current: Session | None = None  # in OPEN and RENEWING

    def restart(self) -> None:
        """Offer at once, over a fresh connection."""
        self.forget()
        self._retry = self._timing.retry / 4
        self.next_offer = 0.0

    def hurry(self, when: float) -> None:
        self.next_offer = min(self.next_offer, when)

    def forget(self) -> None:
        self.unlisten()
        self.state = follow(SESSION, self.state, SessionEvent.DROP)
        self.pending = self.current = self.owed = None
        self._key = None

    def unlisten(self) -> None:
        for session in (self.pending, self.current):
            if session is not None:
                self._listen(session.id, False)

    def due(self, now: float, *, silent: bool, slowest: float, passive: bool) -> Offer | None:
        """Return the offer to send now (new, repeated or owed), or None."""
        wanted = self.state is not SessionState.OPEN or silent
        if wanted and now >= self.next_offer and not passive:
            self._retry = min(2 * self._retry, max(4 * self._timing.retry, slowest))
            self.next_offer = now + self._retry
            if self.pending is None and (self._key is None or self._is_used(self._key)):
                self._renew_key(now)
            self.owed, self._owed_offer = self.pending, False
            if self._key is not None:
                return self._pair.offer(self._key)
        owed = self.owed
        if owed is not None and self._owed_offer and self._key is not None and owed.my_ephemeral == self._key.public:
            self._owed_offer = False
            return self._pair.offer(self._key)
        return None

    def meet(self, offer: Offer, now: float) -> None:
        """Join the peer's latest key with this side's latest one. A pair of keys makes at most one session, ever."""
        pending, current = self.pending, self.current
        if pending is not None and pending.peer_ephemeral == offer.ephemeral:  # it lacked the answer when it sent this
            self._owe(pending)
            return
        if current is not None and current.peer_ephemeral == offer.ephemeral:
            self.owed = self.owed or current  # it confirmed, so it has the offer: at most the confirmation was lost
            return
        self._pair.require_offer(offer)
        key = self._key
        if key is None or self._is_used(key) or offer.ephemeral in self._met or len(self._met) >= _MAX_MET:
            key = self._renew_key(now)
        self._met.add(offer.ephemeral)
        self.pending = self._pair.agree(key, offer)
        self.state = follow(SESSION, self.state, SessionEvent.AGREE)
        if pending is not None:
            self._listen(pending.id, False)
        self._listen(self.pending.id, True)
        self._owe(self.pending)

    def confirmed(self, session: Session) -> None:
        """Open the session that the peer has confirmed, in place of the one before."""
        self.state = follow(SESSION, self.state, SessionEvent.CONFIRM)
        if self.current is not None:
            self._listen(self.current.id, False)
        self.current, self.pending = session, None
        if not session.confirmation:
            self._owe(session)
        self._retry = self._timing.retry / 4

    def _owe(self, session: Session) -> None:
        # The offer of a session whose confirmation is still to be sent is not repeated: two sides that answer offers with
        # offers, each faster than the other confirms, would do nothing else.
        self._owed_offer = self._owed_offer or self.owed is not session
        self.owed = session

    def _is_used(self, key: HybridKey) -> bool:
        return self.current is not None and self.current.my_ephemeral == key.public

    def _renew_key(self, now: float) -> HybridKey:
        self._key = fresh_key(self._coins)
        self._met = set()
        self.asked_at = now
        return self._key


class Pulse:
    """The round trip, measured by beats and their echoes."""

    def __init__(self) -> None:
        self.round = 0.0  # seconds from a beat to its echo, smoothed
        self.echo = 0  # the number of the peer's last beat
        self._number = 0
        self._left: dict[int, float] = {}  # departure times of beats that were not echoed

    def beat(self, now: float) -> int:
        """Return the number of the beat that leaves now."""
        self._number += 1
        if len(self._left) >= _MAX_BEATS:
            self._left.clear()
        self._left[self._number] = now
        return self._number

    def heard(self, number: int, echo: int, now: float) -> None:
        """Process a beat of the peer, which echoes the last one of this side that it got."""
        self.echo = max(self.echo, number)
        if (left := self._left.pop(echo, None)) is not None:
            self.round = (self.round + now - left) / 2
            self._left = {number: at for number, at in self._left.items() if number > echo}
