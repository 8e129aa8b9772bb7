"""`blindbayes report`: verify release folders, show who learned what, sign. `report_documents` adds what is made from them."""

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
from blindbayes.crypto.signatures import PUBLIC_BYTES
from blindbayes.errors import ConfigError, DataError
from blindbayes.io.files import read_folder
from blindbayes.io.untrusted import read_json_table, read_limited, read_toml, well_formed
from blindbayes.report.checksums import Verified, verify_files
from blindbayes.report.manifest import COMMON_SIGNATURES, add_signature, digest_of, read_manifest, verified_signatures

if TYPE_CHECKING:
    from blindbayes.report.verification import Verification
    from blindbayes.study.file import StudyFile

_FOLDER = click.argument("folder", type=click.Path(exists=True, file_okay=False))
_CARD_FILE = click.Path(exists=True, dir_okay=False)
_STATEMENT = ("epsilon", "delta", "unit", "mechanism", "differential privacy", "title", "study", "run", "included", "codebook")


@dataclass(frozen=True)
class _Release:
    folder: str
    files: Mapping[str, bytes]
    verified: Verified

    def json(self, name: str) -> dict[str, Any]:
        if name not in self.files:
            return {}
        return read_json_table(self.files[name], name, error=DataError, hint="ask for the release again")


class _Report(click.Group):
    """A group in which `report FOLDER` means `report show FOLDER`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = ["show", *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        return super().resolve_command(ctx, args if args[0] in self.commands else ["show", *args])


@click.command(cls=_Report)
def command() -> None:
    """Verify a release folder and show who learned what; sign it; list who signed.

    `report FOLDER` is short for `report show FOLDER`.

    Example:
      blindbayes report demo/exact/north demo/exact/south
      blindbayes report sign release --config north
      blindbayes report verify release
    """


@command.command("show")
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--card", "cards", multiple=True, type=_CARD_FILE, help="Card of a site that must have signed.")
@click.option(
    "--registry",
    type=_CARD_FILE,
    help="TOML with the publisher's facts: print the record for the OpenDP Deployments Registry instead.",
)
@JSON
def show(folders: tuple[str, ...], cards: tuple[str, ...], registry: str | None, as_json: bool) -> None:
    """Verify release folders and show who learned what. `show` may be omitted.

    Every file is compared with the checksums and every signature is verified. Several folders must be of one run, and their
    models must be the same. With --card, that site must have signed with the key on its card.

    Example:
      blindbayes report show demo/exact/north demo/exact/south --card north.toml
      blindbayes report demo/private/north --registry publisher.toml > statement.yaml
      blindbayes report model.json
    """
    if paths := [name for name in folders if not Path(name).is_dir()]:
        if len(folders) > 1 or cards or registry is not None:
            raise ConfigError(f"{Path(paths[0]).name!r} is a file: several folders, cards and the registry are for folders")
        _show_model(paths[0], as_json)
        return
    contents = [(name, read_folder(name)) for name in folders]
    releases = [_Release(name, files, verify_files(files)) for name, files in contents]
    _require_one_run(releases)
    signers = {name: key for release in releases for name, key in release.verified.signers.items()}
    checked = _require_cards(cards, signers)
    if registry is not None:
        click.echo(_registry(releases[0], Path(registry)), nl=False)
        return
    with well_formed("the contents of the release", error=DataError):
        facts = _facts(releases, signers, checked)
        if as_json:
            print_json(facts)
        else:
            _print_facts(facts, Screen())
    if facts["unforeseen"]:
        raise DataError("something was opened that no specification names; do not use this release, and report it")


def _facts(releases: list[_Release], signers: Mapping[str, bytes], checked: list[str]) -> dict[str, Any]:
    reports = [release.json("leakage.json") for release in releases]
    model = releases[0].files.get("model.json")
    return {
        "folders": [release.folder for release in releases],
        "files": sum(release.verified.files for release in releases),
        "model": None if model is None else hashlib.sha256(model).hexdigest(),
        "signed by": {name: key[:PUBLIC_BYTES].hex() for name, key in signers.items()},
        "cards that fit": checked,
        "protocols": reports[0].get("protocols", []),
        "unforeseen": sorted({str(label) for report in reports for label in report.get("unforeseen", [])}),
        "parties": {name: entry for report in reports for name, entry in report.get("parties", {}).items()},
        "follows": list(dict.fromkeys(line for report in reports for line in report.get("follows", []))),
        "statement": {
            key: value
            for name in ("run.json", "statement.json")  # run.json exists for runs between sites
            for key, value in releases[0].json(name).items()
            if key in _STATEMENT
        },
    }


def _print_facts(facts: Mapping[str, Any], screen: Screen) -> None:
    screen.print(f"[bold]{facts['files']} files are as they were released.[/]", highlight=False)
    for name, key in facts["signed by"].items():
        note = "the key on its card" if name in facts["cards that fit"] else "compare the key with its card, or use --card"
        screen.line(f"signed by {name}: {key[:16]}… ({note})")
    if facts["signed by"] and facts["parties"]:
        screen.line("Only the signers state who took part here: `blindbayes report verify` checks all other parties too.")
    elif not facts["signed by"]:
        signing = "`blindbayes train --release FOLDER --sign SITE` signs a release of one table"
        screen.line("Not signed: a simulation in one process." if facts["parties"] else f"Not signed; {signing}.")
    if facts["model"]:
        screen.line(f"model.json  {facts['model']}")
    for key, value in facts["statement"].items():
        screen.line(f"{key}: {', '.join(map(str, value)) if isinstance(value, list) else value}")
    if facts["parties"]:
        table = Table("party", "learned, in plain words", title="Who learned what", title_justify="left", show_lines=True)
        for name, entry in facts["parties"].items():
            table.add_row(escape(name), escape("\n".join(entry.get("in plain words", []))))
        screen.print(table)
    for line in facts["follows"]:
        screen.print(f"- {line}", highlight=False, markup=False)


def _show_model(path: str, as_json: bool) -> None:
    """Show the privacy statement in a model file."""
    from blindbayes import load
    from blindbayes.naive_bayes.release import NO_PROMISE

    model = load(path)
    privacy = getattr(model, "privacy_", None)
    statement = model.statement_ if privacy is not None and "statement" in privacy else None
    if privacy is not None and statement is None:
        text = "The file says that noise was added, and holds no privacy statement.\n"
    else:
        text = NO_PROMISE if statement is None else statement.text
    note = (
        "Nothing confirms the contents of this file: a model file carries no checksums and no signature; "
        "`blindbayes train --release` writes a folder that does."
    )
    promised = None if statement is None else statement.to_dict()
    facts = {"model": path, "codebook": model.approved_codebook_, "statement": promised}
    print_result(facts, [note, text], as_json=as_json)


@command.command("cover")
def cover() -> None:
    """Print a cover sheet to fill in: title, owner, and the fields of a data protection officer.

    Example:
      blindbayes report cover > cover.toml
      blindbayes train visits.csv --codebook codebook.toml --release release --cover cover.toml --epsilon 1
    """
    from blindbayes.report.cover_sheet import cover_template

    click.echo(cover_template(), nl=False)


@command.command("sign")
@_FOLDER
@HOME
@PASSPHRASE
def sign(folder: str, home: SiteFolder, passphrase_file: Path | None) -> None:
    """Add this site's signature to a release folder.

    The signature covers what is the same at every site that learned the result: model, card, explanation, plots, statement,
    claims of the leak report, study and run. This site must have its own release of the same run with the same files;
    otherwise nothing is signed, and the file that differs is named.

    Example:
      blindbayes report sign release --config north
    """
    from blindbayes.io.files import write_whole
    from blindbayes.net.identity import Identity

    files = read_folder(folder)
    verify_files(files)
    study, manifest = study_of(files), read_manifest(files)
    run, identities = manifest.facts["run"], study.identities
    identity = Identity.load(home.folder, passphrase=read_passphrase(passphrase_file))
    if identity.signing.public.hex() != study.party(identity.name).identity:
        raise ConfigError(f"the study names another key for {identity.name} than this site's; nothing was signed")
    own = home.folder / "releases" / home.runs.folder(str(run)).name
    if not own.is_dir():
        raise ConfigError(f"{identity.name} has no release of run {run}: it can sign only what it learned itself")
    verified_signatures(files, manifest, identities)  # raises: a site does not sign beside a wrong signature
    signatures = add_signature(files, read_folder(own), identity.name, identity.signing)
    write_whole(Path(folder) / COMMON_SIGNATURES, signatures, private=False)
    signed = verified_signatures(read_folder(folder), manifest, identities)
    click.echo(f"Signed by {identity.name}. Signatures in the folder: {', '.join(signed)}.")
    if missing := [name for name in learners_of(study) if name not in signed]:
        click.echo(
            f"Next: send it to {', '.join(missing)} to sign in the same way; `blindbayes report verify {folder}` checks."
        )


@command.command("verify")
@_FOLDER
@click.option("--card", "cards", multiple=True, type=_CARD_FILE, help="Card of a site; once per site.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default="site.toml",
    show_default=True,
    help="Your site's site.toml or folder: its own card and its pins count like --card.",
)
@click.option("--everyone", is_flag=True, help="Also fail for a folder without a result, which only its maker signs.")
@click.option("--partial", is_flag=True, help="Do not fail for missing signatures and receipts.")
@JSON
def verify(folder: str, cards: tuple[str, ...], config: Path, everyone: bool, partial: bool, as_json: bool) -> None:
    """List for every file of a release folder who vouches for it.

    Every file is compared with the checksums, and every signature with the cards that you bring or your site has pinned: the
    keys in the folder itself do not count. The command fails if the maker of the folder did not sign it, if a party that
    learns the result by the study has not signed the common files, or if a party that the release names has signed no
    receipt of the run. For a folder without a result (a site's part in a run, or its classes) only the maker can vouch. For
    a release of one table its maker vouches (`train --release --sign`); for a simulation in one process nobody can.

    Example:
      blindbayes report verify release --card north.toml --card south.toml --card west.toml
      blindbayes report verify release --config north
    """
    if everyone and partial:
        raise ConfigError("--everyone and --partial exclude each other")
    files = read_folder(folder)
    verified = verify_files(files)
    if "study.toml" not in files and "model.json" in files:
        _verify_alone(files, verified, _keys(cards, config), partial=partial, as_json=as_json)
        return
    study, verification = check_release(files, _keys(cards, config))
    if as_json:
        print_json(_verification_facts(study, verification))
    else:
        _print_verification(study, verification, Screen())
    _require_complete(verification, folder, everyone=everyone, partial=partial)


def _verify_alone(
    files: Mapping[str, bytes], verified: Verified, keys: Mapping[str, bytes], *, partial: bool, as_json: bool
) -> None:
    """Verify a release that no run between sites made: of one table, or of a simulation in one process."""
    kind = "a simulation in one process" if "leakage.json" in files else "a release of one table"
    forged = [name for name, key in verified.signers.items() if keys.get(name, key) != key]
    if forged:
        raise DataError(f"the folder is signed as {forged[0]} with another key than on its card; do not rely on this folder")
    vouching = [name for name in verified.signers if name in keys]
    unknown = [name for name in verified.signers if name not in keys]
    facts = {"kind": kind, "files": verified.files, "signed by": vouching, "no card of": unknown}
    lines = [f"{kind}: {verified.files} files are as they were written"]
    lines += [f"signed by {name}: {verified.signers[name].hex()[:16]}… (the key on its card)" for name in vouching]
    print_result(facts, lines, as_json=as_json)
    if vouching or partial:
        return
    if unknown:
        raise DataError(f"{unknown[0]} signed, and you brought no card of {unknown[0]}: add --card, or --partial to go without")
    if "leakage.json" in files:
        raise DataError(
            "no site took part in this release: nobody vouches for a simulation. Its checksums fit; --partial accepts that"
        )
    raise DataError("nobody signed this release; `train --release FOLDER --sign SITE` signs it, and --partial goes without")


def _verification_facts(study: StudyFile, verification: Verification) -> dict[str, Any]:
    return {
        "title": study.title,
        "study": study.sha256,
        "run": verification.manifest.facts["run"],
        "files": verification.verified.files,
        "made by": list(verification.makers),
        "signed by": {name: study.party(name).identity for name in verification.signed},
        "not signed by": list(verification.missing),
        "nobody but": list(verification.alone),
        "receipts of": list(verification.receipts),
        "no receipt of": list(verification.no_receipt),
        "not in the result": list(verification.left_out),
        "no card of": list(verification.unknown),
        "common files": dict(verification.manifest.digests),
        "vouched for by": {name: list(who) for name, who in verification.files.items()},
        "not covered by all": list(verification.not_covered),
    }


def _print_verification(study: StudyFile, verification: Verification, screen: Screen) -> None:
    makers, count = ", ".join(verification.makers), verification.verified.files
    lines = [f"study: {study.title}  {study.sha256}", f"run: {verification.manifest.facts['run']}"]
    if verification.alone:
        lines += [f"{count} files are as {makers} wrote them.", *verification.not_covered]
    else:
        common = len(verification.manifest.digests)
        lines.append(f"{count} files are as they were released, {common} of them common to all sites.")
    lines.append(f"made by {makers}")
    lines += [f"signed by {name}: {study.party(name).identity[:16]}… (the key on its card)" for name in verification.signed]
    if not verification.alone:
        lines.append(f"not signed by: {', '.join(verification.missing) or 'nobody is missing'}")
        lines.append(f"took part in the run, by their own receipts: {', '.join(verification.receipts) or 'nobody'}")
    for title, names in (
        ("named, without a receipt", verification.no_receipt),
        ("named by the study, not in the result", verification.left_out),
        ("signed, but you brought no card, so it does not count", verification.unknown),
    ):
        if names:
            lines.append(f"{title}: {', '.join(names)}")
    for line in lines:
        screen.line(line)
    table = Table("file", "who vouches for it")
    for name, who in verification.files.items():
        table.add_row(escape(name), escape(", ".join(who)))
    screen.print(table)
    for line in () if verification.alone else verification.not_covered:
        screen.line(line)


def _require_complete(verification: Verification, folder: str, *, everyone: bool, partial: bool) -> None:
    """Raise for missing signatures and receipts, as the options ask."""
    if verification.alone and everyone:
        raise DataError(
            f"nobody but {', '.join(verification.alone)} vouches for this folder, and --everyone asks for all who learned"
        )
    if partial:
        return
    if verification.missing:
        name = verification.missing[0]
        if name in verification.unknown:
            raise DataError(f"{name} signed, and you brought no card of {name}: add --card, or --partial to go without")
        raise DataError(f"{name} has not signed; send it the folder: blindbayes report sign {folder} --config ITS_FOLDER")
    if verification.no_receipt:
        name = verification.no_receipt[0]
        raise DataError(
            f"{name} is named in this release and there is no receipt, confirmed by a card of yours, that it took part in the "
            f"run: add --card of {name}, ask another site of the run for its folder, or ask {name} whether it knows the run"
        )


def _keys(cards: tuple[str, ...], config: Path) -> dict[str, bytes]:
    """Return the keys that the reader brings: cards, and the pins of its own site."""
    from blindbayes.net.identity import pinned, read_card

    known = [read_card(Path(path)) for path in cards]
    home = config if config.is_dir() else config.parent
    if (home / "site.toml").is_file() and (home / "card.toml").is_file():
        known += [read_card(home / "card.toml"), *pinned(home).values()]
    elif config != Path("site.toml"):
        raise ConfigError(f"there is no site in {config.name!r}; name its folder, or its site.toml")
    keys: dict[str, bytes] = {}
    for card in known:
        if keys.setdefault(card.name, card.lasting_public) != card.lasting_public:
            raise ConfigError(f"two cards of {card.name} have different keys; ask {card.name} which one is its own")
    return keys


def _require_one_run(releases: list[_Release]) -> None:
    models = {digest_of("model.json", release.files["model.json"]) for release in releases if "model.json" in release.files}
    if len(models) > 1:
        raise DataError("the folders hold different model.json: they are not of one run, or one site got another result")
    for name in ("run", "study"):  # the study by its hash: its file may carry more signatures at one site than at another
        if len({str(release.json("run.json").get(name)) for release in releases if "run.json" in release.files}) > 1:
            part = "runs" if name == "run" else "studies"
            raise ConfigError(f"the folders are of different {part}; name those of one run")


def _require_cards(paths: tuple[str, ...], signers: Mapping[str, bytes]) -> list[str]:
    from blindbayes.net.identity import read_card

    cards = [read_card(Path(path)) for path in paths]
    for card in cards:
        if signers.get(card.name) != card.lasting_public:
            raise DataError(f"no folder is signed with the key on the card of {card.name}; ask {card.name} for its release")
    return [card.name for card in cards]


def _registry(release: _Release, path: Path) -> str:
    from blindbayes.dp.accounting.statement import Deployment, PrivacyStatement

    if "epsilon" not in release.json("statement.json"):
        raise ConfigError("this release is not differentially private; the registry is for those that are")
    statement = PrivacyStatement.from_json(release.files["statement.json"].decode())
    names = {item.name for item in fields(Deployment)}
    table = read_toml(read_limited(path), path.name)
    if wrong := sorted(names ^ set(table)):
        raise ConfigError(f"{path.name}: {wrong[0]!r} is missing or unknown; it needs {', '.join(sorted(names))}")
    if not isinstance(table["published"], date) or isinstance(table["published"], datetime):
        raise ConfigError(f"{path.name}: published is a date, such as 2025-01-31")
    known: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    return statement.to_yaml(Deployment(**known))


import blindbayes.cli.commands.report_documents  # noqa: E402, F401 - it adds its commands
