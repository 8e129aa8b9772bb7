"""Parameters of Naive Bayes, and the log-likelihood of rows.

What happens at the edges, once and for all:

- A class without rows has prior probability 0 and is never predicted.
- A histogram cell is smoothed by `alpha`: ln(count + alpha) - ln(total + alpha * cells).
- A Gaussian variance is E[x^2] - E[x]^2, exact up to one rounding. With a codebook's `variance_floor` it is raised to that
  floor; otherwise `var_smoothing` times the largest variance of any feature is added, as scikit-learn does. A variance that
  is still 0 becomes the variance of rounding to the grid, precision^2 / 12.
- A class that has rows but no present value of a Gaussian feature takes the mean and variance of all classes together; a
  feature without any value contributes nothing.
- A missing value contributes nothing.
- Text, as scikit-learn has it: multinomial ln(uses + alpha) - ln(all uses + alpha * words), bernoulli ln(documents + alpha) -
  ln(all documents + 2 alpha), where a word that is absent speaks too; complement minus the multinomial of all other classes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook, Numeric, Text
from blindbayes.crypto.kernels import active
from blindbayes.errors import ConfigError, DataError
from blindbayes.statistics import MISSING, Bags, CodedRows, Statistics

FloatArray: TypeAlias = npt.NDArray[np.float64]
_TABLE_WIDTH = 1 << 16  # a Gaussian feature with fewer grid points is scored by table look-up


@dataclass(frozen=True, slots=True)
class Histogram:
    """ln P(value | class), shaped (classes, values)."""

    log_prob: FloatArray


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Mean and variance per class, in the feature's own unit."""

    mean: FloatArray
    variance: FloatArray


@dataclass(frozen=True, slots=True)
class WordTable:
    """Increments of class scores by the words of a document, shaped (classes, words).

    ln P(word | class), or for `complement` minus that of the other classes. With `once` it is ln P(word occurs | class), and
    absent words are scored too.
    """

    log_prob: FloatArray
    once: bool = False

    def score(self, bags: Bags) -> FloatArray:
        """Score documents, (documents, classes); a missing document scores 0."""
        absent = np.log1p(-np.exp(self.log_prob)) if self.once else None
        rows, scores = bags.rows, np.empty((len(bags), len(self.log_prob)))
        for at, own in enumerate(self.log_prob):
            speaks = own if absent is None else own - absent[at]
            scores[:, at] = np.bincount(rows, bags.times * speaks[bags.words], minlength=len(bags))
            if absent is not None:
                scores[:, at] += absent[at].sum() * bags.present
        return scores


Term: TypeAlias = Histogram | Gaussian | WordTable


@dataclass(frozen=True, slots=True)
class Parameters:
    """A fitted model: ln prior per class and one term per feature, in the codebook's order."""

    codebook: Codebook
    log_prior: FloatArray
    terms: Mapping[str, Term]

    def weighed(self, priors: Any = None, weights: Any = None) -> Parameters:
        """Return the same likelihoods with public priors instead of the counted ones, or with weighted classes.

        `priors` has a probability per class, by label or in the codebook's order. `weights` is "balanced" (equal priors) or a
        cost of errors per class; classes that are not named have weight 1.
        """
        if priors is None and weights is None:
            return self
        own = np.exp(self.log_prior) if priors is None else self._per_class(priors, "priors", None)
        if priors is not None and not math.isclose(float(own.sum()), 1.0, rel_tol=1e-6):
            raise ConfigError("priors are probabilities of all classes: they add up to 1")
        if isinstance(weights, str):
            if weights != "balanced":
                raise ConfigError("class_weight is 'balanced', or a weight per class")
            own = (own > 0).astype(np.float64)
        elif weights is not None:
            own = own * self._per_class(weights, "class_weight", 1.0)
        if not own.sum() > 0:
            raise ConfigError("no class that occurs is left any weight")
        with np.errstate(divide="ignore"):
            return replace(self, log_prior=np.log(own / own.sum()))

    def _per_class(self, given: Any, what: str, default: float | None) -> FloatArray:
        labels = self.codebook.classes
        if isinstance(given, Mapping):
            if unknown := sorted(set(map(str, given)) - set(labels)):
                raise ConfigError(f"{what}: {unknown[0]!r} is not a class; the classes are {', '.join(labels)}")
            if default is None and len(given) < len(labels):
                raise ConfigError(f"{what}: name every class")
            listed = [given.get(label, default) for label in labels]
        else:
            listed = list(given)
            if len(listed) != len(labels):
                raise ConfigError(f"{what}: {len(labels)} numbers are needed, in the order {', '.join(labels)}")
        numbers = np.array([value if isinstance(value, int | float | np.number) else math.nan for value in listed], np.float64)
        if not (np.isfinite(numbers).all() and (numbers >= 0).all()):
            raise ConfigError(f"{what}: numbers from 0 on are needed, one per class")
        return numbers

    def joint_log_likelihood(self, block: CodedRows) -> FloatArray:
        """Return ln P(class) + ln P(row | class), shaped (rows, classes)."""
        scores = np.empty((len(self.log_prior), block.rows))
        scores[:] = self.log_prior[:, None]
        engine = active()
        for name, term in self.terms.items():
            codes = block.values(name)
            if engine is None or isinstance(term, WordTable) or isinstance(codes, Bags):
                scores += self.score(name, term, codes).T
            elif isinstance(term, Histogram):
                engine.add_cells(scores, codes, np.hstack([np.zeros((len(scores), 1)), term.log_prob]))
            else:
                feature = self._numeric(name)
                constant = np.array(
                    [-0.5 * math.log(2.0 * math.pi * each) if math.isfinite(each) else 0.0 for each in term.variance]
                )
                terms = np.stack([constant, term.mean, term.variance])
                engine.add_densities(scores, codes, terms, centre=feature.centre, scale=feature.scale, missing=MISSING)
        return scores.T

    def score(self, name: str, term: Term, codes: npt.NDArray[np.int64] | Bags) -> FloatArray:
        """Return ln P(value | class) of one feature's codes or words, shaped (rows, classes); 0 where missing."""
        if isinstance(term, WordTable) and isinstance(codes, Bags):
            return term.score(codes)
        if isinstance(term, WordTable) or isinstance(codes, Bags):
            raise ConfigError(f"feature {name!r}: text is scored by its words")
        if isinstance(term, Histogram):
            table = np.vstack([term.log_prob.T, np.zeros(len(self.log_prior))])  # the last row answers code -1
            return table.take(codes, axis=0, mode="wrap")
        feature = self._numeric(name)
        missing = codes == MISSING
        if feature.width <= min(_TABLE_WIDTH, len(codes)):
            table = _density(term, feature, np.arange(feature.code_low, feature.code_high + 1))
            table = np.vstack([table, np.zeros(table.shape[1])])
            return table.take(np.where(missing, -1, codes - feature.code_low), axis=0, mode="wrap")
        scores = _density(term, feature, np.where(missing, 0, codes))
        scores[missing] = 0.0
        return scores

    def _numeric(self, name: str) -> Numeric:
        feature = self.codebook.feature(name)
        if not isinstance(feature, Numeric):
            raise ConfigError(f"feature {name!r} has Gaussian parameters and is not numeric")
        return feature


def _density(term: Gaussian, feature: Numeric, codes: npt.NDArray[np.int64]) -> FloatArray:
    # Grid points are exact in float64, and so is the division by a decimal scale up to one rounding.
    values = (codes + feature.centre) / feature.scale
    scores = np.empty((len(codes), len(term.mean)))
    for at, (mean, variance) in enumerate(zip(term.mean, term.variance, strict=True)):
        if not math.isfinite(variance):
            scores[:, at] = 0.0  # no class has a value of this feature
            continue
        scores[:, at] = -0.5 * math.log(2.0 * math.pi * variance) - 0.5 * (values - mean) ** 2 / variance
    return scores


def require_alpha(alpha: object) -> None:
    """Raise unless it can be a smoothing count."""
    if not (isinstance(alpha, Real) and math.isfinite(alpha) and float(alpha) > 0):
        raise ConfigError("alpha must be a positive number")


def estimate(
    statistics: Statistics, *, alpha: float = 1.0, var_smoothing: float = 1e-9, divisor: Literal["n", "n-1"] = "n"
) -> Parameters:
    """Return maximum-likelihood parameters with Laplace smoothing and a variance floor, from exact statistics.

    `divisor` "n-1" takes the unbiased variance (of a single value: 0), as some papers print it.
    """
    require_alpha(alpha)
    if not (isinstance(var_smoothing, Real) and math.isfinite(var_smoothing) and var_smoothing >= 0):
        raise ConfigError("var_smoothing must be a number that is not negative")
    codebook = statistics.codebook
    rows = int(statistics.class_counts.sum())
    if rows <= 0:
        raise DataError("the table is empty; a model needs at least one row")
    with np.errstate(divide="ignore"):
        log_prior = np.log(statistics.class_counts.astype(np.float64)) - math.log(rows)
    added = Fraction(0)
    if codebook.variance_floor is None:
        added = Fraction(var_smoothing) * max((_pooled(statistics, name)[1] for name in statistics.sums), default=Fraction(0))
    terms: dict[str, Term] = {}
    for feature in codebook.features:
        if feature.name in statistics.counts:
            counts = statistics.counts[feature.name].astype(np.float64)
            totals = counts.sum(axis=1, keepdims=True)
            terms[feature.name] = Histogram(np.log(counts + alpha) - np.log(totals + alpha * counts.shape[1]))
        elif isinstance(feature, Text):
            documents = statistics.documents(feature.name).astype(np.float64)
            terms[feature.name] = words_term(feature, statistics.bags[feature.name].astype(np.float64), documents, alpha)
        elif isinstance(feature, Numeric):
            terms[feature.name] = _gaussian(statistics, feature, added, less=1 if divisor == "n-1" else 0)
    return Parameters(codebook, log_prior, terms)


def outweighed(statistics: Statistics, var_smoothing: float) -> tuple[str, str] | None:
    """Return the Gaussian feature of largest variance, and that of smallest if `var_smoothing` adds more to it; else None."""
    if statistics.codebook.variance_floor is not None or len(statistics.sums) < 2:
        return None
    variances = {name: _pooled(statistics, name)[1] for name in statistics.sums}
    widest = max(variances, key=lambda name: variances[name])
    added = Fraction(var_smoothing) * variances[widest]
    small = [name for name, own in variances.items() if 0 < own < added and name != widest]
    return (widest, min(small, key=lambda name: variances[name])) if small else None


def words_term(feature: Text, uses: FloatArray, documents: FloatArray, alpha: float) -> WordTable:
    """Return the term of a text feature from how often each class uses each word."""
    if feature.once:
        return WordTable(np.log(uses + alpha) - np.log(documents + 2 * alpha)[:, None], once=True)
    if feature.model == "complement" and len(uses) > 1:
        uses = uses.sum(axis=0) - uses
    log = np.log(uses + alpha) - np.log(uses.sum(axis=1, keepdims=True) + alpha * uses.shape[1])
    return WordTable(-log if feature.model == "complement" else log)


def _scale(feature: Numeric) -> Fraction:
    """Grid steps per unit as an exact fraction."""
    if feature.scale >= 1:
        return Fraction(round(feature.scale))
    return Fraction(1, round(feature.precision))


def _moments(n: Any, total: Any, square: Any, feature: Numeric) -> tuple[Fraction, Fraction]:
    """Exact mean and variance in the feature's unit."""
    n, total, square = int(n), int(total), int(square)
    scale = _scale(feature)
    return Fraction(feature.centre * n + total, n) / scale, Fraction(n * square - total * total, n * n) / (scale * scale)


def _pooled(statistics: Statistics, name: str) -> tuple[Fraction, Fraction]:
    """Mean and variance of a feature over all classes; variance 0 where it has no value."""
    feature = statistics.codebook.feature(name)
    if not isinstance(feature, Numeric):
        raise ConfigError(f"feature {name!r} is not numeric")
    n = sum(int(value) for value in statistics.n[name])
    if n == 0:
        return Fraction(0), Fraction(0)
    total = sum(int(value) for value in statistics.sums[name])
    square = sum(int(value) for value in statistics.squares[name])
    return _moments(n, total, square, feature)


def _gaussian(statistics: Statistics, feature: Numeric, added: Fraction, less: int = 0) -> Gaussian:
    name = feature.name
    floor = statistics.codebook.variance_floor
    means, variances = [], []
    total_n = sum(int(value) for value in statistics.n[name])
    for n, total, square in zip(statistics.n[name], statistics.sums[name], statistics.squares[name], strict=True):
        if total_n == 0:
            means.append(0.0)
            variances.append(math.inf)
            continue
        mean, variance = _moments(n, total, square, feature) if int(n) else _pooled(statistics, name)
        variance = variance * int(n) / max(1, int(n) - less) if int(n) else variance
        variance = max(variance, Fraction(floor)) if floor is not None else variance + added
        if variance <= 0:
            variance = 1 / (12 * _scale(feature) ** 2)
        means.append(float(mean))
        variances.append(float(variance))
    return Gaussian(np.array(means), np.array(variances))
