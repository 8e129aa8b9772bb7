"""`blindbayes study`: write, check, sign and run a study of several organisations."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from click.core import ParameterSource

from blindbayes.cli import options as shared
from blindbayes.cli import wizard
from blindbayes.cli.copies import not_copied, require_new
from blindbayes.cli.options import HOME, JSON, NEW_FOLDER, PASSPHRASE, passphrase_of, show
from blindbayes.cli.settings import option
from blindbayes.cli.study_columns import HOW_MANY, ColumnOptions, follow, make_columns, options_of, predict
from blindbayes.cli.study_hash import FILE, show_hash
from blindbayes.cli.study_roster import roster, sign_change
from blindbayes.codebook import Codebook
from blindbayes.errors import ConfigError
from blindbayes.site import preview
from blindbayes.site.approval import approval_of
from blindbayes.site.folder import SiteFolder
from blindbayes.storage.files import write_whole
from blindbayes.study import RowStudy, schemes
from blindbayes.study.file import Deadlines, Privacy, StudyFile, Thresholds
from blindbayes.transport.identity import Identity, read_card


@click.group(name="study")
def command() -> None:
    """Several organisations, one model: write, check, sign and run a study.

    Example:
      blindbayes study check study.toml
      blindbayes study sign study.toml
      blindbayes study run study.toml --out release
      blindbayes study predict study.toml --batch monday --table patients.csv --out classes.csv
    """


@command.command()
@click.argument("path", metavar="STUDY", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--ask", is_flag=True, help="Ask for whatever is not given; so it does on a terminal if something needed is missing."
)
@option("study.title")
@option("study.codebook", type=click.Path(exists=True, dir_okay=False))
@click.option("--card", "cards", multiple=True, type=shared.FILE, help="A site's card; once per site.")
@click.option("--without-rows", multiple=True, help="A site that brings no rows (and may host a role).")
@option(
    "study.protocol",
    type=click.Choice(sorted({*schemes.known("rows", between_sites=True), *schemes.known("columns", between_sites=True)})),
)
@click.option("--holds", multiple=True, help="Over columns: SITE=feature,feature,...; once per site, SITE= for none.")
@option("study.columns.labelled", multiple=True)
@option("study.key", multiple=True)
@option("study.options.bounds", "--bound", "bounds", multiple=True)
@option("study.options.queries", type=int)
@option("study.reveal_to")
@option("study.duplicates")
@option("study.options", "--option", "options", multiple=True, metavar="NAME=VALUE")
@option("study.privacy.epsilon")
@option("study.privacy.delta")
@option("study.privacy.expected_rows")
@option("study.columns.n_rows")
@option("study.thresholds.quorum")
@option("study.thresholds.min_parties")
@option("study.thresholds.min_rows")
@option("study.thresholds.min_cell")
@option("study.deadlines.step", "--step-seconds", type=float, default=60.0, show_default=True)
@option("study.deadlines.join", "--join-seconds", type=float, default=600.0, show_default=True)
@option("study.deadlines.run", "--run-seconds", type=float, default=3600.0, show_default=True)
@click.pass_context
def init(context: click.Context, /, path: Path | None, ask: bool, **said: Any) -> None:
    r"""Write a STUDY from a codebook and the cards of the sites. On a terminal it asks for what is missing.

    Example:
      blindbayes study init
      blindbayes study init study.toml --title Readmission --codebook codebook.toml \
        --card north.toml --card south.toml --card west.toml
      blindbayes study init study.toml --title Default --codebook codebook.toml --card bank.toml --card telecom.toml \
        --holds bank=income,age --holds telecom=calls --labelled bank --n-rows 5000 --queries 1000 --reveal-to bank
    """
    given = {name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
    title, codebook, cards = said["title"], said["codebook"], said["cards"]
    if ask or (wizard.on_terminal() and not (path and title and codebook and cards)):
        wizard.Wizard({name: value for name, value in context.params.items() if name in given}).run()
        return
    if path is None or title is None or codebook is None or not cards:
        needed = {"path": path, "title": title, "codebook": codebook, "cards": cards}
        missing = next(option for option in context.command.params if needed.get(str(option.name), ...) in (None, ()))
        raise click.MissingParameter(ctx=context, param=missing)
    book, read = Codebook.from_toml(codebook), [read_card(card) for card in cards]
    limits, deadlines = _part(Thresholds, said), Deadlines(said["step_seconds"], said["join_seconds"], said["run_seconds"])
    over_rows = not (said["holds"] or said["labelled"])
    if wrong := sorted(given & (_OF_COLUMNS if over_rows else _OF_ROWS)):
        kind = "columns: say who holds what with --holds and --labelled" if over_rows else "rows"
        raise ConfigError(f"--{_flag(wrong[0])} is for studies over {kind}, or leave it out")
    if not over_rows:
        columns = _part(ColumnOptions, {name: value for name, value in said.items() if name in given})
        study = make_columns(title, book, read, columns, said["n_rows"], limits, deadlines)
    else:
        named, more, without = said["protocol"] or RowStudy.usual, options_of(said["options"]), said["without_rows"]
        if said["queries"] is not None:
            if not schemes.scheme(named).facts.shares:
                raise ConfigError("--queries is for studies over columns, and for other models in shares; leave it out")
            more["queries"] = said["queries"]
        study = wizard.make_study(title, book, read, without, named, _part(Privacy, said), limits, deadlines, options=more)
        opens = study.study.scheme.exposure(study.agreement)
        if opens.shares and opens.queries is None:
            raise ConfigError(HOW_MANY)
    if path.exists():
        raise ConfigError(f"{path.name} exists already; nothing was overwritten")
    path.write_text(study.to_toml(), encoding="utf-8")
    click.echo(f"Wrote {path}. sha256 {study.sha256}")


_OF_COLUMNS = {"holds", "labelled", "key", "bounds", "reveal_to", "duplicates", "n_rows"}
_OF_ROWS = {"without_rows", "quorum", "min_parties"}


P = TypeVar("P", bound=msgspec.Struct)


def _part(kind: type[P], said: Mapping[str, Any]) -> P:
    """The options that are fields of a part of the study."""
    return kind(**{each.name: said[each.name] for each in msgspec.structs.fields(kind) if each.name in said})


def _flag(name: str) -> str:
    return {"bounds": "bound"}.get(name, name.replace("_", "-"))


command.add_command(show_hash)


@command.command()
@FILE
@JSON
def check(path: Path, as_json: bool) -> None:
    """What the study says, who signed it, what would be opened and to whom.

    Example:
      blindbayes study check study.toml
    """
    study = StudyFile.from_toml(path)
    facts = preview.check(study)
    asked = approval_of(study)
    width = max(map(len, facts))
    lines = [f"{name.replace('_', ' '):{width}}  {_shown(name, value)}" for name, value in facts.items()]
    changes = [line for after, change in zip(study.rosters[1:], study.changes, strict=True) for line in after.told(change)]
    show({**facts, "approval": asked.to_dict()}, [*lines, *changes, *asked.lines], as_json=as_json)


def _shown(name: str, value: Any) -> str:
    """A fact for people."""
    if name == "epsilon" and value is None:
        return "none: the sum is exact"
    if isinstance(value, dict):
        return ", ".join(f"{role} at {site}" for role, site in value.items()) or "none needed"
    if isinstance(value, list):
        return ("; " if name in ("holds", "identifiers_padded_to", "each_ledger_pays") else ", ").join(
            map(str, value)
        ) or "nobody"
    return str(value)


@command.command()
@FILE
@click.option("--instead", is_flag=True, help="Of two changes of one roster: the one signed before is dropped, all agree.")
@HOME
@PASSPHRASE
def sign(path: Path, instead: bool, home: SiteFolder, passphrase_file: Path | None) -> None:
    """Add this site's signature to the STUDY, or to the newest change of its roster.

    Example:
      blindbayes study sign study.toml --config north
    """
    study = StudyFile.from_toml(path)
    study.require_signatures()
    identity = Identity.load(home.folder, passphrase=passphrase_of(passphrase_file))
    if study.changes:
        signed = sign_change(home, identity, study, instead=instead)
        write_whole(path.resolve(), signed.to_toml().encode(), private=False)
        left = ", ".join(signed.roster.require_signed(signed.changes[-1], complete=False)) or "nobody"
        click.echo(f"{identity.name} signed change {signed.roster.number}, {signed.roster.sha256}; still missing: {left}")
        return
    signed = study.sign(identity.name, identity.signing)
    write_whole(path.resolve(), signed.to_toml().encode(), private=False)
    left = ", ".join(party.name for party in signed.parties if party.name not in signed.signatures) or "nobody"
    click.echo(f"{identity.name} signed {signed.sha256}; still missing: {left}")


@command.command("dry-run")
@FILE
@HOME
@JSON
def dry_run(path: Path, home: SiteFolder, as_json: bool) -> None:
    """What would leave this site, by kind of cell, without anything leaving. Counts the rows to see that they fit.

    Example:
      blindbayes study dry-run study.toml --config north
    """
    study = StudyFile.from_toml(path)
    found = preview.dry_run(home, read_card(home.folder / "card.toml").name, study)
    lines = found.pop("lines")
    refused = [f"Policy would refuse: {problem}" for problem in found["refused_because"]]
    told = [f"Study {study.sha256}", *lines, *approval_of(study).lines, *found["past"], *refused]
    show(found, told, as_json=as_json)


@command.command()
@FILE
@HOME
@click.option("--base", help="Add to the result of this earlier run: sites bring what changed since.")
@click.option("--out", type=NEW_FOLDER, help="Copy the release folder there.")
@JSON
def run(path: Path, home: SiteFolder, base: str | None, out: Path | None, as_json: bool) -> None:
    """Run an approved STUDY through this site's running agent, and wait for its end.

    Example:
      blindbayes study run study.toml --config north --out release
    """
    study = StudyFile.from_toml(path)
    if out is not None:
        require_new(out)
    ended = follow(home, "/runs", {"study": study.sha256, **({} if base is None else {"base": base})}, as_json=as_json)
    if out is not None:
        try:
            shutil.copytree(ended["release"], out)
        except OSError as problem:
            raise not_copied(out, ended["release"], problem) from None
    lines = [f"Done in {ended['seconds']:.1f} s. Release: {out or ended['release']}"]
    if ended["kind"] == "training":
        lines.append(f"The model exists as shares; this site keeps its own as run {ended['run']} (`blindbayes site shares`).")
        lines.append("To classify with it, every site starts `blindbayes study predict`.")
    show(ended, lines, as_json=as_json)


command.add_command(predict)
command.add_command(roster)
