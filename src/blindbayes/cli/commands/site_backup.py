"""`blindbayes site backup`, `restore`, `acknowledge`."""

from __future__ import annotations

from pathlib import Path

import click

from blindbayes.agent.store.folder import SiteFolder
from blindbayes.cli.commands.site import command
from blindbayes.cli.options import AS, FILE, HOME, NEW_FOLDER, read_passphrase

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
    from blindbayes.agent.store.backup import backup

    count = backup(home, out, read_passphrase(passphrase_file) or "", who=who)
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
    from blindbayes.agent.store.backup import restore

    home = restore(file, folder, read_passphrase(passphrase_file) or "")
    restored = home.history.behind() or {}
    click.echo(f"Brought back the site as it was at {restored.get('of')}. Approvals are taken back; nothing runs yet.")
    click.echo("Ask the others what they saw since (`blindbayes site log`), then `blindbayes site acknowledge`.")


@command.command()
@click.option("--reason", required=True, help="What is known, and from whom; it stands in the audit log.")
@click.option("--nothing-ran", is_flag=True, help="No run began or went on since the backup, exact sums included.")
@click.option("--epsilon", type=float, help="What all runs since cost together, by the studies that others ran with this site.")
@click.option("--delta", type=float, help="Likewise.")
@AS
@HOME
def acknowledge(
    reason: str, nothing_ran: bool, epsilon: float | None, delta: float | None, who: str | None, home: SiteFolder
) -> None:
    """Say what is known of the time since a backup; the worst case of the rest is booked, and runs may begin.

    Ask every site for the runs that its log (`blindbayes site log`) has with this one since. Without --epsilon (or --delta)
    all that is left of it counts as spent. Unless --nothing-ran, shares of models kept here are destroyed, and a table
    takes part in exact sums only over the sites that it is bound to by the log that came back, with `changed_data`.

    Example:
      blindbayes site acknowledge --epsilon 2 --delta 0 --reason "disk lost; two runs of 1 with south since" --config north
    """
    from blindbayes.agent.store.backup import acknowledge

    found = acknowledge(home, reason, nothing_ran=nothing_ran, epsilon=epsilon, delta=delta, who=who)
    click.echo(f"Booked epsilon {found['epsilon']:g}, delta {found['delta']:g}; {found['left']:g} left. Approve studies again.")
