"""Sufficient statistics: one exact integer vector with names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook
from blindbayes.errors import ConfigError, DataError
from blindbayes.statistics.layout import Kind, Layout

IntArray = npt.NDArray[Any]  # int64, or object arrays of Python integers where 64 bits do not suffice


class Statistics:
    """Counts per class, per class and value, per class and word, and per class n, sum and squares of codes.

    Immutable; `+` merges. Exact statistics have non-negative counts within the codebook's bounds (`require_bounds`); noisy ones
    need not.
    """

    def __init__(self, layout: Layout, vector: IntArray) -> None:
        if vector.shape != (layout.size,):
            raise DataError("a statistics vector has the wrong length for this codebook")
        self.layout = layout
        self.vector = vector.astype(layout.dtype)
        self.vector.setflags(write=False)

    @classmethod
    def zero(cls, codebook: Codebook) -> Statistics:
        layout = Layout(codebook)
        return cls(layout, np.zeros(layout.size, dtype=layout.dtype))

    @classmethod
    def from_words(cls, layout: Layout, words: npt.NDArray[np.uint64]) -> Statistics:
        """Make statistics from the words that a protocol summed."""
        return cls(layout, layout.from_words(words))

    @property
    def codebook(self) -> Codebook:
        return self.layout.codebook

    @property
    def words(self) -> npt.NDArray[np.uint64]:
        """The vector as 64-bit words for a protocol."""
        return self.layout.words(self.vector)

    def __add__(self, other: Statistics) -> Statistics:
        if self.layout != other.layout:
            raise ConfigError("statistics of different codebooks cannot be merged; compare the codebooks' hashes")
        if self.layout.is_wide:
            return Statistics(self.layout, self.vector + other.vector)
        total = self.vector + other.vector
        # Two vectors within bounds cannot overflow; two at the edge of int64 could, so look at the signs.
        if bool(np.any(((self.vector ^ total) & (other.vector ^ total)) < 0)):
            raise DataError("merging would overflow: more rows than the codebook's max_rows")
        return Statistics(self.layout, total)

    def __sub__(self, other: Statistics) -> Statistics:
        if self.layout != other.layout:
            raise ConfigError("statistics of different codebooks cannot be subtracted; compare the codebooks' hashes")
        return Statistics(self.layout, self.vector - other.vector)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Statistics) and self.layout == other.layout and bool(np.array_equal(self.vector, other.vector))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Statistics(cells={self.layout.size}, codebook={self.codebook.sha256[:12]})"

    def _group(self, kind: Kind, feature: str | None) -> IntArray:
        group = self.layout.find(kind, feature)
        if group is None:
            raise KeyError(feature)
        return self.vector[self.layout.slice(group)].reshape(len(self.codebook.classes), group.columns)

    @cached_property
    def class_counts(self) -> IntArray:
        return self._group("class_count", None)[:, 0]

    @cached_property
    def counts(self) -> Mapping[str, IntArray]:
        """Counts (classes, values) of each categorical or binned feature."""
        return self._by_feature("count", flat=False)

    @cached_property
    def n(self) -> Mapping[str, IntArray]:
        """Values per class of each Gaussian feature."""
        counted = self._by_feature("n")
        return MappingProxyType({name: counted.get(name, self.class_counts) for name in self.sums})

    @cached_property
    def sums(self) -> Mapping[str, IntArray]:
        """Sums of codes per class of each Gaussian feature."""
        return self._by_feature("sum")

    @cached_property
    def squares(self) -> Mapping[str, IntArray]:
        """Sums of squared codes per class of each Gaussian feature."""
        return self._by_feature("square")

    @cached_property
    def bags(self) -> Mapping[str, IntArray]:
        """Counts (classes, words) of each text feature."""
        return self._by_feature("word", flat=False)

    def documents(self, name: str) -> IntArray:
        """Return the documents per class of a text feature."""
        return self._by_feature("n").get(name, self.class_counts)

    def _by_feature(self, kind: Kind, *, flat: bool = True) -> Mapping[str, IntArray]:
        names = [group.feature.name for group in self.layout.groups if group.kind == kind and group.feature is not None]
        tables = {name: self._group(kind, name) for name in names}
        return MappingProxyType({name: table[:, 0] if flat else table for name, table in tables.items()})

    def require_bounds(self) -> Statistics:
        """Return self, or raise if no table within the codebook's limits has these statistics."""
        self.layout.require_bounds(self.vector)
        if int(self.class_counts.sum()) > self.codebook.max_rows:
            raise DataError(f"more rows than the codebook's max_rows = {self.codebook.max_rows}; raise it in the codebook")
        return self

    def only(self, names: Sequence[str]) -> Statistics:
        """Return the statistics of some features; of all if none is named."""
        if not names:
            return self
        book = self.codebook.with_features(each for each in self.codebook.features if each.name in names)
        named = {
            section: {name: each for name, each in part.items() if name in names} if isinstance(part, dict) else part
            for section, part in self.by_name().items()
        }
        if not book.texts:
            named.pop("words", None)
        return Statistics.from_names(book, named)

    def by_name(self) -> dict[str, Any]:
        """Return lists by name, as in the model file."""
        named: dict[str, Any] = {
            "class_counts": [int(value) for value in self.class_counts],
            "counts": {name: [[int(cell) for cell in row] for row in table] for name, table in self.counts.items()},
            "n": {name: [int(value) for value in row] for name, row in self._by_feature("n").items()},
            "sums": {name: [int(value) for value in row] for name, row in self.sums.items()},
            "squares": {name: [int(value) for value in row] for name, row in self.squares.items()},
        }
        if self.bags:
            named["words"] = {name: table.tolist() for name, table in self.bags.items()}
        return named

    @classmethod
    def from_names(cls, codebook: Codebook, named: Mapping[str, Any]) -> Statistics:
        """Invert `by_name`; raise `DataError` for anything that does not fit the layout."""
        layout = Layout(codebook)
        vector = np.zeros(layout.size, dtype=layout.dtype)
        keys = {"count": "counts", "n": "n", "sum": "sums", "square": "squares"} | ({"word": "words"} if codebook.texts else {})
        expected = {"class_counts", *keys.values()}
        if set(named) != expected:
            raise DataError("statistics: the sections must be " + ", ".join(sorted(expected)))
        used = 1
        for group in layout.groups:
            if group.feature is None:
                part = named["class_counts"]
            else:
                part = named[keys[group.kind]].get(group.feature.name)
                used += 1
            table = np.array(part, dtype=object)
            if table.size != group.columns * len(codebook.classes) or not all(type(cell) is int for cell in table.flat):
                raise DataError(f"statistics: {group.kind} of {group.feature.name if group.feature else 'classes'} do not fit")
            bits = max(63, group.bound.bit_length() + 16) if layout.is_wide else 63  # noise may exceed the bound
            if not all(-(1 << bits) <= cell < 1 << bits for cell in table.flat):
                raise DataError(f"statistics: a {group.kind} is outside what the codebook's max_rows can give")
            vector[layout.slice(group)] = table.reshape(-1)
        if used != 1 + sum(len(named[section]) for section in keys.values()):
            raise DataError("statistics: there is a feature that the codebook does not have")
        return cls(layout, vector)


def names_of(codebook: Codebook, class_counts: npt.NDArray[Any], sums: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the argument of `Statistics.from_names`, from class counts and each feature's sums by kind, class by class."""
    named: dict[str, Any] = {"class_counts": class_counts.tolist(), "counts": {}, "n": {}, "sums": {}, "squares": {}}
    for name, by_kind in sums.items():
        if "count" in by_kind:
            named["counts"][name] = by_kind["count"]
            continue
        named["sums"][name], named["squares"][name] = ([row[0] for row in by_kind[kind]] for kind in ("sum", "square"))
        if codebook.feature(name).optional:
            named["n"][name] = [row[0] for row in by_kind["n"]]
    return named
