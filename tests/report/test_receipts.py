"""What agents sign at the end of a run: who is in the result, whom a release lacks, and what a lying role changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from blindbayes.agent.runs import context as work_module
from blindbayes.agent.runs import role_runner
from blindbayes.agent.runs.release import check_release
from blindbayes.agent.runs.role_runner import RoleRunner
from blindbayes.agent.runs.run import AgentRun
from blindbayes.io.files import read_folder
from blindbayes.net.driver import RECEIPT
from blindbayes.net.envelope import Sealed, unpack
from blindbayes.report.receipts import RECEIPTS, Receipt, pack
from blindbayes.report.verification import Verification
from blindbayes.study.file import Deadlines, Limits, StudyFile
from support.hub import MemoryHub
from support.sites import BOOK, Gate, Office, bounded

NAMES = ("north", "south", "west")
QUICK = Deadlines(step=3, join=10, run=30)


def study_of(office: Office, **fields: Any) -> StudyFile:
    study: StudyFile = office.net.make_study(BOOK, deadlines=QUICK, **fields)
    office.net.approve(study, runs=3)
    return study


def checked(office: Office, run: AgentRun) -> Verification:
    """A run's release, as a reader with all cards sees it."""
    assert run.release is not None, run.error
    keys = {name: site.identity.card.identity for name, site in office.net.sites.items()}
    return check_release(read_folder(run.release), keys)[1]


def test_a_site_that_was_lost_is_left_out_by_every_receipt(tmp_path: Path) -> None:
    async def test() -> None:
        hub = MemoryHub()
        async with Office(tmp_path, (*NAMES, "east"), hub=hub) as office:
            study = study_of(office, limits=Limits(quorum=3))
            hub.alter = Gate("east", 2)  # keys and shares leave, the masked vector does not
            runs = await office.run(study)
            for name in NAMES:
                found = checked(office, runs[name])
                assert (set(found.receipts), found.no_receipt, found.left_out) == ({*NAMES}, (), ("east",))
                receipts = json.loads((runs[name].release / RECEIPTS).read_text())  # type: ignore[operator]
                assert {tuple(each["left_out"]) for each in receipts.values()} == {("east",)}

    bounded(test)


def test_in_a_star_the_site_of_the_hub_has_all_receipts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(role_runner, "_MESH", 2)

    async def test() -> None:
        async with Office(tmp_path, (*NAMES, "east")) as office:
            study = study_of(office)
            runs = await office.run(study)
            hub = study.host("server")
            for name, run in runs.items():
                found = checked(office, run)
                silent = {*NAMES, "east"} - {name} if name != hub else set()  # contributors do not speak with each other
                assert (found.makers, set(found.no_receipt)) == ((name,), silent)

    bounded(test)


def test_a_receipt_that_is_withheld_costs_a_step_and_no_result(tmp_path: Path) -> None:
    def withhold(sender: str, to: str, frame: bytes) -> list[bytes]:
        envelope = unpack(frame)
        return [] if sender == "west" and isinstance(envelope, Sealed) and envelope.step == RECEIPT else [frame]

    async def test() -> None:
        async with Office(tmp_path, NAMES, hub=MemoryHub(withhold)) as office:
            runs = await office.run(study_of(office))
            assert {run.state for run in runs.values()} == {"done"}
            for name in ("north", "south"):
                found = checked(office, runs[name])
                assert (set(found.receipts), found.no_receipt) == ({"north", "south"}, ("west",))

    bounded(test)


@pytest.mark.parametrize("lie", ["another set", "another run", "no receipt", "long"])
def test_a_role_that_signs_something_else_has_no_receipt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str) -> None:
    """It spoils its own receipt alone: the release is written, and says who is missing."""
    inner = RoleRunner.receipt

    def signs(self: RoleRunner, value: Any) -> bytes:
        if self.name != "west":
            return inner(self, value)
        key, run, left_out = self._signing, self._run_id, ("north",) if lie == "another set" else ()
        other = Receipt(left_out).sign(self.study.roster.sha256, "ab" * 16 if lie == "another run" else run, self.name, key)
        return {"no receipt": b"\xc1", "long": pack(other) + bytes(1000)}.get(lie, pack(other))

    monkeypatch.setattr(RoleRunner, "receipt", signs)

    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            runs = await office.run(study_of(office))
            assert {run.state for run in runs.values()} == {"done"}
            assert checked(office, runs["north"]).no_receipt == ("west",)

    bounded(test)


def test_a_release_that_is_written_after_a_restart_has_its_receipts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk was full when the roles had ended: the journal, replayed, signs the same and holds what the others signed."""
    inner = work_module.write_release

    def full(folder: Path, *given: Any, **more: Any) -> Path:
        if folder.parent.name == "north":
            raise OSError(28, "No space left on device")
        return inner(folder, *given, **more)

    monkeypatch.setattr(work_module, "write_release", full)

    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            runs = await office.run(study_of(office))
            run_id = runs["north"].run_id
            assert (runs["north"].state, runs["south"].state) == ("failed", "done")
            monkeypatch.setattr(work_module, "write_release", inner)
            await office.stop("north")
            again = (await office.start("north")).runs[run_id]
            await again.done.wait()
            assert set(checked(office, again).receipts) == {*NAMES}

    bounded(test)
