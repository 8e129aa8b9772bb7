"""Goodness of fit of integer draws against an exact law, with the significance level stated by the caller."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from scipy.stats import chi2

ALPHA = 1e-4
"""Level of every fit in the tests. Coins are seeded, so that a verdict is the same on every machine."""


def chi_square(draws: np.ndarray, law: Callable[[int], float], support: Iterable[int]) -> float:
    """The p-value of `draws` under `law`; cells with fewer than 8 expected draws are pooled with what lies outside."""
    values, counts = np.unique(draws, return_counts=True)
    seen = dict(zip(values.tolist(), counts.tolist(), strict=True))
    statistic, cells, expected_rest, seen_rest = 0.0, 0, float(len(draws)), len(draws)
    for value in support:
        expected = law(value) * len(draws)
        if expected < 8:
            continue
        observed = seen.get(value, 0)
        statistic += (observed - expected) ** 2 / expected
        expected_rest, seen_rest, cells = expected_rest - expected, seen_rest - observed, cells + 1
    if expected_rest > 1e-6 * len(draws) or seen_rest:
        statistic += (seen_rest - expected_rest) ** 2 / max(expected_rest, 1e-9)
        cells += 1
    assert cells >= 3, "a fit with fewer than three cells shows nothing"
    return float(chi2.sf(statistic, cells - 1))
