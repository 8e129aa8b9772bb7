"""Evaluations of one or several models with noise that the parties add together, and what the noisy total says.

One row moves `Evaluation.touched` cells of each model by 1; `noise_shares` makes the noise for these cells.  [evaluation]

Postprocessing: counts are moved to the nearest ones that rows can have (none below 0, the margins of one set of rows) and
rounded. The interval of a figure is that of `dp.release.intervals`: noise of the same law, drawn 199 times from a hash of the
release, is taken off the total, and of the figures of these totals the 10th smallest and largest are its ends. It contains the
figure without noise in about 90 of 100 releases; for figures of bins, the whole interval of their bin error.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.statement import NOT_PROTECTED, PrivacyStatement, Setting
from blindbayes.dp.distributed.noise_shares import DistributedNoise, PrivacyUnit
from blindbayes.dp.distributed.noisy_sum import REFUSALS, SEVERAL_RECORDS, ReleaseOfShares
from blindbayes.dp.release.intervals import DRAWS, draw_by_law
from blindbayes.dp.release.private_fit import data_domain
from blindbayes.errors import DataError
from blindbayes.statistics.evaluation import Evaluation, IntArray
from blindbayes.statistics.parameters import FloatArray

_FALSE_ALARM = 2.0**-30  # chance that honest parties' total is refused
_ENDS = DRAWS // 20
_POST_PROCESSING = "Noisy counts are moved to the nearest counts that rows can have; figures and intervals are made from these."


@dataclass(frozen=True)
class NoisyEvaluation(ReleaseOfShares):
    """The public plan: which cells are summed, and their noise."""

    codebook: Codebook
    bins: int
    models: int
    noise: DistributedNoise

    @classmethod
    def make(
        cls,
        codebook: Codebook,
        bins: int,
        models: int,
        *,
        epsilon: Fraction,
        delta: float,
        honest: int,
        unit: PrivacyUnit,
        law: type[DistributedNoise] = DistributedNoise,
    ) -> NoisyEvaluation:
        """Plan the noise of the evaluations of some models on the same rows, by `law`."""
        classes = len(codebook.classes)
        cells, touched = models * Evaluation.size(classes, bins), models * Evaluation.touched(classes)
        noise = law.plan(touched=touched, bounds=(1,) * cells, epsilon=epsilon, delta=delta, honest=honest, unit=unit)
        return cls(codebook, bins, models, noise)

    def bound(self, shares: int) -> int:
        """Return the largest absolute value of the total in any cell, up to a chance of 2^-40."""
        return self.codebook.max_rows + self.noise.tail(2.0**-40 / len(self.noise.bounds), shares)

    def open(self, total: IntArray, shares: int) -> list[Evaluation]:
        """Return the evaluations that a noisy total holds. Raises `DataError` if no rows give it with such noise."""
        classes, rows = self.codebook.classes, self.codebook.max_rows
        tail = self.noise.tail(_FALSE_ALARM / len(total), shares)
        if total.min() < -tail or total.max() > rows + tail:
            raise DataError("a count of the evaluation is further outside its bounds than noise explains")
        coins = Coins.seeded(hashlib.sha256(b"blindbayes evaluation" + total.tobytes()).digest())
        samples = draw_by_law(self.noise.table(shares), coins, (DRAWS, len(total)))
        size = len(total) // self.models
        opened = []
        for low in range(0, len(total), size):
            part = slice(low, low + size)
            value = possible(classes, self.bins, total[part].astype(np.float64))
            draws = [_ends(possible(classes, self.bins, total[part] - noise)) for noise in samples[:, part]]
            opened.append(replace(value, intervals=_intervals(draws)))
        return opened

    def statement(
        self, trust: str, composition: str, persons: str = SEVERAL_RECORDS, tuning: str | None = None
    ) -> PrivacyStatement:
        """Return the privacy statement; `persons` says how far persons with several rows are protected."""
        classes = len(self.codebook.classes)
        return PrivacyStatement.for_release(
            self,
            sensitivity=f"One record moves at most {Evaluation.touched(classes)} cell(s) of the evaluation of each of "
            f"{self.models} model(s), by 1 each",
            codebook=self.codebook.sha256,
            data_domain=data_domain(self.codebook),
            tuning=tuning,
            setting=Setting(
                trust_model=trust,
                composition=composition,
                not_protected=f"{NOT_PROTECTED} {REFUSALS} {persons}",
                post_processing=_POST_PROCESSING,
                model="Federated",
                drawn_in=(type(self.noise).__module__,),
            ),
        )


def possible(classes: tuple[str, ...], bins: int, noisy: FloatArray) -> Evaluation:
    """Return the evaluation near noisy counts that rows can have."""
    count = len(classes)
    if count == 2:
        parts = [_nearest(row, row.sum()) for row in noisy.reshape(2, bins)]
        return Evaluation.from_vector(classes, bins, np.concatenate(parts))
    confusion = _nearest(noisy[: count * count], noisy[: count * count].sum())
    actual = confusion.reshape(count, count).sum(axis=1)
    margins = np.stack([actual.sum() - actual, actual], axis=1).reshape(-1)
    scores = noisy[count * count :].reshape(2 * count, bins)
    cells = [_nearest(row, rows) for row, rows in zip(scores, margins, strict=True)]
    return Evaluation.from_vector(classes, bins, np.concatenate([confusion, *cells]))


def _nearest(values: FloatArray, total: float) -> IntArray:
    """Return the nearest counts from 0 on with a given total, rounded by largest remainders."""
    whole = max(round(float(total)), 0)
    falling = np.sort(values)[::-1]
    above = (np.cumsum(falling) - whole) / np.arange(1, len(values) + 1)
    positive = max(int((falling > above).sum()), 1)
    level = np.maximum(values - above[positive - 1], 0.0)
    counts = np.floor(level).astype(np.int64)
    missing = whole - int(counts.sum())
    counts[np.argsort(counts - level, kind="stable")[:missing]] += 1
    return counts if whole else np.zeros_like(counts)


def _ends(evaluation: Evaluation) -> dict[str, tuple[float, float]]:
    """Return every figure by name, as the interval of its bin error (exact figures: twice the same)."""
    plain = {"accuracy": evaluation.accuracy, "balanced_accuracy": evaluation.balanced_accuracy}
    for at, label in enumerate(evaluation.classes):
        plain[f"{label}.base_rate"] = float(evaluation.base_rate[at])
        plain[f"{label}.recall"] = float(evaluation.recall[at])
        plain[f"{label}.precision"] = float(evaluation.precision[at])
    ends = {name: (value, value) for name, value in plain.items()}
    for label in evaluation.classes:
        for name in ("auc", "brier", "calibration_error"):
            figure = getattr(evaluation, name)(label)
            ends[f"{label}.{name}"] = (figure.low, figure.high)
    return ends


def _intervals(draws: list[dict[str, tuple[float, float]]]) -> dict[str, tuple[float, float]]:
    intervals = {}
    for name in draws[0]:
        low, high = (sorted(each[name][side] for each in draws if not math.isnan(each[name][0])) for side in (0, 1))
        if len(low) > 2 * _ENDS:
            intervals[name] = (low[_ENDS], high[-_ENDS - 1])
    return intervals
