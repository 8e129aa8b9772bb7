"""`blindbayes train`: fit a model on one table."""

from __future__ import annotations

import os
from pathlib import Path

import click

from blindbayes.cli import print_json
from blindbayes.codebook import Codebook
from blindbayes.errors import ConfigError


@click.command()
@click.argument("data")
@click.option("--codebook", "codebook_path", required=True, type=click.Path(dir_okay=False), help="The codebook file.")
@click.option("--out", required=True, type=click.Path(dir_okay=False), help="Where the model file goes.")
@click.option("--alpha", type=float, default=1.0, show_default=True, help="Laplace smoothing.")
@click.option(
    "--var-smoothing", type=float, default=1e-9, show_default=True, help="Share of the largest variance added to all."
)
@click.option("--epsilon", type=float, help="Privacy loss of the release; without it the model is not private.")
@click.option("--delta", type=float, default=0.0, show_default=True, help="Second privacy parameter; 0 for pure privacy.")
@click.option(
    "--mechanism",
    default="auto",
    show_default=True,
    help="With epsilon: auto, knorm, discrete_laplace or discrete_gaussian (which needs delta); smooth or global, the "
    "literature's release parameter by parameter.",
)
@click.option("--expected-rows", type=int, help="With epsilon: about how many rows the table has, as publicly known.")
@click.option(
    "--rows-per-person",
    type=int,
    help="With epsilon: so many rows of a person count, by the codebook's identifier, and are protected together.",
)
@click.option(
    "--allocation", type=(int, int), metavar="NUMERIC CATEGORICAL", help="Of smooth and global: weights in the budget [2 1]."
)
@click.option("--gamma", type=float, help="Of smooth: the exponent of its noise [2].")
@click.option("--tuning", help="How settings were chosen, for the statement; by default it says: assumed, not checked.")
@click.option("--ledger", type=click.Path(dir_okay=False), help="Ledger file to charge before the release.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    data: str,
    codebook_path: str,
    out: str,
    alpha: float,
    var_smoothing: float,
    epsilon: float | None,
    delta: float,
    mechanism: str,
    expected_rows: int | None,
    rows_per_person: int | None,
    allocation: tuple[int, int] | None,
    gamma: float | None,
    tuning: str | None,
    ledger: str | None,
    as_json: bool,
) -> None:
    """Fit a model on one table (CSV or Parquet path, or database URL) and write the model file.

    \b
    Example:
      blindbayes train visits.parquet --codebook codebook.toml --out model.json
      blindbayes train visits.parquet --codebook codebook.toml --out model.json --epsilon 1 --ledger ledger.jsonl
    """
    from blindbayes.data.persons import require_identifier
    from blindbayes.estimators import NaiveBayes

    folder = Path(out).parent
    if not (folder.is_dir() and os.access(folder, os.W_OK)):  # before the ledger pays for a model that nobody could keep
        raise ConfigError(f"no file can be written in the folder {os.fspath(folder)!r}; make it, or choose another --out")
    codebook = Codebook.from_toml(codebook_path)
    if rows_per_person is not None:
        if epsilon is None:
            raise ConfigError("--rows-per-person says whom epsilon protects: pass --epsilon too")
        require_identifier(codebook)
    model = NaiveBayes(
        codebook,
        alpha=alpha,
        var_smoothing=var_smoothing,
        epsilon=epsilon,
        delta=delta,
        mechanism=mechanism,
        ledger=ledger,
        expected_rows=expected_rows,
        rows_per_person=rows_per_person,
        allocation=allocation,
        gamma=gamma,
        tuning=tuning,
    )
    model.fit(data)
    model.save(out)
    facts = {"model": out, "codebook": model.codebook_.sha256, "private": epsilon is not None}
    if as_json:
        print_json(facts)
    else:
        click.echo(f"model written to {out}; codebook {model.codebook_.sha256[:12]}")
