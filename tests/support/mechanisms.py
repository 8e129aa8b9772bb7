"""Private fits and sums by a named mechanism: people leave the choice to the plan."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from blindbayes import Codebook, PrivateNaiveBayes
from blindbayes.crypto.coins import Coins
from blindbayes.dp.distributed.noise_shares import DistributedNoise
from blindbayes.dp.noise.pld import skellam_variance
from blindbayes.dp.release import private_fit
from blindbayes.dp.release.planner import plan_release
from blindbayes.naive_bayes import private


def plan_by(mechanism: str | None, codebook: Codebook, **public: Any) -> private_fit.FitPlan:
    """Plan tables with noise of this mechanism, and no choice of a model after them; None plans as people do."""
    if mechanism is None:
        return private_fit.plan_fit(codebook, **public)
    with mock.patch.object(private_fit, "plan_release", partial(plan_release, mechanism=mechanism)):
        return private_fit.plan_fit(codebook, **{**public, "select_model": False})


def fit_by(mechanism: str | None, model: PrivateNaiveBayes, *data: Any) -> PrivateNaiveBayes:
    """Fit with noise of this mechanism, as `plan_by` plans it; None fits as people do."""
    if mechanism is None:
        return model.fit(*data)
    with mock.patch.object(private, "plan_fit", partial(plan_by, mechanism)):
        return model.fit(*data)


def noise_by(mechanism: str | None, *, delta: float = 0.0, **facts: Any) -> DistributedNoise:
    """Noise of this mechanism, though another may have less; None plans as sites do."""
    planned = DistributedNoise.plan(delta=0.0 if mechanism == "polya" else delta, **facts)
    if mechanism in (None, planned.mechanism):
        return planned
    variance = skellam_variance(planned.touched, planned.reach, float(planned.epsilon), delta)
    rounded = Fraction(math.ceil(variance * 2**24), 2**24)  # as `plan` rounds it
    return dataclasses.replace(planned, mechanism="skellam", delta=delta, variance=rounded)


def many_shares(noise: DistributedNoise, coins: Coins, size: int) -> npt.NDArray[np.int64]:
    """Return one party's noise for a number of cells with the plan's bound, which all cells share."""
    (bound,) = set(noise.bounds)
    return dataclasses.replace(noise, bounds=(bound,) * size).share(coins)
