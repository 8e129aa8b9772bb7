"""Tables of three sites in which one value is rare."""

from __future__ import annotations

import numpy as np
import pandas as pd

from blindbayes.codebook import Categorical, Codebook, Numeric

BOOK = Codebook("y", ("a", "b"), (Categorical("f", ("u", "v", "w")), Numeric("x", 0, 100)), max_rows=10_000)


def tables(rare: int = 2) -> dict[str, pd.DataFrame]:
    generator = np.random.default_rng(1)
    made = {}
    for name in ("north", "south", "west"):
        f = generator.choice(["u", "v"], 200).astype(object)
        f[:rare] = "w"
        made[name] = pd.DataFrame({"y": generator.choice(["a", "b"], 200), "f": f, "x": generator.integers(0, 100, 200)})
    return made
