"""Commands of `blindbayes site` by which people decide: studies, runs, shares, people."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from blindbayes.agent import preview
from blindbayes.agent.approvals.people import ROLES, Person
from blindbayes.agent.approvals.summary import approval_of
from blindbayes.agent.client import OperatorClient
from blindbayes.agent.store.folder import SiteFolder, sole_agent
from blindbayes.cli import print_json
from blindbayes.cli.commands.site import command
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
from blindbayes.study.file import StudyFile
from blindbayes.study.tasks.traits import Support


@command.command()
@click.argument("study")
@click.option("--hash", "sha256", help="Hash that you agreed on; a file with another hash is refused.")
@click.option("--runs", type=int, help="Number of runs. [default: 1, or those left if only the roster changed]")
@click.option("--until", type=click.DateTime(["%Y-%m-%d"]), help="Last day (UTC) on which a run may start. [default: no end]")
@AS
@HOME
@JSON
def approve(
    study: str, sha256: str | None, runs: int | None, until: datetime | None, who: str | None, home: SiteFolder, as_json: bool
) -> None:
    """Approve a STUDY with its newest roster: its file, or the hash of a file in the site's folder studies/.

    Prints the changed settings and the size of a coalition that the study withstands. Policy is checked now and again before
    every run.

    Example:
      blindbayes site approve study.toml --hash HASH --config north
    """
    file = find_study(home, study)
    if sha256 is not None and sha256 != file.roster.sha256:
        raise ConfigError(
            f"the file has another hash than the one you agreed on: {file.roster.sha256}; ask the study's author for the file "
            "you agreed on"
        )
    file.require_signatures()
    approval = approval_of(file)
    cost, past = preview.cost(home, file, runs=runs or 1), preview.again(home, file)
    if not as_json:
        click.echo("\n".join([*approval.lines, *_new_changes(home, file), *past, *_cost_lines(cost)]))
    done = home.decisions.approve(file, runs=runs, until=None if until is None else until.date(), who=who)
    last = home.approvals.until(file.sha256)
    if as_json:
        facts = {"approved": file.sha256, "runs": runs, "runs_left": done.runs_left, "by": done.by, "wanted": done.wanted}
        facts["until"] = None if last is None else last.isoformat()
        print_json({**facts, "cost": cost, "past": past, "approval": approval.to_dict()})
    elif done.wanted:
        click.echo(f"Approved by {', '.join(done.by)}; {done.wanted} more steward(s) of this site have to approve the same.")
    else:
        day = "" if last is None else f" until {last} (UTC)"
        click.echo(f"Approved {file.roster.sha256} for {done.runs_left} run(s){day}: {file.title}")


def _new_changes(home: SiteFolder, file: StudyFile) -> list[str]:
    """Describe the changes of the roster since the one that this site approved."""
    known = file.at(home.approvals.roster_of(file.sha256) or file.sha256)
    changes = list(zip(file.rosters[1:], file.changes, strict=True))
    return [line for after, change in changes[0 if known is None else len(known.changes) :] for line in after.describe(change)]


def _cost_lines(cost: dict[str, Any]) -> list[str]:
    if not cost["epsilon"]:
        return []
    left = f"; {cost['left_after']:g} of {cost['budget']:g} left after {cost['runs']} run(s)" if "left" in cost else ""
    return [
        f"costs at most epsilon {cost['epsilon']:g} per run{left}",
        *(f"Warning: {each}." for each in cost.get("warnings", ())),
    ]


def find_study(home: SiteFolder, text: str) -> StudyFile:
    """Return the study of a file or of a hash."""
    if Path(text).is_file():
        return StudyFile.from_toml(text)
    for path in sorted((home.folder / "studies").glob("*.toml")):
        study = StudyFile.from_toml(path)
        if study.sha256 == text:
            return study
    if (approved := home.approvals.stored(text)) is not None:
        return approved
    raise ConfigError(f"there is no file {text!r}, and no study of that hash in the site's folder studies/")


_KEEP_REASON = click.option("--keep-reason", is_flag=True, help="Keep the reason in the log; the others learn the fact.")


@command.command()
@click.argument("study")
@click.option("--reason", required=True, help="Why; the other parties receive it.")
@_KEEP_REASON
@AS
@HOME
def refuse(study: str, reason: str, keep_reason: bool, who: str | None, home: SiteFolder) -> None:
    """Refuse a STUDY: its file, or the hash of a file in the site's folder studies/. An approval ends.

    The other parties of the study learn it from this site's agent, signed, and nobody else does (announce_decisions in the
    policy).

    Example:
      blindbayes site refuse study.toml --reason "the ethics board has not decided" --config north
    """
    file = find_study(home, study)
    home.decisions.refuse(file, reason, who=who, share=not keep_reason)
    click.echo(f"Refused {file.sha256}: {shown(file.title)}")


@command.command()
@click.argument("sha256")
@click.option("--reason", help="Why; the other parties receive it.")
@_KEEP_REASON
@AS
@HOME
def revoke(sha256: str, reason: str | None, keep_reason: bool, who: str | None, home: SiteFolder) -> None:
    """Revoke an approval. The other parties of the study learn it from this site's agent; a run that waits for it ends.

    Example:
      blindbayes site revoke HASH --config north
    """
    home.decisions.revoke(sha256, why=reason, who=who, share=not keep_reason)
    click.echo(f"Revoked {sha256}")


@command.command()
@click.argument("study")
@click.option("--undo", is_flag=True, help="Contribute the rows again.")
@AS
@HOME
def withdraw(study: str, undo: bool, who: str | None, home: SiteFolder) -> None:
    """Withdraw this site's rows from the totals of a STUDY (its hash): the next run with a base subtracts them.

    After that run the site leaves the roster. Totals that others learned before are not changed.

    Example:
      blindbayes site withdraw HASH --config north
    """
    if (approved := home.approvals.find(study)) is None:
        raise ConfigError("no study of that hash is approved here")
    if not undo and Support.INCREMENTS not in approved[0].task.supports:
        raise ConfigError(
            f"no run of {approved[0].protocol} subtracts rows: `blindbayes site revoke` the study, and no run reads them again"
        )
    if home.history.has_withdrawn(study) != undo:
        raise ConfigError("there is nothing to undo" if undo else "the rows are withdrawn already")
    home.audit.append("returned" if undo else "withdrew", study=study, who=home.people.require("revoke", who))
    effect = "Its rows count again." if undo else "The next run with a base subtracts its rows."
    click.echo(f"Study {study[:16]}: {effect}")


@command.command()
@click.option("--study", help="Only runs of this study, by its hash.")
@click.option("--last", type=click.IntRange(1), default=20, show_default=True, help="Maximum number of runs, newest first.")
@HOME
@JSON
def runs(study: str | None, last: int, home: SiteFolder, as_json: bool) -> None:
    """List the runs of this site and how they ended.

    Example:
      blindbayes site runs --config north
    """
    known, lines = home.history.runs(study=study, last=last), []
    for each in known:
        about = f": {shown(each['why'])}" if each.get("why") else ""
        lines.append(
            f"{each['joined']}  {each['run']}  {each['kind'] or 'run'} of {each['study'][:16]}  {each['state']}{about}"
        )
    print_result(known, lines or ["No runs yet."], as_json=as_json)


@command.command()
@click.argument("run")
@click.option("--reason", required=True, help="Why; recorded in the audit log. The other sites learn that people stopped it.")
@AS
@HOME
@JSON
def stop(run: str, reason: str, who: str | None, home: SiteFolder, as_json: bool) -> None:
    """Stop a RUN at any step, for all sites. What was charged or sent before is not undone.

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

    Do this before the agent starts if the site's folder was restored by a plain copy or a snapshot of its disk: a run resumed
    from an older state reveals secrets to a deviating site.

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
@click.option("--out", required=True, type=NEW_FOLDER, help="New folder for the release.")
@HOME
def collect(run: str, out: Path, home: SiteFolder) -> None:
    """Copy the release of an ended RUN.

    Example:
      blindbayes site collect RUN --out release --config north
    """
    known = home.history.run(run)
    if known is None:
        raise ConfigError("no run of that id is known here: see `blindbayes site runs`")
    folder = home.folder / "releases" / run
    if not folder.is_dir():
        why = f": {known['why']}" if known["why"] else ""
        state = "has not ended" if known["state"] == "open" else f"is {known['state']}{why}"
        raise ConfigError(f"the run left no release here: it {state}")
    require_new_path(out)
    try:
        shutil.copytree(folder, out)
    except OSError as problem:
        raise copy_failed(out, folder, problem) from None
    click.echo(f"Copied the release of run {run} to {out}.")


@command.command("shares")
@HOME
@JSON
def list_shares(home: SiteFolder, as_json: bool) -> None:
    """List the models of which this site holds a share, with their query budgets.

    Example:
      blindbayes site shares --config hospital
    """
    shares, lines = home.shares.all(), []
    for each in shares:
        limit = "without limit" if each["queries"] is None else f"of {each['queries']} queries"
        lines.append(f"run {each['run']}  study {each['study']}  {each['spent']} {limit} used")
    print_result(shares, lines or ["No shares here."], as_json=as_json)


@command.command("destroy")
@click.argument("run")
@AS
@HOME
@click.confirmation_option(prompt="Without this share nobody can classify with that model any more. Destroy it?")
def destroy_share(run: str, who: str | None, home: SiteFolder) -> None:
    """Erase this site's share of the model of a training RUN. No party can use the model any more.

    Example:
      blindbayes site destroy RUN --config hospital
    """
    home.shares.destroy(run, who=home.people.require("manage", who))
    click.echo(f"Destroyed the share of run {run}.")


@command.command()
@click.option(
    "--password-file", type=FILE, help="With --add: file whose first line is the person's password; stored as a hash."
)
@click.option("--add", "added", metavar="NAME", help="Add a person, or change their role.")
@click.option("--remove", "removed", metavar="NAME", help="Remove a person.")
@click.option("--role", type=click.Choice(ROLES), default="steward", show_default=True, help="Role of the person to add.")
@click.option("--account", help="The person's account of the operating system, so that --as can be omitted.")
@AS
@HOME
@JSON
def people(added: str | None, removed: str | None, who: str | None, home: SiteFolder, as_json: bool, **person: Any) -> None:
    """List or change who may decide here: stewards approve, officers refuse and revoke, analysts run.

    If nobody is named, every account that can write to the site's folder may decide.

    Example:
      blindbayes site people --add "Ada Lovelace" --role steward --account ada --config north
    """
    if added is not None:
        secret = None
        if person["password_file"] is not None:
            if len(password := read_passphrase(person["password_file"]) or "") < 8:
                raise ConfigError("a password has eight characters or more")
            secret = hash_password(password, Coins.system())
        home.people.add(Person(added.strip(), person["role"], person["account"], secret), who=who)
    if removed is not None:
        home.people.remove(removed, who=who)
    known = home.people.all()
    facts = [{"name": each.name, "role": each.role, "account": each.account} for each in known]
    lines = [
        f"{shown(each.name)}  {each.role}" + (f"  account {shown(each.account)}" if each.account else "") for each in known
    ]
    nobody = "Nobody is named: every account that can write to the site's folder may decide."
    print_result(facts, lines or [nobody], as_json=as_json)
