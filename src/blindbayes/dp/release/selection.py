"""Choices that the rows themselves make, with noise: a few of many features, and how far a model is believed.  [choosing]

**Scores** are numbers of rows. Of a feature: how many the best rule on it alone gets right, in each of its cells the largest
class; of a number the best of all cuts into two. Of a model, fixed by what was released before: how many it gets right. A row
more raises the rows of one class in one cell by one, so every such sum of largest counts by 0 or 1, and so the largest of
several sums; a model gets it right or not. So a row more raises every score by 0 to 1, and none falls; R rows by 0 to R. A
candidate that is likely to be the best may start ahead by a public number of rows: what a row more adds stays the same.

**Choice.** *Permute and flip* (McKenna and Sheldon 2020): in random order, take the first candidate whose coin of chance
e^-(rate (best - score)) shows heads. It has the law of the largest of score + E, E exponential of this rate: those below the
best score are out; for each the chance to stay is that of the coin, and what its E has to spare is exponential again, since
it has no memory; so the winner is uniform among those that stay.

**Privacy.** Fix the E of all candidates but one; it wins if its own E exceeds a threshold. A row raises all scores by 0 to 1,
so it moves the threshold by at most 1 up or down, and the chance to exceed it changes by a factor of at most e^rate. So a
choice costs rate, R rate for R rows; several, each among those that are left, cost the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from blindbayes.codebook import Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.noise.exact_events import Integers, survives
from blindbayes.dp.noise.knorm_histograms import _permutations
from blindbayes.dp.release import stumps as rule
from blindbayes.dp.release.constants import EVIDENCE_SCALES, HEAD_STARTS, MENDED_SCALE
from blindbayes.dp.release.feature_weights import told as features_told
from blindbayes.dp.release.feature_weights import weighed
from blindbayes.dp.release.stumps import Candidates, SplitSides
from blindbayes.statistics import CodedRows, Statistics
from blindbayes.statistics.parameters import Histogram, Parameters


def permute_and_flip(coins: Coins, scores: Sequence[int] | Integers, rate: Fraction, count: int = 1) -> Integers:
    """`count` independent places, each of a score that is likely to be among the largest.  [choosing]"""
    values = np.asarray(scores, dtype=np.int64)
    behind = values.max() - values
    order = _permutations(coins, np.repeat(np.arange(count), len(behind))).reshape(count, -1) % len(behind)
    heads = survives(coins, behind[order].ravel(), rate).reshape(order.shape)
    return np.asarray(order[np.arange(count), heads.argmax(axis=1)])


@dataclass(frozen=True)
class FeatureSelection:
    """The choice of `keep` of these features, for epsilon."""

    features: tuple[str, ...]
    keep: int
    epsilon: Fraction
    rows_per_unit: int

    def scores(self, statistics: Statistics) -> list[int]:
        """Rows that the best rule on each feature alone gets right."""
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
        """Names of the features chosen, one after the other."""
        left = dict(zip(self.features, self.scores(statistics), strict=True))
        for _ in range(self.keep):
            del left[list(left)[permute_and_flip(coins, list(left.values()), self.rate)[0]]]
        return frozenset(self.features) - frozenset(left)

    @property
    def rate(self) -> Fraction:
        """Of one choice."""
        return self.epsilon / (self.keep * self.rows_per_unit)


@dataclass(frozen=True)
class ModelSelection:
    """Selection of a model by the number of rows it gets right: how far it is believed, and which rules mend or replace it.

    `alone`: nothing of the features was released, and the model is made of rules. `splits`: one rule may take the place of all.
    """

    epsilon: Fraction
    rows_per_unit: int
    sides: tuple[SplitSides, ...] = ()
    splits: bool = False
    alone: bool = False
    steps: int = 1

    @property
    def rate(self) -> Fraction:
        """Of one choice."""
        return self.epsilon / (self.steps * self.rows_per_unit)

    def scores(self, models: Sequence[Parameters], rows: CodedRows) -> list[int]:
        """Rows that each model gets right; one whose class is not known is none of them."""
        out = []
        for model in models:
            speaks = features_told(model)  # features in which classes do not differ change no answer
            terms = {name: term for name, term in model.terms.items() if name in speaks or not isinstance(term, Histogram)}
            answers = replace(model, terms=terms).joint_log_likelihood(rows).argmax(axis=1)
            out.append(int((answers == rows.labels).sum()))
        return out

    def candidates(
        self, parameters: Parameters, rows: CodedRows, others: Sequence[Parameters] = (), step: int = 0, told: str = ""
    ) -> list[Candidates]:
        """The models of one choice, those that are alike together, each with the rows it gets right and its start ahead."""
        known = rows.known_labels >= 0
        rows = rows if known.all() else rows.take(np.flatnonzero(known))
        sides = self.sides if all(isinstance(term, Histogram) for term in parameters.terms.values()) else ()
        if self.alone and step == 0:
            always = rule.constants(parameters, rows.known_labels)
            always = replace(always, scores=always.scores + round(HEAD_STARTS[0] / self.rate))
            return [always, rule.splits(parameters, rows, sides)]
        scales = EVIDENCE_SCALES if step == 0 else EVIDENCE_SCALES[:1]
        models = [parameters, *(tempered(parameters, scale) for scale in scales[1:]), *others]
        words = [f"{scale:.0%} of the evidence" for scale in scales] if step == 0 else [told]
        words += ["features with weights of their own"] * len(others)
        ahead = [round(each / self.rate) for each in (*HEAD_STARTS[: len(scales)], *[1] * len(others))]
        scores = np.array([score + extra for score, extra in zip(self.scores(models, rows), ahead, strict=True)])
        found = [Candidates(scores, lambda at: (models[at], words[at]))]
        if sides:
            found += [rule.rules(models[at], rows, sides, words[at]) for at in (0, MENDED_SCALE) if at < len(scales)]
            if self.splits and step == 0:
                found.append(rule.splits(parameters, rows, sides))
        return found

    def choose(
        self, parameters: Parameters, rows: CodedRows, coins: Coins, others: Sequence[Parameters] = ()
    ) -> tuple[Parameters, str]:
        """The model chosen, and which it is in words: with a part of its evidence, with rules, or one of `others`."""
        told = ""
        for step in range(self.steps):
            found = self.candidates(parameters, rows, others if step == 0 else (), step, told)
            scores = np.concatenate([each.scores for each in found])
            at = int(permute_and_flip(coins, scores, self.rate)[0])
            ends = np.cumsum([len(each.scores) for each in found])
            kind = int(np.searchsorted(ends, at, side="right"))
            parameters, told = found[kind].model(at - int(ends[kind]) + len(found[kind].scores))
        return parameters, told


def tempered(parameters: Parameters, scale: float) -> Parameters:
    """The model with this part of its evidence: classes differ so much less in every cell."""
    return weighed(parameters, [scale] * len(features_told(parameters)))
