"""Roles over links, envelopes and journals: the same result as in memory, through crashes and cuts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from blindbayes.crypto.coins import Coins
from blindbayes.errors import IntegrityError, LocalProtocolError, PeerLost, PeerProtocolError
from blindbayes.net.driver import Finished
from blindbayes.net.envelope import Sealed, Session, unpack
from blindbayes.net.journal import _HEAD_BYTES, Journal
from blindbayes.net.link import Link
from blindbayes.net.sessions import Timing
from blindbayes.net.states import Peer
from blindbayes.protocols.core import Role, Run, Send, open_value, receive, receive_all, send_all
from blindbayes.protocols.memory import run_in_memory
from blindbayes.wire import Message, Trust
from support.clock import bounded
from support.hub import MemoryHub
from support.mesh import STUDY, Mesh, Site

NAMES = ("east", "north", "south")


class Drawn(Message, frozen=True):
    trust: ClassVar[Trust] = Trust.CLEAR
    value: int
    bulk: bytes = b""


class Summed(Message, frozen=True):
    trust: ClassVar[Trust] = Trust.CLEAR
    value: int


def rounds(run: Run, coins: Coins, *, count: int = 3, bulk: int = 0) -> Role[list[int]]:
    """Everybody draws, everybody hears, several times: any repeated draw would show in the sums."""
    sums = []
    for _ in range(count):
        mine = coins.bits(32)
        yield from send_all(run.others, Drawn(mine, bytes(bulk)))
        drawn = yield from receive_all(run.others, Drawn)
        sums.append((yield from open_value("sum", mine + sum(each.value for each in drawn.values()))))
    return sums


def with_leader(run: Run, coins: Coins) -> Role[int]:
    """The first party adds up whoever comes, at least two."""
    leader = run.parties[0]
    if run.me != leader:
        yield Send(leader, Drawn(coins.bits(16)))
        return (yield from receive(leader, Summed)).value
    drawn = yield from receive_all(run.others, Drawn, quorum=1)
    total = sum(each.value for each in drawn.values())
    yield from send_all(tuple(drawn), Summed(total))
    return total


def silent(run: Run, coins: Coins) -> Role[None]:
    yield from receive(run.others[0], Summed)


def values(results: dict[str, Any]) -> list[Any]:
    for result in results.values():
        if isinstance(result, BaseException):
            raise result
    return [result.value for result in results.values()]


def seed_of(name: str) -> bytes:
    return name.encode().ljust(32, b".")


def in_memory(make: Callable[[Run, Coins], Role[Any]]) -> dict[str, Any]:
    roles = {name: make(Run(STUDY, "run-1", NAMES, name), Coins.seeded(seed_of(name))) for name in NAMES}
    return run_in_memory(roles).outputs


def test_the_result_is_that_of_the_memory_driver(tmp_path: Path) -> None:
    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES)
        sites = [Site(mesh, name, rounds, seed=seed_of(name)) for name in NAMES]
        results = await asyncio.gather(*(site.go() for site in sites))
        assert {site.name: result.value for site, result in zip(sites, results, strict=True)} == in_memory(rounds)
        assert results[0].opened == ("sum",) * 3
        assert results[0].received == {Drawn: 6}
        for site in sites:
            await site.stop()

    bounded(test)


def test_large_messages_travel_in_parts(tmp_path: Path) -> None:
    async def test() -> None:
        timing = Timing(step=5, join=5, run=30, beat=0.1, retry=1, window=1024**2)
        mesh = Mesh(tmp_path, NAMES, timing=timing)
        await_all = await mesh.run(dict.fromkeys(NAMES, lambda run, coins: rounds(run, coins, bulk=3_000_000)))
        sums = values(await_all)
        assert sums[0] == sums[1] == sums[2]

    bounded(test)


def test_a_message_is_on_disk_before_it_is_acknowledged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sender forgets it then: a machine that loses power at this moment could not go on."""
    commit, seal_out, synced, acked = Journal.commit, Link._seal_out, dict[Journal, dict[str, int]](), []

    def committed(journal: Journal) -> None:
        reached = {peer: journal.count(peer) for peer in NAMES}
        commit(journal)
        synced[journal] = reached

    async def sealed_out(link: Link, session: Session, step: str, body: bytes, **part: int) -> bool:
        if step == "ack":
            acked.append((msgspec.msgpack.decode(body), synced[link._journal][link.pair.peer]))
        return await seal_out(link, session, step, body, **part)

    monkeypatch.setattr(Journal, "commit", committed)
    monkeypatch.setattr(Link, "_seal_out", sealed_out)

    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES)
        held = {"south"}  # its messages are lost until others were acknowledged: the roles cannot go on, and commit nothing

        def losing(sender: str, to: str, frame: bytes) -> list[bytes]:
            if len(acked) > 1:
                held.clear()
            return [] if sender in held and _is_data(frame) else [frame]

        mesh.hub.alter = losing
        values(await mesh.run(dict.fromkeys(NAMES, rounds)))

    bounded(test)
    assert len(acked) > 3
    assert all(have <= on_disk for have, on_disk in acked)


@pytest.mark.parametrize("victim", NAMES)
def test_a_crash_at_every_frame_changes_nothing(tmp_path: Path, victim: str) -> None:
    """Kill a site when its n-th frame has left, restart it from its journal: nothing is drawn twice."""

    async def one(at: int, folder: Path) -> bool:
        sent = 0
        dead = asyncio.Event()

        def count(sender: str, to: str, frame: bytes) -> list[bytes]:
            nonlocal sent
            if sender == victim and isinstance(unpack(frame), Sealed):
                sent += 1
                if sent == at:
                    dead.set()
                if sent >= at and not revived:
                    return []
            return [frame]

        revived = False
        mesh = Mesh(folder, NAMES, hub=MemoryHub(count))
        sites = {name: Site(mesh, name, rounds, seed=seed_of(name)) for name in NAMES}
        tasks = {name: asyncio.create_task(site.go()) for name, site in sites.items()}
        watch = asyncio.create_task(dead.wait())
        await asyncio.wait({watch, tasks[victim]}, return_when=asyncio.FIRST_COMPLETED)
        died = dead.is_set()
        if died:
            await sites[victim].stop()
            await asyncio.gather(tasks[victim], return_exceptions=True)
            revived = True
            sites[victim] = Site(mesh, victim, rounds)  # the seed comes from the journal
            tasks[victim] = asyncio.create_task(sites[victim].go())
        results = dict(zip(tasks, await asyncio.gather(*tasks.values()), strict=True))
        assert {name: result.value for name, result in results.items()} == expected
        watch.cancel()
        for site in sites.values():
            await site.stop()
        return died

    expected = in_memory(rounds)

    async def test() -> None:
        deaths = 0
        for at in range(1, 16):
            deaths += await one(at, tmp_path / str(at))
        assert deaths >= 8

    bounded(test, 60)


def test_cut_connections_are_resumed(tmp_path: Path) -> None:
    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES)

        cuts = 0

        async def cutting() -> None:
            nonlocal cuts
            while True:
                await asyncio.sleep(0.002)
                mesh.hub.cut("north", "south")
                await asyncio.sleep(0.001)
                mesh.hub.mend("north", "south")
                cuts += 1

        saw = asyncio.create_task(cutting())
        sums = values(await mesh.run(dict.fromkeys(NAMES, lambda run, coins: rounds(run, coins, count=40))))
        saw.cancel()
        assert sums[0] == sums[1] == sums[2]
        assert cuts >= 10

    bounded(test)


def test_lost_and_repeated_frames_are_made_good(tmp_path: Path) -> None:
    async def test() -> None:
        count = 0

        def unreliable(sender: str, to: str, frame: bytes) -> list[bytes]:
            nonlocal count
            count += 1
            return [] if count % 17 == 0 else [frame, frame] if count % 29 == 0 else [frame]

        mesh = Mesh(tmp_path, NAMES, hub=MemoryHub(unreliable), timing=Timing(step=5, join=5, run=20, beat=0.1, retry=0.05))
        sums = values(await mesh.run(dict.fromkeys(NAMES, rounds)))
        assert sums[0] == sums[1] == sums[2]

    bounded(test)


def test_a_silent_party_is_named_by_everybody(tmp_path: Path) -> None:
    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES, timing=Timing(step=2, join=10, run=20, beat=0.1, retry=0.1))
        mute = 0

        def stopped(sender: str, to: str, frame: bytes) -> list[bytes]:
            nonlocal mute
            if sender == "south":
                mute += 1
            return [] if sender == "south" and mute > 8 else [frame]

        mesh.hub.alter = stopped
        results = await mesh.run(dict.fromkeys(NAMES, lambda run, coins: rounds(run, coins, count=50)))
        for name in ("east", "north"):
            error = results[name]
            assert isinstance(error, PeerLost)
            assert error.party == "south"

    bounded(test)


def test_a_party_that_waits_for_others_is_not_blamed(tmp_path: Path) -> None:
    """`north` waits for `east`, which waits for `south`, which stops: the error names `south` at both."""

    def chain(run: Run, coins: Coins) -> Role[int]:
        if run.me == "south":
            return (yield from receive("north", Summed)).value  # never sent: south hangs, and says that it waits
        if run.me == "east":
            value = (yield from receive("south", Drawn)).value
            yield Send("north", Drawn(value))
            return value
        return (yield from receive("east", Drawn)).value

    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES, timing=Timing(step=0.5, join=2, run=3, beat=0.05, retry=0.1))
        mesh.hub.alter = lambda sender, to, frame: [] if sender == "south" and stop.is_set() else [frame]
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.5, stop.set)
        results = await mesh.run(dict.fromkeys(NAMES, chain))
        for name in ("east", "north"):
            error = results[name]
            assert isinstance(error, PeerLost)
            assert error.party == "south"

    bounded(test)


def test_a_quorum_goes_on_and_the_decision_survives_a_crash(tmp_path: Path) -> None:
    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES, timing=Timing(step=0.6, join=2, run=10, beat=0.1, retry=0.1))
        gone = asyncio.Event()
        mesh.hub.alter = lambda sender, to, frame: [] if sender == "south" and _is_data(frame) else [frame]
        sites = {name: Site(mesh, name, with_leader) for name in NAMES}
        tasks = {name: asyncio.create_task(site.go()) for name, site in sites.items()}
        total = (await tasks["north"]).value
        await tasks["east"]
        await sites["east"].stop()
        mesh.hub.alter = None  # south's message comes now, too late
        await asyncio.sleep(0.2)
        sites["east"] = Site(mesh, "east", with_leader)
        again = await sites["east"].go()
        assert again.value == total
        assert again.lost == ("south",)
        gone.set()
        for task in tasks.values():
            task.cancel()
        for site in sites.values():
            await site.stop()

    bounded(test)


def _is_data(raw: bytes) -> bool:
    frame = unpack(raw)
    return isinstance(frame, Sealed) and frame.step[0].isupper()


def test_a_party_that_never_comes_is_named_and_nothing_is_computed(tmp_path: Path) -> None:
    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES, timing=Timing(step=0.5, join=0.6, run=5, beat=0.1, retry=0.1))
        stepped = []

        def watched(run: Run, coins: Coins) -> Role[Any]:
            stepped.append(run.me)
            return (yield from rounds(run, coins))

        results = await mesh.run({"east": watched, "north": watched})
        for error in results.values():
            assert isinstance(error, PeerLost)
            assert error.party == "south"
        assert stepped == []

    bounded(test)


@pytest.mark.parametrize("standstill", [0.0, 30.0])
def test_a_site_that_stood_still_blames_nobody(tmp_path: Path, standstill: float) -> None:
    async def test() -> None:
        timing = Timing(step=5, join=5, run=300, beat=0.1, retry=0.1)
        mesh = Mesh(tmp_path, NAMES, timing=timing)
        loop = asyncio.get_running_loop()
        sites = {name: Site(mesh, name, rounds) for name in ("north", "east")}

        async def late() -> Finished:
            await asyncio.sleep(1)
            loop.now += standstill  # type: ignore[attr-defined]
            await asyncio.sleep(1)
            sites["south"] = Site(mesh, "south", rounds)
            return await sites["south"].go()

        results = await asyncio.gather(sites["north"].go(), sites["east"].go(), late())
        assert results[0].value == results[1].value == results[2].value
        for site in sites.values():
            await site.stop()

    bounded(test, 200)


def test_a_site_that_dies_while_others_join_is_named_after_gone(tmp_path: Path) -> None:
    async def test() -> None:
        timing = Timing(step=60, join=600, run=3600, beat=0.1, retry=0.1, gone=30)
        mesh = Mesh(tmp_path, NAMES, timing=timing)
        loop = asyncio.get_running_loop()
        sites = {name: Site(mesh, name, rounds) for name in ("north", "south")}  # east never comes
        tasks = {name: asyncio.create_task(site.go()) for name, site in sites.items()}
        while sites["north"].links["south"].peer is not Peer.JOINED:
            await asyncio.sleep(0.05)
        died = loop.time()
        tasks["south"].cancel()
        await sites["south"].stop()
        with pytest.raises(PeerLost, match="no connection for 30 s") as error:
            await tasks["north"]
        assert error.value.party == "south"
        assert loop.time() - died < 35
        await sites["north"].stop()

    bounded(test, 1000)


def test_garbled_frames_end_in_an_integrity_error_that_names_the_party(tmp_path: Path) -> None:
    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES)

        def garble(sender: str, to: str, frame: bytes) -> list[bytes]:
            if sender == "south" and _is_data(frame):
                return [frame[:-1] + bytes([frame[-1] ^ 1])]
            return [frame]

        mesh.hub.alter = garble
        results = await mesh.run(dict.fromkeys(NAMES, rounds))
        error = results["north"]
        assert isinstance(error, IntegrityError | PeerLost)
        assert error.party == "south"
        assert not any(isinstance(result, Finished) for result in results.values())

    bounded(test)


def test_a_wrong_kind_is_refused(tmp_path: Path) -> None:
    def wrong(run: Run, coins: Coins) -> Role[None]:
        yield from send_all(run.others, Summed(3))
        yield from receive_all(run.others, Drawn)

    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES)
        results = await mesh.run({"east": rounds, "north": rounds, "south": wrong})
        error = results["north"]
        assert isinstance(error, PeerProtocolError | PeerLost)
        assert error.party == "south"

    bounded(test)


async def _halfway(mesh: Mesh, makes: dict[str, Any]) -> dict[str, Site]:
    """Run until `south` has sent its first message and `north` has it; then crash `south`."""
    sites = {name: Site(mesh, name, make) for name, make in makes.items()}
    tasks = [asyncio.create_task(site.go()) for site in sites.values()]
    while sites["north"].journal.count("south") < 1 or sites["south"].journal.count("north") < 1:
        await asyncio.sleep(0.01)
    await sites["south"].stop()
    await asyncio.gather(tasks[list(sites).index("south")], return_exceptions=True)
    return sites


def waits_after_one(run: Run, coins: Coins) -> Role[int]:
    """Two rounds, of which the second never ends for anyone but `east`."""
    yield from send_all(run.others, Drawn(coins.bits(32)))
    yield from receive_all(run.others, Drawn)
    if run.me != "east":
        yield from receive("east", Summed)
    else:
        yield from receive("north", Summed)
    return 0


def test_a_disk_rolled_back_burns_the_run(tmp_path: Path) -> None:
    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES, timing=Timing(step=2, join=2, run=10, beat=0.1, retry=0.1))
        sites = await _halfway(mesh, dict.fromkeys(NAMES, waits_after_one))
        raw = (tmp_path / "south" / "journal").read_bytes()
        first = _HEAD_BYTES + int.from_bytes(raw[:4], "big")
        (tmp_path / "south" / "journal").write_bytes(raw[:first])  # only `Begun` is left: an old backup
        back = sites["south"] = Site(mesh, "south", waits_after_one)
        with pytest.raises(LocalProtocolError, match="rolled back"):
            await back.go()
        for site in sites.values():
            await site.stop()

    bounded(test)


def test_a_new_journal_for_an_old_run_burns_it(tmp_path: Path) -> None:
    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES, timing=Timing(step=2, join=2, run=10, beat=0.1, retry=0.1))
        sites = await _halfway(mesh, dict.fromkeys(NAMES, waits_after_one))
        for path in (tmp_path / "south").iterdir():
            path.unlink()
        back = sites["south"] = Site(mesh, "south", waits_after_one)  # a fresh seed: other messages for filled slots
        with pytest.raises((LocalProtocolError, PeerProtocolError)):
            await back.go()
        for site in sites.values():
            await site.stop()

    bounded(test)


def test_changed_input_is_noticed_before_anything_is_sent(tmp_path: Path) -> None:
    def other_input(run: Run, coins: Coins) -> Role[int]:
        coins.bits(32)
        return (yield from waits_after_one(run, coins))

    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES, timing=Timing(step=2, join=2, run=10, beat=0.1, retry=0.1))
        sites = await _halfway(mesh, dict.fromkeys(NAMES, waits_after_one))
        back = sites["south"] = Site(mesh, "south", other_input)
        with pytest.raises(LocalProtocolError, match="other messages"):
            await back.go()
        for site in sites.values():
            await site.stop()

    bounded(test)


def test_a_role_that_waits_for_a_stranger_is_our_error(tmp_path: Path) -> None:
    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES)

        def lost(run: Run, coins: Coins) -> Role[None]:
            yield from receive("nobody", Drawn)

        results = await mesh.run(dict.fromkeys(NAMES, lost))
        assert all(isinstance(error, LocalProtocolError | PeerLost) for error in results.values())
        assert any(isinstance(error, LocalProtocolError) for error in results.values())

    bounded(test)


def test_silence_of_everybody_ends_at_the_deadline(tmp_path: Path) -> None:
    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES, timing=Timing(step=0.5, join=1, run=1.5, beat=0.1, retry=0.1))
        results = await mesh.run(dict.fromkeys(NAMES, silent))  # all wait for each other: only the run's end helps
        assert all(isinstance(error, PeerLost) for error in results.values())

    bounded(test)


@pytest.mark.parametrize("same", [True, False])
def test_another_message_for_a_filled_slot_is_equivocation(tmp_path: Path, same: bool) -> None:
    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES, timing=Timing(step=2, join=2, run=4, beat=0.1, retry=0.1))
        sites = {name: Site(mesh, name, waits_after_one) for name in NAMES}
        tasks = {name: asyncio.create_task(site.go()) for name, site in sites.items()}
        north = sites["north"]
        while north.journal.count("south") < 1:
            await asyncio.sleep(0.01)
        step, payload = north.journal.take("south", 0)
        link = sites["south"].links["north"]
        assert link._current is not None
        forged = payload if same else payload[:-1] + bytes([payload[-1] ^ 1])
        await sites["south"].board.route("north").send(link._current.seal(step, forged, index=0))
        if same:
            await asyncio.sleep(0.3)
            assert north.links["south"].failure is None
            assert north.journal.count("south") == 1
        else:
            with pytest.raises(PeerProtocolError, match="equivocation") as caught:
                await tasks["north"]
            assert caught.value.party == "south"
        for site in sites.values():
            await site.stop()
        await asyncio.gather(*tasks.values(), return_exceptions=True)

    bounded(test)


@pytest.mark.parametrize(
    "change",
    [
        {"index": 5},
        {"part": 1, "parts": 2},
        {"parts": 10_000},
        {"step": "not an identifier"},
        {"step": "X" * 65},
        {"step": "ack"},
        {"step": "confirm"},
        {"step": "abort"},
    ],
)
def test_a_sealed_frame_that_makes_no_sense_names_its_sender(tmp_path: Path, change: dict[str, Any]) -> None:
    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES, timing=Timing(step=2, join=2, run=4, beat=0.1, retry=0.1))
        sites = {name: Site(mesh, name, waits_after_one) for name in NAMES}
        tasks = {name: asyncio.create_task(site.go()) for name, site in sites.items()}
        while sites["north"].journal.count("south") < 1:
            await asyncio.sleep(0.01)
        session = sites["south"].links["north"]._current
        assert session is not None
        fields = {"step": "Drawn", "index": 1, "part": 0, "parts": 1, **change}
        await sites["south"].board.route("north").send(session.seal(fields.pop("step"), b"\xc1", **fields))
        with pytest.raises(PeerProtocolError) as caught:
            await tasks["north"]
        assert caught.value.party == "south"
        for site in sites.values():
            await site.stop()
        await asyncio.gather(*tasks.values(), return_exceptions=True)

    bounded(test)


def test_a_slow_sender_is_waited_for_until_the_end_of_the_run(tmp_path: Path) -> None:
    """Frames that trickle show life: no step's deadline strikes, and the run's end bounds it."""

    async def test() -> None:
        mesh = Mesh(tmp_path, NAMES, timing=Timing(step=0.3, join=2, run=1.2, beat=0.1, retry=0.1))

        def drip(run: Run, coins: Coins) -> Role[Any]:
            if run.me == "south":
                while True:  # alive, sends to east for ever, never what north waits for
                    yield Send("east", Drawn(coins.bits(8)))
                    yield from receive("east", Summed)
            if run.me == "east":
                while True:
                    yield from receive("south", Drawn)
                    yield Send("south", Summed(1))
            return (yield from receive("south", Summed)).value

        begun = asyncio.get_running_loop().time()
        results = await mesh.run(dict.fromkeys(NAMES, drip))
        assert asyncio.get_running_loop().time() - begun < 6
        error = results["north"]
        assert isinstance(error, PeerLost)
        assert error.party == "south"

    bounded(test)
