"""Work of the event loop: what takes long for a wide study or a large model runs in threads, so that every call is answered."""

from __future__ import annotations

import asyncio
import cProfile
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes import Categorical, Codebook, Estimation
from blindbayes.agent.store.increments import IncrementStore
from blindbayes.agent.store.tables import Tables
from blindbayes.net.journal import Journal
from blindbayes.study.file import StudyFile
from support.consoles import NAMES, Consoles

WIDE = 100


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """Yield the number of Python calls of each step of the event loop: a measure of work that no other process changes."""
    steps: list[int] = []
    run = asyncio.events.Handle._run

    def counting(handle: Any) -> None:
        profile = cProfile.Profile(subcalls=False, builtins=False)
        profile.enable()
        try:
            run(handle)
        finally:
            profile.disable()
            steps.append(sum(each.callcount for each in profile.getstats()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.events.Handle, "_run", counting)
        yield steps


def most_work(folder: Path, features: int) -> dict[str, int]:
    """Return the calls of the longest step while three agents train, evaluate and cross-validate over that many features."""
    book = Codebook("y", ("a", "b"), tuple(Categorical(f"f{at}", ("u", "v")) for at in range(features)), max_rows=10_000)
    generator, rows = np.random.default_rng(1), {}
    folder.mkdir()
    for name in NAMES:
        frame = pd.DataFrame(generator.choice(["u", "v"], (160, features)), columns=list(book.names))
        frame.assign(y=generator.choice(["a", "b"], 160)).to_csv(folder / f"{name}.csv", index=False)
        rows[name] = str(folder / f"{name}.csv")
    longest = {}
    with counted_calls() as steps, Consoles(folder / "office", NAMES, rows=rows) as office:
        study = office.office.net.make_study(book, estimation=Estimation(held_out=0.4, folds=2))
        office.office.net.approve(study, runs=3)
        for path, more in (("/api/runs", {}), ("/api/evaluations", {}), ("/api/evaluations", {"folds": True})):
            steps.clear()
            started = office.ask("north", "POST", path, json.dumps({"study": study.sha256, **more}))
            assert started.status == 200, started.text
            run_id = started.json["run"]
            for name in NAMES:
                office.wait(office.office.ended(run_id))
                run = office.office.agents[name].runs[run_id]
                office.wait(run.done.wait())
                assert run.error is None
            longest[f"{path} {more}"] = max(steps)
    return longest


def test_no_file_is_parsed_and_no_row_read_on_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study that was just approved was parsed, and an evaluated model read and estimated, while every other call waited."""
    where: list[tuple[str, bool]] = []
    threads = set[str]()

    def watch(owner: type, name: str) -> None:
        plain = getattr(owner, name)

        def watched(*given: Any, **more: Any) -> Any:
            where.append((name, asyncio._get_running_loop() is not None))
            if owner in (Tables, Journal):
                threads.add(threading.current_thread().name.partition("_")[0])
            return plain(*given, **more)

        monkeypatch.setattr(owner, name, watched)

    slow = [(StudyFile, "from_toml"), (IncrementStore, "total"), (Tables, "count"), (Tables, "evaluate"), (Tables, "digest")]
    slow.append((Journal, "create"))
    for owner, name in slow:
        watch(owner, name)
    most_work(tmp_path / "narrow", 4)
    assert {name for name, _ in where} == {name for _, name in slow}
    assert [name for name, on_loop in where if on_loop] == []
    assert threads == {"run"}  # not those in which calls are answered


def test_no_step_of_the_event_loop_grows_much_with_a_study(tmp_path: Path) -> None:
    for path, calls in most_work(tmp_path / "wide", WIDE).items():
        assert calls < 60 * WIDE, path
