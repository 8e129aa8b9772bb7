"""Evidence of a model: tables in which classes differ, their contrasts, and the odds of a row's classes."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

import numpy as np
import numpy.typing as npt

from blindbayes.statistics.parameters import Histogram, Parameters, Term

Floats = npt.NDArray[np.float64]
STEP = 1 / 64
"""Log odds are told apart in steps of this size."""
_FALL = np.exp(-np.arange(1025) * STEP)


def tempered(parameters: Parameters, scale: float) -> Parameters:
    """Return the model with the contrast of classes in each table multiplied by `scale`.

    Probabilities are normalised again; the priors are adjusted so that this does not change any score.
    """
    terms: dict[str, Term] = dict(parameters.terms)
    prior = parameters.log_prior.copy()
    for name in informative(parameters):
        table = table_of(parameters, name)
        base = (np.exp(parameters.log_prior)[:, None] * table).sum(axis=0)
        log = base + scale * (table - base)
        lost = np.log(np.exp(log).sum(axis=1))
        terms[name] = Histogram(log - lost[:, None])
        prior += lost
    return replace(parameters, log_prior=to_one(prior), terms=terms)


def odds(scores: Floats) -> tuple[Floats, Floats]:
    """Return P(class | row) over that of the best class, which is exactly 1, and its sum over classes.

    Only look-ups and single operations, so that a row's numbers do not depend on other rows, not even in their last bit.
    """
    best = reduce(np.maximum, scores.T)  # a third of the time of max(axis=1), for few classes
    behind = np.minimum((best[:, None] - scores) / STEP, len(_FALL) - 1)
    chance = _FALL.take(np.rint(behind).astype(np.int64))
    total = chance[:, 0].copy()
    for index in range(1, chance.shape[1]):
        total += chance[:, index]
    return chance, total


def to_one(log: Floats) -> Floats:
    """Normalise logarithms of probabilities."""
    top = log.max()
    return np.asarray(log - top - np.log(np.exp(log - top).sum()))


def table_of(parameters: Parameters, name: str) -> Floats:
    """Return ln P(value | class) of a feature that is a table, (classes, values)."""
    term = parameters.terms[name]
    assert isinstance(term, Histogram)
    return term.log_prob


def informative(parameters: Parameters) -> list[str]:
    """Return the histogram features whose probabilities differ between classes."""
    return [
        name
        for name, term in parameters.terms.items()
        if isinstance(term, Histogram) and bool((np.ptp(term.log_prob, axis=0) > 1e-12).any())
    ]
