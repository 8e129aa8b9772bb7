"""A study that is unknown here and one that is known but not approved are answered alike: not at all, by the same work."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from random import Random
from types import FrameType

import pytest

from blindbayes.agent.agent import Agent
from blindbayes.agent.approvals.decisions import Approvals
from blindbayes.net.envelope import Offer, pack
from blindbayes.study.file import StudyFile
from support.hub import MemoryHub
from support.sites import BOOK, Office, bounded

STUDIES = 20  # of each kind
REPEATS = 3


def work_for(agent: Agent, hashes: list[str], order: Random) -> set[tuple[str, ...]]:
    """The calls, of Python and of C, that the agent makes for an offer of each study, in their order.

    Time would depend on the machine; the same calls on names of the same length take the same time.
    """
    works: set[tuple[str, ...]] = set()
    for _ in range(REPEATS):
        order.shuffle(hashes)
        for sha256 in hashes:
            frame = pack(Offer(sha256, order.randbytes(16).hex(), "north", "south", bytes(32), bytes(64)))
            calls: list[str] = []

            def note(at: FrameType, event: str, what: object, calls: list[str] = calls) -> None:
                if event in ("call", "c_call"):
                    calls.append(at.f_code.co_qualname if event == "call" else getattr(what, "__qualname__", ""))

            sys.setprofile(note)
            try:
                agent.router.frame_arrived("north", frame)
            finally:
                sys.setprofile(None)
            works.add(tuple(calls))
    return works


@pytest.mark.parametrize("kind", ["revoked", "waiting"])
def test_unknown_and_unapproved_studies_are_met_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    async def test() -> None:
        answers: list[str] = []
        hub = MemoryHub(lambda sender, to, frame: answers.append(sender) or [frame])  # type: ignore[func-returns-value]
        async with Office(tmp_path, ("north", "south", "west"), hub=hub) as office:
            agent, home = office.agents["south"], office.net.sites["south"].home
            (home.folder / "studies").mkdir()
            first, known = office.net.make_study(BOOK, title="approved"), []
            home.approvals.approve(first)
            for number in range(STUDIES):
                study = office.net.make_study(BOOK, title=f"study {number}", hosts=first.hosts)
                (home.folder / "studies" / f"{number}.toml").write_text(study.to_toml())
                if kind == "revoked":  # approved, read by the agent, taken back
                    home.approvals.approve(study)
                    assert home.approvals.find(study.sha256)
                    home.approvals.revoke(study.sha256)
                known.append(study.sha256)
            assert home.approvals.all() == [first]  # read once: an offer before that is considered after a thread has read them
            unknown = [hashlib.sha256(f"nobody's {number}".encode()).hexdigest() for number in range(STUDIES)]
            order = Random(20)
            work_for(agent, known + unknown, order)  # the first of everything is more
            offers = 2 * STUDIES * REPEATS
            alike = work_for(agent, known, order)
            assert work_for(agent, unknown, order) == alike
            assert all(len(calls) > 10 for calls in alike)
            assert answers == []
            assert agent.runs == {}
            assert agent.counters["offers_refused"] == 2 * offers

            honest, planted = Approvals.find_roster, frozenset(known)

            def looks(home: Approvals, sha256: str) -> tuple[StudyFile, int] | None:
                if sha256 in planted:
                    (home.folder / sha256).exists()
                return honest(home, sha256)

            monkeypatch.setattr(Approvals, "find_roster", looks)
            assert not work_for(agent, known, order) & work_for(agent, unknown, order)

    bounded(test)
