"""Synthetic rows and marginals: they have the released marginals, cost nothing, and exact models are refused."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from click.testing import CliRunner
from scipy import stats

from blindbayes import Categorical, Codebook, Limits, NaiveBayes, Numeric, Privacy, PrivateNaiveBayes, RowStudy, Text, load
from blindbayes.cli import root
from blindbayes.codebook import Feature
from blindbayes.crypto.coins import Coins
from blindbayes.datasets import hospitals
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.dp.distributed.whole_noise import WholeNoise
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.naive_bayes import synthetic
from blindbayes.naive_bayes.synthetic import Synthesizer
from blindbayes.study.tasks.sum_plan import Sum

ALPHA = 1e-6  # of each comparison: below 1e-4 for all of one table together


def coins(label: str) -> Coins:
    return Coins.seeded(b"synthetic".ljust(32, b"."[:1])).derive(label)


@pytest.fixture(scope="module")
def data() -> tuple[Codebook, pa.Table, pa.Table]:
    made, other = hospitals(3000), hospitals(6000)
    return made.codebook, pa.concat_tables(made.tables.values()), pa.concat_tables(other.tables.values())


@pytest.fixture(scope="module")
def private(data: tuple[Codebook, pa.Table, pa.Table]) -> PrivateNaiveBayes:
    return PrivateNaiveBayes(data[0], epsilon=2.0).fit(data[1])


def p_values(source: Synthesizer, rows: pa.Table) -> list[float]:
    """Compare the counts of the rows with the marginals that the source states, one class-by-feature table at a time."""
    book = source.codebook
    labels = np.array(rows.column(book.target).to_pylist())
    stated = source.marginals().to_pylist()
    result = []
    for feature in book.features:
        values = rows.column(feature.name).to_pylist()
        for label in book.classes:
            lines = [line for line in stated if line["feature"] == feature.name and line["class"] == label]
            own = [value for value, each in zip(values, labels, strict=True) if each == label and value is not None]
            if lines[0]["mean"] is not None:
                mean, variance = lines[0]["mean"], lines[0]["variance"]
                off = (np.mean(own) - mean) / np.sqrt(variance / len(own))
                result.append(float(2 * stats.norm.sf(abs(off))))
                continue
            expected = np.array([line["probability"] for line in lines]) * len(own)
            counted = np.bincount([cell_of(feature, value) for value in own], minlength=len(lines)).astype(float)
            result.append(chi_square(counted, expected))
    return result


def cell_of(feature: Feature, value: object) -> int:
    if isinstance(feature, Categorical):
        return feature.values.index(str(value))
    assert isinstance(feature, Numeric)
    return feature.bin_of(feature.grid(float(str(value))) - feature.centre)


def chi_square(counted: np.ndarray, expected: np.ndarray) -> float:
    """Pool cells that expect fewer than 10, so that the law is that of chi-square."""
    small = expected < 10
    counted = np.append(counted[~small], counted[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    if expected[-1] < 10:
        counted, expected = np.append(counted[:-2], counted[-2:].sum()), np.append(expected[:-2], expected[-2:].sum())
    return float(stats.chi2.sf(((counted - expected) ** 2 / expected).sum(), len(expected) - 1)) if len(expected) > 1 else 1.0


def test_marginals_of_the_rows_are_the_stated_ones_up_to_sampling_error(private: PrivateNaiveBayes) -> None:
    source = Synthesizer(private)
    rows = source.rows(40_000, coins("population"))
    assert min(p_values(source, rows)) > ALPHA
    shares = [rows.column(source.codebook.target).to_pylist().count(label) / rows.num_rows for label in source.codebook.classes]
    assert np.abs(shares - source.shares).max() < 5 * 0.5 / np.sqrt(rows.num_rows)  # five deviations, at most


def test_that_comparison_finds_a_cell_that_is_drawn_a_tenth_too_often(
    private: PrivateNaiveBayes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def skewed(likely: np.ndarray) -> np.ndarray:
        likely = likely.copy()
        likely[0, likely[0].argmax()] *= 1.1
        total = np.cumsum(likely, axis=1)
        return total / total[:, -1:]

    monkeypatch.setattr(synthetic, "_below", skewed)
    source = Synthesizer(private)
    assert min(p_values(source, source.rows(40_000, coins("planted")))) < ALPHA


def test_gaussian_features_keep_mean_and_variance_also_near_a_bound(data: tuple[Codebook, pa.Table, pa.Table]) -> None:
    model = NaiveBayes(data[0]).fit(data[1])
    source = Synthesizer(model, allow_exact=True)
    rows = source.rows(40_000, coins("gaussian"))
    assert min(p_values(source, rows)) > ALPHA
    again = NaiveBayes(data[0]).fit(rows)
    for name, variance in model.var_.items():
        # The fourth moment is at most that of three times the normal one: six deviations of the variance.
        assert np.allclose(again.var_[name], variance, rtol=6 * np.sqrt(9 / 8_000))


def test_law_on_a_grid_has_the_moments_that_were_asked_for() -> None:
    generator = np.random.default_rng(7)
    for _ in range(60):
        width = int(generator.integers(2, 2000))
        feature = Numeric("x", 0.0, float(width))
        values = np.clip(np.round(generator.normal(generator.uniform(0, width), generator.uniform(0.1, width), 9)), 0, width)
        mean, variance = values.mean(), values.var() or 1 / 12
        law = synthetic._on_grid(feature, mean, variance)
        points = np.arange(width + 1)
        assert abs(law @ points - mean) <= 1e-5 * width
        assert abs(law @ (points - mean) ** 2 - variance) <= 1e-5 * width**2


def test_model_trained_on_the_rows_reaches_98_percent_of_the_accuracy_of_the_release(
    data: tuple[Codebook, pa.Table, pa.Table], private: PrivateNaiveBayes
) -> None:
    rows = Synthesizer(private).rows(50_000, coins("population"))
    again = NaiveBayes(data[0]).fit(rows)
    labels = data[2].column(data[0].target).to_pylist()
    accuracy = [float(np.mean(each.predict(data[2]) == np.array(labels))) for each in (private, again)]
    assert accuracy[0] > 0.8
    assert accuracy[1] >= 0.98 * accuracy[0]


def test_million_rows_take_less_than_two_seconds_of_processor_time(private: PrivateNaiveBayes) -> None:
    source, begun = Synthesizer(private), time.process_time()
    rows = source.rows(1_000_000)
    pacsv.write_csv(rows, pa.BufferOutputStream())
    assert rows.num_rows == 1_000_000
    assert time.process_time() - begun < 2


def test_exact_model_is_refused_unless_the_caller_agrees(data: tuple[Codebook, pa.Table, pa.Table]) -> None:
    model = NaiveBayes(data[0]).fit(data[1])
    with pytest.raises(PrivacyError, match="--allow-exact"):
        Synthesizer(model)
    assert synthetic.NOT_PRIVATE in Synthesizer(model, allow_exact=True).notes


def test_missing_values_unlisted_cells_and_wide_grids() -> None:
    book = Codebook(
        "y",
        ("a", "b", "never"),
        (
            Categorical("c", ("u", "v"), optional=True),
            Numeric("wide", 0.0, 1e6, precision=0.01, optional=True),
            Numeric("cells", 0.0, 100.0, edges=(10.0, 50.0)),
            Numeric("empty", 0.0, 5.0, optional=True),
        ),
        max_rows=10_000,
    )
    table = {
        "c": ["u", "v", None, "u"] * 50,
        "wide": [1000.5, None, None, 999.25] * 50,
        "cells": [5, 20, 60, 20] * 50,
        "empty": [None] * 200,
        "y": ["a", "b", "b", "a"] * 50,
    }
    model = NaiveBayes(book).fit(pa.table({**table, "empty": pa.array(table["empty"], pa.float64())}))
    source = Synthesizer(model, allow_exact=True)
    rows = source.rows(5000, coins("edges")).to_pydict()
    assert set(rows["y"]) == {"a", "b"}
    by_class = {each: [at for at, label in enumerate(rows["y"]) if label == each] for each in "ab"}
    assert not any(rows["c"][at] is None for at in by_class["a"])
    share = np.mean([rows["c"][at] is None for at in by_class["b"]])
    assert abs(share - 0.5) < 5 * 0.5 / np.sqrt(len(by_class["b"]))
    assert all(rows["wide"][at] is None for at in by_class["b"])
    assert all(abs(rows["wide"][at] - 1000) < 10 for at in by_class["a"])
    assert all(0 <= value <= 100 for value in rows["cells"])
    assert set(rows["empty"]) == {None}
    NaiveBayes(book).fit(pa.table(rows))  # the codebook takes the rows


def test_text_has_marginals_and_no_rows() -> None:
    book = Codebook("kind", ("ham", "spam"), (Text("body", ("free", "win"), max_words=10),), max_rows=100)
    model = PrivateNaiveBayes(book, epsilon=5.0).fit(pa.table({"body": ["free win", "free"], "kind": ["spam", "ham"]}))
    source = Synthesizer(model)
    with pytest.raises(ConfigError, match=r"body.*text"):
        source.rows(5)
    assert {line["value"] for line in source.marginals().to_pylist()} == {"ham", "spam", "free", "win"}


def test_measurements_are_the_noisy_tables_with_their_noise(private: PrivateNaiveBayes) -> None:
    stated = Synthesizer(private).measurements()
    target = private.codebook_.target
    assert {each["clique"][0] for each in stated["measurements"]} == {target}
    for each in stated["measurements"]:
        assert len(each["values"]) == np.prod([stated["domain"][name] for name in each["clique"]])
        assert each["stddev"] > 0
    assert all(len(stated["cells"][name]) == size for name, size in stated["domain"].items())
    released = [[cell for row in table for cell in row] for table in private.privacy_["released"]["tables"]]
    assert all(each["values"] in released for each in stated["measurements"])
    with pytest.raises(ConfigError, match="only a private model"):
        Synthesizer(NaiveBayes().fit([[1.0], [2.0]], ["a", "b"]), allow_exact=True).measurements()


def test_rows_of_a_study_between_sites_and_its_noise(data: tuple[Codebook, pa.Table, pa.Table]) -> None:
    made = hospitals(1500)
    study = RowStudy(made.codebook, privacy=Privacy(epsilon=1.0))
    source = Synthesizer(study.simulate(made.tables).model)
    assert min(p_values(source, source.rows(20_000, coins("sites")))) > ALPHA
    whole = Sum.make(study, tuple(made.tables)).noise
    assert isinstance(whole, WholeNoise)  # of three sites, each with its own
    stated = [each["stddev"] for each in source.measurements()["measurements"]]
    assert sorted(stated) == pytest.approx(sorted(whole.deviations(3)))

    in_shares = RowStudy(made.codebook, privacy=Privacy(epsilon=1.0), limits=Limits(min_cell=1)).simulate(made.tables).model
    noise = {each["stddev"] for each in Synthesizer(in_shares).measurements()["measurements"]}
    assert len(noise) == 1
    # Three shares of which two are calibrated to: two-sided geometric noise of rate epsilon / 6, times 3/2 in variance.
    rate = 1 / 6
    assert noise.pop() == pytest.approx(np.sqrt(1.5 * 2 * np.exp(-rate) / np.expm1(-rate) ** 2))


def test_command_writes_rows_marginals_and_notes_and_charges_nothing(
    data: tuple[Codebook, pa.Table, pa.Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Ledger.create("ledger.jsonl", epsilon=3, unit="one record")
    PrivateNaiveBayes(data[0], epsilon=1.0, ledger="ledger.jsonl").fit(data[1]).release("release")
    before = Path("ledger.jsonl").read_bytes()
    line = ["report", "synthetic", "release", "--rows", "300", "--out", "made/rows.csv", "--measurements", "made/noisy.json"]
    done = CliRunner().invoke(root, line)
    assert done.exit_code == 0, done.output
    assert "independent within a class" in done.output
    assert "no privacy was spent" in done.output
    assert Path("ledger.jsonl").read_bytes() == before
    with Path("made/rows.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 300
    assert "independent within a class" in Path("made/rows.txt").read_text()
    assert json.loads(Path("made/noisy.json").read_text())["format"] == synthetic.MEASUREMENTS
    with Path("made/marginals.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert sum(float(line["probability"]) for line in lines if line["feature"] == data[0].target) == pytest.approx(1)
    again = CliRunner().invoke(root, line)
    assert isinstance(again.exception, ConfigError)  # nothing is overwritten
    NaiveBayes(data[0]).fit(Path("made/rows.csv"))


def test_command_refuses_exact_releases_and_folders_without_a_model(
    data: tuple[Codebook, pa.Table, pa.Table], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    NaiveBayes(data[0]).fit(data[1]).release("exact")
    done = CliRunner().invoke(root, ["report", "synthetic", "exact", "--rows", "5"])
    assert isinstance(done.exception, PrivacyError)
    assert not Path("rows.csv").exists()
    done = CliRunner().invoke(root, ["report", "synthetic", "exact", "--rows", "5", "--allow-exact"])
    assert done.exit_code == 0, done.output
    assert "not private" in Path("rows.txt").read_text()
    assert load("exact/model.json").predict(pacsv.read_csv("rows.csv")).shape == (5,)
    Path("empty").mkdir()
    assert CliRunner().invoke(root, ["report", "synthetic", "empty", "--rows", "5"]).exit_code != 0
