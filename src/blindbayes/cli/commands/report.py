"""`blindbayes report`: check a release folder, say who learned what, sign it, say who signed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.markup import escape
from rich.table import Table

from blindbayes.agent.approvals.summary import learners_of
from blindbayes.agent.runs.release import check_release, study_of
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.cli import print_json
from blindbayes.cli.options import HOME, JSON, PASSPHRASE, print_result, read_passphrase
from blindbayes.cli.screen import Screen
from blindbayes.errors import ConfigError, DataError
from blindbayes.io.files import read_folder
from blindbayes.io.untrusted import read_json_table, read_limited, read_toml, well_formed
from blindbayes.report.checksums import Verified, verify_files
from blindbayes.report.manifest import COMMON_SIGNATURES, common_of, digest_of, signatures_of, signed_by

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

    Example:
      blindbayes report demo/exact/north demo/exact/south
      blindbayes report sign release --config north
      blindbayes report verify release
    """


@command.command("show")
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True))
@click.option(
    "--card", "cards", multiple=True, type=click.Path(exists=True, dir_okay=False), help="Card of a site that must have signed."
)
@click.option(
    "--registry",
    type=click.Path(exists=True, dir_okay=False),
    help="TOML with the publisher's facts: print the record for the OpenDP Deployments Registry instead.",
)
@JSON
def show(folders: tuple[str, ...], cards: tuple[str, ...], registry: str | None, as_json: bool) -> None:
    """Check release folders and say who learned what. The word `show` may be left out.

    Every file is compared with the checksums and every signature is checked. Several folders are those of several sites
    of one run: their models must be the same. With --card, that site must have signed, with the key on its card.

    Example:
      blindbayes report show demo/exact/north demo/exact/south --card north.toml
      blindbayes report demo/private/north --registry publisher.toml > statement.yaml
      blindbayes report model.json
    """
    if files := [name for name in folders if not Path(name).is_dir()]:
        _show_model(files[0], as_json, alone=len(folders) == 1 and not cards and registry is None)
        return
    releases = [
        _Release(folder, files, verify_files(files)) for folder, files in ((name, read_folder(name)) for name in folders)
    ]
    _require_one_run(releases)
    signers = {name: key for release in releases for name, key in release.verified.signers.items()}
    checked = _require_cards(cards, signers)
    if registry is not None:
        click.echo(_registry(releases[0], Path(registry)), nl=False)
        return
    with well_formed("what the release says of itself", error=DataError):
        unforeseen = _show_releases(releases, signers, checked, as_json)
    if unforeseen:
        raise DataError("something was opened that stands in no specification; do not use this release, and report it")


def _show_releases(releases: list[_Release], signers: Mapping[str, bytes], checked: list[str], as_json: bool) -> bool:
    """Who learned what; whether something was opened that stands in no specification."""
    reports = [release.json("leakage.json") for release in releases]
    parties = {name: entry for report in reports for name, entry in report.get("parties", {}).items()}
    facts = {
        "folders": [release.folder for release in releases],
        "files": sum(release.verified.files for release in releases),
        "model": releases[0].digest("model.json"),
        "signed by": {name: key.hex() for name, key in signers.items()},
        "cards that fit": checked,
        "protocols": reports[0].get("protocols", []),
        "unforeseen": sorted({str(label) for report in reports for label in report.get("unforeseen", [])}),
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
        print_json(facts)
    else:
        _show(facts, Screen())
    return bool(facts["unforeseen"])


def _show_model(path: str, as_json: bool, *, alone: bool) -> None:
    """A model file by itself: what it promises. Nothing vouches for it."""
    from blindbayes.naive_bayes.load import load
    from blindbayes.naive_bayes.release import NO_PROMISE

    if not alone:
        raise ConfigError(f"{Path(path).name!r} is a file: several folders, cards and the registry are for release folders")
    model = load(path)
    privacy = getattr(model, "privacy_", None)
    statement = model.statement_ if privacy is not None and "statement" in privacy else None
    if privacy is not None and statement is None:
        text = "The file says that noise was added, and holds no statement of what that promises.\n"
    else:
        text = NO_PROMISE if statement is None else statement.text
    note = (
        "Nobody vouches for what the file says of itself: a model file carries no checksums and no signature; "
        "`blindbayes train --release` writes a folder that does."
    )
    promised = None if statement is None else statement.to_dict()
    facts = {"model": path, "codebook": model.approved_codebook_, "statement": promised}
    print_result(facts, [note, text], as_json=as_json)


@command.command("cover")
def cover() -> None:
    """Print a cover file to be filled in: title, owner, and what a data protection officer is asked for.

    Example:
      blindbayes report cover > cover.toml
      blindbayes train visits.csv --codebook codebook.toml --release release --cover cover.toml --epsilon 1
    """
    from blindbayes.report.cover_sheet import cover_template

    click.echo(cover_template(), nl=False)


@command.command("sign")
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@HOME
@PASSPHRASE
def sign(folder: str, home: SiteFolder, passphrase_file: Path | None) -> None:
    """Add this site's signature to a release folder.

    Signed is what is the same at every site that learned the result: model, card, explanation, plots, statement, what the
    leak report claims, study and run. This site must have a release of the same run of its own, with the same files;
    otherwise nothing is signed, and the file that differs is named.

    Example:
      blindbayes report sign release --config north
    """
    from blindbayes.io.files import write_whole
    from blindbayes.net.identity import Identity

    files = read_folder(folder)
    verify_files(files)
    study, run = study_of(files), common_of(files).facts["run"]
    identity = Identity.load(home.folder, passphrase=read_passphrase(passphrase_file))
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
    if missing := [name for name in learners_of(study) if name not in signed]:
        click.echo(f"Next: send it to {', '.join(missing)}, who signs likewise; `blindbayes report verify {folder}` checks.")


@command.command("verify")
@click.argument("folder", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--card", "cards", multiple=True, type=click.Path(exists=True, dir_okay=False), help="A site's card; once per site."
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default="site.toml",
    show_default=True,
    help="Your site's site.toml, or its folder: its own card and its pins count like --card.",
)
@click.option("--everyone", is_flag=True, help="Fail too for a folder without a result, which only its maker signs.")
@click.option("--partial", is_flag=True, help="Do not fail for signatures and receipts that are missing.")
@JSON
def verify(folder: str, cards: tuple[str, ...], config: Path, everyone: bool, partial: bool, as_json: bool) -> None:
    """Say for every file of a release folder who vouches for it.

    Every file is compared with the checksums, and every signature with the cards that you bring or your site has pinned: the
    keys in the folder itself count for nothing. It fails if the site that made the folder did not sign it, if a party that
    learns the result by the study has not signed what is common to all, or if a party that the release names has signed no
    receipt of having taken part in the run. For a folder without a result (a site's part in a run, or its classes) it says
    that nobody but its maker vouches for anything. A simulation, or a release of one table, has no sites that could.

    Example:
      blindbayes report verify release --card north.toml --card south.toml --card west.toml
      blindbayes report verify release --config north
    """
    if everyone and partial:
        raise ConfigError("--everyone and --partial exclude each other")
    files = read_folder(folder)
    verify_files(files)
    study, found = check_release(files, _keys(cards, config))
    facts = {
        "title": study.title,
        "study": study.sha256,
        "run": found.common.facts["run"],
        "files": found.verified.files,
        "made by": list(found.makers),
        "signed by": {name: study.party(name).identity for name in found.signed},
        "not signed by": list(found.missing),
        "nobody but": list(found.alone),
        "receipts of": list(found.receipts),
        "no receipt of": list(found.no_receipt),
        "not in the result": list(found.left_out),
        "no card of": list(found.unknown),
        "common files": dict(found.common.digests),
        "vouched for by": {name: list(who) for name, who in found.files.items()},
        "not covered by all": list(found.not_covered),
    }
    if as_json:
        print_json(facts)
    else:
        _show_vouched(facts, Screen())
    if found.alone and everyone:
        raise DataError(
            f"nobody but {', '.join(found.alone)} vouches for anything here, and --everyone asks for all who learned"
        )
    if found.missing and not partial:
        name = found.missing[0]
        if name in found.unknown:
            raise DataError(f"{name} signed, and you brought no card of {name}: add --card, or --partial to go without")
        raise DataError(f"{name} has not signed; send it the folder: blindbayes report sign {folder} --config ITS_FOLDER")
    if found.no_receipt and not partial:
        name = found.no_receipt[0]
        raise DataError(
            f"{name} is named in this release and there is no receipt, confirmed by a card of yours, that it took part in the "
            f"run: add --card of {name}, ask another site of the run for its folder, or ask {name} whether it knows the run"
        )


def _keys(cards: tuple[str, ...], config: Path) -> dict[str, bytes]:
    """The keys that the reader brings: cards, and what its own site has pinned."""
    from blindbayes.net.identity import pinned, read_card

    found = [read_card(Path(path)) for path in cards]
    home = config if config.is_dir() else config.parent
    if (home / "site.toml").is_file() and (home / "card.toml").is_file():
        found += [read_card(home / "card.toml"), *pinned(home).values()]
    elif config != Path("site.toml"):
        raise ConfigError(f"there is no site in {config.name!r}; name its folder, or its site.toml")
    keys: dict[str, bytes] = {}
    for card in found:
        if keys.setdefault(card.name, card.identity) != card.identity:
            raise ConfigError(f"two cards of {card.name} have different keys; ask {card.name} which one is its own")
    return keys


def _show_vouched(facts: Mapping[str, Any], screen: Screen) -> None:
    def line(text: str) -> None:
        screen.print(text, highlight=False, markup=False, soft_wrap=True)

    line(f"study: {facts['title']}  {facts['study']}")
    line(f"run: {facts['run']}")
    if facts["nobody but"]:
        line(f"{facts['files']} files are as {', '.join(facts['nobody but'])} wrote them.")
        line(facts["not covered by all"].pop())
    else:
        line(f"{facts['files']} files are as they were released, {len(facts['common files'])} of them common to all sites.")
    line(f"made by {', '.join(facts['made by'])}")
    for name, key in facts["signed by"].items():
        line(f"signed by {name}: {key[:16]}… (the key on its card)")
    if not facts["nobody but"]:
        line(f"not signed by: {', '.join(facts['not signed by']) or 'nobody is missing'}")
        line(f"took part in the run, by their own receipts: {', '.join(facts['receipts of']) or 'nobody'}")
        if facts["no receipt of"]:
            line(f"named, without a receipt: {', '.join(facts['no receipt of'])}")
        if facts["not in the result"]:
            line(f"named by the study, not in the result: {', '.join(facts['not in the result'])}")
    if facts["no card of"]:
        line(f"signed, but you brought no card, so it does not count: {', '.join(facts['no card of'])}")
    table = Table("file", "who vouches for it")
    for name, who in facts["vouched for by"].items():
        table.add_row(escape(name), escape(", ".join(who)))
    screen.print(table)
    for sentence in facts["not covered by all"]:
        line(sentence)


def _identities(study: StudyFile) -> dict[str, bytes]:
    return {party.name: bytes.fromhex(party.identity) for party in study.members}


_SHOWN = ("epsilon", "delta", "unit", "mechanism", "differential privacy", "title", "study", "run", "included", "codebook")


def _require_one_run(releases: list[_Release]) -> None:
    models = {digest_of("model.json", release.files["model.json"]) for release in releases if "model.json" in release.files}
    if len(models) > 1:
        raise DataError("the folders hold different model.json: they are not of one run, or one site was told another result")
    for name in ("run", "study"):  # the study by its hash: its file may carry more signatures at one site than at another
        if len({str(release.json("run.json").get(name)) for release in releases if "run.json" in release.files}) > 1:
            part = "runs" if name == "run" else "studies"
            raise ConfigError(f"the folders are of different {part}; name those of one run")


def _require_cards(paths: tuple[str, ...], signers: Mapping[str, bytes]) -> list[str]:
    from blindbayes.net.identity import read_card

    names = []
    for path in paths:
        card = read_card(Path(path))
        if signers.get(card.name) != card.identity:
            raise DataError(f"no folder is signed with the key on the card of {card.name}; ask {card.name} for its release")
        names.append(card.name)
    return names


def _registry(release: _Release, path: Path) -> str:
    from blindbayes.dp.accounting.statement import Deployment, PrivacyStatement

    if "epsilon" not in release.json("statement.json"):
        raise ConfigError("this release is not differentially private; the registry is for those that are")
    promise = PrivacyStatement.from_json(release.files["statement.json"].decode())
    names = {item.name for item in fields(Deployment)}
    found = read_toml(read_limited(path), path.name)
    if wrong := sorted(names ^ set(found)):
        raise ConfigError(f"{path.name}: {wrong[0]!r} is missing or unknown; it needs {', '.join(sorted(names))}")
    if not isinstance(found["published"], date) or isinstance(found["published"], datetime):
        raise ConfigError(f"{path.name}: published is a date, such as 2025-01-31")
    known: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
    return promise.to_yaml(Deployment(**known))


def _show(facts: Mapping[str, Any], console: Screen) -> None:
    console.print(f"[bold]{facts['files']} files are as they were released.[/]", highlight=False)
    if facts["signed by"]:
        for name, key in facts["signed by"].items():
            note = "the key on its card" if name in facts["cards that fit"] else "compare the key with its card, or use --card"
            console.print(f"signed by {name}: {key[:16]}… ({note})", highlight=False, markup=False)
        console.print(
            "Who took part stands here on the word of whoever signed: `blindbayes report verify` asks all others too.",
            highlight=False,
            soft_wrap=True,
        )
    else:
        console.print("Not signed: a simulation in one process, or nobody signed.", highlight=False)
    if facts["model"]:
        console.print(f"model.json  {facts['model']}", highlight=False, soft_wrap=True)
    for key, value in facts["statement"].items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        console.print(f"{key}: {shown}", highlight=False, markup=False, soft_wrap=True)
    table = Table("party", "learned, in plain words", title="Who learned what", title_justify="left", show_lines=True)
    for name, entry in facts["parties"].items():
        table.add_row(escape(name), escape("\n".join(entry.get("in plain words", []))))
    console.print(table)
    for line in facts["follows"]:
        console.print(f"- {line}", highlight=False, markup=False)
