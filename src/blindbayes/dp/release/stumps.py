"""Models by rule: rows whose value of a feature lies in some cells lean to a class.

A noisy table of every feature needs rows in proportion to features, cells and classes. Which of many simple models is right
most often can be told from far fewer: a choice (`privacy.choosing`) costs the logarithm of its candidates. So where rows are
few a model is chosen rule by rule, and where they are more a rule may mend a model that was released.

A *side* is a set of cells of one feature, made of public facts alone: all cells up to a cut or from it on, or one value and
all others. A *split* says one class on a side and another on the rest and where there is no value; a *rule* adds to the score
of one class on a side. Each is Naive Bayes still: tables of features and a prior, in every form that a model has.

Scores are numbers of rows that a candidate gets right, found for all sides of a feature from sums over its cells. A row is
right or not by its own values alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import numpy.typing as npt

from blindbayes.codebook import Codebook, Numeric, Text
from blindbayes.dp.noise.exact_events import Bools, Integers
from blindbayes.dp.release.cells import is_cut, likely_shape, public_shape
from blindbayes.dp.release.constants import CUTS, FAR_CUTS, MISSING_ODDS, RULE_STRENGTHS, RULE_VALUES, SPLIT_PROBABILITY
from blindbayes.dp.release.feature_weights import table_of, to_one
from blindbayes.statistics import CodedRows
from blindbayes.statistics.histograms import joined
from blindbayes.statistics.parameters import Histogram, Parameters


@dataclass(frozen=True)
class SplitSides:
    """The sides of one feature: cells from a first one to before a last one, or (`turned`) all others that have a value."""

    feature: str
    ranges: tuple[tuple[int, int, bool], ...]

    def sums(self, cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """What the cells on each side add up to, along the last axis."""
        starts, stops, turned = (np.array(each) for each in zip(*self.ranges, strict=True))
        below = np.cumsum(np.concatenate([np.zeros_like(cells[..., :1]), cells], axis=-1), axis=-1)
        inside = below[..., stops] - below[..., starts]
        return np.asarray(np.where(turned, below[..., -1:] - inside, inside))

    def cells(self, at: int, width: int) -> Bools:
        """Which of all cells are on one side."""
        start, stop, turned = self.ranges[at]
        inside = (np.arange(width) >= start) & (np.arange(width) < stop)
        return np.asarray(~inside if turned else inside)


def all_sides(declared: Codebook, counted: Codebook) -> tuple[SplitSides, ...]:
    """The sides of every feature of a codebook, in the cells that it is counted in."""
    found = []
    for feature, target in zip(declared.features, counted.features, strict=True):
        if isinstance(feature, Text) or (isinstance(feature, Numeric) and feature.width == 1):
            continue
        if isinstance(feature, Numeric) and is_cut(feature):
            edges = {*joined(likely_shape(feature).mass, CUTS), *joined(public_shape(feature).mass, FAR_CUTS)}
        else:
            edges = {*neighbours(target.size, 2 * RULE_VALUES if isinstance(feature, Numeric) else RULE_VALUES)}
        ends = sorted(edges)
        if isinstance(feature, Numeric):
            ranges = [(ends[0], cut, turned) for turned in (False, True) for cut in ends[1:-1]]
        else:
            pairs = list(pairwise(ends))
            ranges = [(*pair, turned) for turned in (False, True)[: 1 + (len(pairs) > 2)] for pair in pairs]
        if len(ends) > 2:
            found.append(SplitSides(feature.name, tuple(ranges)))
    return tuple(found)


def neighbours(size: int, most: int = RULE_VALUES) -> list[int]:
    """Edges of at most so many groups of values that stand side by side: of a few values each is one by itself."""
    return [size * at // most for at in range(most + 1)] if size > most else list(range(size + 1))


@dataclass(frozen=True)
class Candidates:
    """Models that are alike, by the rows that each gets right; `model` makes one of them, and says in words which it is."""

    scores: Integers
    model: Callable[[int], tuple[Parameters, str]]


def constants(parameters: Parameters, labels: Integers) -> Candidates:
    """Always the same class: one model for each."""
    classes = len(parameters.log_prior)
    return Candidates(
        np.bincount(labels, minlength=classes),
        lambda at: (_level(parameters, at, SPLIT_PROBABILITY / (1 - SPLIT_PROBABILITY)), "always the same class"),
    )


def splits(parameters: Parameters, rows: CodedRows, sides: Sequence[SplitSides]) -> Candidates:
    """One class on a side, another on the rest: of every side, and of all pairs of classes."""
    labels, classes = rows.known_labels, len(parameters.log_prior)
    pairs = np.array(list(permutations(range(classes), 2)), dtype=np.int64).reshape(-1, 2)
    own = [(labels == label).astype(np.int64) for label in range(classes)]
    every = np.bincount(labels, minlength=classes)[:, None]
    found, places = [], _places(sides)
    for each, cells in _tallies(parameters, rows, sides, own):
        inside = each.sums(cells)
        found.append(inside[pairs[:, 0]] + (every - inside)[pairs[:, 1]])
    scores = np.concatenate(found, axis=1) if found and len(pairs) else np.zeros((0, len(places)), dtype=np.int64)

    def model(at: int) -> tuple[Parameters, str]:
        pair, place = divmod(at, len(places))
        each, side = places[place]
        here = each.cells(side, _width(parameters, each.feature))
        one, other = pairs[pair]
        part = np.full(classes, 0.5)  # what each class has on this side
        part[one], part[other] = SPLIT_PROBABILITY, 1 - SPLIT_PROBABILITY
        table = np.where(here, part[:, None] / here.sum(), (1 - part[:, None]) / (~here).sum())
        found = _level(parameters, other, MISSING_ODDS)
        terms = {**found.terms, each.feature: Histogram(np.log(table))}
        return replace(found, terms=terms), f"{each.feature!r} alone, cut in two"

    return Candidates(scores.ravel(), model)


def rules(parameters: Parameters, rows: CodedRows, sides: Sequence[SplitSides], told: str) -> Candidates:
    """The model with one rule more: of every side, class and strength. `told` says which model it is."""
    labels, classes = rows.known_labels, len(parameters.log_prior)
    score = parameters.joint_log_likelihood(rows)
    best = score.max(axis=1)
    right = score.argmax(axis=1) == labels
    gain = [(labels == label).astype(np.int64) - right for label in range(classes)]  # of a row that turns to this class
    behind = [best - score[:, label] for label in range(classes)]
    kinds = [(strength, label) for strength in RULE_STRENGTHS for label in range(classes)]
    turns = [np.where(behind[label] <= strength, gain[label], 0) for strength, label in kinds]
    found, places = [], _places(sides)
    for each, cells in _tallies(parameters, rows, sides, turns):
        sums = each.sums(cells)
        absent = np.flatnonzero(rows.columns[each.feature] < 0)
        if absent.size:  # what a table loses the prior gives back, to rows without a value, too
            sums += [
                _turned(behind[label][absent], gain[label][absent], _lost(parameters, each, label, strength))
                for strength, label in kinds
            ]
        found.append(sums)
    scores = int(right.sum()) + np.concatenate(found, axis=1) if found else np.zeros((len(kinds), 0), dtype=np.int64)

    def model(at: int) -> tuple[Parameters, str]:
        kind, place = divmod(at, len(places))
        (strength, label), (each, side) = kinds[kind], places[place]
        here = each.cells(side, _width(parameters, each.feature))
        return lean(parameters, each.feature, here, label, strength), f"{told}, and a rule on {each.feature!r}"

    return Candidates(scores.ravel(), model)


def lean(parameters: Parameters, feature: str, cells: Bools, label: int, strength: float) -> Parameters:
    """The model in which rows in these cells score so much more for a class, and others as before.

    Probabilities add up to 1 again, and what that takes from the class its prior gives back: to a row without a value, too.
    """
    log = table_of(parameters, feature).copy()
    log[label, cells] += strength
    lost = float(np.log(np.exp(log[label]).sum()))
    log[label] -= lost
    prior = parameters.log_prior.copy()
    prior[label] += lost
    return replace(parameters, log_prior=to_one(prior), terms={**parameters.terms, feature: Histogram(log)})


def _lost(parameters: Parameters, sides: SplitSides, label: int, strength: float) -> npt.NDArray[np.float64]:
    """What the prior of a class gains by a rule (`lean`), on each side."""
    table = table_of(parameters, sides.feature)
    return np.asarray(np.log1p(math.expm1(strength) * sides.sums(np.exp(table[label]))))


def _turned(behind: npt.NDArray[np.float64], gain: Integers, reach: npt.NDArray[np.float64]) -> Integers:
    """Sums of `gain` over the rows that are behind by no more than each reach."""
    order = np.argsort(behind, kind="stable")
    sums = np.concatenate([[0], np.cumsum(gain[order])])
    return np.asarray(sums[np.searchsorted(behind[order], reach, side="right")])


def _level(parameters: Parameters, label: int, odds: float) -> Parameters:
    """A model of the same shape that says nothing but how much likelier than any other one class is."""
    prior = np.where(np.arange(len(parameters.log_prior)) == label, math.log(odds), 0.0)
    tables = {name: table_of(parameters, name) for name in parameters.terms}
    terms = {name: Histogram(np.full(table.shape, -math.log(table.shape[1]))) for name, table in tables.items()}
    return replace(parameters, log_prior=to_one(prior), terms=terms)


def _width(parameters: Parameters, feature: str) -> int:
    return int(table_of(parameters, feature).shape[1])


def _places(sides: Sequence[SplitSides]) -> list[tuple[SplitSides, int]]:
    return [(each, at) for each in sides for at in range(len(each.ranges))]


def _tallies(
    parameters: Parameters, rows: CodedRows, sides: Sequence[SplitSides], values: Sequence[Integers]
) -> Iterator[tuple[SplitSides, Integers]]:
    """Sums of each of the values over the rows in each cell of a feature: (values, cells). Whole numbers, exactly."""
    weights = [each.astype(np.float64) for each in values]
    for each in sides:
        codes, width = rows.columns[each.feature] + 1, _width(parameters, each.feature)  # 0: no value
        tallied: npt.NDArray[np.float64] = np.array([np.bincount(codes, own, minlength=width + 1)[1:] for own in weights])
        yield each, np.rint(tallied).astype(np.int64)
