"""Links over couriers of seconds that lose frames. The clock runs two hundred times faster: beats of 10 ms stand for 2 s."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from blindbayes.net.driver import Finished
from blindbayes.net.envelope import Sealed, unpack
from blindbayes.net.link import Link
from blindbayes.net.sessions import Timing
from blindbayes.net.states import Peer
from net.test_driver import rounds
from support.hub import MemoryHub
from support.mesh import Mesh, Site
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


def test_two_sides_that_answer_each_others_offers_at_once_come_to_confirm(tmp_path: Path) -> None:
    """Each frame is taken before the sender's next: an answer that is an offer must not be answered by one for ever."""

    class Immediate:
        def __init__(self, peer: Link) -> None:
            self.peer = peer

        def is_up(self) -> bool:
            return True

        def note_versions(self, versions: object) -> None: ...

        async def send(self, frame: bytes) -> None:
            self.peer._take(unpack(frame))

    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES[:2], timing=Timing(retry=100.0))
        sites = {name: Site(mesh, name, rounds) for name in mesh.names}
        first, second = (sites[name].links[other] for name, other in (NAMES[:2], NAMES[1::-1]))
        first._route, second._route = Immediate(second), Immediate(first)
        for _ in range(6):
            await first._send_one()
            await second._send_one()
        assert first.peer is Peer.JOINED
        assert second.peer is Peer.JOINED
        for site in sites.values():
            site.journal.close()

    bounded(test)


def test_a_session_that_stands_is_offered_no_more(tmp_path: Path) -> None:
    """Two sides that answer each other's offers with offers would do nothing else, thousands of times a second."""

    async def test() -> None:
        seen: Counter[str] = Counter()

        def count(sender: str, to: str, frame: bytes) -> list[bytes]:
            envelope = unpack(frame)
            seen[envelope.step if isinstance(envelope, Sealed) else type(envelope).__name__] += 1
            return [frame]

        async with Office(tmp_path, NAMES, hub=MemoryHub(count)) as office:
            study = office.net.make_study(BOOK, protocol="masked_sum")
            office.net.approve(study)
            runs = await office.run(study)
            assert {run.state for run in runs.values()} == {"done"}
            assert seen["confirm"] <= 40  # 20 pairs of seats at different sites
            assert seen["Offer"] <= 120
            before = seen["Offer"] + seen["confirm"]
            await asyncio.sleep(0.5)
            assert seen["Offer"] + seen["confirm"] == before

    bounded(test)
