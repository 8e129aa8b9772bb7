"""Folders that lost or gained something: the agent refuses with a typed error that names the file and the next step."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from blindbayes.agent.client import OperatorClient
from blindbayes.agent.config import SiteConfig
from blindbayes.agent.runs.folders import RunFolders
from blindbayes.agent.runs.role_runner import SiteServices, _open_journal
from blindbayes.agent.runs.run import AgentRun
from blindbayes.agent.store import backup as backups
from blindbayes.agent.store.backup import acknowledge, backup, restore
from blindbayes.agent.store.folder import SiteFolder, sole_agent
from blindbayes.errors import ConfigError, LedgerError, LocalProtocolError
from blindbayes.study.file import Deadlines, Privacy
from support.sites import BOOK, Office, bounded

NAMES = ("north", "south", "west")
PHRASE = "a long passphrase"


@pytest.mark.parametrize("lost", [1, 2])
def test_a_ledger_that_lost_its_last_lines_pays_for_no_further_run(tmp_path: Path, lost: int) -> None:
    """Only the head before the charge stood in the audit log: five runs at epsilon 1 left a ledger that said 2."""

    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = office.net.make_study(BOOK, privacy=Privacy(epsilon=1.0), deadlines=Deadlines(step=20, join=20, run=35))
            office.net.approve(study, runs=3)
            for _ in range(lost):
                assert {run.state for run in (await office.run(study)).values()} == {"done"}
            await office.stop("south")
            ledger = office.net.sites["south"].home.ledger.path
            ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-lost]))
            site = office.net.sites["south"]
            site.home = SiteFolder.open(site.home.folder)  # as a new process reads it
            south = await office.start("south")
            with pytest.raises(LedgerError, match=r"lacks entry \d+, which this site's audit log has seen"):
                south.begin(study.sha256)

    bounded(test)


@pytest.mark.parametrize("damage", ["deleted", "emptied", "begun anew"])
def test_a_folder_without_its_audit_log_is_no_new_site(tmp_path: Path, damage: str) -> None:
    """It started as one that had never revealed anything."""
    home, _ = SiteFolder.create(tmp_path / "north", "north", config=SiteConfig(), epsilon="10")
    if damage == "deleted":
        home.audit.path.unlink()
    else:
        home.audit.path.write_bytes(b"")
    if damage == "begun anew":
        SiteFolder(home.folder, home.config).audit.append("policy", rules=[])
    with pytest.raises(LedgerError, match=r"audit\.log .* bring back the newest"):
        SiteFolder.open(home.folder)


def test_a_run_that_ended_before_its_journal_began_does_not_stay_open(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = office.net.make_study(BOOK)
            await office.stop("south")
            home, run, batch = office.net.sites["south"].home, "ab" * 16, "cd" * 16 + "ef" * 16
            for run_id, kind in ((run, "sum"), (batch, "prediction")):
                home.audit.append(
                    "joined", run=run_id, study=study.sha256, roster=study.sha256, proposed_by="north", kind=kind, title="t"
                )
            home.runs.folder(batch).mkdir(parents=True)
            (home.runs.folder(batch) / "request.json").write_text('{"rows": "postgres://name:password@host/db"}')
            await office.start("south")
            shown = {each["run"]: each["state"] for each in home.history.runs()}
            assert shown == {run: "burned", batch: "burned"}
            assert home.runs.outcome(run) is not None
            assert home.runs.outcome(batch) is None  # nothing was sent: the batch may be asked for again
            assert not (home.runs.folder(batch) / "request.json").exists()

    bounded(test)


@pytest.mark.parametrize("call", ["end", "erase_leftovers", "erase_journals"])
def test_an_agent_that_starts_on_a_full_disk_says_so_and_ends_interrupted_runs_later(tmp_path: Path, call: str) -> None:
    """The operating system's error came out of `Agent.start`."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = office.net.make_study(BOOK)
            await office.stop("south")
            home, run = office.net.sites["south"].home, "ab" * 16
            facts = {"proposed_by": "north", "kind": "sum", "title": "t"}
            home.audit.append("joined", run=run, study=study.sha256, roster=study.sha256, **facts)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(RunFolders, call, full)
                with pytest.raises(ConfigError, match=r"No space left on device.*: free some space"):
                    await office.start("south")
            await office.start("south")  # what the first one began is stopped: its courier has left
            assert {each["run"]: each["state"] for each in home.history.runs()} == {run: "burned"}

    bounded(test)


def test_that_nothing_ran_is_not_accepted_once_the_agent_has_burned_a_run_of_the_backup(tmp_path: Path) -> None:
    """The run went on after the backup; the burned entry of the next start hid that it had been under way."""

    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            await office.stop("south")
            home = office.net.sites["south"].home
            home.audit.append("joined", run="ab" * 16, study="5" * 64, proposed_by="north", kind="sum", title="t")
            home.audit.append("restored", of="2026-01-01T00:00:00Z", at=1)
            await office.start("south")
            with pytest.raises(ConfigError, match="was under way at the backup"):
                acknowledge(home, "disk lost", nothing_ran=True)
            acknowledge(home, "disk lost", epsilon=0.0, delta=0.0)

    bounded(test)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    home, _ = SiteFolder.create(tmp_path / "north", "north", config=SiteConfig(), epsilon="10")
    (home.folder / "agent.lock").mkdir()  # as root a mode does not keep a file from being written
    with pytest.raises(ConfigError, match=r"agent\.lock .* make the site's folder writable"), sole_agent(home.folder):
        pass


def test_a_backup_with_a_name_that_no_file_can_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, _ = SiteFolder.create(tmp_path / "north", "north", config=SiteConfig(), epsilon="10")
    add = backups._add
    monkeypatch.setattr(backups, "_add", lambda tar, name, content: add(tar, name.replace("card.toml", "x" * 300), content))
    backup(home, tmp_path / "backup", PHRASE)
    with pytest.raises(ConfigError, match="holds no folder of a site"):
        restore(tmp_path / "backup", tmp_path / "new", PHRASE)


def test_an_interrupted_backup_leaves_no_file_and_no_log_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, _ = SiteFolder.create(tmp_path / "north", "north", config=SiteConfig(), epsilon="10")
    out = tmp_path / "backup"

    def killed(*_: object) -> int:
        assert not out.exists()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(backups, "_add", killed)
        with pytest.raises(KeyboardInterrupt):
            backup(home, out, PHRASE)
    assert home.audit.where("event", "backed up") == []
    assert backup(home, out, PHRASE) > 3
    assert len(home.audit.where("event", "backed up")) == 1
    with pytest.raises(ConfigError, match="exists already"):
        backup(home, out, PHRASE)


def test_a_run_that_computed_and_lost_its_journal_draws_no_other_coins(tmp_path: Path) -> None:
    """What it opened would be opened twice, with other noise, and paid for once."""
    study, home = "5" * 64, SimpleNamespace(runs=RunFolders(tmp_path), config=SiteConfig())
    home.history = SimpleNamespace(has_computed=lambda run_id: True)
    task = SimpleNamespace(digest=lambda name: b"d" * 32)
    roster = SimpleNamespace(sha256=study)
    run = SimpleNamespace(run_id="ab" * 16, work=SimpleNamespace(task=task))
    run.study = SimpleNamespace(roster=roster, sha256=study)
    site = SimpleNamespace(home=home, identity=SimpleNamespace(storage_key=bytes(32)))
    with pytest.raises(LocalProtocolError, match="its journal is gone"):
        _open_journal("north", cast(AgentRun, run), cast(SiteServices, site), {})
    assert not (tmp_path / ("ab" * 16) / "north").exists()


@pytest.mark.parametrize("state", ["burned", "stopped", "failed", "done"])
def test_following_a_run_ends_with_it_whatever_its_end(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that a restart had burned was asked for 50 times a second, for ever (found by tests/system)."""
    client = object.__new__(OperatorClient)
    answers = iter(({"run": "ab", "state": "running", "text": "2 of 3 sites"}, {"run": "ab", "state": state, "text": state}))
    monkeypatch.setattr(client, "call", lambda *_: next(answers), raising=False)
    assert client.follow({"run": "ab", "state": "reading", "text": "reading"})["state"] == state
