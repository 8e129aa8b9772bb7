"""Bags of words against dense counts."""

from __future__ import annotations

import numpy as np

from blindbayes import Text
from blindbayes.statistics.bags import Bags, count_words

RANDOM = np.random.default_rng(6)
DOCUMENTS, WORDS = 30, 7
DENSE = RANDOM.integers(0, 4, (DOCUMENTS, WORDS)) * (RANDOM.random((DOCUMENTS, WORDS)) < 0.4)
LABELS = RANDOM.integers(0, 3, DOCUMENTS)


def bags() -> Bags:
    rows, words = DENSE.nonzero()
    times = DENSE[rows, words]
    return Bags.from_tokens(np.repeat(rows, times), np.repeat(words, times), np.ones(DOCUMENTS, dtype=bool), WORDS)


def dense(made: Bags) -> np.ndarray:
    out = np.zeros((len(made), WORDS), dtype=np.int64)
    out[made.rows, made.words] = made.times
    return out


def test_documents_come_back_whole_and_in_any_choice() -> None:
    made = bags()
    assert (dense(made) == DENSE).all()
    for part in (slice(3, 9), np.array([4, 4, 0, 29]), slice(0, 0)):
        assert (dense(made[part]) == DENSE[part]).all()


def test_words_are_counted_by_class_and_weight() -> None:
    weights = RANDOM.integers(0, 5, DOCUMENTS)
    for given, factor in ((None, np.ones(DOCUMENTS, dtype=np.int64)), (weights, weights)):
        counted = count_words(LABELS, bags(), 3, given).reshape(3, WORDS)
        assert (counted == [(DENSE[label == LABELS] * factor[label == LABELS, None]).sum(axis=0) for label in range(3)]).all()


def test_counts_beyond_64_bits_are_exact() -> None:
    weights = np.full(DOCUMENTS, 2**62)
    assert count_words(np.zeros_like(LABELS), bags(), 1, weights).tolist() == [int(n) * 2**62 for n in DENSE.sum(axis=0)]


def test_a_document_counts_up_to_its_bound_and_never_a_word_that_it_lacks() -> None:
    limited = dense(bags().counting(Text("t", tuple("abcdefg"), max_words=3)))
    assert (limited <= DENSE).all()
    assert (limited.sum(axis=1) == np.minimum(DENSE.sum(axis=1), 3)).all()
