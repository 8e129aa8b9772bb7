"""Drift: how far current rows lie from those that a model was trained on.

The population stability index of a feature is sum (p - q) ln (p / q) over its values, p of the model's rows and q of the
current ones; 0 if nothing changed. A Gaussian feature is compared by the same sum of two normal densities of these means and
variances, ((m - n)^2 + u + v) (1/u + 1/v) / 2 - 2. Limits are the usual ones: from 0.1 on a feature has moved, from 0.25 on the
model should be trained again.

An index is above 0 without any drift, too: the model carries noise, and tables have finitely many rows. `Drift.chance` is what
these explain of an index. Of noise: the largest index of 199 releases that a model of the current rows may have had. Of rows:
the 99.5% point of chi-square with k - 1 degrees of freedom for k values (2 for a normal density), times the sum of one over
both numbers of rows. An index that does not exceed their sum is no drift.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook, Numeric, Text
from blindbayes.errors import ConfigError, DataError
from blindbayes.statistics.block import MISSING, CodedRows
from blindbayes.statistics.evaluation import Evaluation
from blindbayes.statistics.intervals import PlausibleMarginals
from blindbayes.statistics.parameters import FloatArray, Gaussian, Histogram, Parameters
from blindbayes.statistics.statistics import Statistics

MOVED, RETRAIN = 0.1, 0.25
MISCALIBRATED = 0.05
_NORMAL, _TINY = 2.5758293, 1e-12  # the 99.5% point of the normal distribution
Edges = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Marginals:
    """The distribution of each feature on its own: probabilities of values, or mean and variance."""

    values: Mapping[str, FloatArray]  # probabilities
    moments: Mapping[str, FloatArray]  # mean and variance
    classes: FloatArray | None  # None: the rows have no classes
    rows: float = math.inf  # that these were counted on; infinite: not known
    noise: Mapping[str, FloatArray] = field(default_factory=dict)  # by feature, (draws, ...), in units of the above
    noise_of_classes: FloatArray | None = None
    unknown: frozenset[str] = frozenset()  # features of which noise left nothing
    edges: Edges = field(default_factory=dict)  # the cells, in fine ones, that a noisy histogram was released in
    has_unknown_noise: bool = False

    @classmethod
    def from_parameters(cls, parameters: Parameters) -> Marginals:
        """Return those of a model without its counts; text is left out."""
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
    def from_statistics(cls, statistics: Statistics) -> Marginals:
        """Return those of counted rows."""
        book, moments = statistics.codebook, {}
        values = {each.name: _shares(statistics.counts[each.name].sum(axis=0)) for each in book.features if each.counted}
        for name, count in statistics.n.items():
            feature, n = book.feature(name), int(count.sum())
            if isinstance(feature, Numeric) and n > 1:
                total, squares = int(statistics.sums[name].sum()), int(statistics.squares[name].sum())
                mean = (total / n + feature.centre) / feature.scale
                moments[name] = np.array([mean, max((n * squares - total**2) / (n * feature.scale) ** 2, _TINY)])
        classes = statistics.class_counts.astype(np.float64)
        return cls(values, moments, _shares(classes), float(max(classes.sum(), 0.0)))

    @classmethod
    def from_release(cls, plausible: PlausibleMarginals, codebook: Codebook) -> Marginals:
        """Return those of a noisy release, with the noise in them."""
        values, moments, noise = {}, {}, {}
        for name, counts in plausible.counts.items():
            middle = counts.mean(axis=0)  # noise is centred
            values[name], noise[name] = _shares(middle), (counts - middle) / max(float(middle.sum()), 1.0)
        for name, draws in plausible.moments.items():
            moments[name] = draws.mean(axis=0)
            noise[name] = draws - moments[name]
        classes = plausible.classes.mean(axis=0)
        rows = max(float(classes.sum()), 1.0)
        class_noise = (plausible.classes - classes) / rows
        unknown = frozenset(each.name for each in codebook.features if each.name not in noise and not isinstance(each, Text))
        return cls(values, moments, _shares(classes), rows, noise, class_noise, unknown, plausible.edges)

    @classmethod
    def from_rows(cls, codebook: Codebook, blocks: Iterable[CodedRows], edges: Edges | None = None) -> Marginals:
        """Return those of coded rows, their values joined to the cells that lie between `edges`."""
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
        probabilities = {name: _shares(each, (edges or {}).get(name)) for name, each in cells.items()}
        known = {
            name: np.array([total / count, max(squares / count - (total / count) ** 2, 1e-12)])
            for name, (count, total, squares) in moments.items()
            if count > 1
        }
        return cls(probabilities, known, _shares(classes) if classes.sum() else None, rows)


def _shares(counts: npt.NDArray[Any], edges: Sequence[int] | None = None) -> FloatArray:
    """Return the shares of counts, joined between edges, each with half a row more."""
    joined = counts.astype(np.float64) if edges is None else np.add.reduceat(counts.astype(np.float64), list(edges)[:-1])
    smooth = np.maximum(joined, 0.0) + 0.5
    return np.asarray(smooth / smooth.sum())


@dataclass(frozen=True, slots=True)
class Drift:
    """The stability index of each feature and of the classes, and the evaluation on the current rows if they have classes."""

    features: Mapping[str, float]
    classes: float | None
    evaluation: Evaluation | None = None
    chance: Mapping[str, float] = field(default_factory=dict)  # of the index of a feature, what noise and few rows explain
    chance_of_classes: float = 0.0
    unknown: tuple[str, ...] = ()  # features of which the release says nothing
    is_noisy: bool = False
    has_unknown_noise: bool = False

    @property
    def sentence(self) -> str:
        """One sentence: retrain, recalibrate, look again soon, or no need; and what noise hides."""
        indices = {**self.features, **({} if self.classes is None else {"the classes": self.classes})}
        chance = {**self.chance, "the classes": self.chance_of_classes}
        large = sorted((name for name in indices if indices[name] >= MOVED), key=lambda name: -indices[name])
        moved = [name for name in large if indices[name] > chance.get(name, 0.0)][:3]
        listed = ", ".join(f"{name} ({indices[name]:.2f})" for name in moved)
        noise = "noise of the model and few rows explain" if self.is_noisy else "few rows explain"
        hidden = [f"{name} ({indices[name]:.2f} of {chance[name]:.2f})" for name in large if name not in moved][:3]
        if self.has_unknown_noise and large:
            return f"No answer: the model is noisy, and its file does not say how much; {', '.join(large[:3])} may have moved."
        if moved and indices[moved[0]] >= RETRAIN:
            return f"Retrain: the rows are no longer those that the model was trained on; most has moved: {listed}."
        if self.evaluation is not None and self.calibration_error > MISCALIBRATED:
            off = f"predicted probabilities are off by {self.calibration_error:.2f} on average"
            if self.is_noisy:
                return f"Recalibrate: {off}. The model's noise may be why, so that training again need not help."
            return f"Recalibrate or retrain: {off}."
        if listed:
            return f"No need to retrain yet, but look again soon: {listed} has moved."
        if not self.features and self.unknown:
            return "No answer: noise left nothing of the features in the release; only the classes can be compared."
        silent = f" Of {', '.join(self.unknown[:3])} the release has nothing to compare." if self.unknown else ""
        if hidden:
            return f"No need to retrain: no feature has moved by more than {noise}: {', '.join(hidden)}.{silent}"
        return f"No need to retrain: no feature has moved.{silent}"

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
            "chance": dict(self.chance),
            "chance_of_classes": None if self.classes is None else self.chance_of_classes,
            "unknown": list(self.unknown),
            "evaluation": None if self.evaluation is None else self.evaluation.figures,
            "sentence": self.sentence,
        }


def compare(model: Marginals, current: Marginals, evaluation: Evaluation | None = None) -> Drift:
    """Return the drift between a model's rows and current ones, or those of a later model."""
    if any(name in current.values and len(current.values[name]) != len(own) for name, own in model.values.items()):
        raise ConfigError("both count a feature in other cells: compare a model with rows, or models of one codebook")
    features, chance = {}, {}
    unknown = model.unknown | current.unknown
    few = 1 / model.rows + 1 / current.rows if model.rows and current.rows else math.inf
    for before, now, index in ((model.values, current.values, _stability), (model.moments, current.moments, _normal)):
        for name in [name for name in before if name in now and name not in unknown]:
            features[name] = float(index(before[name], now[name]))
            noise = (model.noise.get(name), model.rows), (current.noise.get(name), current.rows)
            degrees = len(before[name]) - 1 if before is model.values else 2
            chance[name] = _by_rows(degrees, few) + _by_noise(index, before[name], now[name], *noise)
    classes, chance_of_classes = None, 0.0
    if model.classes is not None and current.classes is not None:
        classes = float(_stability(model.classes, current.classes))
        noise = (model.noise_of_classes, model.rows), (current.noise_of_classes, current.rows)
        chance_of_classes = _by_rows(len(model.classes) - 1, few)
        chance_of_classes += _by_noise(_stability, model.classes, current.classes, *noise)
    has_unknown_noise = model.has_unknown_noise or current.has_unknown_noise
    is_noisy = has_unknown_noise or any(each.noise_of_classes is not None for each in (model, current))
    return Drift(features, classes, evaluation, chance, chance_of_classes, tuple(sorted(unknown)), is_noisy, has_unknown_noise)


def _by_rows(degrees: int, few: float) -> float:
    """Return what numbers of rows explain of an index; `few` is the sum of one over each."""
    spread = 2 / (9 * max(degrees, 1))  # chi-square by the approximation of Wilson and Hilferty, within 1% here
    return max(degrees, 1) * (1 - spread + _NORMAL * math.sqrt(spread)) ** 3 * few


def _by_noise(
    index: Callable[[FloatArray, FloatArray], FloatArray],
    before: FloatArray,
    now: FloatArray,
    noise: tuple[FloatArray | None, float],
    later: tuple[FloatArray | None, float],
) -> float:
    """Return the largest index between one distribution and itself with the noise of either side, each drawn anew."""
    if noise[0] is None and later[0] is None:
        return 0.0
    same = now if later[0] is None else before if noise[0] is None else (before + now) / 2
    return float(index(_with(index, same, *noise), _with(index, same, *later)).max())


def _with(index: Callable[..., FloatArray], same: FloatArray, noise: FloatArray | None, rows: float) -> FloatArray:
    if noise is None:
        return same
    noisy = np.maximum(same + noise, _TINY)
    if index is _stability:
        noisy = noisy + 0.5 / rows
        return np.asarray(noisy / noisy.sum(axis=-1, keepdims=True))
    return np.stack([same[0] + noise[:, 0], noisy[:, 1]], axis=1)


def _stability(before: FloatArray, now: FloatArray) -> FloatArray:
    p, q = np.maximum(before, 1e-6), np.maximum(now, 1e-6)
    return np.asarray(((p - q) * np.log(p / q)).sum(axis=-1))


def _normal(before: FloatArray, now: FloatArray) -> FloatArray:
    m, u, n, v = before[..., 0], before[..., 1], now[..., 0], now[..., 1]
    return np.asarray(((m - n) ** 2 + u + v) * (1 / u + 1 / v) / 2 - 2)
