"""The layout: names to positions, and words that add up exactly at any width."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes import Categorical, Codebook, Numeric
from blindbayes.errors import DataError
from blindbayes.statistics import Cell, Layout, Statistics

NARROW = Codebook(
    "y", ("a", "b"), (Categorical("k", ("u", "v")), Numeric("x", 0, 9, optional=True), Numeric("h", 0, 9, bins=3)), max_rows=100
)
WIDE = Codebook("y", ("a", "b"), (Numeric("x", -(2.0**46), 2.0**46), Categorical("k", ("u",))), max_rows=2**48)


def test_positions_stand_in_the_documented_order() -> None:
    assert [(cell.kind, cell.label, cell.feature, cell.value) for cell in Layout(NARROW).cells] == [
        ("class_count", "a", None, None),
        ("class_count", "b", None, None),
        ("count", "a", "k", "u"),
        ("count", "a", "k", "v"),
        ("count", "b", "k", "u"),
        ("count", "b", "k", "v"),
        ("n", "a", "x", None),
        ("n", "b", "x", None),
        ("sum", "a", "x", None),
        ("sum", "b", "x", None),
        ("square", "a", "x", None),
        ("square", "b", "x", None),
        *(("count", label, "h", str(cell)) for label in "ab" for cell in range(3)),
    ]
    assert Layout(NARROW).size == len(Layout(NARROW).cells) == len(Layout(NARROW).bounds)


def test_a_required_gaussian_feature_has_no_count_of_its_own() -> None:
    layout = Layout(Codebook("y", ("a",), (Numeric("x", 0, 9),)))
    assert layout.cells == (Cell("class_count", "a"), Cell("sum", "a", "x"), Cell("square", "a", "x"))


def test_narrow_layouts_use_one_word_per_cell_and_wide_ones_more() -> None:
    assert Layout(NARROW).word_count == Layout(NARROW).size
    # 2^48 rows of codes up to 2^46: a sum needs 95 bits, a sum of squares 141, each with its sign in 32-bit limbs.
    assert Layout(WIDE).is_wide
    assert Layout(WIDE).word_count == 2 + 2 * 3 + 2 * 5 + 2


@settings(max_examples=60, deadline=None)
@given(data=st.data(), codebook=st.sampled_from([NARROW, WIDE]), parties=st.integers(1, 5))
def test_adding_words_of_all_parties_adds_their_vectors(data: st.DataObject, codebook: Codebook, parties: int) -> None:
    layout = Layout(codebook)
    vectors = [
        [data.draw(st.integers(-bound // parties if cell.kind == "sum" else 0, bound // parties)) for cell, bound in
         zip(layout.cells, layout.bounds, strict=True)]
        for _ in range(parties)
    ]  # fmt: skip
    total = np.zeros(layout.word_count, dtype=np.uint64)
    for vector in vectors:
        total = total + Statistics(layout, np.array(vector, dtype=object)).words
    summed = Statistics.from_words(layout, total)
    assert [int(cell) for cell in summed.vector] == [sum(column) for column in zip(*vectors, strict=True)]
    assert Statistics.from_names(codebook, summed.by_name()) == summed


def test_words_of_the_bounds_themselves_survive() -> None:
    layout = Layout(WIDE)
    for sign in (1, -1):
        vector = np.array([sign * bound for bound in layout.bounds], dtype=object)
        assert [int(cell) for cell in layout.from_words(layout.words(vector))] == vector.tolist()


def test_wrong_lengths_are_refused() -> None:
    layout = Layout(NARROW)
    with pytest.raises(DataError, match="wrong length"):
        layout.from_words(np.zeros(layout.word_count + 1, dtype=np.uint64))
    with pytest.raises(DataError, match="wrong length"):
        Statistics(layout, np.zeros(layout.size - 1, dtype=np.int64))


@pytest.mark.parametrize(("at", "value"), [(0, -1), (0, 101), (2, -1), (8, 10_000), (10, -1)])
def test_a_vector_no_table_can_have_is_refused(at: int, value: int) -> None:
    layout = Layout(NARROW)
    vector = np.zeros(layout.size, dtype=np.int64)
    vector[at] = value
    with pytest.raises(DataError, match="max_rows"):
        Statistics(layout, vector).require_bounds()


def test_statistics_cannot_be_changed_in_place() -> None:
    statistics = Statistics.zero(NARROW)
    with pytest.raises(ValueError, match="read-only"):
        statistics.vector[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        statistics.class_counts[0] = 1


def test_named_statistics_that_do_not_fit_are_refused() -> None:
    good = Statistics.zero(NARROW).by_name()
    for change in (
        {"class_counts": [0]},
        {"class_counts": [0, 2**70]},
        {"class_counts": [0, 0.5]},
        {"class_counts": [0, True]},
        {"counts": {"k": [[0, 0], [0, 0]]}},
        {"sums": {"x": [0, 0], "z": [0, 0]}},
        {"more": {}},
    ):
        with pytest.raises(DataError):
            Statistics.from_names(NARROW, {**good, **change})
