"""The weight of evidence: how far a value speaks for or against each class, from the parameters alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Feature
from blindbayes.model.parameters import Histogram, Parameters

MOST_RANGES = 12  # a number in finer cells is shown in this many ranges


@dataclass(frozen=True, slots=True)
class Weight:
    """A value, or a range of values, of one feature: ln P(value | class) less the mean over the classes that occur."""

    feature: str
    value: str
    at: int
    values: npt.NDArray[np.float64]  # per class
    noise: npt.NDArray[np.float64] | None = None  # per class: 95% of the noise lies within this; inf where it drowns the value

    @property
    def strength(self) -> float:
        """The largest of them, in size."""
        return float(np.abs(self.values).max())


@dataclass(frozen=True, slots=True)
class Noise:
    """The noise of a private model: per feature the standard deviation in a cell, and the (noisy) class counts."""

    deviations: Mapping[str, float]
    class_counts: npt.NDArray[np.float64]

    @classmethod
    def of(cls, privacy: Mapping[str, Any] | None, class_counts: npt.NDArray[Any] | None) -> Noise | None:
        """From what a private model's file says; None if it is not private, or does not say."""
        features = (privacy or {}).get("features")
        if class_counts is None or not isinstance(features, Mapping):
            return None
        found = {name: facts.get("noise") for name, facts in features.items() if isinstance(facts, Mapping)}
        known = {name: float(value) for name, value in found.items() if isinstance(value, int | float)}
        return cls(known, class_counts.astype(np.float64)) if known else None

    def within(self, feature: str, log_prob: npt.NDArray[np.float64]) -> npt.NDArray[np.float64] | None:
        """Per class and value, how far noise moves the weight of evidence (95%, to first order in noise over count).

        A count n with noise of deviation s moves ln n by s / n; the weight is the class's own less the mean of all. Where
        n is below 3 s the first order says nothing: inf.
        """
        deviation = self.deviations.get(feature)
        if deviation is None:
            return None
        counts = np.exp(log_prob) * self.class_counts[:, None]
        with np.errstate(divide="ignore"):
            relative = np.where(counts > 3 * deviation, deviation / counts, np.inf)
        classes = len(relative)
        share = (relative / classes) ** 2
        own = (relative * (1 - 1 / classes)) ** 2
        with np.errstate(invalid="ignore"):
            variance = own + share.sum(axis=0, keepdims=True) - share
        half: npt.NDArray[np.float64] = 1.96 * np.sqrt(np.where(np.isnan(variance), np.inf, variance))
        return half


def weights(parameters: Parameters, only: str | None = None, noise: Noise | None = None) -> list[Weight]:
    """Every value (or range) of every feature that has cells, in the codebook's order.

    With `noise`, categorical features say how far it may have moved each weight. Numbers do not: their cells are smoothed.
    """
    found = []
    present = np.isfinite(parameters.log_prior)
    for feature in parameters.codebook.features:
        term = parameters.terms[feature.name]
        if not isinstance(term, Histogram) or only not in (None, feature.name):
            continue
        cells = term.log_prob.shape[1]
        starts = _starts(feature, cells)
        grouped = np.logaddexp.reduceat(term.log_prob, starts, axis=1)
        centred = grouped - grouped[present].mean(axis=0, keepdims=True)
        ends = [*starts[1:], cells]
        moved = noise.within(feature.name, term.log_prob) if noise and isinstance(feature, Categorical) else None
        for at, (start, end) in enumerate(zip(starts, ends, strict=True)):
            found.append(
                Weight(
                    feature.name, _name(feature, start, end, cells), at, centred[:, at], None if moved is None else moved[:, at]
                )
            )
    return found


def _starts(feature: Feature, cells: int) -> list[int]:
    if isinstance(feature, Categorical) or cells <= MOST_RANGES:
        return list(range(cells))
    return [int(part[0]) for part in np.array_split(np.arange(cells), MOST_RANGES)]


def _name(feature: Feature, start: int, end: int, cells: int) -> str:
    """A category, or the first and last number of the grid that fall into the cells."""
    if isinstance(feature, Categorical):
        return str(feature.values[start])
    first, last = -(-start * feature.width // cells), -(-end * feature.width // cells) - 1
    low, high = ((offset + feature.grid_low) / feature.scale for offset in (first, last))
    return f"{low:.6g}" if first == last else f"{low:.6g} to {high:.6g}"
