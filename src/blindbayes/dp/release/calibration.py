"""The last stage of a private fit: a small noisy table that makes the model's probabilities mean something.  [calibrating]

A model is fixed by what was released before. Every row falls into one cell of a small table: by how sure the model is of its
answer and whether that is right (`CalibrationTable`), or, for a model of one rule, by the answer and the class (`AnswerTable`).
One more row raises one cell by one, so independent discrete Laplace noise of scale R / epsilon hides R rows for epsilon. A row
whose class is unknown counts nowhere.

The rest is postprocessing, and changes no answer. All log scores are multiplied by one temperature: the noise, of a known law,
is weighed by Bayes' rule against the temperature that such models usually need. A model of one rule gets the posterior mean of
P(class | answer) instead, given both noisy tables.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from blindbayes._lazy import lazy
from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.stage import Stage
from blindbayes.dp.noise import samplers
from blindbayes.dp.noise.exact_events import Integers
from blindbayes.dp.noise.mechanisms import DiscreteLaplace, laplace_variance
from blindbayes.dp.release.constants import LIKELY_SCALE
from blindbayes.dp.release.evidence import STEP, informative, odds, table_of, tempered
from blindbayes.dp.release.postprocess import positive_mean
from blindbayes.dp.release.release_plan import NoisyStatistics
from blindbayes.dp.release.stumps import split_odds
from blindbayes.statistics import CodedRows
from blindbayes.statistics.parameters import Histogram, Parameters

special = lazy("scipy.special")

Floats = npt.NDArray[np.float64]
EDGES = (0.4, 0.8, 1.4, 2.2, 3.3, 5.0, 8.0)
"""Log odds of the predicted class against an average other one at which the cells of confidence end; the last has no end."""
_CENTRES = np.array([0.2, 0.6, 1.1, 1.8, 2.7, 4.0, 6.2, 10.0])
_SPREAD = math.log(2)  # prior deviation of the logarithm of the temperature
_TEMPERATURES = np.geomspace(0.03, 3.0, 61)
_TIE = math.exp(STEP)  # odds that an answer keeps where its table contradicts it


@dataclass(frozen=True)
class CalibrationTable:
    """A small private table: rows counted by the prediction of a model."""

    epsilon: Fraction
    rows_per_unit: int

    @property
    def scale(self) -> Fraction:
        """Scale of the discrete Laplace noise in a cell."""
        return self.rows_per_unit / self.epsilon

    def stage(self, unit: str) -> Stage:
        """Return the facts of this stage: how sure a model is of a row is computed in floating point, row by row."""
        return Stage(
            name="calibration",
            mechanism=DiscreteLaplace.name,
            epsilon=self.epsilon,
            unit=unit,
            sensitivity="one row raises one cell of a small table of the chosen model's answers by 1",
            sampler=DiscreteLaplace.sampler,
            floating_point=True,
        )

    def suited(self, model: Parameters) -> CalibrationTable:
        """Return the table of the same privacy cost that fits this model."""
        tables = all(isinstance(term, Histogram) for term in model.terms.values())
        return AnswerTable(self.epsilon, self.rows_per_unit) if tables and len(informative(model)) <= 1 else self

    def calibrated(self, model: Parameters, rows: CodedRows, coins: Coins, earlier: NoisyStatistics) -> Parameters:
        """Release the table once and return the calibrated model; `earlier` is what was released before."""
        return self.temper(model, self.release(self.counts(model, rows), coins))

    def counts(self, model: Parameters, rows: CodedRows) -> Integers:
        """Return the exact rows by the log odds of the predicted class and by whether it is wrong or right."""
        known = np.flatnonzero(rows.known_labels >= 0)
        scores = model.joint_log_likelihood(rows)[known]
        answer = scores.argmax(axis=1)
        others = (odds(scores)[1] - 1) / (scores.shape[1] - 1)  # the mean over all classes but the predicted one
        place = np.searchsorted(np.exp(-np.array(EDGES))[::-1], others, side="right")
        cell = 2 * (len(EDGES) - place) + (answer == rows.known_labels[known])
        return np.bincount(cell, minlength=2 * len(_CENTRES)).reshape(-1, 2)

    def release(self, counts: Integers, coins: Coins) -> Integers:
        """Return the counts with noise. Every call costs epsilon."""
        noise = samplers.discrete_laplace(coins, self.scale, counts.size)
        return counts + np.asarray(noise, dtype=np.int64).reshape(counts.shape)

    def temper(self, model: Parameters, noisy: Integers) -> Parameters:
        """Return the model with its log scores multiplied by the temperature that the table and the likely one suggest."""
        right = special.expit(_TEMPERATURES[:, None] * _CENTRES - np.log(len(model.log_prior) - 1))
        log = self._log_likelihood(noisy.astype(np.float64), np.stack([1 - right, right], axis=2)).sum(axis=(1, 2))
        log -= 0.5 * (np.log(_TEMPERATURES / LIKELY_SCALE) / _SPREAD) ** 2
        belief = np.exp(log - log.max())
        temperature = float(belief @ _TEMPERATURES / belief.sum())
        return tempered(replace(model, log_prior=temperature * model.log_prior), temperature)

    def _log_likelihood(self, noisy: Floats, shares: Floats) -> Floats:
        """Return the log-likelihood of noisy counts (cells, 2) given shares (..., cells, 2), term by term.

        A count less its share of the cell has mean 0 whatever the size of the cell; both counts say the same, so each is half.
        """
        classes = noisy.shape[1]
        total = noisy.sum(axis=1, keepdims=True)
        away = noisy - shares * total
        noise = laplace_variance(float(self.scale)) * ((1 - shares) ** 2 + (classes - 1) * shares**2)
        variance = noise + np.maximum(total, 1.0) * shares * (1 - shares)
        return np.asarray(-0.5 * (classes - 1) / classes * (away**2 / variance + np.log(variance)))


class AnswerTable(CalibrationTable):
    """A table of rows by predicted answer and class, for a model of one rule or of none."""

    def calibrated(self, model: Parameters, rows: CodedRows, coins: Coins, earlier: NoisyStatistics) -> Parameters:
        noisy = self.release(self.counts(model, rows), coins)
        total = self.total(noisy, earlier.plan.planned_rows)
        counts = self.estimate(model, noisy, earlier.class_counts, earlier.class_deviation, total)
        return self.explain(model, counts)

    def total(self, noisy: Integers, declared: int) -> float:
        """Return the likely number of rows: as declared, unless the table contradicts that beyond two deviations of its noise.

        The class counts of a one-rule model are not used: their noise far exceeds that of the table.
        """
        noise = noisy.size * laplace_variance(float(self.scale))
        away = float(noisy.sum()) - declared
        error = max(0.0, away**2 - 4 * noise)
        return max(1.0, declared + away * error / (error + noise))

    def counts(self, model: Parameters, rows: CodedRows) -> Integers:
        """Return the exact rows by answer and class: (answers that the model can give, classes)."""
        answers, classes = self.answers(model), len(model.log_prior)
        known = np.flatnonzero(rows.known_labels >= 0)
        feature, by_cell = _answers(model)
        given = np.full(len(known), model.log_prior.argmax())
        if feature is not None:  # by look-up: a tie is decided alike in every row, whatever other features add in a last bit
            codes = rows.columns[feature][known]
            given = np.where(codes < 0, given, by_cell[np.maximum(codes, 0)])
        place = np.searchsorted(answers, given)
        cells = np.bincount(place * classes + rows.known_labels[known], minlength=len(answers) * classes)
        return cells.reshape(len(answers), classes)

    @staticmethod
    def answers(model: Parameters) -> Integers:
        """Return the classes that the model can predict, in order."""
        return np.unique([*_answers(model)[1], model.log_prior.argmax()])

    def estimate(self, model: Parameters, noisy: Integers, sizes: Floats, deviation: float, rows: float) -> Floats:
        """Return the posterior mean of the counts, given the noisy ones and noisy class counts (`sizes`).

        Before the tables are seen an answer has the odds of `SPLIT_PROBABILITY` against each other class, and answers are alike
        in number: a Dirichlet prior by its mean and variance. Noise is taken as normal, counts are positive.
        """
        answers = self.answers(model)
        classes = len(model.log_prior)
        prior = np.ones((len(answers), classes))
        prior[np.arange(len(answers)), answers] = split_odds()
        share = prior.ravel() / prior.sum()
        spread = rows**2 * (np.diag(share) - np.outer(share, share)) / (split_odds() + 2)
        shown = np.vstack([np.eye(share.size), np.tile(np.eye(classes), len(answers))])
        noise = np.diag([laplace_variance(float(self.scale))] * share.size + [deviation**2] * classes)
        gain = np.linalg.solve(shown @ spread @ shown.T + noise, shown @ spread).T
        mean = rows * share + gain @ (np.concatenate([noisy.ravel(), sizes]) - rows * shown @ share)
        left = np.diag(spread - gain @ shown @ spread)
        return positive_mean(mean, np.sqrt(np.maximum(left, 1e-6))).reshape(prior.shape)

    def explain(self, model: Parameters, counts: Floats) -> Parameters:
        """Return the model whose P(class | answer) are those of the counts, and whose answers are the same."""
        answers = self.answers(model)
        given = counts / counts.sum(axis=1, keepdims=True)
        for own, answer in zip(given, answers, strict=True):
            if own[answer] <= np.delete(own, answer).max(initial=0.0):
                ahead = own >= own[answer]
                own[ahead] = own[ahead].mean()
                own[answer] *= _TIE
        given /= given.sum(axis=1, keepdims=True)
        feature, by_cell = _answers(model)
        if feature is None:
            return replace(model, log_prior=np.log(given[0]))
        weight = counts.sum(axis=1) / counts.sum()
        absent = int(model.log_prior.argmax())  # what rows without a value get, and go on to get
        lead = given[:, [absent]] - given
        ahead, own = weight @ lead, lead[np.searchsorted(answers, absent)]
        behind = ahead <= 0
        behind[absent] = False
        if behind.any():  # halfway between enough of its own answer and that alone
            enough = float((ahead[behind] / (ahead - own)[behind]).max())
            weight = (1 - enough) / 2 * weight + (1 + enough) / 2 * (answers == absent)
        joint = weight[:, None] * given
        place = np.searchsorted(answers, by_cell)
        table = (joint / joint.sum(axis=0))[place].T / np.bincount(place, minlength=len(answers))[place]
        table /= table.sum(axis=1, keepdims=True)
        log = np.ascontiguousarray(np.log(table))
        return replace(model, log_prior=np.log(joint.sum(axis=0)), terms={**model.terms, feature: Histogram(log)})


def _answers(model: Parameters) -> tuple[str | None, Integers]:
    """Return the only feature in which classes differ, if any, and the answer in each of its cells."""
    names = informative(model)
    if not names:
        return None, np.array([model.log_prior.argmax()])
    (name,) = names
    return name, (model.log_prior[:, None] + table_of(model, name)).argmax(axis=0)
