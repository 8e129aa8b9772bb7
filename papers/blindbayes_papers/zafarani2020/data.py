"""The tables of Zafarani and Clifton's experiment as integer codes, and a synthetic census where theirs cannot be had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.data import encode
from blindbayes.statistics import CodedRows
from blindbayes_papers.datasets import load_dataset
from blindbayes_papers.declared import DECLARED
from blindbayes_papers.zafarani2020.methods import Table

Codes = npt.NDArray[np.int64]
STATES = {"Wyoming": 250_000, "Nevada": 110_000, "Oregon": 1_000_000, "Washington": 1_700_000}
"""Rows of the paper's census extracts (its Table 1)."""


@dataclass(frozen=True)
class Rows:
    """A table with its declared codebook: values for estimators, and codes for the simulated methods."""

    name: str
    codebook: Codebook
    frame: pa.Table  # features and class, as a user has them
    block: CodedRows

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.block.rows

    def table(self) -> Table:
        """Return the rows as the simulated methods take them."""
        return Table.from_block(self.codebook, self.block)


def load_rows(name: str) -> Rows:
    """A dataset by name, read with the codebook declared for it; numbers outside the bounds are held to them."""
    codebook = DECLARED[name]
    table = _wdbc() if name == "wdbc" else load_dataset(name)
    columns: dict[str, Any] = {}
    for feature in codebook.features:
        column = table.column(feature.name)
        if isinstance(feature, Numeric):
            texts = column.to_pylist()
            numbers = np.array([np.nan if text in ("?", "", None) else float(text) for text in texts])
            column = pa.array(np.clip(numbers, feature.low, feature.high), from_pandas=True)
        columns[feature.name] = column
    labels = table.column(codebook.target)
    block = encode(columns, codebook, training=True, labels=labels)
    return Rows(name, codebook, pa.table({**columns, codebook.target: labels}), block)


def _wdbc() -> pa.Table:
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    columns = {name: pa.array(bunch.data[:, at]) for at, name in enumerate(bunch.feature_names)}
    return pa.table({**columns, "class": pa.array([str(label) for label in bunch.target])})


# -- the synthetic census ------------------------------------------------------------------------------------------------

CENSUS = Codebook(
    "income",
    ("below mean", "above mean"),
    (
        Numeric("age", 14, 100, 1),
        Categorical("workclass", ("private", "own account", "employer", "public", "emergency", "unpaid", "seeking", "none")),
        Numeric("schooling", 0, 20, 1),
        Categorical("marital", ("married", "single", "widowed", "divorced", "separated", "absent")),
        Categorical("occupation", tuple(f"group {at}" for at in range(14))),
        Categorical("relationship", ("head", "spouse", "child", "parent", "other kin", "lodger")),
        Categorical("race", tuple(f"race {at}" for at in range(5))),
        Categorical("sex", ("female", "male")),
        Categorical("birthplace", tuple(f"place {at}" for at in range(20))),
        Numeric("hours", 0, 100, 1),
        Numeric("weeks", 0, 52, 1),
        Categorical("household", ("1", "2", "3-4", "5-6", "7+")),
        Categorical("area", ("farm", "rural", "urban")),
    ),
    max_rows=100_000_000,
)


def synthetic_census(state: str, rows: int | None = None) -> Rows:
    """Thirteen attributes of a person and whether the income is above the mean. Not the 1940 census: a stand-in of its size.

    A person has a latent standing u, normal about 0 or, for incomes above the mean, about 1.6; every attribute follows u with
    noise of its own, so attributes depend on each other within a class and Naive Bayes is wrong here as it is on real tables.
    """
    count = STATES[state] if rows is None else rows
    seed = 1940 + list(STATES).index(state)
    generator = np.random.default_rng(seed)
    labels = (generator.random(count) < 0.36 + 0.02 * (seed % 4)).astype(np.int64)
    standing = generator.normal(1.6 * labels, 0.8)
    numbers: dict[str, Callable[[], npt.NDArray[np.float64]]] = {
        "age": lambda: 36 + 4 * standing + generator.gamma(2.0, 6.0, count) - 6,
        "schooling": lambda: np.round(generator.normal(8.5 + 1.5 * standing, 2.5)),
        "hours": lambda: np.where(
            generator.random(count) < 0.55, 40 + 8 * (generator.random(count) < 0.3), 38 + 8 * generator.normal(size=count)
        ),
        "weeks": lambda: np.where(
            generator.random(count) < 0.35 + 0.15 * np.tanh(standing), 52, 52 * generator.beta(2, 1.2, count)
        ),
    }
    groups = np.clip(((standing + 3) * 5).astype(np.int64), 0, 34)
    columns: dict[str, Codes] = {}
    for feature in CENSUS.features:
        if isinstance(feature, Numeric):
            grid = np.floor(np.clip(numbers[feature.name](), feature.low, feature.high) * feature.scale + 0.5)
            columns[feature.name] = grid.astype(np.int64) - feature.centre
        else:
            base, slope = generator.gamma(0.7, size=feature.size), 0.5 * generator.normal(size=feature.size)
            weights = base * np.exp(np.outer((np.arange(35) - 15) / 5, slope))
            edges = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
            flat = (np.arange(35)[:, None] + edges).ravel()  # one table of steps for all groups: a single search
            codes = np.searchsorted(flat, groups + generator.random(count)) - groups * feature.size
            columns[feature.name] = np.clip(codes, 0, feature.size - 1)
    values: dict[str, Any] = {}
    for feature in CENSUS.features:
        codes = columns[feature.name]
        if isinstance(feature, Numeric):
            values[feature.name] = (codes + feature.centre) / feature.scale
        elif isinstance(feature, Categorical):
            values[feature.name] = np.array(feature.values)[codes]
    frame = pa.table({**values, CENSUS.target: np.array(CENSUS.classes)[labels]})
    return Rows(f"synthetic census, {state}", CENSUS, frame, CodedRows(labels, columns, count))
