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

--between-sites runs the paper's protocols instead: three agents on this machine, a process each, with keys, policies, reports
and made-up tables of their own. What each site learned is in its release.

\b
Example:
  blindbayes reproduce zafarani2020 --quick
  blindbayes reproduce huai2015 --between-sites
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
@click.option("--between-sites", is_flag=True, help="Run its protocols between three agents, one process each.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(paper: str, out: Path | None, quick: bool, between_sites: bool, as_json: bool) -> None:
    """See `_PAGE`: the help, which lists the papers."""
    folder = out or Path("reproduced") / paper
    if between_sites:
        _between_sites(paper, folder / "sites" if out is None else out, quick, as_json)
        return
    page = reproduce(paper, folder, quick=quick)
    if as_json:
        print_json({"paper": paper, "page": str(page), "files": sorted(path.name for path in folder.iterdir())})
    else:
        click.echo(f"{PAPERS[paper]} Written to {page}")


def _between_sites(paper: str, folder: Path, quick: bool, as_json: bool) -> None:
    from blindbayes_papers.between import run_between_sites

    found = {}
    for ran in run_between_sites(paper, folder, quick=quick):
        found[ran.protocol] = {"opened": ran.opened, "releases": {site: str(each) for site, each in ran.releases.items()}}
        if not as_json:
            click.echo(str(ran))
    if as_json:
        print_json({"paper": paper, "protocols": found})
