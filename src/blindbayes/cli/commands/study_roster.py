"""`blindbayes study roster`: change the parties of a study without changing the study and its hash."""

from __future__ import annotations

from pathlib import Path

import click

from blindbayes.agent.store.folder import SiteFolder
from blindbayes.cli.options import JSON, STUDY, print_result
from blindbayes.errors import ConfigError
from blindbayes.io.files import write_whole
from blindbayes.net.identity import Identity, read_card
from blindbayes.study.file import StudyFile
from blindbayes.study.roster import Change, Party


@click.group(name="roster")
def roster() -> None:
    """Change the parties of a study without changing the study and its hash.

    Example:
      blindbayes study roster change study.toml --add east-card.toml
      blindbayes study sign study.toml --config north
      blindbayes site approve study.toml --hash HASH --config north
    """


@roster.command()
@STUDY
@click.option(
    "--add",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Card of a new site; once per site.",
)
@click.option("--remove", multiple=True, help="Name of a site that leaves; once per site.")
@click.option("--without-rows", multiple=True, help="New site without rows (it may host a role).")
@click.option("--host", "hosts", multiple=True, help="ROLE=SITE: move a role to another site.")
@click.option("--party-rows", type=int, help="With unit = party: new maximum number of rows per site.")
def change(
    path: Path,
    add: tuple[Path, ...],
    remove: tuple[str, ...],
    without_rows: tuple[str, ...],
    hosts: tuple[str, ...],
    party_rows: int | None,
) -> None:
    """Append a change of the roster to the STUDY. It takes effect once all parties have signed and approved it.

    Example:
      blindbayes study roster change study.toml --add east-card.toml --add west-card.toml --remove south
    """
    study = StudyFile.from_toml(path)
    cards = [read_card(card) for card in add]
    if unknown := sorted(set(without_rows) - {card.name for card in cards}):
        raise ConfigError(f"{unknown[0]!r} is not added by this change; --without-rows names a site of --add")
    moved = dict(each.partition("=")[::2] for each in hosts)
    came = tuple(Party(card.name, card.identity.hex(), card.name not in without_rows, card.key) for card in cards)
    study.require_changes()
    after = study.change(Change(study.roster.sha256, came, remove, moved, party_rows))
    after.task.require_runnable()
    write_whole(path.resolve(), after.to_toml().encode(), private=False)
    click.echo("\n".join(after.roster.describe(after.changes[-1])))


@roster.command()
@STUDY
@JSON
def show(path: Path, as_json: bool) -> None:
    """List all rosters of the STUDY: new sites, sites that left, missing signatures.

    Example:
      blindbayes study roster show study.toml
    """
    study = StudyFile.from_toml(path)
    pairs = list(zip(study.rosters[1:], study.changes, strict=True))
    changes = [{"roster": after.sha256, "missing": list(after.require_signed(each, complete=False))} for after, each in pairs]
    facts = {"study": study.sha256, "roster": study.roster.sha256, "parties": list(study.names), "changes": changes}
    first = f"study {study.sha256}: {', '.join(party.name for party in study.parties)}"
    print_result(facts, [first, *(line for after, each in pairs for line in after.describe(each))], as_json=as_json)


def sign_change(home: SiteFolder, identity: Identity, study: StudyFile, *, instead: bool) -> StudyFile:
    """Sign the newest change as this site. A second change of the same roster is signed only with `instead`."""
    now = study.roster
    if identity.name not in now.signers:
        raise ConfigError(f"change {now.number} of the roster needs no signature of this site; `blindbayes site approve` it")
    for each, change in zip(study.rosters[1:-1], study.changes[:-1], strict=True):
        each.require_signed(change)
    previous = study.changes[-1].previous
    signed_before = [entry for entry in home.audit.entries() if entry["event"] == "signed change" and entry["on"] == previous]
    if any(entry["roster"] != now.sha256 for entry in signed_before) and not instead:
        raise ConfigError(
            "this site signed another change of the same roster. If all parties agree to drop that one, pass --instead; both "
            "together would be two futures of one study"
        )
    signed = study.sign_change(identity.name, identity.signing)
    home.audit.append("signed change", study=study.sha256, on=previous, roster=now.sha256)
    return signed
