"""`blindbayes site backup`, `restore`, `acknowledge`."""

from __future__ import annotations

from pathlib import Path

import click

from blindbayes.cli.options import AS, FILE, HOME, NEW_FOLDER, passphrase_of
from blindbayes.cli.site import command
from blindbayes.site.folder import SiteFolder

_PASSPHRASE = click.option(
    "--passphrase-file", type=FILE, required=True, help="File whose first line seals the backup; keep it elsewhere."
)


@command.command()
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@_PASSPHRASE
@AS
@HOME
def backup(out: Path, passphrase_file: Path, who: str | None, home: SiteFolder) -> None:
    """Write the site's folder to OUT, sealed with a passphrase; the agent may run. Rows and runs under way stay out.

    Example:
      blindbayes site backup north.backup --passphrase-file backup.pass --config north
    """
    from blindbayes.site.backup import backup

    count = backup(home, out, passphrase_of(passphrase_file) or "", who=who)
    click.echo(f"Wrote {count} files to {out}. Who has it and the passphrase is this site.")


@command.command()
@click.argument("file", type=FILE)
@click.argument("folder", type=NEW_FOLDER)
@_PASSPHRASE
def restore(file: Path, folder: Path, passphrase_file: Path) -> None:
    """Bring the backup FILE back into a new FOLDER. Stop the old agent for good before.

    Nothing runs there until its people say what is known of the time since the backup (`site acknowledge`), and approvals are
    taken back. Sites that met this one since refuse it until their people say `site forget`. Killed, it leaves no site.

    Example:
      blindbayes site restore north.backup north --passphrase-file backup.pass
    """
    from blindbayes.site.backup import restore

    home = restore(file, folder, passphrase_of(passphrase_file) or "")
    restored = home.history.behind() or {}
    click.echo(f"Brought back the site as it was at {restored.get('of')}. Approvals are taken back; nothing runs yet.")
    click.echo("Ask the others what they saw since (`blindbayes site log`), then `blindbayes site acknowledge`.")


@command.command()
@click.option("--reason", required=True, help="What is known, and from whom; it stands in the audit log.")
@click.option("--charges", type=click.IntRange(0), help="Entries that the ledger lost, as others saw; 0: nothing ran since.")
@AS
@HOME
def acknowledge(reason: str, charges: int | None, who: str | None, home: SiteFolder) -> None:
    """Say what is known of the time since a backup; the worst case of the rest is booked, and runs may begin.

    Each lost entry of the ledger counts as much as the policy lets one run cost; without --charges all that is left of the
    budget counts as spent. Unless it is 0, exact sums are refused from now on, and no more is classified with shares kept here.

    Example:
      blindbayes site acknowledge --charges 2 --reason "disk lost on 12 May; south saw entry 7 of our ledger" --config north
    """
    from blindbayes.site.backup import acknowledge

    told = acknowledge(home, reason, charges=charges, who=who)
    click.echo(f"Booked epsilon {told['epsilon']:g}, delta {told['delta']:g}; {told['left']:g} left. Approve studies again.")
