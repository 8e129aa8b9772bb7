"""Tables that every reader must count alike, and their truth: row by row in plain Python, by the rules of codebook.py."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from blindbayes import Categorical, Codebook, Numeric
from blindbayes.statistics import Layout, Statistics


def plain(value: Any) -> str | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float | Decimal):
        assert value == int(value)
        return str(int(value))
    return str(value)


def truth(table: pa.Table, codebook: Codebook) -> Statistics:
    """Row by row, in Python integers."""
    layout = Layout(codebook)
    vector = np.zeros(layout.size, dtype=object)
    where = {cell: at for at, cell in enumerate(layout.cells)}
    cells = {(cell.kind, cell.label, cell.feature, cell.value): at for cell, at in where.items()}
    for row in table.to_pylist():
        label = plain(row[codebook.target])
        vector[cells["class_count", label, None, None]] += 1
        for feature in codebook.features:
            value = plain(row[feature.name]) if isinstance(feature, Categorical) or isinstance(row[feature.name], str) else None
            if value is not None and value in codebook.markers(feature):
                continue
            if isinstance(feature, Categorical):
                if value is not None:
                    vector[cells["count", label, feature.name, value]] += 1
                continue
            number = row[feature.name]
            if number is None or math.isnan(float(number)) or float(number) in {float(m) for m in feature.missing if m != "?"}:
                continue
            code = math.floor(float(number) * feature.scale + 0.5) - feature.centre
            if feature.bins is not None:
                vector[cells["count", label, feature.name, str(feature.bin_of(code))]] += 1
                continue
            if feature.optional:
                vector[cells["n", label, feature.name, None]] += 1
            vector[cells["sum", label, feature.name, None]] += code
            vector[cells["square", label, feature.name, None]] += code * code
    return Statistics(layout, vector)


def mixed_table() -> tuple[pa.Table, Codebook]:
    """Halves, negatives, nulls, NaN, markers, truth values, whole numbers as categories, wide sums, bins."""
    rows = 60
    generator = np.random.default_rng(20)
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999999999999994, -0.0, 1.005, 2.675])
    codebook = Codebook(
        "outcome",
        ("no", "yes"),
        (
            Categorical("text", ("plain", "with, comma", 'with "quote"', "'single'", "#hash", "x y ", "é", "NA")),
            Categorical("whole", ("-1", "0", "7", "10")),
            Categorical("truth", ("true", "false"), optional=True),
            Categorical("sparse", ("1", "2"), optional=True),
            Numeric("half", -10, 10),
            Numeric("fine", -10, 10, 0.01, optional=True),
            Numeric("coarse", -500, 500, 10),
            Numeric("binned", -10, 10, 0.5, bins=7, optional=True),
            Numeric("marked", 0, 100, optional=True, missing=("-9", "999")),
            Numeric("spelled", -1000, 1000, 0.001, optional=True, missing=("?",)),
            Numeric("huge", -(2.0**45), 2.0**45),
        ),
        max_rows=10**6,
    )
    number = generator.choice(halves, rows)
    texts = ["+5", "-.5", "1.", " 12.25 ", "1e2", "-1E+2", "?", "", None, "0.0005", "-0.0015", "007"]
    table = pa.table(
        {
            "outcome": generator.choice(["no", "yes"], rows),
            "text": pa.array(generator.choice(np.array(codebook.features[0].values, dtype=object), rows), pa.string()),
            "whole": pa.array(generator.choice([-1, 0, 7, 10], rows), pa.int64()),
            "truth": pa.array(generator.choice(np.array([True, False, None], dtype=object), rows), pa.bool_()),
            "sparse": pa.array(generator.choice(np.array([1.0, 2.0, None], dtype=object), rows), pa.float64()),
            "half": pa.array(number, pa.float64()),
            "fine": pa.array([None if at % 7 == 0 else value for at, value in enumerate(number * 1.37)], pa.float64()),
            "coarse": pa.array(generator.integers(-100, 100, rows) * 5, pa.int64()),
            "binned": pa.array([None if at % 5 == 0 else value for at, value in enumerate(number)], pa.float64()),
            "marked": pa.array([(-9, 999, 50, None, 3)[at % 5] for at in range(rows)], pa.int64()),
            "spelled": pa.array([texts[at % len(texts)] for at in range(rows)], pa.string()),
            "huge": pa.array(generator.integers(-(2**45), 2**45, rows), pa.int64()),
        }
    )
    return table, codebook


HOSTILE = [
    '"; DROP TABLE t; --', "a'b", "a]b[bold]", "select", "Ünïcödé ☃", "label", "value", "rows", "code", "absent", "a.b", "%s"
]  # fmt: skip


BAD = {
    "unknown category": ("k", pa.array(["u", "CANARY77", "v"]), "feature 'k': 1 row holds a category"),
    "missing category": ("k", pa.array(["u", None, "v"]), "feature 'k': 1 row is missing"),
    "missing number": ("x", pa.array([1.0, None, 3.0]), "feature 'x': 1 row is missing"),
    "not a number": ("x", pa.array(["1", "CANARY77", "3"]), "feature 'x': 1 row holds a text"),
    "out of bounds": ("x", pa.array([1.0, 77123.0, 3.0]), "feature 'x': 1 row is out of bounds"),
    "just out of bounds": ("x", pa.array([1.0, 9.5, 3.0]), "feature 'x': 1 row is out of bounds"),
    "infinity": ("x", pa.array([1.0, float("inf"), -float("inf")]), "feature 'x': [12] rows"),
    "enormous": ("x", pa.array([1.0, 1e308, -1e308]), "feature 'x': 2 rows are out of bounds"),
    "truth values": ("x", pa.array([True, False, True]), "feature 'x'"),
    "unknown label": ("y", pa.array(["a", "CANARY77", "b"]), "class column 'y': 1 row holds a label"),
    "missing label": ("y", pa.array(["a", None, "b"]), "class column"),
    "fraction as category": ("w", pa.array([1.0, 77.123, 2.0]), "'w'"),
}
