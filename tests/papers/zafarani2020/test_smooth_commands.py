"""plan-smooth and audit-smooth: forecasts of both mechanisms, and audits that end with a verdict for every gamma."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import click
import pytest

from blindbayes.cli import root
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.coins import Coins
from blindbayes.dp.audit.empirical import Report
from blindbayes_papers.zafarani2020.audit import audit_per_parameter
from support.forked import command


@pytest.mark.parametrize(("gamma", "allocation"), [(2, (2, 1)), (3, (1, 2)), (4, (3, 1)), (6, (1, 1))])
def test_the_audit_ends_with_a_verdict_whatever_gamma_is(gamma: int, allocation: tuple[int, int]) -> None:
    """Each attack is wrong with chance 1/1000, and the coins are fixed; the controls are refuted, so the audit is not blind."""
    report = Report("smooth")
    coins = Coins.seeded(bytes([gamma] * 32))
    report.checks += audit_per_parameter("smooth", coins, epsilon=Fraction(1), draws=3000, allocation=allocation, gamma=gamma)
    assert report.verdict == "not refuted"
    assert sum(check.control for check in report.checks) == 2


def test_the_examples_of_the_help_end_with_a_verdict(tmp_path: Path) -> None:
    done = command("audit-smooth", "--mechanism", "smooth", "--gamma", 4, "--allocation", 3, 1, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"] == "not refuted"


def test_gamma_is_refused_for_global_whose_noise_has_none() -> None:
    done = command("audit-smooth", "--mechanism", "global", "--gamma", 3)
    assert done.returncode == 2
    assert "gamma is the exponent of the noise of smooth" in done.stderr


def test_plan_knows_smooth_and_global(tmp_path: Path) -> None:
    book = Codebook("y", ("a", "b"), (Categorical("v", ("0", "1", "2")), Numeric("u", 0, 9, 0.5)), max_rows=5000)
    book.to_toml(tmp_path / "codebook.toml")
    words = ("plan-smooth", "--codebook", tmp_path / "codebook.toml", "--synthetic", "--repetitions", 3)
    done = command(*words, "--epsilon", 0.01, "--epsilon", 50, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [line["epsilon"] for line in found["lines"]] == [0.01, 50]
    for name in ("smooth", "global"):  # much noise, hardly any
        assert found["lines"][0][name] < found["lines"][1][name]
        assert found["lines"][1][name] > found["not_private"] - 0.05
    shown = command(*words, "--epsilon", 1, "--gamma", 4, "--allocation", 3, 1)
    assert "smooth" in shown.stdout
    assert command("plan-smooth", "--codebook", tmp_path / "codebook.toml").returncode == 2


@pytest.mark.parametrize("name", ["audit", "plan", "train"])
def test_the_help_of_a_command_names_its_added_relative(name: str) -> None:
    context = click.Context(root)
    command = root.get_command(context, name)
    assert command is not None
    assert command.epilog == f"See also: {name}-smooth."
    other = root.get_command(context, "drift")
    assert other is not None
    assert not other.epilog
