"""What a site counts in a private study: a few rows of each person, and no row is an error."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from blindbayes.agent.config import Rows
from blindbayes.agent.runs.context import FolderSite, work_of
from blindbayes.agent.store.tables import Tables
from blindbayes.codebook import Codebook, IdPart, IdRecipe
from blindbayes.data.split import Reading
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.errors import DataError
from blindbayes.study.file import Privacy
from support.sites import BOOK, Office, bounded

PEOPLE = Codebook(
    BOOK.target, BOOK.classes, BOOK.features, max_rows=BOOK.max_rows, identifier=IdRecipe((IdPart("patient", "exact"),))
)
NAMES = ("north", "south", "west")


def tables(folder: Path) -> dict[str, str | None]:
    """Ten persons with twelve rows each at every site, among them rows that fit no codebook."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, str | None] = {}
    for name in NAMES:
        rows = [
            (f"p{who}", ("ill", "well", "?")[at % 3], ("red", "CANARY")[at % 2], 10 * at)
            for who in range(10)
            for at in range(12)
        ]
        pd.DataFrame(rows, columns=["patient", "class", "colour", "age"]).to_csv(folder / f"{name}.csv", index=False)
        found[name] = str(folder / f"{name}.csv")
    return found


def test_a_site_counts_a_few_rows_of_each_person_and_the_same_ones_when_it_goes_on(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES, rows=tables(tmp_path / "rows")) as office:
            study = office.net.make_study(PEOPLE, privacy=Privacy(epsilon=5.0, rows_per_person=3))
            site = office.net.sites["north"]
            counts = []
            for run in ("ab" * 8, "ab" * 8, "cd" * 8):
                job = study.task.at(FolderSite(site.home, site.identity, study), run)
                job.read()
                counts.append(job.statistics)
            assert int(counts[0].class_counts.sum()) <= 30  # a row without a listed class is drawn, and counts nowhere
            assert counts[0] == counts[1]
            assert counts[0] != counts[2]
            site.home.ledger.path.unlink()
            Ledger.create(site.home.ledger.path, epsilon=10, unit="one person with at most 3 records")
            office.net.approve(study)
            job.authorise_and_charge("north")
            assert site.home.ledger.balance().charges == 1

    bounded(test)


def test_the_same_rows_are_refused_by_a_study_without_noise(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES, rows=tables(tmp_path / "rows")) as office:
            study, site = office.net.make_study(PEOPLE), office.net.sites["north"]
            with pytest.raises(DataError, match="class column"):
                work_of(site.home, site.identity, "ab" * 16, study).task.read()

    bounded(test)


def test_a_site_brings_its_table_as_it_is(tmp_path: Path) -> None:
    """Semicolons, other names, other codes, pounds: `[rows]` says how it is read, and the study counts what it agreed on."""
    folder = tmp_path / "rows"
    folder.mkdir()
    raw = pd.DataFrame({"Befund": [1, 0, 1, 0] * 10, "Farbe": ["rot", "blau", "gruen", "rot"] * 10, "months": ["480,0"] * 40})
    raw.to_csv(folder / "t.csv", index=False, sep=";")
    plain = pd.DataFrame({"class": ["ill", "well"] * 20, "colour": ["red", "blue", "green", "red"] * 10, "age": [40.0] * 40})
    plain.to_csv(folder / "plain.csv", index=False)
    rules = {
        "class": {"from": "Befund", "values": {"1": "ill", "0": "well"}},
        "colour": {"from": "Farbe", "values": {"rot": "red", "blau": "blue", "gruen": "green"}},
        "age": "months / 12",
    }
    site = Tables(tmp_path, Rows("rows/t.csv", decimal=",", map=rules))
    counts = [
        each.count(Reading(BOOK, lenient))
        for each in (site, Tables(tmp_path, Rows("rows/plain.csv")))
        for lenient in (False, True)
    ]
    assert all(each == counts[0] for each in counts)
    raw.drop(columns="Befund").to_csv(folder / "new.csv", index=False, sep=";")
    with site.open_batch("rows/new.csv") as batch:  # rows to be classified have no class
        assert set(batch.columns) == {"colour", "age"}
