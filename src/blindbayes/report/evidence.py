"""The weight of evidence: how far a value speaks for or against each class, from the parameters alone."""

from __future__ import annotations

from dataclasses import dataclass

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

    @property
    def strength(self) -> float:
        """The largest of them, in size."""
        return float(np.abs(self.values).max())


def weights(parameters: Parameters, only: str | None = None) -> list[Weight]:
    """Every value (or range) of every feature that has cells, in the codebook's order."""
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
        for at, (start, end) in enumerate(zip(starts, ends, strict=True)):
            found.append(Weight(feature.name, _name(feature, start, end, cells), at, centred[:, at]))
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
