"""Routing of frames: a peer of another release is named early."""

from __future__ import annotations

from pathlib import Path

import pytest

from blindbayes.net import link
from blindbayes.net.versions import VERSIONS, difference
from blindbayes.study.file import Deadlines, Privacy
from support.hub import MemoryHub
from support.sites import BOOK, Office, bounded

NAMES = ("north", "south", "west")


@pytest.mark.parametrize("other", [{**VERSIONS, "protocols": "99", "blindbayes": "9.9"}, {}])
def test_another_release_is_refused_by_name_and_nobody_pays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, str]
) -> None:
    ordinary = link.Link.__init__

    def made(self: link.Link, pair: object, *args: object, **options: object) -> None:
        if pair.me == "west":  # type: ignore[attr-defined]
            options["versions"] = other
        ordinary(self, pair, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(link.Link, "__init__", made)
    monkeypatch.setattr(link, "difference", lambda mine, theirs: None if mine is other else difference(mine, theirs))

    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            limits = Deadlines(step=5, join=20, run=30)
            study = office.net.make_study(BOOK, protocol="masked_sum", deadlines=limits, privacy=Privacy(epsilon=1.0))
            office.net.approve(study)
            runs = await office.run(study)
            assert {run.state for run in runs.values()} == {"failed"}
            words = " ".join(str(run.error) for name, run in runs.items() if name != "west")
            assert "west" in words
            assert "use one release at all sites" in words
            if other:
                assert "9.9 with protocols version 99" in words
            for site in office.net.sites.values():
                assert [entry.kind for entry in site.home.ledger.entries()] == ["budget"]
                assert "computing" not in [entry["event"] for entry in site.home.audit.entries()]
            shown = office.agents["north"].show()["versions"]
            assert shown["north"] == dict(VERSIONS)
            assert shown["west"] == other

    bounded(test)


def test_another_envelope_is_told_before_the_deadline(tmp_path: Path) -> None:
    async def test() -> None:
        hub = MemoryHub(lambda sender, to, frame: [b"\x07" + frame[1:]] if sender == "west" else [frame])
        async with Office(tmp_path, NAMES, hub=hub) as office:
            study = office.net.make_study(BOOK, protocol="masked_sum", deadlines=Deadlines(step=5, join=30, run=35))
            office.net.approve(study)
            run = office.agents["north"].begin(study.sha256)
            office.agents["west"].begin(study.sha256)
            await run.done.wait()
            assert "envelope version 7" in str(run.error)

    bounded(test, 20)
