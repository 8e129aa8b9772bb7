"""`blindbayes study hash`, by itself: people compare hashes often, and it needs no protocol."""

from __future__ import annotations

from pathlib import Path

import click

from blindbayes.study.fields import StudyFields

FILE = click.argument("path", metavar="STUDY", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.command("hash")
@FILE
def show_hash(path: Path) -> None:
    """The SHA-256 of the study with its newest roster: what people compare. `study check` says whether it can be run.

    Example:
      blindbayes study hash study.toml
    """
    click.echo(StudyFields.from_toml(path).roster.sha256)
