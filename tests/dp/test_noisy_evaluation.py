"""Noisy evaluations: counts that rows can have."""

from __future__ import annotations

import numpy as np

from blindbayes.dp.distributed.noisy_evaluation import possible
from blindbayes.statistics.evaluation import Evaluation


def test_counts_after_noise_are_those_of_rows() -> None:
    generator = np.random.default_rng(1)
    for classes in (("a", "b"), ("a", "b", "c", "d")):
        noisy = generator.normal(3, 20, Evaluation.size(len(classes), 8))
        assert possible(classes, 8, noisy).rows >= 0  # from_vector refuses what contradicts itself
    exact = np.arange(16, dtype=np.float64)
    assert np.array_equal(possible(("a", "b"), 8, exact).vector, exact)
