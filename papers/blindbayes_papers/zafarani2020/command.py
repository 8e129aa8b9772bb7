"""`blindbayes train-smooth`: fit a model on one table, parameter by parameter."""

from __future__ import annotations

from typing import Any

import click

from blindbayes.cli.commands import train

_PAGE = """Fit a model on one table as `train` does, with noise on each parameter (Zafarani and Clifton 2020, corrected).

`train --epsilon` releases all statistics together, with far less noise: this one is for comparison.

\b
Example:
  blindbayes train-smooth visits.parquet --codebook codebook.toml --out model.json --epsilon 1
  blindbayes train-smooth visits.parquet --codebook codebook.toml --release release --title T --epsilon 1 --mechanism global
"""
_TRAIN_ONLY = ("delta", "expected_rows")  # which this mechanism has otherwise, or not at all


def _run(**given: Any) -> None:
    from blindbayes_papers.zafarani2020.estimator import SmoothNaiveBayes

    train.train(SmoothNaiveBayes, given)


command = click.Command(
    "train-smooth",
    callback=_run,
    params=[
        *(each for each in train.command.params if each.name not in _TRAIN_ONLY),
        click.Option(
            ["--mechanism"],
            type=click.Choice(["smooth", "global"]),
            default="smooth",
            show_default=True,
            help="The paper's, or global sensitivity.",
        ),
        click.Option(
            ["--allocation"], type=(int, int), metavar="NUMERIC CATEGORICAL", help="Their weights in the budget [2 1]."
        ),
        click.Option(["--gamma"], type=float, help="Of smooth: the exponent of its noise [2]."),
    ],
    help=_PAGE,
    short_help="Fit a model with noise on each parameter, as Zafarani and Clifton 2020, corrected.",
)
