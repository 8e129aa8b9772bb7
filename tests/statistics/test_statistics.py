"""Any partition of the rows into batches, sites and orders gives bit-identical statistics and models."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes import Categorical, Codebook, NaiveBayes, Numeric
from blindbayes.data import count, encode
from blindbayes.errors import ConfigError, DataError
from blindbayes.statistics import MISSING, CodedRows, Layout, Statistics, count_block

CODEBOOK = Codebook(
    "y",
    ("a", "b", "c"),
    (
        Categorical("k", ("u", "v", "w"), optional=True),
        Numeric("x", -50, 50, 0.25, optional=True),
        Numeric("h", 0, 100, bins=7),
        Numeric("big", -(2.0**45), 2.0**45),
    ),
    max_rows=10_000,
)


def table(seed: int, rows: int) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "k": generator.choice(np.array(["u", "v", "w", None], dtype=object), rows),
            "x": np.where(generator.random(rows) < 0.1, np.nan, np.round(generator.normal(0, 10, rows), 2)),
            "h": generator.integers(0, 101, rows),
            "big": generator.integers(-(2**45), 2**45, rows),
            "y": generator.choice(["a", "b", "c"], rows),
        }
    )


def block_of(frame: pd.DataFrame) -> CodedRows:
    return encode({name: frame[name] for name in CODEBOOK.names}, CODEBOOK, training=True, labels=frame["y"])


def same_bits(one: NaiveBayes, two: NaiveBayes, frame: pd.DataFrame) -> None:
    assert one.statistics_ == two.statistics_
    assert one.predict_joint_log_proba(frame).tobytes() == two.predict_joint_log_proba(frame).tobytes()


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 120), cuts=st.lists(st.integers(0, 120), max_size=6))
def test_any_split_and_order_of_batches_gives_the_same_model(seed: int, rows: int, cuts: list[int]) -> None:
    frame = table(seed, rows)
    shuffled = frame.sample(frac=1, random_state=seed % 1000)
    edges = [0, *sorted(min(cut, rows) for cut in cuts), rows]
    pieces = [shuffled.iloc[low:high] for low, high in itertools.pairwise(edges) if high > low]
    pooled = NaiveBayes(CODEBOOK).fit(frame)
    batched = NaiveBayes(CODEBOOK)
    for piece in pieces:
        batched.partial_fit(piece)
    same_bits(pooled, batched, frame)
    total = Statistics.zero(CODEBOOK)
    for piece in reversed(pieces):
        total += count_block(Layout(CODEBOOK), block_of(piece))
    same_bits(pooled, NaiveBayes.from_statistics(total), frame)
    words = sum((count_block(Layout(CODEBOOK), block_of(piece)).words for piece in pieces), np.zeros(1, dtype=np.uint64))
    assert Statistics.from_words(Layout(CODEBOOK), words) == total


def test_counting_in_pieces_by_the_engine_equals_counting_at_once() -> None:
    frame = table(5, 300)
    pieces = [count(piece, CODEBOOK) for piece in (frame[:1], frame[1:120], frame[120:120], frame[120:])]
    assert pieces[0] + pieces[1] + pieces[2] + pieces[3] == count(frame, CODEBOOK)
    assert count(frame, CODEBOOK) == count_block(Layout(CODEBOOK), block_of(frame))
    assert pieces[2] == Statistics.zero(CODEBOOK)
    assert count(frame, CODEBOOK) - pieces[3] == pieces[0] + pieces[1]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 60))
def test_whole_weights_are_duplicates(seed: int, rows: int) -> None:
    frame = table(seed, rows)
    weights = np.random.default_rng(seed + 1).integers(0, 5, rows)
    weights[0] += 1
    X, y = frame.drop(columns="y"), frame["y"]
    repeated = frame.loc[frame.index.repeat(weights)]
    same_bits(NaiveBayes(CODEBOOK).fit(X, y, sample_weight=weights), NaiveBayes(CODEBOOK).fit(repeated), frame)


def test_weights_that_are_no_counts_are_refused() -> None:
    frame = table(1, 4)
    X, y = frame.drop(columns="y"), frame["y"]
    for weights in ([0.5, 1, 1, 1], [-1, 1, 1, 1], [np.nan, 1, 1, 1], [2.0**40, 1, 1, 1], [0, 0, 0, 0]):
        with pytest.raises(DataError, match="sample_weight"):
            NaiveBayes(CODEBOOK).fit(X, y, sample_weight=weights)


def test_missing_codes_add_nothing() -> None:
    codebook = Codebook("y", ("a",), (Numeric("x", 0, 9, optional=True), Categorical("k", ("0",), optional=True)))
    block = CodedRows(np.zeros(2, dtype=np.int64), {"x": np.array([MISSING, 3]), "k": np.array([-1, 0])}, 2)
    statistics = count_block(Layout(codebook), block)
    assert (statistics.n["x"].tolist(), statistics.sums["x"].tolist()) == ([1], [3])
    assert statistics.counts["k"].tolist() == [[1]]
    assert statistics.class_counts.tolist() == [2]


def test_statistics_of_different_codebooks_do_not_merge() -> None:
    other = Codebook("y", ("a", "b"), CODEBOOK.features)
    with pytest.raises(ConfigError, match="different codebooks"):
        Statistics.zero(CODEBOOK) + Statistics.zero(other)
    with pytest.raises(ConfigError, match="different codebooks"):
        Statistics.zero(CODEBOOK) - Statistics.zero(other)


def test_more_rows_than_max_rows_is_an_error_everywhere() -> None:
    codebook = Codebook("y", ("a",), (Categorical("k", ("u",)),), max_rows=3)
    frame = pd.DataFrame({"k": ["u"] * 4, "y": ["a"] * 4})
    with pytest.raises(DataError, match="max_rows = 3"):
        count(frame, codebook)
    with pytest.raises(DataError, match="max_rows = 3"):
        NaiveBayes(codebook).fit(frame)
    model = NaiveBayes(codebook).fit(frame[:2])
    with pytest.raises(DataError, match="max_rows = 3"):
        model.partial_fit(frame[:2])
    assert model.class_count_.tolist() == [2.0]
    total = count(frame[:2], codebook) + count(frame[:2], codebook)
    with pytest.raises(DataError, match="max_rows = 3"):
        total.require_bounds()


def test_an_overflow_of_int64_is_an_error_and_not_a_wrap() -> None:
    codebook = Codebook("y", ("a",), (Categorical("k", ("u",)),))
    layout = Layout(codebook)
    edge = Statistics(layout, np.array([2**63 - 1, 0]))
    with pytest.raises(DataError, match="overflow"):
        edge + edge
