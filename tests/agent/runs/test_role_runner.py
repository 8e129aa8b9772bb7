"""With many contributors a run is a star: sessions with the hub alone, and still nobody pays before all could."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from blindbayes.agent.runs import role_runner
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.net.envelope import Offer, Sealed, unpack
from blindbayes.net.journal import SentDigest
from blindbayes.study.file import Deadlines, Limits, Privacy
from support.hub import MemoryHub
from support.sites import BOOK, Office, bounded

NAMES = ("north", "south", "west", "east")
SHORT = Deadlines(step=6, join=10, run=30)


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(role_runner, "_MESH", 2)


def test_contributors_make_sessions_with_the_hub_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared: dict[tuple[str, str], set[bytes]] = {}
    digest = SentDigest.__init__

    def note(self: SentDigest, study: str, run_id: str, sender: str, receiver: str, secret: bytes = b"") -> None:
        shared.setdefault((min(sender, receiver), max(sender, receiver)), set()).add(secret)
        digest(self, study, run_id, sender, receiver, secret)

    monkeypatch.setattr(SentDigest, "__init__", note)

    async def test() -> None:
        offered: Counter[tuple[str, str]] = Counter()

        def watch(sender: str, to: str, frame: bytes) -> list[bytes]:
            found = unpack(frame)
            if isinstance(found, Offer):
                offered[found.sender, found.receiver] += 1
            return [frame]

        async with Office(tmp_path, NAMES, hub=MemoryHub(watch)) as office:
            study = office.net.make_study(BOOK, protocol="masked_sum", deadlines=SHORT)
            office.net.approve(study)
            runs = await office.run(study)
            assert {run.text() for run in runs.values()} == {"done"}
            assert len(runs) == len(NAMES)
        assert offered
        assert all("server" in pair for pair in offered)
        assert {len(secrets) for secrets in shared.values()} == {1}  # what they compare is keyed, alike at both ends of a pair
        assert len({secret for secrets in shared.values() for secret in secrets if len(secret) == 32}) == len(NAMES)

    bounded(test)


def test_nobody_pays_if_a_site_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub says that it is ready after all others: a site whose budget is spent ends the run before anybody pays."""
    look = role_runner.RoleRunner._look

    def slowly(self: Any, *args: Any, rehearse: bool = False) -> None:
        time.sleep(1.0 if self.name == "west" and rehearse else 0.0)  # it takes its time to find out
        look(self, *args, rehearse=rehearse)

    monkeypatch.setattr(role_runner.RoleRunner, "_look", slowly)

    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            for name, site in office.net.sites.items():
                path = site.home.folder / "ledger.jsonl"
                path.unlink(missing_ok=True)
                Ledger.create(path, epsilon=0.5 if name == "west" else 5.0)
            all_of_them = Limits(quorum=len(NAMES))
            study = office.net.make_study(
                BOOK, protocol="masked_sum", privacy=Privacy(epsilon=1.0), limits=all_of_them, deadlines=SHORT
            )
            office.net.approve(study)
            runs = await office.run(study)
            assert {run.state for run in runs.values()} == {"failed"}
            for site in office.net.sites.values():
                entries = Ledger(site.home.folder / "ledger.jsonl").entries()
                assert [entry.n for entry in entries] == [0]  # its budget, and no charge

    bounded(test)


def test_a_site_that_is_killed_is_gone_without(tmp_path: Path) -> None:
    async def test() -> None:
        silent: set[str] = set()

        def lose(sender: str, to: str, frame: bytes) -> list[bytes]:
            found = unpack(frame)
            if isinstance(found, Sealed) and found.step == "MaskedVectorSent":
                silent.add("east")
            return [] if {sender, to} & silent else [frame]

        async with Office(tmp_path, NAMES, hub=MemoryHub(lose)) as office:
            study = office.net.make_study(BOOK, protocol="masked_sum", deadlines=Deadlines(step=2, join=10, run=30))
            office.net.approve(study)
            run = office.agents["north"].begin(study.sha256)
            await run.done.wait()
            assert run.text() == "done"

    bounded(test)
