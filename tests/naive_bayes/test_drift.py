"""Drift of rows from a model, through its noise; the command."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from blindbayes import NaiveBayes, Privacy, PrivateNaiveBayes, RowStudy
from blindbayes.cli import root
from blindbayes.datasets import hospitals
from blindbayes.errors import BlindbayesError
from blindbayes.naive_bayes.drift import measure_drift
from blindbayes.report.plots import drift_plot
from study.test_study_evaluation import BOOK, patients

COLUMNS = [*BOOK.names, "ill"]


BEFORE, SAME = patients(4000, 1)[COLUMNS], patients(4000, 2)[COLUMNS]


PLAIN = BOOK.from_dict({**BOOK.to_dict(), "identifier": None})


MODEL = NaiveBayes(PLAIN).fit(BEFORE[list(BOOK.names)], BEFORE["ill"])


def moved(years: int) -> pd.DataFrame:
    return SAME.assign(age=np.clip(SAME["age"] + years, 0, 120))


def test_rows_of_the_same_kind_raise_no_alarm_and_older_people_do() -> None:
    same = measure_drift(MODEL, SAME)
    assert max(same.features.values()) < 0.02
    assert same.sentence.startswith("No need to retrain: ")
    older = measure_drift(MODEL, moved(15))
    assert max(older.features, key=lambda name: older.features[name]) == "age"
    assert older.sentence.startswith("Retrain")
    assert "age" in older.sentence


HOSPITALS = hospitals(4000)


ROWS = pd.concat([table.to_pandas() for table in HOSPITALS.tables.values()]).sample(frac=1, random_state=1)


FIRST, SECOND = ROWS.iloc[:2000], ROWS.iloc[2000:]


QUERIES = list(HOSPITALS.codebook.names)


def private(rows: pd.DataFrame, epsilon: float) -> PrivateNaiveBayes:
    return PrivateNaiveBayes(HOSPITALS.codebook, epsilon=epsilon).fit(rows[QUERIES], rows[HOSPITALS.codebook.target])


def test_a_feature_that_noise_left_nothing_of_is_named() -> None:
    drift = measure_drift(private(FIRST, 0.02), SECOND[QUERIES])
    assert set(drift.unknown) == set(QUERIES)
    assert drift.sentence.startswith("No answer: noise left nothing")


def test_drift_is_seen_through_the_noise_of_a_model() -> None:
    older = SECOND.assign(age=np.clip(SECOND["age"] + 25, 0, 100))
    for epsilon in (0.5, 1.0, 5.0):
        drift = measure_drift(private(FIRST, epsilon), older)
        assert drift.sentence.startswith("Retrain"), drift
        assert "age" in drift.sentence


def test_noise_of_sums_over_sites_is_no_drift(tmp_path: Path) -> None:
    study = RowStudy(HOSPITALS.codebook, privacy=Privacy(epsilon=0.3))
    for at in (1, 2):
        study.simulate(HOSPITALS.tables).save(tmp_path / str(at))
    first, second = tmp_path / "1" / "model.json", tmp_path / "2" / "model.json"
    assert measure_drift(first, ROWS[QUERIES]).sentence.startswith("No need to retrain: ")
    between = measure_drift(first, second)
    assert between.sentence.startswith("No need to retrain: ")
    alone = measure_drift(first, ROWS[QUERIES])
    shared = between.chance.keys() & alone.chance.keys()
    assert sum(between.chance[name] for name in shared) > sum(alone.chance[name] for name in shared)  # noise of both


def test_declared_class_weights_and_few_rows_are_no_drift() -> None:
    balanced = NaiveBayes(HOSPITALS.codebook, class_weight="balanced")
    model = balanced.fit(FIRST[QUERIES], FIRST[HOSPITALS.codebook.target])
    assert measure_drift(model, SECOND[QUERIES]).sentence.startswith("No need to retrain: ")
    assert measure_drift(model, SECOND).classes == pytest.approx(0.0, abs=0.01)
    few = [measure_drift(model, SECOND[QUERIES].iloc[low : low + 20]) for low in range(0, 400, 20)]
    assert max(max(each.features.values()) for each in few) > 0.25  # which would be an alarm
    assert sum(each.sentence.startswith("Retrain") for each in few) <= 1


def test_a_model_that_does_not_say_how_noisy_it_is_gives_no_answer() -> None:
    model = private(FIRST, 0.5)
    del model.privacy_["released"]
    drift = measure_drift(model, SECOND[QUERIES].assign(age=0))
    assert drift.sentence.startswith("No answer: the model is noisy")


def test_rows_without_classes_and_later_models_are_compared(tmp_path: Path) -> None:
    unlabelled = measure_drift(MODEL, SAME[list(BOOK.names)])
    assert unlabelled.classes is None
    assert unlabelled.evaluation is None
    MODEL.save(tmp_path / "old.json")
    NaiveBayes(PLAIN).fit(moved(15)[list(BOOK.names)], moved(15)["ill"]).save(tmp_path / "new.json")
    assert measure_drift(tmp_path / "old.json", tmp_path / "new.json").sentence.startswith("Retrain")
    with pytest.raises(BlindbayesError, match="no rows"):
        measure_drift(MODEL, SAME.iloc[:0])


def test_the_command_prints_a_sentence_and_draws_a_picture(tmp_path: Path) -> None:
    MODEL.save(tmp_path / "model.json")
    moved(15).to_csv(tmp_path / "rows.csv", index=False)
    called = ["drift", str(tmp_path / "model.json"), str(tmp_path / "rows.csv")]
    result = CliRunner().invoke(root, [*called, "--plot", str(tmp_path / "drift.svg")])
    assert result.exit_code == 0, result.output
    assert "Retrain" in result.output
    assert (tmp_path / "drift.svg").read_text().startswith("<svg")
    assert drift_plot(measure_drift(MODEL, SAME)).startswith("<svg")
    stored = json.loads(CliRunner().invoke(root, [*called, "--json"]).output)
    assert stored["sentence"].startswith("Retrain")


def test_the_command_reads_tables_as_train_does(tmp_path: Path) -> None:
    model = str(tmp_path / "model.json")
    MODEL.save(model)
    german, base = tmp_path / "rows.csv", tmp_path / "rows.duckdb"
    moved(15).assign(ort="Köln").to_csv(german, index=False, sep=";", decimal=",", encoding="latin-1")
    expected = json.loads(json.dumps(measure_drift(MODEL, moved(15)).to_dict()))
    reading = ["--decimal", ",", "--encoding", "latin-1", "--ignore-extra"]
    answer = CliRunner().invoke(root, ["drift", model, str(german), *reading, "--json"])
    assert json.loads(answer.stdout.splitlines()[-1] if answer.stdout.count("{") == 1 else answer.stdout) == expected
    refused = CliRunner().invoke(root, ["drift", model, str(german), *reading[:-1]]).exception
    assert "--ignore-extra" in str(refused)
    rows = moved(15)
    with duckdb.connect(str(base)) as database:
        database.register("arriving", rows)
        database.execute("CREATE TABLE visits AS SELECT * FROM arriving")
    answer = CliRunner().invoke(root, ["drift", model, f"duckdb://{base}#visits", "--json"])
    assert json.loads(answer.stdout) == expected
    NaiveBayes(PLAIN).fit(moved(15)).release(tmp_path / "release")
    answer = CliRunner().invoke(root, ["drift", model, str(tmp_path / "release")])
    assert "Retrain" in answer.output, answer.exception
