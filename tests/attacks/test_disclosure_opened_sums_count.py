"""A sum that was opened counts at every site that is in it: four sites' sum less three sites' sum is one site's table.

Before, a contributor of `oblivious_sum` without a quorum forgot every sum, and one of `masked_sum` on a sparse graph forgot the
sum that a server opened without its word.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from blindbayes import RowStudy
from blindbayes.agent.runs.commit_points import CONFIRMED, LEFT
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.net.envelope import Sealed, unpack
from blindbayes.protocols import registry
from blindbayes.protocols.core import receive_all
from blindbayes.protocols.secure_sum import graph, server
from blindbayes.study.file import Deadlines, Limits, StudyFile
from blindbayes.testing.loopback import open_policy
from support.hub import MemoryHub
from support.masked import sparse
from support.sites import BOOK, Office, bounded, make_rows

FOUR = ("north", "south", "west", "east")
READER = {"masked_sum": "server", "chain_sum": "builder", "oblivious_sum": "miner", "reference": "collector"}
MAY_LOSE = ("masked_sum", "oblivious_sum", "reference")
CASES = [*((name, 4) for name in registry.known()), *(pytest.param(name, 3, marks=pytest.mark.slow) for name in MAY_LOSE)]


@pytest.mark.parametrize(("protocol", "quorum"), CASES, ids=lambda value: str(value))
def test_no_site_is_read_by_leaving_it_out_of_the_next_sum(tmp_path: Path, protocol: str, quorum: int) -> None:
    async def test() -> None:
        hosts = {READER[protocol]: "lab"} if protocol in READER else {}
        rows = make_rows(tmp_path, FOUR) | ({"lab": None} if hosts else {})
        policy = open_policy(protocols=tuple(registry.known()), min_colluders=0, weaker_options=True)
        async with Office(tmp_path, (), rows=rows, policy=policy) as office:
            fields: dict[str, Any] = {"protocol": protocol, "hosts": hosts, "deadlines": Deadlines(step=20, join=20, run=40)}
            fields["options"] = {"scheme": "ristretto"} if protocol == "oblivious_sum" else {}
            whole = office.net.make_study(BOOK, limits=Limits(quorum=quorum), **fields)
            parties = tuple(party for party in whole.parties if party.name != "east")
            fewer = office.net.make_study(BOOK, title="without east", parties=parties, limits=Limits(quorum=3), **fields)
            for study in (whole, fewer):
                for name in study.names:
                    office.net.sites[name].home.approvals.approve(study)
            runs = await office.run(whole)
            assert {run.state for run in runs.values()} == {"done"}, {name: str(run.error) for name, run in runs.items()}
            for name in FOUR:
                assert len(office.net.sites[name].home.history.exact_sums()) == 1, name
            runs = await office.run(fewer)
            assert {run.state for run in runs.values()} == {"failed"}
            whys = [str(entry.get("why")) for name in FOUR[:3] for entry in office.net.sites[name].home.history.entries()]
            assert any("takes part in exact sums over east, north, south, west only" in why for why in whys)

    bounded(test, 60)


def test_a_sum_that_was_opened_without_a_sites_word_counts_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a sparse graph; then one record more at that site would be the difference of two totals."""
    sites, victim = tuple(f"s{at}" for at in range(8)), "s3"

    def hide(sender: str, to: str, frame: bytes) -> list[bytes]:
        envelope = unpack(frame)
        is_hidden = (sender, to) == ("lab", victim) and isinstance(envelope, Sealed) and envelope.step == "EchoesPassedOn"
        return [] if is_hidden else [frame]

    def one_less(senders: Any, kind: Any, *, quorum: int | None = None) -> Any:
        return receive_all(senders, kind, quorum=quorum - 1 if kind is server.SharesGiven and quorum else quorum)

    async def test() -> None:
        monkeypatch.setattr(server, "receive_all", one_less)
        monkeypatch.setattr(graph, "plan", lambda parties, quorum, *_: sparse(parties, quorum, 0.0, 6))
        hub = MemoryHub(hide)
        rows, policy = make_rows(tmp_path, sites) | {"lab": None}, open_policy(min_colluders=0, weaker_options=True)
        async with Office(tmp_path, (), rows=rows, policy=policy, hub=hub) as office:
            study: StudyFile = office.net.make_study(
                BOOK,
                protocol="masked_sum",
                options={"publish": False},
                hosts={"server": "lab"},
                limits=Limits(quorum=8),
                deadlines=Deadlines(step=4, join=20, run=30),
            )
            office.net.approve(study, runs=3)
            runs = await office.run(study, by="s0")
            assert runs["lab"].state == "done", str(runs["lab"].error)
            home = office.net.sites[victim].home
            seen = [entry["event"] for entry in home.history.entries_of(runs["lab"].run_id)]
            assert LEFT in seen
            assert CONFIRMED not in seen
            assert len(home.history.exact_sums()) == 1
            assert [each.run for _, each in home.history.unsettled()] == [runs["lab"].run_id]
            hub.alter = None
            with duckdb.connect(str(tmp_path / f"{victim}.duckdb")) as connection:
                connection.execute("insert into visits values ('ill', 'green', 77)")
            runs = await office.run(study, by="s0")
            assert {run.state for run in runs.values()} == {"failed"}
            assert any(isinstance(run.error, PrivacyError) for run in runs.values())

    bounded(test, 60)


def test_no_author_of_a_study_chooses_the_bounds_that_a_table_must_fit() -> None:
    """Before, `bounds` of a chain made a site give up, seen by all, where one of its counts was larger than a guess."""
    with pytest.raises(ConfigError, match="bounds"):
        RowStudy(BOOK, protocol="chain_sum", options={"bounds": [[0, 16, 1], [-99, 99, 7]]})
