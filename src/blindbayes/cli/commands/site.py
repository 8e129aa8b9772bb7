"""`blindbayes site`: one organisation's agent: set-up, keys, pins, process.

`site_decisions` and `site_recovery` add the other commands of the group.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from blindbayes.agent.approvals.people import account
from blindbayes.agent.client import OperatorClient
from blindbayes.agent.config import Rows, SiteConfig
from blindbayes.agent.site_file import change_settings, version_of
from blindbayes.agent.store.folder import SiteFolder, ask_to_reload, sole_agent
from blindbayes.cli import print_json
from blindbayes.cli.options import AS, CONFIG, FILE, HOME, JSON, NEW_FOLDER, PASSPHRASE, print_result, read_passphrase
from blindbayes.disclosure.policy import Policy
from blindbayes.errors import ConfigError
from blindbayes.io.untrusted import require_port, shown
from blindbayes.net.events import log_json
from blindbayes.net.identity import Identity, read_card

FOR = click.option("--for", "person", help="Person whom the code signs in, as in people.toml. [default: that of your account]")
_OPERATOR = click.option(
    "--operator", default="127.0.0.1:7441", show_default=True, help="Loopback host:port for console and commands."
)


def log_as_json() -> None:
    """Write only JSON lines to standard error. Call it before gRPC is imported, which logs text of its own."""
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
@click.argument("folder", type=NEW_FOLDER)
@click.option("--name", required=True, help="Name of the site in studies: lower-case letters, digits, dashes.")
@click.option("--address", default="", help="host:port for other sites; omit it if this site only dials out.")
@click.option("--listen", help="host:port to listen on; omit it if this site only dials out.")
@_OPERATOR
@click.option("--table", help="CSV or Parquet path, or database URL with its table: duckdb:///visits.duckdb#visits.")
@click.option("--exact-sums", is_flag=True, help="Allow sums without noise; small groups can show in them.")
@click.option("--epsilon", default="10", show_default=True, help="Budget of the site's ledger.")
@click.option("--delta", default="0.00001", show_default=True, help="Budget of the site's ledger.")
@click.option(
    "--succeeds",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the site that this one replaces under a new identity.",
)
@PASSPHRASE
@JSON
def init(folder: Path, name: str, table: str | None, succeeds: Path | None, as_json: bool, **given: Any) -> None:
    """Make keys, a card for the other sites, a ledger and site.toml in FOLDER.

    With --succeeds the new identity takes over ledger, audit log, people, pins, and what no option gives of settings, address
    and table: the budget spent and the set of sites that the table is bound to stay the same. Stop the old agent first; its
    folder can no longer be used. The other sites pin the new card under the same name (`site pin --replace`).

    Example:
      blindbayes site init north --name north --listen 0.0.0.0:7440 --address north.example:7440 --table visits.parquet
    """
    if given["address"]:
        require_port(given["address"], "--address")
    old = None if succeeds is None else SiteFolder.open(succeeds)
    rows = None if table is None else Rows(_source(table))
    if old is None:
        if rows is not None:
            _require_only_reader(folder, rows)
        policy = Policy(exact_sums=given["exact_sums"])
        config = SiteConfig(listen=given["listen"], operator=given["operator"], rows=rows, policy=policy)
    else:
        config = old.config
        given["address"] = given["address"] or read_card(old.folder / "card.toml").address
    home, identity = SiteFolder.create(
        folder,
        name,
        config=config,
        passphrase=read_passphrase(given["passphrase_file"]),
        succeeds=old,
        **{each: given[each] for each in ("address", "epsilon", "delta")},
    )
    if old is not None:
        typed = click.get_current_context().get_parameter_source
        changes = {name: given[name] for name in ("listen", "operator") if typed(name) is not ParameterSource.DEFAULT}
        changes |= {} if rows is None else {"rows": {"source": rows.source}}
        changes |= {"policy.exact_sums": True} if given["exact_sums"] else {}
        change_settings(home.folder, changes, version_of(home.folder))
    facts = {"site": name, "folder": str(home.folder), "card": str(home.folder / "card.toml"), "words": identity.card.words}
    lines = [
        f"Made site {name} in {folder}.",
        f"Send {folder / 'card.toml'} to the other sites; its words, to compare by phone:",
    ]
    print_result(facts, [*lines, f"  {identity.card.words}"], as_json=as_json)


def _source(table: str) -> str:
    """Return the table's absolute path: the agent may be started elsewhere. Other sources stay as they are."""
    if Path(table).exists():
        return str(Path(table).resolve())
    if "://" not in table and not any(mark in table for mark in "*?["):
        click.echo(
            f"note: {table!r} does not exist; put it into the site's folder under that name or change `source` in site.toml",
            err=True,
        )
    return table


def _require_only_reader(folder: Path, rows: Rows) -> None:
    """Raise if a neighbouring site reads the same table: it would get a second budget and a second audit log."""
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
@click.option("--words", help="Words as read out by the other site. [default: ask for them]")
@click.option("--replace", is_flag=True, help="Replace the card of the same site; exact sums treat both as one site.")
@AS
@HOME
def pin_card(card: Path, words: str | None, replace: bool, who: str | None, home: SiteFolder) -> None:
    """Trust another site's CARD from now on.

    Example:
      blindbayes site pin south-card.toml --config north
    """
    pinned, own = read_card(card), read_card(home.folder / "card.toml")
    if pinned.identity == own.identity:
        raise ConfigError("this is the site's own card; pin those of the others")
    if pinned.name == own.name:
        raise ConfigError(f"this card has the name of this site, {own.name}; the other site needs another name")
    if words is None:
        # The prompt does not show them: people would copy them, and nothing would be compared.
        words = click.prompt(f"Call {pinned.name} and type the words that it reads out")
    pinned.require_words(words)
    before = home.peers().get(pinned.name)
    home.pin(pinned, replace=replace, who=who)
    if before is not None and before.identity != pinned.identity:
        click.echo(
            f"{pinned.name} has a new identity: exact sums treat both as one site. If it is another organisation, pin the old "
            "card again and give the new one another name."
        )
    reloaded = " The running agent has reloaded it." if ask_to_reload(home.folder) else ""
    click.echo(f"Pinned {pinned.name}.{reloaded}")


@command.command("request")
@HOME
@PASSPHRASE
def request_certificate(home: SiteFolder, passphrase_file: Path | None) -> None:
    """Print a certificate signing request, for consortia that use a certificate authority in addition to pins.

    Example:
      blindbayes site request --config north > north.csr
    """
    from blindbayes.net.authority import request

    click.echo(request(Identity.load(home.folder, passphrase=read_passphrase(passphrase_file))).decode(), nl=False)


@command.command()
@PASSPHRASE
@click.option("--new-passphrase-file", type=FILE, help="File with the new passphrase. [default: keep the old one]")
@AS
@HOME
def rotate(passphrase_file: Path | None, new_passphrase_file: Path | None, who: str | None, home: SiteFolder) -> None:
    """Make new connection keys and a new card for the same identity. Stop the agent first; the others pin the new card.

    Studies and approvals name the identity and stay valid. If the identity's own key may have leaked, make a new site that
    succeeds this one (`blindbayes site init --succeeds`).

    Example:
      blindbayes site rotate --config north
    """
    by, old = home.people.require("manage", who), read_passphrase(passphrase_file)
    with sole_agent(home.folder):
        new = old if new_passphrase_file is None else read_passphrase(new_passphrase_file)
        identity = Identity.rotate(home.folder, passphrase=old, new_passphrase=new)
        home.audit.append("rotated", fingerprint=identity.card.words, who=by)
    click.echo(f"Send {home.folder / 'card.toml'} to the other sites again (`blindbayes site pin --replace`); its words:")
    click.echo(f"  {identity.card.words}")


@command.command()
@HOME
@JSON
def peers(home: SiteFolder, as_json: bool) -> None:
    """List the pinned sites with their words.

    Example:
      blindbayes site peers --config north
    """
    cards = home.peers()
    facts = {name: {"words": card.words, "address": card.address} for name, card in cards.items()}
    lines = (f"{name}  {card.words}  {card.address or 'dials out only'}" for name, card in cards.items())
    print_result(facts, lines, as_json=as_json)


@command.command("serve")
@HOME
@PASSPHRASE
@JSON
@click.option("--log-json", "json_log", is_flag=True, help="Log events, names and counts as JSON lines to standard error.")
@click.option("--console", "with_console", is_flag=True, help="Print a code to sign in to the site console with a browser.")
@FOR
def serve_command(
    home: SiteFolder, passphrase_file: Path | None, as_json: bool, json_log: bool, with_console: bool, person: str | None
) -> None:
    """Run the agent until it is stopped. Interrupted runs are resumed.

    Example:
      blindbayes site serve --config north --log-json
    """
    if json_log:
        log_as_json()
    from blindbayes.agent.agent import Agent
    from blindbayes.agent.serve import serve
    from blindbayes.console.port import ConsolePort

    identity = Identity.load(home.folder, passphrase=read_passphrase(passphrase_file))
    ports: list[ConsolePort] = []

    def make_port(agent: Agent) -> ConsolePort:
        ports.append(ConsolePort(agent))
        return ports[0]

    def ready(operator: str, port: int) -> None:
        if as_json:
            click.echo(f'{{"site": "{identity.name}", "operator": "{operator}", "port": {port}}}')
            return
        idle = "dials out only" if home.config.listen is None else f"will listen on {home.config.listen}"
        where = f"listens on port {port}" if port else idle
        click.echo(f"{identity.name} {where}; operator at {operator}; {len(home.peers())} sites pinned")
        if not home.peers():
            click.echo("No site is pinned, so none can connect: `blindbayes site pin` the others' cards.")
        if with_console:
            _show_code(operator, home.people.name_of(person), ports[0].auth.new_code)

    asyncio.run(serve(home, identity, make_port, ready=ready))


def _show_code(operator: str, person: str, new_code: Callable[[str], str]) -> None:
    click.echo(f"Site console: http://{operator}")
    try:
        click.echo(f"Code for {person}, valid once within ten minutes:  {new_code(person)}")
    except ConfigError as error:  # the agent keeps running
        click.echo(f"No code: {error}. For another person: blindbayes site console --for NAME")


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
@_OPERATOR
@FOR
@JSON
def console_command(config: Path, operator: str, person: str | None, as_json: bool) -> None:
    """Print the address of the running agent's console and a one-time code for one person.

    People with a password sign in with it and get no code. If there is no site yet, the command serves a page that makes one
    and then runs its agent (--operator is for that page).

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
    """Show the state of the running agent.

    Example:
      blindbayes site status --config north
    """
    state = OperatorClient(home.folder).call("GET", "/status")
    lines = [f"{state['site']}  {state['fingerprint']}"]
    for name, up in state["peers"].items():
        versions = state.get("versions", {}).get(name, {})
        if "blindbayes" in versions:
            versions = {"blindbayes": versions["blindbayes"]}
        version = "".join(f", {each} {number}" for each, number in versions.items())
        lines.append(f"  {name}: {'connected' if up else 'not connected'}{version}")
    if not all(state["peers"].values()):
        lines.append(
            "  not connected: not running, not reachable, or with another certificate than the pinned one. The agent's "
            "log then says wrong_certificate; if the site renewed its keys, pin its new card with --replace"
        )
    for each in state["proposed"]:
        lines.append(f"  {each['by']} proposes study {each['study']}, which is not approved here")
    for each in state["pending_predictions"]:
        lines.append(f"  {each['by']} requests predictions of model {each['model']}; waiting for `study predict` at this site")
    for each in state["refused"]:
        lines.append(f"  refused run {each['run']} of {each['site']}: {each['why']}")
    lines += [f"  run {run['run']} ({run['kind']}): {run['text']}" for run in state["runs"]]
    print_result(state, lines, as_json=as_json)


@command.command()
@HOME
def health(home: SiteFolder) -> None:
    """Exit with code 0 if the agent runs and can read its log and ledger. For containers and timers.

    Example:
      blindbayes site health --config north
    """
    if (problem := OperatorClient(home.folder).ready()) is not None:
        raise ConfigError(f"the agent is not ready: {shown(problem)}")
    click.echo("ready")


@command.command()
@HOME
def reload(home: SiteFolder) -> None:
    """Reload settings, policy and pins in the running agent; runs continue.

    Example:
      blindbayes site reload --config north
    """
    if not ask_to_reload(home.folder):
        raise ConfigError("no agent of this site is running; it reads its settings when it starts")
    click.echo("Reloaded. Changes of listen, operator, relay, tls or ledger take effect after a restart.")


@command.command("log")
@click.option("--must-hold", help="Head of this log that another site has seen.")
@HOME
@JSON
def log(must_hold: str | None, home: SiteFolder, as_json: bool) -> None:
    """Verify the audit log and print it.

    Example:
      blindbayes site log --config north
    """
    number = home.audit.verify(must_hold=must_hold)
    entries, lines = list(home.audit.entries()), []
    for entry in entries:
        fields = ("site", "run", "study", "state", "who", "why")
        about = " ".join(f"{key}={entry[key]}" for key in fields if entry.get(key) is not None)
        lines.append(f"{entry['time']}  {entry['event']:10} {about}")
    lines.append(f"{number} entries, chain intact, head {home.audit.head}")
    print_result({"entries": entries, "head": home.audit.head}, lines, as_json=as_json)


@command.command("policy")
@HOME
def show_policy(home: SiteFolder) -> None:
    """Print the policy of this site.

    Example:
      blindbayes site policy --config north
    """
    policy = home.config.policy
    print_json({name: getattr(policy, name) for name in Policy.__struct_fields__})


import blindbayes.cli.commands.site_decisions  # noqa: E402
import blindbayes.cli.commands.site_recovery  # noqa: E402, F401 - each adds its commands
