"""The last stage of a private fit: a small noisy table that makes the model's probabilities mean something.  [calibrating]

A model is fixed by what was released before. Every row falls into one cell of a small table, by how sure the model is of its
answer and whether that is right. One more row raises one cell by one, so independent discrete Laplace noise of scale
R / epsilon hides R rows for epsilon. A row whose class is unknown counts nowhere.

The rest is postprocessing: all log scores are multiplied by one temperature, which changes no answer. The noise, of a known
law, is weighed by Bayes' rule against the temperature that such models usually need.
"""

from __future__ import annotations

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
from blindbayes.dp.release.constants import LIKELY_TEMPERATURE
from blindbayes.dp.release.feature_weights import odds, tempered
from blindbayes.statistics import CodedRows
from blindbayes.statistics.parameters import Parameters

special = lazy("scipy.special")

Floats = npt.NDArray[np.float64]
EDGES = (0.4, 0.8, 1.4, 2.2, 3.3, 5.0, 8.0)
"""Log odds of the predicted class against an average other one at which the cells of confidence end; the last has no end."""
_CENTRES = np.array([0.2, 0.6, 1.1, 1.8, 2.7, 4.0, 6.2, 10.0])
_SPREAD = 0.6  # prior deviation of the logarithm of the temperature
_TEMPERATURES = np.geomspace(0.03, 3.0, 61)


@dataclass(frozen=True)
class CalibrationTable:
    """A small table of the rows by what a model says of them, for epsilon."""

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

    def temper(self, model: Parameters, noisy: Integers, likely: float = LIKELY_TEMPERATURE) -> Parameters:
        """Return the model with its log scores multiplied by the temperature that table and `likely` one suggest."""
        right = special.expit(_TEMPERATURES[:, None] * _CENTRES - np.log(len(model.log_prior) - 1))
        log = self._log_likelihood(noisy.astype(np.float64), np.stack([1 - right, right], axis=2)).sum(axis=(1, 2))
        log -= 0.5 * (np.log(_TEMPERATURES / likely) / _SPREAD) ** 2
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
