"""The app for Flower by itself: a mailman and three sites over a grid that a test plays, honest or changed."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import types
from pathlib import Path
from typing import Any

import pytest

from blindbayes.net import carrier
from blindbayes.study.file import Deadlines
from net.test_carrier import DONE, NAMES, models, states, study_of
from support.carried import CarriedHub
from support.playing_flower import Grid, Message, play
from support.sites import Office, bounded

PATIENT = Deadlines(step=60, join=60, run=120)


def nodes_of(app: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, Any]:
    """Each site's answer to a message, with its own agent behind it."""
    here = threading.local()
    monkeypatch.setattr(app.records, "socket_path", lambda: here.path)

    def node(name: str) -> Any:
        context = types.SimpleNamespace(node_config={"site": f"engine-{name}"})

        def answer(message: Message) -> Message:
            here.path = str(folder / name)
            return app.take_turn(message, context)  # type: ignore[no-any-return]

        return answer

    return {index: node(name) for index, name in enumerate(NAMES, start=1)}


def impostor(message: Message) -> Message:
    """A node that says it is south, and has nothing to say."""
    return Message({"mail": {"site": "engine-south", "mail": b""}}, reply_to=message)


def babbler(message: Message) -> Message:
    return Message({"mail": {"site": "engine-west", "mail": b"\xff\xff"}, "secret": "text"}, reply_to=message)


def broken(message: Message) -> Message:
    found = Message({}, reply_to=message)
    found.error = True
    return found


@pytest.mark.parametrize("strangers", [[], [impostor, babbler, broken]], ids=["honest", "with strangers"])
def test_a_sum_ends_over_the_mailman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strangers: list[Any]) -> None:
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    monkeypatch.setattr(carrier, "_QUIET", 0.02)
    monkeypatch.setattr(carrier, "_LONGEST", 0.3)  # a round of this engine costs next to nothing

    async def test() -> None:
        app = play(monkeypatch)
        monkeypatch.setattr(app, "_POLL", 0.01)
        monkeypatch.setattr(app, "_REST", 0.05)
        async with Office(tmp_path / "a", NAMES, hub=CarriedHub(tmp_path / "s", NAMES, round_seconds=1.0)) as office:
            study = study_of(office, deadlines=PATIENT)
            stop = threading.Event()
            extra = dict(enumerate(strangers, start=-9))  # they come first
            grid = Grid(extra | nodes_of(app, tmp_path / "s", monkeypatch), stop.is_set)

            def carry() -> None:
                with contextlib.suppress(KeyboardInterrupt):
                    app.carry(grid, types.SimpleNamespace(run_config={"seconds": 60}))

            thread = threading.Thread(target=carry, daemon=True)
            thread.start()
            try:
                runs = await office.run(study)
                assert states(runs) == DONE
                assert len(models(office, runs["north"])) == 1
            finally:
                stop.set()
                await asyncio.to_thread(thread.join, 60)

    bounded(test, 60, wall=True)


@pytest.mark.parametrize("telemetry", ["0", "1"])
def test_no_text_of_an_exception_leaves_a_site(monkeypatch: pytest.MonkeyPatch, telemetry: str) -> None:
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", telemetry)
    app = play(monkeypatch)
    context = types.SimpleNamespace(node_config={"site": "site-1"})

    def failing() -> str:
        raise RuntimeError("row 17: Zaphod Beeblebrox")

    monkeypatch.setattr(app.records, "socket_path", failing)
    reply = app.take_turn(Message({"mail": {"sites": "site-2", "mail": b""}}), context)
    assert reply.content == {"mail": {"site": "site-1", "mail": b""}}


def test_the_mailman_does_not_begin_where_flower_reports_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLWR_TELEMETRY_ENABLED", raising=False)
    app = play(monkeypatch)
    with pytest.raises(SystemExit, match="FLWR_TELEMETRY_ENABLED=0"):
        app.carry(None, None)


def test_the_engines_process_takes_the_largest_record_of_an_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = len(carrier.record(carrier.Kind.FRAME, b"x" * 64, bytes(carrier.MAX_ENVELOPE_BYTES)))
    assert largest <= play(monkeypatch).records.MAX_FRAME_BYTES
