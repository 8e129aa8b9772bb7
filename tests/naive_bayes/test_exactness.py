"""NaiveBayes against scikit-learn's pooled fit and against exact rational arithmetic.

The tolerance is the issue's: 1e-12, relative, in the joint log-probability. Data lies on the codebook's grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.naive_bayes import CategoricalNB, GaussianNB
from sklearn.preprocessing import OrdinalEncoder

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric
from blindbayes.data import count

TOLERANCE = 1e-12


def joint(model: GaussianNB | CategoricalNB, X: np.ndarray) -> np.ndarray:
    return model.predict_joint_log_proba(X)


def require_close(ours: np.ndarray, theirs: np.ndarray) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE, atol=0)


def categorical_case(frame: pd.DataFrame, target: str, alpha: float) -> None:
    features = [name for name in frame.columns if name != target]
    codebook = Codebook.from_frame(frame, target)
    ours = NaiveBayes(codebook, alpha=alpha).fit(frame)
    encoder = OrdinalEncoder(categories=[list(codebook.feature(name).values) for name in features], dtype=np.int64)
    X = encoder.fit_transform(frame[features])
    sizes = [codebook.feature(name).size for name in features]
    theirs = CategoricalNB(alpha=alpha, min_categories=sizes).fit(X, frame[target])
    assert ours.classes_.tolist() == theirs.classes_.tolist()
    assert ours.class_count_.tolist() == theirs.class_count_.tolist()
    require_close(ours.predict_joint_log_proba(frame), joint(theirs, X))
    for at, name in enumerate(features):
        require_close(ours.feature_log_prob_[name], theirs.feature_log_prob_[at])
        assert (ours.statistics_.counts[name] == theirs.category_count_[at]).all()
    assert ours.predict(frame).tolist() == theirs.predict(X).tolist()


@pytest.mark.parametrize("alpha", [1.0, 0.25])
@pytest.mark.parametrize("name", ["car", "mushroom"])
def test_categorical_tables_score_as_categorical_nb(dataset: Callable[[str], Path], name: str, alpha: float) -> None:
    frame = pd.read_csv(dataset(name), dtype=str, keep_default_na=False)
    categorical_case(frame, "class", alpha)


def test_adult_categorical_columns_score_as_categorical_nb(dataset: Callable[[str], Path]) -> None:
    frame = pd.read_csv(dataset("adult"), dtype=str, keep_default_na=False)
    numeric = {name for name in frame.columns if name != "income" and pd.to_numeric(frame[name], errors="coerce").notna().all()}
    categorical_case(frame.drop(columns=[*numeric]), "income", 1.0)


def gaussian_case(frame: pd.DataFrame, target: str, var_smoothing: float) -> None:
    features = [name for name in frame.columns if name != target]
    X = frame[features].to_numpy(dtype=np.float64)
    ours = NaiveBayes(Codebook.from_frame(frame, target), var_smoothing=var_smoothing).fit(frame)
    theirs = GaussianNB(var_smoothing=var_smoothing).fit(X, frame[target])
    assert ours.classes_.tolist() == theirs.classes_.tolist()
    require_close(ours.predict_joint_log_proba(frame), joint(theirs, X))
    for at, name in enumerate(features):
        np.testing.assert_allclose(ours.theta_[name], theirs.theta_[:, at], rtol=1e-13)
        np.testing.assert_allclose(ours.var_[name], theirs.var_[:, at], rtol=1e-12)
    assert ours.predict(frame).tolist() == theirs.predict(X).tolist()


@pytest.mark.parametrize("var_smoothing", [1e-9, 1e-2])
def test_iris_scores_as_gaussian_nb(dataset: Callable[[str], Path], var_smoothing: float) -> None:
    gaussian_case(pd.read_csv(dataset("iris")), "class", var_smoothing)


def test_adult_numeric_columns_score_as_gaussian_nb(dataset: Callable[[str], Path]) -> None:
    frame = pd.read_csv(dataset("adult"))
    gaussian_case(frame[[*frame.select_dtypes("number").columns, "income"]], "income", 1e-9)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(2, 200),
    features=st.integers(1, 5),
    classes=st.integers(1, 4),
    decimals=st.integers(0, 3),
    spread=st.sampled_from([0.5, 20.0, 3000.0]),
    var_smoothing=st.sampled_from([1e-9, 1e-3]),
)
def test_random_numeric_tables_score_as_gaussian_nb(
    seed: int, rows: int, features: int, classes: int, decimals: int, spread: float, var_smoothing: float
) -> None:
    generator = np.random.default_rng(seed)
    X = np.round(generator.normal(0, spread, (rows, features)), decimals)
    y = np.append(np.arange(classes), generator.integers(0, classes, max(0, rows - classes)))[:rows]
    X += y[:, None]  # the classes differ
    X = np.round(X, decimals)
    theirs = GaussianNB(var_smoothing=var_smoothing).fit(X, y)
    assume(theirs.var_.min() > 1e-6 * theirs.var_.max())  # else a class of one row: not well conditioned
    ours = NaiveBayes(var_smoothing=var_smoothing).fit(X, y)
    require_close(ours.predict_joint_log_proba(X), joint(theirs, X))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 200),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    alpha=st.sampled_from([1.0, 0.1, 3.0]),
)
def test_random_categorical_tables_score_as_categorical_nb(seed: int, rows: int, sizes: list[int], alpha: float) -> None:
    generator = np.random.default_rng(seed)
    X = np.column_stack([generator.integers(0, size, rows) for size in sizes])
    y = generator.integers(0, 3, rows)
    codebook = Codebook(
        "y",
        tuple(str(label) for label in sorted(set(y.tolist()))),
        tuple(Categorical(f"f{at}", tuple(map(str, range(size)))) for at, size in enumerate(sizes)),
    )
    ours = NaiveBayes(codebook, alpha=alpha).fit(X, y)
    theirs = CategoricalNB(alpha=alpha, min_categories=sizes).fit(X, y)
    require_close(ours.predict_joint_log_proba(X), joint(theirs, X))
    best = np.sort(joint(theirs, X), axis=1)
    clear = best[:, -1] - best[:, -2] > 1e-12 if best.shape[1] > 1 else np.ones(rows, bool)  # a tie is decided by rounding
    assert ours.predict(X)[clear].tolist() == theirs.predict(X)[clear].tolist()


def test_a_mixed_table_is_the_sum_of_both_models() -> None:
    generator = np.random.default_rng(7)
    colour, size = generator.integers(0, 3, 500), np.round(generator.normal(5, 2, 500), 2)
    y = generator.integers(0, 2, 500)
    frame = pd.DataFrame({"colour": colour.astype(str), "size": size})
    ours = NaiveBayes().fit(frame, y)
    categorical = CategoricalNB().fit(colour[:, None], y)
    gaussian = GaussianNB().fit(size[:, None], y)
    expected = joint(categorical, colour[:, None]) + joint(gaussian, size[:, None]) - np.log(np.bincount(y) / 500)
    require_close(ours.predict_joint_log_proba(frame), expected)


def rational(values: list[Fraction]) -> tuple[Fraction, Fraction]:
    mean = sum(values, Fraction(0)) / len(values)
    return mean, sum(((value - mean) ** 2 for value in values), Fraction(0)) / len(values)


@pytest.mark.parametrize("centre", [0, 10**8, -(10**8), 4 * 10**11])
def test_mean_and_variance_equal_exact_rational_arithmetic(centre: int) -> None:
    generator = np.random.default_rng(3)
    tenths = [centre * 10 + int(value) for value in generator.integers(-30, 31, 400)]
    y = generator.integers(0, 2, 400)
    frame = pd.DataFrame({"x": [tenth / 10 for tenth in tenths], "y": y})
    codebook = Codebook("y", ("0", "1"), (Numeric("x", centre - 4, centre + 4, 0.1),))
    model = NaiveBayes(codebook, var_smoothing=0.0).fit(frame)
    for label in (0, 1):
        mean, variance = rational([Fraction(tenth, 10) for tenth, own in zip(tenths, y, strict=True) if own == label])
        assert model.theta_["x"][label] == float(mean)
        assert model.var_["x"][label] == float(variance)


def test_at_mean_1e8_scikit_learn_is_further_from_the_truth_than_we_are() -> None:
    """Float sums lose the variance at a mean of 1e8; this is why the statistics are integers."""
    generator = np.random.default_rng(1)
    x = 1e8 + np.round(generator.normal(0, 1, 1000), 1)
    _, variance = rational([Fraction(round(value * 10), 10) for value in x])
    ours = NaiveBayes(var_smoothing=0.0).fit(x[:, None], np.zeros(1000, dtype=int)).var_["x0"][0]
    naive = float((x**2).mean() - x.mean() ** 2)
    assert ours == float(variance)
    assert abs(naive - float(variance)) > 0.1


def test_variance_smoothing_is_relative_to_the_largest_variance() -> None:
    X = np.array([[0.0, 10.0], [1.0, 20.0], [2.0, 60.0], [3.0, 10.0]])
    y = [0, 0, 1, 1]
    ours = NaiveBayes(var_smoothing=0.5).fit(X, y)
    largest = X.var(axis=0).max()
    np.testing.assert_allclose(ours.var_["x0"], [0.25 + 0.5 * largest] * 2, rtol=1e-15)


def test_a_variance_floor_replaces_smoothing() -> None:
    codebook = Codebook("y", ("a", "b"), (Numeric("x", 0, 10),), variance_floor=2.0)
    model = NaiveBayes(codebook, var_smoothing=1.0).fit(pd.DataFrame({"x": [1, 1, 0, 10], "y": ["a", "a", "b", "b"]}))
    assert model.var_["x"].tolist() == [2.0, 25.0]


# -- the edges that statistics/parameters.py documents ----------------------------------------------------------------------


def test_a_constant_column_takes_the_variance_of_rounding() -> None:
    codebook = Codebook("y", ("a", "b"), (Numeric("x", 0, 10, 0.5),))
    model = NaiveBayes(codebook).fit(pd.DataFrame({"x": [3.0, 3.0, 3.0], "y": ["a", "a", "b"]}))
    assert model.theta_["x"].tolist() == [3.0, 3.0]
    assert model.var_["x"].tolist() == [0.25 / 12] * 2
    assert model.predict(pd.DataFrame({"x": [3.0, 9.0]})).tolist() == ["a", "a"]


def test_a_class_without_rows_has_probability_zero_and_is_never_predicted() -> None:
    codebook = Codebook("y", ("a", "b", "c"), (Categorical("k", ("u", "v")), Numeric("x", 0, 10, optional=True)))
    frame = pd.DataFrame({"k": ["u", "v", "v"], "x": [1.0, 2.0, None], "y": ["a", "c", "c"]})
    model = NaiveBayes(codebook).fit(frame)
    probabilities = model.predict_proba(pd.DataFrame({"k": ["u", "v", None], "x": [9.0, None, None]}))
    assert (probabilities[:, 1] == 0).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-15)
    np.testing.assert_allclose(probabilities[2], [1 / 3, 0, 2 / 3], rtol=1e-15)
    assert model.class_log_prior_[1] == -math.inf


def test_one_row_makes_a_model() -> None:
    codebook = Codebook("y", ("a", "b"), (Categorical("k", ("u", "v")), Numeric("x", 0, 10)))
    model = NaiveBayes(codebook).fit(pd.DataFrame({"k": ["u"], "x": [4], "y": ["b"]}))
    assert model.predict(pd.DataFrame({"k": ["v"], "x": [9]})).tolist() == ["b"]
    np.testing.assert_allclose(model.feature_log_prob_["k"][1], np.log([2 / 3, 1 / 3]), rtol=1e-15)


def test_a_class_without_a_present_value_takes_mean_and_variance_of_all_classes() -> None:
    codebook = Codebook("y", ("a", "b"), (Numeric("x", 0, 10, optional=True),))
    model = NaiveBayes(codebook, var_smoothing=0).fit(pd.DataFrame({"x": [1.0, 3.0, None], "y": ["a", "a", "b"]}))
    assert model.theta_["x"].tolist() == [2.0, 2.0]
    assert model.var_["x"].tolist() == [1.0, 1.0]


def test_all_missing_leaves_the_prior() -> None:
    codebook = Codebook("y", ("a", "b"), (Categorical("k", ("u", "v"), optional=True), Numeric("x", 0, 10, optional=True)))
    model = NaiveBayes(codebook).fit(pd.DataFrame({"k": [None] * 4, "x": [np.nan] * 4, "y": ["a", "b", "b", "b"]}))
    scores = model.predict_proba(pd.DataFrame({"k": [None, "u"], "x": [None, 7.0]}))
    np.testing.assert_allclose(scores, [[0.25, 0.75]] * 2, rtol=1e-15)


def test_a_missing_value_contributes_nothing_in_training_and_prediction() -> None:
    codebook = Codebook("y", ("a", "b"), (Categorical("k", ("u", "v"), optional=True), Numeric("x", 0, 9, optional=True)))
    frame = pd.DataFrame({"k": ["u", None, "v", "v", "u"], "x": [1.0, 4.0, None, 8.0, 2.0], "y": ["a", "a", "b", "b", "b"]})
    model = NaiveBayes(codebook, var_smoothing=0).fit(frame)
    np.testing.assert_allclose(model.feature_log_prob_["k"], np.log([[2 / 3, 1 / 3], [2 / 5, 3 / 5]]), rtol=1e-15)
    assert model.theta_["x"].tolist() == [2.5, 5.0]
    scores = model.predict_joint_log_proba(pd.DataFrame({"k": [None, "v"], "x": [3.0, None]}))
    alone = model.explain(pd.DataFrame({"k": ["u", "v"], "x": [3.0, 3.0]})).terms
    np.testing.assert_array_equal(scores[0], model.class_log_prior_ + alone[0, 2])
    np.testing.assert_array_equal(scores[1], model.class_log_prior_ + alone[1, 1])


def test_an_unknown_category_counts_as_missing_in_prediction_and_a_number_is_clamped() -> None:
    codebook = Codebook("y", ("a", "b"), (Categorical("k", ("1", "2")), Numeric("x", 0, 10)))
    model = NaiveBayes(codebook).fit(pd.DataFrame({"k": [1, 2, 2], "x": [1, 5, 9], "y": ["a", "b", "b"]}))
    odd = model.predict_joint_log_proba(pd.DataFrame({"k": [3.0, 2.5, 9e99], "x": [50, -7, np.inf]}))
    even = model.predict_joint_log_proba(pd.DataFrame({"k": [None, None, None], "x": [10, 0, 10]}))
    np.testing.assert_array_equal(odd, even)


def test_one_of_three_classes_is_explained_against_the_rest_by_what_each_feature_says_alone() -> None:
    frame = pd.DataFrame({"k": list("uvvuvuuv"), "j": list("aabbabab")})
    labels = np.array([0, 1, 2, 1, 1, 0, 2, 0])
    explanation = NaiveBayes().fit(frame, labels).explain(frame)
    for at, name in enumerate(frame, start=1):
        alone = NaiveBayes().fit(frame[[name]], labels).predict_proba(frame[[name]])[:, 1]
        odds = explanation.log_odds("1")
        np.testing.assert_allclose(odds[:, 0] + odds[:, at], np.log(alone / (1 - alone)), rtol=1e-12)


def test_explanations_add_up_to_the_score() -> None:
    frame = pd.DataFrame({"k": list("uvvuv"), "x": [1, 2, 3, 4, 5]})
    model = NaiveBayes().fit(frame, [0, 1, 0, 1, 1])
    explanation = model.explain(frame)
    assert explanation.parts == ("(prior)", "k", "x")
    np.testing.assert_allclose(explanation.terms.sum(axis=1), model.predict_joint_log_proba(frame), rtol=1e-14)
    odds = explanation.log_odds("1")
    proba = model.predict_proba(frame)
    np.testing.assert_allclose(odds.sum(axis=1), np.log(proba[:, 1] / proba[:, 0]), rtol=1e-10)


# -- metamorphic -------------------------------------------------------------------------------------------------------


def test_scaling_a_numeric_column_by_a_power_of_two_moves_every_class_alike() -> None:
    generator = np.random.default_rng(11)
    X, y = np.round(generator.normal(0, 4, (200, 3)), 2), generator.integers(0, 3, 200)
    plain = NaiveBayes().fit(X, y)
    for factor in (2.0**-40, 2.0**-3, 2.0**20):
        scaled = NaiveBayes().fit(X * factor, y)
        np.testing.assert_allclose(scaled.predict_log_proba(X * factor), plain.predict_log_proba(X), rtol=1e-7, atol=1e-9)


def test_shifting_a_column_and_its_codebook_changes_nothing_but_the_mean() -> None:
    generator = np.random.default_rng(12)
    x, y = generator.integers(0, 50, 300), generator.integers(0, 2, 300)
    here = NaiveBayes(Codebook("y", ("0", "1"), (Numeric("x", 0, 50),))).fit(x[:, None], y)
    there = NaiveBayes(Codebook("y", ("0", "1"), (Numeric("x", 10**9, 10**9 + 50),))).fit(x[:, None] + 10**9, y)
    assert (here.statistics_.vector == there.statistics_.vector).all()
    assert here.var_["x"].tolist() == there.var_["x"].tolist()
    assert (there.theta_["x"] == here.theta_["x"] + 10**9).all()


def test_renaming_classes_permutes_the_columns_only() -> None:
    generator = np.random.default_rng(13)
    frame = pd.DataFrame({"k": generator.integers(0, 4, 200).astype(str), "x": generator.integers(0, 9, 200)})
    y = generator.integers(0, 2, 200)
    one = NaiveBayes().fit(frame, np.where(y, "m", "n")).predict_joint_log_proba(frame)
    two = NaiveBayes().fit(frame, np.where(y, "z", "n")).predict_joint_log_proba(frame)
    np.testing.assert_array_equal(one, two[:, ::-1])


def test_columns_are_found_by_name_in_any_order() -> None:
    generator = np.random.default_rng(14)
    frame = pd.DataFrame(
        {"k": generator.integers(0, 4, 50).astype(str), "x": generator.integers(0, 9, 50), "y": ["p", "q"] * 25}
    )
    codebook = Codebook.from_frame(frame, "y")
    model = NaiveBayes(codebook).fit(frame[["y", "x", "k"]])
    assert model.statistics_ == count(frame, codebook)
    np.testing.assert_array_equal(model.predict_proba(frame[["x", "k"]]), model.predict_proba(frame))
