"""The whole audit: every mechanism, every stage, and every form of release."""

from __future__ import annotations

from collections.abc import Sequence

from audits.columns import audit_columns
from audits.distributed import audit_distributed
from audits.fits import audit_samplers
from audits.releases import (
    DRAWS,
    HARD_BOOK,
    SHORT_BOOK,
    TEXT_BOOK,
    PlannedTables,
    audit_calibration,
    audit_choices,
    audit_plan_loss,
    audit_plan_sensitivity,
    audit_score,
    audit_stages,
)
from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.dp.accounting.sensitivity import Sensitivity, SensitivityBlock
from blindbayes.dp.audit.empirical import Report
from blindbayes.dp.noise.exact_events import Number, budget_floor
from blindbayes.dp.noise.knorm_histograms import Centred
from blindbayes.dp.noise.mechanisms import MECHANISMS, make
from blindbayes.dp.release.calibration import AnswerTable
from blindbayes.dp.release.planner import JOINT_MECHANISMS, plan_release
from blindbayes.dp.release.release_plan import CENTRED, WITH_DELTA
from blindbayes_papers.mechanism_audit import DRAWS as MECHANISM_DRAWS
from blindbayes_papers.mechanism_audit import audit_mechanism
from blindbayes_papers.sensitivity_audit import audit_sensitivity

HARD_SHAPES: dict[str, Sensitivity] = {
    "one count": Sensitivity((SensitivityBlock("n", 1),)),
    "two counts in two tables": Sensitivity((SensitivityBlock("a", 1), SensitivityBlock("b", 1))),
    "one table of three cells": Sensitivity((SensitivityBlock("a", 3),)),
    "count and sum of bound 100": Sensitivity((SensitivityBlock("n", 1), SensitivityBlock("sum", 1, 100))),
}


def audit(
    coins: Coins,
    *,
    epsilon: Number = 1,
    delta: float = 1e-6,
    codebook: Codebook | None = None,
    mechanisms: Sequence[str] = JOINT_MECHANISMS,
    draws: int = MECHANISM_DRAWS,
) -> Report:
    """All four parts: samplers; mechanisms on hard shapes; releases on hard codebooks, and the one given, if any."""
    claimed = budget_floor(epsilon)
    report = Report(f"{', '.join(mechanisms)} at epsilon {float(claimed):g}")
    report.checks += audit_samplers(coins)
    for name in (each for each in mechanisms if each in JOINT_MECHANISMS):
        gaussian = name in WITH_DELTA
        for where, shape in HARD_SHAPES.items() if name in MECHANISMS else ():
            report.checks += audit_mechanism(make(name, shape, claimed, delta if gaussian else 0.0), coins, draws, where)
        plan = plan_release(HARD_BOOK, epsilon=claimed, delta=delta, mechanism=name, rows=10**6)
        report.checks += audit_plan_sensitivity(plan)
        if isinstance(plan.noise, Centred):  # other noise is that of the hard shapes above
            report.checks += audit_plan_loss(plan, coins, draws if gaussian else min(draws, DRAWS))
        if name not in CENTRED:  # which have no form for text
            plan = plan_release(TEXT_BOOK, epsilon=claimed, delta=delta, mechanism=name, rows=10**6)
            report.checks += audit_plan_sensitivity(plan, "text")
            if not gaussian:  # whose zCDP bound leaves room: a control with less noise would not be refuted
                short = plan_release(SHORT_BOOK, epsilon=claimed, mechanism=name, rows=10**6)
                report.checks += audit_plan_loss(short, coins, min(draws, DRAWS), "text")
        if codebook is not None and not (name in CENTRED and codebook.texts):
            own = plan_release(codebook, epsilon=claimed, delta=delta, mechanism=name)
            report.checks += audit_plan_sensitivity(own, "codebook given")
    if "knorm" in mechanisms:
        report.checks += audit_stages(coins, claimed, min(draws, DRAWS))
        report.checks += audit_choices(coins, claimed, min(draws, DRAWS))
        report.checks += audit_calibration(coins, claimed, min(draws, DRAWS))
        report.checks += audit_calibration(coins, claimed, min(draws, DRAWS), AnswerTable)
        report.checks += audit_score(coins, claimed, min(draws, DRAWS))
        report.checks += audit_columns(coins, epsilon=claimed, count=min(draws, DRAWS))
        report.checks += audit_distributed(coins, epsilon=claimed, delta=delta, draws=draws)
    for book in (TEXT_BOOK, codebook):
        if book is not None:
            plan = plan_release(book, epsilon=claimed, mechanism="discrete_laplace", rows=10**6)
            report.checks += audit_sensitivity(PlannedTables(plan))
    return report
