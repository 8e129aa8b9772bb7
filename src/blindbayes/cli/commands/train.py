"""`blindbayes train`: fit a model on one table."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from blindbayes.cli import print_json
from blindbayes.cli.options import open_data, table_options
from blindbayes.codebook import Codebook
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import read_limited

if TYPE_CHECKING:
    from blindbayes.crypto.signatures import SigningKey
    from blindbayes.naive_bayes.base import BaseNaiveBayes
    from blindbayes.report.cover_sheet import Cover


PROMISES_LITTLE = 10.0  # an epsilon above this is said to
_PRIVATE = ("delta", "ledger", "expected_rows", "rows_per_person", "tuning_note")
_SETTINGS = ("alpha", "var_smoothing", *_PRIVATE)


@click.command()
@click.argument("data")
@click.option("--codebook", "codebook_path", required=True, type=click.Path(dir_okay=False), help="The codebook file.")
@click.option("--out", type=click.Path(dir_okay=False), help="Where the model file goes.")
@click.option("--release", type=click.Path(file_okay=False), help="New folder for the model with its papers, to be signed.")
@click.option(
    "--cover", type=click.Path(exists=True, dir_okay=False), help="Of --release: what `report cover` shows, filled in."
)
@click.option("--title", help="Of --release: its title, if the cover has none.")
@click.option("--owner", help="Of --release: the organisation that answers for it.")
@click.option("--sign", "site", type=click.Path(exists=True), help="Of --release: sign with the keys of this site's folder.")
@click.option(
    "--passphrase-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Opens the keys of --sign."
)
@click.option("--alpha", type=float, default=1.0, show_default=True, help="Laplace smoothing.")
@click.option(
    "--var-smoothing", type=float, default=1e-9, show_default=True, help="Share of the largest variance added to all."
)
@click.option("--epsilon", type=float, help="Privacy loss of the release; without it the model is not private.")
@click.option("--delta", type=float, default=0.0, show_default=True, help="Second privacy parameter; 0 for pure privacy.")
@click.option("--expected-rows", type=int, help="With epsilon: about how many rows the table has, as publicly known.")
@click.option(
    "--rows-per-person",
    type=int,
    help="With epsilon: so many rows of a person count, by the codebook's identifier, and are protected together.",
)
@click.option(
    "--tuning", "tuning_note", help="How settings were chosen, for the statement; by default it says: assumed, not checked."
)
@click.option("--ignore-extra", is_flag=True, help="Leave columns unread that the codebook does not know.")
@table_options
@click.option("--ledger", type=click.Path(dir_okay=False), help="Ledger file to charge before the release.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(**given: Any) -> None:
    """Fit a model on one table (path or database URL) and write the model file.

    Example:
      blindbayes train visits.parquet --codebook codebook.toml --out model.json
      blindbayes train visits.parquet --codebook codebook.toml --out model.json --epsilon 1 --ledger ledger.jsonl
      blindbayes train visits.parquet --codebook codebook.toml --release release --title "Readmission" --epsilon 1
    """
    from blindbayes.naive_bayes.load import NaiveBayes, PrivateNaiveBayes

    if given["epsilon"] is not None:
        train(PrivateNaiveBayes, **given)
        return
    names = {each.name: each.opts[0] for each in command.params}
    if unused := [names[name] for name in _PRIVATE if given[name]]:
        raise ConfigError(f"{unused[0]} is for a private model: pass --epsilon too")
    train(NaiveBayes, **given)


def train(
    estimator: type[BaseNaiveBayes],
    data: str,
    codebook_path: str,
    out: str | None,
    release: str | None,
    cover: str | None,
    title: str | None,
    owner: str | None,
    site: str | None,
    passphrase_file: Path | None,
    epsilon: float | None,
    rows_per_person: int | None,
    ledger: str | None,
    ignore_extra: bool,
    as_json: bool,
    **more: Any,
) -> None:
    """Fit an estimator as the options say, and write the model file, its release or both."""
    from blindbayes.cli.screen import progress_bar
    from blindbayes.data.contribution_bound import require_identifier

    if out is None and release is None:
        raise ConfigError("nothing would be kept: pass --out for the model file, --release for a folder with its papers")
    of_release = {"--cover": cover, "--title": title, "--owner": owner, "--sign": site}
    if release is None and (found := [name for name, value in of_release.items() if value is not None]):
        raise ConfigError(f"{found[0]} is for --release: pass a folder there")
    for name, place in (("--out", out), ("--release", release)):  # before the ledger pays for a model that nobody could keep
        folder = Path(place).absolute().parent if place is not None else None
        if folder is not None and not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise ConfigError(f"nothing can be written in the folder {os.fspath(folder)!r}; make it, or choose another {name}")
    if release is not None and Path(release).is_dir() and any(Path(release).iterdir()):
        raise ConfigError("the release folder is not empty; choose another")
    papers = None if release is None else _papers(cover, title, owner, site, passphrase_file)
    codebook = Codebook.from_toml(codebook_path)
    if rows_per_person is not None:
        require_identifier(codebook)
    given = {**more, "epsilon": epsilon, "rows_per_person": rows_per_person, "ledger": ledger}
    accepted = inspect.signature(estimator).parameters
    if "epsilon" in accepted and epsilon is None:
        raise ConfigError("a private model needs --epsilon")
    settings = {name: value for name, value in given.items() if name in accepted}
    model = estimator(codebook, extra_columns="ignore" if ignore_extra else "refuse", **settings)
    reading = {name: value for name, value in more.items() if name not in accepted and name not in _SETTINGS}
    with open_data(data, **reading) as table, progress_bar("train") as table.watch:
        model.fit(table)
    facts = {"model": out, "release": release, "codebook": model.approved_codebook_, "private": epsilon is not None}
    if out is not None:
        model.save(out)
    if release is not None and papers is not None:
        model.release(release, cover=papers[0], signers=papers[1])
    if as_json:
        print_json(facts)
        return
    if out is not None:
        click.echo(f"model written to {out}; codebook {model.approved_codebook_[:12]}")
    if release is not None:
        signed = "signed" if papers is not None and papers[1] else "not signed"
        click.echo(
            f"release written to {release} ({signed}), codebook {model.approved_codebook_[:12]}; "
            f"open {Path(release) / 'index.html'}"
        )
    _note(model, epsilon, ledger)


def _note(model: BaseNaiveBayes, epsilon: float | None, ledger: str | None) -> None:
    """Warn of a model that answers with one class, and of a release that promises little or that nobody counts."""
    if epsilon is None and (model.statistics_.class_counts > 0).sum() < 2:
        click.echo("note: all rows have one class, so this model answers with it; is this the whole table?", err=True)
    if epsilon is not None and float(epsilon) > PROMISES_LITTLE:
        click.echo(
            f"note: epsilon {epsilon:g} promises little: what the release shows may be e^{epsilon:g} times as likely with a "
            "person's row as without; 1 is usual, 10 is much",
            err=True,
        )
    if epsilon is not None and ledger is None:
        click.echo("no ledger was charged: nobody keeps count of what this table has spent; --ledger does", err=True)


def _papers(
    cover: str | None, title: str | None, owner: str | None, site: str | None, passphrase_file: Path | None
) -> tuple[Cover, dict[str, SigningKey]]:
    from blindbayes.cli.options import read_passphrase
    from blindbayes.net.identity import Identity
    from blindbayes.report.cover_sheet import Cover

    content, name = (read_limited(cover), Path(cover).name) if cover is not None else (b"", "")
    made = Cover.from_toml(content, name, title=title, owner=owner)
    if site is None:
        return made, {}
    folder = Path(site) if Path(site).is_dir() else Path(site).parent
    identity = Identity.load(folder, passphrase=read_passphrase(passphrase_file))
    return made, {identity.name: identity.signing}
