"""The model of a joint release, by postprocessing alone."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Numeric, Text
from blindbayes.dp.release import postprocess
from blindbayes.dp.release.cells import FINE
from blindbayes.dp.release.constants import FIT_SIGNAL, MAX_CELLS, MAX_GRID_POINTS
from blindbayes.dp.release.planner import cell_count
from blindbayes.dp.release.release_plan import FeatureEncoding, NoisyStatistics
from blindbayes.statistics.parameters import Gaussian, Histogram, Parameters, Term, WordTable, require_alpha, words_term

Floats = npt.NDArray[np.float64]


def fit_parameters(noisy: NoisyStatistics, *, alpha: float = 1.0) -> Parameters:
    """Return the model of a release. `alpha` / 2 is the smallest count that a cell is given."""
    require_alpha(alpha)
    plan, sizes = noisy.plan, noisy.sizes
    classes = len(plan.codebook.classes)
    terms: dict[str, Term] = {}
    ordered: dict[tuple[int, ...], list[FeatureEncoding]] = {}
    contrasts = {
        cut.feature: postprocess.Contrast.estimate(*_with_sizes(noisy, cut.feature), alpha)
        for cut in plan.encodings
        if cut.kind == "cells" and len(cut.edges) > 2
    }
    effects = postprocess.learn_effects(list(contrasts.values()))
    for feature, cut in zip(plan.codebook.features, plan.encodings, strict=True):
        if cut.kind == "moments":
            terms[feature.name] = _gaussian(noisy, plan.codebook.numeric(feature.name), plan.codebook.variance_floor)
        elif isinstance(feature, Text):
            terms[feature.name] = _words(noisy, feature, alpha if cut.kind == "words" else None)
        elif cut.kind == "nothing" or len(cut.edges) == 2:
            width = feature.size if not isinstance(feature, Numeric) or feature.bins is not None else 1
            terms[feature.name] = Histogram(np.full((classes, width), -math.log(width)))
        else:
            table = postprocess.shrink_histogram(contrasts[feature.name], effects, alpha)[:, : len(cut.edges) - 1]
            table = table / table.sum(axis=1, keepdims=True)
            terms[feature.name] = Histogram(np.log(postprocess.spread_cells(table, cut.edges)))
            if isinstance(feature, Numeric) and (cut.places or feature.width <= MAX_GRID_POINTS):
                ordered.setdefault(_even_edges(cut), []).append(cut)
    # A normal law saves noise, and is never quite true: it gives way with more signal, and to as many cells as a number gets.
    signal = plan.signal * sizes.total / plan.planned_rows  # of the table as it turned out
    trust = 1 / (1 + signal / FIT_SIGNAL)
    if ordered and cell_count(signal) < MAX_CELLS:
        for cut, law in _fitted(noisy, ordered, effects, alpha):
            old = terms[cut.feature]
            if not isinstance(old, Histogram):
                continue
            shrunk = np.add.reduceat(np.exp(old.log_prob), cut.edges[:-1], axis=1)
            law = postprocess.temper_law(law, shrunk, sizes, cut.edges)
            log = trust * np.log(law) + (1 - trust) * old.log_prob
            top = log.max(axis=1, keepdims=True)
            terms[cut.feature] = Histogram(log - top - np.log(np.exp(log - top).sum(axis=1, keepdims=True)))
    return Parameters(plan.codebook, sizes.log_prior, {name: terms[name] for name in plan.codebook.names})


def _words(noisy: NoisyStatistics, feature: Text, alpha: float | None) -> WordTable:
    """Return a text's word table, shrunk to that of all classes together; `alpha` is None if nothing was released."""
    rows = noisy.sizes.rows
    if alpha is None:
        flat = np.ones((len(rows), feature.size))
        return words_term(feature, flat, np.full(len(rows), 2.0), 1e-9)
    uses, deviation, documents = noisy.words(feature.name)
    total = postprocess.class_sizes(uses.sum(axis=1), deviation * math.sqrt(feature.size), None)
    level = uses + ((total.rows - uses.sum(axis=1)) / feature.size)[:, None]
    contrast = postprocess.Contrast.estimate(level, total, deviation, alpha)
    shrunk = postprocess.shrink_histogram(contrast, postprocess.learn_effects([contrast]), alpha) * total.rows[:, None]
    return words_term(feature, np.minimum(shrunk, documents[:, None]) if feature.once else shrunk, documents, alpha)


def _with_sizes(noisy: NoisyStatistics, name: str) -> tuple[Floats, postprocess.ClassSizes, float]:
    cells, deviation = noisy.cells(name)
    return cells, noisy.sizes, deviation


def _even_edges(cut: FeatureEncoding) -> tuple[int, ...]:
    """Return the edges in equal cells of the scale that a normal law is fitted on."""
    if not cut.places:
        return cut.edges
    edges = [round(FINE * cut.places[edge]) for edge in cut.edges]
    for at in range(1, len(edges)):
        edges[at] = max(edges[at], edges[at - 1] + 1)
    for at in range(len(edges) - 1, 0, -1):
        edges[at] = min(edges[at], FINE - (len(edges) - 1 - at))
    return tuple(edges)


def _in_fine_cells(law: Floats, cut: FeatureEncoding) -> Floats:
    """Convert a law on equal cells to the fine cells."""
    if not cut.places:
        return law
    below = np.concatenate([np.zeros((len(law), 1)), np.cumsum(law, axis=1)], axis=1)
    at = np.asarray(cut.places) * FINE
    return np.stack([np.diff(np.interp(at, np.arange(FINE + 1), one)) for one in below])


def _fitted(
    noisy: NoisyStatistics, ordered: Mapping[tuple[int, ...], Sequence[FeatureEncoding]], effects: Floats, alpha: float
) -> Iterator[tuple[FeatureEncoding, Floats]]:
    """Yield P(fine cell | class) of features, from normal laws fitted to noisy cells; `ordered` groups features by edges."""
    sizes = noisy.sizes
    parts = []
    for edges, cuts in ordered.items():
        width = len(edges) - 1
        released = [noisy.cells(cut.feature) for cut in cuts]
        deviations = np.array([deviation for _, deviation in released])
        rows = np.tile(sizes.rows, (len(cuts), 1))
        for at, cut in enumerate(cuts):
            if cut.missing:
                absent = released[at][0][:, width]
                table = np.stack([absent, sizes.rows - absent], axis=1)
                contrast = postprocess.Contrast.estimate(table, sizes, deviations[at], alpha)
                rows[at] *= postprocess.shrink_histogram(contrast, effects, alpha)[:, 1]
        parts.append(postprocess.Ordered(np.stack([table[:, :width] for table, _ in released]), rows, deviations, edges))
    for cuts, part, laws in zip(ordered.values(), parts, postprocess.fit_normal(parts, sizes.deviation), strict=True):
        for cut, law, cells, rows, deviation in zip(cuts, laws, part.cells, part.rows, part.deviations, strict=True):
            fine = np.maximum(_in_fine_cells(law, cut), 1e-12)
            yield cut, np.maximum(postprocess.blend_cells(fine, cells, rows, deviation, cut.edges, alpha), 1e-12)


def _gaussian(noisy: NoisyStatistics, feature: Numeric, floor: float | None) -> Gaussian:
    first, second, deviation, present = noisy.moments(feature.name)
    sizes = noisy.sizes
    if present is not None:
        sizes = postprocess.ClassSizes(np.clip(present, 1.0, np.maximum(sizes.rows, 1.0)), sizes.deviation)
    mean, variance = postprocess.shrink_moments(first, second, sizes, deviation)
    half = (feature.width - 1) / 2 / feature.scale
    middle = (feature.grid_low + feature.grid_high) / 2 / feature.scale
    lowest = max(floor or 0.0, 1 / (12 * feature.scale**2))
    return Gaussian(middle + half * mean, np.maximum(variance * half**2, lowest))
