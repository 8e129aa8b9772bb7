"""`blindbayes study`: write, check, sign and run a study of several organisations."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import click

from blindbayes.agent import preview
from blindbayes.agent.approvals.summary import approval_of
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.cli.commands.study_init import init
from blindbayes.cli.commands.study_predict import follow, predict
from blindbayes.cli.commands.study_roster import roster, sign_change
from blindbayes.cli.options import (
    HOME,
    JSON,
    NEW_FOLDER,
    PASSPHRASE,
    STUDY,
    copy_failed,
    print_result,
    read_passphrase,
    require_new_path,
)
from blindbayes.io.files import write_whole
from blindbayes.io.untrusted import read_json_table, read_limited
from blindbayes.net.identity import Identity, read_card
from blindbayes.study.file import StudyFile


@click.group(name="study")
def command() -> None:
    """Several organisations, one model: write, check, sign and run a study.

    Example:
      blindbayes study check study.toml
      blindbayes study sign study.toml
      blindbayes study run study.toml --out release
      blindbayes study predict study.toml --batch monday --table patients.csv --out classes.csv
    """


command.add_command(init)


@command.command("hash")
@STUDY
def show_hash(path: Path) -> None:
    """Print the SHA-256 of the study with its newest roster: what people compare.

    Example:
      blindbayes study hash study.toml
    """
    click.echo(StudyFile.from_toml(path).roster.sha256)


@command.command()
@STUDY
@JSON
def check(path: Path, as_json: bool) -> None:
    """Show what the study says, who signed it, what would be opened and to whom.

    Example:
      blindbayes study check study.toml
    """
    study = StudyFile.from_toml(path)
    facts = preview.check(study)
    asked = approval_of(study)
    width = max(map(len, facts))
    lines = [f"{name.replace('_', ' '):{width}}  {_shown(name, value)}" for name, value in facts.items()]
    changes = [line for after, change in zip(study.rosters[1:], study.changes, strict=True) for line in after.describe(change)]
    print_result({**facts, "approval": asked.to_dict()}, [*lines, *changes, *asked.lines], as_json=as_json)


def _shown(name: str, value: Any) -> str:
    """Return a fact as text."""
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
@STUDY
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
    identity = Identity.load(home.folder, passphrase=read_passphrase(passphrase_file))
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
@STUDY
@HOME
@JSON
def dry_run(path: Path, home: SiteFolder, as_json: bool) -> None:
    """Show what would leave this site, by kind of cell. Nothing leaves. Counts the rows to see that they fit.

    Example:
      blindbayes study dry-run study.toml --config north
    """
    study = StudyFile.from_toml(path)
    shown = preview.dry_run(home, read_card(home.folder / "card.toml").name, study)
    lines = shown.pop("lines")
    refused = [f"Policy would refuse: {problem}" for problem in shown["refused_because"]]
    text = [f"Study {study.sha256}", *lines, *approval_of(study).lines, *shown["past"], *refused]
    print_result(shown, text, as_json=as_json)


@command.command()
@STUDY
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
        require_new_path(out)
    ended = follow(home, "/runs", {"study": study.sha256, **({} if base is None else {"base": base})}, as_json=as_json)
    _copy_release(ended, out)
    lines = [f"Done in {ended['seconds']:.1f} s. Release: {out or ended['release']}"]
    if ended["kind"] == "training":
        lines.append(f"The model exists as shares; this site keeps its own as run {ended['run']} (`blindbayes site shares`).")
        lines.append("To classify with it, every site starts `blindbayes study predict`.")
    print_result(ended, lines, as_json=as_json)


@command.command()
@STUDY
@HOME
@click.option("--model", help="Training run, or its release folder; by default the newest run of the study.")
@click.option("--folds", is_flag=True, help="Cross-validate the study's candidates instead (folds under [estimation]).")
@click.option("--out", type=NEW_FOLDER, help="Copy the release folder there.")
@JSON
def evaluate(path: Path, home: SiteFolder, model: str | None, folds: bool, out: Path | None, as_json: bool) -> None:
    """Evaluate the model of an approved STUDY on the held-out rows of all its sites (held_out under [estimation]).

    One more sum of the study's protocol: only the sum of all sites' confusion matrices and score bins is opened, with noise if
    the study has an epsilon. It uses one of the approved runs.

    Example:
      blindbayes study evaluate study.toml --config north --out evaluation
    """
    study = StudyFile.from_toml(path)
    if out is not None:
        require_new_path(out)
    if model is not None and Path(model).is_dir():
        model = str(read_json_table(read_limited(Path(model) / "run.json"), "run.json").get("run"))
    asked = {"study": study.sha256, **({} if model is None else {"model": model}), **({"folds": True} if folds else {})}
    ended = follow(home, "/evaluations", asked, as_json=as_json)
    _copy_release(ended, out)
    table = Path(ended["release"]) / ("cross_validation.md" if folds else "evaluation.md")
    lines = [f"Done in {ended['seconds']:.1f} s. Release: {out or ended['release']}"]
    print_result(ended, [*([table.read_text()] if table.exists() else []), *lines], as_json=as_json)


def _copy_release(ended: dict[str, Any], out: Path | None) -> None:
    if out is not None:
        try:
            shutil.copytree(ended["release"], out)
        except OSError as problem:
            raise copy_failed(out, ended["release"], problem) from None


command.add_command(predict)
command.add_command(roster)
