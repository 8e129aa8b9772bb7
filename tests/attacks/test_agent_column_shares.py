"""Attacks on shares at site agents: budgets of queries that come back, shares that rise again or belong to another."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from blindbayes.errors import ConfigError, DataError, LocalProtocolError, PrivacyError
from blindbayes.naive_bayes.shares import ModelShare
from blindbayes.study.file import Deadlines
from blindbayes.study.tasks.prediction import Request
from blindbayes.testing.loopback import Loopback
from support.column_sites import HURRY, ask, office_of, pair, predict, shares, small, trained
from support.sites import bounded


def share_at(path: Path, queries: int = 10) -> ModelShare:
    share = ModelShare("0" * 64, "hospital", {"run": "ab" * 16}, {}, {}, None, queries)
    share.save(path)
    return ModelShare.load(path)


def test_half_a_line_on_a_full_disk_is_no_charge_and_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short write was taken for a charge; the torn line then counted for nothing, and the batch was free."""
    share = share_at(tmp_path / "a.share")
    whole = os.write
    with monkeypatch.context() as patch:
        patch.setattr("blindbayes.naive_bayes.shares.os.write", lambda file, raw: whole(file, raw[: len(raw) // 2]))
        with pytest.raises(DataError, match="No space left"):
            share.charge(6, "one")
    assert share.spent == 0
    share.charge(6, "one")
    with pytest.raises(PrivacyError):
        share.charge(6, "two")
    assert share.spent == 6


@pytest.mark.parametrize("loss", ["removed", "older copy"])
def test_a_lost_record_of_charges_gives_no_budget_back(tmp_path: Path, loss: str) -> None:
    """Whoever removes the file beside the share, or brings an older one back, is held to the audit log."""
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split, options={"queries": 25}, deadlines=HURRY) as (office, study, model):
            beside = {name: site.home.folder / "shares" / f"{model}.share.spent" for name, site in office.net.sites.items()}
            for at in range(2):
                await predict(office, study, model, split.ask(tmp_path, small(10, seed=5)), f"batch {at}")
                if at == 0:
                    copies = {name: path.read_bytes() for name, path in beside.items()}
            for name, path in beside.items():
                path.unlink()
                if loss == "older copy":
                    path.write_bytes(copies[name])
            assert [each["spent"] for each in office.net.sites["hospital"].home.shares.all()] == [20]
            ended = await predict(office, study, model, split.ask(tmp_path, small(6, seed=6)), "free")
            assert {type(run.error) for run in ended.values()} == {PrivacyError}
            ended = await predict(office, study, model, split.ask(tmp_path, small(5, seed=6)), "the last five")
            assert [run.text() for run in ended.values()] == ["done", "done"]

    bounded(test)


def test_of_batches_asked_for_at_once_only_those_within_the_budget_run(tmp_path: Path) -> None:
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split, options={"queries": 25}, deadlines=Deadlines(step=4, join=4, run=30)) as (
            office,
            study,
            model,
        ):
            asked = split.ask(tmp_path, small(20, seed=5))
            both = await asyncio.gather(*(predict(office, study, model, asked, batch) for batch in ("one", "two")))
            done = [batch for batch in both if all(run.error is None for run in batch.values())]
            learned = [run for batch in both for run in batch.values() if run.release is not None]
            assert len(done) <= 1
            assert len(learned) <= len(split.holds)  # never both batches, whatever the order of the charges
            for share in shares(office.net, model).values():
                assert share.spent <= 25

    bounded(test)


def test_a_batch_whose_end_was_lost_is_not_classified_again_for_nothing(tmp_path: Path) -> None:
    """A careless hand clears runs/: the charge stands under the run's id, so other rows under the old name were free."""
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split, options={"queries": 15}, deadlines=HURRY) as (office, study, model):
            await predict(office, study, model, split.ask(tmp_path, small(10, seed=5)), "monday")
            for name, site in office.net.sites.items():
                await office.stop(name)
                shutil.rmtree(site.home.folder / "runs")
                shutil.rmtree(site.home.folder / "releases")
                await office.start(name)
            other = split.ask(tmp_path, small(10, seed=9))
            for name in split.holds:
                with pytest.raises(ConfigError, match="another name"):
                    ask(office, name, study, model, "monday", **other[name])
            assert {share.spent for share in shares(office.net, model).values()} == {10}

    bounded(test)


def test_a_charge_for_one_instance_pays_for_no_thousand(tmp_path: Path) -> None:
    """A run pays once, for what it asked: charged, then stopped by a full disk, it could be asked for again with more."""
    share = share_at(tmp_path / "a.share", queries=10_000)
    share.charge(1, "run")
    share.charge(1, "run")
    for refuse in (share.charge, share.require_budget):
        with pytest.raises(PrivacyError, match="for fewer instances"):
            refuse(1000, "run")
    assert share.spent == 1


@pytest.mark.parametrize("batch", ["two\nlines", "\x1b[2J", "a\u202eb", "x" * 201, "\ud800", ""])
def test_names_of_batches_that_deceive_are_refused(batch: str) -> None:
    with pytest.raises(ConfigError, match="name"):
        Request.from_dict({"model": "ab" * 16, "batch": batch, "rows": "a.csv"})


@pytest.mark.parametrize("count", [0, -1, -(10**15)])
def test_a_negative_batch_gives_no_budget_back(tmp_path: Path, count: int) -> None:
    share = share_at(tmp_path / "a.share")
    share.charge(10, "run")
    with pytest.raises(ConfigError, match="at least one instance"):
        share.charge(count, "other")
    assert share.spent == 10


def test_a_destroyed_share_does_not_come_back_with_a_run_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash between the share and the run's end; the operator destroys the share; the replay wrote it again, unspent."""
    from blindbayes.agent.runs import context as module

    split = pair()
    reached, go_on = threading.Event(), threading.Event()
    real = module.write_release

    def slow(folder: Path, *rest: Any) -> Path:
        if "hospital" in str(folder):
            reached.set()
            go_on.wait(20)
            raise LocalProtocolError("the process is gone")
        return real(folder, *rest)

    monkeypatch.setattr(module, "write_release", slow)

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net)
            office.net.approve(study)
            run_id = office.agents["hospital"].begin(study.sha256).run_id
            assert await asyncio.to_thread(reached.wait, 20)
            home = office.net.sites["hospital"].home
            path = home.folder / "shares" / f"{run_id}.share"
            assert path.exists()
            await office.stop("hospital")
            go_on.set()
            assert home.runs.interrupted() == [run_id]
            home.shares.destroy(run_id)
            assert not path.exists()
            monkeypatch.setattr(module, "write_release", real)
            hospital = await office.start("hospital")
            await hospital.runs[run_id].done.wait()
            assert isinstance(hospital.runs[run_id].error, ConfigError)
            assert "does not bring it back" in str(hospital.runs[run_id].error)
            assert not path.exists()
            assert not list(home.folder.glob("runs/*/*/key"))  # nor can a journal make it again

    bounded(test, wall=True)  # a thread waits for the run


def test_a_destroyed_share_does_not_come_back_from_a_backup(tmp_path: Path) -> None:
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split) as (office, study, model):
            home = office.net.sites["hospital"].home
            path = home.folder / "shares" / f"{model}.share"
            backup = path.read_bytes()
            home.shares.destroy(model)
            path.write_bytes(backup)
            path.chmod(0o600)
            with pytest.raises(ConfigError, match="destroyed"):
                ask(office, "hospital", study, model, "b", **split.ask(tmp_path, small(5))["hospital"])
            assert home.shares.all() == []
            home.shares.destroy(model)
            assert not path.exists()

    bounded(test)


def test_a_damaged_share_can_be_destroyed(tmp_path: Path) -> None:
    home = Loopback(tmp_path, {"north": None}).sites["north"].home
    (home.folder / "shares").mkdir(mode=0o700)
    path = home.folder / "shares" / f"{'ab' * 16}.share"
    path.write_bytes(b"blindbayes share 1\nrubbish")
    path.chmod(0o600)
    home.shares.destroy("ab" * 16)
    assert not path.exists()
    with pytest.raises(ConfigError, match="no share"):
        home.shares.destroy("cd" * 16)
    for wrong in ("../../keys/identity", "/etc/passwd", "AB" * 16, "ab" * 40):
        with pytest.raises(ConfigError, match="hexadecimal"):
            home.shares.destroy(wrong)


def test_a_share_destroyed_while_a_prediction_waits_ends_it(tmp_path: Path) -> None:
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split, deadlines=Deadlines(step=5, join=5, run=30)) as (office, study, model):
            asked = split.ask(tmp_path, small(5))
            waiting = ask(office, "hospital", study, model, "b", **asked["hospital"])
            while waiting.state == "reading":
                await asyncio.sleep(0.02)
            office.net.sites["hospital"].home.shares.destroy(model)
            other = ask(office, "insurer", study, model, "b", **asked["insurer"])
            await waiting.done.wait()
            await other.done.wait()
            assert isinstance(waiting.error, ConfigError)
            assert other.release is None
            assert not list((office.net.sites["hospital"].home.folder / "shares").iterdir())

    bounded(test)


def test_another_partys_share_is_refused(tmp_path: Path) -> None:
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split) as (office, study, model):
            own, theirs = (site.home.folder / "shares" / f"{model}.share" for site in office.net.sites.values())
            shutil.copy(theirs, own)
            with pytest.raises(ConfigError, match="another party's"):
                ask(office, "hospital", study, model, "b", **split.ask(tmp_path, small(5))["hospital"])

    bounded(test)
