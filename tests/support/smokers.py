"""Three sites' rows of smokers and their age, and the model of all of them pooled."""

from __future__ import annotations

import numpy as np
import pandas as pd

from blindbayes import Codebook, NaiveBayes
from blindbayes.codebook import Categorical, Numeric

BOOK = Codebook(
    "ill", ("no", "yes"), (Categorical("smoker", ("no", "yes")), Numeric("age", 0, 99, bins=4, optional=True)), max_rows=5000
)
RNG = np.random.default_rng(45)


def table(rows: int) -> pd.DataFrame:
    ill = RNG.random(rows) < 0.4
    smoker = np.where(RNG.random(rows) < 0.75, ill, ~ill)
    age = np.clip(RNG.normal(40 + 20 * ill, 15, rows), 0, 99).round().astype(object)
    age[RNG.random(rows) < 0.05] = None
    text = np.array(["no", "yes"])
    return pd.DataFrame({"smoker": text[smoker.astype(int)], "age": age, "ill": text[ill.astype(int)]})


TABLES = {"north": table(400), "south": table(300), "west": table(500)}
ALL = pd.concat(TABLES.values(), ignore_index=True)
X = ALL[["smoker", "age"]]
POOLED = NaiveBayes(BOOK).fit(X, ALL["ill"])
