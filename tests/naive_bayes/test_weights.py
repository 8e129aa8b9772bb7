"""Integer weights of rows equal scikit-learn's, and fractions are refused with the way out."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.naive_bayes import CategoricalNB, GaussianNB

from blindbayes import Categorical, Codebook, DataError, NaiveBayes, Numeric, PrivateNaiveBayes

RNG = np.random.default_rng(8)
X = RNG.integers(0, 3, (200, 2))
Y = RNG.integers(0, 2, 200)
WEIGHTS = RNG.integers(0, 300, 200)
BOOK = Codebook("y", ("0", "1"), (Categorical("a", ("0", "1", "2")), Categorical("b", ("0", "1", "2"))), max_rows=10**6)


def test_fractions_times_100_equal_those_of_scikit_learn() -> None:
    ours = NaiveBayes(BOOK, alpha=50).fit(X, Y, sample_weight=WEIGHTS)
    theirs = CategoricalNB(alpha=0.5).fit(X, Y, sample_weight=WEIGHTS / 100)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=1e-12)
    np.testing.assert_allclose(ours.class_count_ / 100, theirs.class_count_, rtol=1e-12)


def test_gaussian_features_too() -> None:
    numbers = np.round(RNG.normal(Y[:, None] * 2, 1, (200, 1)), 1)
    book = Codebook("y", ("0", "1"), (Numeric("x", -20, 20, 0.1),), max_rows=10**6)
    ours = NaiveBayes(book).fit(numbers, Y, sample_weight=WEIGHTS)
    theirs = GaussianNB().fit(numbers, Y, sample_weight=WEIGHTS / 100)
    np.testing.assert_allclose(ours.predict_proba(numbers), theirs.predict_proba(numbers), rtol=1e-7, atol=1e-12)


def test_batches_are_exact_and_a_row_without_weight_weighs_one() -> None:
    whole = NaiveBayes(BOOK).fit(X, Y, sample_weight=np.r_[WEIGHTS[:100], np.ones(100)])
    parts = NaiveBayes(BOOK).partial_fit(X[:100], Y[:100], sample_weight=WEIGHTS[:100])
    assert parts.partial_fit(X[100:], Y[100:]).statistics_ == whole.statistics_


def test_weights_that_are_not_counts_are_refused() -> None:
    with pytest.raises(DataError, match="multiply the weights, and alpha, by 100"):
        NaiveBayes(BOOK).fit(X, Y, sample_weight=WEIGHTS / 100)
    with pytest.raises(TypeError, match="sample_weight"):
        PrivateNaiveBayes(BOOK, epsilon=1.0).fit(X, Y, sample_weight=WEIGHTS)  # type: ignore[call-arg]
    with pytest.raises(DataError, match="max_rows"):
        NaiveBayes(BOOK).fit(X, Y, sample_weight=WEIGHTS * 1000)
