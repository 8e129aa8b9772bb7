"""The component for NVIDIA FLARE by itself: three of them over an engine that a test plays, honest or changed."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import types
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from net.test_carrier import DONE, NAMES, models, states, study_of
from support.carried import CarriedHub
from support.playing_flare import Network, Shareable, play
from support.sites import Office, bounded


@contextlib.asynccontextmanager
async def federation(
    folder: Path, monkeypatch: pytest.MonkeyPatch, network: Network
) -> AsyncIterator[tuple[Office, dict[str, Any]]]:
    """Agents, and a component for each in threads of its own."""
    component = play(monkeypatch, network)
    network.names = [f"engine-{name}" for name in NAMES]
    abort = types.SimpleNamespace(triggered=False)
    carries, threads = {}, []
    paths = {threading.current_thread(): ""}
    monkeypatch.setattr(component.records, "socket_path", lambda: paths[threading.current_thread()])
    async with Office(folder / "a", NAMES, hub=CarriedHub(folder / "s", NAMES)) as office:
        for name in NAMES:
            carry = carries[name] = component.Carry()
            context = types.SimpleNamespace(
                get_identity_name=lambda name=name: f"engine-{name}",
                get_engine=lambda name=name: network.engine(f"engine-{name}"),
            )
            carry.handle_event("START_RUN", context)
            thread = threading.Thread(target=carry.execute, args=(component.TASK, Shareable(), context, abort), daemon=True)
            paths[thread] = str(folder / "s" / name)
            threads.append(thread)
            thread.start()
        try:
            yield office, carries
        finally:
            abort.triggered = True
            for thread in threads:
                await asyncio.to_thread(thread.join, 60)
                assert not thread.is_alive()


async def all_up(office: Office) -> None:
    async with asyncio.timeout(60):
        while not all(office.agents[one].router.courier.is_up(other) for one in NAMES for other in NAMES if one != other):
            await asyncio.sleep(0.02)


def given_up(seed: int = 5) -> Any:
    """One message in ten is answered by a timeout, and arrives all the same: after its successor, or never."""
    draw, late = random.Random(seed), {}

    def alter(sender: str, to: str, message: Shareable) -> list[tuple[str, Shareable]]:
        held = late.pop((sender, to), None)
        if held is None and draw.random() < 0.1:
            late[sender, to] = Shareable(message)
            return []
        return [(sender, message), *([(sender, held)] if held is not None and draw.random() < 0.5 else [])]

    return alter


def locked_out(sender: str, to: str, message: Shareable) -> list[tuple[str, Shareable]]:
    """A participant writes in everybody's name with numbers that no successor reaches."""
    lie = Shareable(message, life=b"?" * 16, number=2**62, frames=b"")
    return [(sender, lie), (sender, message), (sender, lie)]


def nonsense(sender: str, to: str, message: Shareable) -> list[tuple[str, Shareable]]:
    bad: list[dict[str, Any]] = [
        {"frames": "text"},
        {"frames": b"\xff\xff\xff\xff"},
        {"frames": b"\x00\x00"},
        {"number": "1"},
        {"life": None},
        {"number": True},
    ]
    lies = [(sender, Shareable(message, **each)) for each in bad]
    return [(sender, message), *lies, ("nobody", Shareable(message)), (7, Shareable(message))]  # type: ignore[list-item]


@pytest.mark.parametrize("alter", [None, given_up(), locked_out, nonsense])
def test_a_study_ends_over_the_component_whatever_the_engine_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alter: Any
) -> None:
    async def test() -> None:
        network = Network(alter) if alter is not None else Network()
        async with federation(tmp_path, monkeypatch, network) as (office, _):
            study = study_of(office)
            await all_up(office)
            runs = await office.run(study)
            assert states(runs) == DONE
            assert len(models(office, runs["north"])) == 1
            assert network.most_under_way == 1  # one message to each site at a time

    bounded(test, wall=True)


def test_a_site_that_does_not_answer_goes_down_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        network = Network()
        async with federation(tmp_path, monkeypatch, network) as (office, carries):
            await all_up(office)
            courier = office.agents["north"].router.courier
            network.lost.add("engine-west")
            await courier.send("west", b"one frame, which is lost")
            async with asyncio.timeout(60):
                while courier.is_up("west"):
                    await asyncio.sleep(0.02)
            assert courier.is_up("south")
            network.lost.clear()
            carries["north"]._peers["engine-west"].queue.put(None)
            await all_up(office)

    bounded(test, wall=True)


def test_an_agent_that_starts_again_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with federation(tmp_path, monkeypatch, Network()) as (office, _):
            study = study_of(office)
            await all_up(office)
            await office.stop("west")
            await asyncio.sleep(0.2)
            await office.start("west")
            await all_up(office)
            assert states(await office.run(study)) == DONE

    bounded(test, wall=True)


def test_nothing_is_carried_where_job_logs_leave_the_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network()
    network.log_streaming = True
    component = play(monkeypatch, network)
    carry = component.Carry()
    reply = carry.execute(component.TASK, Shareable(), None, None)
    assert reply.get_return_code() == "EXECUTION_EXCEPTION"
    assert "allow_log_streaming" in carry.said[0]
