"""Two companies and the people that they have in common: for studies whose rows are matched by an identifier."""

from __future__ import annotations

import numpy as np
import pandas as pd

from blindbayes.codebook import Categorical, Codebook, Numeric

BOOK = Codebook(
    "class",
    ("bad", "good"),
    (
        Categorical("sector", ("a", "b")),
        Numeric("income", 0, 100),
        Categorical("plan", ("s", "m", "l")),
        Numeric("minutes", 0, 200),
    ),
    max_rows=100_000,
    variance_floor=0.25,
)
HOLDS = {"bank": ("sector", "income"), "telecom": ("plan", "minutes")}


def people(count: int = 60, seed: int = 1) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, count)
    return pd.DataFrame(
        {
            "id": [f"person-{at:04}" for at in range(count)],
            "sector": np.array(["a", "b"])[(rng.random(count) < 0.3 + 0.4 * label).astype(int)],
            "income": np.clip(np.rint(rng.normal(40 + 15 * label, 10)), 0, 100),
            "plan": np.array(["s", "m", "l"])[(rng.integers(0, 2, count) + label) % 3],
            "minutes": np.clip(np.rint(rng.normal(80 + 30 * label, 20)), 0, 200),
            "class": np.array(["bad", "good"])[label],
        }
    )


def tables(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """The bank has the first 45 people, the telecom the last 40 in another order: 25 in common."""
    bank = frame[:45][["id", "sector", "income", "class"]]
    return {"bank": bank, "telecom": frame[20:][["id", "plan", "minutes"]].sample(frac=1, random_state=3)}
