"""Options that several commands share, and the two ways in which a command answers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from blindbayes.agent.folder import SiteFolder
from blindbayes.cli import print_json

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW_FOLDER = click.Path(file_okay=False, path_type=Path)


class _Home(click.ParamType[SiteFolder]):
    """A site's folder, opened."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> SiteFolder:
        """From the path of its site.toml, or of the folder."""
        return value if isinstance(value, SiteFolder) else SiteFolder.open(Path(value))


_CONFIG: dict[str, Any] = {
    "default": "site.toml",
    "envvar": "BLINDBAYES_CONFIG",
    "show_default": True,
    "help": "The site's site.toml, or its folder.",
}
HOME = click.option("--config", "home", type=_Home(), **_CONFIG)
CONFIG = click.option("--config", "config", type=click.Path(path_type=Path), **_CONFIG)  # where a site may not be there yet
PASSPHRASE = click.option(
    "--passphrase-file", type=FILE, envvar="BLINDBAYES_PASSPHRASE_FILE", help="File whose first line opens the keys."
)
AS = click.option("--as", "who", help="Your name in the site's people.toml; without it that of your account.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def passphrase_of(path: Path | None) -> str | None:
    """The first line of the passphrase file."""
    return None if path is None else path.read_text(encoding="utf-8").splitlines()[0]


def show(facts: Any, lines: Iterable[str], *, as_json: bool) -> None:
    """Facts for a program, or lines for people."""
    if as_json:
        print_json(facts)
        return
    for line in lines:
        click.echo(line)
