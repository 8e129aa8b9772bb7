"""Run one role between sites: effects out, messages in, the journal in between.

The role is a pure function of its seed, its input and what it received; this driver writes down everything else that
decides: who was in time for a quorum, who was given up. Started on a journal that exists, it replays the role into the
state it was in, and goes on.

Deadlines, by the monotonic clock. A wait for one party (or for all) ends when a missing party has been silent for a whole
step; a party that says it waits for others is not silent, but the run as a whole has an end. A wait with a quorum collects
for one step, longer only for parties that wait for others, and goes on with whoever came.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blindbayes import errors
from blindbayes.errors import BlindbayesError, LocalProtocolError, PeerLost, PeerProtocolError, ProtocolError, RunStopped
from blindbayes.net.journal import Decided, Journal
from blindbayes.net.link import Link
from blindbayes.net.progress import Finished, Progress
from blindbayes.net.sessions import Timing
from blindbayes.protocols.core import Effect, Open, Receive, ReceiveAll, Role, Run, Send
from blindbayes.protocols.steps import Done, fail, settle, step
from blindbayes.wire import Message, decode, encode
from blindbayes.wire.transcript import Amount, PartyCost, Way

_BATCH_BYTES = 8 * 1024**2  # of messages, in one go of the role: each goes through the loop and back
JOINED = -1  # the number of the wait before the first step: everybody comes to the run
RECEIPT = "receipt"  # the step of the last message of every role
SAID_READY = -2  # this site can pay, and is about to say so
ALL_READY = -3  # so can the others


@dataclass(frozen=True, slots=True)
class _Batch:
    """What a role did in one go: messages to post, then what it waits for, or its end. None: it has more to send."""

    sends: list[tuple[str, str, bytes]] = field(repr=False)
    effect: Effect | Done | None


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
        wake: asyncio.Event,
        required: int,
        hub: bool = False,
        rehearse: Callable[[], None] = lambda: None,
        before_first_step: Callable[[], None] = lambda: None,
        before_send: Callable[[Sequence[str]], None] = lambda kinds: None,
        on_message: Callable[[Message], None] = lambda message: None,
        host: Callable[[str], str] = lambda party: party,
        receipt: Callable[[Any], bytes] | None = None,
        readers: Collection[str] = (),
    ) -> None:
        self._run = run
        self._role = role
        self._journal = journal
        self._links = links
        self._timing = timing
        self._wake = wake
        self._required = required  # fewest parties, this one included, before anything is computed
        self._hub = hub  # the others speak with this role alone: its word that it is ready is the word that all are
        self._rehearse = rehearse  # refuses what `before_first_step` would refuse, and does nothing; both run in a thread
        self._before_first_step = before_first_step
        self._before_send = before_send  # in the role's thread, before messages of these kinds can leave
        self._on_message = on_message
        self._host = host  # the site at which people can ask about a party
        self._receipt = receipt  # what this role signs at its end, of its value
        self._readers = readers  # roles that wait for the receipts of the others; those that do not may leave before
        self._loop = asyncio.get_running_loop()
        self._begun = self._loop.time()
        self._waits = 0
        self._effects = 0
        self._consumed: dict[str, int] = {}
        self._out: list[str] = []
        self._opened: list[str] = []
        self._traffic: dict[Way, Amount] = {}
        self._live = False  # false while replaying
        self._stopped: RunStopped | None = None
        self.progress = Progress()

    # -- the whole run -----------------------------------------------------------------------------------------------

    async def drive(self) -> Finished:
        """Run the role to its end. Raises what it raises; the peers are then told the code."""
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
            with contextlib.suppress(ValueError):  # it may still be computing in its thread, and ends there
                self._role.close()

    def stop(self, word: RunStopped) -> None:
        """People say so: the others are told at once, the role ends at its next step."""
        self._stopped = word
        if self._live:
            self._abort(word)
        self._wake.set()

    async def _drive(self) -> Finished:
        restarted = JOINED in self._journal.decisions
        if not restarted:
            self._go_live()
            await self._join()
        await self._get_ready()
        await asyncio.to_thread(self._before_first_step)
        self.progress.state = "running"
        batch = await asyncio.to_thread(self._advance, None)
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
            batch = await asyncio.to_thread(self._advance, value)
        await self._commit()
        value = batch.effect.value
        own = b"" if self._receipt is None else self._receipt(value)
        for name, link in self._links.items() if own else ():
            if name in self._readers and name not in self._out:
                link.post_now(RECEIPT, own)
        self._go_live()
        self.progress.state = "finishing"
        await self._drain()
        self.progress.state = "done"
        return self._finished(value, {self._run.me: own, **self._receipts()} if own else {})

    def _receipts(self) -> dict[str, bytes]:
        """Return the receipts that came, by role, as they were sent: each is the message after the last that was consumed."""
        came = [name for name in self._links if name not in self._out and self._has(name)]
        messages = {name: self._journal.take(name, self._consumed.get(name, 0)) for name in came}
        return {name: payload for name, (step_name, payload) in messages.items() if step_name == RECEIPT}

    def _finished(self, value: Any, receipts: dict[str, bytes]) -> Finished:
        p, opened, lost = self.progress, tuple(self._opened), tuple(self._out)
        cost = PartyCost(p.messages_out, p.bytes_out, p.messages_in, p.bytes_in, self._effects, p.cpu_seconds)
        return Finished(value, opened, dict(p.received), lost, cost, dict(self._traffic), receipts)

    def _go_live(self) -> None:
        """The replay is over: connect. Peers that hold more than was replayed prove a rolled-back disk."""
        if not self._live:
            self._live = True
            for link in self._links.values():
                link.start()

    def _advance(self, value: Any) -> _Batch:
        """Run the role until it needs the others, in a thread: a long computation does not stop the heartbeats."""
        sends: list[tuple[str, str, bytes]] = []
        size, begun = 0, time.thread_time()
        try:
            while True:
                if self._stopped is not None:
                    raise self._stopped
                effect: Effect | Done | None
                effect = fail(self._role, value) if isinstance(value, BlindbayesError) else step(self._role, value)
                value = None
                self._effects += 1
                if isinstance(effect, Open):
                    self._opened.append(effect.label)
                    value = effect.value
                elif not isinstance(effect, Send):
                    break
                elif effect.to not in self._links:
                    value = LocalProtocolError("a message goes to another party of the run", party=self._run.me)
                else:
                    payload = encode(effect.message)
                    sends.append((effect.to, type(effect.message).__name__, payload))
                    self._note((self._run.me, effect.to, type(effect.message)), len(payload))
                    size += len(payload)
                    if size > _BATCH_BYTES:
                        effect = None
                        break
        finally:
            self.progress.cpu_seconds += time.thread_time() - begun
        if sends:
            self._before_send([kind for _, kind, _ in sends])
            self._journal.commit()  # what these messages depend on is on disk before they can leave
        return _Batch(sends, effect)

    async def _commit(self) -> None:
        if self._journal.dirty:
            await asyncio.to_thread(self._journal.commit)

    def _abort(self, error: BlindbayesError) -> None:
        self.progress.state = "failed"
        self._go_live()
        named = error.party if isinstance(error, ProtocolError) else None
        about = self._run.parties.index(named) if named in self._run.parties else -1
        for link in self._links.values():
            link.abort(error.code, about)

    # -- effects -----------------------------------------------------------------------------------------------------

    async def _perform(self, effect: Effect | None) -> Any:
        if effect is None:  # a batch was full; the role goes on
            return None
        if isinstance(effect, Receive):
            return (await self._receive((effect.sender,), effect.kind, None))[effect.sender]
        if isinstance(effect, ReceiveAll):
            return await self._receive(effect.senders, effect.kind, effect.quorum)
        raise LocalProtocolError("a role yielded something that is not an effect", party=self._run.me)

    async def _post(self, to: str, kind: str, payload: bytes) -> None:
        link = self._links[to]
        self.progress.messages_out += 1
        self.progress.bytes_out += len(payload)
        if not self._live or to in self._out:
            link.post_now(kind, payload)
            return
        if link.has_room(len(payload)):
            link.post_now(kind, payload)
            return
        begun = self._loop.time()
        posting = asyncio.ensure_future(link.post(kind, payload))
        try:
            while not posting.done():
                self._raise_failures()
                self._wake.clear()
                waiter = asyncio.ensure_future(self._wake.wait())
                await asyncio.wait({posting, waiter}, timeout=self._timing.beat, return_when=asyncio.FIRST_COMPLETED)
                waiter.cancel()
                if not posting.done() and self._loop.time() - max(begun, link.heard) > self._timing.step:
                    raise PeerLost("takes no more messages", party=to)
        finally:
            posting.cancel()

    async def _receive(self, senders: Sequence[str], kind: type[Message], quorum: int | None) -> dict[str, Any]:
        number, self._waits = self._waits, self._waits + 1
        if self._run.me in senders or len(set(senders)) != len(senders) or not set(senders) <= self._links.keys():
            raise LocalProtocolError("a role waits for itself, for one party twice, or for a stranger", party=self._run.me)
        if not set(senders).isdisjoint(self._out):
            raise LocalProtocolError("a role waits for a party that it went on without", party=self._run.me)
        decided = self._journal.decisions.get(number)
        if decided is None and any(not self._has(name) for name in senders):
            decided = await self._wait(number, senders, kind.__name__, quorum)
        if decided is not None and decided.lost is not None:
            raise PeerLost(decided.reason, party=decided.lost)
        arrived = [name for name in senders if decided is None or name in decided.arrived]
        self._out += [name for name in senders if name not in arrived]
        messages = {}
        for name in arrived:
            messages[name] = self._take(name, kind)
        return messages

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
        self._on_message(message)
        return message

    def _note(self, way: Way, size: int) -> None:
        """For the sequence diagram: names, kinds and numbers, no value."""
        count, total = self._traffic.get(way, (0, 0))
        self._traffic[way] = (count + 1, total + size)

    # -- waiting -----------------------------------------------------------------------------------------------------

    async def _wait(self, number: int, senders: Sequence[str], kind: str, quorum: int | None) -> Decided | None:
        """Wait until all messages have arrived, or a deadline forced a decision. Decisions are on disk before this returns."""
        self._go_live()
        begun = self._loop.time()
        self._say_waiting(True)
        try:
            while True:
                self._raise_failures()
                missing = [name for name in senders if not self._has(name)]
                if not missing:
                    self.progress.waiting_for = ()
                    return None
                late, deadline = self._late(missing, begun, collecting=quorum is not None)
                self._show(kind, missing, len(senders), deadline)
                if quorum is None and late:
                    return await self._decide(self._give_up(number, self._tells_most(late)))
                if quorum is not None and len(late) == len(missing):
                    arrived = tuple(name for name in senders if name not in missing)
                    if len(arrived) >= quorum:
                        return await self._decide(Decided(number, arrived=arrived))
                    return await self._decide(self._give_up(number, self._tells_most(missing)))
                await self._sleep(max(0.0, deadline - self._loop.time()))
        finally:
            self._say_waiting(False)

    def _late(self, missing: Sequence[str], begun: float, *, collecting: bool) -> tuple[list[str], float]:
        """Who is past the deadline, and when the next one will be."""
        now, late, ends = self._loop.time(), [], []
        for name in missing:
            link = self._links[name]
            since = begun
            if not collecting or link.waits:
                since = max(begun, link.heard)
            end = since + self._timing.step
            if link.down_since is not None:
                end = min(end, max(begun, link.down_since) + self._timing.gone)
            if link.is_lost or now >= end:
                late.append(name)
            else:
                ends.append(end)
        return late, min(ends, default=now)

    def _tells_most(self, names: Sequence[str]) -> str:
        """Of parties that are lost, whose word goes on: people's refusal, then what one says of itself, then of another."""

        def rank(name: str) -> int:
            link = self._links[name]
            if link.refusal:
                return 0
            if link.aborted is None:
                return 3
            return 1 if link.aborted[1] in (-1, self._run.parties.index(name)) and link.aborted[0] != PeerLost.code else 2

        return min(names, key=rank)

    def _give_up(self, number: int, name: str) -> Decided:
        aborted = self._links[name].aborted
        if aborted is None:
            down = self._links[name].down_since
            if down is not None and (seconds := self._loop.time() - down) >= 1:
                why = f"has had no connection for {seconds:.0f} s: its agent stopped, or cannot be reached"
                return Decided(number, lost=name, reason=why)
            return Decided(number, lost=name, reason="no answer before the deadline")
        code, about = aborted
        if self._links[name].refusal:
            return Decided(number, lost=name, reason=f"does not take part: {self._links[name].refusal}")
        culprit = self._run.parties[about] if 0 <= about < len(self._run.parties) else name
        if code == 0:
            return Decided(number, lost=name, reason="has ended the run at its site already")
        told = "its table, rules or budget" if code == BlindbayesError.code else errors.kind_of(code)
        kind = f"({told}); `blindbayes site status` at {self._host(name)} says why"
        reason = f"gave up {kind}" if culprit == name else f"was given up by {name} {kind}"
        return Decided(number, lost=culprit, reason=reason)

    async def _decide(self, decided: Decided) -> Decided:
        self._journal.decide(decided)
        await self._commit()
        return decided

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(min(seconds, self._timing.step)):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

    def _say_waiting(self, waiting: bool) -> None:
        for link in self._links.values():
            link.waiting = waiting

    def _show(self, kind: str, missing: Sequence[str], wanted: int, deadline: float) -> None:
        if (kind, wanted) != (self.progress.kind, self.progress.wanted) or not self.progress.waiting_for:
            self.progress.since = self._loop.time()
        self.progress.kind, self.progress.waiting_for = kind, tuple(missing)
        self.progress.arrived, self.progress.wanted, self.progress.deadline = wanted - len(missing), wanted, deadline

    def _raise_failures(self) -> None:
        """A broken link ends the run, unless the role went on without that party; so does the word of people, here or there.

        A site that stops may be in the sum already, and any member can end a run: whose people stop it, stop it for all.
        """
        if self._stopped is not None:
            raise self._stopped
        for name, link in self._links.items():
            if name in self._out:
                continue
            if link.failure is not None:
                raise link.failure
            if link.aborted is not None and link.aborted[0] == RunStopped.code:
                about = link.aborted[1]
                who = self._run.parties[about] if 0 <= about < len(self._run.parties) else name
                who = name if who == self._run.me else who  # this site knows itself whether its people stopped it
                told = "" if self._host(who) == self._host(name) else f", as {name} says"
                raise RunStopped(f"the run was stopped by its people at {self._host(who)}{told}", party=who)

    async def _join(self) -> None:
        """Nothing is computed before enough parties have joined with the same study and run."""
        deadline, heard = self._begun + self._timing.join, self._begun
        while True:
            self._raise_failures()
            missing = [name for name, link in self._links.items() if not link.joined and not link.is_lost]
            gone = [name for name, link in self._links.items() if link.is_lost]
            heard = heard if gone else self._loop.time()
            here = len(self._links) - len(missing) - len(gone) + 1
            if gone and len(self._links) + 1 - len(gone) < self._required:
                decided = self._give_up(JOINED, self._tells_most(gone))
                if decided.lost in missing and self._links[decided.lost].may_tell(self._loop.time() - heard):
                    await self._sleep(self._timing.retry / 4)  # that party's own word may be under way, and says why
                    continue
                raise PeerLost(decided.reason, party=decided.lost)
            if not missing:
                break
            self._show("", missing, len(self._links), deadline)
            if self._loop.time() >= deadline:
                if here >= self._required:
                    break
                raise PeerLost(
                    "did not join before the deadline: does its agent run, has it pinned this site, "
                    "and have its people approved this study, or asked for this batch?",
                    party=missing[0],
                )
            await self._sleep(deadline - self._loop.time())
        self._journal.decide(Decided(JOINED))
        await self._commit()

    async def _get_ready(self) -> None:
        """Nobody pays before all have said that they could; a site that cannot says so, and ends the run for all."""
        decisions = self._journal.decisions
        if SAID_READY not in decisions:
            await asyncio.to_thread(self._rehearse)
            self._journal.decide(Decided(SAID_READY))
            await self._commit()
        for link in self._links.values() if not self._hub or ALL_READY in decisions else ():
            link.say_ready()
        if ALL_READY in decisions:
            return
        self._go_live()
        begun = self._loop.time()
        while True:
            self._raise_failures()
            gone = [name for name, link in self._links.items() if link.is_lost]
            if gone and len(self._links) + 1 - len(gone) < self._required:
                decided = self._give_up(ALL_READY, self._tells_most(gone))
                raise PeerLost(decided.reason, party=decided.lost)
            here = [name for name, link in self._links.items() if link.joined and not link.is_lost]
            missing = [name for name in here if not self._links[name].peer_ready]
            enough = len(here) - len(missing) + 1 >= self._required
            late, deadline = self._late(missing, begun, collecting=False)
            if not missing and enough:
                break
            if missing and len(late) == len(missing) and enough:
                break
            if late and not enough:
                decided = self._give_up(ALL_READY, self._tells_most(late))
                raise PeerLost(decided.reason, party=decided.lost)
            self._show("", missing, len(self._links), deadline)
            await self._sleep(max(0.01, deadline - self._loop.time()) if missing else self._timing.beat)
        self.progress.waiting_for = ()
        self._journal.decide(Decided(ALL_READY))
        await self._commit()
        for link in self._links.values() if self._hub else ():
            link.say_ready()

    async def _drain(self) -> None:
        """Stay until the others have on disk what was sent, at most one step of silence, and for receipts that are due."""
        begun = self._loop.time()
        while True:
            if self._stopped is not None:
                raise self._stopped
            here = [name for name in self._links if name not in self._out]
            due = [name for name in here if self._run.me in self._readers and not self._has(name)]
            late, _ = self._late(due, begun, collecting=True)
            waiting = [
                name
                for name in here
                if (not self._links[name].drained and self._loop.time() - self._links[name].heard < self._timing.step)
                or (name in due and name not in late)
            ]
            if not waiting:
                return
            self._show("", waiting, len(self._links), self._loop.time() + self._timing.step)
            await self._sleep(min(self._timing.beat, 0.01))
