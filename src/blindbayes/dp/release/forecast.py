"""Forecasts of accuracy against epsilon, before any private data is read or as a release of its own.

A forecast simulates fits many times on a *proxy*: split, release, fit, score. On a public or synthetic proxy this costs
nothing. On the private table it is a release like any other: `private_forecast` splits the rows once, releases a model per
epsilon from one part and noisy counts of right and wrong answers from the other, and states its price for the ledger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from blindbayes._lazy import lazy
from blindbayes.codebook import Codebook, Numeric, Text
from blindbayes.crypto.coins import Coins
from blindbayes.dp.noise import samplers
from blindbayes.dp.noise.exact_events import Integers, Number, as_decimal, below, budget_floor, cost_ceiling
from blindbayes.dp.noise.mechanisms import PrivacyCost
from blindbayes.dp.release.private_fit import FitPlan, plan_fit
from blindbayes.dp.release.release_plan import require_small_delta
from blindbayes.errors import ConfigError
from blindbayes.statistics import MISSING, CodedRows, Layout, cells_of, count_block
from blindbayes.statistics.parameters import Parameters, estimate

special = lazy("scipy.special")
stats = lazy("scipy.stats")

EPSILONS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
TEST_SHARE = 0.3
BAND = (0.1, 0.9)
"""Quantiles of the accuracy over repetitions that are printed beside the mean."""
CLOSE = 0.01
"""A private model is close to the one without privacy if it loses at most this accuracy: one point."""


@dataclass(frozen=True, slots=True)
class Quality:
    """Measures for rare classes: how well rows are ranked, and how many of each class are recognised."""

    auc: float  # area under the ROC curve; of several classes the mean of each against the rest
    balanced: float  # mean of the recalls
    recall: tuple[float, ...]  # by class; nan for one that was not there

    @classmethod
    def measure(cls, scores: npt.NDArray[np.float64], labels: npt.NDArray[np.int64]) -> Quality:
        """Measure joint log-likelihoods (rows, classes) on rows whose class is known."""
        classes = scores.shape[1]
        chosen, there = scores.argmax(axis=1), np.bincount(labels, minlength=classes)
        right = np.bincount(labels[chosen == labels], minlength=classes)
        with np.errstate(invalid="ignore"):
            recall = right / there
        areas = []
        for label in range(1 if classes == 2 else 0, classes):
            mine, others = labels == label, np.delete(scores, label, axis=1)
            if mine.any() and not mine.all():
                odds = scores[:, label] - special.logsumexp(others, axis=1)
                ranks = stats.rankdata(odds)[mine].sum() - mine.sum() * (mine.sum() + 1) / 2
                areas.append(float(ranks / (mine.sum() * (~mine).sum())))
        return cls(float(np.mean(areas)) if areas else math.nan, float(np.nanmean(recall)), tuple(map(float, recall)))

    @classmethod
    def mean(cls, qualities: Sequence[Quality]) -> Quality:
        """Average the measures of several tests."""
        recalls = np.array([each.recall for each in qualities])
        known = ~np.isnan(recalls)
        recall = np.where(known, recalls, 0.0).sum(axis=0) / np.where(known.any(axis=0), known.sum(axis=0), np.nan)
        areas = [each.auc for each in qualities if not math.isnan(each.auc)]
        balanced = float(np.mean([each.balanced for each in qualities]))
        return cls(float(np.mean(areas)) if areas else math.nan, balanced, tuple(map(float, recall)))


@dataclass(frozen=True, slots=True)
class Line:
    """Accuracy at one epsilon over the repetitions: mean, 10% and 90% quantiles; on a public table other measures too."""

    epsilon: float
    mean: float
    low: float
    high: float
    mechanism: str
    quality: Quality | None = None


@dataclass(frozen=True)
class Forecast:
    """A forecast with its reference lines. `rows` is the size that the plan was made for."""

    lines: tuple[Line, ...]
    not_private: float | None
    majority: float | None
    rows: int
    proxy: str
    quality: Quality | None = None  # of the model without privacy

    def is_below_majority(self, line: Line | None = None) -> bool:
        """Return True if a line, or the model without privacy, is right no more often than the majority class."""
        mean = self.not_private if line is None else line.mean
        return mean is not None and self.majority is not None and mean <= self.majority

    @property
    def smallest(self) -> float | None:
        """Smallest epsilon whose mean, and that of the next epsilon, is within one point of the model without privacy.

        One lucky point does not count, and one unlucky point far above does not matter.
        """
        ordered = sorted(self.lines, key=lambda line: line.epsilon)
        for line, following in zip(ordered, [*ordered[1:], *ordered[-1:]], strict=True):
            if self.is_close(line) and self.is_close(following):
                return line.epsilon
        return None

    def is_close(self, line: Line) -> bool:
        """Return True if the mean is within one point of the model without privacy."""
        return self.not_private is not None and line.mean >= self.not_private - CLOSE


def in_cells(block: CodedRows, declared: Codebook, counted: Codebook) -> CodedRows:
    """Convert codes of the declared codebook into the cells of a plan's codebook."""
    columns = {}
    for feature, target in zip(declared.features, counted.features, strict=True):
        if isinstance(feature, Text):
            continue
        codes = block.columns[feature.name]
        if isinstance(target, Numeric) and isinstance(feature, Numeric) and feature.bins is None and target.bins is not None:
            present = codes != MISSING
            binned = cells_of(np.where(present, codes, target.code_low), target)
            codes = np.where(present, binned, -1)
        columns[feature.name] = codes
    return CodedRows(block.labels, columns, block.rows, block.bags)


def _fitted(plan: FitPlan, rows: CodedRows, coins: Coins) -> Parameters:
    return plan.fit(count_block(Layout(plan.codebook), rows), rows, coins).parameters


def _tested(parameters: Parameters, block: CodedRows) -> tuple[float, Quality]:
    scores, labels = parameters.joint_log_likelihood(block), block.known_labels
    return float((scores.argmax(axis=1) == labels).mean()), Quality.measure(scores, labels)


def plan_fits(
    codebook: Codebook,
    epsilons: Sequence[Number] = EPSILONS,
    *,
    delta: float = 0.0,
    rows: int | None = None,
    rows_per_unit: int = 1,
    max_read: int | None = None,
) -> tuple[FitPlan, ...]:
    """Plan a fit for each epsilon. `rows` is the declared size of the private table, by default the codebook's."""
    return tuple(
        plan_fit(
            codebook,
            epsilon=epsilon,
            delta=delta,
            rows=rows,
            rows_per_unit=rows_per_unit,
            select_model=True,
            max_read=max_read,
        )
        for epsilon in epsilons
    )


def forecast(
    plans: Sequence[FitPlan],
    block: CodedRows,
    *,
    coins: Coins,
    repetitions: int = 20,
    proxy: str = "public table",
    progress: Callable[[int, int, str], None] | None = None,
) -> Forecast:
    """Simulate planned fits on a **public** proxy, given as codes of the declared codebook.

    Training parts are drawn with replacement to the declared number of rows, so that a small public sample stands for a large
    private table. Without a declared number they have the size of the proxy's training part, and fits have to estimate it.
    """
    if block.labels is None or block.rows < 10:
        raise ConfigError("a proxy needs at least ten rows with their class")
    size = plans[0].rows or round((1 - TEST_SHARE) * block.rows)
    layout = Layout(plans[0].declared)
    scores: list[list[tuple[float, Quality]]] = [[] for _ in plans]
    base, flat = [], []
    for done in range(repetitions):
        if progress is not None:
            progress(done, repetitions, "releases of every epsilon")
        order = np.argsort(coins.words(block.rows))
        cut = round(TEST_SHARE * block.rows)
        test, pool = order[:cut], order[cut:]
        train = pool if size == len(pool) else pool[below(coins, np.full(size, len(pool)))]
        exact = count_block(layout, block.take(train))
        base.append(_tested(estimate(exact), block.take(test)))
        flat.append(float((block.labels[test] == int(np.argmax(exact.class_counts))).mean()))
        for at, plan in enumerate(plans):
            cells = in_cells(block, plan.declared, plan.codebook)
            scores[at].append(_tested(_fitted(plan, cells.take(train), coins), cells.take(test)))
    lines = tuple(
        Line(
            float(plan.epsilon),
            float(np.mean([each[0] for each in qualities])),
            float(np.quantile([each[0] for each in qualities], BAND[0])),
            float(np.quantile([each[0] for each in qualities], BAND[1])),
            plan.name,
            Quality.mean([each[1] for each in qualities]),
        )
        for plan, qualities in zip(plans, scores, strict=True)
    )
    plain = float(np.mean([each[0] for each in base]))
    return Forecast(lines, plain, float(np.mean(flat)), size, proxy, Quality.mean([each[1] for each in base]))


def synthetic_proxy(codebook: Codebook, rows: int, coins: Coins, *, strength: float = 0.5) -> CodedRows:
    """Return a synthetic table of this codebook: it shows how noise scales, not what the data will say.

    Classes are equally likely. Each feature's law is drawn at random; `strength` says how far its class means lie apart, in
    standard deviations for numbers and in log-odds for categories.
    """

    def uniform(*shape: int) -> npt.NDArray[np.float64]:
        words = coins.words(math.prod(shape)) >> np.uint64(11)
        return np.asarray(((words.astype(np.float64) + 0.5) / 2**53).reshape(shape))

    def normal(*shape: int) -> npt.NDArray[np.float64]:
        return np.asarray(special.ndtri(uniform(*shape)))

    codebook.require_one_value("a made-up table (a public one will do: --proxy)")
    classes = len(codebook.classes)
    labels = below(coins, np.full(rows, classes))
    columns: dict[str, npt.NDArray[np.int64]] = {}
    for feature in codebook.features:
        if not isinstance(feature, Numeric) or feature.bins is not None:
            logits = normal(1, feature.size) + strength * normal(classes, feature.size)
            edges = np.cumsum(np.exp(logits), axis=1) / np.exp(logits).sum(axis=1, keepdims=True)
            codes = (uniform(rows)[:, None] > edges[labels]).sum(axis=1)
            columns[feature.name] = np.minimum(codes, feature.size - 1).astype(np.int64)
        else:
            centres = 0.6 * (uniform(1)[0] - 0.5) + 0.2 * strength * normal(classes)
            z = np.clip(centres[labels] + 0.2 * normal(rows), -1, 1)
            columns[feature.name] = np.round((z + 1) / 2 * (feature.width - 1)).astype(np.int64) + feature.code_low
    return CodedRows(labels, columns, rows)


# -- on the private table --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PrivateForecast:
    """A forecast on the private table itself: a release with a price. Asking the price reads no data.

    Rows fall at random into a training part and a test part; a record is in one of them. The training part pays the sum of the
    epsilons tried; the test part pays the same sum for its counts of right and wrong answers. The price is the larger: the sum.
    """

    plans: tuple[FitPlan, ...]
    rows_per_unit: int = 1

    name = "forecast on the private table"

    @property
    def price(self) -> PrivacyCost:
        """Privacy loss. A person's records may fall into both parts, so with several records per person both are paid."""
        epsilon = sum((plan.epsilon for plan in self.plans), Fraction(0)) * (1 if self.rows_per_unit == 1 else 2)
        delta = sum((as_decimal(plan.price.delta) for plan in self.plans), Fraction(0))
        return PrivacyCost(cost_ceiling(epsilon), cost_ceiling(delta), self.plans[0].price.unit)

    def run(self, block: CodedRows, coins: Coins) -> Forecast:
        """Release one model and one noisy accuracy per epsilon, from one split. The caller has charged the price."""
        bits = np.frombuffer(coins.bytes(2 * block.rows), dtype="<u2") < round(TEST_SHARE * 65536)
        test, train = np.flatnonzero(bits), np.flatnonzero(~bits)
        lines = []
        for plan in self.plans:
            cells = in_cells(block, plan.declared, plan.codebook)
            parameters = _fitted(plan, cells.take(train), coins)
            there = cells.take(test)
            right = int((parameters.joint_log_likelihood(there).argmax(axis=1) == there.labels).sum())
            accuracy, spread = _noisy_share(right, len(test), plan.epsilon, self.rows_per_unit, coins)
            lines.append(
                Line(float(plan.epsilon), accuracy, max(0.0, accuracy - spread), min(1.0, accuracy + spread), plan.name)
            )
        return Forecast(tuple(lines), None, None, self.plans[0].rows or 0, "private table")


def noisy_answers(right: int, rows: int, scale: Fraction, coins: Coins, count: int = 1) -> Integers:
    """Return `count` releases of the numbers of right and of wrong answers. A row raises one of the two by 1.  [reading]"""
    noise = np.asarray(samplers.discrete_laplace(coins, scale, 2 * count), dtype=np.int64)
    return np.array([right, rows - right]) + noise.reshape(count, 2)


def _noisy_share(right: int, rows: int, epsilon: Fraction, rows_per_unit: int, coins: Coins) -> tuple[float, float]:
    """Return the noisy share of right answers, and three scales of its noise."""
    scale = rows_per_unit / epsilon
    good, bad = np.maximum(noisy_answers(right, rows, scale, coins)[0], 0)
    size = max(1, int(good + bad))
    return int(good) / size, min(1.0, 3 * float(scale) / size)


def score_price(epsilon: Number, rows_per_unit: int) -> PrivacyCost:
    """Return the privacy loss of `noisy_accuracy`."""
    unit = "one record" if rows_per_unit == 1 else f"one person with at most {rows_per_unit} records"
    return PrivacyCost(cost_ceiling(budget_floor(epsilon, "score_epsilon")), 0.0, unit)


def noisy_accuracy(right: int, rows: int, epsilon: Number, rows_per_unit: int, coins: Coins) -> float:
    """Return the accuracy on private rows with noise for `epsilon`. The caller has charged `score_price`."""
    return _noisy_share(right, rows, budget_floor(epsilon, "score_epsilon"), rows_per_unit, coins)[0]


def private_forecast(
    codebook: Codebook,
    *,
    epsilons: Sequence[Number],
    delta: float = 0.0,
    rows: int | None = None,
    rows_per_unit: int = 1,
    max_read: int | None = None,
    allow_large_delta: bool = False,
) -> PrivateForecast:
    """Plan a forecast on the private table, with its price, for the releases that `PrivateNaiveBayes.fit` would make."""
    require_small_delta(codebook, delta, rows, allow_large=allow_large_delta)
    known = codebook.expected_rows if rows is None else rows
    train = None if known is None else max(1, round((1 - TEST_SHARE) * known))
    plans = plan_fits(codebook, epsilons, delta=delta, rows=train, rows_per_unit=rows_per_unit, max_read=max_read)
    return PrivateForecast(plans, rows_per_unit)
