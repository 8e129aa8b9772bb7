"""The in-memory driver: every role of a run in one process, one event at a time, in a fixed order.

Each message is really encoded, counted, and decoded at its receiver. Time is logical: a step's deadline passes when
nothing else can happen (quiescence). Faults are declared beforehand and strike at a message index or at a party's
n-th effect. Work per event does not grow with the number of parties.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.hybrid import HybridKey
from blindbayes.crypto.signatures import SigningKey
from blindbayes.errors import BlindbayesError, LocalProtocolError, PeerLost, ProtocolError
from blindbayes.protocols.core import Done, Open, Receive, ReceiveAll, Role, Run, Send, require_effect, resume
from blindbayes.wire import Message, decode, encode
from blindbayes.wire.transcript import Cost as Cost
from blindbayes.wire.transcript import Keep as Keep
from blindbayes.wire.transcript import PartyCost, SentMessage, Transcript

_MAX_READY = 64
Where = int | Callable[[SentMessage], bool]
"""A message index, or a test of the message's header."""


@dataclass(frozen=True, slots=True)
class Drop:
    """A fault: the message is lost."""

    at: Where


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A fault: the sender sends the message twice."""

    at: Where


@dataclass(frozen=True, slots=True)
class Swap:
    """A fault: the message arrives after the next one of the same sender to the same receiver, or at the deadline."""

    at: Where


@dataclass(frozen=True, slots=True)
class Tamper:
    """A fault: the frame arrives changed."""

    at: Where
    change: Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Replace:
    """A fault: a dishonest sender sends another message in its place."""

    at: Where
    message: Callable[[Message], Message]


@dataclass(frozen=True, slots=True)
class Vanish:
    """A fault: the party stops just before its effect number `before` (from 0); what it sent until then arrives."""

    party: str
    before: int


Fault = Drop | Duplicate | Swap | Tamper | Replace | Vanish


@dataclass(slots=True)
class Outcome:
    """The end of a run: outputs, cost, and what went wrong."""

    outputs: dict[str, Any] = field(repr=False)  # by party, of the roles that returned
    transcript: Transcript
    cost: Cost
    opened: dict[str, tuple[str, ...]]  # labels by party, in the order of opening
    error: BlindbayesError | None  # what ended the run early, raised by `failed`
    failed: str | None
    lost: dict[str, ProtocolError]  # parties that others went on without, and what they see
    unread: int  # messages that nobody waited for


class _Party:
    __slots__ = ("cost", "depth", "excluded", "inbox", "left_out", "missing", "name", "opened", "role", "state", "waits")

    def __init__(self, name: str, role: Role[Any]) -> None:
        self.name = name
        self.role = role
        self.inbox: dict[str, deque[tuple[bytes, int]]] = {}
        self.waits: Receive | ReceiveAll | None = None
        self.missing: set[str] = set()  # senders the current wait still lacks
        self.excluded: set[str] = set()  # senders this role went on without
        self.left_out = False  # somebody went on without this party
        self.state = "alive"  # alive, done, vanished
        self.depth = 0
        self.opened: list[str] = []
        self.cost = PartyCost()


class _Driver:
    def __init__(self, roles: Mapping[str, Role[Any]], faults: Sequence[Fault], keep: Keep) -> None:
        self.parties = {name: _Party(name, role) for name, role in roles.items()}
        self.ready: deque[tuple[_Party, Any]] = deque((party, None) for party in self.parties.values())
        self.strikes = [fault for fault in faults if not isinstance(fault, Vanish)]
        self.vanish = {fault.party: fault.before for fault in faults if isinstance(fault, Vanish)}
        self.transcript = Transcript(keep, received={name: Counter() for name in roles})
        if keep is Keep.FRAMES:
            self.transcript.deliveries = {name: [] for name in roles}
        self.cost = Cost(parties={name: party.cost for name, party in self.parties.items()})
        self.delayed: dict[tuple[str, str], list[tuple[bytes, int]]] = {}  # swapped messages by link
        self.dropped: set[tuple[str, str]] = set()
        self.outputs: dict[str, Any] = {}
        self.error: BlindbayesError | None = None
        self.failed: str | None = None

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        try:
            while self.error is None:
                while self.ready and self.error is None:
                    party, value = self.ready.popleft()
                    if party.state == "alive":
                        self._advance(party, value)
                if self.error is not None or not (self._release_held() or self._pass_deadline()):
                    break
        except BaseException:  # a bug in a role, or an interrupt: end the others, then let it pass
            self._close()
            raise
        if self.error is not None:
            self._close()

    def _close(self) -> None:
        for party in self.parties.values():
            party.role.close()

    def _advance(self, party: _Party, value: Any) -> None:
        """Run one role until it waits, returns, fails or vanishes."""
        while True:
            begun = time.process_time()
            try:
                effect = resume(party.role, value)
            except BlindbayesError as raised:
                self._end_with(party, raised)
                return
            finally:
                party.cost.seconds += time.process_time() - begun
            if isinstance(effect, Done):
                party.state = "done"
                self.outputs[party.name] = effect.value
                return
            if self.vanish.get(party.name) == party.cost.effects:
                party.state = "vanished"
                party.role.close()
                return
            party.cost.effects += 1
            try:
                require_effect(effect, party.name, self.parties, party.excluded)
                if isinstance(effect, Send):
                    self._send(party, effect)
            except BlindbayesError as error:
                value = error
                continue
            value = None
            if isinstance(effect, Receive | ReceiveAll):
                self._wait(party, effect)
                return
            if isinstance(effect, Open):
                party.opened.append(effect.label)
                value = effect.value
            elif len(self.ready) > _MAX_READY:  # let receivers take what they have before more is sent
                self.ready.append((party, None))
                return

    def _end_with(self, party: _Party, error: BlindbayesError) -> None:
        party.state = "done"
        if party.left_out:  # the others have gone on without it: its failure is its own
            return
        self.error, self.failed = error, party.name

    # -- sending ---------------------------------------------------------------------------------------------------

    def _send(self, party: _Party, effect: Send) -> None:
        frame = encode(effect.message)
        entry = SentMessage(self.cost.messages, party.name, effect.to, type(effect.message), party.depth + 1, len(frame))
        self.cost.messages += 1
        self.cost.bytes += entry.size
        party.cost.sent += 1
        party.cost.sent_bytes += entry.size
        frames = [frame]
        hold = False
        for fault in self.strikes:
            if not (fault.at(entry) if callable(fault.at) else fault.at == entry.index):
                continue
            if isinstance(fault, Drop):
                self.dropped.add((party.name, effect.to))
                frames = []
            elif isinstance(fault, Duplicate):
                frames = frames * 2
            elif isinstance(fault, Tamper):
                frames = [fault.change(each) for each in frames]
            elif isinstance(fault, Replace):
                frames = [encode(fault.message(effect.message)) for _ in frames]
            else:
                hold = True
        if self.transcript.keep is not Keep.COUNTS:
            stored = frames[0] if frames and self.transcript.keep is Keep.FRAMES else None
            self.transcript.entries.append(
                SentMessage(entry.index, entry.sender, entry.to, entry.kind, entry.depth, entry.size, stored)
            )
        link = (party.name, effect.to)
        if hold:
            self.delayed.setdefault(link, []).extend((each, entry.depth) for each in frames)
            return
        for each in frames:
            self._arrive(party.name, effect.to, each, entry.depth)
        for each, depth in self.delayed.pop(link, ()):
            self._arrive(party.name, effect.to, each, depth)

    def _release_held(self) -> bool:
        """Deliver late messages when nothing else happens; return True if there were any."""
        late, self.delayed = self.delayed, {}
        for (sender, to), frames in late.items():
            for frame, depth in frames:
                self._arrive(sender, to, frame, depth)
        return bool(late)

    def _arrive(self, sender: str, to: str, frame: bytes, depth: int) -> None:
        party = self.parties[to]
        if sender in party.excluded or party.state != "alive":
            return
        party.inbox.setdefault(sender, deque()).append((frame, depth))
        if sender in party.missing:
            party.missing.discard(sender)
            if not party.missing:
                self._deliver(party)

    # -- receiving -------------------------------------------------------------------------------------------------

    def _wait(self, party: _Party, effect: Receive | ReceiveAll) -> None:
        senders = (effect.sender,) if isinstance(effect, Receive) else effect.senders
        party.waits, party.missing = effect, {name for name in senders if not party.inbox.get(name)}
        if not party.missing:
            self._deliver(party)

    def _deliver(self, party: _Party) -> None:
        """Decode the messages of the current wait and queue the role."""
        effect, party.waits = party.waits, None
        if effect is None:
            raise LocalProtocolError("the driver delivered to a role that does not wait", party=party.name)
        party.missing = set()
        senders = (effect.sender,) if isinstance(effect, Receive) else effect.senders
        messages: dict[str, Message] = {}
        frames: list[tuple[str, bytes]] = []
        result: Any = None
        for sender in senders:
            queue = party.inbox.get(sender)
            if not queue:
                party.excluded.add(sender)
                self.parties[sender].left_out = True
                continue
            frame, depth = queue.popleft()
            if not queue:
                del party.inbox[sender]
            party.cost.received += 1
            party.cost.received_bytes += len(frame)
            party.depth = max(party.depth, depth)
            self.cost.rounds = max(self.cost.rounds, depth)
            self.transcript.received[party.name][effect.kind] += 1
            if self.transcript.keep is Keep.FRAMES:  # else a frame goes as its message comes
                frames.append((sender, frame))
            try:
                messages[sender] = decode(frame, effect.kind, sender=sender)
            except ProtocolError as raised:
                result = raised
                break
        if self.transcript.keep is Keep.FRAMES:
            self.transcript.deliveries[party.name].append(tuple(frames))
        if result is None:
            result = messages[effect.sender] if isinstance(effect, Receive) else messages
        self.ready.append((party, result))

    # -- deadlines -------------------------------------------------------------------------------------------------

    def _pass_deadline(self) -> bool:
        """Let the earliest deadline pass, as nothing moves; return True if that lets any role go on."""
        waiting = [party for party in self.parties.values() if party.state == "alive" and party.waits is not None]
        waiting.sort(key=lambda party: party.depth)
        for party in waiting:
            if not isinstance(party.waits, ReceiveAll) or party.waits.quorum is None:
                continue
            if len(party.waits.senders) - len(party.missing) >= party.waits.quorum:
                self._deliver(party)
            else:
                names = ", ".join(sorted(party.missing))
                self._give_up(party, PeerLost(f"too few parties answered; missing: {names}", party=min(party.missing)))
            return True
        for party in waiting:  # only waits for everybody are left
            if party.left_out:
                continue
            self._give_up(party, PeerLost("no answer before the deadline", party=self._blames(party)))
            return True
        return False

    def _give_up(self, party: _Party, error: PeerLost) -> None:
        party.waits, party.missing = None, set()
        self.ready.append((party, error))

    def _blames(self, party: _Party) -> str:
        """Follow the waits to the party that really stopped, or whose message was lost."""
        seen: set[str] = set()
        while True:
            seen.add(party.name)
            lost = next((name for name in sorted(party.missing) if (name, party.name) in self.dropped), None)
            if lost is not None:
                return lost
            gone = next((name for name in sorted(party.missing) if self.parties[name].state != "alive"), None)
            if gone is not None:
                return gone
            onward = next((name for name in sorted(party.missing) if name not in seen), None)
            if onward is None:
                return min(party.missing)
            party = self.parties[onward]

    def outcome(self) -> Outcome:
        lost: dict[str, ProtocolError] = {}
        for party in self.parties.values():
            if party.state == "alive" and party.waits is not None and self.error is None:
                lost[party.name] = PeerLost("no answer before the deadline", party=self._blames(party))
                party.role.close()
        unread = sum(len(queue) for party in self.parties.values() for queue in party.inbox.values() if party.state == "done")
        opened = {name: tuple(party.opened) for name, party in self.parties.items()}
        return Outcome(self.outputs, self.transcript, self.cost, opened, self.error, self.failed, lost, unread)


def run_in_memory(
    roles: Mapping[str, Role[Any]], *, faults: Sequence[Fault] = (), keep: Keep = Keep.HEADERS, check: bool = True
) -> Outcome:
    """Run one role per party to the end.

    An error that a role does not handle ends the whole run: every other role is closed and opens nothing more. With `check` it
    is raised here; without, it is `Outcome.error`. A party that vanished, or that others went on without under a quorum, does
    not end the run; it has no output.
    """
    driver = _Driver(roles, faults, keep)
    driver.run()
    outcome = driver.outcome()
    if check and outcome.error is not None:
        raise outcome.error
    return outcome


def local_runs(
    parties: Sequence[str],
    *,
    study: str = "0" * 64,
    run_id: str = "local",
    coins: Coins,
    signed: bool = True,
    keys: Mapping[str, SigningKey] | None = None,
) -> dict[str, Run]:
    """Make one `Run` per party for a run in this process, with these identities or fresh ones."""
    roster = tuple(parties)
    if keys is None:
        keys = {name: SigningKey.generate(coins) for name in roster} if signed else {}
    identities = {name: key.public for name, key in keys.items()}
    standing = {name: HybridKey.generate(coins.derive(f"standing {name}")) for name in roster}
    publics = {name: key.public for name, key in standing.items()}
    return {name: Run(study, run_id, roster, name, identities, keys.get(name), standing[name], publics) for name in roster}
