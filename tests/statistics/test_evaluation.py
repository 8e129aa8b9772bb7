"""Evaluation vectors: sums equal the pooled evaluation, figures equal scikit-learn's, binned ones within their interval."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric
from blindbayes.data import encode
from blindbayes.errors import ConfigError, DataError
from blindbayes.statistics.evaluation import Evaluation, bins_of, evaluate_rows, probability_edges

CODEBOOK = Codebook(
    "y",
    ("a", "b", "c"),
    (
        Categorical("k", ("u", "v", "w"), optional=True),
        Numeric("x", -50, 50, 0.25, optional=True),
        Numeric("h", 0, 100, bins=7),
    ),
    max_rows=100_000,
)


def table(seed: int, rows: int, classes: str = "abc") -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    y = generator.choice(list(classes), rows, p=np.arange(1, len(classes) + 1) / np.arange(1, len(classes) + 1).sum())
    shift = np.select([y == "a", y == "b"], [-6.0, 4.0], 0.0)
    noise = generator.normal(0, 8, rows) + shift
    k = np.where(generator.random(rows) < 0.5, np.select([y == "a", y == "b"], ["u", "v"], "w"), "u").astype(object)
    k[generator.random(rows) < 0.1] = None
    h = np.clip(generator.normal(50, 20, rows) + 2 * shift, 0, 100).astype(int)
    return pd.DataFrame({"k": k, "x": np.clip(np.round(noise, 2), -50, 50), "h": h, "y": y})


def evaluated(model: NaiveBayes, frame: pd.DataFrame, bins: int = 20) -> Evaluation:
    columns = {name: frame[name].to_numpy() for name in CODEBOOK.names}
    block = encode(columns, CODEBOOK, training=True, labels=frame["y"].to_numpy())
    return evaluate_rows(model.parameters_, [block], bins)


TRAIN, TEST = table(1, 3000), table(2, 1500)
MODEL = NaiveBayes(CODEBOOK).fit(TRAIN.drop(columns="y"), TRAIN["y"])
PROBABILITIES = MODEL.predict_proba(TEST.drop(columns="y"))
PREDICTED = MODEL.predict(TEST.drop(columns="y"))
JOINT = MODEL.predict_joint_log_proba(TEST.drop(columns="y"))
LOG_ODDS = np.stack([JOINT[:, at] - np.logaddexp.reduce(np.delete(JOINT, at, 1), axis=1) for at in range(3)], axis=1)
TRUTH = TEST["y"].to_numpy()


@given(st.lists(st.integers(0, 4), min_size=1500, max_size=1500), st.integers(1, 20).map(lambda half: 2 * half))
@settings(max_examples=10, deadline=None)
def test_vectors_of_any_partition_add_up_to_the_pooled_one(sites: list[int], bins: int) -> None:
    pooled = evaluated(MODEL, TEST, bins)
    parts = [evaluated(MODEL, TEST[np.array(sites) == site], bins) for site in set(sites)]
    total = Evaluation.from_vector(pooled.classes, bins, np.sum([part.vector for part in parts], axis=0))
    assert total == pooled
    assert total.figures == pooled.figures
    assert sum(parts[1:], parts[0]) == pooled


def test_figures_without_bins_are_those_of_scikit_learn() -> None:
    result = evaluated(MODEL, TEST)
    labels = list(CODEBOOK.classes)
    assert result.confusion.tolist() == metrics.confusion_matrix(TRUTH, PREDICTED, labels=labels).tolist()
    assert result.rows == len(TEST)
    assert math.isclose(result.accuracy, metrics.accuracy_score(TRUTH, PREDICTED), rel_tol=1e-12)
    assert math.isclose(result.balanced_accuracy, metrics.balanced_accuracy_score(TRUTH, PREDICTED), rel_tol=1e-12)
    recall, precision = (
        score(TRUTH, PREDICTED, labels=labels, average=None) for score in (metrics.recall_score, metrics.precision_score)
    )
    assert np.allclose(result.recall, recall, rtol=1e-12, atol=0)
    assert np.allclose(result.precision, precision, rtol=1e-12, atol=0)
    assert np.allclose(result.base_rate, [(label == TRUTH).mean() for label in labels], rtol=1e-12, atol=0)


@pytest.mark.parametrize("bins", [2, 20, 100])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_binned_figures_contain_those_of_scikit_learn(at: int, bins: int) -> None:
    result, label = evaluated(MODEL, TEST, bins), CODEBOOK.classes[at]
    truth, scores = label == TRUTH, PROBABILITIES[:, at]
    places = bins_of(LOG_ODDS[:, at], bins)

    auc = result.auc(label)
    assert auc.low <= metrics.roc_auc_score(truth, scores) <= auc.high
    assert math.isclose(auc.value, metrics.roc_auc_score(truth, places), rel_tol=1e-12)  # a tie within a bin

    brier, exact = result.brier(label), metrics.brier_score_loss(truth, scores)
    assert brier.low - 1e-12 <= exact <= brier.high + 1e-12
    widest = np.diff(probability_edges(bins)).max()
    assert abs(brier.value - exact) <= brier.error + 1e-12 <= widest

    false, true = result.roc(label)
    expected_false, expected_true, _ = metrics.roc_curve(truth, places, drop_intermediate=False)
    used = np.isin(np.round(false, 12), np.round(expected_false, 12))
    assert used.all()
    assert set(np.round(true, 12)) == set(np.round(expected_true, 12))

    error = result.calibration_error(label)
    occupied = np.unique(places)
    exact_error = sum(abs(truth[places == b].mean() - scores[places == b].mean()) * (places == b).mean() for b in occupied)
    assert error.low - 1e-12 <= exact_error <= error.high + 1e-12
    assert error.error <= widest / 2 + 1e-12
    points = result.calibration(label)
    assert [point.rows for point in points] == [int((places == b).sum()) for b in occupied]
    assert np.allclose([point.fraction for point in points], [truth[places == b].mean() for b in occupied], rtol=1e-12)


def test_finer_bins_shrink_the_bin_error() -> None:
    errors = [evaluated(MODEL, TEST, bins).auc("a").error for bins in (2, 20, 100)]
    assert errors[0] > errors[1] > errors[2] > 0


def test_one_row_adds_one_to_as_many_cells_as_there_are_classes_and_one_more() -> None:
    whole, without = evaluated(MODEL, TEST), evaluated(MODEL, TEST.iloc[1:])
    change = whole.vector - without.vector
    assert sorted(change[change != 0].tolist()) == [1] * (len(CODEBOOK.classes) + 1)


def test_figures_that_are_not_defined_are_none() -> None:
    result = evaluated(MODEL, TEST[TEST["y"] == "a"])
    assert result.figures["classes"]["b"]["recall"] is None
    assert result.figures["classes"]["a"]["auc"]["value"] is None
    assert result.balanced_accuracy == result.recall[0]
    empty = Evaluation.zero(("a", "b"), 6)
    assert empty.figures["accuracy"] is None
    assert empty.figures["classes"]["a"]["brier"]["value"] is None


@pytest.mark.parametrize("change", ["negative", "more scores", "short"])
def test_vectors_of_no_rows_are_refused(change: str) -> None:
    vector = evaluated(MODEL, TEST).vector
    if change == "negative":
        vector[1] = -1
    elif change == "more scores":
        vector[-1] += 1
    else:
        vector = vector[:-1]
    with pytest.raises(DataError):
        Evaluation.from_vector(CODEBOOK.classes, 20, vector)


@pytest.mark.parametrize("bins", [0, 1, 3, 102, 2.0, True])
def test_bins_are_a_small_even_number(bins: int) -> None:
    with pytest.raises(ConfigError, match="score_bins"):
        Evaluation.zero(("a", "b"), bins)


def test_one_sentence_says_whether_the_model_beats_the_most_frequent_class() -> None:
    assert "better than always answering" in evaluated(MODEL, TEST).sentence
    counts = np.array([[5, 5], [1, 1]])
    assert "no better than" in Evaluation(("a", "b"), counts, np.zeros((2, 2, 4), np.int64)).sentence
    assert "No rows" in Evaluation.zero(("a", "b"), 4).sentence


def test_of_two_classes_the_bins_hold_the_confusion_matrix_and_one_row_moves_one_cell() -> None:
    book = Codebook("y", ("a", "b"), CODEBOOK.features, max_rows=100_000)
    frame = TEST[TEST["y"] != "c"]
    model = NaiveBayes(book).fit(frame.drop(columns="y"), frame["y"])

    def of(part: pd.DataFrame) -> Evaluation:
        block = encode({name: part[name].to_numpy() for name in book.names}, book, training=True, labels=part["y"].to_numpy())
        return evaluate_rows(model.parameters_, [block], 20)

    whole = of(frame)
    predicted = model.predict(frame.drop(columns="y"))
    assert whole.confusion.tolist() == metrics.confusion_matrix(frame["y"], predicted, labels=["a", "b"]).tolist()
    for at, label in enumerate(("a", "b")):
        scores = model.predict_proba(frame.drop(columns="y"))[:, at]
        exact = metrics.roc_auc_score(frame["y"] == label, scores)
        assert whole.auc(label).low <= exact <= whole.auc(label).high
    for other in (1, 2, 3):
        change = whole.vector - of(frame.drop(frame.index[other])).vector
        assert sorted(change[change != 0].tolist()) == [1]


def test_extreme_scores_fall_into_different_bins() -> None:
    """Of 40 bins of equal width all of these would be in the last."""
    probabilities = np.array([0.98, 0.99, 0.995, 0.999])
    assert len(set(bins_of(np.log(probabilities / (1 - probabilities)), 40))) == 4
