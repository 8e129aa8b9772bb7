"""Intervals behind noise: they hold the exact number as often as they say."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from blindbayes import NaiveBayes
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.data import count
from blindbayes.dp.release.intervals import noise_interval, record_of
from blindbayes.dp.release.noisy_parameters import fit_parameters
from blindbayes.dp.release.planner import plan_release
from blindbayes.statistics.intervals import between

RELEASES = 40


# An interval of 90% holds the exact number in 90 of 100 releases. Cells of one release are dependent: the share of 40
# releases has a standard error of at most sqrt(.9 * .1 / 40) = 0.047 and, with some 30 weakly dependent cells each, of about
# 0.01. The coins are seeded. Intervals of 68% or of 99% (noise said half or twice as large as it is) lie beyond both ends.
LEAST, MOST = 0.82, 0.96


@pytest.fixture(autouse=True)
def the_same_noise_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = itertools.count(2026)
    monkeypatch.setattr(Coins, "system", lambda: Coins.seeded(next(seeds).to_bytes(32, "big")))


def test_moments_have_intervals_that_hold_the_exact_mean() -> None:
    generator = np.random.default_rng(5)
    labels = generator.random(20_000) < 0.4
    income = np.clip(generator.normal(np.where(labels, 60_000, 90_000), 20_000), 0, 500_000).round()
    kind = np.where(generator.random(20_000) < 0.3 + 0.3 * labels, "a", "b")
    table = pa.table({"income": income, "kind": kind, "class": np.where(labels, "yes", "no")})
    book = Codebook("class", ("no", "yes"), (Numeric("income", 0, 500_000, 1), Categorical("kind", ("a", "b"))), max_rows=10**6)
    exact = NaiveBayes(book).fit(table)
    plan = plan_release(book, epsilon=1.0, rows=20_000, mechanism="discrete_laplace")  # in one stage
    assert plan.encodings[0].kind == "moments"
    statistics, means = count(table, plan.codebook), []
    for _ in range(RELEASES):
        noisy = plan.release(statistics, Coins.system())
        interval = noise_interval({"released": record_of(noisy)}, fit_parameters(noisy), 1.0)
        assert interval is not None
        low, high = between(interval.terms["income"].mean)  # type: ignore[union-attr]
        means.append(((low <= exact.theta_["income"]) & (exact.theta_["income"] <= high)).mean())
    assert LEAST - 0.08 < np.mean(means) <= MOST + 0.02
