"""People stop a run, at any step: every site is told who did, nothing is paid for or leaves afterwards, and it stays so."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from blindbayes.agent.agent import Agent
from blindbayes.agent.runs import role_runner
from blindbayes.agent.runs.state import StopLatch
from blindbayes.agent.store.folder import sole_agent
from blindbayes.cli import main
from blindbayes.errors import ConfigError, PrivacyError, RunStopped
from blindbayes.study.file import Deadlines, Privacy, StudyFile
from support.hub import MemoryHub
from support.sites import BOOK, Office, bounded

NAMES = ("north", "south", "west")
PATIENT = Deadlines(step=20, join=20, run=35)


def noisy_study(office: Office, **fields: Any) -> StudyFile:
    privacy = Privacy(epsilon=1.0, delta=1e-6)
    study: StudyFile = office.net.make_study(BOOK, privacy=privacy, deadlines=PATIENT, **fields)
    office.net.approve(study, runs=2)
    return study


def log_of(agent: Agent, run: str) -> list[str]:
    return [entry["event"] for entry in agent.home.history.entries_of(run)]


@pytest.mark.parametrize("frame", [1, 6, 12, 18, 24, 30, 36])
def test_a_run_is_stopped_at_any_step_and_every_site_hears_who_did(tmp_path: Path, frame: int) -> None:
    async def test() -> None:
        seen = 0
        now = asyncio.Event()

        def count(sender: str, to: str, raw: bytes) -> list[bytes]:
            nonlocal seen
            if sender == "south":
                seen += 1
                if seen == frame:
                    now.set()
            return [raw]

        async with Office(tmp_path, NAMES, hub=MemoryHub(count)) as office:
            study = noisy_study(office)
            south = office.agents["south"]
            run = south.begin(study.sha256)
            waited = [asyncio.create_task(each.wait()) for each in (now, run.done)]
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            for each in waited:
                each.cancel()
            try:
                await south.stop_run(run.run_id, "the wrong month", "Ada")
            except ConfigError:  # it was through
                await run.done.wait()
                assert run.state == "done"
                return
            runs = await office.ended(run.run_id)
            events = log_of(south, run.run_id)
            for name, each in runs.items():
                if each.state == "done":  # nobody comes to the end without south's last word, and it was given before
                    assert name != "south"
                    assert "survivors confirmed" in events[: events.index("stopped")]
                    continue
                assert isinstance(each.error, RunStopped), (name, each.error)
                assert "stopped at south" in str(each.error)
                told = office.agents[name].home.history.entries_of(run.run_id)
                assert [entry["state"] for entry in told if entry["event"] == "ended"] == ["stopped"]
            assert {"computing", "vector left", "survivors confirmed", "opened"}.isdisjoint(events[events.index("stopped") :])
            paid = [entry for entry in south.home.ledger.entries() if entry.kind == "charge"]
            assert len(paid) == events.count("computing")
            assert [entry["who"] for entry in south.home.history.entries_of(run.run_id) if entry["event"] == "stopped"] == [
                "Ada"
            ]
            assert south.home.runs.outcome(run.run_id)["state"] == "stopped"  # type: ignore[index]

    bounded(test)


def test_a_run_that_waits_for_others_is_stopped_and_costs_neither_budget_nor_approval(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = noisy_study(office)
            await office.stop("west")
            run = office.agents["north"].begin(study.sha256)
            while "south" not in office.agents or run.run_id not in office.agents["south"].runs:
                await asyncio.sleep(0.01)
            await office.agents["north"].stop_run(run.run_id, "west is away", "Ada")
            runs = await office.ended(run.run_id)
            assert {type(each.error) for each in runs.values()} == {RunStopped}
            for agent in office.agents.values():
                assert not agent.home.history.starts(study.sha256)
                assert not agent.home.ledger.has_paid(run.run_id)
            with pytest.raises(ConfigError, match="under way"):
                await office.agents["north"].stop_run(run.run_id, "again", "Ada")
            await office.start("west")
            assert (await office.run(study))["west"].state == "done"

    bounded(test)


def test_a_run_that_is_through_is_not_stopped_and_nothing_is_written_of_it() -> None:
    gate, written = StopLatch(), []
    gate.leave()
    with pytest.raises(ConfigError, match="has ended here"):
        gate.close(RunStopped("people"), lambda: written.append("stopped"))
    assert written == []
    with gate.passing():  # its result may still be written
        pass


def test_what_was_stopped_stays_stopped_after_a_crash(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = noisy_study(office)
            await office.stop("west")
            south = office.agents["south"]
            run = south.begin(study.sha256)
            while not run.roles or run.run_id not in office.agents["north"].runs:
                await asyncio.sleep(0.01)
            south.home.audit.append("stopped", run=run.run_id, study=study.sha256, who="Ada", why="and the power failed")
            await office.stop("south")
            assert south.home.runs.outcome(run.run_id) is None
            south = await office.start("south")
            assert south.home.runs.outcome(run.run_id)["state"] == "stopped"  # type: ignore[index]
            assert run.run_id not in south.runs
            north = (await office.ended(run.run_id))["north"]
            assert isinstance(north.error, RunStopped)
            assert "stopped at south" in str(north.error)

    bounded(test)


def test_a_burned_site_takes_up_no_run_from_an_older_state(tmp_path: Path) -> None:
    """Its disk was set back: a run taken up would send other messages under the secrets of those that left."""

    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = noisy_study(office)
            await office.stop("west")
            run = office.agents["south"].begin(study.sha256)
            while not run.roles or run.run_id not in office.agents["north"].runs:
                await asyncio.sleep(0.01)
            await office.stop("south")
            home = office.net.sites["south"].home
            with sole_agent(home.folder), pytest.raises(SystemExit):  # as while the agent runs
                main(["site", "burn", "--config", str(home.folder)])
            assert home.runs.outcome(run.run_id) is None
            main(["site", "burn", "--config", str(home.folder)])
            south = await office.start("south")
            assert run.run_id not in south.runs
            assert not list(south.home.runs.folder(run.run_id).glob("*/journal"))
            north = (await office.ended(run.run_id))["north"]
            assert isinstance(north.error, RunStopped)
            assert "stopped at south" in str(north.error)

    bounded(test)


def test_a_run_whose_table_is_still_read_is_stopped_for_the_others_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        import threading

        reading, go_on = threading.Event(), threading.Event()
        async with Office(tmp_path, NAMES) as office:
            study = noisy_study(office)
            south = office.agents["south"]
            count = type(south.home.tables).count

            def slow(tables: Any, *args: Any, **options: Any) -> Any:
                if tables is south.home.tables:
                    reading.set()
                    go_on.wait(20)
                return count(tables, *args, **options)

            monkeypatch.setattr(type(south.home.tables), "count", slow)
            run = office.agents["north"].begin(study.sha256)
            await asyncio.to_thread(reading.wait, 20)
            await south.stop_run(run.run_id, "not today", "Ben")
            assert south.runs[run.run_id].text() == "stopping"
            await run.done.wait()
            assert isinstance(run.error, RunStopped)
            go_on.set()
            assert isinstance((await office.ended(run.run_id))["south"].error, RunStopped)
            with pytest.raises(PrivacyError):
                south.begin("0" * 64)

    bounded(test, wall=True)  # a thread waits for the run


def test_a_thread_that_still_decides_when_its_agent_ends_charges_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went on after the site's lock was free: the next agent could decide at the same time, about another set of sites."""
    arrived, go_on, over = threading.Event(), threading.Event(), threading.Event()
    first_step = role_runner.RoleRunner.before_first_step

    def slowly(self: role_runner.RoleRunner) -> None:
        if self.name == "south" and not over.is_set():
            arrived.set()
            go_on.wait(60)
            try:
                first_step(self)
            finally:
                over.set()
        else:
            first_step(self)

    monkeypatch.setattr(role_runner.RoleRunner, "before_first_step", slowly)

    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = noisy_study(office)
            south = office.agents["south"]
            run = south.begin(study.sha256)
            await asyncio.to_thread(arrived.wait, 60)
            await office.stop("south")
            go_on.set()
            assert await asyncio.to_thread(over.wait, 60)
            assert not south.home.ledger.has_paid(run.run_id)
            assert "computing" not in log_of(south, run.run_id)
            again = await office.start("south")  # which takes the run up, and pays for it
            await again.runs[run.run_id].done.wait()
            assert again.runs[run.run_id].state == "done"
            assert again.home.ledger.charges_of(study.sha256) == 1

    bounded(test)
