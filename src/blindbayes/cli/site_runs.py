"""`blindbayes site runs`, `stop`, `collect`, `refuse`, `people`: what ran here, and what people decide."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from blindbayes.cli import print_json
from blindbayes.cli.copies import not_copied, require_new
from blindbayes.cli.site import AS, FOLDER, JSON, command, find_study, passphrase_of
from blindbayes.cli.study_columns import error_of
from blindbayes.errors import ConfigError
from blindbayes.foreign import shown
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.passwords import hash_password
from blindbayes.site.client import OperatorClient
from blindbayes.site.folder import SiteFolder
from blindbayes.site.lock import ask_to_reload, sole_agent
from blindbayes.site.people import ROLES, Person, PersonRole
from blindbayes.site.runs import require_run_id


@command.command()
@click.option("--study", help="Only runs of this study, by its hash.")
@click.option("--last", type=click.IntRange(1), default=20, show_default=True, help="How many, newest first.")
@FOLDER
@JSON
def runs(study: str | None, last: int, config: Path, as_json: bool) -> None:
    """The runs that this site took part in, and how they ended.

    \b
    Example:
      blindbayes site runs --config north
    """
    found = SiteFolder.open(config).history.runs(study=study, last=last)
    if as_json:
        print_json(found)
        return
    for each in found:
        about = f": {shown(each['why'])}" if each.get("why") else ""
        click.echo(f"{each['joined']}  {each['run']}  {each['kind'] or 'run'} of {each['study'][:16]}  {each['state']}{about}")
    if not found:
        click.echo("No runs yet.")


@command.command()
@click.argument("run")
@click.option("--reason", required=True, help="Why; it stands in the audit log. The other sites hear that people stopped it.")
@AS
@FOLDER
@JSON
def stop(run: str, reason: str, who: str | None, config: Path, as_json: bool) -> None:
    """Stop a RUN at any step, for all sites. What it has paid for or let out stays paid for, and in the log.

    \b
    Example:
      blindbayes site stop RUN --reason "the wrong month was loaded" --config north
    """
    home = SiteFolder.open(config)
    by = home.people.require("stop", who)
    client = OperatorClient(home.folder)
    ended = client.follow(client.call("POST", f"/runs/{run}/stop", {"why": reason, "who": by}))
    if as_json:
        print_json(ended)
    else:
        click.echo(f"Run {run}: {ended.get('message', ended['state'])}")


@command.command()
@click.argument("model", required=False)
@click.option("--instances", type=click.IntRange(1), help="For a batch of at most so many.")
@click.option(
    "--packs", type=click.IntRange(1), default=1, show_default=True, help="For so many batches: each pack serves one."
)
@click.option("--burn", is_flag=True, help="Erase what was made ahead instead, for MODEL or for all; stop the agent first.")
@FOLDER
@JSON
def precompute(model: str | None, instances: int | None, packs: int, burn: bool, config: Path, as_json: bool) -> None:
    """Make material for classifications with a MODEL (its training run) before the instances come, with all its sites.

    The agents of all sites make transfers and garbled comparisons; no row is read, nothing is opened, and no budget is charged.
    A batch of at most so many instances that is asked for later takes a pack, at every site, and ends sooner. What there is
    shows `site status`; an idle agent makes it by itself if site.toml says so (ahead_batches), and never more than ahead_mb.

    \b
    Example:
      blindbayes site precompute MODEL --instances 5000 --config hospital
    """
    home = SiteFolder.open(config)
    if burn:
        with sole_agent(home.folder):
            count = home.ahead.burn(require_run_id(model) if model else "")
        click.echo(f"Burned {count} pack(s).")
        return
    if model is None or instances is None:
        raise ConfigError("name a model (`blindbayes site shares` lists them) and with --instances the size of a batch")
    client, made = OperatorClient(home.folder), []
    for _ in range(packs):
        made.append(client.follow(client.call("POST", "/material", {"model": model, "instances": instances})))
        if made[-1]["state"] != "done":
            raise error_of(made[-1])
    shown = client.call("GET", "/status")["ahead"]
    if as_json:
        print_json({"made": [each["run"] for each in made], **shown})
    else:
        spent = sum(each["seconds"] for each in made)
        click.echo(f"Made {packs} pack(s) for {instances} instances in {spent:.1f} s; {shown['bytes'] / 1e6:.1f} MB are taken.")


@command.command()
@click.argument("run")
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Copy the release folder there.")
@FOLDER
def collect(run: str, out: Path, config: Path) -> None:
    """Copy what an ended RUN left at this site.

    \b
    Example:
      blindbayes site collect RUN --out release --config north
    """
    home = SiteFolder.open(config)
    found = home.history.run(run)
    if found is None:
        raise ConfigError("no run of that id is known here: see `blindbayes site runs`")
    folder = home.folder / "releases" / run
    if not folder.is_dir():
        why = f": {found['why']}" if found["why"] else ""
        state = "has not ended" if found["state"] == "open" else f"is {found['state']}{why}"
        raise ConfigError(f"the run left no release here: it {state}")
    require_new(out)
    try:
        shutil.copytree(folder, out)
    except OSError as problem:
        raise not_copied(out, folder, problem) from None
    click.echo(f"Copied the release of run {run} to {out}.")


@command.command()
@click.argument("study")
@click.option("--reason", required=True, help="Why; its parties are told when they ask for a run of it.")
@AS
@FOLDER
def refuse(study: str, reason: str, who: str | None, config: Path) -> None:
    """Say no to a STUDY: its file, or the hash of a file in the site's folder studies/. An approval ends.

    The reason goes, signed, to those parties of the study that ask this site for a run, and to nobody else.

    \b
    Example:
      blindbayes site refuse study.toml --reason "the ethics board has not decided" --config north
    """
    home = SiteFolder.open(config)
    file = find_study(home, study)
    home.decisions.refuse(file, reason, who=who)
    click.echo(f"Refused {file.sha256}: {shown(file.title)}")


@command.command()
@FOLDER
def reload(config: Path) -> None:
    """Let the running agent take up changed settings, policy and pins; runs go on. What needs a restart is said.

    \b
    Example:
      blindbayes site reload --config north
    """
    home = SiteFolder.open(config)
    if not ask_to_reload(home.folder):
        raise ConfigError("no agent of this site is running; it reads its settings when it starts")
    click.echo("Told the agent. A change of listen, operator, relay, tls or ledger counts after a restart.")


@command.command()
@click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --add: its first line is the person's password for the site console. Only a salted hash of it is kept.",
)
@click.option("--add", "added", metavar="NAME", help="Add a person, or give one another role.")
@click.option("--remove", "removed", metavar="NAME", help="Remove a person.")
@click.option("--role", type=click.Choice(ROLES), default="steward", show_default=True, help="Of the person added.")
@click.option("--account", help="The person's account of the operating system, so that --as can be left out.")
@AS
@FOLDER
@JSON
def people(
    added: str | None,
    removed: str | None,
    role: PersonRole,
    account: str | None,
    password_file: Path | None,
    who: str | None,
    config: Path,
    as_json: bool,
) -> None:
    """Who may decide here: stewards approve, officers refuse and revoke, analysts run. If nobody is named, everybody may.

    \b
    Example:
      blindbayes site people --add "Ada Lovelace" --role steward --account ada --config north
    """
    home = SiteFolder.open(config)
    if added is not None:
        secret = None
        if password_file is not None:
            if len(password := passphrase_of(password_file) or "") < 8:
                raise ConfigError("a password has eight characters or more")
            secret = hash_password(password, Coins.system())
        home.people.add(Person(added.strip(), role, account, secret), who=who)
    if removed is not None:
        home.people.remove(removed, who=who)
    found = home.people.all()
    if as_json:
        print_json([{"name": each.name, "role": each.role, "account": each.account} for each in found])
        return
    for each in found:
        click.echo(f"{shown(each.name)}  {each.role}" + (f"  account {shown(each.account)}" if each.account else ""))
    if not found:
        click.echo("Nobody is named: whoever can write the site's folder may decide, under the name of their account.")


@command.command()
@FOLDER
def health(config: Path) -> None:
    """Whether the agent runs and can read its log and ledger; exit code 0 if so. For containers and timers.

    \b
    Example:
      blindbayes site health --config north
    """
    why = OperatorClient(SiteFolder.open(config).folder).ready()
    if why is not None:
        raise ConfigError(f"the agent is not ready: {shown(why)}")
    click.echo("ready")
