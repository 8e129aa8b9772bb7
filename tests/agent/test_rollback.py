"""Detection of a rollback: peers compare the heads of logs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from blindbayes.agent.rollback import PeerLogHeads
from blindbayes.study.file import Privacy
from support.recovery import reopen, study_of
from support.sites import Office, bounded

NAMES = ("north", "south", "west")


def test_a_site_that_wrote_more_than_it_lost_is_seen_by_its_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changed software that does not look at its own logs: the heads that it says it showed lack the one that was seen."""

    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = study_of(office, privacy=Privacy(epsilon=1.0))
            office.net.approve(study, runs=9)
            assert (await office.run(study))["north"].state == "done"
            home = office.net.sites["north"].home
            await office.stop("north")
            shutil.copytree(home.folder, tmp_path / "copy")
            await office.start("north")
            assert (await office.run(study))["north"].state == "done"
            await office.stop("north")
            shutil.rmtree(home.folder)
            shutil.copytree(tmp_path / "copy", home.folder)
            home = reopen(office, "north")
            for _ in range(60):
                home.audit.append("person added", person="Nobody", role="analyst", who="Nobody")
            monkeypatch.setattr(PeerLogHeads, "check_own_heads", lambda *_: None)
            monkeypatch.setattr(PeerLogHeads, "require_ledger", lambda *_: None)
            home.ledger.note("padded")
            home.ledger.note("padded")
            await office.start("north")
            runs = await office.run(study)
            errors = [str(run.error) for name, run in runs.items() if name != "north"]
            assert any("north: shows an other audit log than it showed before" in error for error in errors), errors
            assert home.ledger.balance().spent_epsilon == 1.0

    bounded(test, 60)
