"""Numbers as histograms of about equally full cells, joined from fine ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from blindbayes.statistics import Statistics
from blindbayes.statistics.parameters import Histogram, Parameters


def joined(mass: Sequence[float], cells: int) -> tuple[int, ...]:
    """Return edges, in fine cells, of at most `cells` cells that hold about equal shares."""
    below = np.cumsum(mass)
    wanted = np.arange(1, cells) / cells * below[-1]
    inner = {int(np.abs(below - share).argmin()) + 1 for share in wanted}
    # A cell that alone holds more than two shares stands apart from its neighbours.
    for at in np.flatnonzero(np.asarray(mass) > 1.0 / cells * below[-1]):
        inner |= {int(at), int(at) + 1}
    return (0, *sorted(inner - {0, len(below)}), len(below))


def histograms(statistics: Statistics, names: Collection[str], parameters: Parameters, alpha: float) -> Parameters:
    """Replace the terms of the numbers `names` by histograms: fine cells joined into equally full ones.

    About the cube root of the rows, 4 to 20 cells; within a cell, fine cells are alike in every class.
    """
    rows = int(statistics.class_counts.sum())
    terms = dict(parameters.terms)
    for name in names:
        counts = statistics.counts[name].astype(np.float64)
        edges = joined((counts.sum(axis=0) + 1e-9).tolist(), min(max(round(rows ** (1 / 3)), 4), 20))
        cells = np.add.reduceat(counts, edges[:-1], axis=1)
        log = np.log(cells + alpha) - np.log(cells.sum(axis=1, keepdims=True) + alpha * cells.shape[1])
        widths = np.diff(edges)
        terms[name] = Histogram(np.repeat(log - np.log(widths), widths, axis=1))
    return Parameters(parameters.codebook, parameters.log_prior, terms)
