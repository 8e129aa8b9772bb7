"""A study over somebody else's engine: it ends as over our own courier, whatever the engine does to frames and names."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import msgspec
import pytest

from blindbayes.agent.config import Carrier, SiteConfig
from blindbayes.agent.runs.run import AgentRun
from blindbayes.agent.serve import make_courier
from blindbayes.errors import ConfigError
from blindbayes.net import carrier
from blindbayes.net.carrier import CarrierCourier, Kind, record
from blindbayes.net.courier import Latency
from blindbayes.net.envelope import Offer, Sealed, pack, unpack
from blindbayes.study.file import Deadlines, StudyFile
from support.carried import Carried, CarriedHub
from support.sites import BOOK, FAST, Office, bounded

NAMES = ("north", "south", "west")
SHORT = Deadlines(step=6, join=10, run=30)


def study_of(office: Office, **fields: object) -> StudyFile:
    study = office.net.make_study(BOOK, **{"protocol": "masked_sum", "deadlines": SHORT, **fields})
    office.net.approve(study, runs=9)
    return study


def states(runs: dict[str, AgentRun]) -> dict[str, str]:
    return {name: run.text() if run.state != "done" else "done" for name, run in runs.items()}


def models(office: Office, run: AgentRun) -> set[bytes]:
    folders = [site.home.folder / "releases" / run.run_id for site in office.net.sites.values()]
    return {(folder / "model.json").read_bytes() for folder in folders if (folder / "model.json").exists()}


async def carried(folder: Path, hub: CarriedHub, **fields: object) -> tuple[dict[str, AgentRun], set[bytes]]:
    """A study over this engine: how it ended, and the models."""
    async with Office(folder, NAMES, hub=hub, timing=FAST) as office:
        study = study_of(office, **fields)
        await hub.connect()
        await asyncio.sleep(0.05)
        try:
            runs = await office.run(study)
        finally:
            await hub.close()
        return runs, models(office, next(iter(runs.values())))


DONE = dict.fromkeys(NAMES, "done")


def test_a_study_over_an_engine_ends_in_the_bytes_of_the_direct_courier(tmp_path: Path) -> None:
    async def test() -> None:
        runs, made = await carried(tmp_path / "a", CarriedHub(tmp_path / "s", NAMES))
        assert states(runs) == DONE
        async with Office(tmp_path / "b", NAMES) as office:
            direct = await office.run(study_of(office))
            assert made == models(office, direct["north"])
            assert len(made) == 1

    bounded(test)


def twice(sender: str, to: str, frame: bytes) -> Carried:
    return [(sender, to, frame), (sender, to, frame)]


class Shuffled:
    """Holds one frame in three back until the next one of the pair has passed."""

    def __init__(self) -> None:
        self.random, self.held = random.Random(3), {}

    def __call__(self, sender: str, to: str, frame: bytes) -> Carried:
        held = self.held.pop((sender, to), [])
        if not held and self.random.random() < 0.33:
            self.held[sender, to] = [(sender, to, frame)]
            return []
        return [(sender, to, frame), *held]


class Truncated:
    """Cuts every fiftieth frame."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, sender: str, to: str, frame: bytes) -> Carried:
        self.seen += 1
        return [(sender, to, frame if self.seen % 50 else frame[: len(frame) // 2])]


def misnamed(sender: str, to: str, frame: bytes) -> Carried:
    """Everything also arrives under the third site's name, before it does under the right one."""
    (third,) = set(NAMES) - {sender, to}
    return [(third, to, frame), (sender, to, frame)]


def renamed_version(sender: str, to: str, frame: bytes) -> Carried:
    """A participant of the engine writes in everybody's name that it speaks another version."""
    return [*[(other, to, b"\x09" + frame[1:]) for other in NAMES if other != to], (sender, to, frame)]


def forged_offers(sender: str, to: str, frame: bytes) -> Carried:
    """Whoever knows a run's name can send offers in a party's name; nobody has signed them. Forty for each that is real."""
    envelope = unpack(frame)
    if not isinstance(envelope, Offer):
        return [(sender, to, frame)]
    lies = [msgspec.structs.replace(envelope, ephemeral=bytes([number]) * 32) for number in range(1, 41)]
    return [*((sender, to, pack(lie)) for lie in lies), (sender, to, frame)]


@pytest.mark.parametrize("alter", [twice, Shuffled(), Truncated(), misnamed, renamed_version, forged_offers])
def test_an_engine_that_repeats_reorders_cuts_or_names_falsely_changes_nothing(tmp_path: Path, alter: object) -> None:
    async def test() -> None:
        runs, made = await carried(tmp_path / "a", CarriedHub(tmp_path / "s", NAMES, alter))  # type: ignore[arg-type]
        assert states(runs) == DONE
        assert len(made) == 1

    bounded(test)


def test_an_engine_that_changes_every_sealed_frame_ends_the_run_and_opens_nothing(tmp_path: Path) -> None:
    def changed(sender: str, to: str, frame: bytes) -> Carried:
        if isinstance(unpack(frame), Sealed):
            frame = frame[:-1] + bytes([frame[-1] ^ 1])
        return [(sender, to, frame)]

    async def test() -> None:
        runs, made = await carried(tmp_path / "a", CarriedHub(tmp_path / "s", NAMES, changed))
        assert "done" not in states(runs).values()
        assert made == set()

    bounded(test)


def test_what_is_no_record_ends_the_connection_and_not_the_agent(tmp_path: Path) -> None:
    hello = record(Kind.HELLO, b"stream", b"\x01")
    bad = [
        b"\xff" * 4 + b"\x03\x00",  # longer than any frame
        hello + (2 * 10**6).to_bytes(4, "big") + b"\x03\x05",
        hello + b"\x00\x00\x00\x01\x03\x09x",  # a name longer than the record
        hello + record(Kind.TAKEN, b"engine-south", b"?"),
        hello + b"\x00\x00\x00\x0c\x63\x0cengine-south",  # a kind that there is not
        record(Kind.HELLO, b"stream", b"\x02"),
        record(Kind.HELLO, b"turns", b"\x01"),  # turns take seconds, and this agent was promised milliseconds
        record(Kind.FRAME, b"engine-south", b"hello?"),
    ]

    async def test() -> None:
        hub = CarriedHub(tmp_path / "s", NAMES)
        async with Office(tmp_path / "a", NAMES, hub=hub) as office:
            for raw in bad:
                reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s" / "north"))
                writer.write(raw)
                assert await asyncio.wait_for(reader.read(), 5) == b""
                writer.close()
            study = study_of(office)
            await hub.connect()
            assert states(await office.run(study)) == DONE
            await hub.close()

    bounded(test)


def test_a_site_whose_engine_dies_is_noticed_by_our_deadlines_and_named(tmp_path: Path) -> None:
    async def test() -> None:
        def until_sealed(sender: str, to: str, frame: bytes) -> Carried:
            return [] if "west" in (sender, to) and isinstance(unpack(frame), Sealed) else [(sender, to, frame)]

        hub = CarriedHub(tmp_path / "s", NAMES, until_sealed)
        async with Office(tmp_path / "a", NAMES, hub=hub) as office:
            study = study_of(office, deadlines=Deadlines(step=2, join=2, run=20))
            await hub.connect()
            run = office.agents["north"].begin(study.sha256)
            await asyncio.sleep(0.3)
            hub.lose("west")
            await asyncio.sleep(0.2)
            assert office.agents["north"].router.courier.is_up("south")
            assert not office.agents["north"].router.courier.is_up("west")
            await asyncio.wait_for(run.done.wait(), 15)
            assert run.state == "failed"
            assert "west" in run.text()
            await hub.close()

    bounded(test)


def test_an_engine_of_turns_carries_a_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier, "_QUIET", 0.02)  # a turn lasts seconds elsewhere

    async def test() -> None:
        runs, made = await carried(
            tmp_path / "a",
            CarriedHub(tmp_path / "s", NAMES, round_seconds=0.02),
            deadlines=Deadlines(step=60, join=60, run=120),
        )
        assert states(runs) == DONE
        assert len(made) == 1

    bounded(test, 60)


def test_a_study_that_needs_milliseconds_is_refused_on_an_engine_of_seconds(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path / "a", NAMES, hub=CarriedHub(tmp_path / "s", NAMES, round_seconds=1.0)) as office:
            study = study_of(office, protocol="ring_sum", deadlines=Deadlines(step=60, join=60, run=120))
            with pytest.raises(ConfigError, match=r"ring_sum sends too many messages one after another .* takes seconds"):
                office.agents["north"].begin(study.sha256)

    bounded(test)


def test_site_toml_chooses_the_carrier_and_refuses_what_does_not_go_with_it(short: Path) -> None:
    async def test() -> None:
        async with Office(short / "a", NAMES) as office:
            home, identity = office.net.sites["north"].home, office.net.sites["north"].identity
            home.config = SiteConfig(carrier=Carrier(sites={"south": "site-2"}))
            courier = make_courier(home, identity)
            assert isinstance(courier, CarrierCourier)
            assert courier.latency is Latency.SECONDS
            home.config = SiteConfig(carrier=Carrier(sites={"south": "west"}))
            with pytest.raises(ConfigError, match="a name of its own"):
                make_courier(home, identity)
            home.config = SiteConfig(carrier=Carrier(socket="s" * 120))
            with pytest.raises(ConfigError, match="at most 100 bytes"):
                make_courier(home, identity)
            with pytest.raises(ConfigError, match="leave out listen"):
                SiteConfig(listen="127.0.0.1:1", carrier=Carrier())

    bounded(test)


def test_a_site_that_is_pinned_later_is_reached_without_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        hub = CarriedHub(tmp_path / "s", NAMES)
        async with Office(tmp_path / "a", NAMES, hub=hub) as office:
            courier = office.agents["north"].router.courier
            assert isinstance(courier, CarrierCourier)
            cards = office.net.sites["north"].home.peers()
            assert await courier.repin({"south": cards["south"]})
            await hub.connect()
            await asyncio.sleep(0.2)
            assert (courier.is_up("south"), courier.is_up("west")) == (True, False)
            assert await courier.repin(cards)
            assert not await courier.repin(cards)
            await hub.close()
            await hub.connect()  # as an engine's process does when its connection is closed
            await asyncio.sleep(0.2)
            assert courier.is_up("west")
            assert states(await office.run(study_of(office))) == DONE
            await hub.close()

    bounded(test)


def test_two_agents_do_not_share_a_socket_file(tmp_path: Path) -> None:
    async def test() -> None:
        async with Office(tmp_path / "a", NAMES[:1], hub=CarriedHub(tmp_path / "s", NAMES)):
            with pytest.raises(ConfigError, match="something else listens"):
                await CarriedHub(tmp_path / "s", NAMES).courier("north").start(None)  # type: ignore[arg-type]

    bounded(test)
