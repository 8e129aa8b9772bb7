"""Huai et al. 2015, Figure 1 (a): accuracy on Car by the number of parties of one sample each; Algorithm 1 in three readings.

The noise of all parties together is drawn from the law of its sum (`dp.distributed` proves and tests those laws on the
real shares), with numpy's generator: a simulation, nothing is released.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from blindbayes.dp.distributed.noise_shares import DistributedNoise
from blindbayes_papers.datasets import load_dataset
from blindbayes_papers.huai2015.diluted import DilutedNoise
from blindbayes_papers.huai2015.oblivious_sum.membership import Views, pattern

EPSILONS = (0.1, 0.2, 0.3, 0.4)
DELTA = 1e-6
"""The paper does not print its delta."""
TOUCHED = 7
"""Counts that one Car record touches: six attribute values and the class."""
FOLDS = 10
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Draw = Callable[[np.random.Generator, int, tuple[int, ...]], Ints]


@dataclass(frozen=True, slots=True)
class Table:
    """Car as indicator columns: a column of ones, then one per attribute value."""

    columns: Floats  # rows x (1 + values)
    labels: Ints
    sizes: tuple[int, ...]  # values per attribute
    classes: int


def load_car() -> Table:
    """The dataset, coded."""
    table = load_dataset("car")
    texts = [table.column(at).to_pylist() for at in range(table.num_columns)]
    labels = sorted(set(texts[-1]))
    blocks, sizes = [np.ones((len(texts[0]), 1))], []
    for column in texts[:-1]:
        values = sorted(set(column))
        sizes.append(len(values))
        blocks.append(np.array([[value == one for one in values] for value in column], dtype=np.float64))
    return Table(np.hstack(blocks), np.array([labels.index(value) for value in texts[-1]]), tuple(sizes), len(labels))


def no_noise(rng: np.random.Generator, parties: int, shape: tuple[int, ...]) -> Ints:
    """Standard Naive Bayes."""
    return np.zeros(shape, np.int64)


def diluted(rate: float, chance: float) -> Draw:
    """The sum of `parties` diluted geometric shares: a binomial number of two-sided geometric variables."""

    def draw(rng: np.random.Generator, parties: int, shape: tuple[int, ...]) -> Ints:
        copies = rng.binomial(parties, min(chance, 1.0), shape)
        stop = -math.expm1(-rate)
        some = np.maximum(copies, 1)
        both = rng.negative_binomial(some, stop) - rng.negative_binomial(some, stop)
        return np.asarray(np.where(copies > 0, both, 0))

    return draw


def as_printed(epsilon: float, parties: int) -> Draw:
    """The paper's noise: Delta = 1, epsilon for every count, beta = min(ln(1/delta) / n, 1). A record's loss is 7 epsilon."""
    return diluted(epsilon, math.log(1 / DELTA) / parties)


def composed(epsilon: float, parties: int) -> Draw:
    """The paper's mechanism with epsilon and delta split over the counts that a record touches."""
    plan = DilutedNoise.plan(touched=TOUCHED, bounds=[1] * 88, epsilon=epsilon, delta=DELTA, honest=parties)
    return diluted(float(plan.rate()), float(plan.beta))


def ours(epsilon: float, parties: int) -> Draw:
    """The plan's own choice at the same epsilon and delta; at 7 touched counts that is Polya, so the sum is one geometric."""
    plan = DistributedNoise.plan(touched=TOUCHED, bounds=[1] * 88, epsilon=epsilon, delta=DELTA, honest=parties)
    if plan.mechanism != "polya":
        half = float(plan.variance) / 2
        return lambda rng, parties, shape: rng.poisson(half, shape) - rng.poisson(half, shape)
    return one_copy(float(plan.rate()))


def one_copy(rate: float) -> Draw:
    """One two-sided geometric variable: discrete Laplace of scale 1 / rate."""
    stop = -math.expm1(-rate)
    return lambda rng, parties, shape: rng.geometric(stop, shape) - rng.geometric(stop, shape)


@dataclass(frozen=True, slots=True)
class Method:
    """A line of the figure: its noise, and what its probabilities are divided by."""

    title: str
    make: Callable[[float, int], Draw]
    by_class: (
        bool  # p = n_ij / n_j with the noisy class count, as the paper has it; else by the sum over the attribute's values
    )


METHODS = {
    "snb": Method("SNB, no privacy", lambda epsilon, parties: no_noise, True),
    "printed": Method("HDPNB as printed (true loss 7 epsilon)", as_printed, True),
    "one_copy": Method(
        "HDPNB with one copy of noise, as its text says (true loss 7 epsilon)", lambda epsilon, parties: one_copy(epsilon), True
    ),
    "printed_normalised": Method("its noise (true loss 7 epsilon), our estimator", as_printed, False),
    "composed": Method("its mechanism at the stated epsilon, our estimator", composed, False),
    "ours": Method("ours: Polya shares at the stated epsilon", ours, False),
}


def scores(counts: Floats, rows: Floats, sizes: tuple[int, ...], by_class: bool) -> Floats:
    """Log-posteriors of every row under every noisy table: (runs, rows, classes). Negative counts are set to 0; alpha = 1."""
    usable = np.maximum(counts, 0.0)  # (runs, 1 + values, classes)
    logs = np.log(usable + 1.0)
    at = 1
    for size in sizes:
        total = usable[:, :1, :] if by_class else usable[:, at : at + size, :].sum(axis=1, keepdims=True)
        logs[:, at : at + size, :] -= np.log(total + size)
        at += size
    return np.asarray(np.einsum("rv,nvc->nrc", rows, logs, optimize=True))


def accuracy(table: Table, parties: int, epsilon: float, method: Method, runs: int, seed: int) -> tuple[float, float]:
    """Mean and standard error, over runs, of the ten-fold accuracy with `parties` samples of one party each."""
    rng = np.random.default_rng(seed)
    orders = min(5, runs)
    accuracies: list[Floats] = []
    for order in range(orders):
        chosen = np.random.default_rng([seed, order]).permutation(len(table.labels))[:parties]
        share = runs // orders + (order < runs % orders)
        right = np.zeros(share)
        for fold in range(FOLDS):
            test = chosen[fold::FOLDS]
            train = np.setdiff1d(chosen, test)
            onehot = np.eye(table.classes)[table.labels[train]]
            counts = table.columns[train].T @ onehot
            law = method.make(epsilon, len(train))
            for start in range(0, share, 100):
                size = min(100, share - start)
                noisy = counts + law(rng, len(train), (size, *counts.shape))
                guessed = scores(noisy, table.columns[test], table.sizes, method.by_class).argmax(axis=2)
                right[start : start + size] += (guessed == table.labels[test]).sum(axis=1)
        accuracies.append(right / parties)
    values = np.concatenate(accuracies)
    return float(values.mean()), float(values.std() / math.sqrt(len(values)))


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the figure."""

    parties: int
    epsilon: float
    method: str
    accuracy: float
    standard_error: float
    runs: int


def figure(table: Table, parties: tuple[int, ...], runs: int, seed: int = 2015) -> list[Point]:
    """All points. Standard Naive Bayes needs one run per split."""
    points = []
    for n in parties:
        for epsilon in EPSILONS:
            for name, method in METHODS.items():
                count = 5 if name == "snb" else runs
                mean, error = accuracy(table, n, epsilon, method, count, seed)
                points.append(Point(n, epsilon, name, mean, error, count))
    return points


# -- Algorithm 1 ---------------------------------------------------------------------------------------------------------


def leave_among_remaining(u: list[int], leaver: int, rng: np.random.Generator) -> None:
    """Algorithm 1, lines 17 to 23, with the maximum over the parties that remain."""
    value = u.pop(leaver)
    if not u:
        return
    holders = [at for at, view in enumerate(u) if view == max(u)]
    rng.shuffle(holders)
    if len(holders) >= 2:
        u[holders[1]], u[holders[0]] = value, len(u) // 2 + 1


def leave_among_all(u: list[int], leaver: int, rng: np.random.Generator) -> None:
    """Algorithm 1, lines 17 to 23, with the maximum over all parties, the leaver included."""
    n = len(u) - 1
    holders = [at for at, view in enumerate(u) if view == max(u)]
    rng.shuffle(holders)
    if len(holders) >= 2:
        u[holders[1]], u[holders[0]] = u[leaver], n // 2 + 1
    u.pop(leaver)


def join_printed(u: list[int]) -> None:
    """Algorithm 1, lines 8 to 14."""
    n = len(u) + 1
    u.append(n)
    u[u.index(min(u))] = n


@dataclass(frozen=True, slots=True)
class Churn:
    """Measurements of a reading of Algorithm 1 over random joins and leaves."""

    reading: str
    start: int
    steps: int
    violated: float  # fraction of steps with some u outside (n/2, n]
    too_little: float  # fraction of steps with sum 1/u < 1: less noise than privacy needs
    min_copies: float  # smallest sum of 1/u met
    max_copies: float  # largest; Theorem 2 says at most 2
    first: int | None  # first step that broke the invariant


def churn(reading: str, start: int, steps: int, seed: int = 2015) -> Churn:
    """Random joins and leaves from the canonical start."""
    rng = np.random.default_rng([seed, start])
    u = pattern(start)
    views = Views([f"p{at}" for at in range(start)])
    violated = little = 0
    smallest, largest, first = math.inf, 0.0, None
    for step in range(1, steps + 1):
        joins = len(u if reading != "corrected" else views.of) <= 2 or rng.random() < 0.5
        if reading == "corrected":
            if joins:
                views.join(f"q{step}")
            else:
                views.leave(list(views.of)[rng.integers(len(views.of))])
            u = list(views.of.values())
        elif joins:
            join_printed(u)
        else:
            leave = leave_among_remaining if reading == "printed, among the remaining" else leave_among_all
            leave(u, int(rng.integers(len(u))), rng)
        n = len(u)
        copies = sum(1 / view for view in u)
        smallest, largest = min(smallest, copies), max(largest, copies)
        little += copies < 1 - 1e-12
        if any(not n / 2 < view <= n for view in u):
            violated += 1
            first = first or step
    return Churn(reading, start, steps, violated / steps, little / steps, smallest, largest, first)


READINGS = ("printed, among the remaining", "printed, among all", "corrected")
