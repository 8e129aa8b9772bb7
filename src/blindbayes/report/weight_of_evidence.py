"""The weight of evidence: how far a value speaks for or against each class, from the parameters alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Categorical, Feature, Numeric, Text
from blindbayes.errors import ConfigError
from blindbayes.statistics import Statistics
from blindbayes.statistics.intervals import NoiseInterval, between
from blindbayes.statistics.parameters import Gaussian, Histogram, Parameters, Words

_SILENT = 1e-9
"""A difference between classes below which a value says nothing."""
MOST_RANGES = 12  # a number in finer cells is shown in this many ranges
TOP_WORDS = 12  # of a text, for each class, those that speak most for it
POINTS = 5  # a number with a normal law is shown at this many values
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Weight:
    """A value, or a range of values, of one feature: ln P(value | class) less the mean over the classes that occur."""

    feature: str
    value: str
    at: int
    values: Floats  # per class
    low: Floats | None = None  # per class: the interval that holds the exact weight in 90 of 100 releases; None: exact
    high: Floats | None = None
    share: float = 1.0  # how often the value occurs, as the model has it
    rows: tuple[float, float] | None = None  # rows that have it, or where their number lies; None: not known
    seen: bool = True  # whether anybody has it, beyond what smoothing and noise make

    @property
    def strength(self) -> tuple[float, float]:
        """How much it says, times how often it is said: of what noise cannot have made, then of the weights as they are."""
        size = float(np.abs(self.values).max()) * self.share
        if self.low is None or self.high is None:
            return size, size
        return float(np.maximum(np.maximum(self.low, -self.high), 0.0).max()) * self.share, size

    @property
    def rows_in_words(self) -> str:
        """How many rows have it, or between which numbers; nothing where that is not known."""
        if self.rows is None:
            return ""
        low, high = self.rows
        return f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}"

    def interval(self, at: int) -> tuple[float, float] | None:
        """The interval of one class; None for an exact model."""
        return None if self.low is None or self.high is None else (float(self.low[at]), float(self.high[at]))


def weights(
    parameters: Parameters,
    only: str | None = None,
    noise_interval: NoiseInterval | None = None,
    statistics: Statistics | None = None,
) -> list[Weight]:
    """Every value of every categorical feature, ranges or values of every number, the words of a text that speak most for each
    class, in the codebook's order.

    With `noise_interval`, each has its interval, and the ranges are the cells that were released (or some of them together).
    With `statistics` (exact, or the noisy ones that were released), each says how many rows have it.
    """
    found: list[Weight] = []
    present = np.isfinite(parameters.log_prior)
    for feature in parameters.codebook.features if only is None else (parameters.codebook.feature(only),):
        term = parameters.terms[feature.name]
        if isinstance(term, Histogram):
            cells = term.log_prob.shape[1]
            cut = None if noise_interval is None else noise_interval.edges.get(feature.name, _steps(term))
            starts = _starts(feature, cells, cut)
            ends = [*starts[1:], cells]
            names = [_name(feature, start, end) for start, end in zip(starts, ends, strict=True)]
            own = np.logaddexp.reduceat(term.log_prob, starts, axis=1).T
            other = None if noise_interval is None else noise_interval.terms[feature.name]
            drawn = None
            if isinstance(other, Histogram):
                with np.errstate(invalid="ignore"):  # nan: a hidden count
                    drawn = np.logaddexp.reduceat(other.log_prob, starts, axis=2).transpose(0, 2, 1)
            held = None if statistics is None else np.add.reduceat(statistics.counts[feature.name].sum(axis=0), starts)
        elif isinstance(feature, Text) and isinstance(term, Words):
            found += _words(parameters, feature, term, noise_interval, statistics)
            continue
        elif isinstance(feature, Numeric) and isinstance(term, Gaussian):
            codes = _points(term, feature, present)
            names = [f"at {(code + feature.centre) / feature.scale:.6g}" for code in codes.tolist()]
            own = parameters.score(feature.name, term, codes)
            drawn = None if noise_interval is None else noise_interval.score(parameters, feature.name, codes)
            held = None
        else:
            raise ConfigError(f"nobody has said how {feature.name!r}, of the kind {type(feature).__name__}, is explained")
        some = _weights(feature.name, names, own, drawn, present, noise_interval is not None)
        if isinstance(term, Histogram):
            some = _occurrence(some, parameters, noise_interval, own, drawn, held, statistics)
        found += some
    return found


def _words(
    parameters: Parameters, feature: Text, term: Words, noise_interval: NoiseInterval | None, statistics: Statistics | None
) -> list[Weight]:
    """The words that speak most for a class, by what they say times how often they are used."""
    present = np.isfinite(parameters.log_prior)
    odds = term.log_prob - term.log_prob[present].mean(axis=0)
    uses = None if statistics is None else statistics.bags[feature.name].sum(axis=0).astype(np.float64)
    likely = np.exp(parameters.log_prior) @ np.exp(-np.abs(term.log_prob)) if uses is None else uses / max(uses.sum(), 1.0)
    strength = np.where(present[:, None], odds, 0.0) * likely
    best = [at for row in strength for at in np.argsort(-row)[:TOP_WORDS].tolist() if row[at] > 0]
    chosen = np.unique(np.array(best, dtype=np.int64))
    drawn, noisy = None, noise_interval is not None
    if noise_interval is not None and feature.name in noise_interval.words and len(chosen):
        drawn = noise_interval.words[feature.name](chosen).transpose(0, 2, 1)
    names = [feature.word(int(at)) for at in chosen]
    some = _weights(feature.name, names, term.log_prob[:, chosen].T, drawn, present, noisy)
    ends = [None] * len(chosen) if uses is None or noisy else [(float(uses[at]), float(uses[at])) for at in chosen]
    return [replace(weight, share=float(likely[at]), rows=rows) for weight, at, rows in zip(some, chosen, ends, strict=True)]


def information(parameters: Parameters) -> dict[str, float]:
    """What each feature tells about the class by itself, in bits of mutual information: most first."""
    prior, found = np.exp(parameters.log_prior), {}
    for feature in parameters.codebook.features:
        term = parameters.terms[feature.name]
        if isinstance(term, Words):
            found[feature.name] = _information_of_words(prior, term)
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
        apart = joint.sum(axis=0, keepdims=True) * joint.sum(axis=1, keepdims=True)
        some = joint > 0
        found[feature.name] = max(float((joint[some] * np.log2(joint[some] / apart[some])).sum()), 0.0)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _information_of_words(prior: Floats, term: Words) -> float:
    """Of one word of a document; where words are there or not, of all of them as if each were a feature of its own."""
    if term.once:
        given = np.exp(term.log_prob)
        tables = np.stack([given, 1 - given]) * prior[:, None]
    else:
        likely = np.exp(-np.abs(term.log_prob))  # a complement's terms are minus those of the others
        tables = (likely / likely.sum(axis=1, keepdims=True) * prior[:, None])[None]
    apart = tables.sum(axis=1, keepdims=True) * prior[:, None]
    some = tables > 0
    return max(float((tables[some] * np.log2(tables[some] / np.broadcast_to(apart, tables.shape)[some])).sum()), 0.0)


def _occurrence(
    found: list[Weight],
    parameters: Parameters,
    noise_interval: NoiseInterval | None,
    own: Floats,
    drawn: Floats | None,
    held: npt.NDArray[np.int64] | None,
    statistics: Statistics | None,
) -> list[Weight]:
    """How often each value occurs. Noise and smoothing give rows to a value that nobody has: under noise it counts as seen if
    its rows are further from none than the widest interval of the feature's values, which holds them in 90 of 100 releases."""
    shares = np.exp(own) @ np.exp(parameters.log_prior)
    if statistics is None or held is None:
        return [replace(weight, share=float(share)) for weight, share in zip(found, shares, strict=True)]
    total = max(int(statistics.class_counts.sum()), 1)
    if noise_interval is None:
        ends = [(float(count), float(count)) for count in held]
        seen = [count > 0 for count in held]
    elif drawn is None:  # the feature was not released; where it speaks all the same, a rule makes it speak
        return [replace(weight, share=1.0, seen=bool(np.ptp(weight.values) > _SILENT)) for weight in found]
    else:
        sides = between(np.einsum("dvc,dc->dv", np.exp(drawn), np.exp(noise_interval.log_prior)))
        ends = [(max(float(low), 0.0) * total, min(float(high), 1.0) * total) for low, high in zip(*sides, strict=True)]
        widest = max(high - low for low, high in ends)
        seen = [low > widest for low, _ in ends]
    return [
        replace(weight, share=float(share), rows=rows, seen=bool(there))
        for weight, share, rows, there in zip(found, shares, ends, seen, strict=True)
    ]


def _weights(
    feature: str, names: Sequence[str], own: Floats, drawn: Floats | None, present: npt.NDArray[np.bool_], noisy: bool
) -> list[Weight]:
    """`own` is (values, classes); `drawn` has the draws before that, or is None where nothing is known."""
    centred = own - own[:, present].mean(axis=1, keepdims=True)
    low = high = None
    if drawn is not None:
        low, high = between(drawn - drawn[:, :, present].mean(axis=2, keepdims=True))
        low, high = np.minimum(low, centred), np.maximum(high, centred)  # what is shown lies within
    elif noisy:
        low, high = np.full(own.shape, -np.inf), np.full(own.shape, np.inf)
    return [
        Weight(feature, name, at, centred[at], None if low is None else low[at], None if high is None else high[at])
        for at, name in enumerate(names)
    ]


def _steps(term: Histogram) -> tuple[int, ...]:
    """The ranges of cells in which a table is level."""
    changes = np.flatnonzero(np.abs(np.diff(term.log_prob, axis=1)).max(axis=0) > _SILENT) + 1
    return (0, *changes.tolist(), term.log_prob.shape[1])


def _points(term: Gaussian, feature: Numeric, present: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Codes from the lowest to the highest class mean and a deviation beyond, evenly."""
    spread = np.where(np.isfinite(term.variance), np.sqrt(term.variance), 0.0)
    low, high = float((term.mean - spread)[present].min()), float((term.mean + spread)[present].max())
    codes = np.floor(np.linspace(low, high, POINTS) * feature.scale + 0.5) - feature.centre
    return np.unique(np.clip(codes, feature.code_low, feature.code_high).astype(np.int64))


def _starts(feature: Feature, cells: int, cut: tuple[int, ...] | None) -> list[int]:
    if isinstance(feature, Categorical):
        return list(range(cells))
    starts = list(cut[:-1]) if cut and cut[-1] == cells else list(range(cells))
    if len(starts) <= MOST_RANGES:
        return starts
    return [int(part[0]) for part in np.array_split(starts, MOST_RANGES)]


def _name(feature: Feature, start: int, end: int) -> str:
    """A category, or the first and last number of the grid that fall into the cells."""
    if not isinstance(feature, Numeric):
        return str(feature.values[start]) if isinstance(feature, Categorical) else feature.word(start)
    starts = [*feature.starts, feature.code_high + 1]
    first, last = starts[start], starts[end] - 1
    low, high = ((code + feature.centre) / feature.scale for code in (first, last))
    return f"{low:.6g}" if first == last else f"{low:.6g} to {high:.6g}"
