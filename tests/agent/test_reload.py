"""An agent takes up changed settings and pins while it runs; what a study would leave is said before."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest

from blindbayes.agent.config import SiteConfig
from blindbayes.errors import ConfigError
from blindbayes.net.grpc_courier import GrpcCourier
from blindbayes.net.identity import Identity, pin, pinned
from blindbayes.study.file import Deadlines, Limits
from support.sites import BOOK, Office, bounded

NAMES = ("north", "south", "west")


def test_a_changed_policy_counts_at_once_and_stands_in_the_log(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            north = office.agents["north"]
            study = office.net.make_study(BOOK, deadlines=Deadlines(step=5, join=5, run=20), limits=Limits(quorum=3))
            path = north.home.folder / "site.toml"
            kept = path.read_text()
            path.write_text(
                kept.replace("min_rows = 10", "min_rows = 5000").replace('operator = "127', 'operator = "localhost" # "127')
            )
            with pytest.raises(ConfigError):
                await north.reload("Ada")
            assert north.home.config.policy.min_rows == 10  # a file that does not read changes nothing
            path.write_text(kept.replace("min_rows = 10", "min_rows = 5000").replace("ledger.jsonl", "other.jsonl"))
            told = await north.reload("Ada")
            assert told == {"policy": ["min_rows = 5000"], "pins": None, "after_restart": ["ledger"]}
            assert north.home.config.policy.min_rows == 5000
            assert north.home.config.ledger == "ledger.jsonl"
            last = north.home.audit.where("event", "policy")[-1]
            assert (last["changed"], last["who"]) == (["min_rows = 5000"], "Ada")
            assert (await north.reload("Ada"))["policy"] == []
            assert len(north.home.audit.where("event", "policy")) == 2
            office.net.approve(study)
            run = north.begin(study.sha256)
            await run.done.wait()
            assert "fewer rows" in str(run.error)

    bounded(test)


def test_a_site_pinned_while_the_agent_runs_is_met_without_a_restart(tmp_path: Path) -> None:
    class Ear:
        def __init__(self) -> None:
            self.up: set[str] = set()
            self.heard: list[tuple[str, bytes]] = []

        def frame_arrived(self, sender: str, frame: bytes) -> None:
            self.heard.append((sender, frame))

        def peer_up(self, peer: str) -> None:
            self.up.add(peer)

        def peer_down(self, peer: str) -> None:
            self.up.discard(peer)

    async def test() -> None:
        sites = {name: Identity.create(tmp_path / name, name) for name in ("north", "south", "west")}
        south_ear, north_ear, west_ear = Ear(), Ear(), Ear()
        pin(tmp_path / "south", sites["north"].card)
        south = GrpcCourier(sites["south"], pinned(tmp_path / "south"), listen="127.0.0.1:0")
        await south.start(south_ear)

        card = dataclasses.replace(sites["south"].card, address=f"127.0.0.1:{south.port}")
        north, west = (GrpcCourier(sites[name], {"south": card}) for name in ("north", "west"))
        try:
            await north.start(north_ear)
            await west.start(west_ear)
            while "south" not in north_ear.up:
                await asyncio.sleep(0.02)
            assert west_ear.up == set()
            pin(tmp_path / "south", sites["west"].card)
            port = south.port
            assert await south.repin(pinned(tmp_path / "south"))
            assert not await south.repin(pinned(tmp_path / "south"))
            assert south.port == port
            while not ({"north", "west"} <= south_ear.up and "south" in west_ear.up and "south" in north_ear.up):
                await asyncio.sleep(0.02)
            await west.send("south", b"hello")
            while ("west", b"hello") not in south_ear.heard:
                await asyncio.sleep(0.02)
            assert await south.repin({"west": sites["west"].card})
            while "south" in north_ear.up:
                await asyncio.sleep(0.02)
        finally:
            for courier in (north, west, south):
                await courier.stop()

    bounded(test, wall=True)


def test_the_settings_of_a_new_site_read_back(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_bytes(SiteConfig().to_toml("north"))
    assert SiteConfig.read(path) == SiteConfig()
