"""`blindbayes relay`: pass ciphertext between sites that can only dial out."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import click

from blindbayes.cli.commands.site import log_as_json
from blindbayes.cli.options import FILE, NEW_FOLDER, PASSPHRASE, read_passphrase
from blindbayes.errors import ConfigError
from blindbayes.io.files import make_private_folder
from blindbayes.net.identity import Identity, pin, pinned, read_card

FOLDER = click.argument("folder", type=NEW_FOLDER)


def require_relay(folder: Path) -> None:
    """Raise unless the folder holds the keys of a relay."""
    if (folder / "site.toml").exists():
        raise ConfigError(f"{folder} is a site's folder; run it with `blindbayes site serve --config {folder}`")
    if not (folder / "card.toml").exists():
        raise ConfigError(
            f"{folder} holds no relay; make one with `blindbayes relay init {folder} --name NAME --address HOST:PORT`"
        )


@click.group(name="relay")
def command() -> None:
    """Pass ciphertext between sites that can only dial out.

    Example:
      blindbayes relay init hub --name hub --address relay.example:7450
      blindbayes relay pin hub north-card.toml --words "the words that north reads out"
      blindbayes relay serve hub --listen 0.0.0.0:7450
    """


@command.command()
@FOLDER
@click.option("--name", required=True, help="Name of the relay.")
@click.option("--address", required=True, help="host:port for the sites.")
@PASSPHRASE
def init(folder: Path, name: str, address: str, passphrase_file: Path | None) -> None:
    """Make the relay's keys and card in FOLDER.

    Example:
      blindbayes relay init hub --name hub --address relay.example:7450
    """
    make_private_folder(folder)
    identity = Identity.create(folder, name, address=address, passphrase=read_passphrase(passphrase_file))
    click.echo(f"Send {folder / 'card.toml'} to the sites; its words:\n  {identity.card.words}")


@command.command("pin")
@FOLDER
@click.argument("card", type=FILE)
@click.option("--words", required=True, help="Words as read out by the site.")
def pin_card(folder: Path, card: Path, words: str) -> None:
    """Allow the site of CARD to use this relay.

    Example:
      blindbayes relay pin hub north-card.toml --words "the words that north reads out"
    """
    require_relay(folder)
    pinned_card = read_card(card)
    pinned_card.require_words(words)
    pin(folder, pinned_card)
    click.echo(f"Pinned {pinned_card.name}")


@command.command()
@FOLDER
@click.option("--listen", required=True, help="host:port to listen on.")
@PASSPHRASE
@click.option("--log-json", "json_log", is_flag=True, help="Log events, names and counts as JSON lines to standard error.")
def serve(folder: Path, listen: str, passphrase_file: Path | None, json_log: bool) -> None:
    """Run the relay until it is stopped.

    Example:
      blindbayes relay serve hub --listen 0.0.0.0:7450
    """
    if json_log:
        log_as_json()
    from blindbayes.net.relay import Relay

    require_relay(folder)
    identity = Identity.load(folder, passphrase=read_passphrase(passphrase_file))
    users = pinned(folder)
    if not users:
        raise ConfigError(f"no site may use this relay yet: run `blindbayes relay pin {folder} CARD --words ...` for each site")

    async def main() -> None:
        stop = asyncio.Event()
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, stop.set)
        relay = Relay(identity, users, listen)
        await relay.start()
        click.echo(f"{identity.name} relays envelopes on port {relay.port} for {len(users)} sites")
        await stop.wait()
        await relay.stop()

    asyncio.run(main())
