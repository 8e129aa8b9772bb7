"""Loaders and generators."""

from __future__ import annotations

import gzip
import importlib.resources
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from blindbayes import Codebook, NaiveBayes
from blindbayes.data import check, count
from blindbayes.datasets import bank_telecom, census, hospitals, mail
from blindbayes.errors import ConfigError, DataError
from blindbayes_papers.datasets import DATASETS, PACKAGED, cell_digest, dataset_path, load_dataset, local_path
from blindbayes_papers.declared import DECLARED


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_every_dataset_has_the_rows_and_class_it_says(name: str, dataset: Callable[[str], Path]) -> None:
    dataset(name)
    table = load_dataset(name)
    assert (table.num_rows, table.column_names[-1]) == (DATASETS[name].rows, DATASETS[name].target)
    assert {str(field.type) for field in table.schema} == {"string"}
    assert all(column.null_count == 0 for column in table.columns)


def test_an_unknown_dataset_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="no dataset is named 'mnist'; there are adult"):
        load_dataset("mnist")


def test_the_folder_in_the_environment_comes_first_and_is_not_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "skin.csv").write_text("B,G,R,class\n1,2,3,x\n", encoding="utf-8")
    monkeypatch.setenv("BLINDBAYES_DATA", str(tmp_path))
    assert load_dataset("skin").to_pylist() == [{"B": "1", "G": "2", "R": "3", "class": "x"}]
    with pytest.raises(DataError, match=r"holds no car\.csv.*1,728 rows after the header buying,maint"):
        dataset_path("car")
    (tmp_path / "iris.csv").write_text("a,class\n1,x\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"other columns than it should have.*sepal_length,sepal_width"):
        load_dataset("iris")


def fetched(name: str, *, rows: int | None = None) -> Callable[..., Any]:
    """What OpenML answers: its own column names."""
    info = DATASETS[name]
    size = info.rows if rows is None else rows

    def fetch(*, data_id: int, **_: Any) -> Any:
        assert data_id == info.openml
        frame = pd.DataFrame(
            {column: pd.Categorical([None, *["2"] * (size - 1)]) for column in info.openml_columns or info.columns}
        )
        return SimpleNamespace(data=frame, target=pd.Series(["a"] * size))

    return fetch


def cells(name: str) -> str:
    info = DATASETS[name]
    width = len(info.columns)
    return cell_digest([["?"] * width + ["a"], *([["2.0"] * width + ["a"]] * (info.rows - 1))])


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("BLINDBAYES_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ["adult", "skin"])
def test_a_download_goes_to_the_cache_once_under_the_names_of_the_codebooks(
    name: str, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetched(name))
    with pytest.raises(DataError, match="other cells than it should have"):
        load_dataset(name)
    assert not list(empty_cache.rglob("*.csv"))
    monkeypatch.setitem(DATASETS, name, replace(DATASETS[name], sha256=cells(name)))
    table, book = load_dataset(name), DECLARED[name]
    assert table.column_names == [*book.names, book.target]
    assert table[book.names[0]][0].as_py() == "?"
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda **_: pytest.fail("downloaded again"))
    assert load_dataset(name).equals(table)
    assert [path.name for path in (empty_cache / "blindbayes").iterdir()] == [f"{name}.csv"]


@pytest.mark.parametrize("name", ["adult", "skin"])
def test_the_checksum_is_that_of_the_real_table(name: str, dataset: Callable[[str], Path]) -> None:
    dataset(name)
    assert cell_digest(zip(*load_dataset(name).to_pydict().values(), strict=True)) == DATASETS[name].sha256


@pytest.mark.parametrize("name", ["car", "dermatology", "iris", "mushroom", "pima", "seeds"])
def test_small_tables_come_with_the_package(name: str, empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda **_: pytest.fail("downloaded"))
    table = load_dataset(name)
    assert (table.num_rows, table.column_names) == (DATASETS[name].rows, [*DATASETS[name].columns, DATASETS[name].target])
    assert name in (PACKAGED / "README.md").read_text("utf-8")
    assert local_path("adult") is None
    assert not list(empty_cache.iterdir())


def test_the_names_are_those_that_openml_was_recorded_with() -> None:
    """scikit-learn carries recordings of OpenML's answers for its own tests."""
    folder = importlib.resources.files("sklearn.datasets.tests.data.openml") / f"id_{DATASETS['adult'].openml}"
    recorded = [file for file in folder.iterdir() if "jdf" in file.name and file.name.endswith(".gz")]
    if not recorded:
        pytest.skip("this scikit-learn has no recordings of OpenML")
    features = json.loads(gzip.decompress(recorded[0].read_bytes()))["data_features"]["feature"]
    names = tuple(each["name"] for each in features if each["is_target"] != "true")
    assert names == DATASETS["adult"].columns


@pytest.mark.parametrize("name", sorted(DATASETS))
def test_the_declared_codebooks_name_the_columns_of_the_dataset(name: str) -> None:
    assert DECLARED[name].names == DATASETS[name].columns
    assert DECLARED[name].target == DATASETS[name].target


def test_a_download_that_fails_or_is_short_leaves_nothing(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetched("skin", rows=149))
    with pytest.raises(DataError, match="another number of rows"):
        load_dataset("skin")
    monkeypatch.setitem(DATASETS, "skin", replace(DATASETS["skin"], openml_columns=("x", "y")))
    with pytest.raises(DataError, match="other columns"):
        load_dataset("skin")

    def offline(**_: Any) -> Any:
        raise ConnectionError("proxy.example: no route")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", offline)
    with pytest.raises(DataError, match=r"could not be downloaded \(ConnectionError\).*Expected: 245,057 rows"):
        load_dataset("skin")
    assert not list(empty_cache.rglob("*.csv"))


@pytest.mark.parametrize("make", [hospitals, bank_telecom, census, mail])
def test_a_seed_gives_the_same_tables_and_another_seed_others(make: Callable[..., Any]) -> None:
    one, two, other = make(500), make(500), make(500, seed=5)
    assert one.tables.keys() == two.tables.keys()
    assert all(one.tables[party].equals(two.tables[party]) for party in one.tables)
    assert not any(one.tables[party].equals(other.tables[party]) for party in one.tables)
    assert one.codebook.sha256 == other.codebook.sha256


def test_hospital_tables_fit_their_codebook_and_add_up() -> None:
    made = hospitals(3000)
    assert sum(table.num_rows for table in made.tables.values()) == 3000
    assert all(check(table, made.codebook).ok for table in made.tables.values())
    assert len(hospitals(1000, sites=("a", "b", "c", "d", "e")).tables) == 5


def test_every_hospital_gains_from_the_others_and_the_smallest_most() -> None:
    """Over five seeds, on 9,000 new patients each; the generator is fixed by its seeds."""
    gains: dict[str, list[float]] = {"north": [], "south": [], "west": []}
    for seed in range(5):
        made, new = hospitals(1500, seed=seed), pa.concat_tables(hospitals(9000, seed=seed + 77).tables.values())
        asked, truth = new.drop_columns(["readmitted"]), new["readmitted"].to_pylist()
        joint = NaiveBayes(made.codebook).fit(pa.concat_tables(made.tables.values())).score(asked, truth)
        for site, table in made.tables.items():
            gains[site].append(joint - NaiveBayes(made.codebook).fit(table).score(asked, truth))
    means = {site: float(np.mean(each)) for site, each in gains.items()}
    assert min(means.values()) > 0
    assert max(means, key=lambda site: means[site]) == "west"
    assert means["west"] > 0.06


def test_a_diagnosis_means_the_same_at_every_hospital() -> None:
    """Case mix chooses patients by diagnosis alone: the odds of readmission of a diagnosis agree with the truth, within five
    standard errors of the logarithm, wherever a hospital has ten patients of either class."""
    made = hospitals(60_000)
    yes, no = (np.array(made.truth["tables"]["diagnosis"][at]) * share for at, share in ((1, 0.3), (0, 0.7)))
    compared = 0
    for table in made.tables.values():
        counts = count(table, made.codebook).counts["diagnosis"].astype(float)
        for at in np.flatnonzero(counts.min(axis=0) >= 10):
            odds = np.log(counts[1, at] / counts[0, at]) - np.log(yes[at] / no[at])
            assert abs(odds) < 5 * np.sqrt((1 / counts[:, at]).sum())
            compared += 1
    assert compared > 8


def test_census_draws_from_its_truth() -> None:
    """Each frequency lies within five standard errors of the documented truth, in 20,000 rows of a fixed seed."""
    made = census(20_000)
    statistics = count(made.tables["office"], made.codebook)
    rows = statistics.class_counts.astype(float)
    share = rows[1] / rows.sum()
    assert abs(share - made.truth["employed"]) < 5 * np.sqrt(0.25 / rows.sum())
    for name, truth in made.truth["tables"].items():
        found = statistics.counts[name] / rows[:, None]
        assert (np.abs(found - np.array(truth)) < 5 * np.sqrt(0.25 / rows)[:, None]).all(), name


def test_bank_and_telecom_share_the_customers_they_say() -> None:
    made = bank_telecom(2000, overlap=0.25)
    emails = {
        party: [value.strip().lower() for value in table["email"].to_pylist() if value is not None]
        for party, table in made.tables.items()
    }
    bank = set(emails["bank"])
    truth = made.truth
    assert truth["shared customers"] == 500
    lost = truth["of them misspelt"] + truth["of them without an address"]
    assert truth["rows of shared customers"] == truth["pairs of rows that join"] + lost
    assert sum(email in bank for email in emails["telecom"]) == truth["pairs of rows that join"]
    assert 0 < truth["of them misspelt"] < 0.05 * 500  # about 2%
    assert len(emails["telecom"]) > len(set(emails["telecom"]))  # a few stand twice
    assert len(emails["bank"]) == len(bank)


def test_misspelt_addresses_are_of_people_the_bank_has_and_nobody_elses() -> None:
    made = bank_telecom(2000, overlap=0.25)
    book = {value.strip().lower() for value in made.tables["bank"]["email"].to_pylist() if value is not None}
    number = {re.sub(r"\D", "", value): value for value in book}
    wrong = []
    for value in made.tables["telecom"]["email"].to_pylist():
        text = "" if value is None else value.strip().lower()
        if text not in book and (meant := number.get(re.sub(r"\D", "", text))) is not None:
            wrong.append((text, meant))
    assert len(wrong) == made.truth["of them misspelt"]
    assert all(abs(len(text) - len(meant)) <= 1 and text != meant for text, meant in wrong)


def test_a_model_of_the_census_beats_the_majority() -> None:
    made = census(4000)
    table = made.tables["office"].to_pandas()
    model = NaiveBayes(made.codebook).fit(table[:2000])
    assert model.score(table[2000:].drop(columns="employed"), table[2000:]["employed"]) > 0.7
    assert isinstance(made.codebook, Codebook)
