"""People decide, by name: approvals by two, refusals that travel, used-up approvals answered at once; and the history."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from blindbayes.agent.approvals.people import Person, account
from blindbayes.agent.runs.context import request_of
from blindbayes.crypto.coins import Coins
from blindbayes.disclosure.audit_log import AuditLog
from blindbayes.disclosure.checks import require_all
from blindbayes.disclosure.history import History
from blindbayes.errors import ConfigError, PeerLost, PrivacyError
from blindbayes.net.control import ABORT
from blindbayes.net.envelope import Ended, Notice, Refused, Sealed, fresh_key, pack, unpack
from blindbayes.net.sessions import Timing
from blindbayes.study.file import Deadlines, Limits, StudyFile
from blindbayes.testing.loopback import open_policy
from support.hub import MemoryHub
from support.sites import BOOK, Office, bounded

NAMES = ("north", "south", "west")
LONG = Deadlines(step=30, join=60, run=90)  # whoever waits for one of these fails the test


def study_of(office: Office, **fields: Any) -> StudyFile:
    study: StudyFile = office.net.make_study(BOOK, **{"deadlines": LONG, "limits": Limits(quorum=3), **fields})
    return study


def test_two_stewards_approve_and_one_alone_does_not(tmp_path: Path) -> None:
    office = Office(tmp_path, NAMES, policy=open_policy(approvers=2))
    home, study = office.net.sites["north"].home, study_of(office)
    with pytest.raises(ConfigError, match="asks for 2 stewards"):
        home.decisions.approve(study, who="Ada")
    home.people.add(Person("Ada", "steward"))
    home.people.add(Person("Ben", "steward"), who="Ada")
    home.people.add(Person("Cleo", "analyst"), who="Ben")
    for stranger in ("Cleo", "Dan"):
        with pytest.raises(PrivacyError):
            home.decisions.approve(study, who=stranger)
    for _ in range(2):  # twice the same pair of eyes is one pair
        assert home.decisions.approve(study, runs=3, who="Ada").wanted == 1
        assert home.approvals.find(study.sha256) is None
    assert [entry["who"] for entry in home.decisions.waiting()] == ["Ada"]
    assert home.decisions.approve(study, runs=4, who="Ben").wanted == 1  # another number of runs is another question
    assert home.decisions.approve(study, runs=4, who="Ada").runs_left == 4
    assert home.audit.where("event", "approved")[-1]["who"] == "Ben, Ada"
    assert home.decisions.waiting() == []


@pytest.mark.parametrize("left", [None, b"", b"[[people]]\nname = 'Mallory'\nrole = 'analyst'\n"])
def test_a_list_of_people_that_was_emptied_lets_nobody_decide(tmp_path: Path, left: bytes | None) -> None:
    """Without the file everybody may decide; so deleting it let everybody decide where people had been named."""
    office = Office(tmp_path, NAMES)
    home, study = office.net.sites["north"].home, study_of(office)
    assert home.people.require("approve", "anybody") == "anybody"
    home.people.add(Person("Ada", "steward"))
    before = home.people.path.read_bytes()
    home.people.path.unlink()
    if left is not None:
        home.people.path.write_bytes(left)
    for who in ("Ada", "Mallory", None):
        with pytest.raises(ConfigError, match="names no steward"):
            home.decisions.approve(study, who=who)
        with pytest.raises(ConfigError, match="names no steward"):
            home.people.add(Person("Mallory", "steward"), who=who)
    home.people.path.write_bytes(before)
    assert home.decisions.approve(study, who="Ada").wanted == 0


def test_half_an_approval_of_somebody_who_left_does_not_count(tmp_path: Path) -> None:
    office = Office(tmp_path, NAMES, policy=open_policy(approvers=2))
    home, study = office.net.sites["north"].home, study_of(office)
    for name in ("Ada", "Ben", "Eve"):
        home.people.add(Person(name, "steward"), who=None if name == "Ada" else "Ada")
    home.decisions.approve(study, who="Eve")
    home.people.remove("Eve", who="Ada")
    assert home.decisions.approve(study, who="Ben").wanted == 1


def test_without_a_list_of_people_the_account_stands_in_the_log(tmp_path: Path) -> None:
    office = Office(tmp_path, NAMES)
    home, study = office.net.sites["north"].home, study_of(office)
    home.decisions.approve(study)
    home.decisions.revoke(study.sha256, why="a mistake", who="Ada")
    assert home.audit.where("event", "approved")[-1]["who"] == account()
    assert (home.audit.where("event", "revoked")[-1]["who"], home.audit.where("event", "revoked")[-1]["why"]) == (
        "Ada",
        "a mistake",
    )
    for bad in ("", "  ", "A\nB", "A\x1b[31m", "x" * 81):
        with pytest.raises(ConfigError):
            home.decisions.approve(study, who=bad)


def test_the_last_steward_stays_and_the_first_person_is_one(tmp_path: Path) -> None:
    people = Office(tmp_path, NAMES).net.sites["north"].home.people
    with pytest.raises(ConfigError, match="first"):
        people.add(Person("Ada", "analyst"))
    people.add(Person("Ada", "steward"))
    with pytest.raises(ConfigError, match="last steward"):
        people.remove("Ada", who="Ada")


def test_a_refusal_reaches_the_proposer_with_its_reason_at_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = study_of(office)
            office.net.approve(study)
            south = office.net.sites["south"].home
            south.decisions.refuse(study, "the ethics board has not met", who="Ada")
            begun = asyncio.get_running_loop().time()
            runs = await office.run(study)
            assert asyncio.get_running_loop().time() - begun < 20
            assert "south" not in runs
            for run in runs.values():
                assert isinstance(run.error, PeerLost)
            assert "does not take part: the ethics board has not met" in str(runs["north"].error)
            south.decisions.approve(study)
            office.net.sites["north"].home.approvals.approve(study)
            office.net.sites["west"].home.approvals.approve(study)
            assert {run.state for run in (await office.run(study)).values()} == {"done"}

    bounded(test)


@pytest.mark.parametrize("south_says", ["by its link", "by a word once it has ended"])
@pytest.mark.parametrize("refuses", ["south", "west"])
def test_a_refusals_reason_wins_though_another_site_hears_it_first(tmp_path: Path, refuses: str, south_says: str) -> None:
    first = next(name for name in NAMES[1:] if name != refuses)
    heard: list[float] = []  # when the other site's word of it came to the asker

    def alter(sender: str, receiver: str, frame: bytes) -> list[bytes]:
        envelope = unpack(frame)
        if isinstance(envelope, Notice):  # the site's own word comes by its answer alone
            return []
        if (sender, receiver) == (first, "north"):
            if isinstance(envelope, Sealed) and south_says != "by its link":
                return []
            if isinstance(envelope, Ended) or (isinstance(envelope, Sealed) and envelope.step == ABORT):
                heard.append(asyncio.get_running_loop().time())
        late = (sender, receiver) == (refuses, "north") and isinstance(envelope, Refused)
        return [] if late and (not heard or asyncio.get_running_loop().time() < heard[0] + 0.3) else [frame]

    async def test() -> None:
        async with Office(tmp_path, NAMES, hub=MemoryHub(alter), timing=Timing(beat=0.1, retry=0.3)) as office:
            study = study_of(office)
            office.net.approve(study)
            office.net.sites[refuses].home.decisions.refuse(study, "the ethics board has not met", who="Ada")
            runs = await office.run(study, by="north")
            assert heard
            assert runs["north"].error is not None
            assert "does not take part: the ethics board has not met" in str(runs["north"].error)
            assert runs["north"].error.party == refuses  # type: ignore[attr-defined]

    bounded(test)


def test_a_refusal_is_not_told_to_a_site_that_is_no_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        told: list[tuple[str, str]] = []
        async with Office(tmp_path, (*NAMES, "east")) as office:
            parties = tuple(party for party in study_of(office).parties if party.name != "east")
            study = study_of(office, parties=parties, hosts={"server": "north"})
            south = office.agents["south"]
            south.home.decisions.refuse(study, "no", who="Ada")
            real = south.answers.send

            def note(site: str, pair: Any, word: Any) -> None:
                told.append((site, pair.peer))
                real(site, pair, word)

            monkeypatch.setattr(south.answers, "send", note)
            east, north = office.agents["east"], office.agents["north"]
            north.home.approvals.approve(study)
            run = north.begin(study.sha256)
            while not told:
                await asyncio.sleep(0.01)
            offers = [link for role in run.roles.values() for link in role.links.values() if link.pair.peer == "south"]
            stolen = offers[0].pair.offer(fresh_key(Coins.system()))
            told.clear()
            await east.router.route("south").send(pack(stolen))
            await asyncio.sleep(0.2)
            assert "east" not in {site for site, _ in told}
            await run.done.wait()

    bounded(test)


def test_a_used_up_approval_is_answered_at_once_and_names_the_site(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = study_of(office)
            office.net.approve(study)
            assert {run.state for run in (await office.run(study)).values()} == {"done"}
            office.net.sites["north"].home.approvals.approve(study)
            begun = asyncio.get_running_loop().time()
            runs = await office.run(study, by="north")
            assert asyncio.get_running_loop().time() - begun < 20
            assert "does not take part: the approved number of runs of this study is used up at" in str(runs["north"].error)
            shown = office.agents["south"].show()["refused"]
            assert any("used up" in entry["why"] for entry in shown)

    bounded(test)


def test_an_approval_counts_to_the_end_of_its_last_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = study_of(office)
            office.net.approve(study, runs=5)
            south, day = office.net.sites["south"].home, datetime.now(UTC).date()
            monkeypatch.setattr("blindbayes.agent.approvals.decisions.today", lambda: day)  # midnight may come in between
            with pytest.raises(ConfigError, match="is over: name today or a later day"):
                south.decisions.approve(study, runs=5, until=day - timedelta(days=1))
            assert south.decisions.approve(study, runs=5, until=day).runs_left == 5
            assert {run.state for run in (await office.run(study)).values()} == {"done"}
            monkeypatch.setattr("blindbayes.agent.approvals.decisions.today", lambda: day + timedelta(days=1))
            assert south.approvals.runs_left(study.sha256) == 0
            with pytest.raises(PrivacyError, match=f"the day until which this study was approved is over \\({day}, UTC\\)"):
                office.agents["south"].begin(study.sha256)
            late = replace(south.records(study), now=time.time() + 86400)
            with pytest.raises(PrivacyError, match="is over"):  # also of a run that began in time and computes too late
                require_all(request_of(study, "south"), late)
            with pytest.raises(PrivacyError, match="is over"):
                office.agents["south"].predict(study.sha256, {})
            begun = asyncio.get_running_loop().time()
            runs = await office.run(study)
            assert asyncio.get_running_loop().time() - begun < 20
            told = "does not take part: the day until which this study was approved is over at south"
            assert told in str(runs["north"].error)
            south.decisions.approve(study, runs=1)  # a new yes without a day has no end
            assert {run.state for run in (await office.run(study)).values()} == {"done"}

    bounded(test)


def test_two_stewards_say_yes_to_the_same_last_day(tmp_path: Path) -> None:
    office = Office(tmp_path, NAMES, policy=open_policy(approvers=2))
    home, study, day = office.net.sites["north"].home, study_of(office), datetime.now(UTC).date() + timedelta(days=9)
    home.people.add(Person("Ada", "steward"))
    home.people.add(Person("Ben", "steward"), who="Ada")
    assert home.decisions.approve(study, until=day, who="Ada").wanted == 1
    assert home.decisions.approve(study, who="Ben").wanted == 1  # for good is another question
    assert home.decisions.approve(study, until=day, who="Ben").wanted == 0
    assert home.approvals.until(study.sha256) == day


def test_runs_are_listed_after_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = study_of(office)
            office.net.approve(study, runs=2)
            first, second = [(await office.run(study))["north"].run_id for _ in range(2)]
            await office.stop("north")
            north = await office.start("north")
            assert north.runs == {}
            found = north.home.history.runs()
            assert [(each["run"], each["state"], each["kind"]) for each in found] == [
                (second, "done", "sum"),
                (first, "done", "sum"),
            ]
            assert found[0]["joined"] <= found[0]["computing"] <= found[0]["ended"]
            assert north.home.history.runs(study="0" * 64) == []

    bounded(test)


def test_a_long_history_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,000 runs and more entries around them: asking again neither reads nor hashes what is known."""
    log = AuditLog(tmp_path / "audit.log")
    monkeypatch.setattr("blindbayes.io.chain.os.fsync", lambda handle: None)
    for number in range(1000):
        run = f"{number:032x}"
        log.append("joined", run=run, study="ab" * 32, proposed_by="north", roster="ab" * 32)
        log.append("computing", run=run, study="ab" * 32, exact=False)
        log.append("witnessed", run=run, site="south", heads="{}")
        log.append("ended", run=run, study="ab" * 32, state="done")
    fresh = AuditLog(tmp_path / "audit.log")
    history = History(fresh)
    assert len(history.runs()) == 1000
    hashed = 0
    real = type(fresh._chain.form).digest

    def counting(form: Any, fields: Any) -> str:
        nonlocal hashed
        hashed += 1
        return real(form, fields)

    monkeypatch.setattr(type(fresh._chain.form), "digest", counting)
    begun = time.process_time()
    for _ in range(100):
        assert len(history.runs(last=20)) == 20
        assert history.has_computed("0" * 31 + "7")
        assert len(history.witnessed("south")) == 64
    assert time.process_time() - begun < 2
    assert hashed == 0
    fresh.append("ended", run="f" * 32, study="cd" * 32, state="done")
    assert hashed == 1
