"""Rows of several parties with counted and Gaussian features, for private_ratio and opened_ratio."""

from __future__ import annotations

import numpy as np

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.statistics import MISSING, CodedRows, Layout, count_block

NAMES = ("first", "north", "south", "last")

MIXED = Codebook(
    "y",
    ("a", "b", "c"),
    (
        Categorical("v", ("0", "1")),
        Numeric("x", 0, 9, bins=3, optional=True),
        Numeric("z", -5, 20, 0.5),
        Numeric("w", 10, 12, 0.25, optional=True),
    ),
    max_rows=4000,
    variance_floor=1e-3,
)


def mixed(names=NAMES, rows=80):
    """Each party's block of rows and its statistics, and those of all; one class has no value of w."""
    rng, low, high = np.random.default_rng(9), MIXED.feature("w").code_low, MIXED.feature("w").code_high
    blocks, own, total = {}, {}, None
    for name in names:
        labels = rng.integers(0, 3, rows)
        z = np.clip(np.rint(rng.normal(-5 + 8 * labels, 6)), MIXED.feature("z").code_low, MIXED.feature("z").code_high)
        w = np.where((rng.random(rows) < 0.1) | (labels == 2), MISSING, rng.integers(low, high + 1, rows))
        columns = {"v": rng.integers(0, 2, rows), "x": rng.integers(-1, 3, rows), "z": z.astype(np.int64), "w": w}
        blocks[name] = CodedRows(labels, columns, rows)
        own[name] = count_block(Layout(MIXED), blocks[name])
        total = own[name] if total is None else total + own[name]
    return blocks, own, total
