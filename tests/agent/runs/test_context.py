"""Rules that stand between a run and this site's rows, each with a test that fails when the rule is turned off."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from blindbayes.agent.runs.context import request_of
from blindbayes.agent.runs.release import write_release
from blindbayes.disclosure.checks import require_all
from blindbayes.dp.accounting.accountant import Spend
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.errors import LedgerError, PeerProtocolError, PrivacyError
from blindbayes.io.chain import rehearsal
from blindbayes.net.driver import Finished, RoleDriver, outcome_of
from blindbayes.protocols.registry import Total
from blindbayes.study.file import Deadlines
from blindbayes.study.simulation.site import MemorySite
from blindbayes.testing.loopback import Loopback
from blindbayes.wire.transcript import PartyCost
from support.sites import BOOK, Office, bounded, make_rows

NAMES = ("north", "south", "west")


def test_one_run_more_than_approved_is_refused_at_the_last_look(tmp_path: Path) -> None:
    """Two runs begun at once both pass the first look; the second to compute is one too many."""
    net = Loopback(tmp_path / "sites", make_rows(tmp_path, NAMES, rows=12))
    study, home = net.make_study(BOOK), net.sites["north"].home
    home.approvals.approve(study)
    require_all(request_of(study, "north"), home.records(study))
    home.audit.append("computing", run="ab" * 16, study=study.sha256, exact=False)
    with pytest.raises(PrivacyError, match="used up"):
        require_all(request_of(study, "north"), home.records(study))
    home.approvals.approve(study)
    require_all(request_of(study, "north"), home.records(study))


def test_what_messages_depend_on_is_on_disk_before_they_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay after a crash must meet every message that its own were made from: else noise would be drawn twice."""
    real, late, checked = RoleDriver._advance, [], []

    def watched(driver: RoleDriver, value: Any) -> Any:
        journal = driver._journal
        held = journal._number
        batch = real(driver, value)
        if batch.sends:
            checked.append(held)
            late.extend([held] * (journal._committed < held))
        return batch

    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = office.net.make_study(BOOK, deadlines=Deadlines(step=20, join=20, run=35))
            office.net.approve(study)
            monkeypatch.setattr(RoleDriver, "_advance", watched)
            assert {run.state for run in (await office.run(study)).values()} == {"done"}

    bounded(test)
    assert len(checked) > 10
    assert late == []


def test_two_roles_of_a_site_that_learned_different_totals_write_no_release(tmp_path: Path) -> None:
    net = Loopback(tmp_path / "sites", make_rows(tmp_path, NAMES, rows=12))
    study = net.make_study(BOOK)
    words = np.arange(study.setting.length, dtype=np.uint64)
    one, other, fewer = Total(words, NAMES), Total(words + np.uint64(1), NAMES), Total(words, NAMES[:2])
    for wrong in (other, fewer):
        finished = {seat: Finished(total, ("sum",), {}, (), PartyCost()) for seat, total in (("north", one), ("server", wrong))}
        job = study.task.at(MemorySite("north"), "ab" * 16)
        result = partial(job.result, outcome_of(finished))
        with pytest.raises(PeerProtocolError, match="different totals"):
            write_release(tmp_path / "releases", "ab" * 16, study, result, (), net.sites["north"].identity)
        assert not (tmp_path / "releases" / ("ab" * 16)).exists()


def test_a_rehearsal_refuses_as_the_real_thing_does_and_writes_nothing(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger", epsilon=1)
    before = ledger.path.read_bytes()
    with rehearsal():
        ledger.charge(Spend(1, 0), purpose="rehearsed", unit="one record")
        assert [entry.n for entry in ledger.entries()] == [0, 1]  # what comes after sees it
        with pytest.raises(PrivacyError, match="budget exceeded"):
            ledger.charge(Spend(1, 0), purpose="one too many", unit="one record")
    with rehearsal():
        ledger.charge(Spend(1, 0), purpose="rehearsed again", unit="one record")
        elsewhere: list[int] = []
        thread = threading.Thread(target=lambda: elsewhere.append(len(ledger.entries())))
        thread.start()
        thread.join()
    assert elsewhere == [1]
    assert ledger.path.read_bytes() == before
    ledger.charge(Spend(1, 0), purpose="paid", unit="one record")
    assert Ledger(ledger.path).balance().charges == 1


def test_a_chain_verifies_each_line_once_and_still_sees_every_cut(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger", epsilon=100)
    for _ in range(5):
        ledger.note("run")
    other = Ledger(ledger.path)
    assert len(other.entries()) == 6
    whole = ledger.path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for changed in (b"".join(lines[:-1]), b"".join(lines[:3]), lines[0]):
        ledger.path.write_bytes(changed)
        for known in (ledger, other):
            with pytest.raises(LedgerError, match="cut or replaced"):
                known.head  # noqa: B018
            with pytest.raises(LedgerError, match="cut or replaced"):
                known.note("run")
        assert len(Ledger(ledger.path).entries()) == len(changed.splitlines())  # who never saw more cannot tell
    ledger.path.write_bytes(whole)
    assert len(other.entries()) == 6
