"""Marginals and synthetic rows of a fitted model, by post-processing alone.

A Naive Bayes model is a table of class-by-feature marginals. So rows that are drawn from it are a function of the model and of
fresh coins: of a private model they cost no further privacy (post-processing, `dp/PROOFS.md`). In the rows, features are
independent within a class, whatever they are in the population; only class-by-feature tables of the rows mean anything.

What is drawn: the class by its share; then, for each feature by itself, missing by the share of rows without a value
(optional features), a category or cell by P(value | class), a number evenly within its cell, or on the grid between the
bounds by the exponential of a parabola that has its mean and variance.

A private model of one table may be more than its marginals: a selected rule moves P(value | class) and the prior away from
the population. Rows and marginals describe the population: shares and tables as estimated from the released noisy tables.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from blindbayes.codebook import Categorical, Feature, Numeric, Text
from blindbayes.crypto.coins import Coins
from blindbayes.data.libraries import pa
from blindbayes.dp.release.intervals import Released
from blindbayes.dp.release.noisy_parameters import fit_parameters
from blindbayes.dp.release.release_plan import NoisyStatistics
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.naive_bayes.base import BaseNaiveBayes
from blindbayes.naive_bayes.model_file import ModelRecord
from blindbayes.report.weight_of_evidence import range_name, value_names
from blindbayes.statistics import Statistics
from blindbayes.statistics.parameters import FloatArray, Gaussian, Histogram, Parameters, WordTable

MAX_ROWS = 100_000_000
INDEPENDENT = (
    "Features are independent within a class in these rows, whatever they are in the population: use class-by-feature tables "
    "of the rows, and no relation between two features."
)
NO_COST = "The rows are computed from the release alone (post-processing): no privacy was spent and no ledger was charged."
NOT_PRIVATE = (
    "The model behind these rows is exact, not private: its counts can be estimated from the rows. Treat the rows as the model."
)
MEASUREMENTS = "blindbayes.measurements/1"
_BITS = 40  # of each uniform number: sums with a class's index stay exact up to 2^13 classes
_MAX_GRID = 1 << 16  # a number with more grid points is drawn by inverting its normal distribution
_NEWTON_STEPS, _MOMENT_ERROR = 60, 1e-6


def require_private(model: BaseNaiveBayes, *, allow_exact: bool) -> None:
    """Raise `PrivacyError` for a model without noise, unless the caller agrees.

    Those who hold an exact model can compute all of this. Rows look harmless, though, and travel further than the model:
    to people to whom nobody released it.
    """
    if getattr(model, "privacy_", None) is None and not allow_exact:
        raise PrivacyError(
            "this model is exact, not differentially private: synthetic rows would look anonymous and reveal its counts to "
            "people who were not given the model. Release with epsilon; or pass --allow-exact (allow_exact=True) and treat "
            "the rows as the model is treated"
        )


@dataclass(frozen=True, slots=True)
class _Column:
    """The distribution of one feature by class."""

    feature: Feature
    term: Any
    missing: FloatArray  # share of rows without a value, by class


class Synthesizer:
    """Draw rows from a fitted model.

    Parameters
    ----------
    model : NaiveBayes or PrivateNaiveBayes
        A fitted model, for example of `load`.
    allow_exact : bool, default=False
        Agree to rows from a model that is not private.
    """

    def __init__(self, model: BaseNaiveBayes, *, allow_exact: bool = False) -> None:
        require_private(model, allow_exact=allow_exact)
        record = self._record = model._record()
        self.codebook = record.parameters.codebook
        self.statistics = record.statistics
        self.private = record.privacy is not None
        parameters = _estimated(record)
        counted = np.exp(parameters.log_prior)
        if record.statistics is not None and record.statistics.class_counts.max() > 0:
            counted = np.maximum(record.statistics.class_counts.astype(np.float64), 0.0)
        self.shares: FloatArray = counted / counted.sum()
        self._columns = {
            each.name: _Column(each, parameters.terms[each.name], _missing(each, record.statistics, len(self.shares)))
            for each in self.codebook.features
        }

    # -- rows ----------------------------------------------------------------------------------------------------------

    def rows(self, number: int, coins: Coins | None = None) -> pa.Table:
        """Return a table of this number of rows: the features in the codebook's order, then the class."""
        if not (type(number) is int and 1 <= number <= MAX_ROWS):
            raise ConfigError(f"the number of rows is a whole number from 1 to {MAX_ROWS:,}")
        if self.codebook.texts:
            name = self.codebook.texts[0].name
            raise ConfigError(
                f"feature {name!r} is text: the release has no lengths of documents, so no rows can be drawn; "
                "the marginals alone (--rows 0) list its words"
            )
        coins = Coins.seeded(Coins.fresh_seed()) if coins is None else coins
        labels = _pick(np.cumsum(self.shares)[None], np.zeros(number, dtype=np.int64), coins)
        columns = {name: self._draw(column, labels, coins) for name, column in self._columns.items()}
        columns[self.codebook.target] = _texts(self.codebook.classes, labels)
        return pa.table(columns)

    def _draw(self, column: _Column, labels: npt.NDArray[np.int64], coins: Coins) -> pa.Array:
        feature, gone = column.feature, None
        if column.missing.any():
            gone = _uniform(len(labels), coins) < column.missing[labels]
        if isinstance(feature, Categorical):
            cells = _pick(_below(np.exp(column.term.log_prob)), labels, coins)
            return _texts(feature.values, cells if gone is None else np.where(gone, -1, cells))
        if not isinstance(feature, Numeric):
            raise ConfigError(f"feature {feature.name!r} cannot be drawn")
        if isinstance(column.term, Histogram):
            starts = np.array([*feature.starts, feature.code_high + 1])
            cells = _pick(_below(np.exp(column.term.log_prob)), labels, coins)
            widths = np.diff(starts)
            codes = starts[cells]
            if (widths > 1).any():
                codes = codes + (_uniform(len(labels), coins) * widths[cells]).astype(np.int64)
        else:
            codes = _normal(feature, column.term, labels, coins)
        return _numbers(feature, codes, gone)

    # -- marginals -----------------------------------------------------------------------------------------------------

    def marginals(self) -> pa.Table:
        """Return the class-by-feature marginals.

        One line per class (`feature` is the target), per class and value or cell, and per class and Gaussian feature. `count`
        is the released count, noisy for a private model and null where none was released; `probability` is that of the value
        given the class, missing values apart.
        """
        lines: list[tuple[str | float | None, ...]] = []
        for at, label in enumerate(self.codebook.classes):
            lines.append((label, self.codebook.target, label, self._count(None, at, 0), float(self.shares[at]), None, None))
        for name, column in self._columns.items():
            names = value_names(column.feature)
            for at, label in enumerate(self.codebook.classes):
                if isinstance(column.term, Gaussian):
                    moments = float(column.term.mean[at]), float(column.term.variance[at])
                    lines.append((label, name, None, self._values(name, at), None, *map(_finite, moments)))
                    continue
                given = _shares(column.feature, column.term)[at]
                for cell, value in enumerate(names):
                    lines.append((label, name, value, self._count(name, at, cell), float(given[cell]), None, None))
        heads = ("class", "feature", "value", "count", "probability", "mean", "variance")
        columns = list(zip(*lines, strict=True))
        kinds = [pa.string()] * 3 + [pa.float64()] * 4
        return pa.table({head: pa.array(list(each), kind) for head, each, kind in zip(heads, columns, kinds, strict=True)})

    def _count(self, name: str | None, at: int, cell: int) -> float | None:
        if self.statistics is None:
            return None
        if name is None:
            return float(self.statistics.class_counts[at])
        table = self.statistics.counts.get(name, self.statistics.bags.get(name))
        return None if table is None else float(table[at, cell])

    def _values(self, name: str, at: int) -> float | None:
        return None if self.statistics is None or name not in self.statistics.n else float(self.statistics.n[name][at])

    def measurements(self) -> dict[str, Any]:
        """Return the noisy tables of a private model as linear measurements, for estimators such as `mbi` (Private-PGM).

        `domain` has the number of cells of the target and of every feature that was released in cells, in the order of `cells`;
        the last cell of an optional feature is missing. A measurement has the counts of a class-by-feature table, row by row,
        and the standard deviation of the noise in each of them. Counts that the release hides are no measurement.
        """
        released = (self._record.privacy or {}).get("released")
        if not isinstance(released, dict):
            raise ConfigError("only a private model has noisy measurements; this one does not say what was released")
        codebook = self.codebook
        parsed = Released.parse(released, codebook)
        noise = parsed.shared_noise
        domain, cells = {codebook.target: len(codebook.classes)}, {codebook.target: list(codebook.classes)}
        taken = []
        for item, table, own in zip(parsed.plan.items, parsed.tables, parsed.plan.deviations, strict=True):
            # Without noise in shares every party of a sum brought its own.
            deviation = own * math.sqrt(parsed.shares) if noise is None else noise.deviation(parsed.shares, item.bound)
            if item.kind not in ("cells", "classes") or np.isnan(table).any():
                continue
            clique = [codebook.target]
            if item.cut is not None:
                feature = codebook.feature(item.cut.feature)
                clique.append(feature.name)
                names = [range_name(feature, low, high) for low, high in pairwise(item.cut.edges)]
                cells[feature.name] = [*names, *(["missing"] * item.cut.missing)]
                domain[feature.name] = len(cells[feature.name])
            taken.append({"clique": clique, "values": table.ravel().tolist(), "stddev": deviation})
        return {"format": MEASUREMENTS, "domain": domain, "cells": cells, "measurements": taken}

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats for readers of the rows."""
        return (INDEPENDENT, NO_COST) if self.private else (INDEPENDENT, NOT_PRIVATE)


def _estimated(record: ModelRecord) -> Parameters:
    """Return the parameters estimated from the released tables, without rules and weights that a private fit selected."""
    released = (record.privacy or {}).get("released")
    if not isinstance(released, dict) or "sum" in released:  # a sum over sites: nothing was selected
        return record.parameters
    parsed = Released.parse(released, record.parameters.codebook)
    tables = tuple(np.nan_to_num(table) for table in parsed.tables)  # nan: a hidden count
    return fit_parameters(NoisyStatistics(parsed.plan, tables), alpha=record.settings.alpha)


def _missing(feature: Feature, statistics: Statistics | None, classes: int) -> FloatArray:
    """Return the share of rows without a value by class; 0 where it was not released."""
    none = np.zeros(classes)
    if not feature.optional or statistics is None or isinstance(feature, Text):
        return none
    rows = np.maximum(statistics.class_counts.astype(np.float64), 0.0)
    if feature.name in statistics.counts:
        present = statistics.counts[feature.name].astype(np.float64).sum(axis=1)
    else:
        present = statistics.n[feature.name].astype(np.float64)
    return np.where(rows > 0, np.clip(1.0 - present / np.maximum(rows, 1.0), 0.0, 1.0), none)


def _shares(feature: Feature, term: Histogram | WordTable) -> FloatArray:
    """Return P(value | class); of a complement text the shares of the words in all other classes, by which it scores."""
    complement = isinstance(feature, Text) and feature.model == "complement"
    return np.exp(-term.log_prob if complement else term.log_prob)


def _uniform(number: int, coins: Coins) -> FloatArray:
    """Draw numbers in [0, 1) of 40 bits."""
    return (coins.words(number) >> np.uint64(64 - _BITS)).astype(np.float64) * 2.0**-_BITS


def _below(likely: FloatArray) -> FloatArray:
    """Return cumulative probabilities by class, which end in exactly 1."""
    total = np.cumsum(likely, axis=1)
    return total / total[:, -1:]


def _pick(below: FloatArray, labels: npt.NDArray[np.int64], coins: Coins) -> npt.NDArray[np.int64]:
    """Draw an index for each label from the cumulative probabilities of its class, by one search over all classes."""
    classes, width = below.shape
    edges = (np.floor(below * 2.0**_BITS) * 2.0**-_BITS + np.arange(classes)[:, None]).ravel()
    place = np.searchsorted(edges, _uniform(len(labels), coins) + labels, side="right") - labels * width
    return np.asarray(np.minimum(place, width - 1), dtype=np.int64)


def _normal(feature: Numeric, term: Gaussian, labels: npt.NDArray[np.int64], coins: Coins) -> npt.NDArray[np.int64]:
    """Draw codes with the class's mean and variance; evenly where no class has a value.

    Of a grid with very many points the normal distribution is cut off at the bounds.
    """
    if feature.width <= _MAX_GRID:
        laws = [_on_grid(feature, float(mean), float(each)) for mean, each in zip(term.mean, term.variance, strict=True)]
        return _pick(_below(np.stack(laws)), labels, coins) + feature.code_low
    low, high = (each / feature.scale for each in (feature.grid_low - 0.5, feature.grid_high + 0.5))
    spread = np.sqrt(np.where(np.isfinite(term.variance), term.variance, 1.0))
    start, stop = ndtr((low - term.mean) / spread), ndtr((high - term.mean) / spread)
    uniform = _uniform(len(labels), coins)
    values = ndtri(start[labels] + uniform * (stop - start)[labels]) * spread[labels] + term.mean[labels]
    values = np.where(np.isfinite(term.variance)[labels], values, low + uniform * (high - low))
    codes = np.floor(np.clip(values, feature.low, feature.high) * feature.scale + 0.5) - feature.centre
    return np.asarray(np.clip(codes, feature.code_low, feature.code_high), dtype=np.int64)


def _on_grid(feature: Numeric, mean: float, variance: float) -> FloatArray:
    """Return P(x) ~ exp(a x + b x^2) on the grid between the bounds, with this mean and variance.

    Far from the bounds this is the normal density. Near a bound, where cutting it off would move both moments, a and b are
    found by Newton's method on the convex dual. Moments that no distribution between the bounds has (noise, a floor) keep the
    density as it is cut off.
    """
    half = max((feature.code_high - feature.code_low) / 2, 0.5)
    middle = (feature.grid_low + feature.grid_high) / 2
    z = (np.arange(feature.code_low, feature.code_high + 1) + feature.centre - middle) / half
    if not np.isfinite(variance):
        return np.ones(len(z))
    centre, spread = (mean * feature.scale - middle) / half, variance * (feature.scale / half) ** 2
    powers, wanted = np.stack([z, z * z]), np.array([centre, spread + centre**2])
    first = np.array([centre / spread, -0.5 / spread])

    def law(given: FloatArray) -> tuple[FloatArray, float]:
        log = given @ powers
        top = float(log.max())
        likely = np.exp(log - top)
        total = float(likely.sum())
        return likely / total, top + float(np.log(total)) - float(given @ wanted)

    at, (likely, value) = first, law(first)
    for _ in range(_NEWTON_STEPS):
        off = wanted - powers @ likely
        centred = powers - (powers @ likely)[:, None]
        step, *_ = np.linalg.lstsq((centred * likely) @ centred.T, off, rcond=None)
        for _ in range(_NEWTON_STEPS):  # halve until the dual falls
            tried, low = law(at + step)
            if low < value:
                break
            step = step / 2
        else:  # rounding hides the rest
            break
        at, likely, value = at + step, tried, low
    if np.abs(wanted - powers @ likely).max() < _MOMENT_ERROR:
        return likely
    return law(first)[0]


def _numbers(feature: Numeric, codes: npt.NDArray[np.int64], gone: npt.NDArray[np.bool_] | None) -> pa.Array:
    """Return grid points as numbers, whole ones as integers; a point that rounds to outside the bounds is the bound."""
    points = codes + feature.centre
    whole = feature.precision >= 1 and float(feature.precision).is_integer()
    values: npt.NDArray[Any] = points / feature.scale
    values = np.clip(values, feature.low, feature.high)
    whole = whole and bool((values == np.floor(values)).all())
    if whole:
        values = values.astype(np.int64)
    valid = None if gone is None else pa.py_buffer(np.packbits(~gone, bitorder="little"))
    return pa.Array.from_buffers(pa.int64() if whole else pa.float64(), len(values), [valid, pa.py_buffer(values)])


def _texts(values: tuple[str, ...], places: npt.NDArray[np.int64]) -> pa.Array:
    """Return texts by index; null for index -1."""
    gone = places < 0
    valid = pa.py_buffer(np.packbits(~gone, bitorder="little")) if gone.any() else None
    indices = pa.Array.from_buffers(pa.int32(), len(places), [valid, pa.py_buffer(places.astype(np.int32))])
    return pa.DictionaryArray.from_arrays(indices, pa.array(values, pa.string())).dictionary_decode()


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
