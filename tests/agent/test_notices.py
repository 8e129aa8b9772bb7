"""Invitations and decisions between agents: from pinned parties alone, bounded, approved by nobody but people."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from blindbayes.agent import notices as module
from blindbayes.agent.agent import Agent
from blindbayes.agent.store import backup as backups
from blindbayes.agent.store import inbox
from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError, PeerLost
from blindbayes.net.envelope import Notice, unpack
from blindbayes.net.identity import Identity
from blindbayes.net.notices import MAX_INVITATION_BYTES, Content, Heard, Invitation, Standing, seal_notice
from blindbayes.study.file import Deadlines, StudyFile
from support.hub import MemoryHub
from support.sites import BOOK, LOOSE, Office, bounded

NAMES = ("north", "south", "west")


def study_of(office: Office, title: str = "Readmission", **more: Any) -> StudyFile:
    return office.net.make_study(BOOK, title=title, deadlines=Deadlines(step=20, join=600, run=900), **more)


async def until(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def states(agent: Agent, study: StudyFile) -> dict[str, str]:
    return {row["site"]: row["state"] for row in agent.notices.answers(study)}


def write_at(office: Office, name: str, study: StudyFile) -> None:
    module.store_study(office.agents[name].home, study)


def frame(office: Office, sender: str, to: str, content: Content) -> bytes:
    sites = office.net.sites
    return seal_notice(sites[sender].identity, sites[to].identity.card, content, Coins.system())


def hand(agent: Agent, sender: str, raw: bytes) -> None:
    agent.router.frame_arrived(sender, raw)


def test_an_invitation_arrives_is_approved_by_nobody_and_every_party_sees_who_waits(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study, north = study_of(office), office.agents["north"]
            write_at(office, "north", study)
            north.notices.invite(study, "Ada")
            await until(lambda: states(north, study) == dict.fromkeys(NAMES, "waiting"))
            for name in ("south", "west"):
                home = office.agents[name].home
                assert home.approvals.all() == []
                assert office.agents[name].notices.inviter(study.sha256) == "north"
                home.decisions.approve(study, who="Grace")
            north.home.decisions.approve(study, who="Ada")
            for name in NAMES:
                await until(lambda: set(states(office.agents[name], study).values()) == {"approved"})  # noqa: B023
            assert {run.state for run in (await office.run(study)).values()} == {"done"}

    bounded(test)


def test_a_revocation_ends_the_wait_of_a_run_at_once_with_site_and_reason(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study, west = study_of(office), office.agents["west"]
            for name in ("north", "south"):
                office.agents[name].home.approvals.approve(study)
            module.store_study(west.home, study)  # it has the study and has not answered: the others wait for it
            run = office.agents["north"].begin(study.sha256)
            await until(lambda: run.roles and "west" in run.roles["north"].show()["waiting_for"])
            west.home.decisions.refuse(study, "the board decided against it", who="Grace")
            await run.done.wait()
            assert isinstance(run.error, PeerLost)
            assert run.error.party == "west"
            assert "the board decided against it" in str(run.error)
            # a run that begins after a revocation ends as quickly
            west.home.decisions.approve(study, who="Grace")
            west.home.decisions.revoke(study.sha256, why="Board decision", who="Grace")
            office.agents["south"].home.approvals.approve(study)
            office.agents["north"].home.approvals.approve(study)
            again = office.agents["north"].begin(study.sha256)
            await again.done.wait()
            assert again.error is not None
            assert "west: does not take part: it revoked its approval: Board decision" in str(again.error)

    bounded(test)


def test_a_restored_site_announces_that_its_approvals_are_gone(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study, north = study_of(office), office.agents["north"]
            office.net.approve(study, runs=9)
            home = office.agents["west"].home
            backups.backup(home, tmp_path / "b", "correct horse battery")
            for _ in range(3):  # decisions that the backup lacks
                home.decisions.revoke(study.sha256, why="moved", who="Grace")
                home.decisions.approve(study, runs=9, who="Grace")
            await until(lambda: states(north, study)["west"] == "approved")
            before = home.decisions.standing(study).number
            await until(lambda: north.notices._answers[study.sha256]["west"].number == before)
            await office.stop("west")
            shutil.rmtree(home.folder)
            office.net.sites["west"].home = backups.restore(tmp_path / "b", home.folder, "correct horse battery")
            await office.start("west")
            await until(lambda: states(north, study)["west"] == "revoked")
            run = north.begin(study.sha256)
            await run.done.wait()
            assert "west: does not take part: it revoked its approval: the site came back from a backup" in str(run.error)

    bounded(test)


def test_the_last_word_of_a_site_that_is_gone_ends_a_run_too(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study, north = study_of(office), office.agents["north"]
            for name in NAMES:
                office.agents[name].home.approvals.approve(study)
            office.agents["west"].home.decisions.revoke(study.sha256, why="moved", who="Grace")
            await until(lambda: states(north, study)["west"] == "revoked")
            await office.stop("west")
            run = north.begin(study.sha256)
            await run.done.wait()
            assert run.error is not None
            assert "it revoked its approval: moved" in str(run.error)

    bounded(test)


def test_a_reason_that_is_kept_and_a_private_policy_send_less(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study, north = study_of(office), office.agents["north"]
            west, south = office.agents["west"].home, office.agents["south"].home
            for name in NAMES:
                office.agents[name].home.approvals.approve(study)
            west.decisions.revoke(study.sha256, why="a patient complained", who="Grace", share=False)
            await until(lambda: states(north, study)["west"] == "revoked")
            assert [row["reason"] for row in north.notices.answers(study)] == ["", "", ""]
            await until(lambda: states(north, study)["south"] == "approved")
            south.config = msgspec.structs.replace(
                south.config, policy=msgspec.structs.replace(LOOSE, announce_decisions=False)
            )
            south.decisions.refuse(study, "a patient complained", who="Grace")
            run = north.begin(study.sha256)
            await run.done.wait()
            assert run.error is not None
            assert "complained" not in str(run.error)
            assert states(north, study)["south"] == "approved"  # the fact was not announced
            for name in ("north", "west"):
                assert b"complained" not in (office.agents[name].home.folder / "answers.json").read_bytes()

    bounded(test)


# -- what others may try -----------------------------------------------------------------------------------------------


def test_notices_of_sites_that_are_unknown_unpinned_or_no_party_change_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, (*NAMES, "east")) as office:
            study = study_of(office, parties=tuple(each for each in study_of(office).parties if each.name != "east"))
            south, text = office.agents["south"], Invitation(study.to_toml())
            other = Identity.generate("nobody")
            for sender, raw in (
                ("nobody", seal_notice(other, south.identity.card, text, Coins.system())),  # nobody pinned it
                (
                    "north",
                    seal_notice(Identity.generate("north"), south.identity.card, text, Coins.system()),
                ),  # another identity
                ("north", frame(office, "east", "south", text)),  # a pinned site in another's name
                ("west", frame(office, "north", "south", text)),  # replayed by another site
                ("north", frame(office, "north", "west", text)),  # meant for another site
            ):
                hand(south, sender, raw)
            assert south.counters["notices_refused"] == 5
            hand(south, "east", frame(office, "east", "south", text))  # pinned, and no party of the study
            await until(lambda: south.counters["notices_refused"] == 6)
            assert module.known_studies(south.home) == {}
            assert south.home.audit.where("event", "invitation") == []

    bounded(test)


def test_a_site_that_is_no_party_neither_decides_nor_learns_that_the_study_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with Office(tmp_path, (*NAMES, "east")) as office:
            study = study_of(office, parties=tuple(each for each in study_of(office).parties if each.name != "east"))
            south, sent = office.agents["south"], list[str]()
            send = south.router.courier.send

            async def watched(to: str, raw: bytes) -> None:
                sent.append(to)
                await send(to, raw)

            monkeypatch.setattr(south.router.courier, "send", watched)
            write_at(office, "south", study)
            for sender in ("east", "north"):
                standing = Standing(study.sha256, study.roster.sha256, "refused", "no", 1)
                hand(south, sender, frame(office, sender, "south", standing))
            await until(lambda: "north" in sent)
            assert "east" not in sent
            assert set(south.notices._answers[study.sha256]) == {"north"}

    bounded(test)


def test_what_is_no_study_or_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study, south, north = study_of(office), office.agents["south"], office.agents["north"]
            changed = study.sign("north", office.net.sites["north"].identity.signing).to_toml().replace("Readmission", "Other")
            for text in ("", "\x00", "[" * 100_000, study.to_toml()[:400], changed):
                refused = south.counters["notices_refused"]
                hand(south, "north", frame(office, "north", "south", Invitation(text)))
                await until(lambda: south.counters["notices_refused"] == refused + 1)  # noqa: B023
            assert module.known_studies(south.home) == {}
            raw = bytearray(frame(office, "north", "south", Invitation(study.to_toml())))
            raw[-1] ^= 1
            hand(south, "north", bytes(raw))
            hand(south, "north", bytes(raw[:40]))
            assert module.known_studies(south.home) == {}
            with pytest.raises(ConfigError, match="kB"):
                frame(office, "north", "south", Invitation("x" * (MAX_INVITATION_BYTES + 100)))
            long = study_of(office, title="Long")
            module.store_study(north.home, long)
            monkeypatch.setattr(StudyFile, "to_toml", lambda _: "x" * (MAX_INVITATION_BYTES + 1))
            with pytest.raises(ConfigError, match="too long for an invitation"):
                north.notices.invite(long, "Ada")

    bounded(test)


def test_a_flood_of_invitations_fills_neither_the_inbox_nor_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BURST", 1000.0)
    monkeypatch.setattr(module, "MAX_WAITING", 3)

    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            south = office.agents["south"]
            for number in range(6):
                study = study_of(office, title=f"Study {number}")
                raw = frame(office, "north", "south", Invitation(study.to_toml()))
                for _ in range(3):  # the same one again and again counts once
                    hand(south, "north", raw)
                    await until(lambda: not south.notices._parsing["north"])
            assert len(module.known_studies(south.home)) == 3
            assert len(south.home.audit.where("event", "invitation")) == 3
            one = study_of(office, title="Of west")  # a flood of north's leaves west its place
            hand(south, "west", frame(office, "west", "south", Invitation(one.to_toml())))
            await until(lambda: one.sha256 in module.known_studies(south.home))

    bounded(test)


def test_notices_beyond_the_rate_are_dropped_before_they_are_decrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            south, opened = office.agents["south"], []
            monkeypatch.setattr(module, "open_notice", lambda *given: opened.append(given) or Heard("", 0))
            monkeypatch.setattr(module, "_PER_SECOND", 0.0)
            raw = frame(office, "north", "south", Heard("0" * 64, 0))
            before = south.notices._rates.setdefault("north", module._Rate()).left
            for _ in range(200):
                hand(south, "north", raw)
            assert len(opened) == int(before)
            assert south.counters["notices_refused"] == 200 - int(before)

    bounded(test)


def test_a_site_that_reads_nothing_delays_no_notice_to_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            north, stuck = office.agents["north"], asyncio.Event()
            send = north.router.courier.send

            async def to_south_never(to: str, raw: bytes) -> None:
                await (stuck.wait() if to == "south" else send(to, raw))

            monkeypatch.setattr(north.router.courier, "send", to_south_never)
            studies = [study_of(office, title=f"Study {number}") for number in range(3)]
            for study in studies:
                write_at(office, "north", study)
                north.notices.invite(study, "Ada")
            await until(lambda: len(module.known_studies(office.agents["west"].home)) == 3)
            assert set(north.notices._sending) == {"south"}
            monkeypatch.setattr(module, "_SENDING_SECONDS", 0.01)
            stuck.set()
            monkeypatch.setattr(north.router.courier, "send", send)
            north.notices._connected("south")
            await until(lambda: len(module.known_studies(office.agents["south"].home)) == 3)

    bounded(test)


def test_frames_that_nobody_takes_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SENDING_SECONDS", 0.01)

    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study, south = study_of(office), office.agents["south"]
            write_at(office, "south", study)

            async def never(to: str, raw: bytes) -> None:
                await asyncio.Event().wait()

            monkeypatch.setattr(south.router.courier, "send", never)
            for number in range(40):  # every one would be acknowledged
                standing = Standing(study.sha256, study.roster.sha256, "waiting", "", number)
                hand(south, "north", frame(office, "north", "south", standing))
            assert len(south.notices._tasks) > 40
            await until(lambda: len(south.notices._tasks) <= 3)  # the loop that follows, and one per site

    bounded(test)


def test_invitations_are_parsed_rarely_and_never_on_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long study takes seconds to parse: while the loop does it, no run makes a step."""
    parsed: list[str] = []
    parse = StudyFile.from_text.__func__  # type: ignore[attr-defined]

    def watched(cls: type[StudyFile], *given: Any, **more: Any) -> StudyFile:
        parsed.append(threading.current_thread().name)
        return parse(cls, *given, **more)  # type: ignore[no-any-return]

    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            south, study = office.agents["south"], study_of(office)
            monkeypatch.setattr(StudyFile, "from_text", classmethod(watched))
            monkeypatch.setattr(module, "_BURST", 1000.0)
            monkeypatch.setattr(module, "_INVITATIONS_PER_SECOND", 0.0)
            raw = frame(office, "north", "south", Invitation(study.to_toml()))
            for _ in range(60):
                hand(south, "north", raw)
                await until(lambda: not south.notices._parsing["north"])
            assert list(module.known_studies(south.home)) == [study.sha256]
            assert parsed
            assert threading.main_thread().name not in parsed
            assert len(parsed) == 32 + 1  # and once from the inbox
            parsed.clear()
            inbox._parsed.clear()  # as after a restart
            await office.stop("south")
            await office.start("south")
            assert parsed
            assert threading.main_thread().name not in parsed

    bounded(test)


def test_an_old_refusal_that_is_replayed_does_not_replace_a_newer_approval(tmp_path: Path) -> None:
    seen: list[bytes] = []

    def note(sender: str, to: str, raw: bytes) -> list[bytes]:
        if (sender, to) == ("west", "north") and isinstance(unpack(raw), Notice):
            seen.append(raw)
        return [raw]

    async def test() -> None:
        async with Office(tmp_path, NAMES, hub=MemoryHub(note)) as office:
            study, north = study_of(office), office.agents["north"]
            write_at(office, "north", study)
            west = office.agents["west"].home
            west.decisions.refuse(study, "no", who="Grace")
            await until(lambda: states(north, study)["west"] == "refused")
            refusals = list(seen)
            west.decisions.approve(study, who="Grace")
            await until(lambda: states(north, study)["west"] == "approved")
            for raw in refusals:
                hand(north, "west", raw)
            assert states(north, study)["west"] == "approved"
            await office.stop("north")  # and after a restart
            north = await office.start("north")
            for raw in refusals:
                hand(north, "west", raw)
            assert states(north, study)["west"] == "approved"

    bounded(test)


def test_a_site_speaks_for_itself_alone(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study, north = study_of(office), office.agents["north"]
            write_at(office, "north", study)
            standing = Standing(study.sha256, study.roster.sha256, "refused", "forged", 7)
            hand(north, "west", frame(office, "south", "north", standing))  # south writes west's name on the frame
            notice = unpack(frame(office, "south", "north", standing))
            assert isinstance(notice, Notice)
            hand(north, "west", msgspec.msgpack.encode(msgspec.structs.replace(notice, sender="west")))
            assert states(north, study) == {"north": "waiting", "south": "not answered", "west": "not answered"}
            hand(north, "south", frame(office, "south", "north", standing))
            assert states(north, study)["south"] == "refused"
            assert states(north, study)["west"] == "not answered"
            hand(north, "west", frame(office, "west", "north", msgspec.structs.replace(standing, roster="0" * 64)))
            assert states(north, study)["west"] == "not answered"  # about parties that this site does not know

    bounded(test)
