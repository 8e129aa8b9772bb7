"""A link that failed stays failed."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from blindbayes.crypto.coins import Coins
from blindbayes.net.link import Link
from blindbayes.net.states import (
    Peer,
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


def test_a_failed_link_stays_failed_for_its_first_reason(tmp_path: Path) -> None:
    async def test() -> None:
        site = Site(Mesh(tmp_path, NAMES), "north", rounds)
        link: Link = site.links["south"]
        link.refuse("speaks another version")
        assert (link.peer, str(link.failure)) == (Peer.FAILED, "south: speaks another version")
        link.refuse("again")
        assert str(link.failure) == "south: speaks another version"
        site.journal.close()

    bounded(test)
