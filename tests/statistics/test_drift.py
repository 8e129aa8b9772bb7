"""Drift: no alarm for rows of the same kind, an alarm for those that moved, locally and between models."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from blindbayes import NaiveBayes, PrivateNaiveBayes
from blindbayes.datasets import hospitals
from blindbayes.naive_bayes.drift import measure_drift
from study.test_study_evaluation import BOOK, patients

COLUMNS = [*BOOK.names, "ill"]
BEFORE, SAME = patients(4000, 1)[COLUMNS], patients(4000, 2)[COLUMNS]
PLAIN = BOOK.from_dict({**BOOK.to_dict(), "identifier": None})
MODEL = NaiveBayes(PLAIN).fit(BEFORE[list(BOOK.names)], BEFORE["ill"])


def moved(years: int) -> pd.DataFrame:
    return SAME.assign(age=np.clip(SAME["age"] + years, 0, 120))


def test_the_index_of_normal_features_is_that_of_their_densities() -> None:
    drift = measure_drift(MODEL, moved(15))
    grid = np.linspace(-200, 400, 60_001)
    from blindbayes.statistics.drift import Marginals

    m, u = Marginals.from_parameters(MODEL.parameters_).moments["age"]
    n, v = moved(15)["age"].mean(), moved(15)["age"].var(ddof=0)
    p, q = (np.exp(-((grid - a) ** 2) / 2 / b) / np.sqrt(2 * np.pi * b) for a, b in ((m, u), (n, v)))
    exact = np.sum(np.where((p > 1e-300) & (q > 1e-300), (p - q) * np.log(p / q), 0)) * (grid[1] - grid[0])
    assert drift.features["age"] == pytest.approx(exact, rel=1e-3)


def test_wrong_probabilities_ask_for_recalibration() -> None:
    flipped = SAME.copy()
    few = np.random.default_rng(0).random(len(SAME)) < 0.4
    flipped.loc[few, "ill"] = np.where(SAME.loc[few, "ill"] == "yes", "no", "yes")
    drift = measure_drift(MODEL, flipped)
    assert drift.calibration_error > 0.05
    assert "etrain" in drift.sentence
    assert not drift.sentence.startswith("No need")


HOSPITALS = hospitals(4000)


ROWS = pd.concat([table.to_pandas() for table in HOSPITALS.tables.values()]).sample(frac=1, random_state=1)


FIRST, SECOND = ROWS.iloc[:2000], ROWS.iloc[2000:]


QUERIES = list(HOSPITALS.codebook.names)


def private(rows: pd.DataFrame, epsilon: float) -> PrivateNaiveBayes:
    return PrivateNaiveBayes(HOSPITALS.codebook, epsilon=epsilon).fit(rows[QUERIES], rows[HOSPITALS.codebook.target])


@pytest.mark.parametrize("epsilon", [0.1, 0.2, 0.5, 1.0, 5.0])
def test_the_noise_of_a_model_is_no_drift(epsilon: float) -> None:
    for _ in range(5):
        drift = measure_drift(private(FIRST, epsilon), SECOND)
        assert not drift.sentence.startswith(("Retrain", "No need to retrain yet")), drift.sentence
        assert set(drift.features) | set(drift.unknown) == set(QUERIES)
