"""A peer whose frames are all names and no content: what they hold in memory counts, and nobody keeps them for a dead link."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import msgspec
import pytest

from blindbayes.crypto.coins import Coins
from blindbayes.errors import PeerProtocolError
from blindbayes.net.envelope import Frame, Offer, Refused, Sealed
from blindbayes.net.versions import ENVELOPE
from blindbayes.protocols.core import Role, Run
from support.clock import bounded
from support.mesh import STUDY, Mesh, Site

MEGABYTES = 200
SESSION = b"8 bytes."


def idle(run: Run, coins: Coins) -> Role[None]:
    yield from ()


def heavy(kind: str, size: int) -> bytes:
    """So many bytes of names: of other studies, of steps, of reasons."""
    long = "x" * size
    frames: dict[str, Frame] = {
        "offer": Offer(long, "run-1", "south", "north", b"", b""),
        "refusal": Refused(STUDY, "run-1", "south", "north", long, b""),
        "sealed": Sealed("run-1", "north", SESSION, 0, long, 0, 0, 1, b"", memoryview(b"")),
    }
    return bytes([ENVELOPE]) + msgspec.msgpack.encode(frames[kind])


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize(("kind", "size"), [("offer", 1 << 20), ("refusal", 1 << 20), ("sealed", 1 << 20), ("sealed", 3900)])
def test_frames_that_nobody_reads_do_not_fill_the_memory(tmp_path: Path, kind: str, size: int, failed: bool) -> None:
    """A run that goes on without a party keeps its link, whose reader has ended: 200 of 200 MB stayed, and any number would."""

    async def test() -> None:
        site = Site(Mesh(tmp_path, ("north", "south")), "north", idle)
        link = site.links["south"]  # it is not started: nobody reads, as during a replay and after a failure
        site.board.route("south", "north").listen(SESSION, link)
        if failed:
            link._fail(PeerProtocolError("sent nonsense", party="south"))
        tracemalloc.start()
        try:
            for _ in range((MEGABYTES << 20) // size):
                site.board.frame_arrived("south", heavy(kind, size))
            kept = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        site.journal.close()
        assert kept < ((2 if failed else 100) << 20)  # a name stands in the frame and in what was read of it

    bounded(test)
