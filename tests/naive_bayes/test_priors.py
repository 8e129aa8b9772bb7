"""Public priors and weights of classes: another setting, or errors that do not cost alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.datasets import load_breast_cancer
from sklearn.naive_bayes import GaussianNB

from blindbayes import Categorical, Codebook, ConfigError, NaiveBayes, Numeric, PrivateNaiveBayes, load
from blindbayes.cli import root

X, Y = load_breast_cancer(return_X_y=True, as_frame=True)
BOOK = Codebook("ill", ("no", "yes"), (Categorical("sex", ("f", "m")), Numeric("age", 0, 100, bins=10)))


def table() -> pd.DataFrame:
    draws = np.random.default_rng(2)
    ill = draws.random(3000) < 0.06
    age = np.clip(draws.normal(np.where(ill, 58, 47), 12), 0, 100).round()
    return pd.DataFrame({"sex": draws.choice(["f", "m"], 3000), "age": age, "ill": np.where(ill, "yes", "no")})


def test_priors_are_those_of_gaussian_naive_bayes() -> None:
    ours = NaiveBayes(priors=[0.9, 0.1]).fit(X, Y)
    theirs = GaussianNB(priors=[0.9, 0.1]).fit(X, Y)
    assert np.array_equal(ours.predict(X), theirs.predict(X))
    by_label = NaiveBayes(priors={1: 0.1, 0: 0.9}).fit(X, Y)
    assert np.array_equal(by_label.predict_proba(X), ours.predict_proba(X))


def test_a_rare_class_is_found_when_its_errors_cost_more() -> None:
    rows = table()
    plain, weighed = NaiveBayes(BOOK).fit(rows), NaiveBayes(BOOK, class_weight="balanced").fit(rows)
    ill = rows["ill"] == "yes"
    assert (plain.predict(rows)[ill] == "yes").mean() < 0.1
    assert (weighed.predict(rows)[ill] == "yes").mean() > 0.5
    again = plain.with_priors(class_weight={"yes": 20})
    odds = plain.predict_proba(rows)[:, 1] / plain.predict_proba(rows)[:, 0]
    assert np.array_equal(again.predict(rows) == "yes", odds * 20 > 1)


@pytest.mark.parametrize("is_private", [False, True])
def test_priors_are_kept_in_the_model_file(tmp_path: Path, is_private: bool) -> None:
    priors = {"yes": 0.5, "no": 0.5}
    plain, private = NaiveBayes(BOOK, priors=priors), PrivateNaiveBayes(BOOK, epsilon=1.0, priors=priors)
    model = (private if is_private else plain).fit(table())
    model.save(tmp_path / "model.json")
    back = load(tmp_path / "model.json")
    assert np.allclose(back.predict_proba(table()), model.predict_proba(table()), rtol=1e-12)
    low, high = back.explain(table()[:3]).interval("yes")
    assert np.array_equal(low[:, 0], high[:, 0])  # what is declared carries no noise
    with pytest.raises(ConfigError, match="priors, class_weight or both"):
        back.with_priors()
    back.with_priors({"yes": 0.2, "no": 0.8}).save(tmp_path / "other.json")
    assert np.allclose(np.exp(load(tmp_path / "other.json").class_log_prior_), [0.8, 0.2])


@pytest.mark.parametrize(
    "wrong",
    [
        {"priors": [0.5]},
        {"priors": [0.5, 0.6]},
        {"priors": {"yes": 0.5}},
        {"priors": {"yes": 0.5, "maybe": 0.5}},
        {"priors": [float("nan"), 1]},
        {"class_weight": "even"},
        {"class_weight": {"yes": -1}},
        {"class_weight": {"yes": "x"}},
    ],
)
def test_priors_that_are_none_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        NaiveBayes(BOOK, **wrong).fit(table())


def test_the_command_weighs_classes(tmp_path: Path) -> None:
    table().to_csv(tmp_path / "t.csv", index=False)
    NaiveBayes(BOOK).fit(table()).save(tmp_path / "m.json")
    asked = ["predict", str(tmp_path / "m.json"), str(tmp_path / "t.csv")]
    plain = CliRunner().invoke(root, asked).output.count("yes")
    assert CliRunner().invoke(root, [*asked, "--weight", "yes=20"]).output.count("yes") > plain
    assert isinstance(CliRunner().invoke(root, [*asked, "--prior", "yes"]).exception, ConfigError)
