"""Attacks on studies over columns through site agents: a party that cheats, a stranger, a careless operator, a crash, a reader.

Each test is an attack that worked, or that must not: budgets that come back, runs that begin twice, shares that rise again,
folders that are signed unseen, logs that are cut.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from msgspec import to_builtins

from blindbayes.cli.report import command as report_command
from blindbayes.cli.study_columns import _copy
from blindbayes.data.columns import open_columns
from blindbayes.demo.loopback import Loopback
from blindbayes.errors import ConfigError, DataError, LedgerError, LocalProtocolError, PeerProtocolError, PrivacyError
from blindbayes.model.shares import ModelShare
from blindbayes.primitives.agreement import AgreementKey
from blindbayes.primitives.coins import Coins
from blindbayes.report import COMMON_SIGNATURES, seal_files, verify_files
from blindbayes.scheme.part import CheckedTable
from blindbayes.scheme.prediction import Request, prediction_run
from blindbayes.site.agent import Agent
from blindbayes.site.audit_log import AuditLog
from blindbayes.site.policy import Policy
from blindbayes.site.work import work_of
from blindbayes.storage.folder import read_folder, write_folder
from blindbayes.study.file import Deadlines, Privacy, StudyFile
from blindbayes.transport.courier import MemoryHub
from blindbayes.transport.envelope import EnvelopePair, Offer, pack, unpack
from support.column_sites import Split, ask, classes, office_of, pair, predict, shares, small, train
from support.sites import BOOK, Office, bounded

HURRY = Deadlines(step=1.5, join=1.5, run=30)


def offered(agent: Agent, study: StudyFile, run_id: str, sender: str, receiver: str) -> bytes:
    """An offer as the site `sender` would sign it."""
    identity = study.identity(receiver)
    key = AgreementKey.generate(Coins.system())
    return pack(EnvelopePair(study.sha256, run_id, sender, receiver, identity, agent.identity.signing).offer(key))


# -- the query budget --------------------------------------------------------------------------------------------------------


def share_at(path: Path, queries: int = 10) -> ModelShare:
    share = ModelShare("0" * 64, "hospital", {"run": "ab" * 16}, {}, {}, None, queries)
    share.save(path)
    return ModelShare.load(path)


def test_half_a_line_on_a_full_disk_is_no_charge_and_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short write was taken for a charge; the torn line then counted for nothing, and the batch was free."""
    share = share_at(tmp_path / "a.share")
    whole = os.write
    with monkeypatch.context() as patch:
        patch.setattr("blindbayes.model.shares.os.write", lambda file, raw: whole(file, raw[: len(raw) // 2]))
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
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net, options={"queries": 25}, deadlines=HURRY)
            model = await train(office, study)
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
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net, options={"queries": 25}, deadlines=Deadlines(step=4, join=4, run=30))
            model = await train(office, study)
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
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net, options={"queries": 15}, deadlines=HURRY)
            model = await train(office, study)
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


# -- runs that begin twice, or as something else -----------------------------------------------------------------------------


def test_a_noisy_sum_whose_end_was_lost_does_not_draw_noise_again(tmp_path: Path) -> None:
    """The ledger is charged once per run id. With runs/ gone, a replayed offer began the run again: fresh noise, unpaid."""
    names = ("north", "south", "west")

    async def test() -> None:
        offers: list[tuple[str, bytes]] = []

        def spy(sender: str, to: str, frame: bytes) -> list[bytes]:
            if to == "south" and isinstance(unpack(frame), Offer):
                offers.append((sender, frame))
            return [frame]

        async with Office(tmp_path, names, hub=MemoryHub(spy)) as office:
            study = office.net.make_study(BOOK, privacy=Privacy(epsilon=1.0), deadlines=HURRY)
            office.net.approve(study, runs=5)
            run_id = (await office.run(study))["south"].run_id
            home = office.net.sites["south"].home
            spent = home.ledger.balance().spent_epsilon
            await office.stop("south")
            shutil.rmtree(home.folder / "runs")
            south = await office.start("south")
            for sender, frame in offers:
                south.board.frame_arrived(sender, frame)
            await asyncio.sleep(0.2)
            assert run_id not in south.runs
            assert home.ledger.balance().spent_epsilon == spent
            assert [entry["why"] for entry in home.history.entries() if entry["event"] == "refused"] == [
                "the run was computed here before: it does not begin again"
            ]

    bounded(test)


def test_a_journal_that_is_gone_is_not_begun_anew(tmp_path: Path) -> None:
    """The same at the last moment: whoever gets as far as a seat makes no second journal for a run that was computed."""
    split = pair()

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net, deadlines=HURRY)
            model = await train(office, study)
            agent, home = office.agents["hospital"], office.net.sites["hospital"].home
            shutil.rmtree(home.folder / "runs")
            run = agent._launch(model, work_of(home, agent.identity, model, study), "test")
            await run.done.wait()
            assert isinstance(run.error, LocalProtocolError)
            assert "its journal is gone" in str(run.error)

    bounded(test)


def test_an_end_that_cannot_be_read_is_an_end(tmp_path: Path) -> None:
    net = Loopback(tmp_path, {"north": None})
    home = net.sites["north"].home
    home.runs.end("ab" * 16, {"state": "done"})
    (home.runs.folder("ab" * 16) / "outcome.json").write_bytes(b'{"sta')
    found = home.runs.outcome("ab" * 16)
    assert found is not None
    assert found["state"] == "failed"


@pytest.mark.parametrize("digits", [16, 31, 33, 48, 63])
def test_a_run_id_of_another_length_is_neither_a_training_nor_a_prediction(tmp_path: Path, digits: int) -> None:
    """A training under 16 digits made the ids of its predictions 48 long, which then began, unasked, as trainings."""
    split = pair()

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net, deadlines=HURRY)
            office.net.approve(study, runs=3)
            hospital = office.agents["hospital"]
            frame = offered(office.agents["insurer"], study, "a" * digits, "insurer", "hospital")
            hospital.board.frame_arrived("insurer", frame)
            await asyncio.sleep(0.05)
            assert hospital.runs == {}
            assert [entry["event"] for entry in hospital.home.history.entries()].count("refused") == 1

    bounded(test)


def test_a_run_under_way_is_not_forgotten_for_one_that_failed_under_its_name(tmp_path: Path) -> None:
    """A batch that could not be read may be asked for again; when its first try fell out of the list, so did the second."""
    split = pair()

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net, deadlines=Deadlines(step=5, join=5, run=30))
            model = await train(office, study)
            hospital, rows = office.agents["hospital"], split.ask(tmp_path, small(5))["hospital"]
            first = ask(office, "hospital", study, model, "again", rows="nowhere.csv")
            await first.done.wait()
            second = ask(office, "hospital", study, model, "again", **rows)
            for at in range(20):
                await ask(office, "hospital", study, model, f"other {at}", rows="nowhere.csv").done.wait()
            assert hospital.runs[second.run_id] is second
            assert ask(office, "hospital", study, model, "again", **rows) is second

    bounded(test)


def test_a_prediction_begins_by_this_sites_own_people_alone(tmp_path: Path) -> None:
    """A party may offer as often as it likes; a stranger whose card is pinned is no party. Rows and shares stay unread."""
    split = pair()

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net, deadlines=HURRY)
            model = await train(office, study)
            hospital, insurer = office.agents["hospital"], office.agents["insurer"]
            before = len(hospital.home.history.entries())
            for at in range(100):
                run_id = prediction_run(study.sha256, model, f"batch {at}")
                hospital.board.frame_arrived("insurer", offered(insurer, study, run_id, "insurer", "hospital"))
            stranger = Loopback(tmp_path / "strangers", {"stranger": None}).sites["stranger"].identity
            key = AgreementKey.generate(Coins.system())
            run_id = prediction_run(study.sha256, model, "stranger")
            own = EnvelopePair(study.sha256, run_id, "insurer", "hospital", study.identity("hospital"), stranger.signing).offer(
                key
            )
            hospital.board.frame_arrived("stranger", pack(own))
            hospital.board.frame_arrived("insurer", pack(own))  # by a courier that lets it speak for another
            await asyncio.sleep(0.05)
            assert set(hospital.runs) == {model}
            assert {wish["by"] for wish in hospital.pending_predictions.values()} == {"insurer"}
            assert len(hospital.pending_predictions) == 16
            assert hospital.home.shares.load(model).spent == 0
            assert [entry["event"] for entry in hospital.home.history.entries()[before:]] == ["refused"]  # once per run id

    bounded(test)


def test_a_site_that_asks_for_much_hides_no_other_sites_wish(tmp_path: Path) -> None:
    split = Split(small(), "class", {"hospital": ("age",), "insurer": ("weight", "smokes"), "lab": ("colour",)}, ("hospital",))

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net, deadlines=HURRY)
            office.net.approve(study)
            hospital = office.agents["hospital"]
            for at in range(100):
                run_id = prediction_run(study.sha256, "ab" * 16, f"batch {at}")
                hospital.board.frame_arrived("insurer", offered(office.agents["insurer"], study, run_id, "insurer", "hospital"))
                unknown = msgspec.structs.replace(study, title=f"study {at}")
                hospital.board.frame_arrived(
                    "insurer", offered(office.agents["insurer"], unknown, run_id, "insurer", "hospital")
                )
            wanted = prediction_run(study.sha256, "ab" * 16, "wanted")
            hospital.board.frame_arrived("lab", offered(office.agents["lab"], study, wanted, "lab", "hospital"))
            other = msgspec.structs.replace(study, title="wanted")
            hospital.board.frame_arrived("lab", offered(office.agents["lab"], other, wanted, "lab", "hospital"))
            assert hospital.pending_predictions[wanted]["by"] == "lab"
            assert hospital.proposed_studies[other.sha256] == "lab"

    bounded(test)


def test_a_request_that_cannot_be_read_burns_its_run_and_no_other(tmp_path: Path) -> None:
    split = pair()

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net, deadlines=Deadlines(step=5, join=5, run=30))
            model = await train(office, study)
            run = ask(office, "hospital", study, model, "b", **split.ask(tmp_path, small(5))["hospital"])
            while run.state == "reading":
                await asyncio.sleep(0.02)
            await office.stop("hospital")
            home = office.net.sites["hospital"].home
            (home.runs.folder(run.run_id) / "request.json").write_bytes(b'{"model"')
            hospital = await office.start("hospital")
            assert run.run_id not in hospital.runs
            assert (home.runs.outcome(run.run_id) or {})["state"] == "burned"
            assert not list(home.folder.glob("runs/*/*/key"))

    bounded(test)


def test_nobody_is_called_all(tmp_path: Path) -> None:
    """reveal_to = "all", read as the party of that name, opened the classes to everybody."""
    split = Split(small(), "class", {"all": ("age", "colour"), "insurer": ("weight", "smokes")}, ("all",))
    net = Loopback(tmp_path / "sites", split.write(tmp_path / "rows"))
    with pytest.raises(ConfigError, match="may not be called 'all'"):
        split.study(net, reveal_to="all")


# -- shares ------------------------------------------------------------------------------------------------------------------


def test_a_destroyed_share_does_not_come_back_with_a_run_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash between the share and the run's end; the operator destroys the share; the replay wrote it again, unspent."""
    from blindbayes.site import work as module

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

    bounded(test)


def test_a_destroyed_share_does_not_come_back_from_a_backup(tmp_path: Path) -> None:
    split = pair()

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net)
            model = await train(office, study)
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
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net, deadlines=Deadlines(step=5, join=5, run=30))
            model = await train(office, study)
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
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net)
            model = await train(office, study)
            own, theirs = (site.home.folder / "shares" / f"{model}.share" for site in office.net.sites.values())
            shutil.copy(theirs, own)
            with pytest.raises(ConfigError, match="another party's"):
                ask(office, "hospital", study, model, "b", **split.ask(tmp_path, small(5))["hospital"])

    bounded(test)


# -- rows that change ----------------------------------------------------------------------------------------------------------


def test_rows_that_end_early_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file cut at the end of a block between the digest and the use: every block that came was as it had been."""
    monkeypatch.setattr("blindbayes.scheme.part.KEPT_BYTES", 0)  # as of a table that is too large to be kept
    frame, book = small()[:40], pair().book
    wanted = frame.drop(columns=["weight", "smokes"])
    held = msgspec.structs.replace(book, features=tuple(each for each in book.features if each.name in ("age", "colour")))
    table = CheckedTable(open_columns(wanted, held), training=True, size=8)
    table.digest(b"k" * 32)
    assert sum(block.rows for block in table.blocks()) == 40
    table.source = open_columns(wanted[:32], held)
    for rows in (table.blocks, table.labels):
        with pytest.raises(LocalProtocolError, match="rows changed"):
            list(rows())


def test_columns_that_stand_beside_the_classes_belong_to_the_input(tmp_path: Path) -> None:
    """After a crash the classes must not stand beside other people: kept columns were no part of the digest."""
    split = pair()

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net)
            model = await train(office, study)
            agent, rows = office.agents["insurer"], small(6)
            digests = []
            for numbers in (range(6), reversed(range(6))):
                asked = split.ask(tmp_path, rows.assign(number=list(numbers)), number="number")["insurer"]
                request = Request(model, "b", asked["rows"], keep=("number",))
                work = work_of(
                    agent.home, agent.identity, prediction_run(study.sha256, model, "b"), study, to_builtins(request)
                )
                work.job.read()
                digests.append(work.job.digest("insurer"))
                work.close()
            assert digests[0] != digests[1]

    bounded(test)


# -- logs ----------------------------------------------------------------------------------------------------------------------


def test_a_log_that_is_cut_or_replaced_under_a_running_agent_is_noticed(tmp_path: Path) -> None:
    """The rest of a cut log is a good chain: a bit about the overlap, a run or a charge would be forgotten."""
    home = Loopback(tmp_path, {"north": None}).sites["north"].home
    home.audit.append("computing", run="ab" * 16, study="0" * 64, exact=False)
    assert len(home.history.starts()) == 1
    whole = home.audit.path.read_bytes()
    home.audit.path.write_bytes(b"\n".join(whole.splitlines()[:-1]) + b"\n")
    with pytest.raises(LedgerError, match="cut or replaced"):
        home.history.starts()
    AuditLog(home.audit.path).append("refused", why="the cut is covered by as many new entries")
    with pytest.raises(LedgerError, match="cut or replaced"):
        home.audit.append("refused", why="nor is anything written to what is left")
    with pytest.raises(LedgerError, match="cut or replaced"):
        home.history.starts()
    home.audit.path.unlink()
    with pytest.raises(LedgerError, match="gone"):
        home.history.starts()


def test_an_edit_of_the_log_that_keeps_size_and_time_is_noticed(tmp_path: Path) -> None:
    home = Loopback(tmp_path, {"north": None}).sites["north"].home
    home.audit.append("computing", run="ab" * 16, study="0" * 64, exact=False)
    home.history.entries()
    before = home.audit.path.stat()
    raw = home.audit.path.read_bytes()
    home.audit.path.write_bytes(raw.replace(b'"computing"', b'"c0mputing"'))
    os.utime(home.audit.path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(LedgerError, match="altered"):
        home.history.entries()


@pytest.mark.parametrize("heads", [b"[" * 100_000, json.dumps({"audit": "x" * 10**6, "ledger": ""}).encode()])
def test_what_others_say_of_their_logs_does_not_fill_ours(tmp_path: Path, heads: bytes) -> None:
    async def test() -> None:
        async with Office(tmp_path, ("north",), rows={"north": None}) as office:
            agent = office.agents["north"]
            before = agent.home.audit.path.stat().st_size
            with pytest.raises(PeerProtocolError, match="does not show the heads"):
                agent.logbook.witness("south", "south", "ab" * 16, heads, b"", b"")
            assert agent.home.audit.path.stat().st_size == before

    bounded(test)


def test_values_stand_in_no_log_error_or_status(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Canaries in every place where a table may be wrong: a label, a number, a batch; nothing but the table shows them."""
    split = pair()
    frame = small()
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net, deadlines=HURRY)
            model = await train(office, study)
            for column, canary in (("weight", "canary-4711"), ("weight", "4711.4711")):
                rows = frame.astype({"weight": object})
                rows.loc[3, column] = canary
                asked = split.ask(tmp_path, rows, "wrong")["insurer"]
                run = ask(office, "insurer", study, model, "wrong", **asked)
                await asyncio.wait([asyncio.create_task(run.done.wait())], timeout=3)
                rows.loc[:, ["weight", "smokes"]].to_csv(tmp_path / "rows" / "insurer.csv", index=False)
                shown.append(json.dumps(office.agents["insurer"].show()))
                office.net.approve(study, runs=9)
                for each in (await office.run(study)).values():
                    assert each.error is not None
                    shown.append(json.dumps(each.show()))
            for name in list(office.agents):
                await office.stop(name)
            for path in (tmp_path / "sites").rglob("*"):
                if path.is_file():
                    assert not any(word in path.read_bytes() for word in (b"canary", b"4711.4711")), path

    bounded(test)
    assert not any(word in text for text in (*shown, caplog.text) for word in ("canary", "4711.4711"))


def test_what_was_asked_for_is_forgotten_at_the_end(tmp_path: Path) -> None:
    """Rows may be named by a URL with a password."""
    split = pair()

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net)
            model = await train(office, study)
            await predict(office, study, model, split.ask(tmp_path, small(5)), "b")
            await office.stop("hospital")
            await office.start("hospital")
            home = office.net.sites["hospital"].home
            assert home.runs.outcome(prediction_run(study.sha256, model, "b")) is not None
            assert not list(home.folder.glob("runs/*/request.json"))

    bounded(test)


# -- releases ------------------------------------------------------------------------------------------------------------------


def test_classes_are_for_their_owner_and_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "classes.csv").write_text('"row","number","class"\n1,"0012","ill"\n2,"0013","well"\n')
    for name in ("out.csv", "out.parquet"):
        _copy(tmp_path / "classes.csv", tmp_path / name)
        assert (tmp_path / name).stat().st_mode & 0o077 == 0
        with pytest.raises(FileExistsError):
            _copy(tmp_path / "classes.csv", tmp_path / name)
    found = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pydict()
    assert found == {"row": [1, 2], "number": ["0012", "0013"], "class": ["ill", "well"]}


def test_nobody_else_on_the_machine_reads_a_sites_folder(tmp_path: Path) -> None:
    split = pair()
    mask = os.umask(0)
    try:

        async def test() -> None:
            async with office_of(tmp_path, split) as office:
                study = split.study(office.net)
                model = await train(office, study)
                await predict(office, study, model, split.ask(tmp_path, small(5)), "b")
                for site in office.net.sites.values():
                    for path in site.home.folder.rglob("*"):
                        above = [each for each in path.parents if site.home.folder in each.parents]
                        closed = any(each.stat().st_mode & 0o077 == 0 for each in above)
                        public = path.name in ("card.toml", "certificate.pem") or path.parent.name == "peers"
                        if path.is_file() and not public:
                            assert closed or path.stat().st_mode & 0o077 == 0, path

        bounded(test)
    finally:
        os.umask(mask)


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Loopback, Path]:
    """Two sites with a release of one training run, and a copy of the first one's."""
    split = pair()
    found: dict[str, Any] = {}

    async def test() -> None:
        async with office_of(tmp_path, split) as office:
            study = split.study(office.net)
            found["model"], found["net"] = await train(office, study), office.net

    bounded(test)
    net: Loopback = found["net"]
    folder = net.sites["hospital"].home.folder / "releases" / found["model"]
    return net, shutil.copytree(folder, tmp_path / "release")


def sign(folder: Path, net: Loopback, name: str) -> BaseException | None:
    return CliRunner().invoke(report_command, ["sign", str(folder), "--config", str(net.sites[name].home.folder)]).exception


def test_a_release_of_columns_is_signed_by_both(signed: tuple[Loopback, Path]) -> None:
    net, folder = signed
    assert sign(folder, net, "insurer") is None
    assert list(json.loads((folder / COMMON_SIGNATURES).read_text())) == ["hospital", "insurer"]


@pytest.mark.parametrize("way", ["/proc/self/cwd/{name}", "{absolute}", "{relative}", "../releases/{run}", "\x1b[2J"])
def test_a_made_up_run_does_not_lead_a_site_to_sign_a_forgery(
    signed: tuple[Loopback, Path], monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The name of the run named the folder to compare with: the forgery itself, which then was found equal to itself."""
    net, folder = signed
    monkeypatch.chdir(folder.parent)
    files = {name: content for name, content in read_folder(folder).items() if name in ("study.toml", "run.json")}
    facts = json.loads(files["run.json"])
    home = net.sites["insurer"].home.folder
    words = {"name": "forged", "absolute": str(folder.parent / "forged"), "run": facts["run"]}
    words["relative"] = os.path.relpath(folder.parent / "forged", home / "releases")
    files["run.json"] = json.dumps({**facts, "run": way.format(**words)}).encode()
    key = {"hospital": net.sites["hospital"].identity.signing}  # a party may well forge, and signs what it made
    sealed = seal_files({**files, "model.json": b'{"forged": true}'}, key)
    del sealed[COMMON_SIGNATURES]
    forged = write_folder(folder.parent / "forged", sealed)
    problem = sign(forged, net, "insurer")
    assert isinstance(problem, DataError), problem
    assert "names no run" in str(problem)
    assert not (forged / COMMON_SIGNATURES).exists()


@pytest.mark.parametrize("change", ["changed", "added", "link", "missing", "unsigned"])
def test_a_folder_that_was_touched_is_not_signed(signed: tuple[Loopback, Path], change: str) -> None:
    net, folder = signed
    own = net.sites["insurer"].home.folder / "releases" / json.loads((folder / "run.json").read_text())["run"]
    before = (folder / COMMON_SIGNATURES).read_bytes()
    if change == "changed":
        (folder / "statement.md").write_text("Everything was opened.")
    elif change == "added":
        (folder / "model.json").write_text("{}")
    elif change == "link":
        (folder / "cost.json").unlink()
        (folder / "cost.json").symlink_to(own / "cost.json")
    elif change == "missing":
        (folder / "statement.md").unlink()
    else:  # its own folder, sealed anew without its signature: not what its agent wrote
        kept = {
            name: raw
            for name, raw in read_folder(own).items()
            if "sign" not in name and name not in ("checksums", "common.json")
        }
        shutil.rmtree(own)
        write_folder(own, seal_files(kept))
    assert isinstance(sign(folder, net, "insurer"), DataError | ConfigError)
    assert (folder / COMMON_SIGNATURES).read_bytes() == before


def test_a_release_of_classes_names_no_value_but_to_its_learner(tmp_path: Path) -> None:
    """reveal_to = one party: the other's release has no class, and run.json says model, batch and number alone."""
    split = pair()

    async def test() -> None:
        async with office_of(tmp_path, split, policy=Policy()) as office:
            study = split.study(office.net, reveal_to="hospital")
            model = await train(office, study)
            rows = small(8, seed=2).assign(number=[f"canary-{at}" for at in range(8)])
            asked = split.ask(tmp_path, rows, number="number")
            asked["hospital"]["keep"] = asked["insurer"]["keep"] = ["number"]
            await predict(office, study, model, asked, "b")
            run_id = prediction_run(study.sha256, model, "b")
            assert classes(office.net, run_id, "hospital")["number"].tolist() == rows["number"].tolist()
            for name, site in office.net.sites.items():
                files = read_folder(site.home.folder / "releases" / run_id)
                assert list(verify_files(files).signers) == [name]
                facts = json.loads(files["run.json"])
                assert facts == {
                    "study": study.sha256,
                    "codebook": study.book.sha256,
                    "run": run_id,
                    "title": study.title,
                    "model": model,
                    "batch": "b",
                    "instances": 8,
                }
                telling = [path for path, raw in files.items() if b"canary" in raw]
                assert telling == (["classes.csv"] if name == "hospital" else [])
            insurer = office.net.sites["insurer"].home.folder
            assert not any(b"canary" in path.read_bytes() for path in insurer.rglob("*") if path.is_file())

    bounded(test)
