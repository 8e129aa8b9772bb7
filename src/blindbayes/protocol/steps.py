"""One step of a role.

A generator's return value travels in `StopIteration`, which is lost in threads and futures. `step` and `fail` hand it back
as an ordinary value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from blindbayes.protocol.core import Effect, Role


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
