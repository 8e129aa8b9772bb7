"""Sessions: offers of both sides at once, and no more offers once one stands."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from blindbayes.net.envelope import Sealed, unpack
from blindbayes.net.link import Link
from blindbayes.net.sessions import Timing
from blindbayes.net.states import Peer
from net.test_driver import rounds
from support.hub import MemoryHub
from support.mesh import Mesh, Site
from support.sites import BOOK, Office, bounded

NAMES = ("east", "north", "south")


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
