"""Links over couriers of seconds that lose frames. The clock runs two hundred times faster: beats of 10 ms stand for 2 s."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from blindbayes.net.driver import Finished
from blindbayes.net.sessions import Timing
from net.test_driver import rounds
from support.mesh import Mesh
from support.sites import BOOK, Office, bounded
from support.slow import PollHub

NAMES = ("east", "north", "south")
SCALED = Timing(step=30, join=30, run=80, beat=0.01, retry=0.005)


@pytest.mark.parametrize(
    ("seconds", "lost", "seed"),
    [
        (4, 0.0, 1),
        (20, 0.3, 1),
        *(pytest.param(s, p, seed, marks=pytest.mark.slow) for s in (1, 2, 4, 9, 20) for p in (0.0, 0.3) for seed in (2, 3)),
    ],
)
def test_a_run_ends_over_slow_rounds_with_lost_frames(tmp_path: Path, seconds: float, lost: float, seed: int) -> None:
    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES, timing=SCALED, hub=PollHub(seconds / 200, lost=lost, seed=seed))
        found = await mesh.run(dict.fromkeys(NAMES, rounds))
        ends = [each for each in found.values() if isinstance(each, Finished)]
        assert len(ends) == 3, found
        assert len({tuple(each.value) for each in ends}) == 1

    bounded(test)


def test_a_message_of_many_parts_gets_through_although_frames_are_lost(tmp_path: Path) -> None:
    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES[:2], timing=SCALED, hub=PollHub(0.02, lost=0.3, seed=5))
        found = await mesh.run({name: lambda run, coins: rounds(run, coins, count=1, bulk=3_000_000) for name in NAMES[:2]})
        assert all(isinstance(each, Finished) for each in found.values()), found

    bounded(test)


def test_a_quiet_link_over_slow_rounds_keeps_its_session(tmp_path: Path) -> None:
    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES, timing=SCALED, hub=PollHub(0.1, seed=2))
        found = await mesh.run({name: lambda run, coins: rounds(run, coins, count=4) for name in NAMES})
        assert all(isinstance(each, Finished) for each in found.values()), found
        assert mesh.hub.rounds < 40

    bounded(test)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0.3, 0.0])
def test_a_study_of_three_sites_completes_over_rounds_of_twenty_seconds(tmp_path: Path, lost: float) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES, hub=PollHub(0.1, lost=lost, seed=4), timing=SCALED) as office:
            study = office.net.make_study(BOOK, protocol="masked_sum")
            office.net.approve(study)
            runs = await asyncio.wait_for(office.run(study), 80)
            assert {run.state for run in runs.values()} == {"done"}

    bounded(test, 90)
