"""Single steps of a role, for drivers.

A generator's return value travels in `StopIteration`, which is lost in threads and futures. `step` and `fail` return it as an
ordinary value.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from blindbayes.errors import BlindbayesError, IntegrityError, LocalProtocolError
from blindbayes.protocols.core import Effect, Open, Receive, ReceiveAll, Role, Send


@dataclass(frozen=True, slots=True)
class Done:
    """The role has returned."""

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
