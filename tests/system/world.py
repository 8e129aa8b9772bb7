"""A consortium in one process that lives through a list of operations, and what must hold whatever the list is.

Time is virtual and messages take milliseconds of it, so that an operation falls into the midst of a run. A list is data: what
fails can be stored, made smaller and run again.

The operations: start, stop, kill, approve, run, wait, tick, backup, restore, join, leave, change, cut, heal, fill, free, clock,
deviate, repent. One that makes no sense at the moment (to start what runs) does nothing, so that every sublist is a list.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import random
import shutil
import time
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from blindbayes.agent.agent import Agent
from blindbayes.agent.runs.run import AgentRun
from blindbayes.agent.store import backup as backups
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.errors import BlindbayesError, IntegrityError
from blindbayes.net.journal import Journal
from blindbayes.net.link import Link
from blindbayes.study.file import Deadlines, Limits, Privacy, StudyFile
from blindbayes.study.roster import Change, Party
from blindbayes.testing.loopback import open_policy
from support.clock import LeapingLoop
from support.hub import MemoryHub
from support.light_backups import make_light
from support.mutations import mutated
from support.sites import BOOK, FAST, Office, duckdb_file, make_rows

FOUNDERS, EAST = ("north", "south", "west"), "east"
NAMES = (*FOUNDERS, EAST)
PHRASE = "a long passphrase"
DEADLINES = Deadlines(step=20, join=20, run=60)
Operation = list[Any]
_ENDS = {"done", "failed", "refused", "stopped", "burned"}


class SlowHub(MemoryHub):
    """Every frame takes 1 to 20 ms of virtual time, in order."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng, self._due = rng, dict[tuple[str, str], float]()

    def _carry(self, sender: str, to: str, frame: bytes) -> None:
        loop = asyncio.get_running_loop()
        due = max(self._due.get((sender, to), 0.0), loop.time()) + self._rng.uniform(0.001, 0.02)
        self._due[sender, to] = due
        loop.call_at(due, self._arrive, sender, to, frame)

    def _arrive(self, sender: str, to: str, frame: bytes) -> None:
        if self._is_up(sender, to):  # what was under way when a connection broke is lost
            super()._carry(sender, to, frame)


class World:
    """See the module. `monkeypatch` lets disks fill and clocks jump."""

    def __init__(self, folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.rng = folder, random.Random(seed)
        folder.mkdir(parents=True)
        make_light(monkeypatch)
        policy = open_policy(min_cell=0, max_runs_per_day=10_000, max_epsilon_per_run=2.0)
        hub = SlowHub(self.rng)
        self.office = Office(folder, NAMES, hub=hub, timing=FAST, policy=policy, rows=make_rows(folder, NAMES))
        self.versions = {name: [0] for name in NAMES}  # of each site's rows, in order
        self._keep_rows(NAMES)
        self.exact = self._study(FOUNDERS, title="exact", limits=Limits(quorum=3))
        self.noisy = self._study(FOUNDERS, title="noisy", privacy=Privacy(epsilon=0.01), limits=Limits(min_parties=2))
        self.runs: dict[str, tuple[str, dict[str, int]]] = {}  # run -> study's title, version of all rows when it began
        self.restored: set[str] = set()
        self.deviating: set[str] = set()
        self.deviated: set[str] = set()
        self.room: dict[str, int] = {}  # how many writes the disk of a site still takes, where it fills up
        self.written: list[str] = []  # files, by the writes and syncs of disks that fill up
        self.was_full: set[str] = set()
        self.cuts: set[frozenset[str]] = set()
        self.backups: set[str] = set()
        self.problems: list[str] = []
        self.done = 0
        self._patch(monkeypatch)

    # -- how a world is made -------------------------------------------------------------------------------------------

    def _study(self, names: Iterable[str], **fields: Any) -> StudyFile:
        parties = tuple(map(self._party, names))
        study: StudyFile = self.office.net.make_study(BOOK, parties=parties, deadlines=DEADLINES, **fields)
        return study

    def _party(self, name: str) -> Party:
        card = self.office.net.sites[name].identity.card
        return Party(name, card.identity.hex(), key=card.key)

    def _patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jumped, real = 0.0, time.time
        monkeypatch.setattr(time, "time", lambda: real() + self.jumped)

        def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
            def write(handle: int, *rest: Any) -> Any:
                if self.room:
                    path = Path(os.readlink(f"/proc/self/fd/{handle}"))
                    name = next((each for each in self.room if path.is_relative_to(self._home(each).folder)), None)
                    if name is not None and self.room[name] <= 0:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    if name is not None:
                        self.room[name] -= 1
                        self.written.append(path.name)
                return call(handle, *rest)

            return write

        for name in ("write", "pwrite", "fsync", "fdatasync"):  # write_whole fails at its fsync
            monkeypatch.setattr(os, name, guarded(getattr(os, name)))
        honest = Link.post_now

        def post_now(link: Link, step: str, payload: bytes) -> None:
            if link.pair.me in self.deviating:
                self.deviated.add(link.pair.run_id)
                payload = mutated(payload, self.rng) if self.rng.random() < 0.7 else payload
            honest(link, step, payload)

        monkeypatch.setattr(Link, "post_now", post_now)

    def _home(self, name: str) -> SiteFolder:
        return self.office.net.sites[name].home

    def _rows(self, name: str, version: int) -> Path:
        return self.folder / f"{name}-{version}.duckdb"

    def _keep_rows(self, names: Iterable[str]) -> None:
        for name in names:
            shutil.copy(self.folder / f"{name}.duckdb", self._rows(name, self.versions[name][-1]))

    # -- living --------------------------------------------------------------------------------------------------------

    def live(self, operations: Iterable[Operation]) -> None:
        """Do the operations, put everything right, run once more, and check. Raises `AssertionError`."""
        loop = LeapingLoop()
        loop.set_exception_handler(
            lambda _, context: self.problems.append(repr(context.get("exception") or context["message"]))
        )
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._live(list(operations)))
        assert self.problems == []

    async def _live(self, operations: list[Operation]) -> None:
        async with asyncio.timeout(3600 * (1 + len(operations))):
            for name in NAMES:
                await self.start(name)
            await self.approve()
            for kind, *given in operations:
                await getattr(self, kind)(*given)
            await self._settle()
            await self._check()
            for name in list(self.office.agents):
                await self.stop(name)

    async def start(self, name: str) -> None:
        if name in self.office.agents:
            return
        site = self.office.net.sites[name]
        try:
            site.home = SiteFolder.open(site.home.folder)
            await self.office.start(name)
        except BlindbayesError:
            self.office.agents.pop(name, None)  # a full disk

    async def stop(self, name: str) -> None:
        if name in self.office.agents:
            await self.office.stop(name)

    async def kill(self, name: str) -> None:
        """Nothing that waits in memory is written any more."""
        flush = Journal._flush
        try:
            Journal._flush = lambda _: None  # type: ignore[method-assign]
            await self.stop(name)
        finally:
            Journal._flush = flush  # type: ignore[method-assign]

    async def approve(self) -> None:
        for study in (self.exact, self.noisy):
            for name in study.names:
                self._quietly(lambda name=name, study=study: self._home(name).approvals.approve(study, runs=100_000))

    async def run(self, title: str, name: str) -> None:
        study = self.exact if title == "exact" else self.noisy
        agent = self.office.agents.get(name)
        if agent is not None and name in study.names:
            begun = {each: versions[-1] for each, versions in self.versions.items()}
            with contextlib.suppress(BlindbayesError):
                self.runs[agent.begin(study.sha256).run_id] = (title, begun)
        await asyncio.sleep(0)

    async def wait(self) -> None:
        """Until every run at every running site has ended, those that sites join meanwhile too."""
        while under_way := [run for agent in self.office.agents.values() for run in agent.runs.values() if run.is_open]:
            for run in under_way:
                await run.done.wait()

    async def tick(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def backup(self, name: str) -> None:
        path = self.folder / f"{name}.backup"
        path.unlink(missing_ok=True)
        self.backups.discard(name)
        if self._quietly(lambda: backups.backup(self._home(name), path, PHRASE)):
            self.backups.add(name)

    async def restore(self, name: str) -> None:
        """Its disk is lost, and its people do what the manual says, with the worst case that they know."""
        if name not in self.backups or self.room:
            return
        await self.kill(name)
        home = self._home(name)
        spent, folder = home.ledger.balance().spent_epsilon, home.folder
        shutil.rmtree(folder)
        site = self.office.net.sites[name]
        site.home = backups.restore(self.folder / f"{name}.backup", folder, PHRASE)
        more = max(0.0, spent - site.home.ledger.balance().spent_epsilon)
        backups.acknowledge(site.home, "its disk is lost", epsilon=more, delta=0.0)
        assert site.home.ledger.balance().spent_epsilon >= spent - 1e-9, "a restore forgot what was spent"
        self.restored.add(name)
        for other in NAMES:
            if other != name:
                self._quietly(lambda other=other: self._home(other).audit.append("forgot", site=name, why="they called us"))
        await self.approve()
        await self.start(name)

    async def join(self) -> None:
        await self._change_roster(EAST not in self.noisy.names, add=(self._party(EAST),))

    async def leave(self) -> None:
        await self._change_roster(EAST in self.noisy.names, remove=(EAST,))

    async def _change_roster(self, makes_sense: bool, **fields: Any) -> None:
        if makes_sense:
            study = self.noisy.change(Change(self.noisy.roster.sha256, **fields))
            for name in study.roster.signers:
                study = study.sign_change(name, self.office.net.sites[name].identity.signing)
            self.noisy = study
            await self.approve()

    async def change(self, name: str) -> None:
        self.versions[name].append(len(self.versions[name]))
        rng = random.Random(f"{name} {self.versions[name][-1]}")
        rows = [(rng.choice(BOOK.classes), rng.choice(("red", "blue", "green")), float(rng.randrange(121))) for _ in range(30)]
        table = "create table visits(class varchar, colour varchar, age double)"
        draft = self.folder / "draft.duckdb"
        draft.write_bytes(duckdb_file(table, f"insert into visits values {', '.join(map(repr, rows))}"))
        draft.rename(self.folder / f"{name}.duckdb")
        self._keep_rows([name])

    async def cut(self, one: str, other: str) -> None:
        if one != other:
            self.cuts.add(frozenset((one, other)))
            self.office.hub.cut(one, other)

    async def heal(self, one: str, other: str) -> None:
        if frozenset((one, other)) in self.cuts:
            self.cuts.discard(frozenset((one, other)))
            self.office.hub.mend(one, other)

    async def fill(self, name: str, writes: int) -> None:
        """Its disk takes this number of writes and no more: any of them can be the last."""
        self.room[name] = writes
        self.was_full.add(name)

    async def free(self, name: str) -> None:
        self.room.pop(name, None)

    async def clock(self, days: float) -> None:
        self.jumped += 86400.0 * days

    async def deviate(self, name: str) -> None:
        self.deviating.add(name)

    async def repent(self, name: str) -> None:
        self.deviating.discard(name)

    def _quietly(self, work: Callable[[], object]) -> bool:
        """Whether it was done; a refusal is an answer, and any other error a finding. People see that their disk is full."""
        try:
            work()
        except BlindbayesError:
            return False
        except OSError as error:
            if error.errno != errno.ENOSPC or not self.room:
                raise
            return False
        return True

    # -- what must hold ------------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Honest people put everything right: room on disks, links, agents, the clock; then all runs end."""
        self.room.clear()
        self.deviating.clear()
        self.jumped = 0.0
        for one, other in [sorted(each) for each in self.cuts]:
            await self.heal(one, other)
        for name in NAMES:
            await self.stop(name)  # what waits for room is written after a restart
            await self.start(name)
        assert set(self.office.agents) == set(NAMES), "an agent did not start again"
        await self.wait()
        await self.approve()
        before = set(self.runs)
        await self.run("noisy", "north")
        (last,) = set(self.runs) - before
        await self.wait()
        ended = {
            name: self.office.agents[name].runs[last] for name in self.noisy.names if last in self.office.agents[name].runs
        }
        told = {name: run.state if run.error is None else str(run.error) for name, run in ended.items()}
        assert told == dict.fromkeys(self.noisy.names, "done"), "a clean run at the end"

    async def _check(self) -> None:
        for name in NAMES:
            home, agent = self._home(name), self.office.agents[name]
            home.audit.verify()
            home.ledger.verify()
            self._check_ends(name, home, agent)
            self._check_charges(name, home)
        for run_id, (title, begun) in self.runs.items():
            self._check_result(run_id, title, begun)

    def _check_ends(self, name: str, home: SiteFolder, agent: Agent) -> None:
        for run in agent.runs.values():
            self._check_error(name, run)
        shown = home.history.runs()
        assert {each["state"] for each in shown} <= _ENDS, (name, [each for each in shown if each["state"] not in _ENDS])
        left = [path for path in home.folder.rglob("*") if path.name in ("key", "journal", "request.json")]
        assert left == [], f"{name} keeps what could replay an ended run"

    def _check_error(self, name: str, run: AgentRun) -> None:
        assert not run.is_open, f"{name} waits for ever"
        assert run.error is None or isinstance(run.error, BlindbayesError), (name, run.error)
        if run.error is not None and run.run_id not in self.deviated:
            accused = run.error.party if isinstance(run.error, IntegrityError) else None
            assert accused is None, f"{name} accuses {accused}, and all were honest"
            is_own = isinstance(run.error, IntegrityError) and name not in self.was_full  # a key that is half erased
            assert not is_own, f"{name} finds its own records damaged"

    def _check_charges(self, name: str, home: SiteFolder) -> None:
        """A noisy run costs once where something of the vector may have left, and never twice."""
        charged = [entry.fields.get("run") for entry in home.ledger.entries() if entry.kind == "charge"]
        assert len(charged) == len(set(charged) - {None}) + charged.count(None), f"{name} paid twice for a run"
        noisy = {run for run, (title, _) in self.runs.items() if title == "noisy"}
        for run_id in noisy:
            events = {entry["event"] for entry in home.history.entries_of(run_id)}
            if events & {"computing", "vector left"}:
                assert run_id in charged, f"{name} computed without paying"
            if (home.folder / "releases" / run_id / "model.json").exists() and name in self.noisy.contributors:
                assert run_id in charged or name in self.restored, f"{name} has a release that it did not pay for"

    def _check_result(self, run_id: str, title: str, begun: dict[str, int]) -> None:
        paths = {name: self._home(name).folder / "releases" / run_id / "model.json" for name in NAMES}
        models = {path.read_bytes() for path in paths.values() if path.exists()}
        self.done += bool(models)
        if run_id in self.deviated:
            return  # a liar's own input may be anything; what it may not do is checked above
        assert len(models) <= 1, "sites have different models of one run"
        if models and title == "exact":
            assert models <= set(self._possible(begun)), "the model is not that of the sites' rows"

    def _possible(self, begun: dict[str, int]) -> Iterable[bytes]:
        """The models of all rows that the founders had since the run began."""
        versions = [self.versions[name][self.versions[name].index(begun[name]) :] for name in FOUNDERS]
        for chosen in product(*versions):
            out = self.folder / "expected" / "-".join(map(str, chosen))
            if not out.exists():
                places = {name: f"duckdb:///{self._rows(name, at)}#visits" for name, at in zip(FOUNDERS, chosen, strict=True)}
                self.exact.study.simulate(places).save(out)
            yield (out / "model.json").read_bytes()


def drawn(rng: random.Random, length: int) -> list[Operation]:
    """A list of operations that tends to have runs under way."""
    found: list[Operation] = []
    while len(found) < length:
        site, other = rng.sample(NAMES, 2)
        match rng.randrange(20):
            case 0 | 1 | 2 | 3 | 4:
                found.append(["run", rng.choice(("exact", "noisy", "noisy")), rng.choice(FOUNDERS)])
            case 5 | 6 | 7:
                found.append(["tick", round(rng.choice((0.02, 0.1, 0.3, 1.0, 25.0)) * rng.uniform(0.5, 1.5), 4)])
            case 8 | 9:
                found.append(["kill", site])
            case 10 | 11:
                found.append(["start", site])
            case 12:
                found.append(["stop", site])
            case 13:
                found.append(rng.choice((["backup", site], ["restore", site])))
            case 14:
                found.append(rng.choice((["join"], ["leave"])))
            case 15:
                found.append(["change", rng.choice(FOUNDERS)])
            case 16:
                found.append(rng.choice((["cut", site, other], ["heal", site, other])))
            case 17:
                found.append(rng.choice((["fill", site, rng.randrange(60)], ["free", site], ["free", other])))
            case 18:
                found.append(rng.choice((["clock", rng.choice((-400, -1, 1, 400))], ["wait"])))
            case _:
                found.append(rng.choice((["deviate", site], ["repent", site], ["repent", other])))
    return found


def smaller(operations: list[Operation], fails: Callable[[list[Operation]], bool]) -> list[Operation]:
    """A list that still fails and from which nothing can be left out."""
    size = max(1, len(operations) // 2)
    while True:
        for at in range(0, len(operations), size):
            shorter = operations[:at] + operations[at + size :]
            if fails(shorter):
                operations = shorter
                break
        else:
            if size == 1:
                return operations
            size = max(1, size // 2)
