"""`blindbayes plan-smooth`: forecast the accuracy of releases parameter by parameter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import numpy as np
from rich.table import Table

from blindbayes.cli import print_json
from blindbayes.cli.options import CODEBOOK, IGNORE_EXTRA, JSON, open_data, table_options
from blindbayes.cli.screen import Screen, progress_bar
from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.data.table import read_block
from blindbayes.dp.release.forecast import EPSILONS, TEST_SHARE, synthetic_proxy
from blindbayes.errors import ConfigError
from blindbayes.statistics import CodedRows, Layout, count_block
from blindbayes.statistics.parameters import estimate
from blindbayes_papers.zafarani2020.smooth import ParameterPlan, plan_parameters

MECHANISMS = ("smooth", "global")


@click.command("plan-smooth")
@CODEBOOK
@click.option("--proxy", help="PUBLIC table that resembles the private one, with its class column.")
@click.option("--synthetic", is_flag=True, help="Use a made-up table, which only shows how the noise scales.")
@click.option("--rows", type=click.IntRange(min=20), help="Rows of the made-up table [2000, or max_rows].")
@click.option("--epsilon", "epsilons", type=float, multiple=True, help="Epsilon to try; may be repeated.")
@click.option("--allocation", type=(int, int), metavar="NUMERIC CATEGORICAL", default=(2, 1), help="Weights in the budget.")
@click.option("--gamma", type=float, default=2.0, show_default=True, help="Of smooth: the exponent of its noise.")
@click.option("--repetitions", type=click.IntRange(min=1), default=10, show_default=True, help="Releases per epsilon.")
@IGNORE_EXTRA
@table_options
@JSON
def command(codebook_path: str, as_json: bool, **given: Any) -> None:
    """Forecast the accuracy of `train-smooth` against epsilon, for smooth and for global sensitivity.

    The forecast splits a public or made-up table, releases every parameter from one part and scores the other. `plan` does the
    same for `train --epsilon`.

    Example:
      blindbayes plan-smooth --codebook codebook.toml --proxy public_sample.csv --epsilon 1 --epsilon 4
      blindbayes plan-smooth --codebook codebook.toml --synthetic --gamma 4 --allocation 3 1
    """
    names = ("proxy", "synthetic", "rows", "epsilons", "allocation", "gamma", "repetitions")
    proxy, synthetic, rows, epsilons, allocation, gamma, repetitions = (given.pop(name) for name in names)
    extra_columns = "ignore" if given.pop("ignore_extra") else "refuse"
    if (proxy is not None) == synthetic:
        raise ConfigError("choose one: --proxy with a public table, or --synthetic")
    codebook = Codebook.from_toml(codebook_path)
    if synthetic:
        block = synthetic_proxy(codebook, rows or min(2000, codebook.max_rows), Coins.seeded(bytes(32)))
    else:
        with open_data(proxy, **given) as source:
            block = read_block(source, codebook, extra_columns=extra_columns)
    result = forecast(codebook, block, sorted(set(epsilons)) or EPSILONS, allocation, gamma, repetitions)
    if as_json:
        print_json(result)
        return
    table = Table(title=f"Accuracy forecast on a {'synthetic' if synthetic else 'public'} table of {block.rows} rows")
    for heading in ("epsilon", *MECHANISMS):
        table.add_column(heading)
    for line in result["lines"]:
        table.add_row(f"{line['epsilon']:g}", *(f"{line[name]:.3f}" for name in MECHANISMS))
    screen = Screen()
    screen.print(table)
    screen.line(f"not private {result['not_private']:.3f}, majority class {result['majority']:.3f}")


def forecast(
    codebook: Codebook,
    block: CodedRows,
    epsilons: Sequence[float],
    allocation: tuple[int, int],
    gamma: float,
    repetitions: int,
) -> dict[str, Any]:
    """Return mean accuracies of both mechanisms over random splits, and those without privacy."""
    if block.rows < 20:
        raise ConfigError("a proxy needs at least twenty rows with their class")
    plans: list[dict[str, ParameterPlan]] = [
        {
            "smooth": plan_parameters(codebook, epsilon=epsilon, allocation=allocation, gamma=gamma),
            "global": plan_parameters(codebook, epsilon=epsilon, mechanism="global", allocation=allocation),
        }
        for epsilon in epsilons
    ]
    coins, right = Coins.system(), np.zeros((repetitions, len(plans), len(MECHANISMS)))
    plain, flat = np.zeros(repetitions), np.zeros(repetitions)
    with progress_bar("plan-smooth") as progress:
        for turn in range(repetitions):
            progress(turn, repetitions, "releases of every epsilon")
            order, cut = np.argsort(coins.words(block.rows)), round(TEST_SHARE * block.rows)
            test, train = block.take(order[:cut]), block.take(order[cut:])
            exact = count_block(Layout(codebook), train)
            plain[turn] = (estimate(exact).joint_log_likelihood(test).argmax(axis=1) == test.known_labels).mean()
            flat[turn] = (test.known_labels == int(np.argmax(exact.class_counts))).mean()
            for at, pair in enumerate(plans):
                for which, name in enumerate(MECHANISMS):
                    chosen = pair[name].fit(train, coins).joint_log_likelihood(test).argmax(axis=1)
                    right[turn, at, which] = (chosen == test.known_labels).mean()
    means = right.mean(axis=0)
    lines = [
        {"epsilon": float(epsilon), **dict(zip(MECHANISMS, map(float, mean), strict=True))}
        for epsilon, mean in zip(epsilons, means, strict=True)
    ]
    return {"lines": lines, "not_private": float(plain.mean()), "majority": float(flat.mean())}
