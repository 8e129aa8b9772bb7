"""`blindbayes reproduce`: a paper's experiment, theirs beside ours."""

from __future__ import annotations

from pathlib import Path

import click

from blindbayes.cli import print_json
from blindbayes.papers import PAPERS, reproduce


@click.command()
@click.argument("paper", type=click.Choice(sorted(PAPERS)))
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for the results; by default the paper's name."
)
@click.option("--quick", is_flag=True, help="A short form: fewer repetitions, smaller tables.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(paper: str, out: Path | None, quick: bool, as_json: bool) -> None:
    """Regenerate a paper's experiment: CSV files, pictures and a page that compares theirs with ours.

    \b
    Example:
      blindbayes reproduce zafarani2020 --quick
    """
    folder = out or Path("reproduced") / paper
    page = reproduce(paper, folder, quick=quick)
    if as_json:
        print_json({"paper": paper, "page": str(page), "files": sorted(path.name for path in folder.iterdir())})
    else:
        click.echo(f"{PAPERS[paper]} Written to {page}")
