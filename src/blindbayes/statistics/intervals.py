"""Intervals of the parameters behind privacy noise: models that the exact table may have given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from blindbayes.errors import ConfigError
from blindbayes.statistics.bags import Bags
from blindbayes.statistics.parameters import FloatArray, Gaussian, Histogram, Parameters, Term, WordTable

COVERAGE = 0.9
WordDraws: TypeAlias = Callable[[npt.NDArray[np.int64]], FloatArray]


@dataclass(frozen=True)
class NoiseInterval:
    """Models that the exact table may have given, drawn from the noise of a private model. Draws are the first axis of arrays.

    `terms` maps a feature to log-probabilities (draws, classes, values) or to means and variances (draws, classes), and to
    None where the feature was not released. `edges` are the edges of a released histogram, in fine cells. `words` returns the
    log-probabilities of given words of a text, (draws, classes, words).
    """

    log_prior: FloatArray = field(repr=False)
    terms: Mapping[str, Term | None] = field(repr=False)
    edges: Mapping[str, tuple[int, ...]] = field(default_factory=dict, repr=False)
    words: Mapping[str, WordDraws] = field(default_factory=dict, repr=False)

    def score_bags(self, own: WordTable, name: str, bags: Bags) -> FloatArray:
        """Score the words of documents, (draws, documents, classes); nan where they were not released."""
        draws, classes = self.log_prior.shape
        if name not in self.words:
            return np.full((draws, len(bags), classes), np.nan)
        words, at = np.unique(bags.words, return_inverse=True)
        log = self.words[name](words)
        if own.once:
            log = log - np.log1p(-np.exp(np.minimum(log, -1e-12)))
        absent = np.log1p(-np.exp(own.log_prob)).sum(axis=1) if own.once else np.zeros(classes)
        scores = np.empty((draws, len(bags), classes))
        for row, (start, end) in enumerate(pairwise(bags.ends.tolist())):
            scores[:, row] = log[:, :, at[start:end]] @ bags.times[start:end] + absent * bags.present[row]
        return scores

    def score(self, parameters: Parameters, name: str, codes: npt.NDArray[np.int64]) -> FloatArray:
        """Return ln P(value | class) of codes, (draws, codes, classes); nan where the feature was not released."""
        term = self.terms[name]
        draws, classes = self.log_prior.shape
        if term is None:
            return np.where((codes < 0)[None, :, None], 0.0, np.full((draws, 1, classes), np.nan))
        if isinstance(term, Histogram):
            table = np.concatenate([term.log_prob, np.zeros((draws, classes, 1))], axis=2)  # the last answers code -1
            return np.asarray(table.take(codes, axis=2, mode="wrap").transpose(0, 2, 1))
        if not isinstance(term, Gaussian):
            raise ConfigError(f"feature {name!r}: text is scored by its words")
        scored = [
            parameters.score(name, Gaussian(mean, variance), codes)
            for mean, variance in zip(term.mean, term.variance, strict=True)
        ]
        return np.stack(scored)


@dataclass(frozen=True)
class PlausibleMarginals:
    """Counts that the exact table may have had, behind a private model: draws along the first axis, not clipped.

    A feature that was not released is in none of the mappings.
    """

    classes: FloatArray = field(repr=False)  # (draws, classes)
    counts: Mapping[str, FloatArray] = field(repr=False)  # (draws, cells), missing values left out
    moments: Mapping[str, FloatArray] = field(repr=False)  # (draws, 2): mean and variance
    edges: Mapping[str, tuple[int, ...]] = field(repr=False)  # of the cells, in fine ones


def between(draws: FloatArray, coverage: float = COVERAGE) -> tuple[FloatArray, FloatArray]:
    """Return the interval of the draws (first axis) that holds this share of them; infinite where a draw is unknown.

    The k-th smallest and the k-th largest of n draws hold a further one with probability 1 - 2k / (n + 1).
    """
    if not 0 < coverage < 1:
        raise ConfigError("coverage lies between 0 and 1, such as 0.9")
    count = len(draws)
    rank = max(int((1 - coverage) / 2 * (count + 1) + 1e-9), 1)
    ordered = np.sort(draws, axis=0)  # nan comes last
    unknown = np.isnan(ordered[-1])
    return np.where(unknown, -np.inf, ordered[rank - 1]), np.where(unknown, np.inf, ordered[count - rank])
