"""The audit of releases parameter by parameter: `smooth` and `global`.

Of `smooth`, the mean and the variance of one class are drawn many times for lists that differ by one number, each with its
own scale of noise, and distinguished by the likelihood ratio of the two laws: each must keep the epsilon that it was given, and
these must add up to the price. `global` is discrete Laplace noise whose blocks have different shares: its whole vector is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Literal

import numpy as np

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.audit.empirical import Check, Claim, audit_mechanism, audit_sensitivity, control_check, loss_check
from blindbayes.dp.audit.lower_bounds import Bound, epsilon_lower
from blindbayes.dp.noise.mechanisms import make
from blindbayes_papers.zafarani2020.smooth import ParameterPlan, plan_parameters

PER_PARAMETER: tuple[Literal["smooth", "global"], ...] = ("smooth", "global")
SMALL_BOOK = Codebook("y", ("a",), (Categorical("u", ("p", "q")), Numeric("x", 0, 10, 1.0)), max_rows=1000)
DRAWS = 6000
LESS_NOISE = {"mean": 4, "variance": 2}
"""Of the controls: one number more or less reaches half of what the bound of a mean allows for."""
LISTS = {"last number": ([], [10]), "second number": ([0], [0, 10]), "number at the far end": ([0] * 12, [0] * 12 + [10])}


def audit_parameters(plan: ParameterPlan, coins: Coins, draws: int) -> Iterator[Check]:
    """All parts of one such plan."""
    label = f"{plan.mechanism}, allocation {plan.allocation[0]} to {plan.allocation[1]}"
    number, table = plan.budgets
    kinds = [isinstance(feature, Numeric) and feature.bins is None for feature in plan.codebook.features]
    spent = (2 * number * sum(kinds) + table * (len(kinds) - sum(kinds) + 1)) * plan.rows_per_unit
    spending = f"{float(spent):.9g} spent of {float(plan.epsilon):g}"
    yield Check("sensitivity", f"{label}: epsilons", spent <= plan.epsilon, spending, float(spent), float(plan.epsilon))
    if plan.mechanism == "global":
        yield from audit_sensitivity(plan.query)
        yield from audit_mechanism(make("discrete_laplace", plan.query.sensitivity, plan.epsilon), coins, draws, label)
        return
    draws = min(draws, DRAWS)
    own = replace(plan, epsilon=plan.epsilon * plan.epsilon / number)  # so that one parameter has all that is claimed
    claim = Claim(float(own.budgets[0]), 0.0)
    for which, moment in enumerate(("mean", "variance")):
        for name, lists in LISTS.items():
            look = partial(attack_moment, own, lists, which, claim, coins, draws)
            yield loss_check(f"{label}: {moment}, {name}", claim, look)
        less = LESS_NOISE[moment]
        weak = partial(attack_moment, own, LISTS["second number"], which, claim, coins, draws, less)
        yield control_check(f"{label}: {moment}, control with 1/{less} of the noise is refuted", claim, weak)


def attack_moment(
    plan: ParameterPlan, lists: tuple[list[int], list[int]], which: int, claim: Claim, coins: Coins, draws: int, less: int = 1
) -> Bound:
    """A lower bound on epsilon of a noisy mean (0) or variance (1) of two lists of numbers."""
    feature = next(each for each in plan.codebook.features if isinstance(each, Numeric))
    codes = [np.array(numbers, dtype=np.int64) - 10 + feature.code_high for numbers in lists]
    laws = [plan.moments(feature, each, claim.epsilon)[which] for each in codes]
    laws = [(value, scale / less) for value, scale in laws]
    outputs = []
    for value, scale in laws:
        samples = plan.noisy(value, scale, coins, draws)
        first, second = (
            -np.log(spread) - np.log1p(np.abs((samples - middle) / spread) ** float(plan.gamma)) for middle, spread in laws
        )
        outputs.append(np.column_stack([samples, first - second]))
    return epsilon_lower(*outputs, names=["output", "likelihood ratio"], learn=False)


def audit_per_parameter(
    name: Literal["smooth", "global"],
    coins: Coins,
    *,
    epsilon: Fraction,
    draws: int,
    codebook: Codebook | None = None,
    allocation: tuple[int, int] = (2, 1),
    gamma: float = 2,
) -> Iterator[Check]:
    """One of the two mechanisms on a small codebook, and the sensitivity of `global` on the one given."""
    plan = plan_parameters(SMALL_BOOK, epsilon=epsilon, mechanism=name, allocation=allocation, gamma=gamma)
    yield from audit_parameters(plan, coins, draws)
    if codebook is not None and name == "global":
        yield from audit_sensitivity(replace(plan, codebook=codebook).query)
