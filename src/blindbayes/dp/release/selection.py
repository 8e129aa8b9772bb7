"""Private selection by permute-and-flip: a few of many features, and the model to publish.  [choosing]

**Scores** are numbers of rows. The score of a feature is how many rows the best rule on it alone gets right: the largest class
in each of its cells, or for a number the best of all cuts into two. The score of a model, which is fixed by what was released
before, is how many rows it gets right. One more row raises the count of one class in one cell by one, so it raises every sum
of largest counts, and the largest of several sums, by 0 or 1; and a model gets the row right or not. So one more row raises
every score by 0 to 1 and lowers none; R rows raise it by 0 to R. A candidate that is likely to be the best may get a public
head start in rows, which does not change what one more row adds.

**Selection.** *Permute and flip* (McKenna and Sheldon 2020): in random order, take the first candidate whose coin of
probability e^-(rate (best - score)) shows heads. This has the law of the largest of score + E, where E is exponential with
this rate: candidates whose E does not reach the best score are out; each stays with the probability of its coin, and the
excess of its E is exponential again, since E is memoryless; so the winner is uniform among those that stay.

**Privacy.** Fix the E of all candidates but one; it wins if its own E exceeds a threshold. A row raises all scores by 0 to 1,
so it moves the threshold by at most 1 up or down, and the probability of exceeding it changes by a factor of at most e^rate.
So a selection costs rate, and R rate for R rows; several, each among the remaining candidates, cost the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from blindbayes.codebook import Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.stage import Stage, selection_stage
from blindbayes.dp.noise.exact_events import Integers, survives
from blindbayes.dp.noise.knorm_histograms import _permutations
from blindbayes.dp.release import stumps as rule
from blindbayes.dp.release.constants import EVIDENCE_SCALES, HEAD_STARTS
from blindbayes.dp.release.feature_weights import informative, tempered
from blindbayes.dp.release.stumps import Candidates, SplitSides
from blindbayes.statistics import CodedRows, Statistics
from blindbayes.statistics.parameters import Histogram, Parameters


def permute_and_flip(coins: Coins, scores: Sequence[int] | Integers, rate: Fraction, count: int = 1) -> Integers:
    """Return `count` independent selections: indices of scores that are likely to be among the largest.  [choosing]"""
    values = np.asarray(scores, dtype=np.int64)
    behind = values.max() - values
    order = _permutations(coins, np.repeat(np.arange(count), len(behind))).reshape(count, -1) % len(behind)
    heads = survives(coins, behind[order].ravel(), rate).reshape(order.shape)
    return np.asarray(order[np.arange(count), heads.argmax(axis=1)])


@dataclass(frozen=True)
class FeatureSelection:
    """Selection of `keep` of these features, for epsilon."""

    features: tuple[str, ...]
    keep: int
    epsilon: Fraction
    rows_per_unit: int

    def stage(self, unit: str) -> Stage:
        """Return the facts of this stage: scores are whole numbers throughout."""
        moved = "one row raises every score, a number of rows, by 0 or 1"
        return selection_stage("choice of features", self.epsilon, unit, moved, floating_point=False)

    def scores(self, statistics: Statistics) -> list[int]:
        """Return how many rows the best rule on each feature alone gets right."""
        book: Codebook = statistics.codebook
        out = []
        for name in self.features:
            counts = statistics.counts[name]
            absent = int((statistics.class_counts - counts.sum(axis=1)).max())
            width = counts.shape[1]
            if isinstance(book.feature(name), Numeric) and width > 2:
                left = np.cumsum(counts, axis=1)
                right = left[:, -1:] - left
                out.append(absent + int((left.max(axis=0) + right.max(axis=0)).max()))
            else:
                out.append(absent + int(np.add.reduceat(counts, rule.neighbours(width)[:-1], axis=1).max(axis=0).sum()))
        return out

    def choose(self, statistics: Statistics, coins: Coins) -> frozenset[str]:
        """Return the names of the features selected, one after the other."""
        left = dict(zip(self.features, self.scores(statistics), strict=True))
        for _ in range(self.keep):
            del left[list(left)[permute_and_flip(coins, list(left.values()), self.rate)[0]]]
        return frozenset(self.features) - frozenset(left)

    @property
    def rate(self) -> Fraction:
        """Privacy loss rate of one selection, per row."""
        return self.epsilon / (self.keep * self.rows_per_unit)


@dataclass(frozen=True)
class ModelSelection:
    """Selection of a model by the number of rows it gets right: how far it is believed, and which rule mends or replaces it.

    With `alone` no feature was released, and the model is one rule.
    """

    epsilon: Fraction
    rows_per_unit: int
    sides: tuple[SplitSides, ...] = ()
    alone: bool = False

    @property
    def rate(self) -> Fraction:
        """Privacy loss rate per row."""
        return self.epsilon / self.rows_per_unit

    def stage(self, unit: str) -> Stage:
        """Return the facts of this stage: which class a model gives a row is decided by sums of floating-point logarithms."""
        moved = "one row raises every score, the number of rows that a model gets right, by 0 or 1"
        return selection_stage("last choice", self.epsilon, unit, moved, floating_point=True)

    def scores(self, models: Sequence[Parameters], rows: CodedRows) -> list[int]:
        """Return how many rows each model gets right; rows whose class is unknown do not count."""
        out = []
        for model in models:
            speaks = informative(model)  # features in which classes do not differ change no answer
            terms = {name: term for name, term in model.terms.items() if name in speaks or not isinstance(term, Histogram)}
            answers = replace(model, terms=terms).joint_log_likelihood(rows).argmax(axis=1)
            out.append(int((answers == rows.labels).sum()))
        return out

    def candidates(self, parameters: Parameters, rows: CodedRows, others: Sequence[Parameters] = ()) -> list[Candidates]:
        """Return the models to select from, by kind, each with its score and head start."""
        known = rows.known_labels >= 0
        rows = rows if known.all() else rows.take(np.flatnonzero(known))
        sides = self.sides if all(isinstance(term, Histogram) for term in parameters.terms.values()) else ()
        if self.alone:
            always = rule.constants(parameters, rows.known_labels)
            always = replace(always, scores=always.scores + round(HEAD_STARTS[0] / self.rate))
            return [always, rule.splits(parameters, rows, sides)]
        models = [parameters, *(tempered(parameters, scale) for scale in EVIDENCE_SCALES[1:]), *others]
        words = [f"{scale:.0%} of the evidence" for scale in EVIDENCE_SCALES]
        words += ["features with weights of their own"] * len(others)
        ahead = [round(each / self.rate) for each in (*HEAD_STARTS, *[1] * len(others))]
        scores = np.array([score + extra for score, extra in zip(self.scores(models, rows), ahead, strict=True)])
        candidates = [Candidates(scores, lambda at: (models[at], words[at]))]
        if sides:
            candidates += [rule.rules(models[at], rows, sides, words[at]) for at in (0, len(EVIDENCE_SCALES) - 2)]
            candidates.append(rule.splits(parameters, rows, sides))
        return candidates

    def choose(
        self, parameters: Parameters, rows: CodedRows, coins: Coins, others: Sequence[Parameters] = ()
    ) -> tuple[Parameters, str]:
        """Return the selected model and its description: with a part of its evidence, with a rule, or one of `others`."""
        candidates = self.candidates(parameters, rows, others)
        scores = np.concatenate([each.scores for each in candidates])
        at = int(permute_and_flip(coins, scores, self.rate)[0])
        ends = np.cumsum([len(each.scores) for each in candidates])
        kind = int(np.searchsorted(ends, at, side="right"))
        return candidates[kind].model(at - int(ends[kind]) + len(candidates[kind].scores))
