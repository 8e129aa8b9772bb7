"""One pair of parties in one run: sessions that come and go, messages that arrive once.

Outgoing messages are numbered and kept until the other side says that it has them on disk. Incoming ones go to the journal
first and are acknowledged after. Whenever a connection comes up, or the other side falls silent, both make a fresh session and
tell each other how far they are, as a count and a running digest. From there the sender goes on; if the accounts do not
fit, somebody's disk was rolled back or somebody lies, and the run is burned.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from blindbayes.errors import BlindbayesError, IntegrityError, LocalProtocolError, PeerLost, PeerProtocolError
from blindbayes.primitives.agreement import AgreementKey
from blindbayes.primitives.coins import Coins
from blindbayes.transport.envelope import (
    MAX_PARTS,
    PART_BYTES,
    Ended,
    EnvelopePair,
    Frame,
    Offer,
    Sealed,
    Session,
    fresh_key,
    pack,
)
from blindbayes.transport.journal import Journal, message_digest
from blindbayes.transport.outbox import Outbox

CONFIRM, ACK, BEAT, ABORT, READY = "confirm", "ack", "beat", "abort", "ready"
_CONTROL = frozenset((CONFIRM, ACK, BEAT, ABORT, READY))
_MAX_FORGERIES = 16
_MAX_HEADS_BYTES = 512
_MAX_SEEN_BYTES = 2048
_MAX_MET = 64
_MAX_STEP = 64
_ACK_DELAY = 0.005
_INBOX_BYTES = 48 * 1024**2


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds by the monotonic clock, and the window of bytes under way. The calendar clock is never asked."""

    step: float = 60.0  # how long a party may be silent, and how long a quorum step collects
    join: float = 600.0  # how long the others have to come to the run
    run: float = 3600.0  # the whole run
    beat: float = 2.0  # how often a quiet link says that it lives
    retry: float = 1.0  # how often a session is offered again
    gone: float = 30.0  # how long a connection that is known to be down is waited for, if a step lasts longer
    window: int = 8 * 1024**2


class Way(Protocol):
    """How frames reach the other site."""

    async def send(self, frame: bytes) -> None: ...

    def is_up(self) -> bool: ...


class _Confirm(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    proof: bytes
    have: int  # messages of yours that I have on disk
    digest: bytes  # their running digest
    acked: int  # messages of mine that you told me you have
    heads: bytes  # of my audit log and ledger, for you to witness
    seen: bytes = b""  # what you last showed me of yours, with your signature: you must still hold it


_CONFIRM = msgspec.msgpack.Decoder(_Confirm)
_ABORT = msgspec.msgpack.Decoder(tuple[int, int])


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
        heads: Callable[[], bytes] = bytes,
        witness: Callable[[bytes, bytes, bytes], None] = lambda heads, exchange, proof: None,
        seen: Callable[[], bytes] = bytes,
        recall: Callable[[bytes], None] = lambda seen: None,
        most_bytes: int | None = None,
    ) -> None:
        self.pair = pair
        self.timing = timing
        self._journal = journal
        self._way = way
        self._wake_driver = wake
        self._listen = listen  # (session, self) to get its frames, (session, None) to stop
        self._commit = commit
        self._heads = heads
        self._witness = witness  # raises if the peer's logs are older than they were
        self._seen = seen
        self._recall = recall  # raises if this site's own logs are older than the peer saw them
        self._most_bytes = most_bytes  # that the peer's messages of this run may have together
        self._coins = Coins.system()
        self._loop = asyncio.get_running_loop()
        # sessions
        self._key: AgreementKey | None = None
        self._met: set[bytes] = set()  # the peer's keys that mine was joined with
        self._offered = False  # my key was sent on this connection
        self._pending: Session | None = None
        self._current: Session | None = None
        self._next_offer = 0.0
        self._retry = timing.retry / 4
        self._forgeries = 0
        # outgoing
        self._outbox = Outbox(timing.window)
        self._room = asyncio.Event()
        # incoming
        self._inbox: deque[Frame] = deque()
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
        self.failure: BlindbayesError | None = None
        self.waiting = False  # we wait for others; told to the peer
        self.resumed = 0
        self.passive = False  # the run has ended here: answer, but begin nothing
        self._abort_due: tuple[int, int] | None = None
        self._ready_due = False
        self._last_sent = 0.0
        self._pump_event = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    # -- the driver's side -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to connect. A restarted role is replayed before this, so that it knows all it has sent."""
        self._tasks = [asyncio.create_task(self._pump()), asyncio.create_task(self._read())]

    async def close(self) -> None:
        """Stop; nothing more is sent."""
        self._closing = True
        for session in (self._pending, self._current):
            if session is not None:
                self._listen(session.id, None)
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
        self._abort_due = (code, about)
        self._pump_event.set()

    @property
    def abort_sent(self) -> bool:
        """The abort left, or cannot leave."""
        return self._abort_due is None or self._current is None

    # -- the courier's side ------------------------------------------------------------------------------------------

    def up(self) -> None:
        """A fresh connection: make a fresh session."""
        self.down_since = None
        self._forget_sessions()
        self._retry = self.timing.retry / 4
        self._next_offer = 0.0
        self._pump_event.set()

    def down(self) -> None:
        """The connection is gone."""
        self.down_since = self._loop.time() if self.down_since is None else self.down_since
        self._forget_sessions()
        self._wake_driver()

    def accept(self, frame: Frame) -> None:
        """A frame for this link. Dropped when more than the window arrives: an honest peer never sends that."""
        size = len(frame.body) if isinstance(frame, Sealed) else 256
        if self._inbox_bytes + size <= _INBOX_BYTES:
            self._inbox.append(frame)
            self._inbox_bytes += size
            self._arrived.set()

    def _forget_sessions(self) -> None:
        for session in (self._pending, self._current):
            if session is not None:
                self._listen(session.id, None)
        self._pending = self._current = None
        self._key = None
        self._offered = False
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
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._pump_event.wait(), self._patience())

    def _patience(self) -> float:
        now = self._loop.time()
        due = self._last_sent + self.timing.beat if self._current is not None else self._next_offer
        if self._ack_at is not None and self._current is not None:
            return max(self._ack_at - now, 0.001)
        return min(max(due - now, 0.01), self.timing.beat) if self._way.is_up() and not self.passive else self.timing.beat

    async def _send_one(self) -> bool:
        """Send the most urgent frame. Sealing and sending are one step: the order of counters is the order of frames."""
        now = self._loop.time()
        silent = now - self.heard > 3 * self.timing.beat + 2 * self.timing.retry  # a living session is heard every beat
        if (self._current is None or silent) and now >= self._next_offer and not self.passive:
            self._retry = min(2 * self._retry, 4 * self.timing.retry)
            self._next_offer = now + self._retry
            key, current = self._key, self._current
            if key is None or (current is not None and current.my_ephemeral == key.public):
                key = self._renew_key()
            self._offered = True
            await self._way.send(pack(self.pair.offer(key)))
            return True
        unconfirmed = next((each for each in (self._current, self._pending) if each is not None and each.sent == 0), None)
        if unconfirmed is not None:
            if not self._offered and self._key is not None:
                self._offered = True
                await self._way.send(pack(self.pair.offer(self._key)))
                return True
            stream = self._journal.stream(self.pair.peer)
            heads = self._heads()
            seen = b"" if self.joined else self._seen()
            body = _Confirm(unconfirmed.proof(heads), stream.count, stream.digest, self._outbox.acked, heads, seen)
            await self._commit()  # what is said to be held is on disk
            if unconfirmed.sent == 0:
                await self._way.send(unconfirmed.seal(CONFIRM, msgspec.msgpack.encode(body)))
            return True
        if self._current is None:
            return False
        return await self._send_sealed(self._current, now)

    async def _send_sealed(self, session: Session, now: float) -> bool:
        if self._abort_due is not None:
            body, self._abort_due = self._abort_due, None
            await self._seal_out(session, ABORT, msgspec.msgpack.encode(body))
            return True
        if self._ready_due:
            self._ready_due = False
            await self._seal_out(session, READY, b"")
            return True
        if self._ack_at is not None and now >= self._ack_at:
            self._ack_at = None
            have = self._journal.count(self.pair.peer)
            await self._commit()  # what is acknowledged is on disk
            await self._seal_out(session, ACK, msgspec.msgpack.encode(have))
            return True
        piece = self._outbox.next_part() if self.peer_ready else None
        if piece is not None:
            await self._seal_out(session, piece.step, piece.body, index=piece.index, part=piece.part, parts=piece.parts)
            return True
        if now - self._last_sent >= self.timing.beat and not self.passive:
            await self._seal_out(session, BEAT, msgspec.msgpack.encode(self.waiting))
            return True
        return False

    async def _seal_out(
        self, session: Session, step: str, body: bytes, *, index: int = 0, part: int = 0, parts: int = 1
    ) -> None:
        self._last_sent = self._loop.time()
        if session is self._current:  # committing may have let another session in
            await self._way.send(session.seal(step, body, index=index, part=part, parts=parts))

    # -- receiving ---------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        while not self._closing:
            self._arrived.clear()
            while self._inbox:
                frame = self._inbox.popleft()
                self._inbox_bytes -= len(frame.body) if isinstance(frame, Sealed) else 256
                try:
                    if isinstance(frame, Offer):
                        self._take_offer(frame)
                    elif isinstance(frame, Sealed):
                        self._take_sealed(frame)
                    else:
                        self._take_ended(frame)
                except IntegrityError as error:
                    self._forged(error)
                except (BlindbayesError, OSError) as error:
                    self._fail(error)
                    return
            await self._arrived.wait()

    def _forged(self, error: IntegrityError) -> None:
        """Anyone on the way can garble a frame, so one makes a fresh session; many end the run."""
        self._forgeries += 1
        if self._forgeries > _MAX_FORGERIES:
            self._fail(error)
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
        """Join the peer's latest key with my latest one. Each pair of keys makes one session, ever."""
        pending, current = self._pending, self._current
        if current is not None and current.peer_ephemeral == offer.ephemeral:
            return  # late: that session stands
        self.pair.require_offer(offer)
        if pending is not None and pending.peer_ephemeral == offer.ephemeral and pending.sent == 0:
            return  # our half is on its way
        key = self._key
        used = current is not None and key is not None and current.my_ephemeral == key.public
        if key is None or used or offer.ephemeral in self._met or len(self._met) >= _MAX_MET:
            key = self._renew_key()
        if pending is not None:
            self._listen(pending.id, None)
        self._met.add(offer.ephemeral)
        self._pending = self.pair.agree(key, offer)
        self._listen(self._pending.id, self)
        self._pump_event.set()

    def _renew_key(self) -> AgreementKey:
        self._key = fresh_key(self._coins)
        self._met = set()
        self._offered = False
        return self._key

    def _take_sealed(self, frame: Sealed) -> None:
        pending, current = self._pending, self._current
        if pending is not None and frame.session == pending.id:
            if frame.step != CONFIRM:
                raise IntegrityError(party=self.pair.peer)
            self._take_confirm(pending, pending.open(frame))
        elif current is not None and frame.session == current.id:
            body = current.open(frame)
            self.heard = self._loop.time()
            if frame.step in _CONTROL:
                self._take_control(frame.step, body)
            else:
                self._take_part(frame, body)
        # a frame of a session that is gone: the peer will notice and begin a new one

    def _take_ended(self, ended: Ended) -> None:
        """The peer's site has ended the run and has no link any more."""
        self.pair.require_ended(ended)
        self.aborted = self.aborted or (ended.code, -1)
        self._room.set()
        self._wake_driver()

    def _take_confirm(self, session: Session, body: bytes) -> None:
        try:
            confirm = _CONFIRM.decode(body)
        except msgspec.MsgspecError as cause:
            raise PeerProtocolError("a session is not well formed", party=self.pair.peer) from cause
        session.require_proof(confirm.proof, confirm.heads)
        if not self.joined:
            if len(confirm.seen) > _MAX_SEEN_BYTES or len(confirm.heads) > _MAX_HEADS_BYTES:
                raise PeerProtocolError("says more of logs than there is to say", party=self.pair.peer)
            self._recall(confirm.seen)
            self._witness(confirm.heads, session.exchange, confirm.proof)
        peer = self.pair.peer
        if confirm.have > self._outbox.count or confirm.acked > self._journal.count(peer):
            raise LocalProtocolError("has seen more of this run than this site remembers: was a disk rolled back?", party=peer)
        if confirm.have < self._outbox.acked:
            raise PeerProtocolError("remembers less of this run than it said before: was a disk rolled back?", party=peer)
        if confirm.have < 0 or self._outbox.digest(confirm.have) != confirm.digest:
            raise LocalProtocolError("holds other messages of this site than this run makes", party=peer)
        if self._current is not None:
            self._listen(self._current.id, None)
            self.resumed += 1
        self._current, self._pending = session, None
        self._parts = []
        self._ready_due = self.ready
        self._retry = self.timing.retry / 4
        self._outbox.rewind(confirm.have)
        self._room.set()
        self._acknowledge()  # more may have come by the old session than the confirmation said
        self.joined = True
        self.heard = self._loop.time()
        self._pump_event.set()
        self._wake_driver()

    def _take_control(self, step: str, body: bytes) -> None:
        try:
            if step == ACK:
                have = msgspec.msgpack.decode(body, type=int)
                if not self._outbox.acked <= have <= self._outbox.count:
                    raise PeerProtocolError("acknowledged what was not sent", party=self.pair.peer)
                self._outbox.acknowledge(have)
                self._room.set()
            elif step == BEAT:
                self.waits = msgspec.msgpack.decode(body, type=bool)
            elif step == ABORT:
                self.aborted = _ABORT.decode(body)
                self._room.set()
            elif step == READY:
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

    def _take_part(self, frame: Sealed, body: bytes) -> None:
        peer, have = self.pair.peer, self._journal.count(self.pair.peer)
        message = (frame.step, frame.index, frame.parts)
        if frame.part == 0:
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
            raise PeerProtocolError("sent a message out of order", party=peer)
        if not self.ready:
            raise PeerProtocolError("sent a message before all had said that they can go on", party=peer)
        under_way = len(body) + sum(len(part) for part in self._parts)
        if self._most_bytes is not None and self._journal.stream(peer).bytes + under_way > self._most_bytes:
            raise PeerProtocolError("sent more than the study's protocol has to say", party=peer)
        self._parts.append(body)
        if len(self._parts) < frame.parts:
            return
        payload = b"".join(self._parts)
        self._parts = []
        if frame.index < have:  # a slot that is filled: the same again is harmless, another message is a lie
            if message_digest(frame.step, payload) != self._journal.digest(peer, frame.index):
                raise PeerProtocolError("equivocation: sent another message for a slot that it had filled", party=peer)
            self._acknowledge()
            return
        self._journal.receive(peer, frame.step, payload)
        self.waits = False
        self._acknowledge()
        self._wake_driver()
