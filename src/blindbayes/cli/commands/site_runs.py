"""`blindbayes site runs`, `stop`, `collect`, `refuse`, `people`: what ran here, and what people decide."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from blindbayes.agent.approvals.people import ROLES, Person, PersonRole
from blindbayes.agent.client import OperatorClient
from blindbayes.agent.store.folder import SiteFolder, ask_to_reload, sole_agent
from blindbayes.cli.commands.site import command, find_study
from blindbayes.cli.options import (
    AS,
    FILE,
    HOME,
    JSON,
    NEW_FOLDER,
    copy_failed,
    print_result,
    read_passphrase,
    require_new_path,
)
from blindbayes.crypto.coins import Coins
from blindbayes.crypto.passwords import hash_password
from blindbayes.errors import ConfigError, RunStopped
from blindbayes.io.untrusted import shown


@command.command()
@click.option("--study", help="Only runs of this study, by its hash.")
@click.option("--last", type=click.IntRange(1), default=20, show_default=True, help="How many, newest first.")
@HOME
@JSON
def runs(study: str | None, last: int, home: SiteFolder, as_json: bool) -> None:
    """The runs that this site took part in, and how they ended.

    Example:
      blindbayes site runs --config north
    """
    found = home.history.runs(study=study, last=last)
    lines = []
    for each in found:
        about = f": {shown(each['why'])}" if each.get("why") else ""
        lines.append(
            f"{each['joined']}  {each['run']}  {each['kind'] or 'run'} of {each['study'][:16]}  {each['state']}{about}"
        )
    print_result(found, lines or ["No runs yet."], as_json=as_json)


@command.command()
@click.argument("run")
@click.option("--reason", required=True, help="Why; it stands in the audit log. The other sites hear that people stopped it.")
@AS
@HOME
@JSON
def stop(run: str, reason: str, who: str | None, home: SiteFolder, as_json: bool) -> None:
    """Stop a RUN at any step, for all sites. What it has paid for or let out stays paid for, and in the log.

    Example:
      blindbayes site stop RUN --reason "the wrong month was loaded" --config north
    """
    by = home.people.require("stop", who)
    client = OperatorClient(home.folder)
    ended = client.follow(client.call("POST", f"/runs/{run}/stop", {"why": reason, "who": by}))
    print_result(ended, [f"Run {run}: {ended.get('message', ended['state'])}"], as_json=as_json)


@command.command()
@AS
@HOME
def burn(who: str | None, home: SiteFolder) -> None:
    """End all interrupted runs and erase their journals. Stop the agent first.

    Do this before the agent starts if the site's folder came back by a plain copy or a snapshot of its disk: a run resumed from
    an older state reveals secrets to a site that deviates.

    Example:
      blindbayes site burn --config hospital
    """
    by = home.people.require("stop", who)
    with sole_agent(home.folder):
        ended = home.runs.interrupted()
        for run in ended:
            home.audit.append("stopped", run=run, who=by, why="burned at its site")
            home.runs.end(run, {"state": "stopped", "message": "it was burned at this site", "exit_code": RunStopped.code})
            home.audit.append("ended", run=run, state="stopped", why="it was burned at this site")
            home.runs.erase_journals(run)
    click.echo(f"Burned {len(ended)} interrupted run(s).")


@command.command()
@click.argument("run")
@click.option("--out", required=True, type=NEW_FOLDER, help="Copy the release folder there.")
@HOME
def collect(run: str, out: Path, home: SiteFolder) -> None:
    """Copy what an ended RUN left at this site.

    Example:
      blindbayes site collect RUN --out release --config north
    """
    found = home.history.run(run)
    if found is None:
        raise ConfigError("no run of that id is known here: see `blindbayes site runs`")
    folder = home.folder / "releases" / run
    if not folder.is_dir():
        why = f": {found['why']}" if found["why"] else ""
        state = "has not ended" if found["state"] == "open" else f"is {found['state']}{why}"
        raise ConfigError(f"the run left no release here: it {state}")
    require_new_path(out)
    try:
        shutil.copytree(folder, out)
    except OSError as problem:
        raise copy_failed(out, folder, problem) from None
    click.echo(f"Copied the release of run {run} to {out}.")


@command.command()
@click.argument("study")
@click.option("--reason", required=True, help="Why; its parties are told when they ask for a run of it.")
@AS
@HOME
def refuse(study: str, reason: str, who: str | None, home: SiteFolder) -> None:
    """Say no to a STUDY: its file, or the hash of a file in the site's folder studies/. An approval ends.

    The reason goes, signed, to those parties of the study that ask this site for a run, and to nobody else.

    Example:
      blindbayes site refuse study.toml --reason "the ethics board has not decided" --config north
    """
    file = find_study(home, study)
    home.decisions.refuse(file, reason, who=who)
    click.echo(f"Refused {file.sha256}: {shown(file.title)}")


@command.command()
@HOME
def reload(home: SiteFolder) -> None:
    """Let the running agent take up changed settings, policy and pins; runs go on. What needs a restart is said.

    Example:
      blindbayes site reload --config north
    """
    if not ask_to_reload(home.folder):
        raise ConfigError("no agent of this site is running; it reads its settings when it starts")
    click.echo("Told the agent. A change of listen, operator, relay, tls or ledger counts after a restart.")


@command.command()
@click.option(
    "--password-file",
    type=FILE,
    help="With --add: its first line is the person's password for the site console. Only a salted hash of it is kept.",
)
@click.option("--add", "added", metavar="NAME", help="Add a person, or give one another role.")
@click.option("--remove", "removed", metavar="NAME", help="Remove a person.")
@click.option("--role", type=click.Choice(ROLES), default="steward", show_default=True, help="Of the person added.")
@click.option("--account", help="The person's account of the operating system, so that --as can be left out.")
@AS
@HOME
@JSON
def people(
    added: str | None,
    removed: str | None,
    role: PersonRole,
    account: str | None,
    password_file: Path | None,
    who: str | None,
    home: SiteFolder,
    as_json: bool,
) -> None:
    """Who may decide here: stewards approve, officers refuse and revoke, analysts run. If nobody is named, everybody may.

    Example:
      blindbayes site people --add "Ada Lovelace" --role steward --account ada --config north
    """
    if added is not None:
        secret = None
        if password_file is not None:
            if len(password := read_passphrase(password_file) or "") < 8:
                raise ConfigError("a password has eight characters or more")
            secret = hash_password(password, Coins.system())
        home.people.add(Person(added.strip(), role, account, secret), who=who)
    if removed is not None:
        home.people.remove(removed, who=who)
    found = home.people.all()
    facts = [{"name": each.name, "role": each.role, "account": each.account} for each in found]
    lines = [
        f"{shown(each.name)}  {each.role}" + (f"  account {shown(each.account)}" if each.account else "") for each in found
    ]
    nobody = "Nobody is named: whoever can write the site's folder may decide, under the name of their account."
    print_result(facts, lines or [nobody], as_json=as_json)


@command.command()
@HOME
def health(home: SiteFolder) -> None:
    """Whether the agent runs and can read its log and ledger; exit code 0 if so. For containers and timers.

    Example:
      blindbayes site health --config north
    """
    why = OperatorClient(home.folder).ready()
    if why is not None:
        raise ConfigError(f"the agent is not ready: {shown(why)}")
    click.echo("ready")
