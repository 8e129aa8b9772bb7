"""Small tables, one file per site, and agents of one process over the memory courier."""

from __future__ import annotations

import asyncio
import functools
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from blindbayes.agent.agent import Agent
from blindbayes.agent.runs.run import AgentRun
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.disclosure.policy import DEFAULT_PROTOCOLS, Policy
from blindbayes.net.envelope import Sealed, unpack
from blindbayes.net.sessions import Timing
from blindbayes.study.file import StudyFile
from blindbayes.study.tasks import registry as tasks
from blindbayes.testing.loopback import Loopback, open_policy
from support.clock import bounded as bounded
from support.hub import MemoryHub

BOOK = Codebook(
    "class", ("ill", "well"), (Categorical("colour", ("red", "blue", "green")), Numeric("age", 0, 120)), max_rows=100_000
)
FAST = Timing(beat=0.1, retry=0.1)
CANARY = "canary-4711"


@functools.cache
def duckdb_file(*statements: str) -> bytes:
    """A DuckDB file, made once: to make its tables anew was a quarter of a small office's time."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")) as folder:
        path = Path(folder) / "rows.duckdb"
        with duckdb.connect(str(path)) as connection:
            for statement in statements:
                connection.execute(statement)
        return path.read_bytes()


LOOSE = open_policy(min_cell=0)
"""Tests over columns compare with pooled training: no counter is set to 0."""


def paper_policy(**fields: Any) -> Policy:
    """A policy that allows the papers' protocols besides the product's."""
    added = (name for name in tasks.names() if name not in tasks.own_names())
    return open_policy(**{"protocols": (*DEFAULT_PROTOCOLS, *added), "min_cell": 0, **fields})


def make_rows(folder: Path, names: Sequence[str], *, rows: int = 40, seed: int = 7) -> dict[str, str | None]:
    """A DuckDB file per site; the sources by site."""
    rng = np.random.default_rng(seed)
    sources: dict[str, str | None] = {}
    for name in names:
        records = [
            (BOOK.classes[rng.integers(2)], ("red", "blue", "green")[rng.integers(3)], float(rng.integers(0, 121)))
            for _ in range(rows)
        ]
        path = folder / f"{name}.duckdb"
        path.write_bytes(
            duckdb_file(
                "create table visits(class varchar, colour varchar, age double)",
                *([f"insert into visits values {', '.join(map(repr, records))}"] if records else []),
            )
        )
        sources[name] = f"duckdb:///{path}#visits"
    return sources


class Office:
    """Agents in one process. `stop` and `start` of one of them are a crash and a restart."""

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        *,
        policy: Policy | None = None,
        hub: MemoryHub | None = None,
        rows: Mapping[str, str | None] | None = None,
        timing: Timing = FAST,
    ) -> None:
        self.timing = timing
        folder.mkdir(parents=True, exist_ok=True)
        self.net = Loopback(folder / "sites", make_rows(folder, names) if rows is None else rows, policy=policy or LOOSE)
        self.hub = hub or MemoryHub()
        self.agents: dict[str, Agent] = {}

    async def __aenter__(self) -> Office:
        for name in self.net.sites:
            await self.start(name)
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in list(self.agents):
            await self.stop(name)

    async def start(self, name: str) -> Agent:
        site = self.net.sites[name]
        agent = Agent(site.home, site.identity, self.hub.courier(name), timing=self.timing)
        self.agents[name] = agent
        await agent.start()
        return agent

    async def stop(self, name: str) -> None:
        await self.agents.pop(name).stop()

    async def run(self, study: StudyFile, *, by: str | None = None) -> dict[str, AgentRun]:
        """Begin at one site, wait for the end at all that came."""
        first = self.agents[by or next(iter(self.agents))]
        run = first.begin(study.sha256)
        await run.done.wait()
        return await self.ended(run.run_id)

    async def ended(self, run_id: str) -> dict[str, AgentRun]:
        found = {name: agent.runs[run_id] for name, agent in self.agents.items() if run_id in agent.runs}
        for run in found.values():
            await run.done.wait()
        return found


class Gate:
    """Lets a number of messages of one site pass, then holds all its frames back."""

    def __init__(self, site: str, messages: int) -> None:
        self.site, self.left = site, messages
        self.shut = asyncio.Event()

    def __call__(self, sender: str, to: str, frame: bytes) -> list[bytes]:
        envelope = unpack(frame)
        if sender == self.site and isinstance(envelope, Sealed) and envelope.step[0].isupper():
            self.left -= 1
            if self.left < 0:
                self.shut.set()
        return [] if self.shut.is_set() and sender == self.site else [frame]
