"""Sensitivities by enumeration: no pair of small neighbouring tables moves the released integers by more than is claimed."""

from __future__ import annotations

from fractions import Fraction

import pytest

from audits.releases import PlannedTables
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.dp.accounting.sensitivity import Sensitivity, SensitivityBlock
from blindbayes.dp.release.planner import plan_release
from blindbayes.errors import ConfigError
from blindbayes_papers.sensitivity_audit import audit_sensitivity

CODEBOOKS = {
    "histograms": Codebook("y", ("a", "b"), (Categorical("u", ("0", "1")), Categorical("v", ("0", "1", "2"))), max_rows=100),
    "optional histograms": Codebook(
        "y", ("a", "b"), (Categorical("u", ("0", "1"), optional=True), Categorical("v", ("0", "1"))), 100
    ),
    "bins": Codebook("y", ("a", "b"), (Numeric("x", 0, 3, bins=2), Categorical("u", ("0", "1"))), max_rows=100),
    "sums": Codebook("y", ("a", "b"), (Numeric("x", 0, 3),), max_rows=100),
    "sums far from zero": Codebook("y", ("a", "b"), (Numeric("x", 1000, 1002),), max_rows=100),
    "optional sums": Codebook("y", ("a", "b"), (Numeric("x", -1, 1, optional=True),), max_rows=100),
    "mixed": Codebook("y", ("a", "b"), (Numeric("x", 0, 2), Categorical("u", ("0", "1"), optional=True)), max_rows=100),
    "constant": Codebook("y", ("a", "b"), (Numeric("x", 5, 5), Categorical("u", ("0", "1"))), max_rows=100),
}


@pytest.mark.parametrize("name", CODEBOOKS)
@pytest.mark.parametrize("rows", [30, 10**9])
def test_every_pair_of_small_neighbours_stays_within_the_bounds(name: str, rows: int) -> None:
    plan = plan_release(CODEBOOKS[name], epsilon=1, mechanism="discrete_laplace", rows=rows)
    checks = list(audit_sensitivity(PlannedTables(plan)))
    assert all(check.passed for check in checks)
    assert all(check.measured == check.claimed for check in checks)  # and no bound is larger than it need be


@pytest.mark.parametrize(
    "bad",
    [lambda: SensitivityBlock("b", 0), lambda: SensitivityBlock("b", 1, 0), lambda: SensitivityBlock("b", 1, 1, Fraction(0))],
)
def test_empty_blocks_are_refused(bad: object) -> None:
    with pytest.raises(ConfigError):
        bad()  # type: ignore[operator]
    with pytest.raises(ConfigError):
        Sensitivity(())
    with pytest.raises(ConfigError):
        Sensitivity((SensitivityBlock("b", 1),), rows_per_unit=0)
