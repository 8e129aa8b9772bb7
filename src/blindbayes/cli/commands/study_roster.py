"""`blindbayes study roster`: sites that come to a study or leave it. The study and its hash stay."""

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
    """Sites that come to a study or leave it; the study and its hash stay.

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
    help="The card of a site that comes; once per site.",
)
@click.option("--remove", multiple=True, help="The name of a site that leaves; once per site.")
@click.option("--without-rows", multiple=True, help="A site that comes and brings no rows (and may host a role).")
@click.option("--host", "hosts", multiple=True, help="ROLE=SITE: a role that moves to another site.")
@click.option("--party-rows", type=int, help="With unit = party: the largest number of rows of a site from now on.")
def change(
    path: Path,
    add: tuple[Path, ...],
    remove: tuple[str, ...],
    without_rows: tuple[str, ...],
    hosts: tuple[str, ...],
    party_rows: int | None,
) -> None:
    """Write a change of the roster into the STUDY, on top of the newest. It counts once all have signed and approved it.

    Example:
      blindbayes study roster change study.toml --add east-card.toml --add west-card.toml --remove south
    """
    study = StudyFile.from_toml(path)
    cards = [read_card(card) for card in add]
    if strange := sorted(set(without_rows) - {card.name for card in cards}):
        raise ConfigError(f"{strange[0]!r} does not come with this change; --without-rows names a site of --add")
    moved = dict(each.partition("=")[::2] for each in hosts)
    came = tuple(
        Party(card.name, card.identity.hex(), card.name not in without_rows, card.agreement.hex() or None) for card in cards
    )
    study.require_changes()
    after = study.change(Change(study.roster.sha256, came, remove, moved, party_rows))
    after.study.scheme.require_runnable(after.agreement)
    write_whole(path.resolve(), after.to_toml().encode(), private=False)
    click.echo("\n".join(after.roster.told(after.changes[-1])))


@roster.command()
@STUDY
@JSON
def show(path: Path, as_json: bool) -> None:
    """Every roster that the STUDY had: who came, who left, who has not signed.

    Example:
      blindbayes study roster show study.toml
    """
    study = StudyFile.from_toml(path)
    pairs = list(zip(study.rosters[1:], study.changes, strict=True))
    told = [{"roster": after.sha256, "missing": list(after.require_signed(each, complete=False))} for after, each in pairs]
    facts = {"study": study.sha256, "roster": study.roster.sha256, "parties": list(study.names), "changes": told}
    first = f"study {study.sha256}: {', '.join(party.name for party in study.parties)}"
    print_result(facts, [first, *(line for after, each in pairs for line in after.told(each))], as_json=as_json)


def sign_change(home: SiteFolder, identity: Identity, study: StudyFile, *, instead: bool) -> StudyFile:
    """Sign the newest change as this site. Two changes of one roster are signed only if its people say that one is dropped."""
    now = study.roster
    if identity.name not in now.signers:
        raise ConfigError(f"change {now.number} of the roster needs no signature of this site; `blindbayes site approve` it")
    for each, change in zip(study.rosters[1:-1], study.changes[:-1], strict=True):
        each.require_signed(change)
    previous = study.changes[-1].previous
    said = [entry for entry in home.audit.entries() if entry["event"] == "signed change" and entry["on"] == previous]
    if any(entry["roster"] != now.sha256 for entry in said) and not instead:
        raise ConfigError(
            "this site signed another change of the same roster. If all agree that it is dropped, say --instead; two that both "
            "count would be two futures of one study"
        )
    signed = study.sign_change(identity.name, identity.signing)
    home.audit.append("signed change", study=study.sha256, on=previous, roster=now.sha256)
    return signed
