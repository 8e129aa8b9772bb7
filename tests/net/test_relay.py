"""Sites that can only dial out meet at a relay, which sees no content."""

from __future__ import annotations

import asyncio
from pathlib import Path

from blindbayes.agent.agent import Agent
from blindbayes.net.grpc_courier import GrpcCourier
from blindbayes.net.identity import Identity
from blindbayes.net.relay import Relay
from blindbayes.study.file import Deadlines
from blindbayes.testing.loopback import Loopback
from support.sites import BOOK, FAST, bounded, make_rows

NAMES = ("north", "south", "west")


class Recording(Relay):
    """A relay that looks at what it passes on, and may lose or change it."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.seen: list[bytes] = []
        self.lose_every = 0

    async def _pass_on(self, sender: str, raw: bytes) -> None:
        self.seen.append(raw)
        if self.lose_every and len(self.seen) % self.lose_every == 0:
            return
        await super()._pass_on(sender, raw)


def run_through_relay(tmp_path: Path, *, lose_every: int = 0) -> Recording:
    seen: list[Recording] = []

    async def test() -> None:
        net = Loopback(tmp_path / "sites", make_rows(tmp_path, NAMES))
        cards = {name: site.identity.with_address("").card for name, site in net.sites.items()}
        hub = Identity.generate("hub")
        relay = Recording(hub, cards, "127.0.0.1:0")
        relay.lose_every = lose_every
        seen.append(relay)
        await relay.start()
        hub = hub.with_address(f"127.0.0.1:{relay.port}")
        agents = {}
        for name, site in net.sites.items():
            others = {other: card for other, card in cards.items() if other != name}
            courier = GrpcCourier(site.identity, others, relay=hub.card, via_relay=frozenset(others))
            agents[name] = Agent(site.home, site.identity, courier, timing=FAST)
            await agents[name].start()
        study = net.make_study(BOOK, deadlines=Deadlines(step=20, join=20, run=40))
        net.approve(study)
        run = agents["west"].begin(study.sha256)
        await run.done.wait()
        ended = [agent.runs[run.run_id] for agent in agents.values()]
        for each in ended:
            await each.done.wait()
        assert [each.text() for each in ended] == ["done"] * 3
        sources = {name: site.home.config.rows.source for name, site in net.sites.items()}  # type: ignore[union-attr]
        expected = (study.study.simulate(sources).save(tmp_path / "simulated") / "model.json").read_text()
        assert {(each.release / "model.json").read_text() for each in ended if each.release} == {expected}
        for agent in agents.values():
            await agent.stop()
        await relay.stop()

    bounded(test, 90, wall=True)
    return seen[0]


def test_sites_that_only_dial_out_meet_at_a_relay(tmp_path: Path) -> None:
    relay = run_through_relay(tmp_path)
    assert relay.passed > 30
    traffic = b"".join(relay.seen)
    for plain in (b"colour", b"red", b"ill", b"vector_masked", b"loopback"):
        assert plain not in traffic


def test_a_relay_that_loses_frames_slows_the_run_down_and_no_more(tmp_path: Path) -> None:
    assert run_through_relay(tmp_path, lose_every=23).passed > 30


def test_a_relay_serves_its_users_only() -> None:
    async def test() -> None:
        hub, user, stranger = (Identity.generate(name) for name in ("hub", "north", "evil"))
        relay = Relay(hub, {"north": user.card}, "127.0.0.1:0")
        await relay.start()
        card = hub.with_address(f"127.0.0.1:{relay.port}").card

        class Ears:
            ups: list[str] = []

            def frame_arrived(self, sender: str, frame: bytes) -> None: ...

            def peer_up(self, peer: str) -> None:
                Ears.ups.append(peer)

            def peer_down(self, peer: str) -> None: ...

        courier = GrpcCourier(stranger, {"north": user.card}, relay=card, via_relay=frozenset({"north"}))
        await courier.start(Ears())
        await asyncio.sleep(0.5)
        assert Ears.ups == []
        await courier.stop()
        await relay.stop()

    bounded(test, wall=True)
