"""Posterior of the true size of the intersection: what Alice learns from a thinned size."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt


def posterior(
    thinned: int, maximum: int, *, keep: float | None = None, bob_items: int | None = None
) -> npt.NDArray[np.float64]:
    """Pr(z | s_A) for z = 0..maximum, from a uniform prior over z.

    With `keep` (s_B / n_B known) it is the paper's formula: binomial. Alice does not know s_B, only that it is uniform on
    1..n_B - 1: with `bob_items` = n_B the likelihood is averaged over it, which is what she really learns.
    """
    if (keep is None) == (bob_items is None) or not 0 <= thinned <= maximum:
        raise ValueError("give either keep or bob_items, and a thinned size between 0 and maximum")
    if keep is not None:
        if not 0 < keep < 1:
            raise ValueError("keep lies between 0 and 1")
        rates = np.array([keep])
    else:
        if bob_items is None or bob_items < 2:
            raise ValueError("Bob has at least two items")
        rates = np.arange(1, bob_items) / bob_items
    sizes = np.arange(thinned, maximum + 1)
    choose = np.array([math.lgamma(z + 1) - math.lgamma(thinned + 1) - math.lgamma(z - thinned + 1) for z in sizes])
    likelihood = np.zeros(maximum + 1)
    for rate in rates:
        likelihood[thinned:] += np.exp(choose + thinned * math.log(rate) + (sizes - thinned) * math.log1p(-rate))
    whole: npt.NDArray[np.float64] = likelihood / likelihood.sum()
    return whole


def entropy(distribution: npt.NDArray[np.float64]) -> float:
    """Bits that are left to guess."""
    there = distribution[distribution > 0]
    return float(-(there * np.log2(there)).sum())


def error(size: int, keep: float) -> float:
    """Standard deviation of s_A n_B / s_B around the true size: the binomial error of the answer."""
    return math.sqrt(size * (1 - keep) / keep)
