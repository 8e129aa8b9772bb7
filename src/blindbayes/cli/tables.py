"""How the command line is told what a table looks like: options shared by the commands that read one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from blindbayes.io.untrusted import bytes_of, read_toml

if TYPE_CHECKING:
    from blindbayes.data import Source

_OPTIONS = (
    click.option("--delimiter", help="Of a text file: what stands between cells; by default what its header shows."),
    click.option("--decimal", type=click.Choice([".", ","]), default=".", help="The decimal mark of a text file."),
    click.option("--encoding", help="Of a text file, such as latin-1; by default UTF-8, or what its first bytes say."),
    click.option("--quote", default='"', help="Of a text file: what stands around a cell."),
    click.option("--sheet", help="Of a workbook; by default the first."),
    click.option(
        "--map",
        "map_path",
        type=click.Path(exists=True, dir_okay=False),
        help="TOML file: columns renamed, recoded and derived, as under [rows.map] in site.toml.",
    ),
)


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a table; the command takes them as `**reading` and hands them to `opened`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def opened(data: str, *, map_path: str | None, sheet: str | None, partly: bool = False, **dialect: Any) -> Source:
    """The table, read as the options say; a dialect that was not declared and is not the usual one is said."""
    from blindbayes.data import open_table

    rules = None
    if map_path is not None:
        rules = read_toml(bytes_of(map_path), "the map", hint="column = expression")
        rules = rules.get("map", rules)
    found = open_table(data, map=rules, table=sheet, partly=partly, **dialect)
    if found.dialect is not None and found.dialect.delimiter not in (None, ",", dialect["delimiter"]):
        click.echo(f"{data}: {found.dialect}", err=True)
    return found
