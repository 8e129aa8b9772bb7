"""The effects that roles yield (`Send`, `Receive`, `Open`), in which every protocol is written.

A role is a generator that yields effects and is sent their results. It has no clock, no socket, no log; its coins are an
argument. It is therefore a pure function of its input, its coins and what it received: a driver can run it in memory,
between processes, or replay it from a journal.

    yield Send(to, message)                                   -> None
    message = yield Receive(sender, Kind)                     -> Kind
    many = yield ReceiveAll(senders, Kind, quorum=...)        -> dict[str, Kind], in the order of `senders`
    value = yield Open("class_counts", value)                 -> value; the only way a secret becomes public

Sub-protocols compose with `yield from`. The helpers below give the effects' results their types.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

from blindbayes.crypto.hybrid import HybridKey
from blindbayes.errors import BlindbayesError, IntegrityError, LocalProtocolError, PeerProtocolError
from blindbayes.wire import Marked, Message

T = TypeVar("T")
M = TypeVar("M", bound=Message)
K = TypeVar("K", bound=Marked)


@dataclass(frozen=True, slots=True)
class Send:
    """Hand a message to one other party. Delivered once and in order per pair of parties."""

    to: str
    message: Message


@dataclass(frozen=True, slots=True)
class Receive:
    """Wait for the next message of one party; it must be of `kind`."""

    sender: str
    kind: type[Message]


@dataclass(frozen=True, slots=True)
class ReceiveAll:
    """Wait for one message of `kind` from each of `senders`.

    With `quorum` set, the driver may go on at the step's deadline with those that arrived, if they are at least `quorum`; the
    missing parties are excluded from this and all later steps. Without it, all must arrive.
    """

    senders: tuple[str, ...]
    kind: type[Message]
    quorum: int | None = None


@dataclass(frozen=True, slots=True)
class Open:
    """Declare that `value` becomes known to this party in clear, under a label of the protocol's SPEC."""

    label: str
    value: Any = field(repr=False)


Effect: TypeAlias = Send | Receive | ReceiveAll | Open
Role: TypeAlias = Generator[Effect, Any, T]


class Signer(Protocol):
    """A signer for this party, which keeps the private key to itself."""

    def sign(self, payload: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Run:
    """The public and fixed facts of one run, and this party's name in it."""

    study: str  # SHA-256 of the study, hexadecimal
    run_id: str  # unique per run
    parties: tuple[str, ...]  # the roster, in the study's order
    me: str
    identities: Mapping[str, bytes] = field(default_factory=dict)  # Ed25519 public keys by party
    signer: Signer | None = field(default=None, repr=False)
    agreement: HybridKey | None = field(default=None, repr=False)  # of this party's card
    keys: Mapping[str, bytes] = field(default_factory=dict)  # of everybody's card; empty bytes for a party without one
    standing: Mapping[str, bytes] = field(default_factory=dict)  # agreed sessions from which others are derived

    def __post_init__(self) -> None:
        if len(set(self.parties)) != len(self.parties):
            raise LocalProtocolError("a party stands twice in the roster")
        if self.me not in self.parties:
            raise LocalProtocolError("this party is not in the roster")

    @property
    def others(self) -> tuple[str, ...]:
        """All parties but this one, in roster order."""
        return tuple(name for name in self.parties if name != self.me)

    def context(self, step: str, *names: str) -> bytes:
        """Return bytes that bind a signature, key or tweak to this study, run, step and names, with length prefixes."""
        parts = [part.encode() for part in (self.study, self.run_id, step, *names)]
        return b"".join([len(part).to_bytes(4, "big") + part for part in parts])


def receive(sender: str, kind: type[M]) -> Role[M]:
    """Yield `Receive`, and return its message with its type."""
    message = yield Receive(sender, kind)
    if not isinstance(message, kind):
        raise LocalProtocolError("the driver delivered a message of another kind")
    return message


def mark(session: bytes, kind: type[Marked], index: int) -> int:
    """Return the number that ties a message to its session and its place in it.

    It is no secret: the envelope authenticates. The mark keeps a message that came twice, late or from another session from
    being taken for the one that is due.
    """
    return int.from_bytes(hashlib.sha256(session + kind.__name__.encode() + b" %d" % index).digest()[:7], "big")


def require_mark(message: Marked, session: bytes, index: int, sender: str) -> None:
    """Raise unless the message is the one that is due."""
    if message.mark != mark(session, type(message), index):
        raise PeerProtocolError("a message of another session, or out of its place", party=sender)


def receive_marked(sender: str, kind: type[K], session: bytes, index: int) -> Role[K]:
    """Receive the message that is due at this place of a session of two parties."""
    message = yield from receive(sender, kind)
    require_mark(message, session, index, sender)
    return message


def receive_all(senders: Sequence[str], kind: type[M], *, quorum: int | None = None) -> Role[dict[str, M]]:
    """Yield `ReceiveAll`, and return its messages with their type."""
    messages: dict[str, M] = yield ReceiveAll(tuple(senders), kind, quorum)
    return messages


def send_all(to: Sequence[str], message: Message) -> Role[None]:
    for name in to:
        yield Send(name, message)


def open_value(label: str, value: T) -> Role[T]:
    """Yield `Open`, and return the value with its type."""
    opened: T = yield Open(label, value)
    return opened


# -- steps of a role, for drivers -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Done:
    """The role has returned. `StopIteration`, which carries the value of a generator, is lost in threads and futures."""

    value: Any = field(repr=False)


def step(role: Role[Any], value: Any = None) -> Effect | Done:
    """Send `value` into the role; return its next effect, or `Done`."""
    try:
        return role.send(value)
    except StopIteration as stop:
        return Done(stop.value)


def fail(role: Role[Any], error: BaseException) -> Effect | Done:
    """Raise `error` inside the role, which may handle it; return its next effect, or `Done`."""
    try:
        return role.throw(error)
    except StopIteration as stop:
        return Done(stop.value)


def resume(role: Role[Any], value: Any) -> Effect | Done:
    """Send `value` into the role, or raise it there if it is an error of this package."""
    return fail(role, value) if isinstance(value, BlindbayesError) else step(role, value)


def require_effect(effect: Effect, me: str, parties: Collection[str], excluded: Collection[str]) -> None:
    """Raise `LocalProtocolError` unless a driver may perform the effect of role `me`.

    `excluded` are the parties that the role went on without.
    """
    if isinstance(effect, Send):
        if effect.to == me or effect.to not in parties:
            raise LocalProtocolError("a message goes to another party of the run", party=me)
    elif isinstance(effect, Receive | ReceiveAll):
        senders = (effect.sender,) if isinstance(effect, Receive) else effect.senders
        if me in senders or len(set(senders)) != len(senders) or not all(name in parties for name in senders):
            raise LocalProtocolError("the senders of a wait are distinct parties of the run other than oneself", party=me)
        if any(name in excluded for name in senders):
            raise LocalProtocolError("a role waits for a party that it went on without", party=me)
    elif not isinstance(effect, Open):
        raise LocalProtocolError("a role yielded something that is not an effect", party=me)


def settle(role: Role[Any], error: BlindbayesError) -> BlindbayesError:
    """Return the error that ends a run: `error`, or the failed check that the role makes of it.

    A role that is still computing in a thread is not asked.
    """
    try:
        fail(role, error)
    except IntegrityError as failed:
        return failed
    except (BlindbayesError, ValueError):
        pass
    return error
