"""Evaluation of a fitted model on labelled rows, as one vector of exact integers.

The vector counts in which bin the log-odds of a class fell, apart for rows of the class and for other rows. The edges of the
bins are public: 0, and equal steps of log-odds up to +-8, since scores of Naive Bayes are extreme. Vectors of disjoint sets of
rows add up to the vector of all of them, so one secure sum evaluates a model over several sites.

Two classes: the bins of the second class hold everything, since the log-odds of the first are the negative ones and a row is
predicted as the second class if they are above 0. One row adds 1 to one of 2 x bins cells. K > 2 classes: the confusion matrix,
and bins for each class. One row adds 1 to K + 1 of K^2 + 2 K x bins cells.

Accuracy, recall, precision and base rate are exact. Where the score itself matters, only its bin is known: each such figure
comes as the interval of all values that scores within these bins can give, and its estimate. AUC counts two rows in the same
bin as a tie, which is its value for scores that are rounded to bins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.errors import ConfigError, DataError
from blindbayes.statistics.block import CodedRows
from blindbayes.statistics.parameters import FloatArray, Parameters

IntArray = npt.NDArray[np.int64]
MIN_BINS, MAX_BINS = 2, 100  # with 1,000 most rows of a few categorical features were alone in theirs
_REACH = 8.0  # log-odds of the outermost edges: probabilities of 0.0003 and 0.9997


@dataclass(frozen=True, slots=True)
class Binned:
    """A figure of binned scores: its estimate, and the interval that contains its value for the scores themselves."""

    value: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """The largest distance between the estimate and a value in the interval."""
        return max(self.value - self.low, self.high - self.value)

    def to_dict(self) -> dict[str, float | None]:
        return {"value": _number(self.value), "low": _number(self.low), "high": _number(self.high)}


@dataclass(frozen=True, slots=True)
class CalibrationPoint:
    """The rows whose predicted probability of a class lies in one bin, and the fraction of them that is of the class."""

    low: float
    high: float
    rows: int
    fraction: float


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Counts that evaluate a model."""

    classes: tuple[str, ...]
    confusion: IntArray  # (true class, predicted class)
    scores: IntArray  # (class, whether the row is of the class, bin of the predicted probability of the class)

    intervals: Mapping[str, tuple[float, float]] | None = None  # by figure, of the value without privacy noise; None: exact

    @staticmethod
    def size(classes: int, bins: int) -> int:
        """Return the number of cells of the vector."""
        return 2 * bins if classes == 2 else classes * classes + classes * 2 * bins

    @staticmethod
    def touched(classes: int) -> int:
        """Return the number of cells of the vector that one row moves, by 1 each: see [evaluation] in dp/PROOFS.md."""
        return 1 if classes == 2 else classes + 1

    @classmethod
    def zero(cls, classes: tuple[str, ...], bins: int) -> Evaluation:
        """Return the evaluation on no rows."""
        return cls.from_vector(classes, bins, np.zeros(cls.size(len(classes), require_bins(bins)), np.int64))

    @classmethod
    def from_vector(cls, classes: tuple[str, ...], bins: int, vector: npt.NDArray[Any]) -> Evaluation:
        """Return the evaluation that a vector holds. Raises `DataError` if it is that of no rows at all."""
        count = len(classes)
        if vector.shape != (cls.size(count, require_bins(bins)),):
            raise DataError("the vector does not have the length of an evaluation with these classes and bins")
        cells = vector.astype(np.int64)
        if count == 2:
            second = cells.reshape(2, bins)
            confusion = second.reshape(2, 2, bins // 2).sum(axis=2)
            made = cls(classes, confusion, np.stack([second[::-1, ::-1], second]))
        else:
            confusion = cells[: count * count].reshape(count, count)
            made = cls(classes, confusion, cells[count * count :].reshape(count, 2, bins))
        if not made._is_possible():
            raise DataError("the counts are those of no rows: they are negative, or contradict each other")
        return made

    @classmethod
    def from_confusion(cls, classes: tuple[str, ...], counts: npt.NDArray[Any]) -> Evaluation:
        """Make an evaluation from a confusion matrix alone. For two classes it has two bins."""
        if len(classes) == 2:
            return cls.from_vector(classes, 2, counts.reshape(-1))
        square = counts.reshape(len(classes), len(classes)).astype(np.int64)
        return cls(classes, square, np.zeros((len(classes), 2, 2), np.int64))

    def _is_possible(self) -> bool:
        actual = self.confusion.sum(axis=1)
        both = np.stack([actual.sum() - actual, actual], axis=1)
        return bool((self.confusion >= 0).all() and (self.scores >= 0).all() and (self.scores.sum(axis=2) == both).all())

    @property
    def vector(self) -> IntArray:
        if len(self.classes) == 2:
            return np.array(self.scores[1].ravel(), dtype=np.int64)
        return np.concatenate([self.confusion.ravel(), self.scores.ravel()])

    @property
    def words(self) -> npt.NDArray[np.uint64]:
        """The vector as words of a secure sum."""
        return self.vector.view(np.uint64)

    @property
    def bins(self) -> int:
        return int(self.scores.shape[2])

    def __add__(self, other: Evaluation) -> Evaluation:
        if (self.classes, self.bins) != (other.classes, other.bins):
            raise ConfigError("evaluations with different classes or bins cannot be added")
        return Evaluation(self.classes, self.confusion + other.confusion, self.scores + other.scores)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Evaluation):
            return NotImplemented
        return self.classes == other.classes and np.array_equal(self.vector, other.vector)

    def __hash__(self) -> int:
        return hash((self.classes, self.vector.tobytes()))

    # -- exact figures ---------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        return int(self.confusion.sum())

    @property
    def accuracy(self) -> float:
        return _ratio(np.trace(self.confusion), self.rows)

    @property
    def recall(self) -> FloatArray:
        """The fraction of each class's rows that were predicted as such; nan for a class without rows."""
        return _ratios(np.diag(self.confusion), self.confusion.sum(axis=1))

    @property
    def precision(self) -> FloatArray:
        """The fraction of each class's predictions that were right; nan for a class that was never predicted."""
        return _ratios(np.diag(self.confusion), self.confusion.sum(axis=0))

    @property
    def balanced_accuracy(self) -> float:
        """The mean recall of the classes that have rows."""
        recall = self.recall[~np.isnan(self.recall)]
        return float(recall.mean()) if len(recall) else math.nan

    @property
    def base_rate(self) -> FloatArray:
        """The fraction of rows of each class."""
        return _ratios(self.confusion.sum(axis=1), np.full(len(self.classes), self.rows))

    # -- figures of binned scores ----------------------------------------------------------------------------------------

    def roc(self, label: str) -> tuple[FloatArray, FloatArray]:
        """Return false and true positive rates of "is it this class?", at the bins' edges from 1 down to 0."""
        others, own = self._counts(label)
        rates = [np.concatenate([[0], np.cumsum(counts[::-1])]) for counts in (others, own)]
        return _ratios(rates[0], np.full(len(rates[0]), others.sum())), _ratios(rates[1], np.full(len(rates[1]), own.sum()))

    def auc(self, label: str) -> Binned:
        """Return the area under the ROC curve of one class against the others; nan if one side has no rows."""
        others, own = (counts.astype(object) for counts in self._counts(label))  # products of counts may exceed 64 bits
        below = np.concatenate([[0], np.cumsum(others)[:-1]])
        pairs, wins, ties = int(own.sum() * others.sum()), int((own * below).sum()), int((own * others).sum())
        return Binned(_ratio(2 * wins + ties, 2 * pairs), _ratio(wins, pairs), _ratio(wins + ties, pairs))

    def brier(self, label: str) -> Binned:
        """Return the mean squared difference between the predicted probability of a class and whether a row is of it."""
        edges = probability_edges(self.bins)
        others, own = self._counts(label)
        rows = int(others.sum() + own.sum())
        low = _ratio((others * edges[:-1] ** 2).sum() + (own * (1 - edges[1:]) ** 2).sum(), rows)
        high = _ratio((others * edges[1:] ** 2).sum() + (own * (1 - edges[:-1]) ** 2).sum(), rows)
        return Binned((low + high) / 2, low, high)

    def calibration(self, label: str) -> list[CalibrationPoint]:
        """Return the calibration curve of a class: one point per bin that has rows."""
        edges = probability_edges(self.bins).tolist()
        return [
            CalibrationPoint(low, high, int(a + b), float(b / (a + b)))
            for low, high, a, b in zip(edges, edges[1:], *self._counts(label), strict=False)
            if a + b
        ]

    def calibration_error(self, label: str) -> Binned:
        """Return the expected calibration error of a class: the mean distance of score and fraction, bin by bin."""
        if not (points := self.calibration(label)):
            return Binned(math.nan, math.nan, math.nan)
        weights = [_ratio(point.rows, self.rows) for point in points]
        middle = [abs(point.fraction - (point.low + point.high) / 2) for point in points]
        nearest = [max(point.low - point.fraction, point.fraction - point.high, 0.0) for point in points]
        farthest = [max(abs(point.fraction - point.low), abs(point.fraction - point.high)) for point in points]
        value, low, high = (
            math.fsum(w * d for w, d in zip(weights, each, strict=True)) for each in (middle, nearest, farthest)
        )
        return Binned(value, low, high)

    def _counts(self, label: str) -> tuple[IntArray, IntArray]:
        if label not in self.classes:
            raise ConfigError(f"{label!r} is no class of this evaluation; its classes are {', '.join(self.classes)}")
        others, own = self.scores[self.classes.index(label)]
        return others, own

    # -- for people and machines -----------------------------------------------------------------------------------------

    @property
    def sentence(self) -> str:
        """The answer to "is it any good?", in one sentence."""
        if not self.rows:
            return "No rows were held out: nothing is known about how good the model is."
        largest = float(self.base_rate.max())
        low, high = (self.intervals or {}).get("accuracy", (self.accuracy, self.accuracy))
        gain = "better than" if low > largest else "no better than" if high <= largest else "perhaps better than"
        noise = f" (without noise {low:.1%} to {high:.1%})" if self.intervals else ""
        return (
            f"Right on {self.accuracy:.1%}{noise} of {self.rows:,} held-out rows, {gain} always answering the most frequent "
            f"class ({largest:.1%})."
        )

    @property
    def figures(self) -> dict[str, Any]:
        """All figures as plain values; undefined ones are None."""
        recall, precision, base = self.recall, self.precision, self.base_rate
        return {
            "rows": self.rows,
            "accuracy": _number(self.accuracy),
            "balanced_accuracy": _number(self.balanced_accuracy),
            "classes": {
                label: {
                    "base_rate": _number(base[at]),
                    "recall": _number(recall[at]),
                    "precision": _number(precision[at]),
                    "auc": self.auc(label).to_dict(),
                    "brier": self.brier(label).to_dict(),
                    "calibration_error": self.calibration_error(label).to_dict(),
                }
                for at, label in enumerate(self.classes)
            },
            **({} if self.intervals is None else {"noise_intervals": {name: list(x) for name, x in self.intervals.items()}}),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return counts and figures, for a file."""
        return {
            "format": "blindbayes.evaluation/1",
            "classes": list(self.classes),
            "bins": self.bins,
            "confusion": self.confusion.tolist(),
            "scores": self.scores.tolist(),
            "figures": self.figures,
        }


def evaluate_rows(parameters: Parameters, batches: Iterable[CodedRows], bins: int) -> Evaluation:
    """Return the evaluation of a model on coded rows, which must have their classes."""
    classes = parameters.codebook.classes
    total, count = Evaluation.zero(classes, bins), len(classes)
    for block in batches:
        truth, joint = block.known_labels, parameters.joint_log_likelihood(block)
        if count == 2:
            place = truth * bins + bins_of(joint[:, 1] - joint[:, 0], bins)
            vector = np.bincount(place, minlength=2 * bins)
        else:
            confusion = np.bincount(truth * count + joint.argmax(axis=1), minlength=count * count)
            rest = [np.logaddexp.reduce(np.delete(joint, at, axis=1), axis=1) for at in range(count)]
            scores = [
                np.bincount((truth == at) * bins + bins_of(joint[:, at] - rest[at], bins), minlength=2 * bins)
                for at in range(count)
            ]
            vector = np.concatenate([confusion, *scores])
        total += Evaluation.from_vector(classes, bins, vector)
    return total


def log_odds_edges(bins: int) -> FloatArray:
    """Return the edges between the bins, in log-odds: 0, and equal steps to both sides."""
    steps = np.arange(2 - bins, bins, 2, dtype=np.float64)
    return steps * (_REACH / max(bins - 2, 1))


def probability_edges(bins: int) -> FloatArray:
    """Return the edges of the bins as probabilities, with 0 and 1."""
    return np.concatenate([[0.0], 1 / (1 + np.exp(-log_odds_edges(bins))), [1.0]])


def bins_of(log_odds: FloatArray, bins: int) -> IntArray:
    """Return the bin of each; an edge belongs to the bin below, so that a tie of two classes goes to the first."""
    return np.searchsorted(log_odds_edges(bins), log_odds, side="left").astype(np.int64)


def require_bins(bins: int) -> int:
    """Raise unless the number of score bins is allowed."""
    if type(bins) is not int or not MIN_BINS <= bins <= MAX_BINS or bins % 2:
        raise ConfigError(f"score_bins is an even number from {MIN_BINS} to {MAX_BINS}: one edge is at even odds")
    return bins


def _ratio(part: Any, whole: Any) -> float:
    return float(part / whole) if whole else math.nan


def _ratios(part: npt.NDArray[Any], whole: npt.NDArray[Any]) -> FloatArray:
    return np.array([_ratio(a, b) for a, b in zip(part.tolist(), whole.tolist(), strict=True)])


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
