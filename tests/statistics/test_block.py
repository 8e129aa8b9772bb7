"""Counts of a block of coded rows: exact whatever its length and codes."""

from __future__ import annotations

import numpy as np

from blindbayes import Categorical, Codebook, Numeric
from blindbayes.statistics import CodedRows, Layout, count_block


def test_blocks_longer_than_one_stride_are_added_whole() -> None:
    codebook = Codebook("y", ("a", "b"), (Numeric("x", -(2.0**45), 2.0**45), Categorical("k", ("0", "1"))), max_rows=2**20)
    rows = (1 << 16) + 77
    generator = np.random.default_rng(2)
    codes = generator.integers(-(2**45), 2**45, rows)
    labels = generator.integers(0, 2, rows)
    statistics = count_block(Layout(codebook), CodedRows(labels, {"x": codes, "k": labels}, rows))
    for label in (0, 1):
        chosen = [int(code) for code in codes[labels == label]]
        assert int(statistics.sums["x"][label]) == sum(chosen)
        assert int(statistics.squares["x"][label]) == sum(code * code for code in chosen)
        assert statistics.counts["k"][label].tolist() == [len(chosen) * (label == 0), len(chosen) * (label == 1)]


def test_the_extreme_codes_square_exactly() -> None:
    codebook = Codebook("y", ("a",), (Numeric("x", -(2.0**46), 2.0**46),), max_rows=2**20)
    rows = 1 << 16
    for code in (-(2**46), 2**46, 2**46 - 1):
        statistics = count_block(
            Layout(codebook), CodedRows(np.zeros(rows, dtype=np.int64), {"x": np.full(rows, code, dtype=np.int64)}, rows)
        )
        assert int(statistics.sums["x"][0]) == code * rows
        assert int(statistics.squares["x"][0]) == code * code * rows
