"""The states of a run at a site: every transition of the table, and none beside it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from blindbayes.agent.runs.run import AgentRun
from blindbayes.agent.runs.state import TRANSITIONS, RunState

FINAL = {RunState.DONE, RunState.FAILED, RunState.FAILED_HERE, RunState.UNWRITTEN}


def run_in(state: RunState) -> AgentRun:
    return AgentRun("ab" * 16, cast(Any, None), "north", b"", phase=state, done=asyncio.Event())


@pytest.mark.parametrize("before", RunState)
@pytest.mark.parametrize("after", RunState)
def test_a_run_moves_only_as_the_table_says(before: RunState, after: RunState) -> None:
    run = run_in(before)
    if after not in TRANSITIONS[before]:
        with pytest.raises(RuntimeError, match="cannot become"):
            run.enter(after)
        assert (run.phase, run.done.is_set()) == (before, False)
        return
    run.enter(after)
    assert run.phase is after
    assert run.done.is_set() == (run.ended is not None) == (after in FINAL) != run.is_open


def test_every_state_is_reached_from_the_first_and_leads_to_an_end() -> None:
    def reach(state: RunState) -> set[RunState]:
        return {state}.union(*(reach(each) for each in TRANSITIONS[state]))

    assert reach(RunState.READING) == set(RunState) == set(TRANSITIONS)
    assert {state for state in RunState if state.is_final} == FINAL
    assert all(reach(state) & FINAL for state in RunState)


def test_a_run_that_is_done_for_other_sites_never_fails_for_them() -> None:
    """Once the roles have ended well, no state that other sites would see as a failure can follow."""
    done = {state for state in RunState if state.protocol_done}
    assert all(TRANSITIONS[state] <= done for state in done)
    assert {RunState.FAILED, RunState.FAILING, RunState.STOPPING}.isdisjoint(done)


def test_people_are_shown_four_states() -> None:
    assert {state.shown for state in RunState} == {"reading", "running", "done", "failed"}
