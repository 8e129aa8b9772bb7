"""Documents as sparse bags of words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Text

Ints = npt.NDArray[np.int64]
_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: spreads multiples evenly


@dataclass(frozen=True, slots=True)
class Bags:
    """Documents: the words of document i are `words[ends[i]:ends[i + 1]]`, in increasing order, with their counts `times`."""

    ends: Ints
    words: Ints
    times: Ints
    present: npt.NDArray[np.bool_]  # False for a missing document, as opposed to one without words
    size: int  # of the vocabulary

    @classmethod
    def from_tokens(cls, rows: Ints, words: Ints, present: npt.NDArray[np.bool_], size: int) -> Bags:
        """Make bags from the document and the word, out of `size`, of each token."""
        cells, times = np.unique(rows * size + words, return_counts=True)
        ends = np.concatenate([[0], np.cumsum(np.bincount(cells // size, minlength=len(present)))])
        return cls(ends, cells % size, times.astype(np.int64), present, size)

    def __len__(self) -> int:
        return len(self.present)

    def __getitem__(self, part: slice | Ints) -> Bags:
        chosen = np.arange(len(self))[part]
        lengths = np.diff(self.ends)[chosen]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(ends[-1]) + np.repeat(self.ends[:-1][chosen] - ends[:-1], lengths)
        return Bags(ends, self.words[places], self.times[places], self.present[chosen], self.size)

    @property
    def rows(self) -> Ints:
        return np.repeat(np.arange(len(self)), np.diff(self.ends))

    def counting(self, feature: Text) -> Bags:
        """Limit each document to the words that count: `max_words` in total, and each once for `bernoulli`.

        A longer document drops words in a public order that depends on the word and the document's length, so that no word is
        always dropped first. The choice depends on no other document.
        """
        times = np.minimum(self.times, 1) if feature.once else self.times
        rows = self.rows
        total = np.bincount(rows, times, minlength=len(self)).astype(np.int64)
        if len(times) and int(total.max()) > feature.reach:
            key = (self.words.astype(np.uint64) + total[rows].astype(np.uint64) * np.uint64(self.size)) * _MIX
            order = np.lexsort((key ^ (key >> np.uint64(29)), rows))
            before = np.cumsum(times[order]) - times[order]
            before -= np.concatenate([[0], np.cumsum(total)])[rows]  # rows are in order before and after
            limited = np.empty_like(times)
            limited[order] = np.clip(feature.reach - before, 0, times[order])
            times = limited
        if (times > 0).all():
            return Bags(self.ends, self.words, times, self.present, self.size)
        there = times > 0
        ends = np.concatenate([[0], np.cumsum(np.bincount(rows[there], minlength=len(self)))])
        return Bags(ends, self.words[there], times[there], self.present, self.size)

    def __repr__(self) -> str:
        return f"Bags(rows={len(self)})"


def count_words(labels: Ints, bags: Bags, classes: int, weights: Ints | None) -> npt.NDArray[Any]:
    """Count each word in each class, class by class; weights multiply documents."""
    rows, times = bags.rows, bags.times
    wide = weights is not None and len(times) and int(times.sum()) * int(weights.max()) >= 2**63
    counts = np.zeros(classes * bags.size, dtype=object if wide else np.int64)
    if weights is not None:
        times = times.astype(counts.dtype) * weights[rows]
    np.add.at(counts, labels[rows] * bags.size + bags.words, times)
    return counts
