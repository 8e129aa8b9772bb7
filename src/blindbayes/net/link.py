"""One pair of parties in one run: sessions come and go, each message arrives once.

Outgoing messages are numbered and kept until the peer says that it has them on disk. Incoming ones go to the journal first
and are acknowledged after. Whenever a connection comes up, or the peer falls silent, both sides make a fresh session and
report how far they are, as a count and a running digest. The sender continues from there. If the accounts disagree, a disk
was rolled back or a party lies, and the run is burned.

A courier may be slow and may lose frames. Therefore an offer is repeated with the key that it had and answered byte for byte
as before, a session is confirmed again while the peer asks for it, every beat says what was sent and what has come, so that
missing messages are requested, and no timer is shorter than the measured round trip.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Protocol

import msgspec

from blindbayes.errors import (
    BlindbayesError,
    IntegrityError,
    LocalProtocolError,
    PeerLost,
    PeerProtocolError,
    PrivacyError,
    public_code,
)
from blindbayes.io import typed
from blindbayes.net import control
from blindbayes.net.envelope import MAX_PARTS, PART_BYTES, EnvelopePair, Offer, RunFrame, Sealed, Session, Word, pack
from blindbayes.net.journal import Journal, SentDigest
from blindbayes.net.outbox import Outbox
from blindbayes.net.sessions import Pulse, Sessions, Timing
from blindbayes.net.states import OWN, PEER, Own, OwnEvent, Peer, PeerEvent, SessionState, follow
from blindbayes.net.versions import VERSIONS, difference
from blindbayes.wire import MALFORMED

_MAX_FORGERIES = 16
_MAX_STEP = 64
_ACK_DELAY, _LAST_ACK_DELAY = 0.02, 0.005
_OWN_WORD = 10  # retries: a site that refuses answers an offer within two, on a loaded machine later
_INBOX_BYTES = 48 * 1024**2
_FRAME_BYTES = 512  # memory that a frame takes beside its bytes


class Route(Protocol):
    """The route of frames between this role and the site of its peer."""

    async def send(self, frame: bytes) -> None: ...

    def is_up(self) -> bool: ...

    def vouches(self) -> bool:
        """Return True if frames in the peer's name come over its own authenticated connection."""

    def listen(self, session: bytes, link: Link | None) -> None:
        """Deliver the frames of this session to `link`, or to nobody."""

    def note_versions(self, versions: Mapping[str, str]) -> None:
        """Remember which versions the peer runs."""


class PeerLogs:
    """The exchange of log heads between this site and a joining peer. The default shows and checks nothing."""

    heads = b""  # of this site's audit log and ledger

    def seen(self) -> bytes:
        """Return what the peer last showed, with its signature."""
        return b""

    def store_heads(self, heads: bytes, exchange: bytes, proof: bytes) -> None:
        """Raise if the peer's logs are older than it showed before."""

    def check_own_heads(self, seen: bytes) -> None:
        """Raise if this site's own logs are older than the peer has seen them."""


class Link:
    """See the module's docstring. All methods run on one event loop."""

    def __init__(
        self,
        pair: EnvelopePair,
        journal: Journal,
        route: Route,
        timing: Timing,
        *,
        logs: PeerLogs | None = None,
        max_bytes: int | None = None,
        versions: Mapping[str, str] = VERSIONS,
    ) -> None:
        self.pair = pair
        self.timing = timing
        self._journal = journal
        self._route = route
        self._logs = logs or PeerLogs()
        self._max_bytes = max_bytes  # total size of the peer's messages in this run
        self._versions = versions
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()  # the driver's, once the link is started
        self._pump_event = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        # states
        self.own = Own.JOINING
        self.peer = Peer.ABSENT
        self.failure: BlindbayesError | None = None  # why the peer is FAILED
        self.aborted: tuple[int, int] | None = None  # why the peer is ENDED: an error code, and the place of the party it names
        self.refusal = ""  # the reason that the peer's staff gave for not taking part
        self.down_since: float | None = None if route.is_up() else self._loop.time()
        self.heard = self._loop.time()
        self.waits = False  # the peer waits for other parties
        self.waiting = False  # this side waits for other parties
        self.resumed = 0
        self._sessions = Sessions(pair, timing, lambda session, mine: route.listen(session, self if mine else None))
        self._pulse = Pulse()
        # outgoing
        names = pair.study, pair.run_id, pair.me, pair.peer
        self._outbox = Outbox(timing.window, SentDigest(*names, journal.secrets.get(pair.peer, b"")))
        self._window_open = asyncio.Event()
        self._abort_due: tuple[int, int] | None = None
        self._ready_due = False
        self._ack_at: float | None = None  # a little later than the message, so that one commit serves many
        self._ack_delay = _ACK_DELAY
        self._on_disk = 0  # messages of the peer that were acknowledged
        self._last_sent = 0.0
        self._posted_at = 0.0  # when the first unacknowledged message left
        self._rewound_at = 0.0
        # incoming
        self._inbox: deque[tuple[RunFrame, int]] = deque()
        self._inbox_bytes = 0
        self._arrived = asyncio.Event()
        self._parts: list[bytes] = []  # of the message that is coming in
        self._message = ("", 0, 0)  # its step, index and number of parts
        self._gaps = _Gaps()
        self._forgeries = 0

    # -- the driver's side -------------------------------------------------------------------------------------------

    def start(self, wake: asyncio.Event) -> None:
        """Begin to connect. A restarted role is replayed first, so that it knows all it has sent."""
        self._wake = wake
        self._tasks = [asyncio.create_task(self._pump()), asyncio.create_task(self._read())]

    def rest(self) -> None:
        """Answer the peer from now on, but begin nothing: the role has returned."""
        self.own = follow(OWN, self.own, OwnEvent.REST)

    async def close(self) -> None:
        self.own = follow(OWN, self.own, OwnEvent.CLOSE)
        self._sessions.unlisten()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def post_now(self, step: str, payload: bytes) -> None:
        """Queue a message even if the window is full. What it depends on has been committed to the journal."""
        self._outbox.add(step, payload)
        self._pump_event.set()

    async def post(self, step: str, payload: bytes) -> None:
        """Queue a message; wait while the window is full."""
        while not self.fits(len(payload)):
            self._window_open.clear()
            await self._window_open.wait()
        self.post_now(step, payload)

    def fits(self, size: int) -> bool:
        """Return True if a message of this size fits the window, or the peer will never read it."""
        return self._outbox.fits(size) or self.is_lost

    @property
    def is_lost(self) -> bool:
        """True if nothing more will come from the peer."""
        return self.peer in (Peer.ENDED, Peer.FAILED)

    def may_explain(self, waited: float) -> bool:
        """Return True if the peer's own reason may still arrive `waited` seconds after another party named it. Ask for it."""
        if self.down_since is not None or waited > _OWN_WORD * self.timing.retry:
            return False
        self._sessions.hurry(self._loop.time() + self.timing.retry / 2)
        self._pump_event.set()
        return True

    @property
    def drained(self) -> bool:
        """True if the peer has everything on disk and knows what this side has, or is lost."""
        acknowledged = self._ack_at is None or self._current is None
        return (self._outbox.is_empty and acknowledged) or self.is_lost

    def finish(self) -> None:
        """Acknowledge sooner from now on: the role has returned, and the peer waits for nothing else."""
        self._ack_delay = _LAST_ACK_DELAY
        if self._ack_at is not None:
            self._ack_at = min(self._ack_at, self._loop.time() + _LAST_ACK_DELAY)
            self._pump_event.set()

    def say_ready(self) -> None:
        """Say, now and in every later session, that this side can go on; accept messages from now on."""
        self.own = follow(OWN, self.own, OwnEvent.SAY_READY)
        self._ready_due = True
        self._pump_event.set()

    def abort(self, code: int, about: int) -> None:
        """Report to the peer that this side gave up: an error code and the place of the party it names, nothing else."""
        self._abort_due = (public_code(code), about)
        self._pump_event.set()

    @property
    def abort_sent(self) -> bool:
        return self._abort_due is None or self._current is None

    # -- the courier's side ------------------------------------------------------------------------------------------

    def up(self) -> None:
        """Make a fresh session over a fresh connection."""
        self.down_since = None
        self._sessions.restart()
        self._parts = []
        self._pump_event.set()

    def down(self) -> None:
        self.down_since = self._loop.time() if self.down_since is None else self.down_since
        self._forget_sessions()
        self._wake.set()

    @property
    def down_for(self) -> float:
        """Seconds without a connection; 0 with one."""
        return 0.0 if self.down_since is None else self._loop.time() - self.down_since

    def forgive(self, gap: float) -> None:
        """Ignore `gap` seconds in which this process stood still and could not hear the peer."""
        self.heard += gap
        if self.down_since is not None:
            self.down_since += gap

    def accept(self, frame: RunFrame, size: int) -> None:
        """Queue a frame that arrived as `size` bytes; its names take memory as its content does.

        Drop it if the window is exceeded, which an honest peer never does, or if the link has failed.
        """
        size += _FRAME_BYTES
        if self.failure is None and self._inbox_bytes + size <= _INBOX_BYTES:
            self._inbox.append((frame, size))
            self._inbox_bytes += size
            self._arrived.set()

    def refuse(self, reason: str) -> None:
        """Give up on a peer that uses another version, unless it has joined."""
        if self.peer is Peer.ABSENT:
            self._fail(PeerProtocolError(reason, party=self.pair.peer))

    def decline(self, reason: str) -> None:
        """Stop waiting for a peer whose site declined the study by a signed notice, unless it has joined."""
        if self.peer is Peer.ABSENT and not self.is_lost:
            self.refusal, self.aborted = reason, (PrivacyError.code, -1)
            self._learn(PeerEvent.REFUSAL)

    @property
    def _current(self) -> Session | None:
        return self._sessions.current

    def _forget_sessions(self) -> None:
        self._sessions.forget()
        self._parts = []

    # -- sending -----------------------------------------------------------------------------------------------------

    async def _pump(self) -> None:
        while self.own is not Own.CLOSED:
            try:
                sent = self._route.is_up() and await self._send_one()
            except PeerLost:
                self._forget_sessions()
                sent = False
            except (BlindbayesError, OSError) as error:  # a journal or a log that cannot be written
                self._fail(error)
                sent = False
            if not sent:
                self._pump_event.clear()
                alarm = self._loop.call_later(self._patience(), self._pump_event.set)
                await self._pump_event.wait()
                alarm.cancel()

    def _patience(self) -> float:
        now, beat = self._loop.time(), self._beat
        due = self._last_sent + beat if self._current is not None else self._sessions.next_offer
        if self._sessions.pending is not None:
            due = min(due, self._sessions.next_offer)
        if self._ack_at is not None and self._current is not None:
            return max(self._ack_at - now, 0.001)
        return min(max(due - now, 0.01), beat) if self._route.is_up() and self.own is not Own.PASSIVE else beat

    @property
    def _beat(self) -> float:
        return max(self.timing.beat, self._pulse.round / 2)

    @property
    def _pace(self) -> float:
        """Seconds between two requests for the same message."""
        return max(self.timing.retry, self._pulse.round)

    async def _send_one(self) -> bool:
        """Send the most urgent frame; return False if nothing is due.

        A frame is sealed and sent in one step, so that the order of counters is the order of frames.
        """
        now, passive = self._loop.time(), self.own is Own.PASSIVE
        patience = 3 * self._beat + 2 * self.timing.retry + 3 * self._pulse.round  # a live peer is heard every beat
        silent = now - self.heard > patience
        offer = self._sessions.due(now, silent=silent, slowest=self._pulse.round, passive=passive)
        if offer is not None:
            await self._route.send(pack(offer))
            return True
        if self._sessions.owed is not None:
            await self._send_confirmation(self._sessions.owed)
            return True
        if (session := self._current) is None:
            return False
        return (
            await self._send_abort(session)
            or await self._send_ready(session)
            or await self._send_ack(session, now)
            or await self._send_again(session, now)
            or await self._send_part(session, now)
            or await self._send_beat(session, now)
        )

    async def _send_confirmation(self, owed: Session) -> None:
        if not owed.confirmation:
            stream, logs = self._journal.stream(self.pair.peer), self._logs
            seen = logs.seen() if self.peer is Peer.ABSENT else b""
            counts = (stream.count, stream.digest, self._outbox.acked)
            body = control.Confirm(owed.proof(logs.heads), *counts, logs.heads, seen, dict(self._versions))
            await self._journal.commit_async()  # the confirmed count is on disk
            if owed.sent == 0:
                owed.confirmation = owed.seal(control.CONFIRM, msgspec.msgpack.encode(body))
        if self._sessions.owed is owed:
            self._sessions.owed = None
        await self._route.send(owed.confirmation)

    async def _send_abort(self, session: Session) -> bool:
        if self._abort_due is None:
            return False
        body, self._abort_due = self._abort_due, None
        return await self._seal_out(session, control.ABORT, msgspec.msgpack.encode(body))

    async def _send_ready(self, session: Session) -> bool:
        if not self._ready_due:
            return False
        self._ready_due = False
        return await self._seal_out(session, control.READY, b"")

    async def _send_ack(self, session: Session, now: float) -> bool:
        if self._ack_at is None or now < self._ack_at:
            return False
        self._ack_at = None
        have = self._journal.count(self.pair.peer)
        await self._journal.commit_async()  # what is acknowledged is on disk
        self._on_disk = max(self._on_disk, have)
        return await self._seal_out(session, control.ACK, msgspec.msgpack.encode(have))

    async def _send_again(self, session: Session, now: float) -> bool:
        if not self._gaps.due or now < self._gaps.not_before:
            return False
        place = (self._journal.count(self.pair.peer), len(self._parts))
        if not self._gaps.ask(place, not_before=now + self._pace):  # the carrier delivers beats, but not these messages
            self._fail(self._spoilt())
            return False
        await self._journal.commit_async()  # the count in this request is on disk
        return await self._seal_out(session, control.AGAIN, msgspec.msgpack.encode(place))

    async def _send_part(self, session: Session, now: float) -> bool:
        outbox = self._outbox
        if session.gapped and outbox.sent > outbox.acked and now - self._posted_at > self._pace + self.timing.retry:
            outbox.rewind(outbox.acked)  # frames of the peer were lost, so frames of this side may have been lost too
        piece = outbox.next_part() if self.peer is Peer.READY else None
        if piece is None:
            return False
        if (piece.index, piece.part) == (outbox.acked, 0):
            self._posted_at = now
        return await self._seal_out(session, piece.step, piece.body, index=piece.index, part=piece.part, parts=piece.parts)

    async def _send_beat(self, session: Session, now: float) -> bool:
        if now - self._last_sent < self._beat or self.own is Own.PASSIVE:
            return False
        number, ready = self._pulse.beat(now), self.own is not Own.JOINING
        beat = control.Beat(self.waiting, ready, self._outbox.sent, self._on_disk, number, self._pulse.echo)
        return await self._seal_out(session, control.BEAT, msgspec.msgpack.encode(beat))

    async def _seal_out(
        self, session: Session, step: str, body: bytes | memoryview, *, index: int = 0, part: int = 0, parts: int = 1
    ) -> bool:
        self._last_sent = self._loop.time()
        if session is self._current:  # another session may have opened during a commit
            await self._route.send(session.seal(step, body, index=index, part=part, parts=parts))
        return True

    # -- receiving ---------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while self.own is not Own.CLOSED:
            self._arrived.clear()
            while self._inbox:
                frame, size = self._inbox.popleft()
                self._inbox_bytes -= size
                try:
                    self._take(frame)
                except IntegrityError:
                    if isinstance(frame, Sealed):  # anyone can send an unsigned offer or end: it changes nothing
                        self._forged()
                except (BlindbayesError, OSError) as error:
                    self._fail(error)
                    return
            await self._arrived.wait()

    def _take(self, frame: RunFrame) -> None:
        if isinstance(frame, Offer):
            self._sessions.meet(frame, self._loop.time())
            self._pump_event.set()
        elif isinstance(frame, Sealed):
            self._take_sealed(frame)
        else:
            self._take_word(frame)

    def _spoilt(self) -> BlindbayesError:
        """Return the error for frames that keep arriving altered or not at all.

        The peer is to blame only if the connection is its own: otherwise a relay or an engine could frame it.
        """
        if self._route.vouches():
            return IntegrityError(party=self.pair.peer)
        return PeerLost("what it sends comes changed, or not at all: look at the relay or engine between", party=self.pair.peer)

    def _forged(self) -> None:
        """Make a fresh session, since anyone on the way can garble a frame; after many of them end the run."""
        self._forgeries += 1
        if self._forgeries > _MAX_FORGERIES:
            self._fail(self._spoilt())
            return
        self._forget_sessions()
        self._pump_event.set()

    def _fail(self, error: BlindbayesError | OSError) -> None:
        if isinstance(error, OSError):
            error = LocalProtocolError(f"the operating system refused: {error.strerror}", party=self.pair.me)
        self.failure = self.failure or error
        self._learn(PeerEvent.FAILURE)

    def _learn(self, event: PeerEvent) -> None:
        """Change the peer's state; what waits for the peer looks again."""
        self.peer = follow(PEER, self.peer, event)
        self._window_open.set()
        self._wake.set()

    def _take_sealed(self, frame: Sealed) -> None:
        pending, current = self._sessions.pending, self._sessions.current
        if pending is not None and frame.session == pending.id:
            if frame.step == control.CONFIRM:  # else the confirmation was lost; it will be asked for
                body = pending.open(frame)
                if body is not None:
                    self._take_confirm(pending, body)
        elif current is not None and frame.session == current.id:
            body = current.open(frame)
            if body is None:
                return
            self.heard = self._loop.time()
            if frame.step in control.CONTROL:
                self._take_control(frame.step, body)
            else:
                self._take_part(frame, body, current)
        # a frame of a session that is gone: the peer will notice and begin a new one

    def _take_word(self, word: Word) -> None:
        """Process a signed end or refusal of a peer that has no link any more."""
        ending, reason = self.pair.require_word(word)
        event = PeerEvent.REFUSAL if reason else PeerEvent.END
        if not self.is_lost and follow(PEER, self.peer, event) is Peer.ENDED:
            self.refusal, self.aborted = reason, ending
        self._learn(event)

    def _take_confirm(self, session: Session, body: bytes) -> None:
        confirm = control.read_confirm(session, body)
        peer = self.pair.peer
        if self.peer is Peer.ABSENT:
            control.require_short(confirm, peer)
            self._route.note_versions(confirm.versions)
            if (why := difference(self._versions, confirm.versions)) is not None:
                raise PeerProtocolError(why, party=peer)
            self._logs.check_own_heads(confirm.seen)
            self._logs.store_heads(confirm.heads, session.exchange, confirm.proof)
        if confirm.have > self._outbox.count or confirm.acked > self._journal.count(peer):
            raise LocalProtocolError("has seen more of this run than this site remembers: was a disk rolled back?", party=peer)
        if confirm.have < self._outbox.acked:
            raise PeerProtocolError("remembers less of this run than it said before: was a disk rolled back?", party=peer)
        if confirm.have < 0 or self._outbox.digest(confirm.have) != confirm.digest:
            raise LocalProtocolError("holds other messages of this site than this run makes", party=peer)
        self.resumed += self._sessions.state is SessionState.RENEWING
        self._sessions.confirmed(session)
        self._pulse.round = self._pulse.round or self._loop.time() - self._sessions.asked_at
        self._parts = []
        self._ready_due = self.own is not Own.JOINING
        self._outbox.rewind(confirm.have)
        self._acknowledge()  # more may have come in the old session than the confirmation said
        self.heard = self._loop.time()
        self._pump_event.set()
        self._learn(PeerEvent.CONFIRM)

    def _take_control(self, step: str, body: bytes) -> None:
        try:
            if step == control.ACK:
                self._take_ack(typed.decode(body, int))
            elif step == control.AGAIN:
                self._take_again(*control.PAIRS.decode(body))
            elif step == control.BEAT:
                self._take_beat(control.BEATS.decode(body))
            elif step == control.ABORT:
                self.aborted = control.PAIRS.decode(body)
                self._learn(PeerEvent.ABORT)
            elif step == control.READY:
                self._learn(PeerEvent.READY)
            else:
                raise PeerProtocolError("a session was confirmed twice", party=self.pair.peer)
        except MALFORMED as cause:
            raise PeerProtocolError("a control frame is not well formed", party=self.pair.peer) from cause
        self._wake.set()

    def _take_ack(self, have: int) -> None:
        if not self._outbox.acked <= have <= self._outbox.count:
            raise PeerProtocolError("acknowledged what was not sent", party=self.pair.peer)
        self._outbox.acknowledge(have)
        self._window_open.set()

    def _take_again(self, have: int, part: int) -> None:
        self._take_ack(have)
        now = self._loop.time()
        if now - self._rewound_at > self._pulse.round:  # else what was sent again is still under way
            self._rewound_at = now
            self._outbox.rewind(have, part)
            self._pump_event.set()

    def _take_beat(self, beat: control.Beat) -> None:
        if not beat.have <= self._outbox.count:
            raise PeerProtocolError("acknowledged what was not sent", party=self.pair.peer)
        self._outbox.acknowledge(beat.have)
        if beat.ready:
            self._learn(PeerEvent.READY)
        lacking = beat.sent > self._journal.count(self.pair.peer)
        self.waits = beat.waits and not lacking  # a peer that waits for an answer to a lost message waits for this side
        self._pulse.heard(beat.number, beat.echo, self._loop.time())
        self._gaps.due = self._gaps.due or lacking
        self._window_open.set()
        self._pump_event.set()

    def _acknowledge(self) -> None:
        if self._ack_at is None:
            self._ack_at = self._loop.time() + self._ack_delay
            self._pump_event.set()

    def _take_part(self, frame: Sealed, body: bytes, session: Session) -> None:
        peer, have = self.pair.peer, self._journal.count(self.pair.peer)
        message = (frame.step, frame.index, frame.parts)
        if frame.part == 0 and frame.index <= have:
            self._parts, self._message = [], message
        if (
            frame.index > have
            or message != self._message
            or frame.part != len(self._parts)
            or not frame.part < frame.parts <= MAX_PARTS
            or len(body) > PART_BYTES
            or len(frame.step) > _MAX_STEP
            or not frame.step.isidentifier()
        ):
            if session.gapped:  # the frame before was lost
                self._gaps.due = self._gaps.due or (frame.index, frame.part) > (have, len(self._parts))
                self._pump_event.set()
                return
            raise PeerProtocolError("sent a message out of order", party=peer)
        if self.own is Own.JOINING:
            raise PeerProtocolError("sent a message before all had said that they can go on", party=peer)
        under_way = len(body) + sum(len(part) for part in self._parts)
        if self._max_bytes is not None and self._journal.stream(peer).bytes + under_way > self._max_bytes:
            raise PeerProtocolError("sent more than the study's protocol has to say", party=peer)
        self._parts.append(body)
        if len(self._parts) < frame.parts:
            return
        payload = self._parts[0] if frame.parts == 1 else b"".join(self._parts)
        self._parts = []
        if frame.index < have:  # a filled slot: a repetition is harmless, another message is equivocation
            if not self._journal.is_held(peer, frame.index, frame.step, payload):
                raise PeerProtocolError("equivocation: sent another message for a slot that it had filled", party=peer)
            self._acknowledge()
            return
        self._journal.receive(peer, frame.step, payload)
        self.waits = False
        self._acknowledge()
        self._wake.set()


class _Gaps:
    """Requests for messages that were lost on the way."""

    def __init__(self) -> None:
        self.due = False
        self.not_before = 0.0
        self._place = (-1, 0)
        self._fruitless = 0

    def ask(self, place: tuple[int, int], *, not_before: float) -> bool:
        """Count a request for what follows `place`; return False if it was made too often without any progress."""
        self.due, self.not_before = False, not_before
        self._fruitless = self._fruitless + 1 if place == self._place else 0
        self._place = place
        return self._fruitless <= _MAX_FORGERIES
