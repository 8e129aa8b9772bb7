"""Receipts at the end of a run go to the roles that read them: a contributor that learns nothing leaves early."""

from __future__ import annotations

from pathlib import Path

import pytest

from blindbayes.net.driver import RECEIPT
from blindbayes.net.link import Link
from blindbayes.study.file import Deadlines
from support.sites import BOOK, Office, bounded, paper_policy


def test_nobody_waits_for_a_contributor_that_has_left_to_take_a_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The builder posted one to every contributor, and waited a whole step for those that had ended their part before."""
    posted: set[tuple[str, str]] = set()
    real = Link.post_now

    def post_now(self: Link, step: str, payload: bytes) -> None:
        if step == RECEIPT:
            posted.add((self.pair.me, self.pair.peer))
        real(self, step, payload)

    monkeypatch.setattr(Link, "post_now", post_now)

    async def test() -> None:
        async with Office(tmp_path, ("north", "south", "west"), policy=paper_policy()) as office:
            study = office.net.make_study(
                BOOK, protocol="chain_sum", hosts={"builder": "north"}, deadlines=Deadlines(step=60, join=60, run=120)
            )
            office.net.approve(study)
            assert {run.state for run in (await office.run(study)).values()} == {"done"}

    bounded(test)
    assert {reader for _, reader in posted} == {"builder", "north"}
    assert {writer for writer, _ in posted} == {"builder", "north", "south", "west"}
