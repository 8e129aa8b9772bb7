"""Sparse matrices as bags of words: bounded per document."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from blindbayes import Text
from blindbayes.data.bag_of_words import read_matrix

WORDS = ("free", "offer", "meeting", "minutes", "win", "café", "the")


def test_duplicate_entries_add_up_and_the_callers_matrix_stays_as_it_is() -> None:
    made = sp.csr_array((np.array([1, 2, 5]), np.array([3, 3, 0]), np.array([0, 3])), shape=(1, 7))
    bags = read_matrix(made, Text("body", WORDS))
    assert (bags.words.tolist(), bags.times.tolist()) == ([0, 3], [5, 3])
    assert made.nnz == 3


@settings(max_examples=60, deadline=None)
@given(
    documents=st.lists(st.lists(st.integers(0, 6), max_size=12), min_size=1, max_size=6),
    most=st.integers(1, 9),
    once=st.booleans(),
)
def test_a_long_document_is_clipped_by_itself_and_never_beyond_the_bound(
    documents: list[list[int]], most: int, once: bool
) -> None:
    feature = Text("body", WORDS, max_words=most, model="bernoulli" if once else "multinomial")
    dense = np.array([np.bincount(document, minlength=7) if document else np.zeros(7, int) for document in documents])
    together = read_matrix(dense, feature).counting(feature)
    for row, whole in enumerate(dense):
        alone = read_matrix(whole[None], feature).counting(feature)
        part = together[row : row + 1]
        assert (part.words.tolist(), part.times.tolist()) == (alone.words.tolist(), alone.times.tolist())
        kept = np.bincount(alone.words, alone.times, minlength=7)
        limit = np.minimum(whole, 1) if once else whole
        assert (kept <= limit).all()
        assert kept.sum() == min(most, limit.sum())


def test_no_word_is_always_the_one_to_go() -> None:
    feature = Text("body", tuple(f"w{at}" for at in range(50)), max_words=10)
    rng = np.random.default_rng(5)
    bags = read_matrix(rng.integers(1, 4, (400, 50)), feature).counting(feature)
    kept = np.bincount(bags.words, minlength=50)
    assert kept.min() > 0.1 * kept.mean()
