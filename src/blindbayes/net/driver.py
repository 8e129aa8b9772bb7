"""Run one role between sites: effects out, messages in, the journal in between.

The role is a pure function of its seed, its input and what it received. The driver journals everything else that decides:
which phases are over, who was in time for a quorum, who was given up. Started on an existing journal, it replays the role
into the state it was in and continues. The phases are those of `states.DRIVER`; each has one method below.

Deadlines use the monotonic clock. A wait for one party (or for all) ends when a missing party has been silent for a whole
step. A party that says it waits for others is not silent, but the run as a whole has an end. A wait with a quorum collects
for one step, longer only for parties that wait for others, and continues with those that came. Time in which this process
itself stood still (a suspended machine) counts for nobody: the deadlines of the current wait move by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blindbayes import errors
from blindbayes.errors import BlindbayesError, LocalProtocolError, PeerLost, PeerProtocolError, ProtocolError, RunStopped
from blindbayes.net.journal import Decided, Journal
from blindbayes.net.link import Link
from blindbayes.net.sessions import Timing
from blindbayes.net.states import DRIVER, JOURNALLED, DriverEvent, Own, Peer, Phase, follow
from blindbayes.net.threads import compute
from blindbayes.protocols.core import Done, Effect, Open, Receive, ReceiveAll, Role, Run, Send, require_effect, resume, settle
from blindbayes.protocols.memory import Outcome
from blindbayes.wire import Message, decode, encode
from blindbayes.wire.transcript import Amount, Cost, Keep, PartyCost, Transcript, Way

_BATCH_BYTES = 8 * 1024**2  # messages of one batch; each batch passes through the event loop
RECEIPT = "receipt"  # the step of the last message of every role


@dataclass(slots=True)
class Progress:
    """The state of a role for status pages. It holds no value of any message."""

    state: str = Phase.JOINING.label
    kind: str = ""  # the message waited for
    waiting_for: tuple[str, ...] = ()
    arrived: int = 0
    wanted: int = 0
    since: float = 0.0  # when this wait began, by the event loop's clock
    deadline: float | None = None
    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    cpu_seconds: float = 0.0
    received: Counter[type[Message]] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a role: what it returned and what it opened on the way."""

    value: Any = field(repr=False)
    opened: tuple[str, ...]
    received: Mapping[type[Message], int]
    lost: tuple[str, ...]  # parties that the role went on without
    cost: PartyCost
    traffic: Mapping[Way, Amount] = field(default_factory=dict)
    receipts: Mapping[str, bytes] = field(default_factory=dict, repr=False)  # by role, the own one included, as sent


def outcome_of(finished: Mapping[str, Finished]) -> Outcome:
    """Return the outcome of the roles of this site. Rounds and the cost of other sites are not known here."""
    transcript = Transcript(Keep.COUNTS, received={name: Counter(each.received) for name, each in finished.items()})
    for each in finished.values():  # a message between two roles of this site is counted once
        transcript.traffic |= {way: amount for way, amount in each.traffic.items() if way not in transcript.traffic}
    cost = Cost(parties={name: each.cost for name, each in finished.items()})
    cost.messages = sum(each.cost.sent for each in finished.values())
    cost.bytes = sum(each.cost.sent_bytes for each in finished.values())
    outputs = {name: each.value for name, each in finished.items()}
    opened = {name: each.opened for name, each in finished.items()}
    return Outcome(outputs, transcript, cost, opened, None, None, {}, 0)


class RoleHooks:
    """The actions of a site around a role. The defaults do nothing; the first three run in a thread."""

    readers: Collection[str] = ()  # roles that wait for the receipts of the others; those that do not may leave before

    def rehearse(self) -> None:
        """Raise what `before_first_step` would raise, and write nothing."""

    def before_first_step(self) -> None:
        """Authorise the run and charge for it."""

    def before_send(self, kinds: Sequence[str]) -> None:
        """Run before messages of these kinds can leave."""

    def on_message(self, message: Message) -> None:
        """Run for every message that the role receives."""

    def host(self, party: str) -> str:
        return party

    def receipt(self, value: Any) -> bytes:
        """Return what this role signs at its end, given what it returned; empty for no receipt."""
        return b""


@dataclass(frozen=True, slots=True)
class _Batch:
    """Messages that a role sends in one go, then what it waits for or returns; None if it has more to send."""

    sends: list[tuple[str, str, bytes]] = field(repr=False)
    effect: Effect | Done | None


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A wait that is not over: for whom, until when, and when to look again unless something happens."""

    missing: Sequence[str]
    deadline: float
    pause: float


_Rule = Callable[[float], _Waiting | Decided | None]
"""Decides a wait at a time: it goes on, ends in a decision, or ends because nothing is missing."""


class RoleDriver:
    """One role of one run at one site."""

    def __init__(
        self,
        run: Run,
        role: Role[Any],
        journal: Journal,
        links: Mapping[str, Link],
        timing: Timing,
        *,
        required: int,
        hub: bool = False,
        hooks: RoleHooks | None = None,
    ) -> None:
        self._run = run
        self._role = role
        self._journal = journal
        self._links = links
        self._timing = timing
        self._required = required  # minimum number of parties, this one included
        self._hub = hub  # the others speak with this role alone: its `ready` stands for everybody's
        self._hooks = hooks or RoleHooks()
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._begun = self._wait_begun = self._loop.time()
        self._waits = 0
        self._effects = 0
        self._consumed: dict[str, int] = {}
        self._excluded: dict[str, None] = {}  # parties that the role went on without, in order
        self._opened: list[str] = []
        self._traffic: dict[Way, Amount] = {}
        self._live = False  # false while replaying
        self._stopped: RunStopped | None = None
        self._value: Any = None  # what the role returned
        self._receipts: dict[str, bytes] = {}
        self.phase = Phase.JOINING
        self.progress = Progress()

    # -- phases ------------------------------------------------------------------------------------------------------

    async def drive(self) -> Finished:
        """Run the role to its end. Raise what it raises; the peers then get the code of the error."""
        try:
            async with asyncio.timeout(self._timing.run):
                return await self._drive()
        except TimeoutError:
            missing = self.progress.waiting_for
            error = settle(self._role, PeerLost("the run is over its deadline", party=missing[0] if missing else None))
            self._abort(error)
            raise error from None
        except BlindbayesError as error:
            self._abort(error)
            raise
        finally:
            with contextlib.suppress(ValueError):  # the role may still be computing in its thread, and ends there
                self._role.close()

    def stop(self, error: RunStopped) -> None:
        """Stop the run: the peers learn it at once, the role ends at its next step."""
        self._stopped = error
        if self._live:
            self._abort(error)
        self._wake.set()

    async def _drive(self) -> Finished:
        for event in JOURNALLED:
            if event.value in self._journal.decisions:
                self._enter(event)
        phases = {
            Phase.JOINING: self._join,
            Phase.CHECKING: self._check,
            Phase.GATHERING: self._gather,
            Phase.RUNNING: self._execute,
            Phase.FINISHING: self._finish,
        }
        while self.phase is not Phase.DONE:
            self._enter(await phases[self.phase]())
        p = self.progress
        cost = PartyCost(p.messages_out, p.bytes_out, p.messages_in, p.bytes_in, self._effects, p.cpu_seconds)
        opened, lost = tuple(self._opened), tuple(self._excluded)
        return Finished(self._value, opened, dict(p.received), lost, cost, dict(self._traffic), self._receipts)

    def _enter(self, event: DriverEvent) -> None:
        if self._stopped is not None and event is not DriverEvent.RAISED:
            raise self._stopped
        self.phase = follow(DRIVER, self.phase, event)
        self.progress.state = self.phase.label

    async def _join(self) -> DriverEvent:
        """Wait until enough parties have joined with the same study and run."""
        complete = self._begun

        def joined(now: float) -> _Waiting | Decided | None:
            nonlocal complete
            deadline = self._begun + self._timing.join
            absent, lost = self._peers(Peer.ABSENT), self._peers(Peer.ENDED, Peer.FAILED)
            complete = complete if lost else now
            joined_once = self._peers(Peer.JOINED, Peer.READY)
            lost += [name for name in joined_once if self._links[name].down_for > self._timing.gone]
            if lost and self._is_too_few(lost):
                decided = self._give_up(DriverEvent.JOINED.value, lost)
                if decided.lost in absent and self._links[decided.lost].may_explain(now - complete):
                    return _Waiting(absent, deadline, self._timing.retry / 4)  # that party's own reason may be under way
                return decided
            if not absent or (now >= deadline and not self._is_too_few([*absent, *lost])):
                return None
            if now < deadline:
                return _Waiting(absent, deadline, deadline - now)
            reason = (
                "did not join before the deadline: does its agent run, has it pinned this site, "
                "and have its staff approved this study, or asked for this batch?"
            )
            return Decided(DriverEvent.JOINED.value, lost=absent[0], reason=reason)

        self._go_live()
        _require_not_lost(await self._until(joined, wanted=len(self._links)))
        return await self._record(DriverEvent.JOINED)

    async def _check(self) -> DriverEvent:
        """Find out whether this site could pay. If it cannot, the run ends for all before anybody has paid."""
        await compute(self._hooks.rehearse)
        return await self._record(DriverEvent.SAID_READY)

    async def _gather(self) -> DriverEvent:
        """Wait until every party that joined reports that it can pay."""
        if not self._hub:
            self._say_ready()
        self._go_live()
        self._wait_begun = self._loop.time()

        def ready(now: float) -> _Waiting | Decided | None:
            lost, missing = self._peers(Peer.ENDED, Peer.FAILED), self._peers(Peer.JOINED)
            if lost and self._is_too_few(lost):
                return self._give_up(DriverEvent.ALL_READY.value, lost)
            enough = len(self._peers(Peer.READY)) + 1 >= self._required
            late, deadline = self._late(missing, collecting=False)
            if enough and len(late) == len(missing):
                return None
            if late and not enough:
                return self._give_up(DriverEvent.ALL_READY.value, late)
            return _Waiting(missing, deadline, max(0.01, deadline - now) if missing else self._timing.beat)

        _require_not_lost(await self._until(ready, wanted=len(self._links)))
        return await self._record(DriverEvent.ALL_READY)

    async def _execute(self) -> DriverEvent:
        """Run the role until it returns."""
        self._say_ready()
        await compute(self._hooks.before_first_step)
        batch = await compute(self._advance, None)
        while True:
            try:
                for to, kind, payload in batch.sends:
                    await self._post(to, kind, payload)
                if isinstance(batch.effect, Done):
                    break
                value = await self._perform(batch.effect)
            except BlindbayesError as error:
                if isinstance(batch.effect, Done) or error is self._stopped:
                    raise
                if isinstance(error, RunStopped):
                    raise settle(self._role, error) from None
                value = error
            batch = await compute(self._advance, value)
        await self._journal.commit_async()
        self._value = batch.effect.value
        return DriverEvent.RETURNED

    async def _finish(self) -> DriverEvent:
        """Wait for one step of silence at most until the peers have everything on disk, and for receipts that are due."""
        own = self._hooks.receipt(self._value)
        peers = [name for name in self._links if name not in self._excluded]
        for name in peers if own else ():
            if name in self._hooks.readers:
                self._links[name].post_now(RECEIPT, own)
        self._go_live()
        for link in self._links.values():
            link.finish()
        self._wait_begun = self._loop.time()

        def drained(now: float) -> _Waiting | None:
            due = [name for name in peers if self._run.me in self._hooks.readers and not self._has(name)]
            late, _ = self._late(due, collecting=True)
            waiting = [
                name
                for name in peers
                if (not self._links[name].drained and now - self._links[name].heard < self._timing.step)
                or (name in due and name not in late)
            ]
            return _Waiting(waiting, now + self._timing.step, min(self._timing.beat, 0.01)) if waiting else None

        await self._until(drained, wanted=len(self._links), failures=False)
        for name in peers if own else ():
            if self._has(name):  # what follows the last message that the role consumed
                step_name, payload = self._journal.take(name, self._consumed.get(name, 0))
                if step_name == RECEIPT:
                    self._receipts[name] = payload
        if own:
            self._receipts[self._run.me] = own
        return DriverEvent.DRAINED

    async def _record(self, event: DriverEvent) -> DriverEvent:
        await self._decide(Decided(event.value))
        return event

    def _say_ready(self) -> None:
        for link in self._links.values():
            if link.own is Own.JOINING:
                link.say_ready()

    def _go_live(self) -> None:
        """Connect: the replay is over. Peers that hold more than was replayed prove a rolled-back disk."""
        if not self._live:
            self._live = True
            for link in self._links.values():
                link.start(self._wake)

    def _abort(self, error: BlindbayesError) -> None:
        self._enter(DriverEvent.RAISED)
        self._go_live()
        named = error.party if isinstance(error, ProtocolError) else None
        about = self._run.parties.index(named) if named in self._run.parties else -1
        for link in self._links.values():
            link.abort(error.code, about)

    # -- effects -----------------------------------------------------------------------------------------------------

    def _advance(self, value: Any) -> _Batch:
        """Run the role until it waits or returns, in a thread: a long computation does not delay the beats."""
        sends: list[tuple[str, str, bytes]] = []
        size, begun = 0, time.thread_time()
        try:
            while True:
                if self._stopped is not None:
                    raise self._stopped
                effect: Effect | Done | None = resume(self._role, value)
                self._effects += 1
                if effect is None or isinstance(effect, Done):
                    break
                try:
                    require_effect(effect, self._run.me, self._links, self._excluded)
                except LocalProtocolError as error:
                    value = error
                    continue
                value = None
                if isinstance(effect, Open):
                    self._opened.append(effect.label)
                    value = effect.value
                elif isinstance(effect, Send):
                    payload = encode(effect.message)
                    sends.append((effect.to, type(effect.message).__name__, payload))
                    self._note((self._run.me, effect.to, type(effect.message)), len(payload))
                    size += len(payload)
                    if size > _BATCH_BYTES:
                        effect = None
                        break
                else:
                    break
        finally:
            self.progress.cpu_seconds += time.thread_time() - begun
        if sends:
            self._hooks.before_send([kind for _, kind, _ in sends])
            self._journal.commit()  # what these messages depend on is on disk before they can leave
        return _Batch(sends, effect)

    async def _perform(self, effect: Effect | None) -> Any:
        if isinstance(effect, Receive):
            return (await self._receive((effect.sender,), effect.kind, None))[effect.sender]
        if isinstance(effect, ReceiveAll):
            return await self._receive(effect.senders, effect.kind, effect.quorum)
        return None  # a batch was full; the role goes on

    async def _post(self, to: str, kind: str, payload: bytes) -> None:
        link = self._links[to]
        self.progress.messages_out += 1
        self.progress.bytes_out += len(payload)
        if not self._live or to in self._excluded or link.fits(len(payload)):
            link.post_now(kind, payload)
            return
        self._wait_begun = self._loop.time()
        posting = asyncio.ensure_future(link.post(kind, payload))
        try:
            while not posting.done():
                self._raise_failures()
                self._wake.clear()
                waiter = asyncio.ensure_future(self._wake.wait())
                due = self._loop.time() + self._timing.beat
                await asyncio.wait({posting, waiter}, timeout=self._timing.beat, return_when=asyncio.FIRST_COMPLETED)
                waiter.cancel()
                self._forgive_standstill(due)
                if not posting.done() and self._loop.time() - max(self._wait_begun, link.heard) > self._timing.step:
                    raise PeerLost("takes no more messages", party=to)
        finally:
            posting.cancel()

    async def _receive(self, senders: Sequence[str], kind: type[Message], quorum: int | None) -> dict[str, Any]:
        number, self._waits = self._waits, self._waits + 1
        decided = self._journal.decisions.get(number)
        if decided is None and any(not self._has(name) for name in senders):
            decided = await self._wait(number, senders, kind.__name__, quorum)
        _require_not_lost(decided)
        arrived = [name for name in senders if decided is None or name in decided.arrived]
        self._excluded |= dict.fromkeys(name for name in senders if name not in arrived)
        return {name: self._take(name, kind) for name in arrived}

    def _has(self, sender: str) -> bool:
        return self._journal.count(sender) > self._consumed.get(sender, 0)

    def _take(self, sender: str, kind: type[Message]) -> Any:
        index = self._consumed.get(sender, 0)
        self._consumed[sender] = index + 1
        step_name, payload = self._journal.take(sender, index)
        if step_name != kind.__name__:
            raise PeerProtocolError(f"sent {step_name[:40]} where {kind.__name__} is due", party=sender)
        progress = self.progress
        progress.messages_in += 1
        progress.bytes_in += len(payload)
        progress.received[kind] += 1
        self._note((sender, self._run.me, kind), len(payload))
        message = decode(payload, kind, sender=sender)
        self._hooks.on_message(message)
        return message

    def _note(self, way: Way, size: int) -> None:
        """Count a message for the sequence diagram: names, kinds and sizes, no value."""
        count, total = self._traffic.get(way, (0, 0))
        self._traffic[way] = (count + 1, total + size)

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def _wait(self, number: int, senders: Sequence[str], kind: str, quorum: int | None) -> Decided | None:
        """Wait until all messages have arrived, or a deadline forces a decision, which is then on disk."""
        self._go_live()
        self._wait_begun = self._loop.time()

        def arrived(now: float) -> _Waiting | Decided | None:
            missing = [name for name in senders if not self._has(name)]
            if not missing:
                return None
            late, deadline = self._late(missing, collecting=quorum is not None)
            if quorum is None and late:
                return self._give_up(number, late)
            if quorum is not None and len(late) == len(missing):
                present = tuple(name for name in senders if name not in missing)
                return Decided(number, arrived=present) if len(present) >= quorum else self._give_up(number, missing)
            return _Waiting(missing, deadline, max(0.0, deadline - now))

        self._say_waiting(True)
        try:
            decided = await self._until(arrived, kind, wanted=len(senders))
            return None if decided is None else await self._decide(decided)
        finally:
            self._say_waiting(False)

    async def _until(self, rule: _Rule, kind: str = "", *, wanted: int, failures: bool = True) -> Decided | None:
        """Wait until the rule ends the wait; raise if the run is stopped or, with `failures`, a link breaks."""
        while True:
            if failures:
                self._raise_failures()
            elif self._stopped is not None:
                raise self._stopped
            verdict = rule(self._loop.time())
            if not isinstance(verdict, _Waiting):
                if verdict is None:
                    self.progress.waiting_for = ()
                return verdict
            self._show(kind, verdict, wanted)
            due = self._loop.time() + min(verdict.pause, self._timing.beat)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._wake.wait()
            self._wake.clear()
            self._forgive_standstill(due)

    def _forgive_standstill(self, due: float) -> None:
        """Move the deadlines of this wait if the loop woke long after `due`: what the peers sent meanwhile is still unread."""
        gap = self._loop.time() - due
        if gap > self._timing.beat:
            self._begun += gap
            self._wait_begun += gap
            for link in self._links.values():
                link.forgive(gap)

    def _peers(self, *states: Peer) -> list[str]:
        return [name for name, link in self._links.items() if link.peer in states]

    def _is_too_few(self, without: Sequence[str]) -> bool:
        return len(self._links) + 1 - len(without) < self._required

    def _late(self, missing: Sequence[str], *, collecting: bool) -> tuple[list[str], float]:
        """Return who is past the deadline of the current wait, and when the next one will be."""
        now, begun, late, ends = self._loop.time(), self._wait_begun, [], []
        for name in missing:
            link = self._links[name]
            since = begun
            if not collecting or link.waits:
                since = max(begun, link.heard)
            end = since + self._timing.step
            if link.down_for:
                end = min(end, max(begun, now - link.down_for) + self._timing.gone)
            if link.is_lost or now >= end:
                late.append(name)
            else:
                ends.append(end)
        return late, min(ends, default=now)

    def _give_up(self, number: int, names: Sequence[str]) -> Decided:
        """Name the party that the run gives up on: the one whose state explains the failure best."""
        name = min(names, key=self._explains)
        link = self._links[name]
        if link.aborted is None:
            if link.down_for >= 1:
                reason = f"has had no connection for {link.down_for:.0f} s: its agent stopped, or cannot be reached"
                return Decided(number, lost=name, reason=reason)
            return Decided(number, lost=name, reason="no answer before the deadline")
        code, about = link.aborted
        if link.refusal:
            return Decided(number, lost=name, reason=f"does not take part: {link.refusal}")
        if code == 0:
            return Decided(number, lost=name, reason="has ended the run at its site already")
        culprit = self._run.parties[about] if 0 <= about < len(self._run.parties) else name
        cause = "its table, rules or budget" if code == BlindbayesError.code else errors.kind_of(code)
        cause = f"({cause}); `blindbayes site status` at {self._hooks.host(name)} says why"
        reason = f"gave up {cause}" if culprit == name else f"was given up by {name} {cause}"
        return Decided(number, lost=culprit, reason=reason)

    def _explains(self, name: str) -> int:
        """Rank lost parties: a refusal first, then what one says of itself, then of another, then silence."""
        link = self._links[name]
        if link.refusal:
            return 0
        if link.aborted is None:
            return 3
        return 1 if link.aborted[1] in (-1, self._run.parties.index(name)) and link.aborted[0] != PeerLost.code else 2

    async def _decide(self, decided: Decided) -> Decided:
        self._journal.decide(decided)
        await self._journal.commit_async()
        return decided

    def _say_waiting(self, waiting: bool) -> None:
        for link in self._links.values():
            link.waiting = waiting

    def _show(self, kind: str, waiting: _Waiting, wanted: int) -> None:
        progress = self.progress
        if (kind, wanted) != (progress.kind, progress.wanted) or not progress.waiting_for:
            progress.since = self._loop.time()
        progress.kind, progress.waiting_for, progress.deadline = kind, tuple(waiting.missing), waiting.deadline
        progress.arrived, progress.wanted = wanted - len(waiting.missing), wanted

    def _raise_failures(self) -> None:
        """Raise if a link broke, unless the role went on without that party, or if the run was stopped here or elsewhere.

        A site that stops may be in the sum already, and any member can end a run: stopping it anywhere stops it for all.
        """
        if self._stopped is not None:
            raise self._stopped
        for name, link in self._links.items():
            if name in self._excluded:
                continue
            if link.failure is not None:
                raise link.failure
            if link.aborted is not None and link.aborted[0] == RunStopped.code:
                about, host = link.aborted[1], self._hooks.host
                who = self._run.parties[about] if 0 <= about < len(self._run.parties) else name
                who = name if who == self._run.me else who  # this site knows itself whether it was stopped here
                source = "" if host(who) == host(name) else f", as {name} says"
                raise RunStopped(f"the run was stopped at {host(who)}{source}", party=who)


def _require_not_lost(decided: Decided | None) -> None:
    if decided is not None and decided.lost is not None:
        raise PeerLost(decided.reason, party=decided.lost)
