"""Frames of every type are read alike."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric
from blindbayes.data import count

SMALL = Codebook("y", ("a", "b"), (Categorical("k", ("u", "v"), optional=True), Numeric("x", 0, 9, optional=True)))


K, X, Y = ["u", "v", None, "v"], [1, None, 3, 4], list("abba")


FRAMES = {
    "index": lambda: pd.DataFrame({"k": K, "x": X, "y": Y}, index=[9, 4, 4, 0]),
    "multi-index": lambda: pd.DataFrame(
        {"k": K, "x": X, "y": Y}, index=pd.MultiIndex.from_tuples([(0, 1), (0, 2), (1, 1), (1, 2)], names=["p", None])
    ),
    "categories": lambda: pd.DataFrame({"k": pd.Categorical(K), "x": pd.array(X, "Int8"), "y": pd.Categorical(Y)}),
    "pandas strings": lambda: pd.DataFrame({"k": ["u", "v", "", "v"], "x": ["1", "", "3.0", " 4"], "y": Y}, dtype="string"),
    "objects": lambda: pd.DataFrame({"k": K, "x": [1, None, "3", Decimal("4.0")], "y": Y}, dtype=object),
    "NA objects": lambda: pd.DataFrame({"k": ["u", "v", pd.NA, "v"], "x": [1, pd.NA, "3", 4.0], "y": Y}, dtype=object),
    "half floats": lambda: pd.DataFrame({"k": K, "x": np.array([1, np.nan, 3, 4], np.float16), "y": Y}),
    "polars categories": lambda: pl.DataFrame(
        {"k": pl.Series(K, dtype=pl.Categorical), "x": X, "y": pl.Series(Y, dtype=pl.Enum(["b", "a"]))}
    ),
    "uint64": lambda: pl.DataFrame({"k": K, "x": pl.Series(X, dtype=pl.UInt64), "y": Y}),
    "large strings": lambda: pa.table(
        {"k": pa.array(K, pa.large_string()), "x": pa.array(X, pa.uint8()), "y": pa.array(Y).dictionary_encode()}
    ),
    "string views": lambda: pa.table({"k": pa.array(K, pa.string_view()), "x": X, "y": pa.array(Y, pa.string_view())}),
    "chunks": lambda: pa.table({"k": pa.chunked_array([K[:1], K[1:]]), "x": pa.chunked_array([X[:3], X[3:]]), "y": Y}),
    "record batch": lambda: pa.RecordBatch.from_pydict({"k": K, "x": X, "y": Y}),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMES)
def test_frames_of_every_dtype_are_read_alike(name: str) -> None:
    frame = FRAMES[name]()
    expected = {"class_counts": [2, 2], "counts": {"k": [[1, 1], [0, 1]]}, "n": {"x": [2, 1]}}
    for found in (count(frame, SMALL), NaiveBayes(SMALL).fit(frame).statistics_):
        named = found.by_name()
        assert {key: named[key] for key in expected} == expected
        assert [int(total) + 4 * int(n) for total, n in zip(named["sums"]["x"], named["n"]["x"], strict=True)] == [5, 3]
