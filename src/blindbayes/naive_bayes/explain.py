"""Explanations of predictions: what each feature adds to a score, and how far privacy noise may have moved it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes._lazy import need
from blindbayes.errors import ConfigError
from blindbayes.statistics import CodedRows
from blindbayes.statistics.intervals import COVERAGE, NoiseInterval, between
from blindbayes.statistics.parameters import FloatArray, Parameters, WordTable

_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Explanation:
    """`terms[row, part, class]` is what a part adds to ln P(class, row); the parts are the prior, then the features.

    A private model has an offset after the prior: what its rules and feature weights add beside the share of the class.
    """

    parts: tuple[str, ...]
    classes: tuple[str, ...]
    terms: npt.NDArray[np.float64]
    parameters: Parameters = field(repr=False)
    block: CodedRows = field(repr=False)
    noise: Callable[[], NoiseInterval | None] | None = field(
        default=None, repr=False
    )  # of a private model; drawn when asked for

    def log_odds(self, label: str, against: str | None = None) -> npt.NDArray[np.float64]:
        """Return what each part adds to the log-odds of `label` against another class, or against all others together, by row.

        A feature counts for a class against the rest as if it were the only one, with the others weighted by their priors. With
        more than two classes such parts need not add up to the log-odds of the whole row.
        """
        one, others = self._pair(label, against)
        start = _odds(self.terms[:, : self._first].cumsum(axis=1), one, others)  # the prior, and with the offset
        features = _odds(self.terms[:, self._first :], one, others, self.parameters.log_prior)
        return np.column_stack([np.diff(start, axis=1, prepend=0.0), features])

    def interval(self, label: str, against: str | None = None, *, coverage: float = COVERAGE) -> tuple[FloatArray, FloatArray]:
        """Return intervals (low, high) of the exact model's log-odds, by row and part, and of their sum in a last column.

        In `coverage` of all releases the number that the same table gives without noise lies in between. The private model's
        own number may lie outside, where smoothing or a selected rule moved it. A model without noise has intervals of width
        0; a feature that was not released has an infinite one. Raises `ConfigError` for a private model that does not say how
        its noise was drawn.
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
        low[:, : self._first] = high[:, : self._first] = 0.0  # the exact model has no offset
        low[:, 0], high[:, 0] = between(prior, coverage)
        for start in range(0, rows, _ROWS_AT_ONCE):
            part = slice(start, min(start + _ROWS_AT_ONCE, rows))
            total = np.repeat(prior[:, None], part.stop - start, axis=1)
            for at, name in enumerate(self.parts[self._first :], start=self._first):
                if isinstance(own := self.parameters.terms[name], WordTable):
                    scores = noise_interval.score_bags(own, name, self.block.bags[name][part])
                    where = np.arange(part.stop - start)
                else:
                    codes, where = np.unique(self.block.columns[name][part], return_inverse=True)
                    scores = noise_interval.score(self.parameters, name, codes)
                draws = _odds(scores, one, others, noise_interval.log_prior[:, None])
                ends = between(draws, coverage)
                low[part, at], high[part, at] = ends[0][where], ends[1][where]
                total += draws[:, where]
            low[part, -1], high[part, -1] = between(total, coverage)
        return low, high

    def to_frame(self) -> Any:
        """Return a pandas frame by row and part: what the part adds to the score of each class, and the sum as a last part."""
        pd = need("pandas")
        rows, parts = len(self.terms), (*self.parts, "(sum)")
        terms = np.concatenate([self.terms, self.terms.sum(axis=1, keepdims=True)], axis=1)
        columns = dict(zip(self.classes, terms.reshape(-1, len(self.classes)).T, strict=True))
        index = pd.MultiIndex.from_product([range(rows), parts], names=["row", "part"])
        return pd.DataFrame(columns, index=index)

    @property
    def _first(self) -> int:
        """Place of the first feature among the parts."""
        return len(self.parts) - len(self.parameters.terms)

    def _pair(self, label: str, against: str | None) -> tuple[int, list[int]]:
        one = self._at(label)
        return one, [at for at in range(len(self.classes)) if at != one] if against is None else [self._at(against)]

    def _at(self, label: str) -> int:
        try:
            return self.classes.index(str(label))
        except ValueError:
            raise ConfigError("that class is not in the codebook") from None


def _odds(scores: FloatArray, one: int, others: list[int], log_weight: FloatArray | None = None) -> FloatArray:
    """Return scores (classes along the last axis) of one class less those of the others together, weighted or not."""
    rest = scores[..., others]
    if len(others) == 1:
        together = rest[..., 0]
    elif log_weight is None:
        together = np.logaddexp.reduce(rest, axis=-1)
    else:
        weight = log_weight[..., others]
        together = np.logaddexp.reduce(rest + weight, axis=-1) - np.logaddexp.reduce(weight, axis=-1)
    return np.asarray(scores[..., one] - together)


def explain(
    parameters: Parameters,
    block: CodedRows,
    noise: Callable[[], NoiseInterval | None] | None = None,
    log_prior: FloatArray | None = None,
) -> Explanation:
    """Return the terms of every row of a block. `log_prior` are the class shares, if the score starts at an offset to them."""
    names = tuple(parameters.terms)
    start = [parameters.log_prior] if log_prior is None else [log_prior, parameters.log_prior - log_prior]
    terms = np.empty((block.rows, len(start) + len(names), len(parameters.log_prior)))
    terms[:, : len(start)] = start
    for at, name in enumerate(names, start=len(start)):
        terms[:, at, :] = parameters.score(name, parameters.terms[name], block.values(name))
    return Explanation(
        (*("(prior)", "(offset)")[: len(start)], *names), parameters.codebook.classes, terms, parameters, block, noise
    )
