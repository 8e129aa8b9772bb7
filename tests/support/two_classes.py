"""A model of two classes with a category and two numbers, for tests of what is drawn of it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric

BOOK = Codebook(
    "class",
    ("a", "b"),
    (Categorical("colour", ("red", "blue")), Numeric("age", 0, 100, 1, bins=50), Numeric("level", 0, 10, 0.5, bins=4)),
)


def model() -> NaiveBayes:
    rng = np.random.default_rng(5)
    labels = rng.choice(["a", "b"], 400)
    columns = {
        "colour": np.where(rng.random(400) < np.where(labels == "a", 0.8, 0.3), "red", "blue"),
        "age": np.clip(np.rint(rng.normal(np.where(labels == "a", 30, 60), 15)), 0, 100),
        "level": rng.integers(0, 21, 400) / 2,
    }
    return NaiveBayes(BOOK).fit(pa.table(columns), labels)
