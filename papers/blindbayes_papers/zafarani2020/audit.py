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
import numpy.typing as npt

from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.audit.empirical import Check, Claim
from blindbayes.dp.audit.lower_bounds import Bound, epsilon_lower
from blindbayes.dp.noise.mechanisms import make
from blindbayes.errors import LocalProtocolError
from blindbayes_papers.mechanism_audit import DRAWS as GLOBAL_DRAWS
from blindbayes_papers.mechanism_audit import audit_mechanism, control_check, loss_check
from blindbayes_papers.sensitivity_audit import audit_sensitivity
from blindbayes_papers.zafarani2020.smooth import ParameterPlan, plan_parameters

PER_PARAMETER: tuple[Literal["smooth", "global"], ...] = ("smooth", "global")
SMALL_BOOK = Codebook("y", ("a",), (Categorical("u", ("p", "q")), Numeric("x", 0, 10, 1.0)), max_rows=1000)
DRAWS = 6000
ENOUGH_DRAWS = {"smooth": DRAWS, "global": GLOBAL_DRAWS}  # by which the controls are refuted
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
        less = control_factor(own, LISTS["second number"], which, claim)
        weak = partial(attack_moment, own, LISTS["second number"], which, claim, coins, draws, less)
        yield control_check(f"{label}: {moment}, control with 1/{less} of the noise is refuted", claim, weak)


def attack_moment(
    plan: ParameterPlan, lists: tuple[list[int], list[int]], which: int, claim: Claim, coins: Coins, draws: int, less: int = 1
) -> Bound:
    """A lower bound on epsilon of a noisy mean (0) or variance (1) of two lists of numbers."""
    laws = _laws(plan, lists, which, claim, less)
    outputs = []
    for value, scale in laws:
        samples = plan.noisy(value, scale, coins, draws)
        first, second = (_log_density(plan, samples, law) for law in laws)
        outputs.append(np.column_stack([samples, first - second]))
    return epsilon_lower(*outputs, names=["output", "likelihood ratio"], learn=False)


def control_factor(plan: ParameterPlan, lists: tuple[list[int], list[int]], which: int, claim: Claim) -> int:
    """The smallest power of two by which the noise must shrink for a control that the audit has to refute.

    How far the noise exceeds what these lists need depends on the moment and on gamma. The control's likelihood ratio reaches
    twice the claim on an event that one list gives in one draw of ten, so that some thousand draws certify it.
    """
    for less in (1 << step for step in range(1, 20)):
        laws = _laws(plan, lists, which, claim, less)
        spread, ends = max(scale for _, scale in laws), [value for value, _ in laws]
        points = np.linspace(min(ends) - 200 * spread, max(ends) + 200 * spread, 400_001)
        first, second = (_log_density(plan, points, law) for law in laws)
        for one, other in ((first, second), (second, first)):
            order = np.argsort(other - one)
            chances = np.exp(one[order])
            at = int(np.searchsorted(np.cumsum(chances) / chances.sum(), 0.1))
            if (one - other)[order[at]] > 2 * claim.epsilon:
                return less
    raise LocalProtocolError("no control of this audit can be refuted")


def _laws(
    plan: ParameterPlan, lists: tuple[list[int], list[int]], which: int, claim: Claim, less: int
) -> list[tuple[float, float]]:
    """Value and scale of a moment of each list, with `less` times too little noise."""
    feature = next(each for each in plan.codebook.features if isinstance(each, Numeric))
    codes = [np.array(numbers, dtype=np.int64) - 10 + feature.code_high for numbers in lists]
    laws = [plan.moments(feature, each, claim.epsilon)[which] for each in codes]
    return [(value, scale / less) for value, scale in laws]


def _log_density(plan: ParameterPlan, points: npt.NDArray[np.float64], law: tuple[float, float]) -> npt.NDArray[np.float64]:
    """The logarithm of the density, but for a constant that both laws share."""
    middle, spread = law
    logs: npt.NDArray[np.float64] = -np.log(spread) - np.log1p(np.abs((points - middle) / spread) ** float(plan.gamma))
    return logs


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
