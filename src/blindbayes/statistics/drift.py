"""Drift: how far current rows lie from those that a model was trained on.

The population stability index of a feature is sum (p - q) ln (p / q) over its values, p of the model and q of the current rows;
0 if nothing changed. Of the model, p is the mixture of its classes. A Gaussian feature is compared by the same sum of two
normal densities of these means and variances, ((m - n)^2 + u + v) (1/u + 1/v) / 2 - 2. Limits are the usual ones: from 0.1 on a
feature has moved, from 0.25 on the model should be trained again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from blindbayes.codebook import Codebook, Numeric
from blindbayes.errors import ConfigError, DataError
from blindbayes.statistics.block import MISSING, CodedRows
from blindbayes.statistics.evaluation import Evaluation
from blindbayes.statistics.parameters import FloatArray, Gaussian, Histogram, Parameters

MOVED, RETRAIN = 0.1, 0.25
MISCALIBRATED = 0.05


@dataclass(frozen=True, slots=True)
class Marginals:
    """The distribution of each feature on its own: probabilities of values, or mean and variance."""

    values: Mapping[str, FloatArray]  # probabilities
    moments: Mapping[str, FloatArray]  # mean and variance
    classes: FloatArray | None  # None: the rows have no classes

    @classmethod
    def from_parameters(cls, parameters: Parameters) -> Marginals:
        """Return those of a model; text is left out."""
        prior = np.exp(parameters.log_prior)
        values, moments = {}, {}
        for name, term in parameters.terms.items():
            if isinstance(term, Histogram):
                mixed = prior @ np.exp(term.log_prob)
                values[name] = mixed / mixed.sum()
            elif isinstance(term, Gaussian) and np.isfinite(term.variance).all():
                mean = prior @ term.mean
                moments[name] = np.array([mean, prior @ (term.variance + term.mean**2) - mean**2])
        return cls(values, moments, prior)

    @classmethod
    def from_rows(cls, codebook: Codebook, blocks: Iterable[CodedRows]) -> Marginals:
        """Return those of coded rows."""
        cells = {each.name: np.zeros(each.size) for each in codebook.features if each.counted}
        moments = {each.name: np.zeros(3) for each in codebook.features if isinstance(each, Numeric) and not each.counted}
        classes, rows = np.zeros(len(codebook.classes)), 0
        for block in blocks:
            rows += block.rows
            if block.labels is not None:
                classes += np.bincount(block.labels, minlength=len(classes))
            for name in cells.keys() & block.columns.keys():
                codes = block.columns[name]
                cells[name] += np.bincount(codes[codes >= 0], minlength=len(cells[name]))
            for name in moments.keys() & block.columns.keys():
                feature, codes = codebook.feature(name), block.columns[name]
                if isinstance(feature, Numeric):
                    values = (codes[codes != MISSING] + feature.centre) / feature.scale
                    moments[name] += [len(values), values.sum(), (values**2).sum()]
        if not rows:
            raise DataError("the current table has no rows to compare")
        probabilities = {name: (each + 0.5) / (each + 0.5).sum() for name, each in cells.items()}
        known = {
            name: np.array([total / count, max(squares / count - (total / count) ** 2, 1e-12)])
            for name, (count, total, squares) in moments.items()
            if count > 1
        }
        return cls(probabilities, known, (classes + 0.5) / (classes + 0.5).sum() if classes.sum() else None)


@dataclass(frozen=True, slots=True)
class Drift:
    """The stability index of each feature and of the classes, and the evaluation on the current rows if they have classes."""

    features: Mapping[str, float]
    classes: float | None
    evaluation: Evaluation | None = None

    @property
    def sentence(self) -> str:
        """One sentence: retrain, recalibrate, look again soon, or no need."""
        indices = {**self.features, **({} if self.classes is None else {"the classes": self.classes})}
        worst = sorted(indices, key=lambda name: -indices[name])[:3]
        listed = ", ".join(f"{name} ({indices[name]:.2f})" for name in worst if indices[name] >= MOVED)
        if worst and indices[worst[0]] >= RETRAIN:
            return f"Retrain: the rows are no longer those that the model was trained on; most has moved: {listed}."
        if self.evaluation is not None and self.calibration_error > MISCALIBRATED:
            return f"Recalibrate or retrain: predicted probabilities are off by {self.calibration_error:.2f} on average."
        if listed:
            return f"No need to retrain yet, but look again soon: {listed} has moved."
        return "No need to retrain: no feature has moved."

    @property
    def calibration_error(self) -> float:
        """The largest calibration error of a class, at least."""
        if self.evaluation is None:
            return 0.0
        return max(self.evaluation.calibration_error(label).low for label in self.evaluation.classes)

    def to_dict(self) -> dict[str, Any]:
        """Return indices, figures and the sentence, for a file."""
        return {
            "format": "blindbayes.drift/1",
            "features": dict(self.features),
            "classes": self.classes,
            "evaluation": None if self.evaluation is None else self.evaluation.figures,
            "sentence": self.sentence,
        }


def compare(model: Marginals, current: Marginals, evaluation: Evaluation | None = None) -> Drift:
    """Return the drift between a model's rows and current ones."""
    if any(name in current.values and len(current.values[name]) != len(own) for name, own in model.values.items()):
        raise ConfigError("both count a feature in other cells: compare a model with rows, or models of one codebook")
    features = {name: _stability(own, current.values[name]) for name, own in model.values.items() if name in current.values}
    features |= {name: _normal(own, current.moments[name]) for name, own in model.moments.items() if name in current.moments}
    classes = None
    if model.classes is not None and current.classes is not None:
        classes = _stability(model.classes, current.classes)
    return Drift(features, classes, evaluation)


def _stability(before: FloatArray, now: FloatArray) -> float:
    p, q = np.maximum(before, 1e-6), np.maximum(now, 1e-6)
    return float(((p - q) * np.log(p / q)).sum())


def _normal(before: FloatArray, now: FloatArray) -> float:
    (m, u), (n, v) = before, now
    return float(((m - n) ** 2 + u + v) * (1 / u + 1 / v) / 2 - 2)
