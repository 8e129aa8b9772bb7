"""Keys of masked_sum that stand over runs, at agents: sealed, stepped on, taken up after a crash, in no backup."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from blindbayes.protocol.masked_sum import contributor, ratchet
from blindbayes.site.backup import backup, restore
from blindbayes.site.kept_state import KeptInFolder
from blindbayes.study.file import Deadlines, StudyFile
from blindbayes.transport.journal import Begun, Journal
from support.hub import MemoryHub
from support.sites import BOOK, Gate, Office, bounded

NAMES = ("north", "south", "west")
QUICK = Deadlines(step=20, join=20, run=35)


def standing_study(office: Office, runs: int) -> StudyFile:
    study = office.net.make_study(BOOK, deadlines=QUICK, protocol="masked_sum", options={"keys": "standing"})
    office.net.approve(study, runs=runs)
    return study


def chains(office: Office, study: StudyFile) -> dict[str, ratchet.Chains | None]:
    """What every site keeps of its keys."""
    sites = {name: office.net.sites[name] for name in NAMES}
    return {
        name: ratchet.read(KeptInFolder(site.home.folder, study.sha256, name, site.identity.storage_key).load())
        for name, site in sites.items()
    }


async def done(office: Office, study: StudyFile) -> None:
    runs = await office.run(study)
    assert {run.state for run in runs.values()} == {"done"}, [str(run.error) for run in runs.values()]


def test_agents_agree_once_and_step_their_sealed_keys_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = standing_study(office, 3)
            names = set()
            for number in (1, 2, 3):
                await done(office, study)
                kept = chains(office, study)
                assert {each.epoch for each in kept.values() if each} == {number}
                names |= {each.name for each in kept.values() if each}
                north, south = kept["north"], kept["south"]
                assert north is not None
                assert south is not None
                assert north.of(("south",)) == south.of(("north",))
                for path in (tmp_path / "sites").rglob("*"):
                    assert not path.is_file() or north.keys[:32] not in path.read_bytes()
            assert len(names) == 1

    bounded(test)


def test_a_site_without_its_keys_agrees_anew_with_all(tmp_path: Path) -> None:
    """A restored backup: it holds none."""

    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = standing_study(office, 3)
            await done(office, study)
            home = office.net.sites["south"].home
            assert list((home.folder / "standing").iterdir())
            backup(home, tmp_path / "backup", "a long passphrase")
            restore(tmp_path / "backup", tmp_path / "restored", "a long passphrase")
            assert not (tmp_path / "restored" / "standing").exists()
            for path in (home.folder / "standing").iterdir():
                path.unlink()
            first = chains(office, study)["north"]
            await done(office, study)
            second = chains(office, study)["north"]
            assert first is not None
            assert second is not None
            assert first.name != second.name
            await done(office, study)

    bounded(test)


@pytest.mark.parametrize("messages", [1, 2])  # its shares, or its vector, do not leave
def test_a_site_that_crashes_after_the_step_takes_the_run_up_with_the_keys_it_began_with(
    tmp_path: Path, messages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal has the chain, and the folder none before the run's end. The masks are the same, and so is the vector."""
    used: list[tuple[bytes, ...]] = []
    real = contributor.add_masks

    def add_masks(vector: Any, plus: bytes, minus: bytes) -> Any:
        used.append((vector.tobytes(), plus, minus))
        return real(vector, plus, minus)

    async def test() -> None:
        hub = MemoryHub()
        async with Office(tmp_path, NAMES, hub=hub) as office:
            study = standing_study(office, 2)
            await done(office, study)
            monkeypatch.setattr(contributor, "add_masks", add_masks)
            gate = hub.alter = Gate("south", messages)
            run_id = office.agents["north"].begin(study.sha256).run_id
            await gate.shut.wait()
            await office.stop("south")
            assert chains(office, study)["south"] is None
            hub.alter = None
            await office.start("south")
            runs = await office.ended(run_id)
            assert {each.state for each in runs.values()} == {"done"}, [str(each.error) for each in runs.values()]
            assert {each.epoch for each in chains(office, study).values() if each} == {2}
        assert len(used) > 3 or messages == 1  # south's twice
        vectors = {masks[1:]: masks[0] for masks in used}
        assert all(vectors[masks[1:]] == masks[0] for masks in used)  # one stream, one vector

    bounded(test)


def test_a_file_that_was_altered_or_belongs_to_another_is_as_if_there_were_none(tmp_path: Path) -> None:
    kept = KeptInFolder(tmp_path, "s" * 64, "north", bytes(32))
    assert kept.load() == b""
    kept.keep(b"state")
    assert KeptInFolder(tmp_path, "s" * 64, "north", bytes(32)).load() == b""  # the run has not ended
    kept.settle()
    assert KeptInFolder(tmp_path, "s" * 64, "north", bytes(32)).load() == b"state"
    assert KeptInFolder(tmp_path, "s" * 64, "north", b"k" * 32).load() == b""
    (path,) = (tmp_path / "standing").iterdir()
    assert b"state" not in path.read_bytes()
    path.rename(path.with_name(path.name.replace("north", "south")))
    assert KeptInFolder(tmp_path, "s" * 64, "south", bytes(32)).load() == b""


def test_a_journal_holds_what_the_run_began_with_however_many_members(tmp_path: Path) -> None:
    state = bytes(range(256)) * 16
    Journal.create(tmp_path / "j", Begun("s", "r", "me", bytes(32), b"", "code", state), bytes(32)).close()
    found = Journal.find(tmp_path / "j", "r", bytes(32))
    assert found is not None
    assert found.begun.standing == state
    found.close()
    whole = (tmp_path / "j" / "journal").read_bytes()
    (tmp_path / "j" / "journal").write_bytes(whole[:-1])  # a crash as it was created
    assert Journal.find(tmp_path / "j", "r", bytes(32)) is None


def test_a_run_that_is_taken_up_late_does_not_bring_back_keys_of_runs_that_have_ended(tmp_path: Path) -> None:
    def kept(found: bytes | None = None) -> KeptInFolder:
        return KeptInFolder(tmp_path, "ab" * 32, "north", b"k" * 32, found)

    def ended(run: KeptInFolder, state: bytes) -> None:
        run.take()
        run.keep(state)
        run.settle()

    ended(kept(), b"three")
    early = kept().load()
    for state in (b"four", b"five"):
        ended(kept(), state)
    ended(kept(early), b"four")  # its journal brings it back to where it began
    assert kept().load() == b"five"


def test_a_run_that_is_held_open_keeps_no_key_of_runs_that_end_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server lets run A hang; whoever reads a contributor's folder then, with its key, had the chain keys of ended runs."""
    used: list[bytes] = []
    real = ratchet.forward

    def forward(keys: bytes, count: int) -> bytes:
        used.append(keys)
        return real(keys, count)

    async def test() -> None:
        hub, held = MemoryHub(), []

        def alter(sender: str, to: str, frame: bytes) -> list[bytes]:
            return [] if held and held[0].encode() in frame and "west" in (sender, to) else [frame]

        hub.alter = alter
        async with Office(tmp_path, NAMES, hub=hub) as office:
            study = standing_study(office, 9)
            await done(office, study)
            held.append(office.agents["north"].begin(study.sha256).run_id)
            south = office.agents["south"]
            while held[0] not in south.runs or not south.runs[held[0]].seats:
                await asyncio.sleep(0.02)
            monkeypatch.setattr(ratchet, "forward", forward)
            for _ in range(2):
                await done(office, study)
            monkeypatch.setattr(ratchet, "forward", real)
            assert not south.runs[held[0]].done.is_set()
            site = office.net.sites["south"]
            journal = Journal.find(site.home.runs.folder(held[0]) / "south", held[0], site.identity.storage_key)
            assert journal is not None
            stolen = ratchet.read(journal.begun.standing)
            journal.close()
            assert stolen is not None
            assert used
            assert {real(stolen.keys, steps) for steps in range(4)}.isdisjoint(used)

    bounded(test)
