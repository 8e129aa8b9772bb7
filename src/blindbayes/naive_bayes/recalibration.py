"""Recalibration of a model from the counts of an evaluation alone.

The log-odds x of a class become a x + b: `a` below 1 makes scores less extreme (a temperature of 1/a), `b` moves the prior of
the class. Both maximise the likelihood of the score bins, each bin at its middle, with a weak penalty on a - 1 and b so that
separated classes have a solution. Of more than two classes `a` is common, and each class against the rest has its own `b`.

The result is a model of the same form: tables of log-probabilities times a, variances over a, and another prior. Its scores are
a times the old ones, plus b, to rounding. Where that is not possible (an optional Gaussian feature; text that scores absent
words) a stays 1, so that only priors move. Its file names the file of the model that it was made from (`settings.parent`), and
has no privacy statement of its own: its cost is that of the parent and of the evaluation together.
"""

from __future__ import annotations

import hashlib
import math

import numpy as np

from blindbayes.codebook import Numeric, Text
from blindbayes.naive_bayes.base import BaseNaiveBayes
from blindbayes.naive_bayes.load import from_record
from blindbayes.naive_bayes.model_file import ModelRecord, ModelSettings, dump_model
from blindbayes.statistics.evaluation import Evaluation, log_odds_edges
from blindbayes.statistics.parameters import FloatArray, Gaussian, Histogram, Parameters, Term, WordTable

_PENALTY = 1.0
_STEPS = 50
_SCALES = 0.05, 2.0  # a stays within


def recalibrated(model: BaseNaiveBayes, evaluation: Evaluation) -> BaseNaiveBayes:
    """Return a model whose scores fit the bins of an evaluation of `model`."""
    record = model._record()
    scale, shifts = fit_scores(evaluation, scalable=_is_scalable(record.parameters))
    parameters = _rescaled(record.parameters, scale, shifts)
    parent = hashlib.sha256(dump_model(record).encode()).hexdigest()
    settings = ModelSettings(
        alpha=record.settings.alpha,
        var_smoothing=record.settings.var_smoothing,
        named=record.settings.named,
        parent=parent,
        priors=np.exp(parameters.log_prior).tolist(),
    )
    # No privacy statement: the parent's alone would leave out what the evaluation cost.
    return from_record(ModelRecord(parameters, None, record.label_kind, settings, None))


def fit_scores(evaluation: Evaluation, *, scalable: bool = True) -> tuple[float, FloatArray]:
    """Fit the common factor of all log-odds and the shift of each class."""
    edges = log_odds_edges(evaluation.bins)
    step = edges[1] - edges[0] if len(edges) > 1 else 2.0
    middle = np.concatenate([edges - step / 2, edges[-1:] + step / 2])
    fitted = [1] if len(evaluation.classes) == 2 else list(range(len(evaluation.classes)))
    own, every = (evaluation.scores[fitted, 1], evaluation.scores[fitted].sum(axis=1))
    scale, shifts = 1.0, np.zeros(len(fitted))
    for _ in range(_STEPS):  # Newton's method on a convex loss
        predicted = 1 / (1 + np.exp(-(scale * middle + shifts[:, None])))
        residual, weight = every * predicted - own, every * predicted * (1 - predicted)
        slope = np.concatenate([[(residual * middle).sum() + _PENALTY * (scale - 1)], residual.sum(axis=1) + _PENALTY * shifts])
        curve = np.diag(np.concatenate([[(weight * middle**2).sum() + _PENALTY], weight.sum(axis=1) + _PENALTY]))
        curve[0, 1:] = curve[1:, 0] = (weight * middle).sum(axis=1)
        if not scalable:
            slope[0], curve[0, 1:], curve[1:, 0] = 0.0, 0.0, 0.0
        move = np.linalg.solve(curve, slope)
        move *= min(1.0, 2.0 / max(float(np.abs(move).max()), 1e-300))
        scale, shifts = float(np.clip(scale - move[0], *_SCALES)), shifts - move[1:]
        if np.abs(move).max() < 1e-12:
            break
    return scale, np.array([0.0, shifts[0]]) if len(fitted) == 1 else shifts


def _is_scalable(parameters: Parameters) -> bool:
    return not any(
        (isinstance(each, Numeric) and not each.counted and each.optional) or (isinstance(each, Text) and each.once)
        for each in parameters.codebook.features
    )


def _rescaled(parameters: Parameters, scale: float, shifts: FloatArray) -> Parameters:
    log_prior, terms = scale * parameters.log_prior + shifts, dict[str, Term]()
    for name, term in parameters.terms.items():
        if isinstance(term, Gaussian):
            known = np.isfinite(term.variance)
            log_prior[known] += (1 - scale) / 2 * np.log(2 * math.pi * term.variance[known]) - math.log(scale) / 2
            terms[name] = Gaussian(term.mean, term.variance / scale)
        elif isinstance(term, Histogram):
            terms[name] = Histogram(term.log_prob * scale)
        else:
            terms[name] = WordTable(term.log_prob * scale, term.once)
    return Parameters(parameters.codebook, log_prior - np.logaddexp.reduce(log_prior), terms)
