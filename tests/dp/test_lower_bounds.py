"""Lower bounds of the privacy loss, with their confidence."""

from __future__ import annotations

import math

import numpy as np

from blindbayes.dp.audit.lower_bounds import epsilon_lower, low_bits


def test_bounds_hold_with_their_confidence() -> None:
    """Randomised response at epsilon 1: of 300 bounds at 95%, at most 5% (and 4 standard errors) may lie above the truth."""
    rng, truth, trials = np.random.default_rng(3), 1.0, 300
    p = math.exp(truth) / (1 + math.exp(truth))
    above = 0
    for _ in range(trials):
        a, b = rng.random((400, 1)) < p, rng.random((400, 1)) < 1 - p
        above += epsilon_lower(a.astype(float), b.astype(float), alpha=0.05, learn=False).epsilon > truth
    assert above <= trials * 0.05 + 4 * math.sqrt(trials * 0.05 * 0.95)


def test_equal_laws_show_nothing_and_certain_events_show_much() -> None:
    rng = np.random.default_rng(4)
    assert epsilon_lower(rng.normal(size=(4000, 2)), rng.normal(size=(4000, 2))).epsilon < 0.2
    assert epsilon_lower(np.zeros((4000, 1)), np.ones((4000, 1))).epsilon > 5


def test_delta_is_taken_off() -> None:
    rng = np.random.default_rng(6)
    a, b = (rng.random((20_000, 1)) < 0.05).astype(float), np.zeros((20_000, 1))
    assert epsilon_lower(a, b, learn=False).epsilon > 3
    assert epsilon_lower(a, b, delta=0.06, learn=False).epsilon < 0.1


def test_low_bits() -> None:
    assert low_bits(np.array([1.0, 2.0, 3.0, 0.5, 0.0, -6.0, np.inf])).tolist() == [0, 1, 0, -1, 0, 1, 2000]
    assert low_bits(np.array([0.1]))[0] == -55
