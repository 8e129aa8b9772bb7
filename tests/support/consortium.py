"""A consortium of agents in one process whose roster changes, and what its sites' people do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from blindbayes.codebook import Categorical, Codebook
from blindbayes.data import count_table
from blindbayes.disclosure.policy import Policy
from blindbayes.study.file import Deadlines, Limits, Privacy, StudyFile
from blindbayes.study.roster import Change, Party
from support.sites import Office, duckdb_file, paper_policy

BOOK = Codebook("class", ("ill", "well"), (Categorical("colour", ("red", "blue", "green")),), max_rows=10_000)
EVERYBODY = ("north", "south", "west", "east", "centre")
OPTIONS = {"scheme": "ristretto", "keys": "standing", "views": True}


class Consortium:
    """A study of agents in one process, and what its sites' people do."""

    def __init__(self, office: Office, founders: tuple[str, ...], **fields: Any) -> None:
        self.office = office
        given: dict[str, Any] = {
            "protocol": "oblivious_sum",
            "options": OPTIONS,
            "hosts": {"miner": founders[0]},
            "deadlines": Deadlines(step=20, join=20, run=35),
            "privacy": Privacy(epsilon=1.0),
            "limits": Limits(min_parties=2),
        }
        self.study: StudyFile = office.net.make_study(BOOK, parties=tuple(map(self.party, founders)), **{**given, **fields})
        self.approve()

    def party(self, name: str) -> Party:
        card = self.office.net.sites[name].identity.card
        return Party(name, card.identity.hex(), key=card.key)

    def approve(self) -> None:
        for name in self.study.names:
            self.office.net.sites[name].home.approvals.approve(self.study, runs=1000)

    def change(self, *, add: tuple[str, ...] = (), remove: tuple[str, ...] = (), **more: Any) -> None:
        change = Change(self.study.roster.sha256, tuple(map(self.party, add)), remove, **more)
        self.study = self.study.change(change)
        for name in self.study.roster.signers:
            self.study = self.study.sign_change(name, self.office.net.sites[name].identity.signing)
        self.approve()

    def home(self, name: str) -> Any:
        return self.office.net.sites[name].home

    async def run(self, base: str | None = None, by: str | None = None) -> dict[str, Any]:
        first = self.office.agents[by or self.study.host("miner")]
        run = first.begin(self.study.sha256, base)
        await run.done.wait()
        return await self.office.ended(run.run_id)

    def total(self, run_id: str) -> Any:
        """What the miner's site kept of a run: with all that it adds up."""
        site = self.office.net.sites[self.study.host("miner")]
        book = self.study.agreement.task.counting
        found = site.home.increments.total(site.identity.storage_key, self.study.sha256, run_id, book)
        assert found is not None
        return found

    def recount(self, *names: str) -> Any:
        public = self.study.agreement.task
        tables = [self.home(name).config.rows.source for name in names or self.study.contributors]
        counted = [count_table(table, public.counting, lenient=True) for table in tables]
        if public.plan is None:
            return sum((each.words for each in counted[1:]), start=counted[0].words)
        return sum(public.plan.vector(each) for each in counted)

    def spent(self, name: str) -> int:
        """How often a site has paid."""
        return self.home(name).ledger.charges_of(self.study.sha256)


def make_rows(folder: Path, names: tuple[str, ...], rows: int = 30) -> dict[str, str | None]:
    for at, name in enumerate(names):
        made = duckdb_file("create table visits(class varchar, colour varchar)", *added_rows(at, rows))
        (folder / f"{name}.duckdb").write_bytes(made)
    return {name: f"duckdb:///{folder / name}.duckdb#visits" for name in names}


def added_rows(seed: int, rows: int) -> list[str]:
    """The statement that adds so many, or none."""
    rng = np.random.default_rng(seed)
    records = [(BOOK.classes[rng.integers(2)], ("red", "blue", "green")[rng.integers(3)]) for _ in range(rows)]
    return [f"insert into visits values {', '.join(map(repr, records))}"] if records else []


def edit(folder: Path, name: str, seed: int, *, add: int = 0, remove: int = 0) -> None:
    with duckdb.connect(str(folder / f"{name}.duckdb")) as connection:
        connection.execute(f"delete from visits where rowid in (select rowid from visits limit {remove:d})")
        for statement in added_rows(seed, add):
            connection.execute(statement)


def office(folder: Path, names: tuple[str, ...] = EVERYBODY, policy: Policy | None = None) -> Office:
    return Office(folder, names, rows=make_rows(folder, names), policy=policy or paper_policy(max_runs_per_day=1000))


def done(runs: dict[str, Any]) -> str:
    """The id of a run that ended well at every site that came."""
    assert {name: run.error for name, run in runs.items() if run.error} == {}
    return next(iter(runs.values())).run_id
