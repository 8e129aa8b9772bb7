"""Weights of rows on a declared grid: exact integers, equal to scikit-learn's floats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.naive_bayes import CategoricalNB, GaussianNB

from blindbayes import Categorical, Codebook, ConfigError, DataError, NaiveBayes, Numeric, PrivacyError, load

RNG = np.random.default_rng(8)
X = RNG.integers(0, 3, (200, 2))
Y = RNG.integers(0, 2, 200)
WEIGHTS = RNG.integers(0, 300, 200) / 100
BOOK = Codebook("y", ("0", "1"), (Categorical("a", ("0", "1", "2")), Categorical("b", ("0", "1", "2"))), max_rows=10**6)


def test_weights_on_the_grid_equal_those_of_scikit_learn(tmp_path: Path) -> None:
    ours = NaiveBayes(BOOK, weight_step=0.01, alpha=0.5).fit(X, Y, sample_weight=WEIGHTS)
    theirs = CategoricalNB(alpha=0.5).fit(X, Y, sample_weight=WEIGHTS)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=1e-12)
    np.testing.assert_allclose(ours.class_count_, theirs.class_count_, rtol=1e-12)
    ours.save(tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert np.array_equal(again.predict_proba(X), ours.predict_proba(X))
    assert np.array_equal(again.class_count_, ours.class_count_)
    assert (again.alpha, again.weight_step) == (0.5, 0.01)


def test_gaussian_features_too() -> None:
    numbers = np.round(RNG.normal(Y[:, None] * 2, 1, (200, 1)), 1)
    book = Codebook("y", ("0", "1"), (Numeric("x", -20, 20, 0.1),), max_rows=10**6)
    ours = NaiveBayes(book, weight_step=0.01).fit(numbers, Y, sample_weight=WEIGHTS)
    theirs = GaussianNB().fit(numbers, Y, sample_weight=WEIGHTS)
    np.testing.assert_allclose(ours.predict_proba(numbers), theirs.predict_proba(numbers), rtol=1e-7, atol=1e-12)


def test_batches_are_exact_and_a_row_without_weight_weighs_one() -> None:
    whole = NaiveBayes(BOOK, weight_step=0.01).fit(X, Y, sample_weight=np.r_[WEIGHTS[:100], np.ones(100)])
    parts = NaiveBayes(BOOK, weight_step=0.01).partial_fit(X[:100], Y[:100], sample_weight=WEIGHTS[:100])
    assert parts.partial_fit(X[100:], Y[100:]).statistics_ == whole.statistics_


def test_weights_off_the_grid_are_rounded_to_it() -> None:
    ours = NaiveBayes(BOOK, weight_step=0.5).fit(X, Y, sample_weight=np.full(200, 0.7))
    assert ours.statistics_ == NaiveBayes(BOOK, weight_step=0.5).fit(X, Y, sample_weight=np.full(200, 0.5)).statistics_


def test_what_makes_no_grid_is_refused() -> None:
    for step in (0.3, 0, -1, 2, float("nan"), 1e-9):
        with pytest.raises(ConfigError, match="weight_step is one over a whole number"):
            NaiveBayes(BOOK, weight_step=step).fit(X, Y, sample_weight=WEIGHTS)
    with pytest.raises(DataError, match=r"weight_step=0\.01"):
        NaiveBayes(BOOK).fit(X, Y, sample_weight=WEIGHTS)
    with pytest.raises(PrivacyError, match="sample_weight"):
        NaiveBayes(BOOK, weight_step=0.01, epsilon=1.0).fit(X, Y)
    with pytest.raises(DataError, match="max_rows"):
        NaiveBayes(BOOK, weight_step=1e-6).fit(X, Y, sample_weight=WEIGHTS)
