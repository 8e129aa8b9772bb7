"""The states of one role's run at a site, as four tables: nothing else decides what may follow what.

A role has one driver (`DRIVER`) and one link per peer. A link has a state of its own (`OWN`), the state of its peer as far as
this site knows it (`PEER`), and the state of the session between them (`SESSION`), which is made again whenever a connection
breaks. A row is a state, its entries are the events that can occur in it and the states that follow. An event that a row
lacks is a bug in this package, never a peer's doing: `follow` raises `LocalProtocolError`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

from blindbayes.errors import LocalProtocolError


class Phase(enum.Enum):
    """The phase of a driver."""

    JOINING = "joining"  # waits until enough parties have confirmed a session
    CHECKING = "checking"  # rehearses the disclosure checks and charges, writing nothing
    GATHERING = "gathering"  # waits until all that joined are ready
    RUNNING = "running"  # executes the role
    FINISHING = "finishing"  # waits until the peers have everything on disk, and for receipts
    DONE = "done"
    FAILED = "failed"

    @property
    def label(self) -> str:
        return Phase.JOINING.value if self in (Phase.CHECKING, Phase.GATHERING) else self.value


class DriverEvent(enum.Enum):
    """The end of a phase. The values of the first three are the numbers of these decisions in the journal."""

    JOINED = -1  # enough parties have joined
    SAID_READY = -2  # this site can pay, and is about to say so
    ALL_READY = -3  # so can the others
    RETURNED = 1  # the role has returned
    DRAINED = 2  # the peers have what was sent
    RAISED = 3  # the role or the driver has raised


JOURNALLED = (DriverEvent.JOINED, DriverEvent.SAID_READY, DriverEvent.ALL_READY)
"""Steps that a restarted driver takes again from its journal, in this order."""

DRIVER: Mapping[Phase, Mapping[DriverEvent, Phase]] = {
    Phase.JOINING: {DriverEvent.JOINED: Phase.CHECKING, DriverEvent.RAISED: Phase.FAILED},
    Phase.CHECKING: {DriverEvent.SAID_READY: Phase.GATHERING, DriverEvent.RAISED: Phase.FAILED},
    Phase.GATHERING: {DriverEvent.ALL_READY: Phase.RUNNING, DriverEvent.RAISED: Phase.FAILED},
    Phase.RUNNING: {DriverEvent.RETURNED: Phase.FINISHING, DriverEvent.RAISED: Phase.FAILED},
    Phase.FINISHING: {DriverEvent.DRAINED: Phase.DONE, DriverEvent.RAISED: Phase.FAILED},
    Phase.DONE: {DriverEvent.RAISED: Phase.FAILED},  # stopped before the result is written
    Phase.FAILED: {DriverEvent.RAISED: Phase.FAILED},  # a stopped run fails at once, and again when its role ends
}


class Peer(enum.Enum):
    """State of a peer, as known at this site."""

    ABSENT = "absent"  # no session was ever confirmed
    JOINED = "joined"
    READY = "ready"  # it said so; from now on it takes messages
    ENDED = "ended"  # it gave up, has ended the run, or refuses it: nothing more will come
    FAILED = "failed"  # the link broke: `Link.failure` says why


class PeerEvent(enum.Enum):
    """A statement of the peer, or a fact about it."""

    CONFIRM = "confirm"
    READY = "ready"
    ABORT = "abort"  # inside a session
    END = "end"  # signed, outside a session
    REFUSAL = "refusal"  # signed, outside a session; means nothing once the peer has joined
    FAILURE = "failure"


PEER: Mapping[Peer, Mapping[PeerEvent, Peer]] = {
    Peer.ABSENT: {
        PeerEvent.CONFIRM: Peer.JOINED,
        PeerEvent.END: Peer.ENDED,
        PeerEvent.REFUSAL: Peer.ENDED,
        PeerEvent.FAILURE: Peer.FAILED,
    },
    Peer.JOINED: {
        PeerEvent.CONFIRM: Peer.JOINED,
        PeerEvent.READY: Peer.READY,
        PeerEvent.ABORT: Peer.ENDED,
        PeerEvent.END: Peer.ENDED,
        PeerEvent.REFUSAL: Peer.JOINED,
        PeerEvent.FAILURE: Peer.FAILED,
    },
    Peer.READY: {
        PeerEvent.CONFIRM: Peer.READY,
        PeerEvent.READY: Peer.READY,
        PeerEvent.ABORT: Peer.ENDED,
        PeerEvent.END: Peer.ENDED,
        PeerEvent.REFUSAL: Peer.READY,
        PeerEvent.FAILURE: Peer.FAILED,
    },
    Peer.ENDED: {**dict.fromkeys(PeerEvent, Peer.ENDED), PeerEvent.FAILURE: Peer.FAILED},
    Peer.FAILED: dict.fromkeys(PeerEvent, Peer.FAILED),
}


class Own(enum.Enum):
    """The state of a link's own side."""

    JOINING = "joining"  # takes no messages
    READY = "ready"
    PASSIVE = "passive"  # the role has ended: answers, but begins nothing
    CLOSED = "closed"


class OwnEvent(enum.Enum):
    """A request of the driver or the agent to a link."""

    SAY_READY = "say ready"
    REST = "rest"
    CLOSE = "close"


OWN: Mapping[Own, Mapping[OwnEvent, Own]] = {
    Own.JOINING: {OwnEvent.SAY_READY: Own.READY, OwnEvent.CLOSE: Own.CLOSED},
    Own.READY: {OwnEvent.SAY_READY: Own.READY, OwnEvent.REST: Own.PASSIVE, OwnEvent.CLOSE: Own.CLOSED},
    Own.PASSIVE: {OwnEvent.REST: Own.PASSIVE, OwnEvent.CLOSE: Own.CLOSED},
    Own.CLOSED: {OwnEvent.CLOSE: Own.CLOSED},
}


class SessionState(enum.Enum):
    """The session of a pair of parties. Messages flow only in OPEN and RENEWING."""

    NONE = "none"
    AGREED = "agreed"  # both keys are known; the peer has not confirmed
    OPEN = "open"  # the peer has confirmed
    RENEWING = "renewing"  # one is open while the next is agreed on


class SessionEvent(enum.Enum):
    """A change of a session."""

    AGREE = "agree"  # the peer offered a fresh key
    CONFIRM = "confirm"
    DROP = "drop"  # the connection broke, or a frame was forged


SESSION: Mapping[SessionState, Mapping[SessionEvent, SessionState]] = {
    SessionState.NONE: {
        SessionEvent.AGREE: SessionState.AGREED,
        SessionEvent.DROP: SessionState.NONE,
    },
    SessionState.AGREED: {
        SessionEvent.AGREE: SessionState.AGREED,
        SessionEvent.CONFIRM: SessionState.OPEN,
        SessionEvent.DROP: SessionState.NONE,
    },
    SessionState.OPEN: {
        SessionEvent.AGREE: SessionState.RENEWING,
        SessionEvent.DROP: SessionState.NONE,
    },
    SessionState.RENEWING: {
        SessionEvent.AGREE: SessionState.RENEWING,
        SessionEvent.CONFIRM: SessionState.OPEN,
        SessionEvent.DROP: SessionState.NONE,
    },
}

S = TypeVar("S", bound=enum.Enum)
E = TypeVar("E", bound=enum.Enum)


def follow(table: Mapping[S, Mapping[E, S]], state: S, event: E) -> S:
    """Return the state that follows, or raise `LocalProtocolError` if the event cannot occur in this state."""
    if event not in table[state]:
        raise LocalProtocolError(f"{event.name} cannot occur in the state {state.name}: this is a bug")
    return table[state][event]
