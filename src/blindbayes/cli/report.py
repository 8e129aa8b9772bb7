"""`blindbayes report`: check a release folder, say who learned what, sign it, say who signed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from blindbayes.errors import ConfigError, DataError
from blindbayes.foreign import read_json_table, read_toml
from blindbayes.report import COMMON_SIGNATURES, Verified, common_of, digest_of, signatures_of, signed_by, verify_files
from blindbayes.storage.folder import read_folder

if TYPE_CHECKING:
    from blindbayes.study.file import StudyFile


@dataclass(frozen=True)
class _Release:
    folder: str
    files: Mapping[str, bytes]
    verified: Verified

    def json(self, name: str) -> dict[str, Any]:
        if name not in self.files:
            return {}
        return read_json_table(self.files[name], name, error=DataError, hint="ask for the release again")

    def digest(self, name: str) -> str | None:
        return hashlib.sha256(self.files[name]).hexdigest() if name in self.files else None


class _Report(click.Group):
    """`report FOLDER` shows; `report sign` and `report verify` are commands of their own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["show", *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        return super().resolve_command(ctx, args if args[0] in self.commands else ["show", *args])


@click.command(cls=_Report)
def command() -> None:
    """Check a release folder and say who learned what; sign it; say who signed.

    A folder alone is shown.

    \b
    Example:
      blindbayes report demo/exact/north demo/exact/south
      blindbayes report sign release --config north
      blindbayes report verify release
    """


@command.command("show")
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@click.option(
    "--card", "cards", multiple=True, type=click.Path(exists=True, dir_okay=False), help="Card of a site that must have signed."
)
@click.option(
    "--registry",
    type=click.Path(exists=True, dir_okay=False),
    help="TOML with the publisher's facts: print the record for the OpenDP Deployments Registry instead.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(folders: tuple[str, ...], cards: tuple[str, ...], registry: str | None, as_json: bool) -> None:
    """Check release folders and say who learned what. The word `show` may be left out.

    Every file is compared with the checksums and every signature is checked. Several folders are those of several sites
    of one run: their models must be the same. With --card, that site must have signed, with the key on its card.

    \b
    Example:
      blindbayes report show demo/exact/north demo/exact/south --card north.toml
      blindbayes report demo/private/north --registry publisher.toml > statement.yaml
    """
    releases = [
        _Release(folder, files, verify_files(files)) for folder, files in ((name, read_folder(name)) for name in folders)
    ]
    _require_one_run(releases)
    signers = {name: key for release in releases for name, key in release.verified.signers.items()}
    checked = _require_cards(cards, signers)
    if registry is not None:
        click.echo(_registry(releases[0], Path(registry)), nl=False)
        return
    reports = [release.json("leakage.json") for release in releases]
    parties = {name: entry for report in reports for name, entry in report.get("parties", {}).items()}
    facts = {
        "folders": list(folders),
        "files": sum(release.verified.files for release in releases),
        "model": releases[0].digest("model.json"),
        "signed by": {name: key.hex() for name, key in signers.items()},
        "cards that fit": checked,
        "protocols": reports[0].get("protocols", []),
        "unforeseen": sorted({label for report in reports for label in report.get("unforeseen", [])}),
        "parties": parties,
        "follows": list(dict.fromkeys(line for report in reports for line in report.get("follows", []))),
        "statement": {
            key: value
            for name in ("run.json", "statement.json")  # the first is there for sites that ran a study they had agreed on
            for key, value in releases[0].json(name).items()
            if key in _SHOWN
        },
    }
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    else:
        _show(facts, Console())
    if facts["unforeseen"]:
        raise DataError("something was opened that stands in no specification; do not use this release, and report it")


@command.command("sign")
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default="site.toml",
    show_default=True,
    help="The site's site.toml, or its folder.",
)
@click.option(
    "--passphrase-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File whose first line opens the site's keys.",
)
def sign(folder: str, config: Path, passphrase_file: Path | None) -> None:
    """Add this site's signature to a release folder.

    Signed is what is the same at every site that learned the result: model, card, explanation, plots, statement, study and
    run. This site must have a release of the same run of its own, with the same files; otherwise nothing is signed, and the
    file that differs is named.

    \b
    Example:
      blindbayes report sign release --config north
    """
    from blindbayes.cli.site import passphrase_of
    from blindbayes.site.folder import SiteFolder
    from blindbayes.storage.files import write_whole
    from blindbayes.transport.identity import Identity

    files = read_folder(folder)
    verify_files(files)
    study, run = _study_of(files), common_of(files).facts["run"]
    home = SiteFolder.open(config)
    identity = Identity.load(home.folder, passphrase=passphrase_of(passphrase_file))
    if identity.signing.public.hex() != study.party(identity.name).identity:
        raise ConfigError(f"the study names another key for {identity.name} than this site's; nothing was signed")
    own = home.folder / "releases" / home.runs.folder(str(run)).name
    if not own.is_dir():
        raise ConfigError(f"{identity.name} has no release of run {run}: it can sign only what it learned itself")
    signatures_of(files, common_of(files), _identities(study))  # nobody signs beside a wrong signature
    write_whole(
        Path(folder) / COMMON_SIGNATURES, signed_by(files, read_folder(own), identity.name, identity.signing), private=False
    )
    signed = signatures_of(read_folder(folder), common_of(files), _identities(study))
    click.echo(f"Signed by {identity.name}. Signatures in the folder: {', '.join(signed)}.")
    if missing := [name for name in study.names if name not in signed]:
        click.echo(f"Next: send it to {', '.join(missing)}, who signs likewise; `blindbayes report verify {folder}` checks.")


@command.command("verify")
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option("--everyone", is_flag=True, help="Fail unless every party of the study has signed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(folder: str, everyone: bool, as_json: bool) -> None:
    """Say who signed a release folder, and who of the study's parties did not.

    Every file is compared with the checksums, and every signature with the key that the study names for the party.

    \b
    Example:
      blindbayes report verify release --everyone
    """
    files = read_folder(folder)
    checked = verify_files(files)
    study, common = _study_of(files), common_of(files)
    signed = signatures_of(files, common, _identities(study))
    missing = [name for name in study.names if name not in signed]
    facts = {
        "title": study.title,
        "study": study.sha256,
        "run": common.facts["run"],
        "files": checked.files,
        "signed by": {name: study.party(name).identity for name in signed},
        "not signed by": missing,
        "common files": dict(common.digests),
    }
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    else:
        console = Console()
        for name, value in (("study", f"{study.title}  {study.sha256}"), ("run", facts["run"])):
            console.print(f"{name}: {value}", highlight=False, markup=False, soft_wrap=True)
        console.print(f"{checked.files} files are as they were released, {len(common.digests)} of them common to all sites.")
        for name in signed:
            shown = f"signed by {name}: {study.party(name).identity[:16]}… (the key in the study)"
            console.print(shown, highlight=False, markup=False)
        console.print(f"not signed by: {', '.join(missing) or 'nobody is missing'}", highlight=False, markup=False)
    if everyone and missing:
        raise DataError(f"{missing[0]} has not signed; send it the folder: blindbayes report sign {folder} --config ITS_FOLDER")


def _study_of(files: Mapping[str, bytes]) -> StudyFile:
    from blindbayes.study.file import StudyFile

    if "study.toml" not in files:
        raise ConfigError("the folder holds no study.toml: it is no release of a run between sites")
    try:
        study = StudyFile.from_text(files["study.toml"].decode())
    except UnicodeDecodeError:
        raise DataError("study.toml is not readable; ask for the release again") from None
    if study.sha256 != common_of(files).facts["study"]:
        raise DataError("study.toml is not the study of this run; ask for the release again")
    return study


def _identities(study: StudyFile) -> dict[str, bytes]:
    return {party.name: bytes.fromhex(party.identity) for party in study.parties}


_SHOWN = ("epsilon", "delta", "unit", "mechanism", "differential privacy", "title", "study", "run", "included", "codebook")


def _require_one_run(releases: list[_Release]) -> None:
    models = {digest_of("model.json", release.files["model.json"]) for release in releases if "model.json" in release.files}
    if len(models) > 1:
        raise DataError("the folders hold different model.json: they are not of one run, or one site was told another result")
    for name in ("run", "study"):  # the study by its hash: its file may carry more signatures at one site than at another
        if len({release.json("run.json").get(name) for release in releases if "run.json" in release.files}) > 1:
            part = "runs" if name == "run" else "studies"
            raise ConfigError(f"the folders are of different {part}; name those of one run")


def _require_cards(paths: tuple[str, ...], signers: Mapping[str, bytes]) -> list[str]:
    from blindbayes.transport.identity import Card

    names = []
    for path in paths:
        card = Card.from_toml(Path(path).read_text(encoding="utf-8"))
        if signers.get(card.name) != card.identity:
            raise DataError(f"no folder is signed with the key on the card of {card.name}; ask {card.name} for its release")
        names.append(card.name)
    return names


def _registry(release: _Release, path: Path) -> str:
    from blindbayes.privacy.statement import Deployment, PrivacyStatement

    if "epsilon" not in release.json("statement.json"):
        raise ConfigError("this release is not differentially private; the registry is for those that are")
    promise = PrivacyStatement.from_json(release.files["statement.json"].decode())
    names = {item.name for item in fields(Deployment)}
    found = read_toml(path.read_bytes(), path.name)
    if wrong := sorted(names ^ set(found)):
        raise ConfigError(f"{path.name}: {wrong[0]!r} is missing or unknown; it needs {', '.join(sorted(names))}")
    if not isinstance(found["published"], date) or isinstance(found["published"], datetime):
        raise ConfigError(f"{path.name}: published is a date, such as 2025-01-31")
    known: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    return promise.to_yaml(Deployment(**known))


def _show(facts: Mapping[str, Any], console: Console) -> None:
    console.print(f"[bold]{facts['files']} files are as they were released.[/]", highlight=False)
    if facts["signed by"]:
        for name, key in facts["signed by"].items():
            note = "the key on its card" if name in facts["cards that fit"] else "compare the key with its card, or use --card"
            console.print(f"signed by {name}: {key[:16]}… ({note})", highlight=False, markup=False)
    else:
        console.print("Not signed: a simulation in one process, or nobody signed.", highlight=False)
    if facts["model"]:
        console.print(f"model.json  {facts['model']}", highlight=False, soft_wrap=True)
    for key, value in facts["statement"].items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        console.print(f"{key}: {shown}", highlight=False, markup=False, soft_wrap=True)
    table = Table("party", "learned, in plain words", title="Who learned what", title_justify="left", show_lines=True)
    for name, entry in facts["parties"].items():
        table.add_row(_plain(name), _plain("\n".join(entry.get("in plain words", []))))
    console.print(table)
    for line in facts["follows"]:
        console.print(f"- {line}", highlight=False, markup=False)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
