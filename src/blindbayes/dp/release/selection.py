"""Private selection of the model to publish, by permute-and-flip.  [choosing]

**Scores** are numbers of rows. The score of a model, which is fixed by what was released before, is how many rows it gets
right: it gets a row right or not, so one more row raises every score by 0 or 1 and lowers none; R rows raise it by 0 to R. A
candidate that is likely to be the best may get a public head start in rows, which does not change what one more row adds.

**Selection.** *Permute and flip* (McKenna and Sheldon 2020): in random order, take the first candidate whose coin of
probability e^-(rate (best - score)) shows heads. This has the law of the largest of score + E, where E is exponential with
this rate: candidates whose E does not reach the best score are out; each stays with the probability of its coin, and the
excess of its E is exponential again, since E is memoryless; so the winner is uniform among those that stay.

**Privacy.** Fix the E of all candidates but one; it wins if its own E exceeds a threshold. A row raises all scores by 0 to 1,
so it moves the threshold by at most 1 up or down, and the probability of exceeding it changes by a factor of at most e^rate.
So a selection costs rate, and R rate for R rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.stage import Stage
from blindbayes.dp.noise.exact_events import Integers, survives
from blindbayes.dp.noise.knorm_histograms import _permutations
from blindbayes.dp.release import stumps as rule
from blindbayes.dp.release.constants import HEAD_START, LIKELY_SCALE
from blindbayes.dp.release.evidence import informative, tempered
from blindbayes.dp.release.stumps import Candidates, SplitSides
from blindbayes.statistics import CodedRows
from blindbayes.statistics.parameters import Histogram, Parameters


def permute_and_flip(coins: Coins, scores: Sequence[int] | Integers, rate: Fraction, count: int = 1) -> Integers:
    """Return `count` independent selections: indices of scores that are likely to be among the largest.  [choosing]"""
    values = np.asarray(scores, dtype=np.int64)
    behind = values.max() - values
    order = _permutations(coins, np.repeat(np.arange(count), len(behind))).reshape(count, -1) % len(behind)
    heads = survives(coins, behind[order].ravel(), rate).reshape(order.shape)
    return np.asarray(order[np.arange(count), heads.argmax(axis=1)])


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
        """Return the facts of this stage.  [choosing]"""
        return Stage(
            name="last choice",
            mechanism="permute_and_flip",
            epsilon=self.epsilon,
            unit=unit,
            sensitivity="one row raises every score, the number of rows that a model gets right, by 0 or 1",
            sampler="permute and flip: a uniform order, and exact coins of probability e^-(rate x rows behind the best)",
            floating_point=True,  # sums of logarithms decide which class a model gives a row
            timing=True,
        )

    def scores(self, models: Sequence[Parameters], rows: CodedRows) -> list[int]:
        """Return how many rows each model gets right; rows whose class is unknown do not count."""
        out = []
        for model in models:
            speaks = informative(model)  # features in which classes do not differ change no answer
            terms = {name: term for name, term in model.terms.items() if name in speaks or not isinstance(term, Histogram)}
            answers = replace(model, terms=terms).joint_log_likelihood(rows).argmax(axis=1)
            out.append(int((answers == rows.labels).sum()))
        return out

    def candidates(self, parameters: Parameters, rows: CodedRows) -> list[Candidates]:
        """Return the models to select from, by kind, with their scores; the score of the default includes a head start."""
        known = rows.known_labels >= 0
        rows = rows if known.all() else rows.take(np.flatnonzero(known))
        sides = self.sides if all(isinstance(term, Histogram) for term in parameters.terms.values()) else ()
        ahead = round(HEAD_START / self.rate)
        if self.alone:
            always = rule.constants(parameters, rows.known_labels)
            return [replace(always, scores=always.scores + ahead), rule.splits(parameters, rows, sides)]
        scales = (1.0, LIKELY_SCALE, LIKELY_SCALE / 2, 0.0)
        models = [parameters, *(tempered(parameters, scale) for scale in scales[1:])]
        words = [f"{scale:.0%} of the evidence" for scale in scales]
        scores = np.array(self.scores(models, rows))
        scores[0] += ahead
        candidates = [Candidates(scores, lambda at: (models[at], words[at]))]
        if sides:  # a model that is believed less is mended more easily
            candidates += [rule.rules(models[at], rows, sides, words[at]) for at in (0, len(models) - 2)]
            candidates.append(rule.splits(parameters, rows, sides))
        return candidates

    def choose(self, parameters: Parameters, rows: CodedRows, coins: Coins) -> tuple[Parameters, str]:
        """Select a candidate privately: the model with part of its evidence, or with a rule. Return it and its description."""
        candidates = self.candidates(parameters, rows)
        scores = np.concatenate([each.scores for each in candidates])
        at = int(permute_and_flip(coins, scores, self.rate)[0])
        ends = np.cumsum([len(each.scores) for each in candidates])
        kind = int(np.searchsorted(ends, at, side="right"))
        return candidates[kind].model(at - int(ends[kind]) + len(candidates[kind].scores))
