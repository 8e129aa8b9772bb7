"""What an IT department needs: secrets apart, a proxy, new keys, and a disk that does not fill."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import shutil
import time
from pathlib import Path

import pytest

from blindbayes.agent.config import SiteConfig
from blindbayes.agent.store.folder import SiteFolder
from blindbayes.errors import ConfigError
from blindbayes.net.grpc_courier import GrpcCourier
from blindbayes.net.identity import Identity, read_card
from support.sites import BOOK, Office, bounded

NAMES = ("north", "south", "west")


# -- settings and secrets ---------------------------------------------------------------------------------------------------


def test_secrets_come_from_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site.toml").write_text(
        '[rows]\nsource = "postgres://agent:${file:secrets/db}@db.example/${env:WARD}#visits"\n[policy]\nmin_rows = 20\n'
    )
    with pytest.raises(ConfigError, match="secrets/db"):
        SiteConfig.read(tmp_path / "site.toml")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "db").write_text("p4ss\n")
    monkeypatch.setenv("WARD", "cardiology")
    monkeypatch.setenv("BLINDBAYES_SITE__LISTEN", "0.0.0.0:7440")
    monkeypatch.setenv("BLINDBAYES_SITE__POLICY__MIN_ROWS", "50")
    monkeypatch.setenv("BLINDBAYES_SITE__POLICY__PROTOCOLS", '["masked_sum"]')
    config = SiteConfig.read(tmp_path / "site.toml")
    assert config.rows is not None
    assert config.rows.source == "postgres://agent:p4ss@db.example/cardiology#visits"
    assert (config.listen, config.policy.min_rows, config.policy.protocols) == ("0.0.0.0:7440", 50, ("masked_sum",))
    monkeypatch.setenv("BLINDBAYES_SITE__POLICY__MINROWS", "50")
    with pytest.raises(ConfigError, match="minrows"):  # a slip of the pen is not a setting that nobody reads
        SiteConfig.read(tmp_path / "site.toml")
    monkeypatch.delenv("BLINDBAYES_SITE__POLICY__MINROWS")
    monkeypatch.setenv("BLINDBAYES_SITE__LISTEN__HOST", "x")
    with pytest.raises(ConfigError, match="LISTEN__HOST"):
        SiteConfig.read(tmp_path / "site.toml")


# -- the way out -------------------------------------------------------------------------------------------------------------


class Ear:
    def __init__(self) -> None:
        self.up: set[str] = set()
        self.heard: list[bytes] = []

    def frame_arrived(self, sender: str, frame: bytes) -> None:
        self.heard.append(frame)

    def peer_up(self, peer: str) -> None:
        self.up.add(peer)

    def peer_down(self, peer: str) -> None:
        self.up.discard(peer)


def test_a_site_behind_an_http_proxy_dials_through_it_and_the_proxy_sees_tls(tmp_path: Path) -> None:
    async def test() -> None:
        asked: list[str] = []
        seen = bytearray()

        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while data := await reader.read(65536):
                    seen.extend(data)
                    writer.write(data)
                    await writer.drain()
            writer.close()

        async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0].decode()
            asked.append(line)
            host, _, port = line.split()[1].rpartition(":")
            there = await asyncio.open_connection("127.0.0.1", int(port))
            assert host == "south.example"  # a name that only the proxy can resolve
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(carry(reader, there[1]), carry(there[0], writer))

        proxy = await asyncio.start_server(connect, "127.0.0.1", 0)
        place = f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
        sites = {name: Identity.create(tmp_path / name, name) for name in ("north", "south")}
        ears = {name: Ear() for name in sites}
        south = GrpcCourier(sites["south"], {"north": sites["north"].card}, listen="127.0.0.1:0")
        await south.start(ears["south"])
        card = dataclasses.replace(sites["south"].card, address=f"south.example:{south.port}")
        north = GrpcCourier(sites["north"], {"south": card}, proxy=place)
        try:
            await north.start(ears["north"])
            while "south" not in ears["north"].up:
                await asyncio.sleep(0.02)
            await north.send("south", b"canary-through-the-proxy")
            while not ears["south"].heard:
                await asyncio.sleep(0.02)
            assert asked[0].startswith("CONNECT south.example:")
            assert b"canary-through-the-proxy" not in seen
        finally:
            await north.stop()
            await south.stop()
            proxy.close()

    bounded(test, wall=True)


# -- keys ----------------------------------------------------------------------------------------------------------------------


def test_new_connection_keys_keep_the_identity_and_what_others_remember(tmp_path: Path) -> None:
    office = Office(tmp_path, NAMES)
    north, south = (office.net.sites[name] for name in ("north", "south"))
    old = north.identity.card
    new = Identity.rotate(north.home.folder, passphrase=None, new_passphrase="a longer one")
    assert new.card.identity == old.identity
    assert new.card.certificate_digest != old.certificate_digest
    with pytest.raises(ConfigError, match="passphrase"):
        Identity.load(north.home.folder)
    assert Identity.load(north.home.folder, passphrase="a longer one").card == new.card
    home = south.home
    home.pin(old, replace=True)
    home.audit.append("witnessed", run="a" * 32, site="north", heads="{}")
    with pytest.raises(ConfigError, match="another card"):
        home.pin(read_card(north.home.folder / "card.toml"))
    home.pin(read_card(north.home.folder / "card.toml"), replace=True)
    assert len(home.history.witnessed("north")) == 1  # a new certificate does not wash a site's past away
    stranger = Identity.generate("north")
    home.pin(stranger.card, replace=True)
    assert home.history.witnessed("north") == []


# -- disk ----------------------------------------------------------------------------------------------------------------------


def test_old_releases_go_and_nothing_begins_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = office.net.make_study(BOOK)
            office.net.approve(study)
            home = office.net.sites["north"].home
            for name, age in (("a" * 32, 40), ("b" * 32, 3)):
                (home.folder / "releases" / name).mkdir(parents=True)
                (home.folder / "releases" / name / "model.json").write_text("{}")
                os.utime(home.folder / "releases" / name, (time.time() - age * 86400,) * 2)
            assert home.remove_old_releases(time.time()) == []
            text = (home.folder / "site.toml").read_text()
            (home.folder / "site.toml").write_text("keep_releases_days = 30\n" + text)
            home.reload()
            assert home.remove_old_releases(time.time()) == ["a" * 32]
            assert [path.name for path in (home.folder / "releases").iterdir()] == ["b" * 32]
            assert home.audit.where("event", "release removed")[-1]["run"] == "a" * 32
            full = shutil.disk_usage(home.folder)._replace(free=1024)
            monkeypatch.setattr("blindbayes.agent.store.folder.shutil.disk_usage", lambda _: full)
            with pytest.raises(ConfigError, match=r"free some space.*min_free_mb"):
                office.agents["north"].begin(study.sha256)

    bounded(test)


def test_a_folder_opens_with_overrides_of_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    office = Office(tmp_path, NAMES)
    monkeypatch.setenv("BLINDBAYES_SITE__MIN_FREE_MB", "1")
    assert SiteFolder.open(office.net.sites["north"].home.folder).config.min_free_mb == 1
