"""Options that several commands share, and the checks and output that go with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from blindbayes.cli import print_json
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import read_limited, read_toml

if TYPE_CHECKING:
    from blindbayes.agent.store.folder import SiteFolder
    from blindbayes.codebook import Codebook
    from blindbayes.data import Source

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
STUDY = click.argument("path", metavar="STUDY", type=FILE)
NEW_FOLDER = click.Path(file_okay=False, path_type=Path)


class _Home(click.ParamType["SiteFolder"]):
    """A site's folder, opened: from its own path or that of its site.toml."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> SiteFolder:
        from blindbayes.agent.store.folder import SiteFolder

        return value if isinstance(value, SiteFolder) else SiteFolder.open(Path(value))


_CONFIG: dict[str, Any] = {
    "default": "site.toml",
    "envvar": "BLINDBAYES_CONFIG",
    "show_default": True,
    "help": "The site's site.toml or its folder.",
}
HOME = click.option("--config", "home", type=_Home(), **_CONFIG)
CONFIG = click.option("--config", "config", type=click.Path(path_type=Path), **_CONFIG)  # the site may not exist yet
PASSPHRASE = click.option(
    "--passphrase-file", type=FILE, envvar="BLINDBAYES_PASSPHRASE_FILE", help="File whose first line decrypts the keys."
)
AS = click.option("--as", "who", help="Your name in the site's people.toml. [default: that of your account]")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class _CodebookPath(click.Path):
    """The path of a codebook; if it is missing, the message says how to make one."""

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        return "`blindbayes codebook draft TABLE --target COLUMN --out codebook.toml` writes one from a public sample."


CODEBOOK = click.option("--codebook", "codebook_path", required=True, type=_CodebookPath(dir_okay=False), help="Codebook file.")
LEDGER = click.option("--ledger", type=click.Path(dir_okay=False), help="Ledger file, charged before the release.")
DELTA = click.option("--delta", type=float, default=0.0, show_default=True, help="Privacy parameter delta; 0: pure privacy.")
LARGE_DELTA = click.option(
    "--allow-large-delta", is_flag=True, help="Agree to a delta above a tenth of one over the expected rows."
)
IGNORE_EXTRA = click.option("--ignore-extra", is_flag=True, help="Ignore columns that are not in the codebook.")
OMOP = click.option("--omop", metavar="SCHEMA", help="Schema of the OMOP tables in the database that DATA names.")
_TABLE = (
    click.option("--delimiter", help="Cell delimiter of a text file. [default: detected from the header]"),
    click.option("--decimal", type=click.Choice([".", ","]), default=".", help="Decimal mark of a text file."),
    click.option("--thousands", default="", help="Separator of thousands in a text file, such as '.'. [default: none]"),
    click.option("--missing", multiple=True, help="Text that means no value, in all columns; may be given several times."),
    click.option("--encoding", help="Encoding of a text file, such as latin-1. [default: UTF-8 or the byte order mark]"),
    click.option("--quote", default='"', help="Quote character of a text file."),
    click.option("--sheet", help="Sheet of a workbook. [default: the first]"),
    click.option(
        "--map",
        "map_path",
        type=click.Path(exists=True, dir_okay=False),
        help="TOML file that renames, recodes and derives columns, as [rows.map] in site.toml.",
    ),
)


def table_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that describe a table; the command takes them as `**reading` and passes them to `open_data`."""
    for option in reversed(_TABLE):
        command = option(command)
    return command


def open_data(data: str, *, map_path: str | None, sheet: str | None, partly: bool = False, **dialect: Any) -> Source:
    """Open a table as the options describe it; report a detected delimiter other than the comma."""
    from blindbayes.data import Dialect, open_table

    rules = None
    if map_path is not None:
        rules = read_toml(read_limited(map_path), "the map", hint="column = expression")
        rules = rules.get("map", rules)
    source = open_table(data, map=rules, dialect=Dialect(**dialect), table=sheet, partly=partly)
    if source.dialect is not None and source.dialect.delimiter not in (None, ",", dialect["delimiter"]):
        click.echo(f"{data}: {source.dialect}", err=True)
    return source


def open_rows(data: str, codebook: Codebook, omop: str | None, **reading: Any) -> Source:
    """Open the table that the options describe, or the rows that the codebook declares on an OMOP database."""
    if omop is None:
        return open_data(data, **reading)
    from blindbayes.data.omop import open_omop

    return open_omop(data, codebook, omop)


def read_passphrase(path: Path | None) -> str | None:
    """Return the first line of the passphrase file."""
    return None if path is None else path.read_text(encoding="utf-8").splitlines()[0]


def print_result(facts: Any, lines: Iterable[str], *, as_json: bool) -> None:
    """Print `facts` as JSON, or `lines` for people."""
    if as_json:
        print_json(facts)
        return
    for line in lines:
        click.echo(line)


def require_new_path(out: Path, option: str = "path") -> None:
    """Raise before a run begins if its result could not be written to `out`, which `option` names."""
    if out.exists():
        raise ConfigError(f"{out} exists already; nothing was started or overwritten: choose another {option}")
    parent = next(folder for folder in out.resolve().parents if folder.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise ConfigError(f"you may not write in {parent}; nothing was started: choose another {option}")


def copy_failed(out: Path, original: object, problem: OSError) -> ConfigError:
    """Return the error for a run that ended well and whose copy could not be written."""
    return ConfigError(f"the run is done, but {out} cannot be written ({problem.strerror}); its result is in {original}")
