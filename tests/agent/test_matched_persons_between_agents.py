"""Matched persons between agents: a site or the server that crashes goes on, and rows that change hands burn the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from blindbayes import Privacy
from blindbayes.codebook import Categorical, Codebook, IdPart, IdRecipe
from blindbayes.errors import LocalProtocolError
from blindbayes.study.file import Deadlines
from support.hub import MemoryHub
from support.sites import Gate, Office, bounded

NAMES = ("north", "south", "west")
BOOK = Codebook(
    "ill",
    ("no", "yes"),
    (Categorical("drug", ("a", "b")), Categorical("smoker", ("no", "yes"))),
    max_rows=1000,
    identifier=IdRecipe((IdPart("patient", "exact"),)),
)
PRIVACY = Privacy(epsilon=1.0, rows_per_person=1, sites_per_person="matched")


def tables(folder: Path) -> dict[str, str | None]:
    folder.mkdir(parents=True, exist_ok=True)
    people = [f"patient {at}" for at in range(80)]
    sources: dict[str, str | None] = {"office": None}
    for at, name in enumerate(NAMES):
        own = people[at * 20 : at * 20 + 40]
        frame = pd.DataFrame({"patient": own, "drug": ["a", "b"] * 20, "smoker": ["no", "yes"] * 20, "ill": ["no", "yes"] * 20})
        frame.to_csv(folder / f"{name}.csv", index=False)
        sources[name] = str(folder / f"{name}.csv")
    return sources


def study_of(office: Office) -> Any:
    deadlines = Deadlines(step=20, join=20, run=60)
    return office.net.make_study(BOOK, privacy=PRIVACY, deadlines=deadlines)


@pytest.mark.parametrize(
    ("site", "messages"),
    [
        ("office", 5),
        *(
            pytest.param(site, messages, marks=pytest.mark.slow)
            for site, messages in (("north", 2), ("south", 7), ("office", 12))
        ),
    ],
)
def test_a_party_that_crashes_goes_on_and_pays_once(tmp_path: Path, site: str, messages: int) -> None:
    async def test() -> None:
        hub = MemoryHub()
        gate = hub.alter = Gate(site, messages)
        async with Office(tmp_path, ("office", *NAMES), hub=hub, rows=tables(tmp_path / "tables")) as office:
            study = study_of(office)
            assert study.hosts == {"server": "office"}
            office.net.approve(study)
            run_id = office.agents["north"].begin(study.sha256).run_id
            await gate.shut.wait()
            await office.stop(site)
            hub.alter = None
            await office.start(site)
            runs = await office.ended(run_id)
            assert {name: run.text() for name, run in runs.items()} == dict.fromkeys(("office", *NAMES), "done")
            releases = {(run.release / "model.json").read_text() for run in runs.values() if run.release is not None}
            assert len(releases) == 1
            for name in NAMES:
                charges = [entry for entry in office.net.sites[name].home.ledger.entries() if entry.kind == "charge"]
                assert [entry.fields["run"] for entry in charges] == [run_id]

    bounded(test)


def test_rows_that_change_hands_during_a_run_burn_it(tmp_path: Path) -> None:
    """The statistics stay as they were, but other persons would have them."""

    async def test() -> None:
        hub = MemoryHub()
        gate = hub.alter = Gate("south", 3)
        sources = tables(tmp_path / "tables")
        async with Office(tmp_path, ("office", *NAMES), hub=hub, rows=sources) as office:
            study = study_of(office)
            office.net.approve(study)
            run_id = office.agents["north"].begin(study.sha256).run_id
            await gate.shut.wait()
            await office.stop("south")
            hub.alter = None
            frame = pd.read_csv(str(sources["south"]))
            frame.assign(patient=list(frame["patient"][::-1])).to_csv(str(sources["south"]), index=False)
            await office.start("south")
            runs = await office.ended(run_id)
            assert isinstance(runs["south"].error, LocalProtocolError)
            assert "rows changed" in str(runs["south"].error)

    bounded(test)
