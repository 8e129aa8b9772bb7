"""The weight of evidence of each value for each class, and the information of each feature, from the parameters alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Feature, Numeric, Text
from blindbayes.codebook.features import number_name
from blindbayes.errors import ConfigError
from blindbayes.statistics import Statistics
from blindbayes.statistics.intervals import NoiseInterval, between
from blindbayes.statistics.parameters import Gaussian, Histogram, Parameters, WordTable

MAX_RANGES = 12  # a number with more cells is shown in this many ranges
TOP_WORDS = 12  # words per class that a text shows
POINTS = 5  # values at which a Gaussian feature is shown
_NEGLIGIBLE = 1e-9  # a difference between classes below this is no evidence
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Weight:
    """The evidence of a value or range of one feature: ln P(value | class) minus the mean over the classes that occur."""

    feature: str
    value: str
    at: int  # its place among the values of the feature
    values: Floats  # per class
    low: Floats | None = None  # per class: interval that contains the exact weight in 90 of 100 releases; None: exact
    high: Floats | None = None
    share: float = 1.0  # how often the value occurs, by the model
    rows: tuple[float, float] | None = None  # lower and upper bound of the number of rows; None: unknown
    seen: bool = True  # False if smoothing or noise alone may explain the value

    @property
    def strength(self) -> tuple[float, float]:
        """Sort key: the evidence that noise cannot explain, then the evidence itself, both weighted by frequency."""
        size = float(np.abs(self.values).max()) * self.share
        if self.low is None or self.high is None:
            return size, size
        return float(np.maximum(np.maximum(self.low, -self.high), 0.0).max()) * self.share, size

    @property
    def rows_in_words(self) -> str:
        """The number of rows, or its bounds; empty if unknown."""
        if self.rows is None:
            return ""
        low, high = self.rows
        return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"

    def interval(self, index: int) -> tuple[float, float] | None:
        """Return the interval of one class; None for an exact model."""
        return None if self.low is None or self.high is None else (float(self.low[index]), float(self.high[index]))


def weights(
    parameters: Parameters,
    only: str | None = None,
    noise_interval: NoiseInterval | None = None,
    statistics: Statistics | None = None,
) -> list[Weight]:
    """Return the weights of all values in the codebook's order: categories, ranges or points of numbers, strongest words.

    With `noise_interval`, each has its interval, and the ranges are those that were released (or unions of them). With
    `statistics` (exact, or the noisy ones that were released), each has its number of rows.
    """
    result: list[Weight] = []
    for feature in parameters.codebook.features if only is None else (parameters.codebook.feature(only),):
        term = parameters.terms[feature.name]
        if isinstance(term, Histogram):
            result += _histogram_weights(parameters, feature, term, noise_interval, statistics)
        elif isinstance(feature, Text) and isinstance(term, WordTable):
            result += _word_weights(parameters, feature, term, noise_interval, statistics)
        elif isinstance(feature, Numeric) and isinstance(term, Gaussian):
            codes = _points(term, feature, np.isfinite(parameters.log_prior))
            names = [f"at {number_name((code + feature.centre) / feature.scale)}" for code in codes.tolist()]
            exact = None if noise_interval is None else noise_interval.score(parameters, feature.name, codes)
            own = parameters.score(feature.name, term, codes)
            result += _weights(parameters, feature.name, names, own, exact, noisy=noise_interval is not None)
        else:
            raise ConfigError(f"feature {feature.name!r} of kind {type(feature).__name__} cannot be explained")
    return result


def _weights(
    parameters: Parameters, feature: str, names: Sequence[str], own: Floats, exact: Floats | None, *, noisy: bool
) -> list[Weight]:
    """Centre log-probabilities `own` (values, classes); `exact` has samples of the exact ones before these axes."""
    present = np.isfinite(parameters.log_prior)
    centred = own - own[:, present].mean(axis=1, keepdims=True)
    low = high = None
    if exact is not None:
        low, high = between(exact - exact[:, :, present].mean(axis=2, keepdims=True))
    elif noisy:
        low, high = np.full(own.shape, -np.inf), np.full(own.shape, np.inf)
    return [
        Weight(feature, name, at, centred[at], None if low is None else low[at], None if high is None else high[at])
        for at, name in enumerate(names)
    ]


def _histogram_weights(
    parameters: Parameters,
    feature: Feature,
    term: Histogram,
    noise_interval: NoiseInterval | None,
    statistics: Statistics | None,
) -> list[Weight]:
    cells = term.log_prob.shape[1]
    edges = None if noise_interval is None else noise_interval.edges.get(feature.name, _steps(term))
    starts = _starts(feature, cells, edges)
    names = [range_name(feature, start, end) for start, end in zip(starts, [*starts[1:], cells], strict=True)]
    own = np.logaddexp.reduceat(term.log_prob, starts, axis=1).T
    exact, released = None, None if noise_interval is None else noise_interval.terms[feature.name]
    if isinstance(released, Histogram):
        with np.errstate(invalid="ignore"):  # nan: a hidden count
            exact = np.logaddexp.reduceat(released.log_prob, starts, axis=2).transpose(0, 2, 1)
    result = _weights(parameters, feature.name, names, own, exact, noisy=noise_interval is not None)
    shares = np.exp(own) @ np.exp(parameters.log_prior)
    if statistics is None:
        return [replace(weight, share=float(share)) for weight, share in zip(result, shares, strict=True)]
    if noise_interval is not None and exact is None:  # not released: a selected rule may still give it evidence
        return [replace(weight, share=1.0, seen=bool(np.ptp(weight.values) > _NEGLIGIBLE)) for weight in result]
    if noise_interval is None or exact is None:
        counts = np.add.reduceat(statistics.counts[feature.name].sum(axis=0), starts)
        bounds = [(float(count), float(count)) for count in counts]
        seen = [count > 0 for count in counts]
    else:
        bounds = _row_bounds(exact, noise_interval, max(int(statistics.class_counts.sum()), 1))
        # Noise gives rows to values without any: a value counts as seen if its rows exceed the widest interval.
        widest = max(high - low for low, high in bounds)
        seen = [low > widest for low, _ in bounds]
    return [
        replace(weight, share=float(share), rows=rows, seen=bool(there))
        for weight, share, rows, there in zip(result, shares, bounds, seen, strict=True)
    ]


def _row_bounds(exact: Floats, noise_interval: NoiseInterval, total: int) -> list[tuple[float, float]]:
    shares = between(np.einsum("dvc,dc->dv", np.exp(exact), np.exp(noise_interval.log_prior)))
    return [(max(float(low), 0.0) * total, min(float(high), 1.0) * total) for low, high in zip(*shares, strict=True)]


def _word_weights(
    parameters: Parameters, feature: Text, term: WordTable, noise_interval: NoiseInterval | None, statistics: Statistics | None
) -> list[Weight]:
    """Return the words with the most evidence for each class, weighted by how often they are used."""
    present = np.isfinite(parameters.log_prior)
    odds = term.log_prob - term.log_prob[present].mean(axis=0)
    uses = None if statistics is None else statistics.bags[feature.name].sum(axis=0).astype(np.float64)
    likely = np.exp(parameters.log_prior) @ np.exp(-np.abs(term.log_prob)) if uses is None else uses / max(uses.sum(), 1.0)
    strength = np.where(present[:, None], odds, 0.0) * likely
    best = [at for row in strength for at in np.argsort(-row)[:TOP_WORDS].tolist() if row[at] > 0]
    chosen = np.unique(np.array(best, dtype=np.int64))
    exact, noisy = None, noise_interval is not None
    if noise_interval is not None and feature.name in noise_interval.words and len(chosen):
        exact = noise_interval.words[feature.name](chosen).transpose(0, 2, 1)
    names = [feature.word(int(at)) for at in chosen]
    result = _weights(parameters, feature.name, names, term.log_prob[:, chosen].T, exact, noisy=noisy)
    rows = [None] * len(chosen) if uses is None or noisy else [(float(uses[at]), float(uses[at])) for at in chosen]
    return [replace(weight, share=float(likely[at]), rows=each) for weight, at, each in zip(result, chosen, rows, strict=True)]


def information(parameters: Parameters) -> dict[str, float]:
    """Return the mutual information, in bits, of each feature with the class, largest first."""
    prior, bits = np.exp(parameters.log_prior), {}
    for feature in parameters.codebook.features:
        term = parameters.terms[feature.name]
        if isinstance(term, WordTable):
            bits[feature.name] = _information_word_weights(prior, term)
            continue
        if isinstance(term, Histogram):
            joint = prior[:, None] * np.exp(term.log_prob)
        elif isinstance(feature, Numeric):
            codes = np.unique(np.linspace(feature.code_low, feature.code_high, 257).astype(np.int64))
            scores = parameters.score(feature.name, term, codes).T
            likely = np.exp(scores - scores.max(axis=1, keepdims=True))
            joint = prior[:, None] * likely / likely.sum(axis=1, keepdims=True)
        else:
            continue
        joint = joint / joint.sum()
        independent = joint.sum(axis=0, keepdims=True) * joint.sum(axis=1, keepdims=True)
        some = joint > 0
        bits[feature.name] = max(float((joint[some] * np.log2(joint[some] / independent[some])).sum()), 0.0)
    return dict(sorted(bits.items(), key=lambda item: -item[1]))


def _information_word_weights(prior: Floats, term: WordTable) -> float:
    """Return the information of one word of a document; of a Bernoulli text, of all words as separate features."""
    if term.once:
        given = np.exp(term.log_prob)
        tables = np.stack([given, 1 - given]) * prior[:, None]
    else:
        likely = np.exp(-np.abs(term.log_prob))  # the terms of complement models have the opposite sign
        tables = (likely / likely.sum(axis=1, keepdims=True) * prior[:, None])[None]
    independent = tables.sum(axis=1, keepdims=True) * prior[:, None]
    some = tables > 0
    ratio = tables[some] / np.broadcast_to(independent, tables.shape)[some]
    return max(float((tables[some] * np.log2(ratio)).sum()), 0.0)


def _steps(term: Histogram) -> tuple[int, ...]:
    """Return the edges of the ranges of cells in which a histogram is constant."""
    changes = np.flatnonzero(np.abs(np.diff(term.log_prob, axis=1)).max(axis=0) > _NEGLIGIBLE) + 1
    return (0, *changes.tolist(), term.log_prob.shape[1])


def _points(term: Gaussian, feature: Numeric, present: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return evenly spaced codes from the lowest to the highest class mean and one deviation beyond."""
    spread = np.where(np.isfinite(term.variance), np.sqrt(term.variance), 0.0)
    low, high = float((term.mean - spread)[present].min()), float((term.mean + spread)[present].max())
    codes = np.floor(np.linspace(low, high, POINTS) * feature.scale + 0.5) - feature.centre
    return np.unique(np.clip(codes, feature.code_low, feature.code_high).astype(np.int64))


def _starts(feature: Feature, cells: int, edges: tuple[int, ...] | None) -> list[int]:
    if isinstance(feature, Categorical):
        return list(range(cells))
    starts = list(edges[:-1]) if edges and edges[-1] == cells else list(range(cells))
    if len(starts) <= MAX_RANGES:
        return starts
    return [int(part[0]) for part in np.array_split(starts, MAX_RANGES)]


def value_names(feature: Feature) -> list[str]:
    """Return the name of every category, cell or word of a feature; none for a Gaussian one."""
    if isinstance(feature, Numeric) and not feature.counted:
        return []
    return [range_name(feature, at, at + 1) for at in range(feature.size)]


def range_name(feature: Feature, start: int, end: int) -> str:
    """Return a category, or the first and last number of the grid in these cells."""
    if not isinstance(feature, Numeric):
        return feature.named(feature.values[start]) if isinstance(feature, Categorical) else feature.word(start)
    starts = [*feature.starts, feature.code_high + 1]
    first, last = starts[start], starts[end] - 1
    low, high = ((code + feature.centre) / feature.scale for code in (first, last))
    return number_name(low) if first == last else f"{number_name(low)} to {number_name(high)}"
