"""Private fits parameter by parameter, as an estimator: the paper's `smooth`, and `global`, both corrected.

SmoothNaiveBayes(codebook, epsilon=1.0, ledger="ledger.jsonl").fit(table)
SmoothNaiveBayes(codebook, epsilon=1.0, mechanism="global", allocation=(3, 1)).fit(table)
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.data.sources import is_source
from blindbayes.data.table import read_block
from blindbayes.dp.accounting.stage import Stage
from blindbayes.dp.accounting.statement import PrivacyStatement, Setting
from blindbayes.dp.release.private_fit import ALONE, data_domain, persons_domain
from blindbayes.errors import ConfigError
from blindbayes.naive_bayes.inputs import require_alone
from blindbayes.naive_bayes.private import PrivateNaiveBayes
from blindbayes_papers.zafarani2020 import heavy_tails
from blindbayes_papers.zafarani2020.smooth import NO_GAMMA, ParameterPlan, plan_parameters


class SmoothNaiveBayes(PrivateNaiveBayes):
    """Naive Bayes whose every parameter is released with noise of its own.

    Parameters
    ----------
    codebook, epsilon, ledger, purpose, score_epsilon, rows_per_person, tuning_note, alpha, priors, class_weight, extra_columns
        As in `PrivateNaiveBayes`.
    mechanism : str, default="smooth"
        "smooth" (smooth sensitivity, heavy-tailed noise) or "global" (global sensitivity, discrete Laplace noise).
    allocation : pair of int, default=None
        Weights of a numeric and of a categorical feature in the budget, by default (2, 1).
    gamma : float, default=None
        With "smooth": the exponent of the heavy-tailed noise, by default 2 (Cauchy).
    """

    def __init__(
        self,
        codebook: Codebook,
        *,
        epsilon: float,
        mechanism: Literal["smooth", "global"] = "smooth",
        allocation: tuple[int, int] | None = None,
        gamma: float | None = None,
        ledger: str | os.PathLike[str] | None = None,
        purpose: str | None = None,
        score_epsilon: float | None = None,
        rows_per_person: int | None = None,
        tuning_note: str | None = None,
        alpha: float = 1.0,
        priors: Mapping[Any, float] | Sequence[float] | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        extra_columns: str = "refuse",
    ) -> None:
        super().__init__(
            codebook,
            epsilon=epsilon,
            ledger=ledger,
            purpose=purpose,
            score_epsilon=score_epsilon,
            rows_per_person=rows_per_person,
            tuning_note=tuning_note,
            alpha=alpha,
            priors=priors,
            class_weight=class_weight,
            extra_columns=extra_columns,
        )
        self.mechanism = mechanism
        self.allocation = allocation
        self.gamma = gamma

    def _fit(self, X: Any, y: Any) -> Self:
        """Release every parameter: the plan and its price from public facts, then the rows, the ledger, the noise."""
        codebook = self._declared_codebook(X)
        plan = self._plan(codebook)
        if is_source(X):
            require_alone(y, None)
            bound = self._contribution_bound(codebook)
            rows = read_block(X, codebook, lenient=True, extra_columns=self.extra_columns, bound=bound)
            self._adopt_source(codebook)
        else:
            rows = self._private_block(X, y, codebook)
        spent = self._charge(plan, codebook)
        parameters = plan.fit(rows, Coins.system(), alpha=self.alpha)
        guarantee = statement(plan, spent, self.tuning_note, self._bounded(X))
        self.privacy_ = {**plan.describe(), "statement": guarantee.to_dict()}
        return self._publish(parameters, None)

    def _plan(self, codebook: Codebook) -> ParameterPlan:
        if self.mechanism not in ("smooth", "global"):
            raise ConfigError("mechanism is smooth or global")
        if self.epsilon is None:
            raise ConfigError("these mechanisms are priced in epsilon: pass one")
        if self.gamma is not None and self.mechanism == "global":
            raise ConfigError(NO_GAMMA)
        weights = (2, 1) if self.allocation is None else tuple(self.allocation)
        if len(weights) != 2 or not all(type(weight) is int and weight >= 1 for weight in weights):
            raise ConfigError("allocation is two whole numbers: the weight of a numeric feature and of a categorical one")
        return plan_parameters(
            codebook,
            epsilon=self.epsilon,
            mechanism="smooth" if self.mechanism == "smooth" else "global",
            allocation=(weights[0], weights[1]),
            gamma=2 if self.gamma is None else self.gamma,
            rows_per_unit=self._unit_rows,
        )


def statement(plan: ParameterPlan, composition: str | None, tuning: str | None, bounded: bool | None) -> PrivacyStatement:
    """Return the promise of a release; `bounded` says whether the rows of a person were (None: the unit is a record)."""
    smooth = plan.name == "smooth"
    number, table = (float(each) for each in plan.budgets)
    sensitivity = (
        "One row changes each parameter by no more than a bound, and noise is wide enough to hide that. Means, variances and "
        "the bounds on their sensitivity are computed in floating point, with a margin above its rounding, and lie on a public "
        f"grid before exact noise is added. Each mean and variance has epsilon {number:g} of its own, by a "
        f"{'smooth bound on its local' if smooth else 'bound on its global'} sensitivity; each histogram "
        f"has epsilon {table:g}, one record moves one cell by 1."
    )
    return PrivacyStatement.for_release(
        plan,
        sensitivity=sensitivity,
        codebook=plan.codebook.sha256,
        data_domain=data_domain(plan.codebook) + persons_domain(plan.rows_per_unit, bounded),
        tuning=tuning,
        setting=Setting(composition=composition or ALONE, drawn_in=(type(plan).__module__, heavy_tails.__name__)),
        stages=[
            Stage.for_release("every parameter", plan.name, plan.price, plan.sampler, floating_point=smooth, timing=smooth)
        ],
    )
