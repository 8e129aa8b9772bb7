"""Bags of words from a column of texts or a matrix of counts.

For every source, a text is lower-cased (by Unicode rules) and split into runs of two or more letters, digits or underscores,
as by scikit-learn's `CountVectorizer`; numbers and truth values are read as their plain text. A word counts if the codebook
lists it, or in bucket BLAKE2b(word) mod `buckets`, from the first 8 bytes, big-endian.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from hashlib import blake2b
from itertools import chain
from typing import Any

import numpy as np

from blindbayes.codebook import Text
from blindbayes.data.libraries import pa
from blindbayes.data.values import ABSENT, NO_TEXT, Listed, Misfit, Untyped, plain_text
from blindbayes.errors import DataError
from blindbayes.statistics import Bags

tokens: Callable[[str], list[str]] = re.compile(r"(?u)\b\w\w+\b").findall
_MAX_KNOWN = 1 << 20  # cached hashes of words


class _Buckets(dict[str, int]):
    """Cache of the buckets of words."""

    def __init__(self, buckets: int) -> None:
        super().__init__()
        self._buckets = buckets

    def __missing__(self, word: str) -> int:
        if len(self) >= _MAX_KNOWN:
            self.clear()
        self[word] = int.from_bytes(blake2b(word.encode(errors="replace"), digest_size=8).digest()) % self._buckets
        return self[word]


def _places(feature: Text) -> Callable[[str], int]:
    if feature.buckets is not None:
        return _Buckets(feature.buckets).__getitem__
    listed: Mapping[str, int] = {word: i for i, word in enumerate(feature.words)}
    return lambda word: listed.get(word, -1)


def read_texts(column: pa.Array | Untyped, feature: Text, markers: tuple[str, ...], misfit: Misfit | None) -> Bags:
    """Return the bags of a column of texts; nulls, empty texts and missing markers are missing documents."""
    values = column.texts.to_pylist() if isinstance(column, Untyped) else column.to_pylist()
    listed, place = Listed((), markers), _places(feature)
    plain = (plain_text(value) for value in values)
    texts = [None if text == NO_TEXT or listed.position(text) == ABSENT else text for text in plain]
    present = np.array([text is not None for text in texts], dtype=bool)
    split = [tokens(text.lower()) if text else [] for text in texts]
    rows = np.repeat(np.arange(len(texts)), np.fromiter(map(len, split), np.int64, len(split)))
    words = np.fromiter(map(place, chain.from_iterable(split)), np.int64, len(rows))
    if misfit is not None:
        misfit.missing += int((~present).sum())
    known = words >= 0
    return Bags.from_tokens(rows[known], words[known], present, feature.size).counting(feature)


def read_matrix(matrix: Any, feature: Text, *, lenient: bool = False) -> Bags:
    """Return the bags of a sparse matrix or array with a column per word; a sparse matrix stays sparse.

    Counts are non-negative integers; with `lenient`, other numbers are rounded down and clipped at 0.
    """
    if matrix.shape[1] != feature.size:
        raise DataError(
            f"feature {feature.name!r}: the matrix has {matrix.shape[1]} columns, and the codebook {feature.size} words"
        )
    if hasattr(matrix, "tocsr"):
        rows = matrix.tocsr()
        if not rows.has_canonical_format:
            rows = rows.copy()  # the caller's stays as it is
            rows.sum_duplicates()
        ends, words, counts = rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data
    else:
        documents, words = np.nonzero(matrix)
        ends = np.concatenate([[0], np.cumsum(np.bincount(documents, minlength=len(matrix)))])
        counts = matrix[documents, words]
    numbers = np.asarray(counts, dtype=np.float64)
    if lenient:
        numbers = np.floor(np.nan_to_num(numbers, nan=0.0))
    elif not (np.isfinite(numbers).all() and (numbers >= 0).all() and (numbers == np.floor(numbers)).all()):
        raise DataError(
            f"feature {feature.name!r}: the sparse matrix must hold counts, non-negative whole numbers as CountVectorizer "
            "makes; weights such as tf-idf are not counts"
        )
    times = np.clip(numbers, 0, float(feature.reach)).astype(np.int64)
    return Bags(ends, words, times, np.ones(len(ends) - 1, dtype=bool), feature.size)
