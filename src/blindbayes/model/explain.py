"""Why a row got its class: what each feature adds to the score, and how far privacy noise may have moved it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from blindbayes.errors import ConfigError
from blindbayes.model.parameters import FloatArray, Gaussian, Histogram, Parameters, Term, Words
from blindbayes.statistics import Bags, CodedRows

COVERAGE = 0.9
_ROWS_AT_ONCE = 4096
WordDraws: TypeAlias = Callable[[npt.NDArray[np.int64]], FloatArray]


@dataclass(frozen=True)
class NoiseInterval:
    """Models that the exact table may have given, behind a private one: draws along the first axis of every array.

    `terms` maps a feature to log-probabilities (draws, classes, values) or to means and variances (draws, classes), and to
    None where the feature was not released. `edges` are the cells, in fine ones, that a histogram was released in. `words`
    gives the log-probabilities of the words of a text that are asked for, (draws, classes, words).
    """

    log_prior: FloatArray = field(repr=False)
    terms: Mapping[str, Term | None] = field(repr=False)
    edges: Mapping[str, tuple[int, ...]] = field(default_factory=dict, repr=False)
    words: Mapping[str, WordDraws] = field(default_factory=dict, repr=False)

    def score_bags(self, own: Words, name: str, bags: Bags) -> FloatArray:
        """What the words of some documents add, (draws, documents, classes); nan where they were not released."""
        draws, classes = self.log_prior.shape
        if name not in self.words:
            return np.full((draws, len(bags), classes), np.nan)
        words, at = np.unique(bags.words, return_inverse=True)
        log = self.words[name](words)
        if own.once:
            log = log - np.log1p(-np.exp(np.minimum(log, -1e-12)))
        absent = np.log1p(-np.exp(own.log_prob)).sum(axis=1) if own.once else np.zeros(classes)
        found = np.empty((draws, len(bags), classes))
        for row, (start, end) in enumerate(pairwise(bags.ends.tolist())):
            found[:, row] = log[:, :, at[start:end]] @ bags.times[start:end] + absent * bags.present[row]
        return found

    def score(self, parameters: Parameters, name: str, codes: npt.NDArray[np.int64]) -> FloatArray:
        """ln P(value | class) of some codes, (draws, codes, classes); nan where the feature was not released."""
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


def between(draws: FloatArray, coverage: float = COVERAGE) -> tuple[FloatArray, FloatArray]:
    """The interval of the draws (first axis) that holds this share of them; without end where a draw is not known.

    The k-th smallest and the k-th largest of n draws hold a further one with probability 1 - 2k / (n + 1).
    """
    if not 0 < coverage < 1:
        raise ConfigError("coverage lies between 0 and 1, such as 0.9")
    count = len(draws)
    rank = max(int((1 - coverage) / 2 * (count + 1) + 1e-9), 1)
    ordered = np.sort(draws, axis=0)  # nan comes last
    unknown = np.isnan(ordered[-1])
    return np.where(unknown, -np.inf, ordered[rank - 1]), np.where(unknown, np.inf, ordered[count - rank])


@dataclass(frozen=True, slots=True)
class Explanation:
    """`terms[row, part, class]` is what a part adds to ln P(class, row); the parts are the prior, then the features."""

    parts: tuple[str, ...]
    classes: tuple[str, ...]
    terms: npt.NDArray[np.float64]
    parameters: Parameters = field(repr=False)
    block: CodedRows = field(repr=False)
    noise: Callable[[], NoiseInterval | None] | None = field(
        default=None, repr=False
    )  # of a private model; drawn when asked for

    def log_odds(self, label: str, against: str | None = None) -> npt.NDArray[np.float64]:
        """What each part adds to the log-odds of `label` against another class, or against all others together, by row.

        A feature speaks for a class against the rest as it would if it were the only one: others weigh by their priors. Of more
        than two classes such parts need not add up to the log-odds of the whole row.
        """
        one, others = self._pair(label, against)
        prior = self.parameters.log_prior
        return np.column_stack([_odds(self.terms[:, 0], one, others), _odds(self.terms[:, 1:], one, others, prior)])

    def interval(self, label: str, against: str | None = None, *, coverage: float = COVERAGE) -> tuple[FloatArray, FloatArray]:
        """Where the exact model's log-odds lie, by row and part, and in a last column their sum: (low, high).

        In `coverage` of all releases the number that the same table gives without noise lies in between. A model without
        noise has intervals of width 0; a feature that was not released has one without end. Raises `ConfigError` for a
        private model that does not say how its noise was drawn.
        """
        one, others = self._pair(label, against)
        rows = len(self.terms)
        parts = self.log_odds(label, against)
        odds = np.column_stack([parts, parts.sum(axis=1)])
        if self.noise is None:
            return odds, odds
        noise_interval = self.noise()
        if noise_interval is None:
            raise ConfigError("this private model does not say how its noise was drawn: no interval can be given")
        low, high = np.empty_like(odds), np.empty_like(odds)
        prior = _odds(noise_interval.log_prior, one, others)
        low[:, 0], high[:, 0] = between(prior, coverage)
        for start in range(0, rows, _ROWS_AT_ONCE):
            part = slice(start, min(start + _ROWS_AT_ONCE, rows))
            total = np.repeat(prior[:, None], part.stop - start, axis=1)
            for at, name in enumerate(self.parts[1:], start=1):
                if isinstance(own := self.parameters.terms[name], Words):
                    scores = noise_interval.score_bags(own, name, self.block.bags[name][part])
                    where = np.arange(part.stop - start)
                else:
                    codes, where = np.unique(self.block.columns[name][part], return_inverse=True)
                    scores = noise_interval.score(self.parameters, name, codes)
                drawn = _odds(scores, one, others, noise_interval.log_prior[:, None])
                ends = between(drawn, coverage)
                low[part, at], high[part, at] = ends[0][where], ends[1][where]
                total += drawn[:, where]
            low[part, -1], high[part, -1] = between(total, coverage)
        return np.minimum(low, odds), np.maximum(high, odds)  # what is shown lies within: wider, never narrower

    def _pair(self, label: str, against: str | None) -> tuple[int, list[int]]:
        one = self._at(label)
        return one, [at for at in range(len(self.classes)) if at != one] if against is None else [self._at(against)]

    def _at(self, label: str) -> int:
        try:
            return self.classes.index(str(label))
        except ValueError:
            raise ConfigError("that class is not in the codebook") from None


def _odds(scores: FloatArray, one: int, others: list[int], log_weight: FloatArray | None = None) -> FloatArray:
    """Scores (classes along the last axis) of one class less those of others together, which weigh as is said, or alike."""
    rest = scores[..., others]
    if len(others) == 1:
        found: FloatArray = scores[..., one] - rest[..., 0]
    elif log_weight is None:
        found = scores[..., one] - np.logaddexp.reduce(rest, axis=-1)
    else:
        weight = log_weight[..., others]
        together = np.logaddexp.reduce(rest + weight, axis=-1) - np.logaddexp.reduce(weight, axis=-1)
        found = scores[..., one] - together
    return found


def explain(parameters: Parameters, block: CodedRows, noise: Callable[[], NoiseInterval | None] | None = None) -> Explanation:
    """The terms of every row of a block."""
    names = tuple(parameters.terms)
    terms = np.empty((block.rows, len(names) + 1, len(parameters.log_prior)))
    terms[:, 0, :] = parameters.log_prior
    for at, name in enumerate(names, start=1):
        terms[:, at, :] = parameters.score(name, parameters.terms[name], block.values(name))
    return Explanation(("(prior)", *names), parameters.codebook.classes, terms, parameters, block, noise)
