"""Batches of encoded rows, and their counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Feature, Numeric, Text
from blindbayes.crypto.kernels import Kernels, active
from blindbayes.crypto.kernels.counts import MOMENTS, read_moments
from blindbayes.errors import DataError
from blindbayes.statistics.bags import Bags, count_words
from blindbayes.statistics.layout import CellGroup, Layout
from blindbayes.statistics.statistics import Statistics

MISSING = np.iinfo(np.int64).min  # code of a missing number; a missing category or bin is -1
_LIMB = 23  # codes have at most 46 bits and a sign: two limbs of 23, whose products add up in int64 for 2^17 rows
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class CodedRows:
    """Codes of a batch of rows.

    `labels` are class positions, None if the class is unknown. Columns are positions of values or bins (-1: missing), or
    centred grid codes of Gaussian features (`MISSING`: missing). Text features are in `bags`.
    """

    labels: npt.NDArray[np.int64] | None
    columns: Mapping[str, npt.NDArray[np.int64]]
    rows: int
    bags: Mapping[str, Bags] = field(default_factory=dict)

    def values(self, name: str) -> npt.NDArray[np.int64] | Bags:
        return self.bags[name] if name in self.bags else self.columns[name]

    def by_word(self, features: Iterable[Feature]) -> CodedRows:
        """Add a column per word of each text, whether a document has the word: those of `Codebook.by_word`."""
        columns = dict(self.columns)
        for feature in features:
            if isinstance(feature, Text):
                bags = self.bags[feature.name]
                codes = np.zeros((feature.size, self.rows), dtype=np.int64)
                codes[bags.words, bags.rows] = 1
                codes[:, ~bags.present] = -1
                columns |= {each.name: column for each, column in zip(feature.by_word, codes, strict=True)}
        return replace(self, columns=columns)

    @property
    def known_labels(self) -> npt.NDArray[np.int64]:
        """The class positions; raises `DataError` if the class is unknown."""
        if self.labels is None:
            raise DataError("rows without a class column cannot be counted")
        return self.labels

    def take(self, rows: npt.NDArray[np.int64]) -> CodedRows:
        """Select rows by position, with their labels."""
        columns = {name: codes[rows] for name, codes in self.columns.items()}
        return CodedRows(self.known_labels[rows], columns, len(rows), {name: each[rows] for name, each in self.bags.items()})

    def __repr__(self) -> str:
        return f"Block(rows={self.rows}, columns={len(self.columns)})"


def cells_of(codes: npt.NDArray[np.int64], feature: Numeric) -> npt.NDArray[np.int64]:
    """Return the histogram cells of codes within the bounds."""
    if feature.equal_cells:
        return (codes - feature.code_low) * feature.size // feature.width
    return np.searchsorted(np.array(feature.starts), codes, side="right") - 1


def count_block(layout: Layout, block: CodedRows, weights: npt.NDArray[np.int64] | None = None) -> Statistics:
    """Count a block; integer `weights` multiply rows."""
    vector = np.zeros(layout.size, dtype=object)
    for feature in (None, *layout.codebook.features):
        tally = FeatureTally(layout, vector, feature)
        tally.add(block.known_labels, None if feature is None else block.values(feature.name), weights)
        tally.settle()
    return Statistics(layout, vector).require_bounds()


class FeatureTally:
    """Accumulator of one feature, or of the classes (None), over blocks; `settle` adds it to the vector."""

    def __init__(self, layout: Layout, vector: npt.NDArray[Any], feature: Feature | None) -> None:
        self._layout, self._vector = layout, vector
        self._groups = [group for group in layout.groups if group.feature == feature]
        self._classes = len(layout.codebook.classes)
        self._buffer: npt.NDArray[np.int64] | None = None  # counted by kernels, not in the vector yet

    def add(
        self,
        labels: npt.NDArray[np.int64],
        values: npt.NDArray[np.int64] | Bags | None,
        weights: npt.NDArray[np.int64] | None = None,
    ) -> None:
        """Count rows, given their classes and the codes or bags of the feature."""
        engine = active() if weights is None and isinstance(values, np.ndarray) else None
        for start in range(0, len(labels), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            own = None if values is None else values[part]
            if engine is not None and isinstance(own, np.ndarray):
                self._add_by_kernel(engine, np.ascontiguousarray(labels[part]), np.ascontiguousarray(own))
                continue
            for group in self._groups:
                self._vector[self._layout.slice(group)] += _cells(
                    group, self._classes, labels[part], own, None if weights is None else weights[part]
                )

    def _add_by_kernel(self, engine: Kernels, labels: npt.NDArray[np.int64], codes: npt.NDArray[np.int64]) -> None:
        counted = self._groups[0].kind == "count"
        if self._buffer is None:
            self._buffer = np.zeros((2, self._classes, self._groups[0].columns if counted else MOMENTS), dtype=np.int64)
        if counted:
            engine.cells(labels, codes, self._buffer)
        else:
            engine.moments(labels, codes, MISSING, self._buffer)

    def settle(self) -> None:
        """Add counts of kernels to the vector."""
        if self._buffer is None:
            return
        if self._groups[0].kind == "count":
            sums: dict[str, Any] = {"count": self._buffer.sum(axis=0).ravel()}
        else:
            sums = dict(zip(("n", "sum", "square"), read_moments(self._buffer), strict=True))
        for group in self._groups:
            self._vector[self._layout.slice(group)] += sums[group.kind]
        self._buffer = None


def _cells(
    group: CellGroup,
    classes: int,
    labels: npt.NDArray[np.int64],
    values: npt.NDArray[np.int64] | Bags | None,
    weights: npt.NDArray[np.int64] | None,
) -> npt.NDArray[Any]:
    """Return the counts or sums that rows add to a group."""
    if values is None:
        return _tally(labels, classes, weights)
    if isinstance(values, Bags) and group.kind == "word":
        return count_words(labels, values, classes, weights)
    if group.kind in ("sum", "square") and not isinstance(values, Bags):
        return class_sums(labels, values, classes, 1 if group.kind == "sum" else 2, weights)
    if isinstance(values, Bags):
        present = values.present
    else:
        present = values >= 0 if group.kind == "count" else values != MISSING
        labels = labels * group.columns + values if group.kind == "count" else labels
    return _tally(labels[present], classes * group.columns, None if weights is None else weights[present])


def _tally(cells: npt.NDArray[np.int64], size: int, weights: npt.NDArray[np.int64] | None) -> npt.NDArray[Any]:
    if weights is None:
        return np.bincount(cells, minlength=size).astype(object)
    # Whole weights below 2^31 over at most 2^16 rows stay below 2^53, where float64 adds exactly.
    return np.bincount(cells, weights=weights.astype(np.float64), minlength=size).astype(np.int64).astype(object)


def class_sums(
    labels: npt.NDArray[np.int64], codes: npt.NDArray[np.int64], classes: int, power: int, weights: npt.NDArray[np.int64] | None
) -> npt.NDArray[Any]:
    """Return the exact sum of codes (power 1) or squared codes (power 2) per class, without missing codes."""
    present = codes != MISSING
    if not present.all():
        labels, codes, weights = labels[present], codes[present], None if weights is None else weights[present]
    if weights is None and len(codes):
        reach = max(abs(int(codes.min())), abs(int(codes.max())))
        if reach**power * len(codes) < 1 << 53:  # float64 adds such whole numbers exactly
            powers = codes.astype(np.float64)
            exact_sums = np.bincount(labels, powers * powers if power == 2 else powers, minlength=classes)
            return exact_sums.astype(np.int64).astype(object)
    sums = np.zeros(classes, dtype=object)
    for label in range(classes):
        chosen = labels == label
        values = codes[chosen]
        if weights is not None:
            exact = values.astype(object) ** power * weights[chosen].astype(object)
            sums[label] = int(exact.sum()) if len(exact) else 0
        elif power == 1:
            sums[label] = int(values.sum())
        else:
            high, low = values >> _LIMB, values & ((1 << _LIMB) - 1)
            cross = int((high * low).sum())
            sums[label] = (int((high * high).sum()) << (2 * _LIMB)) + (cross << (_LIMB + 1)) + int((low * low).sum())
    return sums
