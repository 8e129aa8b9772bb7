"""Replay a role from what it received.

A role is a pure function of its input, its coins and what it was handed. Fed the same deliveries it performs the same
effects: that is how a restarted site comes back to where it was, and how a test checks that a role has no hidden state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from blindbayes.errors import LocalProtocolError
from blindbayes.protocols.core import Done, Effect, Open, Receive, ReceiveAll, Role, Send, step
from blindbayes.wire import decode, encode
from blindbayes.wire.transcript import Delivery


@dataclass(slots=True)
class Replayed:
    """Where a role stands after its deliveries: what it did on the way, and what it waits for or returned."""

    sends: list[tuple[str, bytes]] = field(default_factory=list, repr=False)
    opened: list[str] = field(default_factory=list)
    now: Effect | Done | None = None


def replay(role: Role[Any], deliveries: Sequence[Delivery]) -> Replayed:
    """Run a fresh role through recorded deliveries. Raises `LocalProtocolError` if they do not fit what it waits for."""
    state = Replayed()
    pending = list(deliveries)[::-1]
    value: Any = None
    while True:
        effect = state.now = step(role, value)
        value = None
        if isinstance(effect, Send):
            state.sends.append((effect.to, encode(effect.message)))
        elif isinstance(effect, Open):
            state.opened.append(effect.label)
            value = effect.value
        elif isinstance(effect, Done):
            if pending:
                raise LocalProtocolError("the record goes on after the role has returned")
            return state
        else:
            if not pending:
                return state
            value = _hand_over(effect, pending.pop())


def _hand_over(effect: Receive | ReceiveAll, delivery: Delivery) -> Any:
    senders = [sender for sender, _ in delivery]
    asked = (effect.sender,) if isinstance(effect, Receive) else effect.senders
    quorum = effect.quorum if isinstance(effect, ReceiveAll) else None
    enough = len(asked) if quorum is None else quorum
    if len(set(senders)) != len(senders) or not set(senders) <= set(asked) or len(senders) < enough:
        raise LocalProtocolError("the record does not fit what the role waits for")
    messages = {sender: decode(frame, effect.kind, sender=sender) for sender, frame in delivery}
    return messages[effect.sender] if isinstance(effect, Receive) else messages
