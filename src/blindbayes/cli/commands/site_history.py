"""`blindbayes site unsettled`, `settle`, `forget`, `withdraw`: what only people can say about the past."""

from __future__ import annotations

import click

from blindbayes.agent.approvals.people import require_reason
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.cli.commands.site import command
from blindbayes.cli.options import AS, HOME, JSON, print_result
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import shown
from blindbayes.net.identity import read_card

_RISK = """\
  At risk: if it was opened over some of them, an exact sum over others shows the difference, which may be one site's
  statistics. Until it is settled, such sums are refused. Ask at the site that hosted the server or miner what
  `blindbayes site status` and its folder releases/ say of the run, then `blindbayes site settle` it here."""


def _names(home: SiteFolder) -> dict[str, str]:
    """This site and those that it has pinned: identity key, in hexadecimal -> name."""
    own = read_card(home.folder / "card.toml")
    return {card.identity.hex(): name for name, card in {**home.peers(), own.name: own}.items()}


@command.command()
@HOME
@JSON
def unsettled(home: SiteFolder, as_json: bool) -> None:
    """Exact sums that ended without saying whom they included, and what that puts at risk.

    Example:
      blindbayes site unsettled --config north
    """
    names = _names(home)
    found = [
        {
            "run": sum_.run,
            "time": first["time"],
            "study": first["study"],
            "sites": sorted(names.get(site, site[:16]) for site in sum_.sites),
            "at_least": first["fewest"],
        }
        for first, sum_ in home.history.unsettled()
    ]
    lines = [
        f"run {each['run']} of {each['time']}, study {each['study'][:16]}\n"
        "  This site's statistics left under masks. A sum may have been opened of\n"
        f"  at least {each['at_least']} of {', '.join(shown(name) for name in each['sites'])}.\n{_RISK}"
        for each in found
    ]
    print_result(found, lines or ["Nothing is unsettled."], as_json=as_json)


@command.command()
@click.argument("run")
@click.option("--nothing", is_flag=True, help="No sum was opened in that run.")
@click.option("--included", help="Names of the sites whose sum was opened, separated by commas.")
@click.option("--reason", required=True, help="How this is known; it stands in the audit log.")
@AS
@HOME
def settle(run: str, nothing: bool, included: str | None, reason: str, who: str | None, home: SiteFolder) -> None:
    """Write down what a run whose end is not known opened. The rule on exact sums relies on it.

    Example:
      blindbayes site settle 8f0c... --nothing --reason "the server's disk is wiped, no site has a release" --config north
    """
    who = home.people.require("manage", who)
    known = {each.run: (first, each) for first, each in home.history.unsettled()}
    if run not in known:
        raise ConfigError("no run of that id is unsettled here: see `blindbayes site unsettled`")
    if nothing == (included is not None):
        raise ConfigError("say --nothing, or --included with the names of the sites")
    why = require_reason(reason)
    first, past = known[run]
    identities = {name: identity for identity, name in _names(home).items()}
    chosen = [name.strip() for name in (included or "").split(",") if name.strip()]
    if unknown := [name for name in chosen if identities.get(name) not in past.sites]:
        raise ConfigError(f"{unknown[0]!r} was no contributor of that run")
    if chosen and len(chosen) < first["fewest"]:
        raise ConfigError(f"the run's quorum was {first['fewest']}: it cannot have opened a sum of fewer sites")
    home.audit.append(
        "settled", run=run, study=first["study"], included=[identities[name] for name in chosen], why=why, who=who
    )
    what = f"the sum over {', '.join(sorted(chosen))}" if chosen else "nothing"
    click.echo(f"Run {run} counts as having opened {what}. If that is wrong, later sums may open a single site's statistics.")


@command.command()
@click.argument("site")
@click.option("--reason", required=True, help="Why its older logs are accepted; it stands in the audit log.")
@AS
@HOME
def forget(site: str, reason: str, who: str | None, home: SiteFolder) -> None:
    """Forget which heads of its logs a site has shown: it lost them, and its people and yours agree to go on.

    What it spent after its backup was made is then not in its ledger: let its people charge it there first
    (`blindbayes ledger`), and agree in writing.

    Example:
      blindbayes site forget south --reason "disk lost on 12 May, restored from 11 May, letter of 14 May" --config north
    """
    if site not in home.peers():
        raise ConfigError(f"no site called {site!r} is pinned here: see `blindbayes site peers`")
    why = require_reason(reason)
    count = len(home.history.witnessed(site))
    home.audit.append("forgot", site=site, why=why, who=home.people.require("manage", who))
    click.echo(f"Forgot {count} heads of {site}. What it shows next counts as the newest.")


@command.command()
@click.argument("study")
@click.option("--undo", is_flag=True, help="Bring the rows again, such as after coming back.")
@AS
@HOME
def withdraw(study: str, undo: bool, who: str | None, home: SiteFolder) -> None:
    """Take this site's rows back from the totals of a STUDY (its hash): the next run with a base tells them as gone.

    After that run the site leaves the roster. Totals that others learned before stay what they are.

    Example:
      blindbayes site withdraw HASH --config north
    """
    if (found := home.approvals.find(study)) is None:
        raise ConfigError("no study of that hash is approved here")
    if not (undo or found[0].study.scheme.facts.goes_on):
        raise ConfigError(
            f"no run of {found[0].protocol} tells rows as gone: `blindbayes site revoke` the study, and none reads them again"
        )
    if home.history.has_withdrawn(study) != undo:
        raise ConfigError("there is nothing to undo" if undo else "the rows are taken back already")
    home.audit.append("returned" if undo else "withdrew", study=study, who=home.people.require("revoke", who))
    again = "Its rows count again." if undo else "Its rows count as gone in the next run with a base."
    click.echo(f"Study {study[:16]}: {again}")
