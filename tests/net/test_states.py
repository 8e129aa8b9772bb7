"""The tables of states are complete: every pair of state and event is listed here, with what follows or that it cannot be."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import pytest

from blindbayes.crypto.coins import Coins
from blindbayes.errors import LocalProtocolError, RunStopped
from blindbayes.net.states import (
    DRIVER,
    JOURNALLED,
    OWN,
    PEER,
    SESSION,
    DriverEvent,
    Own,
    OwnEvent,
    Peer,
    PeerEvent,
    Phase,
    SessionEvent,
    SessionState,
    follow,
)
from blindbayes.protocols.core import Role, Run, receive_all, send_all
from blindbayes.wire import Message, Trust
from support.clock import bounded
from support.mesh import Mesh, Site

NAMES = ("north", "south")


class Hello(Message, frozen=True):
    trust: ClassVar[Trust] = Trust.CLEAR


def rounds(run: Run, coins: Coins) -> Role[None]:
    yield from send_all(run.others, Hello())
    yield from receive_all(run.others, Hello)


TABLES: list[tuple[Mapping[Any, Mapping[Any, Any]], type[enum.Enum], type[enum.Enum], dict[str, str]]] = [
    (
        DRIVER,
        Phase,
        DriverEvent,
        {  # columns: JOINED, SAID_READY, ALL_READY, RETURNED, DRAINED, RAISED
            "JOINING": "CHECKING - - - - FAILED",
            "CHECKING": "- GATHERING - - - FAILED",
            "GATHERING": "- - RUNNING - - FAILED",
            "RUNNING": "- - - FINISHING - FAILED",
            "FINISHING": "- - - - DONE FAILED",
            "DONE": "- - - - - FAILED",
            "FAILED": "- - - - - FAILED",
        },
    ),
    (
        PEER,
        Peer,
        PeerEvent,
        {  # columns: CONFIRM, READY, ABORT, END, REFUSAL, FAILURE
            "ABSENT": "JOINED - - ENDED ENDED FAILED",
            "JOINED": "JOINED READY ENDED ENDED JOINED FAILED",
            "READY": "READY READY ENDED ENDED READY FAILED",
            "ENDED": "ENDED ENDED ENDED ENDED ENDED FAILED",
            "FAILED": "FAILED FAILED FAILED FAILED FAILED FAILED",
        },
    ),
    (
        OWN,
        Own,
        OwnEvent,
        {  # columns: SAY_READY, REST, CLOSE
            "JOINING": "READY - CLOSED",
            "READY": "READY PASSIVE CLOSED",
            "PASSIVE": "- PASSIVE CLOSED",
            "CLOSED": "- - CLOSED",
        },
    ),
    (
        SESSION,
        SessionState,
        SessionEvent,
        {  # columns: AGREE, CONFIRM, DROP
            "NONE": "AGREED - NONE",
            "AGREED": "AGREED OPEN NONE",
            "OPEN": "RENEWING - NONE",
            "RENEWING": "RENEWING OPEN NONE",
        },
    ),
]


@pytest.mark.parametrize(("table", "states", "events", "wanted"), TABLES, ids=["driver", "peer", "own", "session"])
def test_every_pair_of_state_and_event_has_its_one_outcome(
    table: Any, states: type[enum.Enum], events: type[enum.Enum], wanted: dict[str, str]
) -> None:
    assert list(wanted) == [state.name for state in states]
    outcomes = {(state, event): name for state, row in wanted.items() for event, name in zip(events, row.split(), strict=True)}
    for state, event in product(states, events):
        name = outcomes[state.name, event]
        if name == "-":
            with pytest.raises(LocalProtocolError, match=f"{event.name} cannot occur in the state {state.name}"):
                follow(table, state, event)
        else:
            assert follow(table, state, event).name == name


def test_a_restarted_driver_takes_the_journalled_steps_to_the_phase_it_was_in() -> None:
    phases = [Phase.JOINING]
    for event in JOURNALLED:
        phases.append(follow(DRIVER, phases[-1], event))
    assert phases == [Phase.JOINING, Phase.CHECKING, Phase.GATHERING, Phase.RUNNING]
    assert [event.value for event in JOURNALLED] == [-1, -2, -3]  # the numbers in journals on disk


def test_a_run_passes_the_states_of_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real driver and links move along the tables only, through every state of a run that ends well."""
    seen: set[enum.Enum] = set()

    def watched(table: Any, state: Any, event: Any) -> Any:
        seen.update((state, table[state][event]))
        return table[state][event]

    for module in ("driver", "link", "sessions"):
        monkeypatch.setattr(f"blindbayes.net.{module}.follow", watched)

    async def test() -> None:
        results = await Mesh(tmp_path, NAMES).run(dict.fromkeys(NAMES, rounds))
        assert not [each for each in results.values() if isinstance(each, BaseException)]

    bounded(test)
    assert seen >= set(Phase) - {Phase.FAILED}
    assert seen >= {Peer.ABSENT, Peer.JOINED, Peer.READY, Own.JOINING, Own.READY, Own.CLOSED}
    assert seen >= {SessionState.NONE, SessionState.AGREED, SessionState.OPEN}


def test_a_stop_in_every_phase_ends_in_failed(tmp_path: Path) -> None:
    async def test() -> None:
        for phase in set(Phase) - {Phase.FAILED}:
            site = Site(Mesh(tmp_path / phase.value, NAMES), "north", rounds)
            site.driver.phase = phase
            site.driver._live = True
            site.driver.stop(RunStopped("stopped", party="north"))
            assert site.driver.phase is Phase.FAILED
            assert [link._abort_due for link in site.links.values()] == [(RunStopped.code, 0)]
            site.journal.close()

    bounded(test)
