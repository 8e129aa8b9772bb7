"""scikit-learn's own checks, and the tools people put an estimator into."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric, load
from blindbayes.errors import ConfigError, DataError

EXPECTED_FAILURES: dict[str, str] = {}
"""Checks that need not hold, each with its reason. None is needed."""

SKIPPED = {"check_array_api_input"}
"""Array API inputs are checked by scikit-learn only where SCIPY_ARRAY_API is set."""


def test_scikit_learns_estimator_checks_pass() -> None:
    results = check_estimator(NaiveBayes(), expected_failed_checks=EXPECTED_FAILURES, on_skip=None, on_fail=None)
    assert [(result["check_name"], str(result["exception"])) for result in results if result["status"] == "failed"] == []
    assert {result["check_name"] for result in results if result["status"] == "skipped"} <= SKIPPED
    assert sum(result["status"] == "passed" for result in results) > 40


def mixed(rows: int = 120) -> tuple[pd.DataFrame, np.ndarray]:
    generator = np.random.default_rng(8)
    y = generator.integers(0, 2, rows)
    frame = pd.DataFrame(
        {"k": np.where(generator.random(rows) < 0.2 + 0.6 * y, "u", "v"), "x": np.round(generator.normal(y, 1), 1)}
    )
    return frame, y


def same(one: NaiveBayes, two: NaiveBayes, frame: Any) -> None:
    assert one.predict_joint_log_proba(frame).tobytes() == two.predict_joint_log_proba(frame).tobytes()
    assert one.predict(frame).tolist() == two.predict(frame).tolist()
    assert one.predict(frame).dtype == two.predict(frame).dtype


CODEBOOK = Codebook("y", ("0", "1"), (Categorical("k", ("u", "v")), Numeric("x", -9, 9, 0.1)))


def test_clone_keeps_the_parameters_and_forgets_the_fit() -> None:
    frame, y = mixed()
    model = NaiveBayes(CODEBOOK, alpha=0.5, var_smoothing=1e-3).fit(frame, y)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(frame)
    same(copy.fit(frame, y), model, frame)


def test_parameters_are_got_and_set() -> None:
    model = NaiveBayes()
    assert set(model.get_params()) == {
        "codebook",
        "alpha",
        "var_smoothing",
        "numeric",
        "priors",
        "class_weight",
        "extra_columns",
    }
    assert model.set_params(alpha=2.0).alpha == 2.0
    with pytest.raises(ValueError, match="Invalid parameter"):
        model.set_params(smoothing=1)


def test_pipelines_cross_validation_and_grid_search_work() -> None:
    frame, y = mixed()
    numbers = frame[["x"]]
    assert make_pipeline(StandardScaler(), NaiveBayes()).fit(numbers, y).score(numbers, y) > 0.6
    assert cross_val_score(NaiveBayes(CODEBOOK), frame, y, cv=4).mean() > 0.6
    search = GridSearchCV(NaiveBayes(CODEBOOK), {"alpha": [0.1, 1.0, 1000.0]}, cv=3, n_jobs=2).fit(frame, y)
    assert search.best_params_["alpha"] in {0.1, 1.0}
    same(search.best_estimator_, NaiveBayes(CODEBOOK, alpha=search.best_params_["alpha"]).fit(frame, y), frame)


def test_joblib_round_trips(tmp_path: Path) -> None:
    frame, y = mixed()
    for model in (NaiveBayes(CODEBOOK, alpha=0.3), NaiveBayes()):
        model.fit(frame, np.where(y, "yes", "no") if model.codebook is None else y)
        joblib.dump(model, tmp_path / "model.joblib")
        back = joblib.load(tmp_path / "model.joblib")
        same(back, model, frame)
        assert back.get_params() == model.get_params()
        assert back.statistics_ == model.statistics_
    buffer = io.BytesIO()
    joblib.dump(NaiveBayes(CODEBOOK), buffer)
    buffer.seek(0)
    with pytest.raises(NotFittedError):
        joblib.load(buffer).predict(frame)


def test_skops_round_trips_and_trusts_one_class_only() -> None:
    sio = pytest.importorskip("skops.io", reason="the skops extra is not installed")
    frame, y = mixed()
    model = NaiveBayes(CODEBOOK).fit(frame, y)
    blob = sio.dumps(model)
    assert sio.get_untrusted_types(data=blob) == ["blindbayes.naive_bayes.estimator.NaiveBayes"]
    same(sio.loads(blob, trusted=["blindbayes.naive_bayes.estimator.NaiveBayes"]), model, frame)


LABELS = {
    "text": (["yes", "no"], "U"),
    "integers": ([3, -10], "i"),
    "truth values": ([True, False], "b"),
    "floats": ([1.0, 2.0], "f"),
    "object integers": (np.array([5, 7], dtype=object), "i"),
    "object truth values": (np.array([True, False], dtype=object), "b"),
    "digits": (["10", "9"], "U"),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_keep_their_type_through_fit_file_and_copy(kind: str, tmp_path: Path) -> None:
    labels, dtype = LABELS[kind]
    frame, y = mixed(30)
    given = np.asarray(labels)[y]
    model = NaiveBayes().fit(frame, given)
    assert model.predict(frame).dtype.kind == dtype
    assert set(model.predict(frame).tolist()) <= set(np.asarray(labels).tolist())
    assert model.classes_.tolist() == sorted(np.asarray(labels).tolist())
    assert model.score(frame, given.tolist()) > 0.5
    model.save(tmp_path / "model.json")
    same(load(tmp_path / "model.json"), model, frame)


@pytest.mark.parametrize(
    "wrap", [np.asarray, list, pd.Series, lambda y: pd.Series(y, dtype="Int64"), lambda y: pd.Series(y, dtype="category"),
             pl.Series, pa.array, lambda y: pa.chunked_array([y[:9], y[9:]]), lambda y: np.asarray(y)[:, None]],
    ids=["array", "list", "Series", "Int64", "category", "polars", "arrow", "chunked", "column vector"],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:A column-vector y was passed")
def test_labels_come_in_many_containers(wrap: Any) -> None:
    frame, y = mixed(30)
    model = NaiveBayes(CODEBOOK).fit(frame, wrap(y.tolist()))
    assert model.predict(frame).tolist() == NaiveBayes(CODEBOOK).fit(frame, y).predict(frame).tolist()
    assert model.predict(frame).dtype.kind == "i"


def test_text_labels_of_an_integer_codebook_stay_text() -> None:
    frame, y = mixed(30)
    model = NaiveBayes(CODEBOOK).fit(frame, y.astype(str))
    assert model.classes_.tolist() == ["0", "1"]
    assert model.statistics_ == NaiveBayes(CODEBOOK).fit(frame, y).statistics_


@pytest.mark.parametrize("labels", [[None, "a"], [np.nan, "a"], [pd.NA, "a"], [np.nan, 1.0]])
def test_a_missing_label_is_an_error(labels: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"label|NaN"):
        NaiveBayes().fit([[1], [2]], np.array(labels, dtype=object))


@pytest.mark.parametrize(
    "labels",
    [np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]"), np.array([2**63 + 5, 1], dtype=np.uint64), [0.5, 1.25],
     np.array([10**30, 1], dtype=object), [1e300, 2e300], np.array([b"a", b"b"]), np.array([{}, {}], dtype=object)],
)  # fmt: skip
def test_labels_of_odd_types_are_refused(labels: Any) -> None:
    model = NaiveBayes()
    with pytest.raises((ValueError, TypeError)):
        model.fit([[1], [2]], labels)
    with pytest.raises(NotFittedError):
        model.predict([[1]])


def test_partial_fit_without_a_codebook_needs_all_classes_first() -> None:
    frame, y = mixed(40)
    with pytest.raises(ConfigError, match="classes"):
        NaiveBayes().partial_fit(frame, y)
    model = NaiveBayes().partial_fit(frame[:20], y[:20], classes=[1, 0])
    model.partial_fit(frame[20:], y[20:], classes=[1, 0])
    assert model.class_count_.tolist() == np.bincount(y).astype(float).tolist()
    with pytest.raises(ConfigError, match="classes differ"):
        model.partial_fit(frame, y, classes=[0, 1, 2])


def test_a_loaded_model_takes_more_batches(tmp_path: Path) -> None:
    frame, y = mixed(40)
    NaiveBayes(CODEBOOK).fit(frame[:20], y[:20]).save(tmp_path / "m.json")
    grown = load(tmp_path / "m.json").partial_fit(frame[20:], y[20:])
    same(grown, NaiveBayes(CODEBOOK).fit(frame, y), frame)


def test_a_codebook_that_changes_between_batches_is_refused() -> None:
    frame, y = mixed(10)
    model = NaiveBayes(CODEBOOK).partial_fit(frame, y)
    model.set_params(codebook=Codebook("y", ("0", "1"), (Categorical("k", ("u", "v")), Numeric("x", -99, 99, 0.1))))
    with pytest.raises(ConfigError, match="changed between batches"):
        model.partial_fit(frame, y)


def test_a_failed_fit_leaves_the_estimator_unfitted() -> None:
    frame, y = mixed(10)
    model = NaiveBayes(CODEBOOK).fit(frame, y)
    bad = frame.assign(x=1000.0)
    with pytest.raises(DataError, match="out of bounds"):
        model.fit(bad, y)
    assert [name for name in vars(model) if name.endswith("_")] == []
    with pytest.raises(NotFittedError):
        model.predict(frame)
    for broken in (NaiveBayes(CODEBOOK, alpha=0), NaiveBayes(CODEBOOK, var_smoothing=-1), NaiveBayes("codebook.toml")):
        with pytest.raises(ConfigError):
            broken.fit(frame, y)
        assert [name for name in vars(broken) if name.endswith("_")] == []


def test_a_failed_batch_changes_nothing() -> None:
    frame, y = mixed(10)
    model = NaiveBayes(CODEBOOK)
    with pytest.raises(DataError):
        model.partial_fit(frame.assign(x=1000.0), y)
    assert [name for name in vars(model) if name.endswith("_")] == []
    model.partial_fit(frame, y)
    before = model.predict_joint_log_proba(frame).tobytes()
    with pytest.raises(DataError):
        model.partial_fit(frame.assign(k="w"), y)
    assert model.predict_joint_log_proba(frame).tobytes() == before


def test_a_frame_may_hold_a_column_named_class_beside_y() -> None:
    frame = pd.DataFrame({"class": [1, 2, 3, 4], "Class_": [1, 2, 3, 4]})
    model = NaiveBayes().fit(frame, [0, 0, 1, 1])
    assert model.predict(frame).tolist() == [0, 0, 1, 1]
    with pytest.raises(DataError, match="stands in X, and y was passed too"):
        NaiveBayes(CODEBOOK).fit(mixed()[0].assign(y=0), mixed()[1])


def test_the_fit_takes_frames_arrays_paths_and_tables_alike(tmp_path: Path) -> None:
    frame, y = mixed()
    whole = frame.assign(y=y)
    path = tmp_path / "rows.csv"
    whole.to_csv(path, index=False)
    expected = NaiveBayes(CODEBOOK).fit(frame, y).statistics_
    for found in (
        NaiveBayes(CODEBOOK).fit(whole),
        NaiveBayes(CODEBOOK).fit(pl.from_pandas(whole)),
        NaiveBayes(CODEBOOK).fit(pa.Table.from_pandas(whole)),
        NaiveBayes(CODEBOOK).fit(frame.to_numpy(dtype=object), y),
        NaiveBayes(CODEBOOK).fit(path),
        NaiveBayes(CODEBOOK).fit(str(path)),
    ):
        assert found.statistics_ == expected
    with pytest.raises(ConfigError, match="leave y"):
        NaiveBayes(CODEBOOK).fit(path, y)
    with pytest.raises(ConfigError, match="needs a codebook"):
        NaiveBayes().fit(path)
