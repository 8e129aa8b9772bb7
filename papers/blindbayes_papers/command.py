"""The command `blindbayes reproduce`: regenerate a paper's experiment."""

from __future__ import annotations

from pathlib import Path

import click

from blindbayes.cli import print_json
from blindbayes_papers import NEEDS, PAPERS, reproduce

_PAGE = """Regenerate a paper's experiment: CSV files, pictures and a page that compares theirs with ours.

\b
Papers, with the CPU time of the full form on one core:
{papers}

Six small tables come with the package. Adult and Skin come from the folder in BLINDBAYES_DATA, else from the cache, else from
OpenML, and are checked against a SHA-256; an error names the file that is expected. --quick takes up to one and a half minutes
each, needs no network, and says which rows it left out.

--between-sites runs the paper's protocols instead: three agents on this machine, a process each, with keys, policies, reports
and made-up tables of their own. What each site learned is in its release.

\b
Example:
  blindbayes reproduce zafarani2020 --quick
  blindbayes reproduce --all --quick --out reproduced
  blindbayes reproduce huai2015 --between-sites
"""


def _line(name: str) -> str:
    minutes, datasets = NEEDS[name]
    return f"  {name:13} {PAPERS[name]}\n  {'':13} {minutes}; datasets: {', '.join(datasets) or 'none'}"


@click.command(
    help=_PAGE.format(papers="\n".join(map(_line, sorted(PAPERS)))),
    short_help="Regenerate a paper's experiment, theirs and ours side by side.",
)
@click.argument("paper", metavar="PAPER", type=click.Choice(sorted(PAPERS)), required=False)
@click.option("--all", "every", is_flag=True, help="All five papers, one after the other, each in a folder of its own.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for the results; by default reproduced/PAPER."
)
@click.option("--quick", is_flag=True, help="A short form: fewer repetitions, smaller tables.")
@click.option("--between-sites", is_flag=True, help="Run its protocols between three agents, one process each.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(paper: str | None, every: bool, out: Path | None, quick: bool, between_sites: bool, as_json: bool) -> None:
    """Run the experiments; `_PAGE` is the help, which lists the papers."""
    if every == (paper is not None):
        raise click.UsageError("Name one paper, or give --all.")
    parent = out or Path("reproduced")
    for name in sorted(PAPERS) if paper is None else (paper,):
        folder = parent / name if paper is None or out is None else out
        if between_sites:
            _between_sites(name, folder / "sites" if out is None else folder, quick, as_json, every)
            continue
        page = reproduce(name, folder, quick=quick)
        if as_json:
            print_json({"paper": name, "page": str(page), "files": sorted(path.name for path in folder.iterdir())})
        else:
            click.echo(f"{PAPERS[name]} Written to {page}")


def _between_sites(paper: str, folder: Path, quick: bool, as_json: bool, every: bool) -> None:
    from blindbayes_papers.between import CASES, NO_SITES, run_between_sites

    if every and paper not in CASES:
        click.echo(f"{paper}: {NO_SITES}", err=as_json)
        return
    runs = []
    for ran in run_between_sites(paper, folder, quick=quick):
        releases = {site: str(each) for site, each in ran.releases.items()}
        runs.append({"protocol": ran.protocol, "opened": ran.opened, "model": ran.compared.strip(), "releases": releases})
        if not as_json:
            click.echo(str(ran))
    if as_json:
        print_json({"paper": paper, "runs": runs})
