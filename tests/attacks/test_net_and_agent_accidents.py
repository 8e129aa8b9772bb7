"""The review of the runtime: each attack, or accident, of its sections 3, 4, 6, 8 and 10, which succeeded before.

Agents of one process over the memory courier, unless a test says otherwise.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from blindbayes.agent.runs import release
from blindbayes.agent.runs.commit_points import CONFIRMED, LEFT
from blindbayes.cli.commands.site import command as site_command
from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.errors import LedgerError, PeerLost, PeerProtocolError, PrivacyError
from blindbayes.net.envelope import Ended, EnvelopePair, Sealed, fresh_key, pack, unpack
from blindbayes.net.link import Link
from blindbayes.net.states import Peer
from blindbayes.protocols import link_bytes
from blindbayes.study.file import Deadlines, Limits, Privacy, StudyFile
from blindbayes.testing.loopback import Loopback
from support.hub import MemoryHub
from support.sites import BOOK, Office, bounded

pytestmark = pytest.mark.usefixtures("light_backups")

FOUR = ("north", "south", "west", "east")
PATIENT = Deadlines(step=20, join=20, run=40)


def study_of(office: Office, names: Sequence[str] | None = None, **fields: Any) -> StudyFile:
    study = office.net.make_study(BOOK, **{"deadlines": PATIENT, **fields})
    if names is None:
        return study
    parties = tuple(party for party in study.parties if party.name in names)
    return msgspec.structs.replace(study, parties=parties, hosts={"server": names[0]})


def events(office: Office, name: str, run_id: str) -> list[str]:
    return [entry["event"] for entry in office.net.sites[name].home.history.entries_of(run_id)]


# -- section 3: sums over time -----------------------------------------------------------------------------------------


def test_a_member_that_takes_anothers_place_does_not_read_it(tmp_path: Path) -> None:
    """Year 1: north, south, west. Year 2: north, south, east. East had both sums and its own rows, hence west's statistics."""

    async def test() -> None:
        async with Office(tmp_path, FOUR) as office:
            first, second = study_of(office, FOUR[:3]), study_of(office, ("north", "south", "east"), title="year 2")
            for study in (first, second):
                for name in study.names:
                    office.net.sites[name].home.approvals.approve(study)
            assert {run.state for run in (await office.run(first)).values()} == {"done"}
            runs = await office.run(second)
            assert {run.state for run in runs.values()} == {"failed"}
            whys = [
                entry["why"]
                for name in ("north", "south")
                for entry in office.net.sites[name].home.history.entries()
                if "why" in entry
            ]
            assert any("takes part in exact sums over north, south, west only" in why for why in whys)
            noisy = study_of(office, ("north", "south", "east"), title="year 2", privacy=Privacy(epsilon=1.0))
            for name in noisy.names:
                office.net.sites[name].home.approvals.approve(noisy)
            assert {run.state for run in (await office.run(noisy)).values()} == {"done"}  # what the refusal advises

    bounded(test)


# -- section 4: aborted runs -------------------------------------------------------------------------------------------


class Cut:
    """Holds back everything that one site sends from a message of a kind on."""

    def __init__(self, site: str, kind: str) -> None:
        self.site, self.kind, self.shut = site, kind, asyncio.Event()

    def __call__(self, sender: str, to: str, frame: bytes) -> list[bytes]:
        envelope = unpack(frame)
        if sender == self.site and isinstance(envelope, Sealed) and envelope.step == self.kind:
            self.shut.set()
        return [] if self.shut.is_set() and sender == self.site else [frame]


SHORT = Deadlines(step=2, join=10, run=30)


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        ("KeysListed", "opened nothing"),  # the review's case: the server's host dies, and nobody's vector has left
        ("SurvivorsNamed", "any"),  # vectors left, nobody knows which would have been added
        ("TotalPublished", "confirmed"),
    ],
)
def test_an_aborted_run_counts_as_what_it_can_have_opened(tmp_path: Path, kind: str, state: str) -> None:
    async def test() -> None:
        hub = MemoryHub()
        cut = hub.alter = Cut("north", kind)
        async with Office(tmp_path, FOUR, hub=hub) as office:
            study = study_of(office, deadlines=SHORT)
            assert study.setting.quorum_size == 3
            office.net.approve(study, runs=3)
            run_id = office.agents["north"].begin(study.sha256).run_id
            await cut.shut.wait()
            await office.stop("north")  # kill -9: nothing is said to anybody
            await office.ended(run_id)
            home = office.net.sites["west"].home
            seen = events(office, "west", run_id)
            assert seen[-1] == "ended"
            sums = home.history.exact_sums()
            if state == "opened nothing":
                assert LEFT not in seen
                assert sums == []
            elif state == "any":
                assert LEFT in seen
                assert CONFIRMED not in seen
                assert [each.quorum_size for each in sums] == [3]
            else:
                assert seen.index(LEFT) < seen.index(CONFIRMED)
                assert [(len(each.sites), each.quorum_size) for each in sums] == [(4, None)]
            hub.alter = None
            shutil.rmtree(office.net.sites["north"].home.runs.folder(run_id))  # its disk is gone with it
            await office.start("north")
            again = study_of(office, deadlines=SHORT, limits=Limits(quorum=4))
            office.net.approve(again)
            if state == "any":
                runs = await office.run(again, by="west")
                assert {run.state for run in runs.values()} == {"failed"}
                config = ["--config", str(home.folder)]
                told = CliRunner().invoke(site_command, ["unsettled", *config])
                assert run_id in told.output
                assert "At risk" in told.output
                for name in FOUR:
                    config = ["--config", str(office.net.sites[name].home.folder)]
                    asked = ["settle", run_id, "--nothing", "--reason", "north's disk is gone"]
                    done = CliRunner().invoke(site_command, [*asked, *config])
                    assert done.exit_code == 0, done.output
                assert home.history.exact_sums() == []
                office.net.approve(again)
            runs = await office.run(again, by="west")
            assert {run.state for run in runs.values()} == {"done"}, {name: str(run.error) for name, run in runs.items()}

    bounded(test, 60)


def test_settling_takes_only_what_the_run_can_have_opened(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, FOUR) as office:
            home = office.net.sites["north"].home
            ids = {name: site.identity.card.identity.hex() for name, site in office.net.sites.items()}
            facts: dict[str, Any] = {"run": "ab" * 16, "study": "cd" * 32}
            state = {"codebook": "b", "data": "d", "table": "rows", "rows": "e"}
            home.audit.append("computing", **facts, **state, exact=True, quorum=3, contributors=list(ids.values()))
            assert [each.quorum_size for each in home.history.exact_sums()] == [
                3
            ]  # under way: it may open anything that it allows
            assert home.history.unsettled() == []
            home.audit.append("vector left", **facts)
            home.audit.append("ended", **facts, state="failed", why="")

            def settle(*arguments: str) -> Any:
                asked = ["settle", "ab" * 16, *arguments, "--reason", "asked", "--config", str(home.folder)]
                return CliRunner().invoke(site_command, asked)

            for wrong in (
                ["--included", "north,south"],
                ["--included", "north,south,mallory"],
                [],
                ["--nothing", "--included", "a"],
            ):
                assert settle(*wrong).exception is not None
            assert settle("--included", "north,south,west").exit_code == 0
            assert [each.sites for each in home.history.exact_sums()] == [{ids[name] for name in FOUR[:3]}]
            assert settle("--nothing").exception is not None  # once

    bounded(test)


# -- section 6: rollback -----------------------------------------------------------------------------------------------


def restore(office: Office, name: str, backup: Path) -> None:
    """The site's folder as it was; its agent is stopped."""
    site = office.net.sites[name]
    shutil.rmtree(site.home.folder)
    shutil.copytree(backup, site.home.folder)
    site.home = type(site.home).open(site.home.folder)


def test_a_restored_backup_is_told_before_it_spends_and_its_peers_stop_too(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, FOUR[:3]) as office:
            study = study_of(office, privacy=Privacy(epsilon=2.0))
            office.net.approve(study, runs=5)
            backup = tmp_path / "backup"
            shutil.copytree(office.net.sites["south"].home.folder, backup)
            for _ in range(2):
                assert {run.state for run in (await office.run(study)).values()} == {"done"}
            spent = {name: site.home.ledger.balance().spent_epsilon for name, site in office.net.sites.items()}
            assert spent == dict.fromkeys(spent, 4.0)
            await office.stop("south")
            restore(office, "south", backup)
            await office.start("south")
            runs = await office.run(study)
            assert {run.state for run in runs.values()} == {"failed"}
            assert isinstance(runs["south"].error, LedgerError)
            assert "came back from a backup" in str(runs["south"].error)
            stopped = [runs[name].error for name in ("north", "west")]
            assert any(isinstance(error, PeerProtocolError) and error.party == "south" for error in stopped)
            assert any("shows an older" in str(error) for error in stopped)
            assert {site.home.ledger.balance().spent_epsilon for site in office.net.sites.values()} == {4.0, 0.0}
            # People have talked: the site charges what it lost, the others forget, and the run goes on.
            for name in ("north", "west"):
                asked = ["forget", "south", "--reason", "disk lost", "--config", str(office.net.sites[name].home.folder)]
                assert CliRunner().invoke(site_command, asked).exit_code == 0
            assert {run.state for run in (await office.run(study)).values()} == {"done"}

    bounded(test)


def test_two_machines_with_copies_of_one_folder_are_found_out(tmp_path: Path) -> None:
    """The copy runs on its own and has spent as often, or more often: numbers do not show it, hashes do."""

    async def test() -> None:
        async with Office(tmp_path, FOUR[:3]) as office:
            study = study_of(office, privacy=Privacy(epsilon=1.0))
            office.net.approve(study, runs=5)
            copy = tmp_path / "copy"
            shutil.copytree(office.net.sites["south"].home.folder, copy)
            assert {run.state for run in (await office.run(study)).values()} == {"done"}
            await office.stop("south")
            restore(office, "south", copy)
            home = office.net.sites["south"].home
            for _ in range(20):  # further than the other machine ever came
                home.ledger.note("elsewhere")
                home.audit.append("elsewhere")
            await office.start("south")
            runs = await office.run(study)
            assert {run.state for run in runs.values()} == {"failed"}
            assert "another copy of it runs" in str(runs["south"].error)
            assert home.ledger.balance().charges == 0

    bounded(test)


def test_a_restored_site_that_does_not_stop_itself_is_stopped_by_its_peers(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, FOUR[:3]) as office:
            study = study_of(office, privacy=Privacy(epsilon=2.0))
            office.net.approve(study, runs=5)
            backup = tmp_path / "backup"
            shutil.copytree(office.net.sites["south"].home.folder, backup)
            assert {run.state for run in (await office.run(study)).values()} == {"done"}
            await office.stop("south")
            restore(office, "south", backup)
            changed = await office.start("south")
            changed.peer_heads.check_own_heads = lambda *shown: None  # type: ignore[method-assign]
            runs = await office.run(study)
            assert {run.state for run in runs.values()} == {"failed"}
            assert any("south: shows an older" in str(runs[name].error) for name in ("north", "west"))
            assert {site.home.ledger.balance().spent_epsilon for site in office.net.sites.values()} == {2.0, 0.0}

    bounded(test)


def test_another_card_under_the_same_name_is_another_site(tmp_path: Path) -> None:
    home = Loopback(tmp_path, {"north": None}).sites["north"].home
    shown = {"site": "south", "head": "", "heads": "{}", "exchange": "", "proof": "", "role": "south", "run": "ab" * 16}
    for words, kept in (("one", 1), ("one", 2), ("two", 1)):
        home.audit.append("pinned", site="south", identity=words)
        home.audit.append("witnessed", **shown)
        assert len(home.history.witnessed("south")) == kept


def test_a_forged_memory_of_a_site_does_not_stop_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, FOUR[:3]) as office:
            book = office.agents["north"].peer_heads
            heads = json.dumps({"audit": "ab" * 32, "audit_number": 99, "held": [], "ledger": "99:" + "cd" * 32}).encode()
            for forged in (b"x", msgspec.msgpack.encode(["north", heads, bytes(32), bytes(64)])):
                book.check_own_heads("south", forged)

    bounded(test)


# -- section 8: a nasty peer -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("megabytes", [10, pytest.param(400, marks=pytest.mark.slow)])
def test_before_all_have_joined_a_peer_can_send_its_handshake_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, megabytes: int
) -> None:
    """400 MB went into a journal in six seconds, for a study of 38 words, while the others were still joining."""

    async def test() -> None:
        async with Office(tmp_path, FOUR[:3]) as office:
            study = study_of(office)
            office.net.approve(study)
            await office.stop("south")  # somebody is missing
            real = Link._take_confirm

            def flood(link: Link, *arguments: Any) -> None:
                real(link, *arguments)
                if link.pair.me == "west":  # a changed site: it waits for nobody's word
                    link.peer = Peer.READY
                    for _ in range(megabytes):
                        link.post_now("KeysAdvertised", bytes(1 << 20))

            monkeypatch.setattr(Link, "_take_confirm", flood)
            run = office.agents["north"].begin(study.sha256)
            await run.done.wait()
            assert isinstance(run.error, PeerProtocolError)
            assert "before all had said that they can go on" in str(run.error)
            assert run.error.party == "west"
            north = office.agents["north"].home.folder
            assert sum(path.stat().st_size for path in north.rglob("*") if path.is_file()) < 1 << 20

    bounded(test)


def test_in_a_run_a_peer_can_send_no_more_than_the_protocol_has_to_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with Office(tmp_path, FOUR[:3]) as office:
            study = study_of(office)
            most = link_bytes.secure_sum(study.protocol, len(study.contributors), lambda: study.setting.length)
            assert most is not None
            assert most < 10_000
            office.net.approve(study)
            real = Link.post_now

            def more(link: Link, step: str, payload: bytes) -> None:
                real(link, step, payload)
                if link.pair.me == "west" and step == "KeysAdvertised":
                    for _ in range(64):
                        real(link, "SharesDealt", bytes(1 << 20))

            monkeypatch.setattr(Link, "post_now", more)
            runs = await office.run(study)
            assert isinstance(runs["north"].error, PeerProtocolError)
            assert "more than the study's protocol has to say" in str(runs["north"].error)
            assert runs["north"].error.party == "west"

    bounded(test)


def test_offers_for_an_ended_run_get_one_answer_at_a_time(tmp_path: Path) -> None:
    """One task per offer: memory grew by 11 MB a second as long as the answers were not read."""

    async def test() -> None:
        async with Office(tmp_path, FOUR[:3]) as office:
            study = study_of(office)
            office.net.approve(study)
            run_id = next(iter((await office.run(study)).values())).run_id
            north = office.agents["north"]
            north.router.detach(run_id)
            answers: list[bytes] = []
            stuck = asyncio.Event()

            async def send(to: str, frame: bytes) -> None:
                answers.append(frame)
                await stuck.wait()

            north.router.courier.send = send  # type: ignore[method-assign]
            west = office.net.sites["west"].identity
            pair = EnvelopePair(study.sha256, run_id, "west", "north", study.identity("north"), west.signing)
            offers = [pack(pair.offer(fresh_key(Coins.system()))) for _ in range(20)]
            before = len(asyncio.all_tasks())
            for _ in range(200):
                for offer in offers:
                    north.router.frame_arrived("west", offer)
                await asyncio.sleep(0)
            assert len(answers) == 1
            assert isinstance(unpack(answers[0]), Ended)
            assert len(asyncio.all_tasks()) <= before + 1
            stuck.set()

    bounded(test)


def test_nobody_pays_for_a_run_that_one_site_cannot_pay_for(tmp_path: Path) -> None:
    """West had 2 of 10 left; the run of epsilon 4 failed there, and south had paid 4 for nothing."""

    async def test() -> None:
        async with Office(tmp_path, FOUR[:3]) as office:
            west = office.net.sites["west"].home
            west.ledger.path.unlink()
            Ledger.create(west.ledger.path, epsilon=2, delta="1e-5")
            west.ledger = None  # type: ignore[assignment]
            west.__post_init__()
            study = study_of(office, privacy=Privacy(epsilon=4.0))
            office.net.approve(study)
            runs = await office.run(study)
            assert isinstance(runs["west"].error, PrivacyError)
            assert "budget exceeded" in str(runs["west"].error)
            for name in ("north", "south"):
                error = runs[name].error
                assert isinstance(error, PeerLost)
                assert error.party in ("west", "server")
                assert "`blindbayes site status` at" in str(error)
                assert "at server" not in str(error)
                assert office.net.sites[name].home.ledger.balance().charges == 0
                assert "computing" not in events(office, name, runs[name].run_id)
            assert west.ledger.balance().charges == 0

    bounded(test)


def test_what_a_site_promises_to_two_runs_at_once_it_can_keep(tmp_path: Path) -> None:
    """Each of two runs fits the budget, and one the approval; begun at once, they must not both be promised and then fail."""

    async def test() -> None:
        async with Office(tmp_path, FOUR[:3]) as office:
            first, second = (study_of(office, title=title, privacy=Privacy(epsilon=6.0)) for title in ("one", "two"))
            for study in (first, second):
                office.net.approve(study)
            begun = [office.agents["north"].begin(study.sha256) for study in (first, second)]
            ended = [await office.ended(run.run_id) for run in begun for _ in [await run.done.wait()]]
            done = [runs for runs in ended if {run.state for run in runs.values()} == {"done"}]
            assert len(done) <= 1
            for site in office.net.sites.values():
                assert site.home.ledger.balance().charges == len(done)
                assert site.home.promised == {}

    bounded(test)


# -- section 10: people ------------------------------------------------------------------------------------------------


def test_a_full_disk_at_the_end_of_a_paid_run_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal that could write the release again was erased; the site had paid and never got its result."""

    async def test() -> None:
        async with Office(tmp_path, FOUR[:3]) as office:
            study = study_of(office, privacy=Privacy(epsilon=1.0))
            office.net.approve(study)
            south = office.net.sites["south"].home

            real = release.write_folder

            def full(folder: Path, files: Any) -> Path:
                if "/south/" in str(folder):
                    raise OSError(28, "No space left on device")
                return real(folder, files)

            monkeypatch.setattr(release, "write_folder", full)
            runs = await office.run(study)
            assert {runs[name].state for name in ("north", "west")} == {"done"}
            said = str(runs["south"].error)
            assert "No space left on device" in said
            assert "start the agent again" in said
            run_id = runs["south"].run_id
            assert south.runs.outcome(run_id) is None
            assert south.runs.has_begun(run_id)
            await office.stop("south")
            monkeypatch.undo()
            await office.start("south")
            again = (await office.ended(run_id))["south"]
            assert again.state == "done", str(again.error)
            models = {(site.home.folder / "releases" / run_id / "model.json").read_text() for site in office.net.sites.values()}
            assert len(models) == 1
            assert south.ledger.balance().charges == 1
            assert not list(south.folder.glob("runs/*/*/key"))

    bounded(test)


def test_approving_again_is_for_one_more_run(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, FOUR[:3]) as office:
            study = study_of(office)
            office.net.approve(study)
            office.net.approve(study)  # twice before a run is once
            assert {run.state for run in (await office.run(study)).values()} == {"done"}
            with pytest.raises(PrivacyError, match="`blindbayes site approve` allows one more"):
                office.agents["north"].begin(study.sha256)
            office.net.approve(study)
            assert {run.state for run in (await office.run(study)).values()} == {"done"}

    bounded(test)


def test_a_connection_that_is_known_to_be_down_ends_the_wait_early(tmp_path: Path) -> None:
    async def test() -> None:
        hub = MemoryHub()
        cut = hub.alter = Cut("west", "SharesDealt")
        async with Office(tmp_path, FOUR[:3], hub=hub) as office:
            study = study_of(office, deadlines=Deadlines(step=30, join=30, run=60))
            office.net.approve(study)
            for agent in office.agents.values():
                agent._services = replace(agent._services, timing=replace(agent._services.timing, gone=1.0))
            run = office.agents["north"].begin(study.sha256)
            await cut.shut.wait()
            await office.stop("west")
            begun = asyncio.get_running_loop().time()
            while "west (not connected)" not in run.text():  # said at once
                await asyncio.sleep(0.01)
                assert not run.done.is_set()
            await run.done.wait()
            assert asyncio.get_running_loop().time() - begun < 10
            assert isinstance(run.error, PeerLost)
            assert "has had no connection for" in str(run.error)
            assert run.error.party == "west"

    bounded(test)
