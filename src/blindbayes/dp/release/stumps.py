"""Decision stumps as Naive Bayes models: rows whose value of a feature lies in some cells lean to a class.

Noisy tables of every feature need rows in proportion to features, cells and classes. Which of many simple models is right most
often can be decided from far fewer: a selection costs the logarithm of its candidates. So with few rows a model is one
rule, and with more rows a rule may mend a released model.

A *side* is a set of cells of one feature, made of public facts alone: all cells up to a cut or from it on, or one value and
all others. A *split* predicts one class on a side and another on the rest and for missing values; a *rule* adds to the score
of one class on a side. Both are Naive Bayes models: tables of features and a prior.

Scores are numbers of rows that a candidate gets right, computed for all sides of a feature from sums over its cells. Whether a
row is right depends on its own values alone.
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
from blindbayes.dp.release.constants import CUTS, SPLIT_PROBABILITY
from blindbayes.dp.release.evidence import table_of, to_one
from blindbayes.statistics import CodedRows
from blindbayes.statistics.histograms import joined
from blindbayes.statistics.parameters import Histogram, Parameters

STRENGTHS = tuple(math.log(2) * 2**at for at in range(4))
"""Increments of a class's log score by a rule: odds of 2, 4, 16 and 256, from a hint to the last word."""


@dataclass(frozen=True)
class SplitSides:
    """The sides of one feature: ranges of cells, or their complements (`turned`)."""

    feature: str
    ranges: tuple[tuple[int, int, bool], ...]

    def sums(self, cells: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the sum over the cells on each side, along the last axis."""
        starts, stops, turned = (np.array(each) for each in zip(*self.ranges, strict=True))
        below = np.cumsum(np.concatenate([np.zeros_like(cells[..., :1]), cells], axis=-1), axis=-1)
        inside = below[..., stops] - below[..., starts]
        return np.asarray(np.where(turned, below[..., -1:] - inside, inside))

    def cells(self, at: int, width: int) -> Bools:
        """Return a mask of the cells on one side."""
        start, stop, turned = self.ranges[at]
        inside = (np.arange(width) >= start) & (np.arange(width) < stop)
        return np.asarray(~inside if turned else inside)


def all_sides(declared: Codebook, counted: Codebook) -> tuple[SplitSides, ...]:
    """Return the sides of every feature of a codebook, in the cells that it is counted in."""
    sides = []
    for feature, target in zip(declared.features, counted.features, strict=True):
        if isinstance(feature, Text) or (isinstance(feature, Numeric) and feature.width == 1):
            continue
        if isinstance(feature, Numeric) and is_cut(feature):
            edges = {*joined(likely_shape(feature).mass, CUTS), *joined(public_shape(feature).mass, CUTS // 2)}
        else:
            edges = {*neighbours(target.size, (4 if isinstance(feature, Numeric) else 2) * CUTS)}
        ends = sorted(edges)
        if isinstance(feature, Numeric):
            ranges = [(ends[0], cut, turned) for turned in (False, True) for cut in ends[1:-1]]
        else:
            pairs = list(pairwise(ends))
            ranges = [(*pair, turned) for turned in (False, True)[: 1 + (len(pairs) > 2)] for pair in pairs]
        if len(ends) > 2:
            sides.append(SplitSides(feature.name, tuple(ranges)))
    return tuple(sides)


def neighbours(size: int, limit: int) -> list[int]:
    """Return the edges of at most `limit` groups of neighbouring values; few values are not grouped."""
    return [size * at // limit for at in range(limit + 1)] if size > limit else list(range(size + 1))


@dataclass(frozen=True)
class Candidates:
    """Models of one kind with the rows that each gets right; `model` builds one of them with its description."""

    scores: Integers
    model: Callable[[int], tuple[Parameters, str]]


def constants(parameters: Parameters, labels: Integers) -> Candidates:
    """Return one model per class that always predicts it."""
    classes = len(parameters.log_prior)
    return Candidates(
        np.bincount(labels, minlength=classes),
        lambda at: (_level(parameters, at, split_odds()), "always the same class"),
    )


def splits(parameters: Parameters, rows: CodedRows, sides: Sequence[SplitSides]) -> Candidates:
    """Return the splits of every side for all pairs of classes: one class on the side, the other on the rest."""
    labels, classes = rows.known_labels, len(parameters.log_prior)
    pairs = np.array(list(permutations(range(classes), 2)), dtype=np.int64).reshape(-1, 2)
    own = [(labels == label).astype(np.int64) for label in range(classes)]
    every = np.bincount(labels, minlength=classes)[:, None]
    scored, places = [], _places(sides)
    for each, cells in _tallies(parameters, rows, sides, own):
        inside = each.sums(cells)
        scored.append(inside[pairs[:, 0]] + (every - inside)[pairs[:, 1]])
    scores = np.concatenate(scored, axis=1) if scored and len(pairs) else np.zeros((0, len(places)), dtype=np.int64)

    def model(at: int) -> tuple[Parameters, str]:
        pair, place = divmod(at, len(places))
        each, side = places[place]
        here = each.cells(side, _width(parameters, each.feature))
        one, other = pairs[pair]
        part = np.full(classes, 0.5)  # what each class has on this side
        part[one], part[other] = SPLIT_PROBABILITY, 1 - SPLIT_PROBABILITY
        table = np.where(here, part[:, None] / here.sum(), (1 - part[:, None]) / (~here).sum())
        base = _level(parameters, other, math.sqrt(split_odds()))  # rows without a value say less
        terms = {**base.terms, each.feature: Histogram(np.log(table))}
        return replace(base, terms=terms), f"{each.feature!r} alone, cut in two"

    return Candidates(scores.ravel(), model)


def rules(parameters: Parameters, rows: CodedRows, sides: Sequence[SplitSides], description: str) -> Candidates:
    """Return the model, described by `description`, with one more rule: for every side, class and strength."""
    labels, classes = rows.known_labels, len(parameters.log_prior)
    score = parameters.joint_log_likelihood(rows)
    best = score.max(axis=1)
    right = score.argmax(axis=1) == labels
    gain = [(labels == label).astype(np.int64) - right for label in range(classes)]  # of a row that turns to this class
    behind = [best - score[:, label] for label in range(classes)]
    kinds = [(strength, label) for strength in STRENGTHS for label in range(classes)]
    turns = [np.where(behind[label] <= strength, gain[label], 0) for strength, label in kinds]
    scored, places = [], _places(sides)
    for each, cells in _tallies(parameters, rows, sides, turns):
        sums = each.sums(cells)
        absent = np.flatnonzero(rows.columns[each.feature] < 0)
        if absent.size:  # what a table loses the prior gives back, to rows without a value, too
            sums += [
                _turned(behind[label][absent], gain[label][absent], _lost(parameters, each, label, strength))
                for strength, label in kinds
            ]
        scored.append(sums)
    scores = int(right.sum()) + np.concatenate(scored, axis=1) if scored else np.zeros((len(kinds), 0), dtype=np.int64)

    def model(at: int) -> tuple[Parameters, str]:
        kind, place = divmod(at, len(places))
        (strength, label), (each, side) = kinds[kind], places[place]
        here = each.cells(side, _width(parameters, each.feature))
        return lean(parameters, each.feature, here, label, strength), f"{description}, and a rule on {each.feature!r}"

    return Candidates(scores.ravel(), model)


def lean(parameters: Parameters, feature: str, cells: Bools, label: int, strength: float) -> Parameters:
    """Return the model in which rows in these cells score `strength` more for a class, and others as before.

    Probabilities are normalised again, and what that takes from the class its prior gives back, also to rows without a value.
    """
    log = table_of(parameters, feature).copy()
    log[label, cells] += strength
    lost = float(np.log(np.exp(log[label]).sum()))
    log[label] -= lost
    prior = parameters.log_prior.copy()
    prior[label] += lost
    return replace(parameters, log_prior=to_one(prior), terms={**parameters.terms, feature: Histogram(log)})


def _lost(parameters: Parameters, sides: SplitSides, label: int, strength: float) -> npt.NDArray[np.float64]:
    """Return what the prior of a class gains by a rule (`lean`), on each side."""
    table = table_of(parameters, sides.feature)
    return np.asarray(np.log1p(math.expm1(strength) * sides.sums(np.exp(table[label]))))


def _turned(behind: npt.NDArray[np.float64], gain: Integers, reach: npt.NDArray[np.float64]) -> Integers:
    """Return sums of `gain` over the rows that are behind by no more than each reach."""
    order = np.argsort(behind, kind="stable")
    sums = np.concatenate([[0], np.cumsum(gain[order])])
    return np.asarray(sums[np.searchsorted(behind[order], reach, side="right")])


def _level(parameters: Parameters, label: int, odds: float) -> Parameters:
    """Return a model of the same shape whose only evidence is the odds of one class against any other."""
    prior = np.where(np.arange(len(parameters.log_prior)) == label, math.log(odds), 0.0)
    tables = {name: table_of(parameters, name) for name in parameters.terms}
    terms = {name: Histogram(np.full(table.shape, -math.log(table.shape[1]))) for name, table in tables.items()}
    return replace(parameters, log_prior=to_one(prior), terms=terms)


def split_odds() -> float:
    """Return the odds of the class that a split names against another."""
    return SPLIT_PROBABILITY / (1 - SPLIT_PROBABILITY)


def _width(parameters: Parameters, feature: str) -> int:
    return int(table_of(parameters, feature).shape[1])


def _places(sides: Sequence[SplitSides]) -> list[tuple[SplitSides, int]]:
    return [(each, at) for each in sides for at in range(len(each.ranges))]


def _tallies(
    parameters: Parameters, rows: CodedRows, sides: Sequence[SplitSides], values: Sequence[Integers]
) -> Iterator[tuple[SplitSides, Integers]]:
    """Yield exact integer sums of each of the values over the rows in each cell of a feature: (values, cells)."""
    weights = [each.astype(np.float64) for each in values]
    for each in sides:
        codes, width = rows.columns[each.feature] + 1, _width(parameters, each.feature)  # 0: no value
        tallied: npt.NDArray[np.float64] = np.array([np.bincount(codes, own, minlength=width + 1)[1:] for own in weights])
        yield each, np.rint(tallied).astype(np.int64)
