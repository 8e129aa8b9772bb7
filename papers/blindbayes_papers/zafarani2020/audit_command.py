"""`blindbayes audit-smooth`: try to refute the privacy claim of releases parameter by parameter."""

from __future__ import annotations

from typing import Literal

import click

from blindbayes.cli.commands.audit import show_report
from blindbayes.cli.options import JSON
from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.dp.audit.empirical import Report
from blindbayes.dp.noise.exact_events import budget_floor
from blindbayes.errors import ConfigError
from blindbayes_papers.zafarani2020.audit import ENOUGH_DRAWS, PER_PARAMETER, audit_per_parameter
from blindbayes_papers.zafarani2020.smooth import NO_GAMMA


@click.command("audit-smooth")
@click.option("--mechanism", type=click.Choice(PER_PARAMETER), default="smooth", show_default=True, help="What is audited.")
@click.option("--epsilon", default="1", show_default=True, help="Claimed epsilon.")
@click.option(
    "--allocation", type=(int, int), metavar="NUMERIC CATEGORICAL", default=(2, 1), help="Weights in the budget [2 1]."
)
@click.option("--gamma", type=float, help="Of smooth: the exponent of its noise [2].")
@click.option("--codebook", type=click.Path(dir_okay=False), help="Of global: enumerate the sensitivity of this codebook too.")
@click.option("--draws", type=click.IntRange(min=600), help="Samples per list or table [smooth 6000, global 150000].")
@JSON
def command(
    mechanism: Literal["smooth", "global"],
    epsilon: str,
    allocation: tuple[int, int],
    gamma: float | None,
    codebook: str | None,
    draws: int | None,
    as_json: bool,
) -> None:
    """Try to refute the epsilon of `train-smooth` on lists of numbers that differ by one.

    Each audit has controls with too little noise, which it must refute. The exit code is 4 if the claim is refuted, or if a
    control is not.

    Example:
      blindbayes audit-smooth --mechanism smooth --gamma 4 --allocation 3 1
      blindbayes audit-smooth --mechanism global --codebook codebook.toml
    """
    if gamma is not None and mechanism == "global":
        raise ConfigError(NO_GAMMA)
    gamma = 2.0 if gamma is None else gamma
    claimed, book = budget_floor(epsilon), None if codebook is None else Codebook.from_toml(codebook)
    noise = f", gamma {gamma:g}" if mechanism == "smooth" else ""
    report = Report(f"{mechanism} at epsilon {float(claimed):g}, allocation {allocation[0]} to {allocation[1]}{noise}")
    report.checks += audit_per_parameter(
        mechanism,
        Coins.system(),
        epsilon=claimed,
        draws=draws or ENOUGH_DRAWS[mechanism],
        codebook=book,
        allocation=allocation,
        gamma=gamma,
    )
    show_report(report, as_json)
