"""The plan of one joint release, made from public facts alone, and the release itself.

    plan = plan_release(codebook, epsilon=1.0, rows=50_000)      # price, mechanism, cells and the reasons: no data is read
    noisy = plan.release(count(source, plan.codebook), coins)    # one release of everything; the caller has charged the price
    parameters = fit_parameters(noisy, alpha=1.0)                # post-processing

The plan decides how each numeric feature is represented (cells, moments, or not at all), which noise is drawn, and how the
budget is shared. It looks at the codebook, epsilon, delta, the unit of privacy and the *declared* number of rows, never at
data. `plan.codebook` is the codebook to count with: numeric features get fine cells there, which the plan joins into the
wider cells that are released.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Codebook, Feature, Numeric
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.model.parameters import Gaussian, Histogram, Parameters, Term
from blindbayes.primitives.coins import Coins
from blindbayes.privacy import postprocess
from blindbayes.privacy.chance import Number, positive
from blindbayes.privacy.classwise import Classwise, Part
from blindbayes.privacy.mechanisms import Mechanism, Price, make
from blindbayes.privacy.sensitivity import ADJACENCY, Block, Sensitivity
from blindbayes.statistics import Statistics
from blindbayes.statistics.layout import Layout

Floats = npt.NDArray[np.float64]
JOINT_MECHANISMS = ("knorm", "discrete_laplace", "discrete_gaussian")
FINE = 240
"""Cells per numeric feature at which a model is scored: divisible by every number of released cells."""
REFERENCE_CELLS = 8
UNDECLARED_ROWS = 1000
LEAST_SIGNAL = 0.2
"""Rows in an average cell over its noise below which features are not released: they would only mislead."""
MANY_GRID_POINTS = 20_000
_CELLS = ((2.0, 2), (5.0, 3), (40.0, 6), (100.0, 12), (300.0, 16), (600.0, 24), (math.inf, 48))  # by signal
_MOMENT_SIGNAL = 300.0
_FIT_SIGNAL = 60.0
_FIT_ROWS = 5000.0


@dataclass(frozen=True, slots=True)
class Cut:
    """How a feature is released: `cells` (a histogram with these edges, in fine cells), `moments`, or `nothing`."""

    feature: str
    kind: Literal["cells", "moments", "nothing"]
    edges: tuple[int, ...] = ()
    missing: bool = False  # a last cell counts the rows without a value
    reason: str = ""

    @property
    def cells(self) -> int:
        """Number of cells released, the one for missing included."""
        return len(self.edges) - 1 + self.missing

    @property
    def fine(self) -> int:
        """Number of fine cells."""
        return self.edges[-1]


@dataclass(frozen=True)
class _Item:
    """One table of the released vector: (classes, cells), or one number per class."""

    name: str
    kind: Literal["classes", "cells", "n", "sum", "square"]
    cells: int
    bound: int
    cut: Cut | None = None

    @property
    def number(self) -> bool:
        return self.kind != "cells"


@dataclass(frozen=True)
class ReleasePlan:
    """Everything about one joint release that can be known before data is read."""

    declared: Codebook
    codebook: Codebook
    cuts: tuple[Cut, ...]
    mechanism: str
    epsilon: Fraction
    delta: float
    rows: int | None
    rows_per_unit: int
    signal: float
    reasons: tuple[str, ...]

    # -- what is released ------------------------------------------------------------------------------------------------

    @cached_property
    def items(self) -> tuple[_Item, ...]:
        """The tables of the released vector, in order."""
        classwise = self.mechanism == "knorm"
        tables = [_Item(cut.feature, "cells", cut.cells, 1, cut) for cut in self.cuts if cut.kind == "cells" and cut.cells > 1]
        # Independent noise gets the class counts from the histograms, which add up to them; centred ones do not hold them.
        items = [_Item("class counts", "classes", 1, 1)] if classwise or not tables else []
        for cut in self.cuts:
            if cut.kind == "cells" and cut.cells > 1:
                items.append(_Item(cut.feature, "cells", cut.cells, 1, cut))
            elif cut.kind == "moments":
                feature = self.codebook.feature(cut.feature)
                assert isinstance(feature, Numeric)
                width = feature.width - 1
                if cut.missing:
                    items.append(_Item(cut.feature, "n", 1, 1, cut))
                items.append(_Item(cut.feature, "sum", 1, width, cut))
                items.append(_Item(cut.feature, "square", 1, width * width, cut))
        return tuple(items)

    @cached_property
    def noise(self) -> Classwise | Mechanism:
        """The mechanism with its price; asking it reads no data."""
        classes = len(self.declared.classes)
        if self.mechanism == "knorm":
            # An error in a class count is spread over the cells of every histogram, 1/r of it in each.
            spread = 1 + sum(1 / item.cells for item in self.items if not item.number)
            parts = tuple(
                Part(item.name, 2, True, item.bound > 1, spread if item.kind == "classes" else 1.0)
                if item.number
                else Part(item.name, item.cells)
                for item in self.items
            )
            return Classwise(parts, self.epsilon, self.rows_per_unit)
        blocks = tuple(Block(f"{item.name} {item.kind}", classes * item.cells, item.bound) for item in self.items)
        return make(self.mechanism, Sensitivity(blocks, self.rows_per_unit), self.epsilon, self._delta)

    @property
    def _delta(self) -> float:
        return self.delta if self.mechanism == "discrete_gaussian" else 0.0

    @property
    def price(self) -> Price:
        """What the release costs."""
        if isinstance(self.noise, Classwise):
            return Price(float(self.epsilon), 0.0, self.unit)
        return self.noise.price

    @property
    def unit(self) -> str:
        """What is protected, in words."""
        return "one record" if self.rows_per_unit == 1 else f"one person with at most {self.rows_per_unit} records"

    @cached_property
    def deviations(self) -> tuple[float, ...]:
        """Standard deviation of the noise in a cell of each item: in counts, or in units of a moment's bound."""
        if isinstance(self.noise, Classwise):
            return tuple(math.sqrt(value) for value in self.noise.variances())
        bounds = np.array([item.bound for item in self.items], dtype=np.float64)
        grid = np.array(self.noise.grid_variances())
        step = float(self.noise.step)
        values = np.sqrt(grid) / step if step > 1 else np.sqrt(grid) / bounds
        return tuple(float(value) for value in values)

    def describe(self) -> dict[str, Any]:
        """Public facts for statements and reports."""
        if isinstance(self.noise, Classwise):
            shares: Any = [
                {
                    "parts": [self.items[index].name for index in group.parts],
                    "epsilon": float(group.epsilon),
                    "grid_step": group.step,
                }
                for group in self.noise.groups
            ]
            sampler = "exact K-norm by class on centred histograms: radius by rejection from exact geometrics, uniform point"
        else:
            shares, sampler = None, self.noise.sampler
        return {
            "mechanism": self.mechanism,
            "epsilon": float(self.epsilon),
            "delta": self._delta,
            "unit": self.unit,
            "adjacency": ADJACENCY,
            "declared_rows": self.rows,
            "sampler": sampler,
            "groups": shares,
            "features": {
                cut.feature: {
                    "released_as": cut.kind,
                    "cells": cut.cells if cut.kind == "cells" else None,
                    "why": cut.reason,
                }
                for cut in self.cuts
            },
            "reasons": list(self.reasons),
        }

    def __str__(self) -> str:
        return "\n".join((f"{self.mechanism}, {self.price}", *self.reasons))

    # -- the release -----------------------------------------------------------------------------------------------------

    def tables(self, statistics: Statistics) -> list[npt.NDArray[Any]]:
        """The exact integers that noise is added to, one table per item: (classes, cells)."""
        if statistics.codebook != self.codebook:
            raise ConfigError("these statistics were not counted with the plan's codebook; count with plan.codebook")
        classes = statistics.class_counts.astype(object)
        out: list[npt.NDArray[Any]] = []
        for item in self.items:
            if item.kind == "classes":
                out.append(classes[:, None])
                continue
            assert item.cut is not None
            if item.kind == "cells":
                counts = statistics.counts[item.name].astype(object)
                joined = np.add.reduceat(counts, item.cut.edges[:-1], axis=1)
                if item.cut.missing:
                    joined = np.column_stack([joined, classes - counts.sum(axis=1)])
                out.append(joined)
                continue
            feature = self.codebook.feature(item.name)
            assert isinstance(feature, Numeric)
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

    def release(self, statistics: Statistics, coins: Coins) -> NoisyStatistics:
        """Add noise to everything at once. Every call is a release of its own: the price must have been charged before."""
        tables = self.tables(statistics)
        if isinstance(self.noise, Classwise):
            noisy = self.noise.release(tables, [item.bound for item in self.items], coins)
        else:
            released = self.noise.release(_joined([table.ravel() for table in tables]), coins)
            pieces = np.split(released, np.cumsum([table.size for table in tables])[:-1])
            noisy = [
                piece.reshape(table.shape).astype(np.float64) / item.bound
                for piece, table, item in zip(pieces, tables, self.items, strict=True)
            ]
        return NoisyStatistics(self, tuple(noisy))


def _joined(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    vector = np.concatenate(parts)
    return vector.astype(np.int64) if all(abs(value) < 1 << 62 for value in vector) else vector


@dataclass(frozen=True)
class NoisyStatistics:
    """What was released: one table per item of the plan, counts or units of a moment's bound. Public from here on."""

    plan: ReleasePlan
    tables: tuple[Floats, ...]

    @cached_property
    def _counts(self) -> tuple[Floats, float]:
        """Noisy class counts and their standard deviation."""
        plan = self.plan
        for item, table, deviation in zip(plan.items, self.tables, plan.deviations, strict=True):
            if item.kind == "classes":
                return table[:, 0], deviation
        totals, weights = [], []
        for item, table, deviation in zip(plan.items, self.tables, plan.deviations, strict=True):
            if item.kind == "cells":
                totals.append(table.sum(axis=1))
                weights.append(1 / (item.cells * deviation**2))
        weight = np.array(weights)
        return np.average(totals, axis=0, weights=weight), float(1 / math.sqrt(weight.sum()))

    @property
    def class_counts(self) -> Floats:
        """Noisy class counts: released, or the weighted mean of what the histograms add up to."""
        return self._counts[0]

    @cached_property
    def sizes(self) -> postprocess.ClassSizes:
        """Estimated class sizes."""
        return postprocess.class_sizes(self._counts[0], self._counts[1], self.plan.rows)

    def cells(self, name: str) -> tuple[Floats, float]:
        """A feature's noisy counts, made to add up to the class sizes, and the noise deviation of a cell."""
        index = next(at for at, item in enumerate(self.plan.items) if item.name == name and item.kind == "cells")
        table, deviation = self.tables[index], self.plan.deviations[index]
        width = table.shape[1]
        level = table + ((self.sizes.rows - table.sum(axis=1)) / width)[:, None]
        if not isinstance(self.plan.noise, Classwise):
            deviation *= math.sqrt((width - 1) / width)
        return np.asarray(level), deviation

    def moments(self, name: str) -> tuple[Floats, Floats, float, Floats | None]:
        """Noisy sums of z and 2 z^2 - 1 per class (z in [-1, 1]), the noise deviation, and noisy numbers of values."""
        found = {
            item.kind: (table[:, 0], deviation)
            for item, table, deviation in zip(self.plan.items, self.tables, self.plan.deviations, strict=True)
            if item.name == name
        }
        present = found["n"][0] if "n" in found else None
        return found["sum"][0], found["square"][0], max(found["sum"][1], found["square"][1]), present

    @cached_property
    def statistics(self) -> Statistics:
        """Whole-number statistics for the record: cells spread evenly over the fine cells of `plan.codebook`."""
        plan = self.plan
        layout = Layout(plan.codebook)
        vector = np.zeros(layout.size, dtype=object)
        rows = self.sizes.rows
        for group in layout.groups:
            where = layout.slice(group)
            if group.feature is None:
                vector[where] = _whole(rows)
                continue
            cut = next(cut for cut in plan.cuts if cut.feature == group.feature.name)
            if group.kind == "count":
                if cut.kind == "cells" and cut.cells > 1:
                    cells = self.cells(cut.feature)[0][:, : len(cut.edges) - 1]
                else:
                    cells = rows[:, None]
                edges = cut.edges if cut.kind == "cells" else (0, group.columns)
                fine = postprocess.spread_cells(cells, edges)
                vector[where] = np.diff(np.floor(np.cumsum(fine, axis=1) + 0.5), axis=1, prepend=0).astype(np.int64).ravel()
                continue
            assert isinstance(group.feature, Numeric)
            if cut.kind == "nothing":
                continue
            first, second, _, present = self.moments(cut.feature)
            n = rows if present is None else np.maximum(present, 0)
            middle, width = group.feature.code_low + group.feature.code_high, group.feature.width - 1
            if group.kind == "n":
                vector[where] = _whole(n)
            elif group.kind == "sum":
                vector[where] = _whole((first * width + middle * n) / 2)
            else:
                sums = (first * width + middle * n) / 2
                doubled = (second + n) * width**2 / 2  # sum of y^2
                vector[where] = _whole((doubled + 4 * middle * sums - middle**2 * n) / 4)
        return Statistics(layout, vector)


def _whole(values: Floats) -> npt.NDArray[Any]:
    return np.array([math.floor(value + 0.5) for value in values], dtype=object)


# -- planning ----------------------------------------------------------------------------------------------------------


def plan_release(
    codebook: Codebook,
    *,
    epsilon: Number,
    delta: float = 0.0,
    mechanism: str = "auto",
    rows: int | None = None,
    rows_per_unit: int = 1,
) -> ReleasePlan:
    """The best joint release for this codebook and budget, from public facts.

    `rows` is the declared size of the table (by default the codebook's `expected_rows`): a public figure or a guess, never
    `len(X)`; it decides how fine the cells are and
    steadies the estimates. `rows_per_unit` is how many rows one person may have (1: the unit of privacy is a record).
    """
    exact = positive(epsilon, "epsilon")
    if codebook.provenance == "inferred":
        raise PrivacyError("a codebook inferred from the training data leaks them: declare one (Codebook.from_toml)")
    if mechanism not in ("auto", *JOINT_MECHANISMS):
        raise ConfigError(f"unknown mechanism {mechanism!r}: one of auto, {', '.join(JOINT_MECHANISMS)}, smooth, global")
    rows = codebook.expected_rows if rows is None else rows
    if rows is not None and rows < 1:
        raise ConfigError("rows, the declared size of the table, must be at least one")
    if rows_per_unit < 1:
        raise ConfigError("rows_per_unit must be at least one: declare how many rows one person may have")
    if mechanism == "auto":
        names = [name for name in JOINT_MECHANISMS if name != "discrete_gaussian" or delta > 0]
    else:
        names = [mechanism]
    if mechanism == "discrete_gaussian" and not delta:
        raise ConfigError("discrete_gaussian needs delta above zero, well below one over the number of rows")

    def draft(name: str, cuts: tuple[Cut, ...], signal: float, reasons: tuple[str, ...]) -> ReleasePlan:
        counted = codebook.with_features(_counted(feature, cut) for feature, cut in zip(codebook.features, cuts, strict=True))
        return ReleasePlan(codebook, counted, cuts, name, exact, delta, rows, rows_per_unit, signal, reasons)

    size = rows if rows is not None else min(UNDECLARED_ROWS, codebook.max_rows)
    reference = tuple(_cut(feature, lambda _: (REFERENCE_CELLS, "")) for feature in codebook.features)
    signals = {name: _signal(draft(name, reference, 0.0, ()), size) for name in names}
    plans = {name: draft(name, _cuts(codebook, signal), signal, ()) for name, signal in signals.items()}
    # Mechanisms are compared on the same cells: those of the one that can afford the fewest.
    fewest = min(plans.values(), key=lambda plan: plan.signal).cuts
    noises = {name: 1 / _signal(draft(name, fewest, 0.0, ()), size) for name in names}
    chosen = min(names, key=lambda name: noises[name])
    plan = plans[chosen]
    reasons = [_why_mechanism(chosen, noises, mechanism)]
    declared = "declared rows" if rows is not None else f"rows not declared, planned for {size}"
    reasons.append(f"signal {plan.signal:.3g}: rows per class over the noise of one of {REFERENCE_CELLS} cells ({declared})")
    if _signal(plan, size, average_cell=True) < LEAST_SIGNAL:
        reasons.append("noise would drown every feature: only the class counts are released, and the model predicts by them")
        cuts = tuple(Cut(feature.name, "nothing", reason="noise would drown it") for feature in codebook.features)
        return draft(chosen, cuts, plan.signal, tuple(reasons))
    if any(isinstance(feature, Numeric) for feature in codebook.features):
        reasons.append(f"numeric features in {_cell_count(plan.signal)} cells: more would cost more in noise than they tell")
    return draft(chosen, plan.cuts, plan.signal, tuple(reasons))


def _cell_count(signal: float) -> int:
    return next(count for limit, count in _CELLS if signal < limit)


def _cuts(codebook: Codebook, signal: float) -> tuple[Cut, ...]:
    """How each feature is released, by the signal."""
    cells = _cell_count(signal)

    def rule(feature: Numeric) -> tuple[int, str]:
        if signal >= _MOMENT_SIGNAL and feature.width > MANY_GRID_POINTS:
            return 0, f"moments: {feature.width} grid points span too many orders of magnitude for equal cells"
        return cells, f"{cells} cells for this signal"

    return tuple(_cut(feature, rule) for feature in codebook.features)


def _why_mechanism(chosen: str, noises: Mapping[str, float], asked: str) -> str:
    if asked != "auto":
        return f"{chosen}: asked for"
    others = ", ".join(f"{name} has {noises[name] / noises[chosen]:.2f} times as much" for name in noises if name != chosen)
    return f"{chosen}: the least noise ({others})"


def _signal(plan: ReleasePlan, rows: int, *, average_cell: bool = False) -> float:
    """Rows per class (or in the average cell of a class) over the noise of a cell: root mean square over features."""
    squares = []
    for item, deviation in zip(plan.items, plan.deviations, strict=True):
        if item.kind != "classes":
            centred = 1.0 if plan.mechanism == "knorm" or item.number else (item.cells - 1) / item.cells
            squares.append(deviation**2 * centred * (item.cells**2 if average_cell else 1))
    if not squares:
        return math.inf
    return rows / len(plan.declared.classes) / math.sqrt(sum(squares) / len(squares))


def _cut(feature: Feature, rule: Callable[[Numeric], tuple[int, str]]) -> Cut:
    if isinstance(feature, Categorical):
        return Cut(feature.name, "cells", tuple(range(feature.size + 1)), missing=feature.optional, reason="its values")
    if feature.bins is not None:
        return Cut(
            feature.name, "cells", tuple(range(feature.bins + 1)), missing=feature.optional, reason="bins of the codebook"
        )
    if feature.width == 1:
        return Cut(feature.name, "nothing", reason="its bounds are equal: nothing to learn")
    cells, reason = rule(feature)
    if cells == 0:
        return Cut(feature.name, "moments", missing=feature.optional, reason=reason)
    fine = min(FINE, feature.width)
    edges = sorted({round(fine * at / cells) for at in range(cells + 1)})
    return Cut(feature.name, "cells", tuple(edges), feature.optional, reason)


def _counted(feature: Feature, cut: Cut) -> Feature:
    """The feature as it is counted: with fine cells where it is released in cells."""
    if isinstance(feature, Categorical) or feature.bins is not None or cut.kind == "moments":
        return feature
    return msgspec.structs.replace(feature, bins=cut.fine if cut.kind == "cells" else 1)


# -- parameters --------------------------------------------------------------------------------------------------------


def fit_parameters(noisy: NoisyStatistics, *, alpha: float = 1.0) -> Parameters:
    """The model of a release: post-processing only. `alpha` / 2 is the least count that any cell is given."""
    if not (math.isfinite(alpha) and alpha > 0):
        raise ConfigError("alpha must be a positive number")
    plan, sizes = noisy.plan, noisy.sizes
    classes = len(plan.codebook.classes)
    terms: dict[str, Term] = {}
    ordered: dict[tuple[int, ...], list[Cut]] = {}
    for feature, cut in zip(plan.codebook.features, plan.cuts, strict=True):
        if cut.kind == "moments":
            assert isinstance(feature, Numeric)
            terms[feature.name] = _gaussian(noisy, feature, plan.codebook.variance_floor)
        elif cut.kind == "nothing" or len(cut.edges) == 2:
            width = feature.size if isinstance(feature, Categorical) or feature.bins is not None else 1
            terms[feature.name] = Histogram(np.full((classes, width), -math.log(width)))
        else:
            cells, deviation = noisy.cells(feature.name)
            table = postprocess.shrink_histogram(cells, sizes, deviation, alpha)[:, : len(cut.edges) - 1]
            table = table / table.sum(axis=1, keepdims=True)
            terms[feature.name] = Histogram(np.log(postprocess.spread_cells(table, cut.edges)))
            if isinstance(feature, Numeric) and feature.width <= MANY_GRID_POINTS:
                ordered.setdefault(cut.edges, []).append(cut)
    # A normal law saves noise, and is never quite true: it gives way with more signal and with more rows to contradict it.
    trust = 1 / (1 + plan.signal / _FIT_SIGNAL) / (1 + sizes.total / classes / _FIT_ROWS)
    if trust > 0.1:
        for edges, cuts in ordered.items():
            for cut, law in zip(cuts, _fitted(noisy, cuts, edges, alpha), strict=True):
                old = terms[cut.feature]
                assert isinstance(old, Histogram)
                log = trust * np.log(law) + (1 - trust) * old.log_prob
                top = log.max(axis=1, keepdims=True)
                terms[cut.feature] = Histogram(log - top - np.log(np.exp(log - top).sum(axis=1, keepdims=True)))
    return Parameters(plan.codebook, sizes.log_prior, {name: terms[name] for name in plan.codebook.names})


def _fitted(noisy: NoisyStatistics, cuts: Sequence[Cut], edges: tuple[int, ...], alpha: float) -> list[Floats]:
    """P(fine cell | class) of features cut alike, from normal laws fitted to their noisy cells."""
    sizes = noisy.sizes
    width = len(edges) - 1
    found = [noisy.cells(cut.feature) for cut in cuts]
    cells = np.stack([table[:, :width] for table, _ in found])
    deviations = np.array([deviation for _, deviation in found])
    rows = np.tile(sizes.rows, (len(cuts), 1))
    for at, cut in enumerate(cuts):
        if cut.missing:
            absent = found[at][0][:, width]
            table = np.stack([absent, sizes.rows - absent], axis=1)
            rows[at] *= postprocess.shrink_histogram(table, sizes, deviations[at], alpha)[:, 1]
    laws = postprocess.fit_normal(cells, rows, deviations, sizes.deviation, edges, edges[-1])
    return [
        np.maximum(postprocess.blend_cells(law, *part, edges, alpha), 1e-12)
        for law, part in zip(laws, zip(cells, rows, deviations, strict=True), strict=True)
    ]


def _gaussian(noisy: NoisyStatistics, feature: Numeric, floor: float | None) -> Gaussian:
    first, second, deviation, present = noisy.moments(feature.name)
    sizes = noisy.sizes
    if present is not None:
        sizes = postprocess.ClassSizes(np.clip(present, 1.0, np.maximum(sizes.rows, 1.0)), sizes.deviation)
    mean, variance = postprocess.shrink_moments(first, second, sizes, deviation)
    half = (feature.width - 1) / 2 / feature.scale
    middle = (feature.grid_low + feature.grid_high) / 2 / feature.scale
    least = max(floor or 0.0, 1 / (12 * feature.scale**2))
    return Gaussian(middle + half * mean, np.maximum(variance * half**2, least))
