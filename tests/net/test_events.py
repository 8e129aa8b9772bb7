"""The agent's log: JSON lines with names and counts, and nothing that a row could have left there."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from blindbayes.cli.terminal import set_up_logging
from blindbayes.errors import DataError
from blindbayes.net.events import log_event, log_json
from blindbayes.study.file import Deadlines
from support.sites import BOOK, CANARY, Office, bounded

NAMES = ("north", "south", "west")
KEYS = {"time", "level", "event", "logger", "run", "site", "study", "error"}


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What `--log-json` writes; the loggers are put back afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("blindbayes")
    before = (root.handlers, ours.handlers, ours.propagate, ours.level)
    stream = io.StringIO()
    log_json(stream)
    yield stream
    logging.captureWarnings(False)
    root.handlers, ours.handlers, ours.propagate, ours.level = before


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_run_is_told_from_its_beginning_to_its_end(tmp_path: Path, written: io.StringIO) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            study = office.net.make_study(BOOK, deadlines=Deadlines(step=5, join=5, run=15))
            office.net.approve(study)
            run_id = (await office.run(study))["north"].run_id
        told = lines(written)
        events = [line["event"] for line in told if line.get("run") == run_id]
        assert events.count("run_joined") == events.count("run_computing") == events.count("run_done") == 3
        assert [line["event"] for line in told].count("agent_stopped") == 3
        done = next(line for line in told if line["event"] == "run_done")
        assert done["messages_out"] > 0
        assert done["study"] == study.sha256
        for line in told:
            assert all(type(value) is int for name, value in line.items() if name not in KEYS)

    bounded(test)


def test_a_failed_run_names_the_error_and_no_value(tmp_path: Path, written: io.StringIO) -> None:
    async def test() -> None:
        async with Office(tmp_path, NAMES) as office:
            with duckdb.connect(str(tmp_path / "south.duckdb")) as connection:
                connection.execute("insert into visits values ('ill', ?, 3)", (CANARY,))
            study = office.net.make_study(BOOK, deadlines=Deadlines(step=60, join=60, run=60))
            office.net.approve(study)
            runs = await office.run(study)
            assert isinstance(runs["south"].error, DataError)
        failed = [line for line in lines(written) if line["event"] == "run_failed"]
        assert {line["error"] for line in failed} == {"DataError", "PeerLost"}
        assert {line["site"] for line in failed if line["error"] == "PeerLost"} == {"south"}
        assert CANARY not in written.getvalue()

    bounded(test)


def test_whatever_libraries_and_careless_lines_log_loses_its_text(written: io.StringIO) -> None:
    logging.getLogger("blindbayes.data").error("bad row %s", CANARY)
    logging.getLogger("blindbayes.events").error(f"not made by tell: {CANARY}")
    try:
        raise ValueError(CANARY)
    except ValueError:
        logging.getLogger("asyncio").exception(CANARY)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(CANARY, stacklevel=1)
    told = lines(written)
    assert [line["logger"] for line in told] == ["blindbayes.data", "blindbayes.events", "asyncio", "py.warnings"]
    assert CANARY not in written.getvalue()


def test_facts_that_break_their_form_are_replaced(written: io.StringIO) -> None:
    log_event("run_failed", run=f"x\n{CANARY}", site=CANARY.upper(), study=CANARY, error=ValueError(CANARY), rows=CANARY)  # type: ignore[arg-type]
    (line,) = lines(written)
    assert {name: line[name] for name in ("run", "site", "study", "rows", "error")} == {
        "run": "<str>",
        "site": "<str>",
        "study": "<str>",
        "rows": "<str>",
        "error": "ValueError",
    }


def test_without_json_events_are_lines_of_text(capsys: pytest.CaptureFixture[str]) -> None:
    ours = logging.getLogger("blindbayes")
    before = (ours.handlers, ours.propagate, ours.level)
    ours.handlers = []
    try:
        set_up_logging(1)
        log_event("run_failed", run="ab" * 16, site="south", error=asyncio.CancelledError(), sites=2)
    finally:
        ours.handlers, ours.propagate, ours.level = before
    assert f"run_failed run={'ab' * 16} site=south error=CancelledError sites=2" in capsys.readouterr().err
