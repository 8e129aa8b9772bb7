"""A joint release: its plan before noise (`ReleasePlan`) and its tables after it (`NoisyStatistics`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.sensitivity import ADJACENCY, Sensitivity, SensitivityBlock, require_max_words, unit_words
from blindbayes.dp.accounting.stage import Stage
from blindbayes.dp.noise.centred_gaussian import CentredGaussian
from blindbayes.dp.noise.exact_events import require_delta
from blindbayes.dp.noise.knorm_histograms import Centred, Classwise, ReleasePart
from blindbayes.dp.noise.mechanisms import Mechanism, PrivacyCost, laplace_variance, make
from blindbayes.dp.release import postprocess
from blindbayes.dp.release.constants import CUTS, UNDECLARED_ROWS
from blindbayes.errors import ConfigError
from blindbayes.statistics import CodedRows, Statistics
from blindbayes.statistics.layout import Layout

Floats = npt.NDArray[np.float64]
CENTRED: dict[str, type[Centred]] = {"knorm": Classwise, "centred_gaussian": CentredGaussian}
"""Mechanisms that release histograms up to a constant, and the class counts beside them."""
WITH_DELTA = ("discrete_gaussian", "centred_gaussian")


def require_small_delta(codebook: Codebook, delta: float, rows: int | None, *, allow_large: bool = False) -> None:
    """Refuse a delta too large for the declared rows, or for `UNDECLARED_ROWS` where nobody declared any."""
    known = rows if rows is not None else codebook.expected_rows
    size = min(UNDECLARED_ROWS, codebook.max_rows) if known is None else known
    require_delta(delta, size, declared=known is not None, allow_large=allow_large)


@dataclass(frozen=True, slots=True)
class FeatureEncoding:
    """The released form of a feature: `cells` (a histogram with these edges, in fine cells), `moments`, `words`, `nothing`."""

    feature: str
    kind: Literal["cells", "moments", "words", "nothing"]
    edges: tuple[int, ...] = ()
    missing: bool = False  # a last cell counts the rows without a value
    reason: str = ""
    places: tuple[float, ...] = ()  # where the fine cells' edges lie on a scale from 0 to 1, if not evenly

    @property
    def cells(self) -> int:
        """Number of released cells, including the one for missing values."""
        return len(self.edges) - 1 + self.missing

    @property
    def fine(self) -> int:
        """Number of fine cells."""
        return self.edges[-1]


@dataclass(frozen=True)
class ReleaseItem:
    """One table of the released vector: (classes, cells), or one number per class. A record moves several cells of words."""

    name: str
    kind: Literal["classes", "cells", "n", "sum", "square", "words"]
    cells: int
    bound: int
    cut: FeatureEncoding | None = None

    @property
    def number(self) -> bool:
        return self.kind != "cells"


@dataclass(frozen=True)
class NoisyClassCounts:
    """Noisy class counts of an earlier stage, with the scale of their discrete Laplace noise."""

    counts: tuple[int, ...]
    scale: Fraction

    @property
    def rows(self) -> int:
        """Rows that a plan is made for: two deviations fewer, but not below the default."""
        noise = self.deviation * math.sqrt(len(self.counts))
        return max(1, sum(self.counts) - round(2 * noise), min(UNDECLARED_ROWS, round(noise)))

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in a count."""
        return math.sqrt(laplace_variance(float(self.scale)))


@dataclass(frozen=True)
class ReleasePlan:
    """Everything about one joint release that can be known before data is read."""

    declared: Codebook
    codebook: Codebook
    encodings: tuple[FeatureEncoding, ...]
    mechanism: str
    epsilon: Fraction
    delta: float
    rows: int | None
    rows_per_unit: int
    signal: float
    reasons: tuple[str, ...]
    class_counts: NoisyClassCounts | None = None  # of an earlier stage
    recount: bool = False  # class counts are released here too, although an earlier stage gave some
    stages: tuple[Stage, ...] = ()  # the other stages of the same fit

    # -- what is released ------------------------------------------------------------------------------------------------

    @cached_property
    def items(self) -> tuple[ReleaseItem, ...]:
        """Tables of the released vector, in order."""
        tables = [
            ReleaseItem(cut.feature, "cells", cut.cells, 1, cut)
            for cut in self.encodings
            if cut.kind == "cells" and cut.cells > 1
        ]
        # Independent noise gets the class counts from the histograms, which add up to them; centred ones do not hold them.
        counted = bool(tables) or (self.class_counts is not None and any(cut.kind == "words" for cut in self.encodings))
        own = (self.mechanism in CENTRED and (self.class_counts is None or self.recount)) or not counted
        items = [ReleaseItem("class counts", "classes", 1, 1)] if own else []
        for cut in self.encodings:
            if cut.kind == "cells" and cut.cells > 1:
                items.append(ReleaseItem(cut.feature, "cells", cut.cells, 1, cut))
            elif cut.kind == "moments":
                width = self.codebook.numeric(cut.feature).width - 1
                if cut.missing:
                    items.append(ReleaseItem(cut.feature, "n", 1, 1, cut))
                items.append(ReleaseItem(cut.feature, "sum", 1, width, cut))
                items.append(ReleaseItem(cut.feature, "square", 1, width * width, cut))
            elif cut.kind == "words":
                text = self.codebook.text(cut.feature)
                if text.has_documents:
                    items.append(ReleaseItem(cut.feature, "n", 1, 1, cut))
                max_words = require_max_words(text)
                if text.once and self.mechanism == "discrete_gaussian":  # as a Euclidean distance: m cells by 1 each
                    max_words = math.isqrt(max_words - 1) + 1
                items.append(ReleaseItem(cut.feature, "words", text.size, max_words, cut))
        return tuple(items)

    @cached_property
    def noise(self) -> Centred | Mechanism:
        """The mechanism with its price; asking it reads no data."""
        classes = len(self.declared.classes)
        if self.mechanism in CENTRED:
            if any(item.kind == "words" for item in self.items):
                raise ConfigError(f"{self.mechanism} has no form for text: take discrete_laplace, discrete_gaussian or auto")
            # Errors are weighed by what they do to a share: an average cell of r holds 1/r of the rows, so an error there
            # weighs r times as much. One in a class count is spread over every histogram, 1/r of it in each cell; a moment
            # counts like a number in a few cells.
            spread = 1.0 + sum(not item.number for item in self.items)
            parts = tuple(
                ReleasePart(item.name, 2, True, item.bound > 1, spread if item.kind == "classes" else float(CUTS))
                if item.number
                else ReleasePart(item.name, item.cells, weight=float(item.cells))
                for item in self.items
            )
            return CENTRED[self.mechanism](parts, self.epsilon, self.rows_per_unit, self._delta)
        blocks = tuple(
            SensitivityBlock(f"{item.name} {item.kind}", classes * item.cells, item.bound, spread=item.kind == "words")
            for item in self.items
        )
        return make(self.mechanism, Sensitivity(blocks, self.rows_per_unit), self.epsilon, self._delta)

    @property
    def _delta(self) -> float:
        return self.delta if self.mechanism in WITH_DELTA else 0.0

    @property
    def price(self) -> PrivacyCost:
        """Privacy loss of the release."""
        return self.noise.price

    @property
    def stage(self) -> Stage:
        """The release as the stage of a fit."""
        return Stage(
            name="tables" if any(item.kind != "classes" for item in self.items) else "class counts",
            mechanism=self.mechanism,
            epsilon=self.epsilon,
            unit=self.unit,
            sensitivity="in one class one row moves one cell of each table by 1, or a sum by its declared bound",
            sampler=self.noise.sampler,
            delta=self.price.delta,
            rho=self.price.rho,
        )

    @property
    def planned_rows(self) -> int:
        """The number of rows that the plan was made for."""
        guess = UNDECLARED_ROWS if self.class_counts is None else self.class_counts.rows
        return self.rows if self.rows is not None else min(guess, self.declared.max_rows)

    @property
    def unit(self) -> str:
        """The unit of privacy in words."""
        return unit_words(self.rows_per_unit)

    @cached_property
    def deviations(self) -> tuple[float, ...]:
        """Standard deviation of the noise in a cell of each item: in counts, or in units of a moment's bound."""
        if isinstance(self.noise, Centred):
            return tuple(math.sqrt(value) for value in self.noise.variances())
        bounds = np.array([item.bound for item in self.items], dtype=np.float64)
        grid = np.array(self.noise.grid_variances())
        step = float(self.noise.step)
        values = np.sqrt(grid) / step if step > 1 else np.sqrt(grid) / bounds
        return tuple(float(value) for value in values)

    def describe(self) -> dict[str, Any]:
        """Public facts for statements and reports."""
        shares: Any = None
        if isinstance(self.noise, Classwise):
            shares = [
                {
                    "parts": [self.items[index].name for index in group.parts],
                    "epsilon": float(group.epsilon),
                    "grid_step": group.step,
                }
                for group in self.noise.groups
            ]
        spread = {
            item.name: value * item.bound
            for item, value in zip(self.items, self.deviations, strict=True)
            if item.kind in ("cells", "words")
        }
        return {
            "mechanism": self.mechanism,
            "epsilon": float(self.epsilon),
            "delta": self._delta,
            "unit": self.unit,
            "adjacency": ADJACENCY,
            "declared_rows": self.rows,
            "sampler": self.noise.sampler,
            "groups": shares,
            "features": {
                cut.feature: {
                    "released_as": cut.kind,
                    "cells": cut.cells if cut.kind == "cells" else cut.fine if cut.kind == "words" else None,
                    "noise": spread.get(cut.feature),  # standard deviation in a cell, in counts
                    "why": cut.reason,
                }
                for cut in self.encodings
            },
            "reasons": list(self.reasons),
        }

    def __str__(self) -> str:
        return "\n".join((f"{self.mechanism}, {self.price}", *self.reasons))

    # -- the release -----------------------------------------------------------------------------------------------------

    def tables(self, statistics: Statistics) -> list[npt.NDArray[Any]]:
        """Return the exact integers that noise is added to, one table per item: (classes, cells)."""
        if statistics.codebook != self.codebook:
            raise ConfigError("these statistics were not counted with the plan's codebook; count with plan.codebook")
        classes = statistics.class_counts.astype(object)
        out: list[npt.NDArray[Any]] = []
        for item in self.items:
            if item.cut is None:
                out.append(classes[:, None])
                continue
            if item.kind == "cells":
                counts = statistics.counts[item.name].astype(object)
                joined = np.add.reduceat(counts, item.cut.edges[:-1], axis=1)
                if item.cut.missing:
                    joined = np.column_stack([joined, classes - counts.sum(axis=1)])
                out.append(joined)
                continue
            if item.cut.kind == "words":
                own = statistics.documents(item.name)[:, None] if item.kind == "n" else statistics.bags[item.name]
                out.append(own.astype(object))
                continue
            feature = self.codebook.numeric(item.name)
            n = statistics.n[item.name].astype(object)
            sums, squares = statistics.sums[item.name].astype(object), statistics.squares[item.name].astype(object)
            middle, width = feature.code_low + feature.code_high, feature.width - 1
            if item.kind == "n":
                out.append(n[:, None])
            elif item.kind == "sum":  # of y = 2 code - (low + high), |y| <= width
                out.append((2 * sums - middle * n)[:, None])
            else:  # of 2 y^2 - width^2, at most width^2
                out.append((2 * (4 * squares - 4 * middle * sums + middle**2 * n) - width**2 * n)[:, None])
        return out

    def tables_of(self, rows: CodedRows, units: npt.NDArray[np.int64], count: int) -> list[npt.NDArray[np.int64]]:
        """Return what each of `count` units adds to `tables`, (units, classes, cells); `units` says whose each row is."""
        labels, classes = rows.known_labels, len(self.declared.classes)
        out = []
        for item in self.items:
            if item.cut is None:
                cells, present = np.zeros(rows.rows, np.int64), np.ones(rows.rows, dtype=bool)
            elif item.kind == "cells":
                codes = rows.columns[item.name]
                cells, present = np.searchsorted(item.cut.edges, codes, side="right") - 1, codes >= 0
                if item.cut.missing:
                    cells, present = np.where(present, cells, item.cells - 1), np.ones(rows.rows, dtype=bool)
            else:
                raise ConfigError("only counts of classes and cells are known by unit: declare bins, and leave texts out")
            place = (units * classes + labels) * item.cells + cells
            size = count * classes * item.cells
            out.append(np.bincount(place[present], minlength=size).reshape(count, classes, item.cells).astype(np.int64))
        return out

    def release(self, statistics: Statistics, coins: Coins) -> NoisyStatistics:
        """Add noise to all tables. Every call is a release: the price must have been charged before."""
        return NoisyStatistics(self, tuple(table[0] for table in self.releases(statistics, coins, 1)))

    def releases(self, statistics: Statistics, coins: Coins, count: int) -> list[Floats]:
        """Return the tables of `count` independent releases, along the first axis, for audits. Each costs the price."""
        tables = self.tables(statistics)
        if isinstance(self.noise, Centred):
            return self.noise.releases(tables, [item.bound for item in self.items], coins, count)
        released = self.noise.releases(_joined([table.ravel() for table in tables]), coins, count)
        pieces = np.split(released, np.cumsum([table.size for table in tables])[:-1], axis=1)
        return [
            piece.reshape(count, *table.shape).astype(np.float64) / item.bound
            for piece, table, item in zip(pieces, tables, self.items, strict=True)
        ]


def _joined(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    vector = np.concatenate(parts)
    return vector.astype(np.int64) if all(abs(value) < 1 << 62 for value in vector) else vector


@dataclass(frozen=True)
class NoisyStatistics:
    """Released tables, one per item of the plan, in counts or units of a moment's bound. All of it is public."""

    plan: ReleasePlan
    tables: tuple[Floats, ...]
    min_cell: int = 0  # smaller noisy counts are published as 0, and the model is made without them

    def _suppressed(self, counts: Floats) -> Floats:
        return np.where(counts < self.min_cell, 0.0, counts) if self.min_cell else counts

    @cached_property
    def _counts(self) -> tuple[Floats, float]:
        """Noisy class counts and their standard deviation."""
        plan = self.plan
        totals, weights = [], []
        if plan.class_counts is not None:
            totals.append(np.array(plan.class_counts.counts, dtype=np.float64))
            weights.append(1 / max(plan.class_counts.deviation, 1e-9) ** 2)
        for item, table, deviation in zip(plan.items, self.tables, plan.deviations, strict=True):
            if item.kind == "classes" or (item.kind == "cells" and not isinstance(plan.noise, Centred)):
                totals.append(table.sum(axis=1))
                weights.append(1 / (item.cells * max(deviation, 1e-9) ** 2))
        weight = np.array(weights)
        return np.average(totals, axis=0, weights=weight), float(1 / math.sqrt(weight.sum()))

    @property
    def class_counts(self) -> Floats:
        """Noisy class counts: as released, or the weighted mean of the histograms' sums."""
        return self._suppressed(self._counts[0])

    @property
    def class_deviation(self) -> float:
        """The standard deviation of the noise in a class count."""
        return self._counts[1]

    @cached_property
    def sizes(self) -> postprocess.ClassSizes:
        return postprocess.class_sizes(self.class_counts, self._counts[1], self.plan.rows)

    def cells(self, name: str) -> tuple[Floats, float]:
        """Return a feature's noisy counts, adjusted to add up to the class sizes, and the noise deviation of a cell."""
        index = next(at for at, item in enumerate(self.plan.items) if item.name == name and item.kind == "cells")
        table, deviation = self._suppressed(self.tables[index]), self.plan.deviations[index]
        width = table.shape[1]
        level = table + ((self.sizes.rows - table.sum(axis=1)) / width)[:, None]
        if not isinstance(self.plan.noise, Centred):
            deviation *= math.sqrt((width - 1) / width)
        return np.asarray(level), deviation

    def _hidden(self, cut: FeatureEncoding, cells: Floats, rows: Floats) -> npt.NDArray[np.bool_]:
        """Return a mask of the cells to publish as 0: below `min_cell` before or after adjustment, or of a class that is 0."""
        hidden = (cells < self.min_cell) | (rows == 0)[:, None]
        for item, table in zip(self.plan.items, self.tables, strict=True):
            if item.name == cut.feature and item.kind == "cells" and cut.cells > 1:
                hidden |= table[:, : cells.shape[1]] < self.min_cell
        return np.asarray(hidden)

    def moments(self, name: str) -> tuple[Floats, Floats, float, Floats | None]:
        """Return noisy sums of z and 2 z^2 - 1 per class (z in [-1, 1]), the noise deviation, and noisy numbers of values."""
        values = {
            item.kind: (table[:, 0], deviation)
            for item, table, deviation in zip(self.plan.items, self.tables, self.plan.deviations, strict=True)
            if item.name == name
        }
        present = self._suppressed(values["n"][0]) if "n" in values else None
        large = (self.class_counts if present is None else present) >= self.min_cell if self.min_cell else np.True_
        return values["sum"][0] * large, values["square"][0] * large, max(values["sum"][1], values["square"][1]), present

    def words(self, name: str) -> tuple[Floats, float, Floats]:
        """Return noisy counts of words, (classes, words), the noise deviation of one, and the documents of each class."""
        values = {
            item.kind: (item, table, deviation)
            for item, table, deviation in zip(self.plan.items, self.tables, self.plan.deviations, strict=True)
            if item.name == name
        }
        item, table, deviation = values["words"]
        documents = np.maximum(self._suppressed(values["n"][1][:, 0]), 0.5) if "n" in values else self.sizes.rows
        return self._suppressed(table * item.bound), deviation * item.bound, documents

    @cached_property
    def statistics(self) -> Statistics:
        """Integer statistics for the model file: cells spread evenly over the fine cells of `plan.codebook`."""
        plan = self.plan
        layout = Layout(plan.codebook)
        vector = np.zeros(layout.size, dtype=object)
        rows = self.sizes.rows
        if self.min_cell:
            rows = self._suppressed(np.where(self.class_counts > 0, rows, 0.0))
        for group in layout.groups:
            where = layout.slice(group)
            if group.feature is None:
                vector[where] = _whole(rows)
                continue
            cut = next(cut for cut in plan.encodings if cut.feature == group.feature.name)
            if group.kind == "count":
                if cut.kind == "cells" and cut.cells > 1:
                    cells = self.cells(cut.feature)[0][:, : len(cut.edges) - 1]
                else:
                    cells = rows[:, None]
                edges = cut.edges if cut.kind == "cells" else (0, group.columns)
                fine = postprocess.spread_cells(cells, edges)
                whole = np.diff(np.floor(np.cumsum(fine, axis=1) + 0.5), axis=1, prepend=0).astype(np.int64)
                if self.min_cell:
                    whole[np.repeat(self._hidden(cut, cells, rows), np.diff(edges), axis=1)] = 0
                vector[where] = whole.ravel()
                continue
            if cut.kind == "nothing":
                continue
            if cut.kind == "words":
                uses, _, documents = self.words(cut.feature)
                limit = documents[:, None] if plan.codebook.text(cut.feature).once else math.inf
                values = documents[:, None] if group.kind == "n" else np.clip(uses, 0, limit)
                values = np.where((rows == 0)[:, None], 0.0, values)
                vector[where] = np.floor(values + 0.5).astype(np.int64).ravel()
                continue
            feature = plan.codebook.numeric(cut.feature)
            first, second, _, present = self.moments(cut.feature)
            n = rows if present is None else np.maximum(present, 0)
            middle, width = feature.code_low + feature.code_high, feature.width - 1
            if group.kind == "n":
                vector[where] = _whole(n)
            elif group.kind == "sum":
                vector[where] = _whole((first * width + middle * n) / 2)
            else:
                sums = (first * width + middle * n) / 2
                doubled = (second + n) * width**2 / 2  # sum of y^2
                vector[where] = _whole((doubled + 4 * middle * sums - middle**2 * n) / 4)
            if self.min_cell:
                vector[where][(n < self.min_cell) | (rows == 0)] = 0
        return Statistics(layout, vector)


def _whole(values: Floats) -> npt.NDArray[Any]:
    return np.array([math.floor(value + 0.5) for value in values], dtype=object)
