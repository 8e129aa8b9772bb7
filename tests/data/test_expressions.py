"""The engine and the Arrow path turn every number and text into the same code, value by value."""

from __future__ import annotations

import math
from decimal import Decimal

import ibis
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric
from blindbayes.data import check, count, encode, frames
from blindbayes.data.encode import encode_column
from blindbayes.errors import DataError
from blindbayes.statistics import Layout, count_block

NASTY = [
    0.0,
    -0.0,
    5e-324,
    -5e-324,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    0.49999999999999994,
    0.285,
    1.005,
    2.675,
    1e-300,
    1 / 3,
    99.995,
    -99.995,
]


def both(table: pa.Table, codebook: Codebook) -> None:
    block = encode({name: table[name] for name in codebook.names}, codebook, training=True, labels=table[codebook.target])
    assert count(table, codebook) == count_block(Layout(codebook), block)
    there = ibis.duckdb.connect()
    try:  # an engine that counts by itself
        assert count(there.create_table("rows", frames.plain_types(table)), codebook) == count_block(Layout(codebook), block)
    finally:
        there.disconnect()


@settings(max_examples=7, deadline=None)
@given(
    values=st.lists(st.one_of(st.sampled_from(NASTY), st.floats(-100, 100)), min_size=1, max_size=300),
    precision=st.sampled_from([1.0, 0.5, 0.1, 0.01, 1e-3, 3.0, 10.0, 1 / 3, 1e-9]),
)
def test_floats_of_every_kind_land_on_the_same_grid_point(values: list[float], precision: float) -> None:
    values = [*values, *NASTY, *(value * precision for value in (0.5, 1.5, 2.5, -0.5, -1.5))]  # halves of the grid, always
    feature = Numeric("x", -100, 100, precision)
    codebook = Codebook("y", ("a",), (feature, Numeric("b", -100, 100, precision, bins=5)))
    both(pa.table({"x": values, "b": values, "y": ["a"] * len(values)}), codebook)
    codes = encode_column(np.array(values), feature, ("",), training=True)
    assert codes.tolist() == [feature.grid(value) - feature.centre for value in values]


@settings(max_examples=7, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(NASTY), st.floats(-100, 100, width=32)), min_size=1, max_size=200))
def test_numbers_spelled_out_are_the_numbers_themselves(values: list[float]) -> None:
    codebook = Codebook("y", ("a",), (Numeric("x", -100, 100, 0.01),))
    spelled = [
        format(Decimal(value), "f") if at % 3 == 0 else f" {value!r}" if at % 3 == 1 else f"{value!r}\t"
        for at, value in enumerate(values)
    ]
    spelled = [text if len(text) < 90 and "e-" not in text else "0" for text in spelled]
    kept = [float(text) for text in spelled]
    labels = ["a"] * len(values)
    both(pa.table({"x": spelled, "y": labels}), codebook)
    assert count(pa.table({"x": spelled, "y": labels}), codebook) == count(pa.table({"x": kept, "y": labels}), codebook)


@settings(max_examples=7, deadline=None)
@given(st.lists(st.decimals(-(10**14), 10**14, places=6), min_size=1, max_size=100))
def test_long_decimals_are_rounded_once(values: list[Decimal]) -> None:
    feature = Numeric("x", -(2.0**46), 2.0**46, 1.0)
    codebook = Codebook("y", ("a",), (feature,))
    values = [value for value in values if abs(value) < 2**46]
    table = pa.table({"x": pa.array(values, pa.decimal128(30, 6)), "y": pa.array(["a"] * len(values), pa.string())})
    both(table, codebook)
    codes = encode_column(table["x"], feature, ("",), training=True)
    assert codes.tolist() == [feature.grid(float(value)) - feature.centre for value in values]


UNREADABLE = [
    "", " ", "1,5", "1 000", "0x10", "1_0", "inf", "-Infinity", "nan", "NaN", "1e", "e5", ".", "+", "--1", "1e999", "9" * 300,
    "٣", "\u00a05", "5\u2003", "½", "1f", "TRUE",
]  # fmt: skip


@pytest.mark.parametrize("text", UNREADABLE)
def test_texts_that_are_no_numbers_are_no_numbers_to_both(text: str) -> None:
    feature = Numeric("x", 0, 9)
    with pytest.raises(DataError, match="feature 'x'"):
        encode_column(pa.array([text]), feature, ("",), training=True)
    with pytest.raises(DataError, match="feature 'x'"):
        encode_column(pa.array([text], pa.large_string()), feature, ("", "x"), training=True)


def test_the_engine_finds_the_same_texts_unreadable() -> None:
    codebook = Codebook("y", ("a",), (Numeric("x", 0, 9),))
    report = check(pa.table({"x": [*UNREADABLE, "5"], "y": ["a"] * (len(UNREADABLE) + 1)}), codebook)
    assert (report.columns[1].unreadable, report.columns[1].missing) == (len(UNREADABLE) - 1, 1)  # the empty text is missing


@settings(max_examples=7, deadline=None)
@given(
    st.lists(
        st.one_of(st.none(), st.integers(-3, 12), st.booleans(), st.sampled_from(["0", "07", " 7", "7", "true", "True", "x"])),
        min_size=1,
    )
)
def test_mixed_objects_match_by_their_plain_text(values: list[object]) -> None:
    codebook = Codebook("y", ("a",), (Categorical("k", ("7", "0", "true", "x"), optional=True),))
    frame = pd.DataFrame({"k": pd.Series(values, dtype=object), "y": "a"})
    plain = [None if v is None else {"True": "true", "False": "false"}.get(str(v), str(v)) for v in values]
    known = all(text is None or text in ("7", "0", "true", "x") for text in plain)
    if not known:
        for attempt in (lambda: count(frame, codebook), lambda: NaiveBayes(codebook).fit(frame)):
            with pytest.raises(DataError, match="feature 'k'"):
                attempt()
        return
    expected = [[plain.count(value) for value in ("7", "0", "true", "x")]]
    assert count(frame, codebook).counts["k"].tolist() == expected
    assert NaiveBayes(codebook).fit(frame).statistics_.counts["k"].tolist() == expected


def test_one_row_at_a_time_scores_as_all_at_once() -> None:
    """Gaussian features are scored by a table or by a formula, in pieces of any size: the bits are the same."""
    generator = np.random.default_rng(21)
    frame = pd.DataFrame(
        {
            "x": generator.integers(0, 40, 3000),
            "z": np.round(generator.normal(0, 50, 3000), 3),
            "k": generator.choice(["u", "v"], 3000),
            "y": generator.choice(["a", "b", "c"], 3000),
        }
    )
    model = NaiveBayes(Codebook.from_frame(frame, "y")).fit(frame)
    X = frame.drop(columns="y")
    whole = model.predict_joint_log_proba(X)
    assert math.isfinite(whole.sum())
    for size in (1, 7, 39, 41, 2999):
        pieces = [model.predict_joint_log_proba(X[at : at + size]) for at in range(0, 3000 if size > 1 else 50, size)]
        joined = np.vstack(pieces)
        assert joined.tobytes() == whole[: len(joined)].tobytes()
