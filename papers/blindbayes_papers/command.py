"""`blindbayes reproduce`: a paper's experiment, theirs beside ours."""

from __future__ import annotations

from pathlib import Path

import click

from blindbayes.cli import print_json
from blindbayes_papers import NEEDS, PAPERS, reproduce

_PAGE = """Regenerate a paper's experiment: CSV files, pictures and a page that compares theirs with ours.

\b
Papers, with the CPU time of the full form on one core:
{papers}

Datasets come from the folder in BLINDBAYES_DATA, else from the cache, else from OpenML; an error names the file that is
expected. --quick takes less than a minute each.

\b
Example:
  blindbayes reproduce zafarani2020 --quick
"""


def _line(name: str) -> str:
    minutes, datasets = NEEDS[name]
    return f"  {name:13} {PAPERS[name]}\n  {'':13} {minutes}; datasets: {', '.join(datasets) or 'none'}"


@click.command(
    help=_PAGE.format(papers="\n".join(map(_line, sorted(PAPERS)))),
    short_help="Regenerate a paper's experiment, theirs and ours side by side.",
)
@click.argument("paper", metavar="PAPER", type=click.Choice(sorted(PAPERS)))
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for the results; by default reproduced/PAPER."
)
@click.option("--quick", is_flag=True, help="A short form: fewer repetitions, smaller tables.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(paper: str, out: Path | None, quick: bool, as_json: bool) -> None:
    """See `_PAGE`: the help, which lists the papers."""
    folder = out or Path("reproduced") / paper
    page = reproduce(paper, folder, quick=quick)
    if as_json:
        print_json({"paper": paper, "page": str(page), "files": sorted(path.name for path in folder.iterdir())})
    else:
        click.echo(f"{PAPERS[paper]} Written to {page}")
