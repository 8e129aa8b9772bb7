"""Agents of one process: approvals, policy, replay, ledger, witnesses."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest

from blindbayes.crypto.signatures import verify
from blindbayes.disclosure.audit_log import AuditLog
from blindbayes.errors import DataError, LedgerError, LocalProtocolError, PeerLost, PrivacyError
from blindbayes.io.chain import ChainFormat
from blindbayes.net.envelope import Offer, unpack
from blindbayes.net.identity import framed
from blindbayes.study.file import Deadlines, Limits, Privacy, StudyFile
from blindbayes.testing.loopback import open_policy
from support.hub import MemoryHub
from support.sites import BOOK, CANARY, Gate, Office, bounded, paper_policy

NAMES = ("north", "south", "west")
QUICK = Deadlines(step=20, join=20, run=35)  # whoever waits for one of these to pass says so itself


def study_of(office: Office, **fields: Any) -> StudyFile:
    return office.net.make_study(BOOK, **{"deadlines": QUICK, **fields})


def in_memory(office: Office, study: StudyFile, folder: Path) -> str:
    """The model file of the same study in the memory driver."""
    sources = {name: office.net.sites[name].home.config.rows.source for name in study.contributors}  # type: ignore[union-attr]
    return (study.study.simulate(sources).save(folder) / "model.json").read_text()


@pytest.mark.parametrize("protocol", ["masked_sum", "ring_sum", "chain_sum", "oblivious_sum"])
def test_agents_give_exactly_the_result_of_the_memory_driver(tmp_path: Path, protocol: str) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES, policy=paper_policy()) as office:
            study = study_of(office, protocol=protocol)
            office.net.approve(study)
            expected = in_memory(office, study, tmp_path / "simulated")
            runs = await office.run(study, by="south")
            assert {run.state for run in runs.values()} == {"done"}
            learned = [
                run.release / "model.json" for run in runs.values() if run.release and (run.release / "model.json").exists()
            ]
            assert learned
            assert {path.read_text() for path in learned} == {expected}
            for name, run in runs.items():
                folder = office.net.sites[name].home.runs.folder(run.run_id)
                assert [path.name for path in folder.rglob("*") if path.is_file() and path.name in ("journal", "key")] == []

    bounded(test)


def test_an_exact_sum_of_four_then_three_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, (*NAMES, "east")) as office:
            everybody = study_of(office, limits=Limits(quorum=4))
            office.net.approve(everybody, runs=2)
            assert (await office.run(everybody))["north"].state == "done"
            again = await office.run(everybody)
            assert again["north"].state == "done"
            fewer = study_of(
                office, parties=tuple(party for party in everybody.parties if party.name != "east"), hosts={"server": "north"}
            )
            office.net.approve(fewer)
            runs = await office.run(fewer)
            assert {type(run.error) for run in runs.values()} & {PrivacyError}
            assert all(run.state == "failed" for run in runs.values())

    bounded(test)


def test_a_study_without_approval_gets_no_answer_known_or_not(tmp_path: Path) -> None:
    async def test() -> None:
        answers: list[str] = []

        def spy(sender: str, to: str, frame: bytes) -> list[bytes]:
            if sender == "south":
                answers.append(unpack(frame).run_id)  # an offer, a sealed frame or an end: anything at all
            return [frame]

        async with Office(tmp_path, NAMES, hub=MemoryHub(spy)) as office:
            for title in ("known here but revoked", "never heard of"):
                study = study_of(office, title=title, deadlines=Deadlines(step=0.5, join=0.6, run=5))
                office.net.approve(study)
                if title.startswith("known"):
                    office.net.sites["south"].home.approvals.revoke(study.sha256)
                else:
                    (office.net.sites["south"].home.folder / "approved" / f"{study.sha256}.toml").unlink()
                runs = await office.run(study)
                assert "south" not in runs
                error = runs["north"].error
                assert isinstance(error, PeerLost)
                assert error.party == "south"
                assert runs["north"].run_id not in answers
                assert office.agents["south"].proposed_studies[study.sha256] in ("north", "west")
            assert answers == []

    bounded(test)


def test_approvals_are_used_up_and_can_be_taken_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = study_of(office)
            with pytest.raises(PrivacyError, match="approved here"):
                office.agents["north"].begin(study.sha256)
            office.net.approve(study, runs=1)
            await office.run(study)
            with pytest.raises(PrivacyError, match="used up"):
                office.agents["north"].begin(study.sha256)
            office.net.sites["north"].home.approvals.revoke(study.sha256)
            with pytest.raises(PrivacyError, match="approved here"):
                office.agents["north"].begin(study.sha256)

    bounded(test)


def test_too_few_rows_send_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES, policy=open_policy(min_rows=1000)) as office:
            study = study_of(office, deadlines=Deadlines(step=0.5, join=0.6, run=5))
            office.net.approve(study)
            runs = await office.run(study)
            assert isinstance(runs["north"].error, PrivacyError)
            assert runs["north"].roles == {}

    bounded(test)


def test_an_ended_run_never_begins_again(tmp_path: Path) -> None:
    async def test() -> None:
        offers: list[tuple[str, bytes]] = []

        def spy(sender: str, to: str, frame: bytes) -> list[bytes]:
            if to == "south" and isinstance(unpack(frame), Offer):
                offers.append((sender, frame))
            return [frame]

        async with Office(tmp_path, NAMES, hub=MemoryHub(spy)) as office:
            study = study_of(office)
            office.net.approve(study, runs=5)
            runs = await office.run(study)
            run_id = runs["south"].run_id
            await office.stop("south")
            south = await office.start("south")
            home = office.net.sites["south"].home
            before = sum(1 for entry in home.audit.entries() if entry["event"] == "joined")
            for sender, frame in offers:
                south.router.frame_arrived(sender, frame)
            await asyncio.sleep(0.2)
            assert run_id not in south.runs
            events = [entry["event"] for entry in home.audit.entries()]
            assert events.count("joined") == before
            assert events.count("refused") == 1

    bounded(test)


@pytest.mark.parametrize(
    ("site", "messages"),
    [
        ("north", 3),
        ("south", 2),
        ("west", 4),
        *(pytest.param(site, messages, marks=pytest.mark.slow) for site in NAMES for messages in (0, 1)),
    ],
)
def test_a_site_that_crashes_goes_on_and_pays_once(tmp_path: Path, site: str, messages: int) -> None:
    async def test() -> None:
        hub = MemoryHub()
        gate = hub.alter = Gate(site, messages)
        async with Office(tmp_path, NAMES, hub=hub) as office:
            study = study_of(office, privacy=Privacy(epsilon=1.0), deadlines=Deadlines(step=6, join=6, run=20))
            office.net.approve(study)
            run_id = office.agents["north"].begin(study.sha256).run_id
            await gate.shut.wait()
            await office.stop(site)
            hub.alter = None
            await office.start(site)
            runs = await office.ended(run_id)
            assert {name: run.state for name, run in runs.items()} == dict.fromkeys(NAMES, "done")
            releases = [(run.release / "model.json").read_text() for run in runs.values() if run.release is not None]
            assert len(releases) == 3
            assert len(set(releases)) == 1
            for each in office.net.sites.values():
                charges = [entry for entry in each.home.ledger.entries() if entry.kind == "charge"]
                assert [entry.fields["run"] for entry in charges] == [run_id]

    bounded(test)


def test_an_empty_ledger_refuses_before_anything_is_sent(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = study_of(office, privacy=Privacy(epsilon=6.0))
            office.net.approve(study, runs=9)
            assert (await office.run(study))["north"].state == "done"
            runs = await office.run(study)
            assert {run.state for run in runs.values()} == {"failed"}  # whoever looks first refuses, the others hear of it
            assert any(isinstance(run.error, PrivacyError) for run in runs.values())
            assert all(run.roles[name].driver.progress.messages_out == 0 for name, run in runs.items())
            for each in office.net.sites.values():
                assert sum(entry.kind == "charge" for entry in each.home.ledger.entries()) == 1

    bounded(test)


def test_rows_that_change_during_a_run_burn_it(tmp_path: Path) -> None:
    async def test() -> None:
        hub = MemoryHub()
        gate = hub.alter = Gate("south", 1)
        async with Office(tmp_path, NAMES, hub=hub) as office:
            study = study_of(office, deadlines=Deadlines(step=60, join=60, run=60))
            office.net.approve(study)
            run_id = office.agents["north"].begin(study.sha256).run_id
            await gate.shut.wait()
            await office.stop("south")
            hub.alter = None
            with duckdb.connect(str(tmp_path / "south.duckdb")) as connection:
                connection.execute("delete from visits where age < 60")
            await office.start("south")
            runs = await office.ended(run_id)
            assert isinstance(runs["south"].error, LocalProtocolError)
            assert "rows changed" in str(runs["south"].error)
            for name in ("north", "west"):
                error = runs[name].error
                assert isinstance(error, PeerLost)
                assert error.party in ("south", "server")
            home = office.net.sites["south"].home
            assert home.runs.outcome(run_id)["state"] == "failed"  # type: ignore[index]
            assert not list(home.runs.folder(run_id).rglob("key"))

    bounded(test)


def test_a_quorum_survives_a_lost_site(tmp_path: Path) -> None:
    async def test() -> None:
        hub = MemoryHub()
        async with Office(tmp_path, (*NAMES, "east"), hub=hub) as office:
            study = study_of(office, limits=Limits(quorum=3), deadlines=Deadlines(step=3, join=10, run=30))
            office.net.approve(study)
            hub.alter = Gate("east", 2)  # keys and shares leave, the masked vector does not
            runs = {name: run for name, run in (await office.run(study)).items() if name != "east"}
            assert {run.state for run in runs.values()} == {"done"}
            facts = json.loads((runs["north"].release / "run.json").read_text())  # type: ignore[operator]
            assert facts["included"] == list(NAMES)
            assert facts["went_on_without"] == ["east"]
            sums = office.net.sites["south"].home.history.exact_sums()
            assert [len(each.sites) for each in sums] == [3]

    bounded(test)


def test_no_value_of_a_row_stands_in_an_error_log_or_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            with duckdb.connect(str(tmp_path / "south.duckdb")) as connection:
                connection.execute("insert into visits values ('ill', ?, 3)", (CANARY,))
            study = study_of(office, deadlines=Deadlines(step=60, join=60, run=60))
            office.net.approve(study)
            runs = await office.run(study)
            assert isinstance(runs["south"].error, DataError)
            assert isinstance(runs["north"].error, PeerLost)
            said = str(runs["north"].error)  # told at once: no deadline was waited for
            assert said == "south: gave up (its table, rules or budget); `blindbayes site status` at south says why"
            assert CANARY not in str(runs["south"].show())
            written = [path for path in (tmp_path / "sites").rglob("*") if path.is_file()]
            assert len(written) > 20
            assert not any(CANARY.encode() in path.read_bytes() for path in written)
            assert CANARY not in caplog.text

    bounded(test)


@pytest.mark.parametrize("jump", [-10 * 365 * 86400, pytest.param(10 * 365 * 86400, marks=pytest.mark.slow)])
def test_a_clock_that_jumps_during_a_run_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: int) -> None:
    async def test() -> None:
        hub = MemoryHub()
        real = time.time

        def passing(sender: str, to: str, frame: bytes) -> list[bytes]:
            monkeypatch.setattr(time, "time", lambda: real() + jump)
            return [frame]

        hub.alter = passing
        async with Office(tmp_path, NAMES, hub=hub) as office:
            study = study_of(office)
            office.net.approve(study)
            runs = await office.run(study)
            assert {run.state for run in runs.values()} == {"done"}
            assert time.time() != pytest.approx(real(), abs=86400)

    bounded(test)


def test_keys_left_behind_by_a_crash_at_the_very_end_are_destroyed(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = study_of(office)
            office.net.approve(study)
            run_id = (await office.run(study))["south"].run_id
            home = office.net.sites["south"].home
            key = home.runs.folder(run_id) / "south" / "key"
            key.write_bytes(b"left behind")
            await office.stop("south")
            await office.start("south")
            assert not key.exists()

    bounded(test)


def test_sites_witness_each_others_logs(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = study_of(office)
            office.net.approve(study)
            await office.run(study)
            seen = [entry for entry in office.net.sites["north"].home.audit.entries() if entry["event"] == "witnessed"]
            assert {entry["site"] for entry in seen} >= {"south", "west"}
            for entry in (entry for entry in seen if entry["site"] != "north"):
                other = office.net.sites[entry["site"]]
                other.home.audit.verify(must_hold=entry["head"])
                signed = framed(
                    b"blindbayes confirm v1", bytes.fromhex(entry["exchange"]), entry["site"].encode(), entry["heads"].encode()
                )
                verify(other.identity.card.identity, signed, bytes.fromhex(entry["proof"]))

    bounded(test)


def test_runs_that_another_site_begins_and_ends_at_once_are_limited(tmp_path: Path) -> None:
    """Each costs this site a file and an entry, whoever of an approved study begins it: so many a day."""

    async def test() -> None:
        async with Office(tmp_path, NAMES, policy=open_policy(max_idle_joins_per_day=2)) as office:
            study = study_of(office, deadlines=Deadlines(step=1, join=0.3, run=20))
            for name in ("north", "south"):
                office.net.sites[name].home.approvals.approve(study, runs=100)
            home = office.net.sites["south"].home
            for _ in range(4):
                run = office.agents["north"].begin(study.sha256)  # west never comes: nothing is computed
                await run.done.wait()
                for other in list(office.agents["south"].runs.values()):
                    await other.done.wait()
            joins = [
                entry for entry in home.history.entries() if entry["event"] == "joined" and entry["proposed_by"] == "north"
            ]
            assert len(joins) == 2
            assert any(
                "never computed" in entry.get("why", "") for entry in home.history.entries() if entry["event"] == "refused"
            )
            assert len(home.history.idle_joins("north", 0)) == 2
            assert home.history.idle_joins("west", 0) == []

    bounded(test)


def test_the_audit_log_is_read_again_only_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            home = office.net.sites["north"].home
            first, lines = home.history.entries(), []
            real = ChainFormat.verified
            monkeypatch.setattr(ChainFormat, "verified", lambda *line: (lines.append(1), real(*line))[1])
            for _ in range(5):
                assert home.history.entries() == first
            home.audit.append("refused", why="test")
            assert home.history.entries()[-1]["event"] == "refused"
            assert not lines
            AuditLog(home.audit.path).append("refused", why="another process")
            assert lines
            lines.clear()
            assert len(home.history.entries()) == len(first) + 2
            assert len(lines) == 1  # of another's entries each is read once
            raw = bytearray(home.audit.path.read_bytes())
            raw[-80] ^= 1
            home.audit.path.write_bytes(bytes(raw))
            with pytest.raises(LedgerError):
                home.history.entries()

    bounded(test)
