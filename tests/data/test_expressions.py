"""The engine and the Arrow path turn every number and text into the same code, value by value."""

from __future__ import annotations

from decimal import Decimal

import ibis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes import Codebook, Numeric
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
