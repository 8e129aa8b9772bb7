"""`blindbayes ids`: check identifiers before two parties join on them."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

from blindbayes.cli import print_json
from blindbayes.cli.options import open_data, table_options
from blindbayes.cli.screen import Screen
from blindbayes.codebook import Codebook
from blindbayes.errors import ConfigError


@click.group()
def command() -> None:
    """Check identifiers before two parties join on them.

    Example:
      blindbayes ids check codebook.toml --data customers.parquet
    """


@command.command("check")
@click.argument("path", metavar="CODEBOOK", type=click.Path(dir_okay=False))
@click.option("--data", required=True, help="CSV or Parquet path, or database URL.")
@table_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON (counts only).")
def check(path: str, data: str, as_json: bool, **reading: Any) -> None:
    """Count identifiers that do not normalise or occur twice. Nothing leaves this machine.

    Example:
      blindbayes ids check codebook.toml --data customers.parquet
    """
    from blindbayes.data.engines import fetched
    from blindbayes.data.identifiers import identify
    from blindbayes.errors import DataError

    codebook = Codebook.from_toml(path)
    if codebook.identifier is None:
        raise ConfigError("the codebook has no identifier recipe; add an [identifier] table with its parts")
    names = [part.column for part in codebook.identifier.parts]
    with open_data(data, **reading) as source:
        for name in names:
            if name not in source.columns:
                raise DataError(f"identifier column {name!r} is missing from the table; add it or change the recipe")
        table = fetched(source.table.select(*names))
    _, report = identify({name: table.column(name) for name in names}, codebook.identifier)
    if as_json:
        print_json(report.to_dict())
        return
    summary = Table("identifiers", "count")
    summary.add_row("rows", f"{report.rows:,}")
    summary.add_row("rows with a part missing", f"{report.missing:,}")
    for name, rows in report.unusable.items():
        summary.add_row(f"rows where {name} does not normalise", f"{rows:,}")
    summary.add_row("rows with an identifier", f"{report.identified:,}")
    summary.add_row("different identifiers", f"{report.distinct:,}")
    summary.add_row("identifiers in more than one row", f"{report.repeated:,}")
    summary.add_row("rows of the most frequent identifier", f"{report.max_rows:,}")
    Screen().print(summary, markup=False)
