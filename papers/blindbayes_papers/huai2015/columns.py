"""Huai et al. 2015, Figure 1 (b): accuracy on Car by the number of parties that hold one attribute each and all know the class.

The paper's VDPNB (section 5.4) beside `protocol/noisy_histograms`. A party of the paper has one attribute, so n parties are n
of Car's six attributes; every choice of n attributes is met equally often. The noise is drawn with numpy's generator from the
law that the protocol's mechanism has: a simulation, nothing is released.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np

from blindbayes_papers.huai2015.figure import EPSILONS, FOLDS, Floats, Ints, Point, Table, one_copy

MIN_ORDERS = 5
"""Minimum number of (choice of attributes, order of the rows) per number of parties."""


@dataclass(frozen=True, slots=True)
class ColumnMethod:
    """A line of the figure. `scale` is that of the noise in a count, from epsilon and the number of parties; 0: no noise."""

    title: str
    scale: Callable[[float, int], float]
    ours: bool  # integer noise, class counts from the noisy histograms; else real noise, and class counts are public


COLUMN_METHODS = {
    "snb": ColumnMethod("SNB, no privacy", lambda epsilon, parties: 0.0, False),
    "printed": ColumnMethod("VDPNB as printed (true loss n epsilon)", lambda e, n: 1 / e, False),
    "composed": ColumnMethod("its mechanism at the stated epsilon, class counts open", lambda e, n: n / e, False),
    "ours": ColumnMethod("ours: noisy_histograms at the stated epsilon", lambda e, n: n / e, True),
}


def noisy_tables(counts: Floats, method: ColumnMethod, epsilon: float, parties: int, runs: int, seed: list[int]) -> Floats:
    """Value x class counts of all parties with noise: (runs, values, classes)."""
    rng = np.random.default_rng(seed)
    scale, shape = method.scale(epsilon, parties), (runs, *counts.shape)
    if not scale:
        return np.broadcast_to(counts, shape)
    if method.ours:
        return np.asarray(counts + one_copy(1 / scale)(rng, parties, shape))
    return np.asarray(counts + rng.laplace(0.0, scale, shape))


def column_scores(noisy: Floats, classes: Floats, rows: Floats, sizes: tuple[int, ...], ours: bool) -> Floats:
    """Log-posteriors (runs, rows, classes) from the parties' noisy tables; negative counts become 0, alpha = 1.

    As printed, the public class counts are the prior and what counts are divided by. Ours has neither: the prior is the mean
    of the histograms' margins, and counts are divided by the sum over the attribute's values.
    """
    cuts = np.cumsum((0, *sizes))
    pieces = [noisy[:, low:high] for low, high in pairwise(cuts)]
    if ours:
        margin = np.rint(np.mean([piece.sum(axis=1) for piece in pieces], axis=0))
        prior = np.log(np.maximum(margin, 1.0))
    else:
        prior = np.broadcast_to(np.log(classes), (len(noisy), len(classes)))
    logs = []
    for piece, size in zip(pieces, sizes, strict=True):
        usable = np.maximum(piece, 0.0)
        total = usable.sum(axis=1, keepdims=True) if ours else classes[None, None]
        logs.append(np.log(usable + 1.0) - np.log(total + size))
    return np.asarray(prior[:, None] + np.einsum("rv,nvc->nrc", rows, np.concatenate(logs, axis=1), optimize=True))


@dataclass(frozen=True, slots=True)
class Fold:
    """One fold for one choice of attributes: what was counted in training, and the rows to classify."""

    counts: Floats  # value x class
    classes: Floats
    rows: Floats
    labels: Ints
    sizes: tuple[int, ...]


def column_cases(table: Table, parties: int, seed: int = 2015) -> list[list[Fold]]:
    """Ten folds for every choice of `parties` attributes and some orders of the rows."""
    starts = np.cumsum((1, *table.sizes))
    choices = list(combinations(range(len(table.sizes)), parties))
    onehot = np.eye(table.classes)[table.labels]
    whole = table.columns.T @ onehot
    cases = []
    for order in range(-(-MIN_ORDERS // len(choices))):
        rows = np.random.default_rng([seed, order]).permutation(len(table.labels))
        tests = [rows[fold::FOLDS] for fold in range(FOLDS)]
        trained = [whole - table.columns[test].T @ onehot[test] for test in tests]
        for choice in choices:
            columns = np.concatenate([np.arange(starts[at], starts[at + 1]) for at in choice])
            sizes = tuple(table.sizes[at] for at in choice)
            cases.append(
                [
                    Fold(counts[columns], counts[0], table.columns[test][:, columns], table.labels[test], sizes)
                    for test, counts in zip(tests, trained, strict=True)
                ]
            )
    return cases


def column_accuracy(
    cases: list[list[Fold]], parties: int, epsilon: float, method: ColumnMethod, runs: int, seed: int = 2015
) -> tuple[float, float, int]:
    """Mean ten-fold accuracy over all cases, its standard error over the noise, and the number of runs."""
    share = -(-runs // len(cases)) if method.scale(epsilon, parties) else 1
    means, variances = [], []
    for case, folds in enumerate(cases):
        right = np.zeros(share)
        for at, fold in enumerate(folds):
            for start in range(0, share, 100):
                size = min(100, share - start)
                noisy = noisy_tables(fold.counts, method, epsilon, parties, size, [seed, case, at, start])
                predicted = column_scores(noisy, fold.classes, fold.rows, fold.sizes, method.ours).argmax(axis=2)
                right[start : start + size] += (predicted == fold.labels).sum(axis=1)
        right /= sum(len(fold.labels) for fold in folds)
        means.append(float(right.mean()))
        variances.append(float(right.var(ddof=1)) if share > 1 else 0.0)
    return float(np.mean(means)), math.sqrt(sum(variances) / share) / len(cases), share * len(cases)


def column_figure(table: Table, parties: tuple[int, ...], runs: int) -> list[Point]:
    """All points of Figure 1 (b)."""
    points = []
    for n in parties:
        cases = column_cases(table, n)
        for epsilon in EPSILONS:
            for name, method in COLUMN_METHODS.items():
                mean, error, count = column_accuracy(cases, n, epsilon, method, runs)
                points.append(Point(n, epsilon, name, mean, error, count))
    return points
