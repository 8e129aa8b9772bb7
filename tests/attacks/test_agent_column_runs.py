"""Attacks on runs over columns at site agents: runs that begin twice or as something else, by strangers or unasked."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import msgspec
import pytest

from blindbayes.agent.agent import Agent
from blindbayes.agent.runs.context import work_of
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.key_agreement import AgreementKey
from blindbayes.errors import ConfigError, LocalProtocolError
from blindbayes.net.envelope import EnvelopePair, Offer, pack, unpack
from blindbayes.study.file import Deadlines, Privacy, StudyFile
from blindbayes.study.tasks.prediction import prediction_run
from blindbayes.testing.loopback import Loopback
from support.column_sites import HURRY, Split, ask, office_of, pair, small, trained
from support.hub import MemoryHub
from support.sites import BOOK, LOOSE, Office, bounded


def offered(agent: Agent, study: StudyFile, run_id: str, sender: str, receiver: str) -> bytes:
    """An offer as the site `sender` would sign it."""
    identity = study.identity(receiver)
    key = AgreementKey.generate(Coins.system())
    return pack(EnvelopePair(study.sha256, run_id, sender, receiver, identity, agent.identity.signing).offer(key))


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
                south.router.frame_arrived(sender, frame)
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
        async with trained(tmp_path, split, deadlines=HURRY) as (office, study, model):
            agent, home = office.agents["hospital"], office.net.sites["hospital"].home
            shutil.rmtree(home.folder / "runs")
            run = agent.launch(model, work_of(home, agent.identity, model, study), "test")
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
            hospital.router.frame_arrived("insurer", frame)
            await asyncio.sleep(0.05)
            assert hospital.runs == {}
            assert [entry["event"] for entry in hospital.home.history.entries()].count("refused") == 1

    bounded(test)


def test_a_run_under_way_is_not_forgotten_for_one_that_failed_under_its_name(tmp_path: Path) -> None:
    """A batch that could not be read may be asked for again; when its first try fell out of the list, so did the second."""
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split, deadlines=Deadlines(step=5, join=5, run=30)) as (office, study, model):
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
        async with trained(tmp_path, split, deadlines=HURRY) as (office, study, model):
            hospital, insurer = office.agents["hospital"], office.agents["insurer"]
            before = len(hospital.home.history.entries())
            for at in range(100):
                run_id = prediction_run(study.sha256, model, f"batch {at}")
                hospital.router.frame_arrived("insurer", offered(insurer, study, run_id, "insurer", "hospital"))
            stranger = Loopback(tmp_path / "strangers", {"stranger": None}).sites["stranger"].identity
            key = AgreementKey.generate(Coins.system())
            run_id = prediction_run(study.sha256, model, "stranger")
            own = EnvelopePair(study.sha256, run_id, "insurer", "hospital", study.identity("hospital"), stranger.signing).offer(
                key
            )
            hospital.router.frame_arrived("stranger", pack(own))
            hospital.router.frame_arrived("insurer", pack(own))  # by a courier that lets it speak for another
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
            assert hospital.home.approvals.all() == [study]  # read once, so that an offer is answered at once
            for at in range(100):
                run_id = prediction_run(study.sha256, "ab" * 16, f"batch {at}")
                hospital.router.frame_arrived(
                    "insurer", offered(office.agents["insurer"], study, run_id, "insurer", "hospital")
                )
                unknown = msgspec.structs.replace(study, title=f"study {at}")
                hospital.router.frame_arrived(
                    "insurer", offered(office.agents["insurer"], unknown, run_id, "insurer", "hospital")
                )
            wanted = prediction_run(study.sha256, "ab" * 16, "wanted")
            hospital.router.frame_arrived("lab", offered(office.agents["lab"], study, wanted, "lab", "hospital"))
            other = msgspec.structs.replace(study, title="wanted")
            hospital.router.frame_arrived("lab", offered(office.agents["lab"], other, wanted, "lab", "hospital"))
            assert hospital.pending_predictions[wanted]["by"] == "lab"
            assert hospital.proposed_studies[other.sha256] == "lab"

    bounded(test)


def test_a_request_that_cannot_be_read_burns_its_run_and_no_other(tmp_path: Path) -> None:
    split = pair()

    async def test() -> None:
        async with trained(tmp_path, split, deadlines=Deadlines(step=5, join=5, run=30)) as (office, study, model):
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
    net = Loopback(tmp_path / "sites", split.write(tmp_path / "rows"), policy=LOOSE)
    with pytest.raises(ConfigError, match="may not be called 'all'"):
        split.study(net, reveal_to="all")
