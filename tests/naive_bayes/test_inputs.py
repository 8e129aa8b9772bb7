"""Arrays and frames are read in blocks: no copy of the table, and nothing depends on where a block ends."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric
from blindbayes.crypto import kernels

ROWS, COLUMNS = 100_000, 10
NAMES = [f"x{at}" for at in range(COLUMNS)]
LABELS = ("0", "1", "2")
WORDS = np.array(["low", "middle", "high"])


def numbers(rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    labels = generator.integers(0, 3, rows)
    return np.clip(generator.normal(labels[:, None], 2, (rows, COLUMNS)), -20, 20).round(2), labels


NUMERIC = Codebook("class", LABELS, tuple(Numeric(name, -20, 20, 0.01) for name in NAMES))
LISTED = Codebook("class", LABELS, tuple(Categorical(name, tuple(WORDS.tolist())) for name in NAMES))


def peak(work: Callable[[], Any]) -> int:
    """Bytes that were allocated at once while `work` ran, in a process of one thread.

    Threads of other tests (Spark, joblib) may end meanwhile, and `tracemalloc` of Python 3.11 may crash beside them.
    """
    work()
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            tracemalloc.start()
            work()
            os.write(writing, str(tracemalloc.get_traced_memory()[1]).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as found:
        size = found.read()
    os.waitpid(child, 0)
    return int(size)


@pytest.mark.parametrize("frame", [False, True], ids=["array", "frame"])
def test_fit_and_predict_copy_no_table(frame: bool) -> None:
    values, labels = numbers()
    table = pd.DataFrame(values, columns=NAMES) if frame else values
    model = NaiveBayes(NUMERIC).fit(table, labels)
    assert peak(lambda: NaiveBayes(NUMERIC).fit(table, labels)) < values.nbytes / 2
    assert peak(lambda: model.predict(table)) < values.nbytes / 2


@pytest.mark.parametrize("back", ["off", *kernels.available()[-1:]])
def test_block_ends_change_nothing(back: str) -> None:
    values, labels = numbers(40_000)
    with kernels.using(back):
        whole = NaiveBayes(NUMERIC).fit(values, labels)
        parts = NaiveBayes(NUMERIC)
        for part in np.array_split(np.arange(len(labels)), 7):
            parts.partial_fit(values[part], labels[part])
        assert whole.statistics_ == parts.statistics_
        one_by_one = np.concatenate([whole.predict_joint_log_proba(part) for part in np.array_split(values, 11)])
        assert np.array_equal(whole.predict_joint_log_proba(values), one_by_one)
        assert np.array_equal(whole.predict(values), whole.classes_[one_by_one.argmax(axis=1)])


def test_texts_and_categories_of_pandas_are_the_same_table() -> None:
    generator = np.random.default_rng(4)
    texts = pd.DataFrame(WORDS[generator.integers(0, 3, (30_000, COLUMNS))], columns=NAMES)
    labels = pd.Series(np.array(LABELS)[generator.integers(0, 3, len(texts))])
    wide = texts.astype(pd.CategoricalDtype(["never", *reversed(WORDS.tolist())]))  # unused and in another order
    models = [NaiveBayes(LISTED).fit(X, y) for X in (texts, wide) for y in (labels, labels.astype("category"), labels.tolist())]
    assert all(model.statistics_ == models[0].statistics_ for model in models)
    assert np.array_equal(models[0].predict(texts), models[0].predict(wide))


def test_a_tie_goes_to_the_first_class_however_many_there_are() -> None:
    for count in (2, 16, 17, 40):
        book = Codebook("class", tuple(str(at) for at in range(count)), (Categorical("k", ("a", "b")),))
        frame = pd.DataFrame({"k": ["a", "b"] * count})
        model = NaiveBayes(book).fit(frame, np.repeat(np.arange(count), 2))
        assert set(model.predict(frame)) == {0}
