"""One pair of parties in one run: sessions that come and go, messages that arrive once.

Outgoing messages are numbered and kept until the other side says that it has them on disk. Incoming ones go to the journal
first and are acknowledged after. Whenever a connection comes up, or the other side falls silent, both make a fresh session and
tell each other how far they are, as a count and a running digest. From there the sender goes on; if the accounts do not
fit, somebody's disk was rolled back or somebody lies, and the run is burned.

A courier may be slow and may lose frames. So an offer is repeated with the key that it had; whoever meets it again gives the
answer that it gave, byte for byte; a session is confirmed again while the peer asks for it; every beat says what was sent and
what has come, so that whatever is missing is asked for; and no timer is shorter than the round trip that was measured.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from blindbayes.errors import BlindbayesError, IntegrityError, LocalProtocolError, PeerLost, PeerProtocolError, told_code
from blindbayes.net import control
from blindbayes.net.envelope import MAX_PARTS, PART_BYTES, EnvelopePair, Frame, Offer, Sealed, Session, Word, pack
from blindbayes.net.journal import Journal, SentDigest
from blindbayes.net.outbox import Outbox
from blindbayes.net.sessions import Pulse, Sessions, Timing, Way
from blindbayes.net.versions import VERSIONS, difference

_MAX_FORGERIES = 16
_MAX_STEP = 64
_ACK_DELAY = 0.005
_OWN_WORD = 10  # retries: whoever refuses answers an offer in two, on a loaded machine later
_INBOX_BYTES = 48 * 1024**2
_FRAME_BYTES = 512  # what a frame takes in memory beside its bytes


class Link:
    """See the module's docstring. All methods run on one event loop."""

    def __init__(
        self,
        pair: EnvelopePair,
        journal: Journal,
        way: Way,
        timing: Timing,
        *,
        wake: Callable[[], None],
        listen: Callable[[bytes, Link | None], None],
        commit: Callable[[], Awaitable[None]],
        heads: bytes = b"",
        witness: Callable[[bytes, bytes, bytes], None] = lambda heads, exchange, proof: None,
        seen: Callable[[], bytes] = bytes,
        recall: Callable[[bytes], None] = lambda seen: None,
        max_bytes: int | None = None,
        versions: Mapping[str, str] = VERSIONS,
        told: Callable[[Mapping[str, str]], None] = lambda versions: None,
    ) -> None:
        self._versions = versions
        self._told = told  # what the peer runs
        self.pair = pair
        self.timing = timing
        self._journal = journal
        self._way = way
        self._wake_driver = wake
        self._commit = commit
        self._heads = heads
        self._witness = witness  # raises if the peer's logs are older than they were
        self._seen = seen
        self._recall = recall  # raises if this site's own logs are older than the peer saw them
        self._max_bytes = max_bytes  # that the peer's messages of this run may have together
        self._loop = asyncio.get_running_loop()
        self._pump_event = asyncio.Event()
        self._sessions = Sessions(
            pair, timing, self._loop.time, lambda session, mine: listen(session, self if mine else None), self._pump_event.set
        )
        self._pulse = Pulse()
        self._posted_at = 0.0  # when the first message left that is not acknowledged
        self._again_due = False  # frames were lost: ask for what they held
        self._again_at = 0.0
        self._asked_for = (-1, 0)
        self._fruitless = 0
        self._rewound_at = 0.0
        self._on_disk = 0  # messages of the peer that it was told are on disk here
        self._forgeries = 0
        # outgoing
        names = pair.study, pair.run_id, pair.me, pair.peer
        self._outbox = Outbox(timing.window, SentDigest(*names, journal.secrets.get(pair.peer, b"")))
        self._room = asyncio.Event()
        # incoming
        self._inbox: deque[tuple[Frame, int]] = deque()
        self._inbox_bytes = 0
        self._arrived = asyncio.Event()
        self._parts: list[bytes] = []  # of the message that is coming in
        self._message = ("", 0, 0)  # its step, index and number of parts
        self._ack_at: float | None = None  # when to acknowledge; a little later, so that one commit serves many
        # what the driver reads
        self.joined = False
        self.ready = False  # this side can go on: messages are taken from now on
        self.peer_ready = False
        self.down_since: float | None = None if way.is_up() else self._loop.time()
        self.heard = self._loop.time()
        self.waits = False  # the peer says that it waits for others
        self.aborted: tuple[int, int] | None = None
        self.refusal = ""  # why the peer's people do not take part
        self.failure: BlindbayesError | None = None
        self.waiting = False  # we wait for others; told to the peer
        self.resumed = 0
        self.passive = False  # the run has ended here: answer, but begin nothing
        self._abort_due: tuple[int, int] | None = None
        self._ready_due = False
        self._last_sent = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    # -- the driver's side -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to connect. A restarted role is replayed before this, so that it knows all it has sent."""
        self._tasks = [asyncio.create_task(self._pump()), asyncio.create_task(self._read())]

    async def close(self) -> None:
        """Stop; nothing more is sent."""
        self._closing = True
        self._sessions.unlisten()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    def post_now(self, step: str, payload: bytes) -> None:
        """Queue a message without waiting for room. Whatever it depends on has been committed to the journal."""
        self._outbox.add(step, payload)
        self._pump_event.set()

    async def post(self, step: str, payload: bytes) -> None:
        """Queue a message; waits while more than the window is under way."""
        while not self.has_room(len(payload)):
            self._room.clear()
            await self._room.wait()
        self.post_now(step, payload)

    def has_room(self, size: int) -> bool:
        """A message of this size may be queued now: the window is not full, or nobody will read it anyway."""
        return self._outbox.has_room(size) or self.is_lost

    @property
    def is_lost(self) -> bool:
        """Nothing more will come from the peer."""
        return self.failure is not None or self.aborted is not None

    def may_tell(self, waited: float) -> bool:
        """Whether it is worth waiting for the peer's own word, that long after another told of it. It is asked for at once."""
        if self.down_since is not None or waited > _OWN_WORD * self.timing.retry:
            return False
        self._sessions.hurry(self._loop.time() + self.timing.retry / 2)
        return True

    @property
    def drained(self) -> bool:
        """The peer has everything on disk and knows what we have; or it will never hear."""
        told = self._ack_at is None or self._current is None
        return (self._outbox.is_empty and told) or self.is_lost

    def say_ready(self) -> None:
        """Tell the peer, now and in every later session, that this side can go on; from now on its messages are taken."""
        self.ready = self._ready_due = True
        self._pump_event.set()

    def abort(self, code: int, about: int) -> None:
        """Tell the peer that this side gave up: an error code and whom it names, nothing else."""
        self._abort_due = (told_code(code), about)
        self._pump_event.set()

    @property
    def abort_sent(self) -> bool:
        """The abort left, or cannot leave."""
        return self._abort_due is None or self._current is None

    # -- the courier's side ------------------------------------------------------------------------------------------

    def up(self) -> None:
        """A fresh connection: make a fresh session."""
        self.down_since = None
        self._sessions.restart()
        self._parts = []
        self._pump_event.set()

    def down(self) -> None:
        """The connection is gone."""
        self.down_since = self._loop.time() if self.down_since is None else self.down_since
        self._forget_sessions()
        self._wake_driver()

    def accept(self, frame: Frame, size: int) -> None:
        """A frame for this link, which came in `size` bytes: its names hold memory as its content does. Dropped when more than
        the window arrives, which an honest peer never sends, and when nobody reads here any more."""
        size += _FRAME_BYTES
        if self.failure is None and self._inbox_bytes + size <= _INBOX_BYTES:
            self._inbox.append((frame, size))
            self._inbox_bytes += size
            self._arrived.set()

    def refuse(self, why: str) -> None:
        """The peer can never be understood."""
        if not self.joined:
            self._fail(PeerProtocolError(why, party=self.pair.peer))

    @property
    def _current(self) -> Session | None:
        return self._sessions.current

    def _forget_sessions(self) -> None:
        self._sessions.forget()
        self._parts = []

    # -- sending -----------------------------------------------------------------------------------------------------

    async def _pump(self) -> None:
        while not self._closing:
            try:
                sent = self._way.is_up() and await self._send_one()
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
        return min(max(due - now, 0.01), beat) if self._way.is_up() and not self.passive else beat

    @property
    def _beat(self) -> float:
        """A quiet link says that it lives twice in a round at the most."""
        return max(self.timing.beat, self._pulse.round / 2)

    async def _send_one(self) -> bool:
        """Send the most urgent frame. Sealing and sending are one step: the order of counters is the order of frames."""
        now = self._loop.time()
        patience = 3 * self._beat + 2 * self.timing.retry + 3 * self._pulse.round  # a living one is heard every beat
        silent = now - self.heard > patience
        offer = self._sessions.due(now, silent=silent, slowest=self._pulse.round, passive=self.passive)
        if offer is not None:
            await self._way.send(pack(offer))
            return True
        owed = self._sessions.owed
        if owed is not None:
            if not owed.confirmation:
                stream = self._journal.stream(self.pair.peer)
                heads, seen = self._heads, b"" if self.joined else self._seen()
                counts = (stream.count, stream.digest, self._outbox.acked)
                body = control.Confirm(owed.proof(heads), *counts, heads, seen, dict(self._versions))
                await self._commit()  # what is said to be held is on disk
                if owed.sent == 0:
                    owed.confirmation = owed.seal(control.CONFIRM, msgspec.msgpack.encode(body))
            if self._sessions.owed is owed:
                self._sessions.owed = None
            await self._way.send(owed.confirmation)
            return True
        if self._current is None:
            return False
        return await self._send_sealed(self._current, now)

    async def _send_sealed(self, session: Session, now: float) -> bool:
        if self._abort_due is not None:
            body, self._abort_due = self._abort_due, None
            await self._seal_out(session, control.ABORT, msgspec.msgpack.encode(body))
            return True
        if self._ready_due:
            self._ready_due = False
            await self._seal_out(session, control.READY, b"")
            return True
        if self._ack_at is not None and now >= self._ack_at:
            self._ack_at = None
            have = self._journal.count(self.pair.peer)
            await self._commit()  # what is acknowledged is on disk
            self._on_disk = max(self._on_disk, have)
            await self._seal_out(session, control.ACK, msgspec.msgpack.encode(have))
            return True
        pace = max(self.timing.retry, self._pulse.round)
        if self._again_due and now >= self._again_at:
            self._again_due, self._again_at = False, now + pace
            place = (self._journal.count(self.pair.peer), len(self._parts))
            self._fruitless = self._fruitless + 1 if place == self._asked_for else 0
            self._asked_for = place
            if self._fruitless > _MAX_FORGERIES:  # whoever carries the frames lets us live, and keeps these from us
                self._fail(self._spoilt())
                return False
            await self._commit()  # what is said to be held is on disk
            await self._seal_out(session, control.AGAIN, msgspec.msgpack.encode(place))
            return True
        if session.gapped and self._outbox.sent > self._outbox.acked and now - self._posted_at > pace + self.timing.retry:
            self._outbox.rewind(self._outbox.acked)  # where frames are lost, those of this side may have been
        piece = self._outbox.next_part() if self.peer_ready else None
        if piece is not None:
            if (piece.index, piece.part) == (self._outbox.acked, 0):
                self._posted_at = now
            await self._seal_out(session, piece.step, piece.body, index=piece.index, part=piece.part, parts=piece.parts)
            return True
        if now - self._last_sent >= self._beat and not self.passive:
            number = self._pulse.beat(now)
            beat = control.Beat(self.waiting, self.ready, self._outbox.sent, self._on_disk, number, self._pulse.echo)
            await self._seal_out(session, control.BEAT, msgspec.msgpack.encode(beat))
            return True
        return False

    async def _seal_out(
        self, session: Session, step: str, body: bytes | memoryview, *, index: int = 0, part: int = 0, parts: int = 1
    ) -> None:
        self._last_sent = self._loop.time()
        if session is self._current:  # committing may have let another session in
            await self._way.send(session.seal(step, body, index=index, part=part, parts=parts))

    # -- receiving ---------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while not self._closing:
            self._arrived.clear()
            while self._inbox:
                frame, size = self._inbox.popleft()
                self._inbox_bytes -= size
                try:
                    if isinstance(frame, Offer):
                        self._take_offer(frame)
                    elif isinstance(frame, Sealed):
                        self._take_sealed(frame)
                    else:
                        self._take_word(frame)
                except IntegrityError:
                    if isinstance(frame, Sealed):  # an unsigned offer or end may come from anyone: it changes nothing
                        self._forged()
                except (BlindbayesError, OSError) as error:
                    self._fail(error)
                    return
            await self._arrived.wait()

    def _spoilt(self) -> BlindbayesError:
        """Frames of the peer came changed, or not at all, again and again: whose fault it is, is known only if the connection
        is the peer's own. A relay or an engine must not have it blamed."""
        if self._way.vouches():
            return IntegrityError(party=self.pair.peer)
        return PeerLost("what it sends comes changed, or not at all: look at the relay or engine between", party=self.pair.peer)

    def _forged(self) -> None:
        """Anyone on the way can garble a frame, so one makes a fresh session; many end the run."""
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
        self._room.set()
        self._wake_driver()

    def _take_offer(self, offer: Offer) -> None:
        self._sessions.meet(offer)

    def _take_sealed(self, frame: Sealed) -> None:
        pending, current = self._sessions.pending, self._sessions.current
        if pending is not None and frame.session == pending.id:
            if frame.step == control.CONFIRM:  # else the confirmation was lost, and is asked for
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
        """The peer's site has ended the run and has no link any more, or its people do not take part."""
        told, reason = self.pair.require_word(word)
        if not (reason and self.joined):
            self.refusal = self.refusal or reason
            self.aborted = self.aborted or told
            self._room.set()
            self._wake_driver()

    def _take_confirm(self, session: Session, body: bytes) -> None:
        confirm = control.read_confirm(session, body)
        if not self.joined:
            control.require_short(confirm, self.pair.peer)
            self._told(confirm.versions)
            if (why := difference(self._versions, confirm.versions)) is not None:
                raise PeerProtocolError(why, party=self.pair.peer)
            self._recall(confirm.seen)
            self._witness(confirm.heads, session.exchange, confirm.proof)
        peer = self.pair.peer
        if confirm.have > self._outbox.count or confirm.acked > self._journal.count(peer):
            raise LocalProtocolError("has seen more of this run than this site remembers: was a disk rolled back?", party=peer)
        if confirm.have < self._outbox.acked:
            raise PeerProtocolError("remembers less of this run than it said before: was a disk rolled back?", party=peer)
        if confirm.have < 0 or self._outbox.digest(confirm.have) != confirm.digest:
            raise LocalProtocolError("holds other messages of this site than this run makes", party=peer)
        self.resumed += self._sessions.stand(session)
        self._pulse.round = self._pulse.round or self._loop.time() - self._sessions.asked_at
        self._parts = []
        self._ready_due = self.ready
        self._outbox.rewind(confirm.have)
        self._room.set()
        self._acknowledge()  # more may have come by the old session than the confirmation said
        self.joined = True
        self.heard = self._loop.time()
        self._pump_event.set()
        self._wake_driver()

    def _take_control(self, step: str, body: bytes) -> None:
        try:
            if step in (control.ACK, control.AGAIN):
                have, part = (
                    control.PAIRS.decode(body) if step == control.AGAIN else (msgspec.msgpack.decode(body, type=int), 0)
                )
                if not self._outbox.acked <= have <= self._outbox.count:
                    raise PeerProtocolError("acknowledged what was not sent", party=self.pair.peer)
                now = self._loop.time()
                self._outbox.acknowledge(have)
                if step == control.AGAIN and now - self._rewound_at > self._pulse.round:  # else those under way may do
                    self._rewound_at = now
                    self._outbox.rewind(have, part)
                    self._pump_event.set()
                self._room.set()
            elif step == control.BEAT:
                beat = control.BEATS.decode(body)
                if not beat.have <= self._outbox.count:
                    raise PeerProtocolError("acknowledged what was not sent", party=self.pair.peer)
                self._outbox.acknowledge(beat.have)
                self.peer_ready = self.peer_ready or beat.ready
                lacking = beat.sent > self._journal.count(self.pair.peer)
                self.waits = beat.waits and not lacking  # whoever waits for what was lost waits for us to say so
                self._pulse.heard(beat.number, beat.echo, self._loop.time())
                self._again_due = self._again_due or lacking
                self._room.set()
                self._pump_event.set()
            elif step == control.ABORT:
                self.aborted = control.PAIRS.decode(body)
                self._room.set()
            elif step == control.READY:
                self.peer_ready = True
            else:
                raise PeerProtocolError("a session was confirmed twice", party=self.pair.peer)
        except msgspec.MsgspecError as cause:
            raise PeerProtocolError("a control frame is not well formed", party=self.pair.peer) from cause
        self._wake_driver()

    def _acknowledge(self) -> None:
        if self._ack_at is None:
            self._ack_at = self._loop.time() + _ACK_DELAY
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
            if session.gapped:  # what should have come before was lost
                self._again_due = self._again_due or (frame.index, frame.part) > (have, len(self._parts))
                self._pump_event.set()
                return
            raise PeerProtocolError("sent a message out of order", party=peer)
        if not self.ready:
            raise PeerProtocolError("sent a message before all had said that they can go on", party=peer)
        under_way = len(body) + sum(len(part) for part in self._parts)
        if self._max_bytes is not None and self._journal.stream(peer).bytes + under_way > self._max_bytes:
            raise PeerProtocolError("sent more than the study's protocol has to say", party=peer)
        self._parts.append(body)
        if len(self._parts) < frame.parts:
            return
        payload = self._parts[0] if frame.parts == 1 else b"".join(self._parts)
        self._parts = []
        if frame.index < have:  # a slot that is filled: the same again is harmless, another message is a lie
            if not self._journal.is_held(peer, frame.index, frame.step, payload):
                raise PeerProtocolError("equivocation: sent another message for a slot that it had filled", party=peer)
            self._acknowledge()
            return
        self._journal.receive(peer, frame.step, payload)
        self.waits = False
        self._acknowledge()
        self._wake_driver()
