"""Weights of classes that a study agrees on: the model that is opened, and classes over columns that nobody may pool."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes import Categorical, Codebook, ConfigError, Estimation, NaiveBayes, Numeric, Privacy, RowStudy
from support.studies import make_columns_study

BOOK = Codebook(
    "ill",
    ("no", "yes"),
    (Categorical("smokes", ("no", "yes")), Numeric("age", 0, 99, bins=6), Categorical("sex", ("f", "m"))),
    max_rows=2000,
)
WEIGHT = {"yes": 12.0}


def table(rows: int = 400, seed: int = 3) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    ill = rng.random(rows) < 0.08
    smokes = np.where(rng.random(rows) < np.where(ill, 0.7, 0.3), "yes", "no")
    age = np.clip(rng.normal(np.where(ill, 62, 48), 14), 0, 99).round()
    columns = {"id": np.arange(rows).astype(str), "smokes": smokes, "age": age, "sex": rng.choice(["f", "m"], rows)}
    return pd.DataFrame({**columns, "ill": np.where(ill, "yes", "no")})


FRAME = table()
X = FRAME[list(BOOK.names)]
PLAIN = NaiveBayes(BOOK).fit(FRAME.drop(columns="id"))
POOLED = NaiveBayes(BOOK, class_weight=WEIGHT).fit(FRAME.drop(columns="id"))


def test_weights_find_more_of_a_rare_class() -> None:
    ill = (FRAME["ill"] == "yes").to_numpy()
    found = [(model.predict(X)[ill] == "yes").mean() for model in (PLAIN, POOLED)]
    assert found[0] < 0.3 < 0.6 < found[1]


def test_rows_open_the_model_that_pooling_gives_with_these_weights() -> None:
    parts = {name: FRAME[at::3].drop(columns="id") for at, name in enumerate("abc")}
    result = RowStudy(BOOK, estimation=Estimation(class_weight=WEIGHT)).simulate(parts)
    assert result.statistics == POOLED.statistics_
    np.testing.assert_allclose(result.model.predict_proba(X), POOLED.predict_proba(X), rtol=1e-12)
    noisy = RowStudy(
        BOOK, privacy=Privacy(epsilon=50.0, expected_rows=400), estimation=Estimation(class_weight=WEIGHT)
    ).simulate(parts)
    plain = RowStudy(BOOK, privacy=Privacy(epsilon=50.0, expected_rows=400)).simulate(parts)
    shift = np.diff(noisy.model.class_log_prior_) - np.diff(plain.model.class_log_prior_)
    assert abs(shift[0] - np.log(12)) < 0.5


@pytest.mark.parametrize("keyed", [{}, {"kind": "join", "key": "id"}, {"kind": "join", "key": "id", "left": True}])
def test_classes_over_columns_are_those_of_pooled_training_with_these_weights(keyed: dict[str, Any]) -> None:
    keys = ["id"] if keyed else []
    options: dict[str, Any] = {"queries": 1000}
    if keyed:
        options |= {"bounds": {"clinic": 4096, "insurer": 4096}, "join": "left" if keyed.pop("left", False) else "inner"}
    study = make_columns_study(BOOK, options=options, **keyed, class_weight=WEIGHT)
    sides = {"clinic": FRAME[[*keys, "smokes", "ill"]], "insurer": FRAME[[*keys, "age", "sex"]]}
    joint = study.simulate(sides)
    asked = {"clinic": X[["smokes"]][:60], "insurer": X[["age", "sex"]][:60]}
    found = joint.model.predict(asked)
    assert np.array_equal(found, POOLED.predict(X[:60]))
    assert not np.array_equal(found, PLAIN.predict(X[:60]))
    np.testing.assert_allclose(joint.model.combine().class_log_prior_, POOLED.class_log_prior_, rtol=1e-12)


def test_a_study_without_weights_keeps_its_hash_and_one_with_them_has_another() -> None:
    assert (
        RowStudy(BOOK, estimation=Estimation(class_weight={})).sha256
        == RowStudy(BOOK).sha256
        == RowStudy(BOOK, estimation=Estimation()).sha256
    )
    assert RowStudy(BOOK, estimation=Estimation(class_weight=WEIGHT)).sha256 != RowStudy(BOOK).sha256


@pytest.mark.parametrize("weight", [{"maybe": 2.0}, {"yes": 0.0}, {"yes": -1.0}, {"yes": float("nan")}, {"yes": 1e9}])
def test_what_is_no_weight_is_refused(weight: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="class_weight"):
        RowStudy(BOOK, estimation=Estimation(class_weight=weight))


def test_a_protocol_without_a_place_for_weights_says_so() -> None:
    with pytest.raises(ConfigError, match="class_weight does not apply to private_ratio"):
        RowStudy(BOOK, protocol="private_ratio", estimation=Estimation(class_weight=WEIGHT))
