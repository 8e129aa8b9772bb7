"""OMOP databases at several sites: the study declares what is read, each site says what it lacks before it approves."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from blindbayes import RowStudy, count_table
from blindbayes.agent import preview
from blindbayes.agent.config import Rows, SiteConfig
from blindbayes.agent.store.tables import Tables
from blindbayes.codebook import Codebook
from blindbayes.data.omop import open_omop
from blindbayes.data.split import Reading
from blindbayes.errors import ConfigError
from blindbayes.study.file import Deadlines, StudyFile
from support import omop as cdm
from support.sites import BOOK as PLAIN
from support.sites import Office, bounded

NAMES = ("north", "south", "west")
OMOP = {
    "cohort": {"domain": "visit", "concepts": [cdm.INPATIENT], "age": [0, 120]},
    "columns": [
        {"name": "died", "take": "any", "domain": "death", "days": [0, 365]},
        {"name": "age", "take": "age"},
        {"name": "diabetes", "take": "any", "domain": "condition", "concepts": [cdm.DIABETES], "days": [-365, 0]},
    ],
}
FEATURES = [
    {"kind": "numeric", "name": "age", "low": 0, "high": 120, "bins": 6},
    {"kind": "categorical", "name": "diabetes", "values": ["no", "yes"]},
]
BOOK = Codebook.from_dict({"target": "died", "classes": ["no", "yes"], "features": FEATURES, "omop": OMOP})


def office_of(folder: Path, lacking: str = "") -> tuple[Office, dict[str, str]]:
    """Three sites with OMOP databases; the vocabulary of one may lack a concept."""
    urls = {}
    folder.mkdir(exist_ok=True)
    for seed, name in enumerate(NAMES):
        rows = cdm.synthetic(60, seed)
        if name == lacking:
            rows["concept"] = [row for row in rows["concept"] if row[0] != cdm.DIABETES]
        urls[name] = cdm.duckdb_cdm(folder / f"{name}.duckdb", rows)
    office = Office(folder, NAMES, rows=urls)
    for name, site in office.net.sites.items():
        site.home.config = msgspec.structs.replace(site.home.config, rows=Rows(urls[name], omop="cdm"))
        site.home.tables = Tables(site.home.folder, site.home.config.rows)
    return office, urls


def test_a_site_counts_and_digests_what_the_study_declares(tmp_path: Path) -> None:
    url = cdm.duckdb_cdm(tmp_path / "north.duckdb", cdm.synthetic(60))
    tables = Tables(tmp_path, Rows(url, omop="cdm"))
    with open_omop(url, BOOK, "cdm") as source:
        assert tables.count(Reading(BOOK)).words.tolist() == count_table(source, BOOK).words.tolist()
    assert tables.digest(b"k" * 32) == tables.digest(b"k" * 32) != tables.digest(b"l" * 32)
    assert tables.stamp() is None


@pytest.mark.slow
def test_agents_train_on_what_the_study_declares(tmp_path: Path) -> None:
    async def scenario() -> None:
        office, urls = office_of(tmp_path)
        async with office:
            study = office.net.make_study(BOOK, deadlines=Deadlines(step=20, join=20, run=100))
            office.net.approve(study, runs=2)
            runs = await office.run(study)
            assert all(run.error is None for run in runs.values()), [run.error for run in runs.values()]
            sources = {name: open_omop(url, BOOK, "cdm") for name, url in urls.items()}
            expected = RowStudy(BOOK).simulate(sources).model.statistics_
            for name in NAMES:
                home = office.net.sites[name].home
                made = home.folder / "releases" / runs[name].run_id / "model.json"
                model = msgspec.json.decode(made.read_bytes())
                assert sum(model["statistics"]["class_counts"]) == int(expected.class_counts.sum())
                own = count_table(sources[name], BOOK)
                assert 0 < own.class_counts.sum() < expected.class_counts.sum()
            again = await office.run(study)  # nothing changed: the digest says so
            assert all(run.error is None for run in again.values()), [run.error for run in again.values()]
            for source in sources.values():
                source.close()

    bounded(scenario)


def test_two_cohorts_that_differ_by_one_person_are_not_both_summed(tmp_path: Path) -> None:
    """A study chooses its cohort, so that rows need not change for two exact sums to differ by one of them."""

    async def scenario() -> None:
        office, _ = office_of(tmp_path)
        async with office:
            deadlines = Deadlines(step=20, join=20, run=100)
            first = office.net.make_study(BOOK, deadlines=deadlines)
            younger = {**OMOP, "cohort": {**OMOP["cohort"], "age": [0, 80]}}
            second = office.net.make_study(Codebook.from_dict({**BOOK.to_dict(), "omop": younger}), deadlines=deadlines)
            for site in office.net.sites.values():  # as a site's own default has it
                site.home.config = msgspec.structs.replace(
                    site.home.config, policy=msgspec.structs.replace(site.home.config.policy, changed_data=False)
                )
                site.home.decisions.config = site.home.config
            office.net.approve(first)
            runs = await office.run(first)
            assert all(run.error is None for run in runs.values()), [run.error for run in runs.values()]
            office.net.approve(second)
            home = office.net.sites["north"].home
            assert "may differ by one person" in str(preview.verdict(home, second))
            assert preview.verdict(home, first) == []
            again = await office.run(second)
            assert all(run.state == "failed" for run in again.values())

    bounded(scenario)


def test_a_site_learns_what_it_lacks_before_it_approves(tmp_path: Path) -> None:
    office, _ = office_of(tmp_path, lacking="south")
    study = office.net.make_study(BOOK)
    shown = {name: preview.dry_run(site.home, name, study) for name, site in office.net.sites.items()}
    lack = f"OMOP: 'diabetes': this database's vocabulary has no concept {cdm.DIABETES}."
    assert {name: lack in facts["lines"] for name, facts in shown.items()} == {"north": False, "south": True, "west": False}
    assert "one row each" in str(shown["north"]["lines"])
    assert "mrn" not in str(shown)
    assert "one row per person" in shown["north"]["approval"]["promise"]["reads"]
    report = office.net.sites["south"].home.tables.check(study, "south")
    assert report["ok"]
    assert report["omop"]["problems"] == [lack.removeprefix("OMOP: ").removesuffix(".")]


def test_the_declaration_stands_in_the_study_file_and_its_hash(tmp_path: Path) -> None:
    office, _ = office_of(tmp_path)
    study = office.net.make_study(BOOK)
    (tmp_path / "study.toml").write_text(study.to_toml(), encoding="utf-8")
    again = StudyFile.from_toml(tmp_path / "study.toml")
    assert again.book.omop == BOOK.omop
    assert again.sha256 == study.sha256
    wider = {**OMOP, "cohort": {"domain": "visit", "age": [0, 120]}}
    assert office.net.make_study(Codebook.from_dict({**BOOK.to_dict(), "omop": wider})).sha256 != study.sha256


def test_a_table_does_not_stand_in_for_a_database_nor_the_other_way_round(tmp_path: Path) -> None:
    office, urls = office_of(tmp_path)
    home = office.net.sites["north"].home
    plain = office.net.make_study(PLAIN)
    with pytest.raises(ConfigError, match=r"omop under \[rows\] in site.toml is for studies whose codebook has \[omop\]"):
        home.tables.check(plain, "north")
    study = office.net.make_study(BOOK)
    home.tables = Tables(home.folder, Rows(f"{urls['north']}#cdm.person"))
    with pytest.raises(ConfigError, match="declares its columns on an OMOP database"):
        home.tables.check(study, "north")


def test_a_site_names_database_and_schema_only(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text('[rows]\nsource = "postgres://reader@db/hospital"\nomop = "cdm"\n')
    rows = SiteConfig.read(path).rows
    assert rows is not None
    assert rows.omop == "cdm"
    for more in ('table = "person"', 'map = { age = "old" }', 'source = "people.csv"'):
        lines = {line.partition(" =")[0]: line for line in ('source = "postgres://reader@db/hospital"', 'omop = "cdm"', more)}
        path.write_text("[rows]\n" + "\n".join(lines.values()))
        with pytest.raises(ConfigError, match="the study says what is read"):
            SiteConfig.read(path)
