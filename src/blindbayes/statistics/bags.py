"""Documents as bags of words: which words, and how often; no word that does not occur takes room."""

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
    """Some documents: the words of document i are `words[ends[i]:ends[i + 1]]`, in rising order, each `times` times."""

    ends: Ints
    words: Ints
    times: Ints
    present: npt.NDArray[np.bool_]  # False: there is no document, which is not one without words
    size: int  # of the vocabulary

    @classmethod
    def of_tokens(cls, rows: Ints, words: Ints, present: npt.NDArray[np.bool_], size: int) -> Bags:
        """From tokens: the document that each stands in, and its word out of `size`."""
        cells, times = np.unique(rows * size + words, return_counts=True)
        ends = np.concatenate([[0], np.cumsum(np.bincount(cells // size, minlength=len(present)))])
        return cls(ends, cells % size, times.astype(np.int64), present, size)

    def __len__(self) -> int:
        return len(self.present)

    def __getitem__(self, part: slice | Ints) -> Bags:
        chosen = np.arange(len(self))[part]
        lengths = np.diff(self.ends)[chosen]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        at = np.arange(ends[-1]) + np.repeat(self.ends[:-1][chosen] - ends[:-1], lengths)
        return Bags(ends, self.words[at], self.times[at], self.present[chosen], self.size)

    @property
    def rows(self) -> Ints:
        """The document of each word."""
        return np.repeat(np.arange(len(self)), np.diff(self.ends))

    def counting(self, feature: Text) -> Bags:
        """What counts of each document: a word once where the feature says so, and `max_words` words at most.

        Of a longer document the words go by a public order that hangs on the word and the document's length, so that no word
        is always the one to go; the choice looks at no other document.
        """
        times = np.minimum(self.times, 1) if feature.once else self.times
        rows = self.rows
        total = np.bincount(rows, times, minlength=len(self)).astype(np.int64)
        if len(times) and int(total.max()) > feature.reach:
            key = (self.words.astype(np.uint64) + total[rows].astype(np.uint64) * np.uint64(self.size)) * _MIX
            order = np.lexsort((key ^ (key >> np.uint64(29)), rows))
            before = np.cumsum(times[order]) - times[order]
            before -= np.concatenate([[0], np.cumsum(total)])[rows]  # rows are in order before and after
            kept = np.empty_like(times)
            kept[order] = np.clip(feature.reach - before, 0, times[order])
            times = kept
        if (times > 0).all():
            return Bags(self.ends, self.words, times, self.present, self.size)
        there = times > 0
        ends = np.concatenate([[0], np.cumsum(np.bincount(rows[there], minlength=len(self)))])
        return Bags(ends, self.words[there], times[there], self.present, self.size)

    def __repr__(self) -> str:
        return f"Bags(rows={len(self)})"


def count_words(labels: Ints, bags: Bags, classes: int, weights: Ints | None) -> npt.NDArray[Any]:
    """How often each word stands in each class, class by class; a document counts as often as its weight says."""
    rows, times = bags.rows, bags.times
    wide = weights is not None and len(times) and int(times.sum()) * int(weights.max()) >= 2**63
    found = np.zeros(classes * bags.size, dtype=object if wide else np.int64)
    if weights is not None:
        times = times.astype(found.dtype) * weights[rows]
    np.add.at(found, labels[rows] * bags.size + bags.words, times)
    return found
