"""kill -9 of agents that are real processes, at random moments of runs, and what must hold after each.

A cycle: a run begins, one or two agents are killed in its midst, some again while they resume, all are started, the run ends.
Agents are forked (`support/forked.py`): an interpreter's start took nine tenths of a cycle.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from blindbayes.agent.store.folder import SiteFolder
from blindbayes.errors import ConfigError
from blindbayes.study.file import Deadlines, Limits, Privacy, StudyFile
from blindbayes.testing.loopback import Loopback, LoopbackSite, open_policy
from support.sites import BOOK, make_rows

NAMES = ("north", "south", "west")
DEADLINES = Deadlines(step=120, join=120, run=600)  # a loaded machine is no fault


def is_amid(site: LoopbackSite, run_id: str) -> bool:
    """Whether a site has begun a run and not ended it: it keeps a journal."""
    return any((site.home.folder / "runs" / run_id).glob("*/journal"))


class Killer:
    """Three agents and their studies; `cycle` adds to `counts`, and raises `AssertionError` if something does not hold."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.rng, self.counts = folder, random.Random(seed), Counter[str]()
        folder.mkdir(parents=True)
        policy = open_policy(max_runs_per_day=1_000_000)
        self.net = Loopback(folder / "sites", make_rows(folder, NAMES), policy=policy)
        for site in self.net.sites.values():
            site.home.ledger.set_budget(epsilon=1000, delta=0, reason="many runs")
        exact = self.net.make_study(BOOK, title="exact", deadlines=DEADLINES, limits=Limits(quorum=3))
        noisy = self.net.make_study(BOOK, title="noisy", deadlines=DEADLINES, privacy=Privacy(epsilon=0.005))
        self.studies = {"exact": exact, "noisy": noisy}
        for study in self.studies.values():
            self.net.approve(study, runs=1_000_000)
        sources: dict[str, Any] = {name: site.home.config.rows.source for name, site in self.net.sites.items()}  # type: ignore[union-attr]
        self.model = (exact.study.simulate(sources).save(folder / "expected") / "model.json").read_bytes()

    def cycle(self, kills: int) -> None:
        """One run with at most this many kills."""
        title = self.rng.choice(tuple(self.studies))
        study, north = self.studies[title], self.net.sites["north"].operator
        run_id: str = north.call("POST", "/runs", {"study": study.sha256})["run"]
        for _ in range(min(kills, self.rng.choice((1, 1, 2, 3)))):
            victim = self.net.sites[self.rng.choice(NAMES)]
            self._wait_for_a_moment(victim, run_id)
            self.counts["amid"] += is_amid(victim, run_id)
            victim.kill(signal.SIGKILL)
            self.counts["kills"] += 1
            if self.rng.random() < 0.7:
                victim.start()
        for site in self.net.sites.values():
            if site.process is None:
                site.start()
        self._ends(run_id)
        self.counts["cycles"] += 1
        self._check(run_id, study)

    def _wait_for_a_moment(self, victim: LoopbackSite, run_id: str) -> None:
        """Any moment will do, but most are to lie between a run's beginning and its end at the victim."""
        if self.rng.random() < 0.8:
            until = time.monotonic() + 2  # it may be over, or never begin
            while not is_amid(victim, run_id) and time.monotonic() < until:
                time.sleep(0.001)
            time.sleep(self.rng.choice((0, 0.005, 0.02, 0.1)) * self.rng.random())
        else:
            time.sleep(self.rng.uniform(0, 0.6))

    def _homes(self) -> dict[str, SiteFolder]:
        """The folders as a new process reads them."""
        return {name: SiteFolder.open(site.home.folder) for name, site in self.net.sites.items()}

    def _ends(self, run_id: str) -> None:
        """Every site that knows of the run comes to its end; one may hear of it when the others have given it up."""
        for site in self.net.sites.values():
            with contextlib.suppress(ConfigError):  # it has not heard of it
                site.operator.follow(site.operator.call("GET", f"/runs/{run_id}"))
        until = time.monotonic() + 2 * DEADLINES.run
        while problem := self._under_way(run_id):
            assert time.monotonic() < until, problem
            time.sleep(0.1)

    def _under_way(self, run_id: str) -> str:
        """Which site has not come to the end of a run, or keeps what could replay it; empty if none does."""
        for name, home in self._homes().items():
            if (home.history.run(run_id) or {}).get("state") == "open":
                return f"a run without an end at {name}"
            if any(path.name in ("key", "journal") for path in (home.folder / "runs" / run_id).rglob("*")):
                return f"{name} keeps what could replay an ended run"
        return ""

    def _check(self, run_id: str, study: StudyFile) -> None:
        homes = self._homes()
        outcomes = {name: home.history.run(run_id) for name, home in homes.items()}
        models = {(home.folder / "releases" / run_id / "model.json") for home in homes.values()}
        contents = {path.read_bytes() for path in models if path.exists()}
        assert len(contents) <= 1, "sites have different models"
        if study is self.studies["exact"]:
            assert contents <= {self.model}, "the model is not that of the rows"
        ended = {name: outcome["state"] for name, outcome in outcomes.items() if outcome is not None}
        is_done = ended == dict.fromkeys(NAMES, "done")
        self.counts["done" if is_done else "given up" if "done" not in ended.values() else "done at some"] += 1
        for name, home in homes.items():
            home.audit.verify()
            home.ledger.verify()
            events = {entry["event"] for entry in home.history.entries_of(run_id)}
            charged = [entry.fields["run"] for entry in home.ledger.entries() if entry.kind == "charge"]
            assert len(charged) == len(set(charged)), f"{name} paid twice for a run"
            if study is self.studies["noisy"] and events & {"computing", "vector left"}:
                assert run_id in charged, f"{name} computed without paying"
            assert b"Traceback" not in (home.folder / "agent.err").read_bytes()

    def clean(self) -> None:
        """A run that nobody disturbs ends well."""
        ended = self.net.run(self.studies["noisy"])
        assert {name: each["state"] for name, each in ended.items()} == dict.fromkeys(NAMES, "done"), ended
