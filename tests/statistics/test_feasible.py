"""Statistics that no table has are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes import Codebook, DataError, NaiveBayes, Text
from blindbayes.statistics import Layout, Statistics
from blindbayes.statistics.feasible import require_feasible

WORDS = ("free", "offer", "meeting", "minutes", "win", "café", "the")


MAILS = [
    "Free offer! FREE win, the offer",
    "The minutes of the meeting",
    "meeting at the café",
    "win win win",
    "minutes, minutes; the unknown words do not count",
    "!!!",
]


LABELS = ["spam", "ham", "ham", "spam", "ham", "ham"]


def book(model: str = "multinomial", words: Any = WORDS, classes: tuple[str, ...] = ("ham", "spam"), **more: Any) -> Codebook:
    return Codebook("class", classes, (Text("body", tuple(words), model=model, **more),), max_rows=10**6)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda table: table.__setitem__((0, 0), -1), "does not fit the documents"),
        (lambda table: table.__setitem__((0, 0), 99), "does not fit the documents"),
    ],
)
def test_statistics_that_no_documents_have_are_refused(change: Any, rule: str) -> None:
    model = NaiveBayes(book("bernoulli")).fit(pd.DataFrame({"body": MAILS, "class": LABELS}))
    vector = model.statistics_.vector.copy()
    change(vector[2:].reshape(2, 7))
    with pytest.raises(DataError, match=rule):
        require_feasible(Statistics(Layout(book("bernoulli")), vector))
    require_feasible(model.statistics_)


def test_more_words_than_documents_can_have_are_refused() -> None:
    codebook = book(max_words=3)
    vector = np.zeros(Layout(codebook).size, dtype=np.int64)
    vector[0], vector[2:5] = 1, (2, 1, 1)
    with pytest.raises(DataError, match="more words than"):
        require_feasible(Statistics(Layout(codebook), vector))
