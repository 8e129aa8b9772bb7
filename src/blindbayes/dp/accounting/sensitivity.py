"""Sensitivity: how far one record, or one person, can move the statistics.  [sensitivity]

Everything here follows from the codebook alone; no data is read. Adjacency is *add or remove*: two tables are neighbours if
one is the other without one record (or without all records of one person, of which there are at most `rows_per_unit`).

The released vector is cut into blocks such that **one record moves at most one cell of each block, by at most the block's
bound**; of a block of words (`spread`) it moves several cells, by at most the bound together. Then, for a unit of R records,
every cell change d of two neighbours satisfies, with w_b the bound of block b:

    sum over the cells of block b of |d_i| <= R w_b                                  (block norm)
    L1 <= R sum_b w_b        L2 <= R sqrt(sum_b w_b^2)        Linf <= R max_b w_b

Which linear function of the statistics is released, a plan says (`dp/release/release_plan.py`): histograms as they are,
Gaussian sums centred so that a record's contribution lies in [-w, w] and not in [0, 2w]. That a table's statistics are the
sum of its records' stands under [reading].
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy.typing as npt

from blindbayes.codebook import Text
from blindbayes.errors import ConfigError, PrivacyError

ADJACENCY = "add or remove"
IntVector = npt.NDArray[Any]  # int64, or object arrays of Python integers
BlockKind = Literal["class_count", "count", "n", "sum", "square", "word", "other"]


def unit_words(rows: int) -> str:
    """Return the unit of privacy in words, as ledgers name it."""
    return "one record" if rows == 1 else f"one person with at most {rows} records"


def unit_rows(unit: str) -> int | None:
    """Return how many records a unit has, by its words; None if they do not say."""
    match = re.fullmatch(r"one person with at most (\d{1,9}) records", unit)
    return int(match[1]) if match else 1 if unit == unit_words(1) else None


@dataclass(frozen=True, slots=True)
class SensitivityBlock:
    """Cells of which one record moves at most one, by at most `bound`; or several, by `bound` together (`spread`).

    `share` is its part of the budget, relative to the others.
    """

    name: str
    size: int
    bound: int = 1
    share: Fraction = Fraction(1)
    kind: BlockKind = "other"
    spread: bool = False

    def __post_init__(self) -> None:
        if self.size < 1 or self.bound < 1 or self.share <= 0:
            raise ConfigError(f"block {self.name!r}: size, bound and share must be above zero")


@dataclass(frozen=True)
class Sensitivity:
    """The blocks of a released vector, in order, and how many records one unit of privacy has."""

    blocks: tuple[SensitivityBlock, ...]
    rows_per_unit: int = 1

    def __post_init__(self) -> None:
        if not self.blocks:
            raise ConfigError("a release needs at least one block")
        if self.rows_per_unit < 1:
            raise ConfigError("rows_per_unit must be at least one: declare how many rows one person may have")

    @property
    def unit(self) -> str:
        """The unit of privacy in words."""
        return unit_words(self.rows_per_unit)

    @cached_property
    def size(self) -> int:
        """Length of the released vector."""
        return sum(block.size for block in self.blocks)

    @property
    def l1(self) -> int:
        """Largest L1 change."""
        return self.rows_per_unit * sum(block.bound for block in self.blocks)

    @property
    def l2_squared(self) -> int:
        """Largest squared L2 change."""
        return self.rows_per_unit**2 * sum(block.bound**2 for block in self.blocks)

    @property
    def linf(self) -> int:
        """Largest change of one cell."""
        return self.rows_per_unit * max(block.bound for block in self.blocks)

    def describe(self) -> dict[str, Any]:
        return {
            "unit": self.unit,
            "adjacency": ADJACENCY,
            "blocks": len(self.blocks),
            "cells": self.size,
            "l1": self.l1,
            "l2_squared": self.l2_squared,
            "linf": self.linf,
        }


def require_max_words(feature: Text) -> int:
    """Return how many words one document can change. Raises `PrivacyError` if that was not declared."""
    if feature.max_words is None:
        raise PrivacyError(
            f"feature {feature.name!r}: declare max_words, the most words of a document that count: without a bound one "
            "document could change everything, and no noise hides that"
        )
    return feature.max_words
