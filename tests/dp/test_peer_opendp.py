"""OpenDP as oracle of the samplers: the same law from two independent programs, and ours faster. Optional: 265 MB installed."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2_contingency

from blindbayes.crypto.coins import Coins
from blindbayes.dp.noise import samplers
from support.fit import ALPHA

N = 50_000


@pytest.fixture(scope="module")
def dp() -> Any:
    try:
        import opendp.prelude as prelude
    except ImportError:
        if os.environ.get("BLINDBAYES_PEERS") == "require":
            raise
        pytest.skip("opendp is not installed")
    prelude.enable_features("contrib")
    return prelude


def same_law(one: np.ndarray, other: np.ndarray) -> float:
    """p-value of a two-sample chi-square test; rare values are pooled in both tails."""
    edges = np.quantile(one, [0.005, 0.995])
    low, high = int(edges[0]), int(edges[1])
    table = [[(np.clip(side, low, high) == value).sum() for value in range(low, high + 1)] for side in (one, other)]
    return float(chi2_contingency(np.array(table) + 1e-9)[1])


CASES = {
    "laplace": (
        lambda dp: dp.m.make_laplace,
        lambda dp: dp.l1_distance(T="i64"),
        7.5,
        lambda c: samplers.discrete_laplace(c, 7.5, N),
    ),
    "gaussian": (
        lambda dp: dp.m.make_gaussian,
        lambda dp: dp.l2_distance(T=float),
        6.0,
        lambda c: samplers.discrete_gaussian(c, 36, N),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_law_is_that_of_opendp_and_the_draws_are_faster(dp: Any, name: str) -> None:
    maker, metric, scale, ours = CASES[name]
    start = time.process_time()
    theirs = np.array(maker(dp)(dp.vector_domain(dp.atom_domain(T="i64")), metric(dp), scale=scale)([0] * N))
    their_time = time.process_time() - start
    start = time.process_time()
    drawn = ours(Coins.seeded(b"opendp".ljust(32)))
    assert time.process_time() - start < their_time
    assert same_law(theirs, drawn) > ALPHA
    assert same_law(theirs, drawn + (np.arange(N) % 2 == 0)) < ALPHA  # the control: every second draw moved by one
