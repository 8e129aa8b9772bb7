"""Formulas of the specifications."""

from __future__ import annotations

import pytest

from blindbayes.errors import ConfigError
from blindbayes.protocols.formula import value_of
from support.sums import costs


@pytest.mark.parametrize(
    ("formula", "value"),
    [("2*q - n - 1", 2), ("q - 1 if n <= 64 and not k else 7", 3), ("max(-(-n // 3), 1)", 2), ("int(0.1*n)", 0), ("-q", -4)],
)
def test_formulas_are_arithmetic(formula: str, value: int) -> None:
    assert value_of(formula, {"n": 5, "q": 4, "k": 0}) == value


@pytest.mark.parametrize("formula", ["__import__('os')", "n.real", "[1][0]", "n ** 9", "'a'", "missing", "lambda: 1", "1 +"])
def test_nothing_else_is_a_formula(formula: str) -> None:
    with pytest.raises(ConfigError, match=r"SPEC\.md"):
        value_of(formula, {"n": 5})


def test_a_formula_takes_arithmetic_only() -> None:
    spec = {"rounds": "__import__('os')", "messages": "1"}
    with pytest.raises(ConfigError):
        costs(spec, 3, 1)
