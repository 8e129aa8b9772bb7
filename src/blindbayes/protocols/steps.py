"""One step of a role.

A generator's return value travels in `StopIteration`, which is lost in threads and futures. `step` and `fail` hand it back
as an ordinary value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from blindbayes.errors import BlindbayesError, IntegrityError
from blindbayes.protocols.core import Effect, Role


@dataclass(frozen=True, slots=True)
class Done:
    """The role has returned."""

    value: Any = field(repr=False)


def step(role: Role[Any], value: Any = None) -> Effect | Done:
    """Send `value` into the role; its next effect, or `Done`."""
    try:
        return role.send(value)
    except StopIteration as stop:
        return Done(stop.value)


def fail(role: Role[Any], error: BaseException) -> Effect | Done:
    """Raise `error` inside the role, which may handle it; its next effect, or `Done`."""
    try:
        return role.throw(error)
    except StopIteration as stop:
        return Done(stop.value)


def settle(role: Role[Any], error: BlindbayesError) -> BlindbayesError:
    """Return what ends a run: `error`, or the failed check that the role takes it for. A role that computes is not asked."""
    try:
        fail(role, error)
    except IntegrityError as failed:
        return failed
    except (BlindbayesError, ValueError):
        pass
    return error
