"""`blindbayes site`: one organisation's agent, its keys, its pins, its approvals."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import click

from blindbayes.agent import preview
from blindbayes.agent.approval import approval_of
from blindbayes.agent.client import OperatorClient
from blindbayes.agent.config import Rows, SiteConfig
from blindbayes.agent.folder import SiteFolder
from blindbayes.agent.lock import ask_to_reload, sole_agent
from blindbayes.agent.people import account
from blindbayes.cli import print_json
from blindbayes.cli.options import AS, CONFIG, FILE, HOME, JSON, PASSPHRASE, print_result, read_passphrase
from blindbayes.disclosure.policy import Policy
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import require_port
from blindbayes.net.events import log_json
from blindbayes.net.identity import Identity, read_card
from blindbayes.study.file import StudyFile

FOR = click.option(
    "--for", "person", help="The person whom the code signs in, as in people.toml; without it the one of your account."
)


def log_as_json() -> None:
    """JSON lines on standard error, and nothing else there; before gRPC is imported, which would write text of its own."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    log_json()


@click.group(name="site")
def command() -> None:
    """One organisation's agent: keys, policy, approvals.

    Example:
      blindbayes site init north --name north --listen 0.0.0.0:7440 --address north.example:7440 --table visits.parquet
      blindbayes site pin south-card.toml --config north
      blindbayes site approve study.toml --hash HASH --config north
      blindbayes site serve --config north
    """


@command.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--name", required=True, help="Name of the site in studies: small letters, digits, dashes.")
@click.option("--address", default="", help="host:port under which others reach this site; leave out if it only dials out.")
@click.option("--listen", help="host:port to listen on; leave out if the site only dials out.")
@click.option("--operator", default="127.0.0.1:7441", show_default=True, help="Loopback host:port for the site's own people.")
@click.option("--table", help="CSV or Parquet path, or database URL with its table: duckdb:///visits.duckdb#visits.")
@click.option("--epsilon", default="10", show_default=True, help="Budget of the site's ledger.")
@click.option("--delta", default="0.00001", show_default=True, help="Budget of the site's ledger.")
@click.option(
    "--succeeds",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the site that this one replaces under a new identity.",
)
@PASSPHRASE
@JSON
def init(
    folder: Path,
    name: str,
    address: str,
    listen: str | None,
    operator: str,
    table: str | None,
    epsilon: str,
    delta: str,
    succeeds: Path | None,
    passphrase_file: Path | None,
    as_json: bool,
) -> None:
    """Make keys, a card to hand out, a ledger and site.toml in FOLDER.

    With --succeeds the new identity takes over ledger and audit log, and the table unless --table names one: budget spent and
    sites that the table is bound to stay what they are. The old folder is no site any more; the others pin the new card under
    the same name (`site pin --replace`).

    Example:
      blindbayes site init north --name north --listen 0.0.0.0:7440 --address north.example:7440 --table visits.parquet
    """
    if table is not None and Path(table).exists():
        table = str(Path(table).resolve())  # named from here, read from wherever the agent is started
    elif table is not None and "://" not in table and not any(mark in table for mark in "*?["):
        click.echo(
            f"note: {table!r} does not exist; put it into the site's folder under that name or mend `source` in site.toml",
            err=True,
        )
    if address:
        require_port(address, "--address")
    old = None if succeeds is None else SiteFolder.open(succeeds)
    rows = Rows(table) if table is not None else None if old is None else old.config.rows
    if rows is not None and old is None:
        _require_alone(folder, rows)
    config = SiteConfig(listen=listen, operator=operator, rows=rows)
    phrase = read_passphrase(passphrase_file)
    home, identity = SiteFolder.create(
        folder, name, config=config, address=address, passphrase=phrase, epsilon=epsilon, delta=delta, succeeds=old
    )
    facts = {"site": name, "folder": str(home.folder), "card": str(home.folder / "card.toml"), "words": identity.card.words}
    lines = f"Made site {name} in {folder}.", f"Hand out {folder / 'card.toml'}; its words, to be compared by telephone:"
    print_result(facts, [*lines, f"  {identity.card.words}"], as_json=as_json)


def _require_alone(folder: Path, rows: Rows) -> None:
    """Refuse a second site beside one that reads the same table: it would have a second budget and forget its exact sums."""
    own = _place(folder.resolve(), rows)
    for path in folder.resolve().parent.glob("*/site.toml"):
        other = None
        with suppress(ConfigError):
            other = SiteConfig.read(path).rows
        if other is not None and _place(path.parent, other) == own:
            name = path.parent.name
            raise ConfigError(
                f"the site in {name} reads the same table: one table has one budget and one audit log. If that site gets a new "
                f"identity, make this one with --succeeds {name}"
            )


def _place(folder: Path, rows: Rows) -> tuple[str, str | None]:
    return rows.source if "://" in rows.source else str(folder / rows.source), rows.table


@command.command("pin")
@click.argument("card", type=FILE)
@click.option("--words", help="The words as read out by the other site; without them you are asked.")
@click.option("--replace", is_flag=True, help="The same site has a new card: exact sums take both for one site.")
@AS
@HOME
def pin_card(card: Path, words: str | None, replace: bool, who: str | None, home: SiteFolder) -> None:
    """Trust another site's CARD from now on.

    Example:
      blindbayes site pin south-card.toml --config north
    """
    shown = read_card(card)
    if shown.identity == read_card(home.folder / "card.toml").identity:
        raise ConfigError("this is the site's own card; pin those of the others")
    if words is None:
        # Not shown here: whoever sees them copies them, and nothing is compared.
        words = click.prompt(f"Telephone {shown.name} and type the words that it reads out")
    shown.require_words(words)
    before = home.peers().get(shown.name)
    home.pin(shown, replace=replace, who=who)
    if before is not None and before.identity != shown.identity:
        click.echo(
            f"{shown.name} has a new identity: exact sums take both for one site. Another organisation has another name; then "
            "pin the old card again."
        )
    told = " The running agent knows it now." if ask_to_reload(home.folder) else ""
    click.echo(f"Pinned {shown.name}.{told}")


@command.command("request")
@HOME
@PASSPHRASE
def request_certificate(home: SiteFolder, passphrase_file: Path | None) -> None:
    """Print a signing request for a certificate authority. Only for consortia that want one beside the pins.

    Example:
      blindbayes site request --config north > north.csr
    """
    from blindbayes.net.authority import request

    click.echo(request(Identity.load(home.folder, passphrase=read_passphrase(passphrase_file))).decode(), nl=False)


@command.command()
@PASSPHRASE
@click.option(
    "--new-passphrase-file",
    type=FILE,
    help="File whose first line opens the keys from now on; without it the old passphrase stays.",
)
@AS
@HOME
def rotate(passphrase_file: Path | None, new_passphrase_file: Path | None, who: str | None, home: SiteFolder) -> None:
    """Make new connection keys and a new card for the same identity. Stop the agent first; the others pin the new card.

    Studies and approvals name the identity, and stay. If the identity's own key may be known to others, make a new site that
    succeeds this one (`blindbayes site init --succeeds`).

    Example:
      blindbayes site rotate --config north
    """
    by, old = home.people.require("manage", who), read_passphrase(passphrase_file)
    with sole_agent(home.folder):
        new = old if new_passphrase_file is None else read_passphrase(new_passphrase_file)
        identity = Identity.rotate(home.folder, passphrase=old, new_passphrase=new)
        home.audit.append("rotated", fingerprint=identity.card.words, who=by)
    click.echo(f"Hand out {home.folder / 'card.toml'} again (`blindbayes site pin --replace`); its words:")
    click.echo(f"  {identity.card.words}")


@command.command()
@HOME
@JSON
def peers(home: SiteFolder, as_json: bool) -> None:
    """The sites that are pinned here, with their words.

    Example:
      blindbayes site peers --config north
    """
    cards = home.peers()
    facts = {name: {"words": card.words, "address": card.address} for name, card in cards.items()}
    lines = (f"{name}  {card.words}  {card.address or 'dials out only'}" for name, card in cards.items())
    print_result(facts, lines, as_json=as_json)


@command.command()
@click.argument("study")
@click.option("--hash", "sha256", help="The hash you agreed on; refused if the file has another.")
@click.option("--runs", type=int, help="For how many runs from now on: 1; if only the roster is new, as many as were left.")
@click.option("--until", type=click.DateTime(["%Y-%m-%d"]), help="The last day (UTC) on which a run may begin; else no end.")
@AS
@HOME
@JSON
def approve(
    study: str, sha256: str | None, runs: int | None, until: datetime | None, who: str | None, home: SiteFolder, as_json: bool
) -> None:
    """Say yes to a STUDY with its newest roster: its file, or the hash of a file in the site's folder studies/.

    It says which settings are not the default and how many colluding sites the study bears. Policy is checked now and again
    before every run.

    Example:
      blindbayes site approve study.toml --hash HASH --config north
    """
    file = find_study(home, study)
    if sha256 is not None and sha256 != file.roster.sha256:
        raise ConfigError(
            f"the file has another hash than the one you agreed on: {file.roster.sha256}; ask who wrote it for the file you "
            "agreed on"
        )
    file.require_signatures()
    asked = approval_of(file)
    if not as_json:
        click.echo("\n".join(asked.lines))
        known = file.at(home.approvals.roster_of(file.sha256) or file.sha256)
        for after, change in list(zip(file.rosters[1:], file.changes, strict=True))[
            0 if known is None else len(known.changes) :
        ]:
            click.echo("\n".join(after.told(change)))
    cost, past = preview.cost(home, file, runs=runs or 1), preview.again(home, file)
    if not as_json:
        left = f"; {cost['left_after']:g} of {cost['budget']:g} left after {cost['runs']} run(s)" if "left" in cost else ""
        click.echo("\n".join([*past, *([f"costs epsilon {cost['epsilon']:g} a run at most{left}"] if cost["epsilon"] else [])]))
    done = home.decisions.approve(file, runs=runs, until=None if until is None else until.date(), who=who)
    last = home.approvals.until(file.sha256)
    if as_json:
        facts = {"approved": file.sha256, "runs": runs, "runs_left": done.runs_left, "by": done.by, "wanted": done.wanted}
        facts["until"] = None if last is None else last.isoformat()
        print_json({**facts, "cost": cost, "past": past, "approval": asked.to_dict()})
    elif done.wanted:
        click.echo(f"{', '.join(done.by)} said yes; {done.wanted} more of the site's stewards must, to the same.")
    else:
        day = "" if last is None else f" until {last} (UTC)"
        click.echo(f"Approved {file.roster.sha256} for {done.runs_left} run(s){day}: {file.title}")


def find_study(home: SiteFolder, text: str) -> StudyFile:
    if Path(text).is_file():
        return StudyFile.from_toml(text)
    for path in sorted((home.folder / "studies").glob("*.toml")):
        found = StudyFile.from_toml(path)
        if found.sha256 == text:
            return found
    if (approved := home.approvals.stored(text)) is not None:
        return approved
    raise ConfigError(f"there is no file {text!r}, and no study of that hash in the site's folder studies/")


@command.command()
@click.argument("sha256")
@click.option("--reason", help="Why; it stands in the audit log.")
@AS
@HOME
def revoke(sha256: str, reason: str | None, who: str | None, home: SiteFolder) -> None:
    """Take an approval back.

    Example:
      blindbayes site revoke HASH --config north
    """
    home.decisions.revoke(sha256, why=reason, who=who)
    click.echo(f"Revoked {sha256}")


@command.command("shares")
@HOME
@JSON
def list_shares(home: SiteFolder, as_json: bool) -> None:
    """The models over columns of which this site holds a share, and how many instances may still be classified.

    Example:
      blindbayes site shares --config hospital
    """
    found, lines = home.shares.all(), []
    for each in found:
        allowed = "without limit" if each["queries"] is None else f"of {each['queries']} queries"
        lines.append(f"run {each['run']}  study {each['study']}  {each['spent']} {allowed} used")
    print_result(found, lines or ["No shares here."], as_json=as_json)


@command.command("destroy")
@click.argument("run")
@AS
@HOME
@click.confirmation_option(prompt="Without this share nobody can classify with that model any more. Destroy it?")
def destroy_share(run: str, who: str | None, home: SiteFolder) -> None:
    """Erase this site's share of the model of a training RUN. The model is gone for all parties.

    Example:
      blindbayes site destroy RUN --config hospital
    """
    home.shares.destroy(run, who=home.people.require("manage", who))
    click.echo(f"Destroyed the share of run {run}.")


@command.command("serve")
@HOME
@PASSPHRASE
@JSON
@click.option("--log-json", "json_log", is_flag=True, help="Log to standard error as JSON lines: events, names, counts.")
@click.option("--console", "with_console", is_flag=True, help="Print a code to sign in to the site console with a browser.")
@FOR
def serve_command(
    home: SiteFolder, passphrase_file: Path | None, as_json: bool, json_log: bool, with_console: bool, person: str | None
) -> None:
    """Run the agent until it is stopped. Runs that were interrupted go on.

    Example:
      blindbayes site serve --config north --log-json
    """
    if json_log:
        log_as_json()
    from blindbayes.agent.agent import Agent
    from blindbayes.agent.serve import serve
    from blindbayes.console.port import ConsolePort

    identity = Identity.load(home.folder, passphrase=read_passphrase(passphrase_file))

    def ready(operator: str, port: int) -> None:
        if as_json:
            click.echo(f'{{"site": "{identity.name}", "operator": "{operator}", "port": {port}}}')
        else:
            idle = "dials out only" if home.config.listen is None else f"will listen on {home.config.listen}"
            where = f"listens on port {port}" if port else idle
            click.echo(f"{identity.name} {where}; operator at {operator}; {len(home.peers())} sites pinned")
            if not home.peers():
                click.echo("Nobody is pinned, so nobody can come: `blindbayes site pin` the others' cards.")
            if with_console:
                _show_code(operator, home.people.name_of(person), ports[0].auth.new_code)

    ports: list[ConsolePort] = []

    def make_port(agent: Agent) -> ConsolePort:
        ports.append(ConsolePort(agent))
        return ports[0]

    asyncio.run(serve(home, identity, make_port, ready=ready))


def _show_code(operator: str, person: str, new_code: Callable[[str], str]) -> None:
    click.echo(f"Site console: http://{operator}")
    try:
        click.echo(f"{person} signs in with this code, once, within ten minutes:  {new_code(person)}")
    except ConfigError as error:  # the agent runs all the same
        click.echo(f"No code: {error}. For somebody else: blindbayes site console --for NAME")


async def _first_run(folder: Path, operator: str, person: str) -> None:
    from blindbayes.agent.serve import serve
    from blindbayes.console.first_run import FirstRun
    from blindbayes.console.port import ConsolePort

    page = FirstRun(folder, operator)
    await page.start()
    _show_code(page.address, person, page.auth.new_code)
    home, identity = await page.wait()
    click.echo(f"Made site {identity.name} in {folder}; its agent runs here until it is stopped.")
    await serve(home, identity, lambda agent: ConsolePort(agent, page))


@command.command("console")
@CONFIG
@click.option(
    "--operator", default="127.0.0.1:7441", show_default=True, help="Of a new site: loopback host:port for its people."
)
@FOR
@JSON
def console_command(config: Path, operator: str, person: str | None, as_json: bool) -> None:
    """Print the address of the running agent's console and a code that signs one person in there with a browser, once.

    A person with a password signs in with it: there is no code for them. Where there is no site yet the command serves a page
    that makes one, and goes on as its agent.

    Example:
      blindbayes site console --for "Ada Lovelace" --config north
    """
    folder = config.parent if config.suffix == ".toml" else config
    if not (folder / "site.toml").exists():
        asyncio.run(_first_run(folder, operator, person or account()))
        return
    home = SiteFolder.open(config)
    client, name = OperatorClient(home.folder), home.people.name_of(person)
    answer = client.call("POST", "/codes", {"name": name})
    if "code" not in answer:
        raise ConfigError(str(answer["message"]))
    if as_json:
        print_json({"address": f"http://{client.address}", "for": name, "code": answer["code"]})
    else:
        _show_code(client.address, name, lambda _: str(answer["code"]))


@command.command()
@HOME
@JSON
def status(home: SiteFolder, as_json: bool) -> None:
    """What the running agent is doing.

    Example:
      blindbayes site status --config north
    """
    shown = OperatorClient(home.folder).call("GET", "/status")
    if as_json:
        print_json(shown)
        return
    click.echo(f"{shown['site']}  {shown['fingerprint']}")
    for name, up in shown["peers"].items():
        told = shown.get("versions", {}).get(name, {})
        runs = f", blindbayes {told['blindbayes']}" if "blindbayes" in told else "".join(f", {k} {v}" for k, v in told.items())
        click.echo(f"  {name}: {'connected' if up else 'not connected'}{runs}")
    for each in shown["proposed"]:
        click.echo(f"  {each['by']} proposes study {each['study']}, which is not approved here")
    for each in shown["pending_predictions"]:
        click.echo(f"  {each['by']} asks to classify with model {each['model']}; it waits until you start `study predict` too")
    for run in shown["runs"]:
        click.echo(f"  run {run['run']} ({run['kind']}): {run['text']}")


@command.command("log")
@click.option("--must-hold", help="A head of this log that another site has seen.")
@HOME
@JSON
def log(must_hold: str | None, home: SiteFolder, as_json: bool) -> None:
    """Verify the audit log and show it.

    Example:
      blindbayes site log --config north
    """
    number = home.audit.verify(must_hold=must_hold)
    entries = list(home.audit.entries())
    lines = []
    for entry in entries:
        told = ("site", "run", "study", "state", "who", "why")
        about = " ".join(f"{key}={entry[key]}" for key in told if entry.get(key) is not None)
        lines.append(f"{entry['time']}  {entry['event']:10} {about}")
    lines.append(f"{number} entries, chain intact, head {home.audit.head}")
    print_result({"entries": entries, "head": home.audit.head}, lines, as_json=as_json)


@command.command("policy")
@HOME
def show_policy(home: SiteFolder) -> None:
    """What this site allows.

    Example:
      blindbayes site policy --config north
    """
    policy = home.config.policy
    print_json({name: getattr(policy, name) for name in Policy.__struct_fields__})


import blindbayes.cli.commands.site_backup  # noqa: E402
import blindbayes.cli.commands.site_history  # noqa: E402
import blindbayes.cli.commands.site_runs  # noqa: E402, F401 - each adds its commands
