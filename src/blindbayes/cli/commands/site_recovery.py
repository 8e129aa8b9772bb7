"""Commands of `blindbayes site` for lost state: backups, runs whose outcome is unknown, peers that lost their logs."""

from __future__ import annotations

from pathlib import Path

import click

from blindbayes.agent.approvals.people import require_reason
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.cli.commands.site import command
from blindbayes.cli.options import AS, FILE, HOME, JSON, NEW_FOLDER, print_result, read_passphrase
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import shown
from blindbayes.net.identity import read_card

_PASSPHRASE = click.option(
    "--passphrase-file", type=FILE, required=True, help="File whose first line encrypts the backup; store it elsewhere."
)
_RISK = """\
  At risk: if a sum over some of these sites was opened, an exact sum over other sites reveals the difference, which may be one
  site's statistics. Such sums are refused until this run is settled. Ask the site that hosted the server or miner what
  `blindbayes site status` and its folder releases/ say of the run, then `blindbayes site settle` it here."""


@command.command()
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@_PASSPHRASE
@AS
@HOME
def backup(out: Path, passphrase_file: Path, who: str | None, home: SiteFolder) -> None:
    """Write the site's folder to OUT, encrypted, without rows and unfinished runs. The agent may keep running.

    A timer or job needs no --as: the log names its account. Tables are left out, those of the folder data/ too; back them up
    where they come from.

    Example:
      blindbayes site backup north.backup --passphrase-file backup.pass --config north
    """
    from blindbayes.agent.store.backup import backup

    count = backup(home, out, read_passphrase(passphrase_file) or "", who=who)
    click.echo(f"Wrote {count} files to {out}. With this file and the passphrase, anyone can act as this site.")


@command.command()
@click.argument("file", type=FILE)
@click.argument("folder", type=NEW_FOLDER)
@_PASSPHRASE
def restore(file: Path, folder: Path, passphrase_file: Path) -> None:
    """Restore the backup FILE into a new FOLDER. Stop the old agent for good first.

    Approvals are revoked, and nothing runs until `site acknowledge` records what is known of the time since the backup. Sites
    that met this one since then refuse it until they run `site forget`. A killed restore leaves no site.

    Example:
      blindbayes site restore north.backup north --passphrase-file backup.pass
    """
    from blindbayes.agent.store.backup import restore

    home = restore(file, folder, read_passphrase(passphrase_file) or "")
    restored = home.history.behind() or {}
    click.echo(f"Restored the site as of {restored.get('of')}. Approvals are revoked; nothing runs yet.")
    if home.config.rows is not None and "://" not in home.config.rows.source:
        click.echo(f"A backup holds no rows: bring the table back to {home.config.rows.source}.")
    click.echo("Ask the other sites what they saw since (`blindbayes site log`), then `blindbayes site acknowledge`.")


@command.command()
@click.option("--reason", required=True, help="What is known, and from whom; recorded in the audit log.")
@click.option("--nothing-ran", is_flag=True, help="No run started or continued since the backup, exact sums included.")
@click.option("--epsilon", type=float, help="Total cost of all runs since, by the studies that others ran with this site.")
@click.option("--delta", type=float, help="Total delta of all runs since.")
@AS
@HOME
def acknowledge(
    reason: str, nothing_ran: bool, epsilon: float | None, delta: float | None, who: str | None, home: SiteFolder
) -> None:
    """Record what is known of the time since a backup; the worst case of the rest is charged, and runs may start.

    Ask every site for the runs that its log (`blindbayes site log`) has with this one since. Without --epsilon (or --delta)
    all that is left of it counts as spent. Unless --nothing-ran, shares of models stored here are destroyed, and a table
    takes part in exact sums only over the sites that the restored log binds it to, with `changed_data`.

    Example:
      blindbayes site acknowledge --epsilon 2 --delta 0 --reason "disk lost; two runs of 1 with south since" --config north
    """
    from blindbayes.agent.store.backup import acknowledge

    charged = acknowledge(home, reason, nothing_ran=nothing_ran, epsilon=epsilon, delta=delta, who=who)
    click.echo(
        f"Charged epsilon {charged['epsilon']:g}, delta {charged['delta']:g}; {charged['left']:g} left. Approve studies again."
    )


def _names(home: SiteFolder) -> dict[str, str]:
    """Map the identity keys of this site and of the pinned ones, in hexadecimal, to names."""
    own = read_card(home.folder / "card.toml")
    return {card.identity.hex(): name for name, card in {**home.peers(), own.name: own}.items()}


@command.command()
@HOME
@JSON
def unsettled(home: SiteFolder, as_json: bool) -> None:
    """List exact sums whose record of included sites is missing, and the risk.

    Example:
      blindbayes site unsettled --config north
    """
    names = _names(home)
    runs = [
        {
            "run": sum_.run,
            "time": first["time"],
            "study": first["study"],
            "sites": sorted(names.get(site, site[:16]) for site in sum_.sites),
            "at_least": first["quorum"],
        }
        for first, sum_ in home.history.unsettled()
    ]
    lines = [
        f"run {each['run']} of {each['time']}, study {each['study'][:16]}\n"
        "  This site sent its masked statistics. A sum may have been opened of\n"
        f"  at least {each['at_least']} of {', '.join(shown(name) for name in each['sites'])}.\n{_RISK}"
        for each in runs
    ]
    print_result(runs, lines or ["Nothing is unsettled."], as_json=as_json)


@command.command()
@click.argument("run")
@click.option("--nothing", is_flag=True, help="No sum was opened in that run.")
@click.option("--included", help="Names of the sites whose sum was opened, separated by commas.")
@click.option("--reason", required=True, help="How this is known; recorded in the audit log.")
@AS
@HOME
def settle(run: str, nothing: bool, included: str | None, reason: str, who: str | None, home: SiteFolder) -> None:
    """Record what a run with an unknown end opened. The rule on exact sums relies on it.

    Example:
      blindbayes site settle 8f0c... --nothing --reason "the server's disk is wiped, no site has a release" --config north
    """
    who = home.people.require("manage", who)
    known = {each.run: (first, each) for first, each in home.history.unsettled()}
    if run not in known:
        raise ConfigError("no run of that id is unsettled here: see `blindbayes site unsettled`")
    if nothing == (included is not None):
        raise ConfigError("pass --nothing, or --included with the names of the sites")
    why = require_reason(reason)
    first, past = known[run]
    identities = {name: identity for identity, name in _names(home).items()}
    chosen = [name.strip() for name in (included or "").split(",") if name.strip()]
    if unknown := [name for name in chosen if identities.get(name) not in past.sites]:
        raise ConfigError(f"{unknown[0]!r} was not a contributor of that run")
    if chosen and len(chosen) < first["quorum"]:
        raise ConfigError(f"the run's quorum was {first['quorum']}: it cannot have opened a sum of fewer sites")
    home.audit.append(
        "settled", run=run, study=first["study"], included=[identities[name] for name in chosen], why=why, who=who
    )
    what = f"the sum over {', '.join(sorted(chosen))}" if chosen else "nothing"
    click.echo(f"Run {run} counts as having opened {what}. If that is wrong, later sums may open a single site's statistics.")


@command.command()
@click.argument("site")
@click.option("--reason", required=True, help="Why its older logs are accepted; recorded in the audit log.")
@AS
@HOME
def forget(site: str, reason: str, who: str | None, home: SiteFolder) -> None:
    """Accept older logs of a SITE that lost its newest ones, after both organisations agreed to continue.

    What the site spent after its backup is then missing from its ledger: let it charge that there first
    (`blindbayes ledger`), and agree in writing.

    Example:
      blindbayes site forget south --reason "disk lost on 12 May, restored from 11 May, letter of 14 May" --config north
    """
    if site not in home.peers():
        raise ConfigError(f"no site called {site!r} is pinned here: see `blindbayes site peers`")
    why = require_reason(reason)
    count = len(home.history.witnessed(site))
    home.audit.append("forgot", site=site, why=why, who=home.people.require("manage", who))
    click.echo(f"Forgot {count} heads of {site}. The next head that it shows counts as the newest.")
