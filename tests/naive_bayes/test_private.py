"""`PrivateNaiveBayes` as an estimator: scikit-learn's checks, copies and files."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import joblib
import msgspec
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from blindbayes import Categorical, Codebook, ConfigError, NaiveBayes, Numeric, PrivacyError, PrivateNaiveBayes, load
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.naive_bayes.inputs import infer, labels_apart, plain_labels, split_columns
from blindbayes.testing import Coins
from blindbayes_papers.zafarani2020.estimator import SmoothNaiveBayes

BOOK = Codebook("y", ("0", "1"), (Categorical("k", ("u", "v")), Numeric("x", -9, 9, 0.1)), max_rows=10**6)


def table(rows: int = 400) -> tuple[pd.DataFrame, np.ndarray]:
    generator = np.random.default_rng(8)
    y = generator.integers(0, 2, rows)
    k = np.where(generator.random(rows) < 0.2 + 0.6 * y, "u", "v")
    return pd.DataFrame({"k": k, "x": np.round(generator.normal(y, 1), 1)}), y


class Declaring(PrivateNaiveBayes):
    """An estimator that declares what it sees: scikit-learn's checks bring tables of all shapes and no codebook."""

    def _fit(self, X: Any, y: Any) -> Declaring:
        names, columns = split_columns(X, None)
        _, columns, labels = labels_apart(names, columns, y, None)
        plain = plain_labels(labels)[0]
        if len(plain) == 0:
            raise ValueError("0 sample(s) in the table")
        self.declared_ = msgspec.structs.replace(infer(columns, plain, None), provenance="declared")
        return super()._fit(X, y)

    def _declared_codebook(self, X: Any) -> Codebook:
        return self.declared_


def test_scikit_learns_estimator_checks_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Coins, "system", staticmethod(lambda: Coins.seeded(bytes(32))))  # for checks that fit twice
    model = Declaring(None, epsilon=50.0)  # type: ignore[arg-type]
    results = check_estimator(model, on_skip=None, on_fail=None)
    failed = [(result["check_name"], str(result["exception"])) for result in results if result["status"] == "failed"]
    assert failed == []
    assert sum(result["status"] == "passed" for result in results) > 40


def test_copies_keep_every_parameter(tmp_path: Path) -> None:
    frame, y = table()
    model = PrivateNaiveBayes(BOOK, epsilon=1.0, expected_rows=400, tuning_note="none", ledger=None).fit(frame, y)
    assert clone(model).get_params() == model.get_params()
    buffer = io.BytesIO()
    joblib.dump(model, buffer)
    buffer.seek(0)
    back = joblib.load(buffer)
    model.save(tmp_path / "model.json")
    loaded = load(tmp_path / "model.json")
    assert back.get_params() == model.get_params()
    assert isinstance(loaded, PrivateNaiveBayes)
    for other in (back, loaded):
        assert other.predict_joint_log_proba(frame).tobytes() == model.predict_joint_log_proba(frame).tobytes()
        assert other.statement_ == model.statement_
        assert other.privacy_ == model.privacy_


@pytest.mark.parametrize(
    "settings",
    [
        {"priors": [0.5]},
        {"priors": [0.5, 0.6]},
        {"priors": {"0": 1.0}},
        {"class_weight": "equal"},
        {"class_weight": {"2": 1.0}},
        {"class_weight": {"0": 0.0, "1": 0.0}},
        {"alpha": 0},
        {"alpha": float("nan")},
    ],
    ids=str,
)
def test_settings_that_no_model_can_have_are_refused_before_the_ledger_pays(settings: dict[str, Any], tmp_path: Path) -> None:
    """They were refused when the model was put together: the budget was spent and nothing came of it."""
    ledger = Ledger.create(tmp_path / "ledger.jsonl", epsilon=10)
    for kind in (PrivateNaiveBayes, SmoothNaiveBayes):
        with pytest.raises(ConfigError):
            kind(BOOK, epsilon=1.0, ledger=ledger.path, **settings).fit(*table(20))
    assert ledger.balance().spent_epsilon == 0


def test_neither_estimator_has_parameters_of_the_other() -> None:
    plain, private = (set(kind.__init__.__annotations__) for kind in (NaiveBayes, PrivateNaiveBayes))
    assert plain & private == {"codebook", "alpha", "priors", "class_weight", "extra_columns", "return"}
    with pytest.raises(ConfigError, match="epsilon or rho"):
        PrivateNaiveBayes(BOOK).fit(*table())
    with pytest.raises(TypeError, match="epsilon"):
        NaiveBayes(BOOK, epsilon=1.0)  # type: ignore[call-arg]


def test_a_codebook_that_is_not_declared_is_refused() -> None:
    frame, y = table()
    inferred = NaiveBayes().fit(frame, y).codebook_
    for codebook in (None, inferred):
        with pytest.raises(PrivacyError, match="no declared domain"):
            PrivateNaiveBayes(codebook, epsilon=1.0).fit(frame, y)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="must be a Codebook"):
        PrivateNaiveBayes("codebook.toml", epsilon=1.0).fit(frame, y)  # type: ignore[arg-type]


def test_an_explanation_shows_the_class_share_as_the_prior_and_what_moves_the_score_as_an_offset() -> None:
    """The prior of an explanation was the offset of the score: 0.94 where the share of the class is 0.44."""
    draw = np.random.default_rng(6)
    label = draw.choice(["a", "b", "c"], 400, p=[0.5, 0.3, 0.2])
    table = pd.DataFrame({"k": np.where(draw.random(400) < 0.7, label, "b"), "n": draw.integers(0, 51, 400), "y": label})
    book = Codebook("y", ("a", "b", "c"), (Categorical("k", ("a", "b", "c")), Numeric("n", 0, 50, bins=10)), expected_rows=400)
    for classes in (book, replace_classes(book)):
        model = PrivateNaiveBayes(classes, epsilon=2.0).fit(table)
        asked = table[["k", "n"]][:30]
        explanation = model.explain(asked)
        assert explanation.parts == ("(prior)", "(offset)", "k", "n")
        np.testing.assert_allclose(explanation.terms[:, 0], np.tile(model.class_log_prior_, (30, 1)))
        np.testing.assert_allclose(explanation.terms[:, 1], np.tile(model.class_log_offset_, (30, 1)))
        np.testing.assert_allclose(explanation.terms.sum(axis=1), model.predict_joint_log_proba(asked))
        share = np.exp(model.class_log_prior_)
        odds = explanation.log_odds("a")
        np.testing.assert_allclose(odds[:, 0], np.log(share[0] / (1 - share[0])))
        low, high = explanation.interval("a")
        assert (low[:, 1] == 0).all()
        assert (high[:, 1] == 0).all()
        assert (low[:, 0] < high[:, 0]).all()
        assert ((low[:, 0] <= odds[:, 0]) & (odds[:, 0] <= high[:, 0])).all()


def replace_classes(book: Codebook) -> Codebook:
    """Two of the three classes: rows of the third are left out."""
    return Codebook("y", ("a", "b"), book.features, expected_rows=320)


def test_a_release_of_noise_alone_is_said_to_be_so() -> None:
    """Labels 0 and 1 in a table whose codebook lists no and yes: every row is left out, and no row is an error."""
    frame, y = table()
    other = Codebook("y", ("no", "yes"), BOOK.features, expected_rows=400)
    with pytest.warns(UserWarning, match="no larger than their noise.*codebook check") as caught:
        PrivateNaiveBayes(other, epsilon=1.0).fit(frame, y)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        PrivateNaiveBayes(other, epsilon=1.0).fit(frame, np.where(y, "yes", "no"))
