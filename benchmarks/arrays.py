"""Fit and predict on arrays and frames in memory, beside scikit-learn, by CPU time in one process.

    python benchmarks/arrays.py              # 1,000,000 and 50,000 rows x 10 columns
    python benchmarks/arrays.py --quick      # 20,000 rows

Each ratio is scikit-learn's CPU time over ours, the minimum of alternating rounds: above 1 we are faster. Numbers are normal
with two decimals, or as fine as a double (`full`); `declared` has a codebook, `inferred` finds one in the rows.
A frame holds text categories; scikit-learn's side encodes them by its OrdinalEncoder, since CategoricalNB takes only codes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from _measured import Options
from sklearn.naive_bayes import CategoricalNB, GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric

COLUMNS, VALUES = 10, 8
LABELS = ("0", "1", "2")
NAMES = [f"x{at}" for at in range(COLUMNS)]


def cases(rows: int) -> dict[str, tuple[Any, Any, Callable[[], Any], Callable[[], Any]]]:
    """X, y, our estimator and scikit-learn's, by name."""
    generator = np.random.default_rng(7)
    y = generator.integers(0, len(LABELS), rows)
    full = np.clip(generator.normal(0.7 * y[:, None], 1.5, (rows, COLUMNS)), -20, 20)
    rounded = full.round(2)
    codes = (generator.integers(0, VALUES, (rows, COLUMNS)) + (generator.random((rows, COLUMNS)) < 0.3) * y[:, None]) % VALUES
    words = np.array([f"value {at}" for at in range(VALUES)])
    texts = pd.DataFrame(words[codes], columns=NAMES)
    numbers = Codebook("class", LABELS, tuple(Numeric(name, -20, 20, 0.01) for name in NAMES), max_rows=10**8)
    whole = Codebook("class", LABELS, tuple(Categorical(name, tuple(map(str, range(VALUES)))) for name in NAMES))
    listed = Codebook("class", LABELS, tuple(Categorical(name, tuple(words.tolist())) for name in NAMES))
    encoded = lambda: make_pipeline(OrdinalEncoder(), CategoricalNB())  # noqa: E731
    return {
        "gaussian array, declared": (rounded, y, lambda: NaiveBayes(numbers), GaussianNB),
        "gaussian array, inferred": (rounded, y, NaiveBayes, GaussianNB),
        "gaussian array, full, inferred": (full, y, NaiveBayes, GaussianNB),
        "gaussian frame, declared": (pd.DataFrame(rounded, columns=NAMES), y, lambda: NaiveBayes(numbers), GaussianNB),
        "categorical array": (codes, y, lambda: NaiveBayes(whole), CategoricalNB),
        "categorical frame": (texts, y, lambda: NaiveBayes(listed), encoded),
        "categorical frame, pandas categories": (texts.astype("category"), y, lambda: NaiveBayes(listed), encoded),
    }


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    before = time.process_time()
    made = work()
    return time.process_time() - before, made


def measured(X: Any, y: Any, ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int) -> dict[str, tuple[float, float]]:
    """CPU seconds of ours and scikit-learn's, fit and predict, minimum of the rounds."""
    best: dict[str, list[float]] = {"fit": [1e9, 1e9], "predict": [1e9, 1e9]}
    for _ in range(rounds):
        for at, make in enumerate((ours, theirs)):
            spent, model = cpu(lambda make=make: make().fit(X, y))  # type: ignore[misc]
            best["fit"][at] = min(best["fit"][at], spent)
            spent, _ = cpu(lambda model=model: model.predict(X))  # type: ignore[misc]
            best["predict"][at] = min(best["predict"][at], spent)
    return {what: (mine, peer) for what, (mine, peer) in best.items()}


def main() -> None:
    parser = Options(__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 50_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--quick", action="store_true", help="20,000 rows, one round")
    given = parser.parse_args()
    for rows in [20_000] if given.quick else given.rows:
        for name, case in cases(rows).items():
            if given.only not in name:
                continue
            spent = measured(*case, rounds=1 if given.quick else given.rounds)
            parts = [f"{what} {mine:.3f} s, ratio {peer / mine:.2f}" for what, (mine, peer) in spent.items()]
            print(f"{rows:>9,} rows, {name:<37} {'; '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()
