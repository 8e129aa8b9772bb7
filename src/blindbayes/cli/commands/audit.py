"""`blindbayes audit`: try to refute a privacy claim."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from blindbayes.cli import print_json
from blindbayes.cli.options import JSON
from blindbayes.cli.screen import Screen, progress_bar
from blindbayes.codebook import Codebook
from blindbayes.dp.audit.empirical import Report, audit_estimator, worst_pairs
from blindbayes.dp.noise.exact_events import budget_floor
from blindbayes.errors import ConfigError, PrivacyError


@click.command(name="audit")
@click.option("--epsilon", default="1", show_default=True, help="Claimed epsilon.")
@click.option("--delta", default=1e-6, show_default=True, help="Claimed delta.")
@click.option("--codebook", required=True, type=click.Path(dir_okay=False), help="Codebook whose worst-case tables are tried.")
@click.option("--estimator", required=True, metavar="MODULE:FACTORY", help="Audit the estimator that FACTORY(epsilon) returns.")
@click.option(
    "--adjacency",
    type=click.Choice(["add or remove", "substitute"]),
    default="add or remove",
    show_default=True,
    help="Neighbouring relation of the claim.",
)
@click.option(
    "--draws",
    type=click.IntRange(min=200),
    default=2000,
    show_default=True,
    help="Fits per table, of which there are up to ten.",
)
@JSON
def command(
    epsilon: str,
    delta: float,
    codebook: str,
    estimator: str,
    adjacency: Any,
    draws: int,
    as_json: bool,
) -> None:
    """Try to refute the privacy claim of an estimator on worst-case neighbouring tables of a codebook.

    The exit code is 4 if the claim is refuted. (`make audit` in the repository audits our own mechanisms.)

    Example:
      blindbayes audit --estimator mypackage.models:make --codebook codebook.toml --epsilon 1 --delta 0
    """
    claimed, book = budget_floor(epsilon), Codebook.from_toml(codebook)
    factory = _factory(estimator)
    report = Report(f"{estimator} at epsilon {float(claimed):g}, {adjacency}")
    with progress_bar("audit") as progress:
        report.checks += audit_estimator(
            lambda: factory(float(claimed)),
            worst_pairs(book),
            epsilon=float(claimed),
            delta=delta,
            adjacency=adjacency,
            draws=draws,
            progress=progress,
        )
    show_report(report, as_json)


def show_report(report: Report, as_json: bool) -> None:
    """Print a report. Raise `PrivacyError` if the claim is refuted or the audit is blind."""
    if as_json:
        print_json(_finite(report.to_dict()))
    else:
        show(report)
    if report.verdict != "not refuted":
        failed = report.failures or report.blind_spots
        hint = "" if report.failures else "; raise --draws"
        raise PrivacyError(f"the claim is {report.verdict}: {len(failed)} check(s) failed, first {failed[0].name!r}{hint}")


def _factory(path: str) -> Callable[[float], Any]:
    module, _, name = path.partition(":")
    try:
        factory: Any = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"--estimator {path!r} cannot be imported: write MODULE:FACTORY") from error
    if not callable(factory):
        raise ConfigError(f"--estimator {path!r} is not a function of epsilon")
    return factory  # type: ignore[no-any-return]


def _finite(value: Any) -> Any:
    """Replace infinity, which JSON lacks, by text."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return "infinity" if isinstance(value, float) and math.isinf(value) else value


def show(report: Report) -> None:
    """Print a report as a table."""
    screen = Screen()
    table = Table(title=escape(f"Audit of {report.subject}"), title_justify="left")
    for column in ("part", "check", "found", ""):
        table.add_column(column, overflow="fold")
    for check in report.checks:
        verdict = "ok" if check.passed else "blind" if check.control else "REFUTED"
        table.add_row(check.part, escape(check.name), escape(check.finding), verdict)
    screen.print(table, markup=False)
    screen.line(f"{report.verdict}, at 99.9% confidence for each attack. An audit never proves privacy; PROOFS.md does.")
