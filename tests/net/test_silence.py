"""A study that is unknown here and one that is known but not approved are answered alike: not at all, in the same time."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from random import Random

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from blindbayes.agent.agent import Agent
from blindbayes.agent.approvals.decisions import Approvals
from blindbayes.net.envelope import Offer, pack
from blindbayes.study.file import StudyFile
from support.hub import MemoryHub
from support.sites import BOOK, Office, bounded

ALPHA = 1e-3  # of one measurement; the test fails when two in a row reject: one time in a million if there is nothing to tell
STUDIES = 20  # of each kind
REPEATS = 15
PLANTED = 20e-6
"""Seconds: the least difference that the measurement must notice, about what reading a small file takes."""


def offer_times(agent: Agent, hashes: list[str], order: Random) -> dict[str, float]:
    """The median time that the agent takes for an offer of each study, in shuffled order: one value per study."""
    times: dict[str, list[int]] = {sha256: [] for sha256 in hashes}
    for _ in range(REPEATS):
        order.shuffle(hashes)
        for sha256 in hashes:
            frame = pack(Offer(sha256, order.randbytes(16).hex(), "north", "south", bytes(32), bytes(64)))
            begun = time.perf_counter_ns()
            agent.router.frame_arrived("north", frame)
            times[sha256].append(time.perf_counter_ns() - begun)
    return {sha256: float(np.median(found)) for sha256, found in times.items()}


def told_apart(agent: Agent, known: list[str], unknown: list[str], order: Random) -> bool:
    """Whether a rank test tells the two kinds apart, twice."""
    for _ in range(2):
        found = offer_times(agent, known + unknown, order)
        if mannwhitneyu([found[each] for each in known], [found[each] for each in unknown]).pvalue >= ALPHA:
            return False
    return True


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
            unknown = [hashlib.sha256(f"nobody's {number}".encode()).hexdigest() for number in range(STUDIES)]
            order = Random(20)
            offer_times(agent, known + unknown, order)  # the first of everything is slower
            assert not told_apart(agent, known, unknown, order)
            assert answers == []
            assert agent.runs == {}
            assert agent.counters["offers_refused"] >= 2 * 2 * STUDIES * REPEATS

            honest, planted = Approvals.find_roster, frozenset(known)

            def slower(home: Approvals, sha256: str) -> tuple[StudyFile, int] | None:
                until = time.perf_counter() + (PLANTED if sha256 in planted else 0)
                while time.perf_counter() < until:
                    pass
                return honest(home, sha256)

            monkeypatch.setattr(Approvals, "find_roster", slower)
            assert any(told_apart(agent, known, unknown, order) for _ in range(3))  # a busy machine may hide it once

    bounded(test)
