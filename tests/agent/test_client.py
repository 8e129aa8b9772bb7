"""The client of the operator's port: what it says when there is no answer, and how it starts a run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blindbayes.agent.client import OperatorClient
from blindbayes.agent.runs.run import EarlierRunOpen
from blindbayes.agent.store import folder as folders
from blindbayes.agent.store.folder import running_agent, sole_agent
from blindbayes.console.calls import refused
from blindbayes.errors import ConfigError


def write_token(folder: Path, port: int) -> None:
    path = folder / "operator.token"
    path.write_text(f"127.0.0.1:{port} token")
    path.chmod(0o600)


@contextlib.contextmanager
def listening(answer: bytes | None) -> Iterator[int]:
    """Yield the port of a server that gives one answer, or accepts connections and stays silent."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(answer or b"")

        if answer is not None:
            threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


def why(folder: Path, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        OperatorClient(folder, **options).call("POST", "/runs", {})
    return str(caught.value)


def test_an_agent_that_is_busy_is_not_reported_as_ended(tmp_path: Path) -> None:
    """Started again, or asked again, it would run twice what it already does."""
    with listening(None) as port:
        write_token(tmp_path, port)
        with sole_agent(tmp_path):
            shown = why(tmp_path, timeout=0.05)
        assert f"(process {os.getpid()}) runs, but did not answer" in shown
        assert "site runs" in shown
        assert "serve" not in shown
        assert "ended without closing its port" in why(tmp_path, timeout=0.05)


def test_an_agent_that_ended_is_reported_with_its_exit_code(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        write_token(tmp_path, server.getsockname()[1])
    assert "ended with exit code -11 " in why(tmp_path, exit_code=lambda: -11)
    assert "ended without closing its port" in why(tmp_path)
    with sole_agent(tmp_path):
        assert "starting or stopping" in why(tmp_path)
    (tmp_path / "operator.token").unlink()
    assert "is not running: start it" in why(tmp_path)
    with sole_agent(tmp_path):
        assert "starting or stopping" in why(tmp_path)


@pytest.mark.parametrize("answer", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
def test_an_answer_that_breaks_off_is_an_error_of_the_package(tmp_path: Path, answer: bytes) -> None:
    with listening(answer) as port:
        write_token(tmp_path, port)
        assert "ended without closing its port" in why(tmp_path)


def test_looking_whether_an_agent_runs_keeps_none_from_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert running_agent(tmp_path) is None
    handle = os.open(tmp_path / "agent.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    waits: list[float] = []
    monkeypatch.setattr(folders.time, "sleep", lambda seconds: (waits.append(seconds), os.close(handle)))
    with sole_agent(tmp_path):
        assert len(waits) == 1
        assert running_agent(tmp_path) == os.getpid()
        monkeypatch.setattr(folders.time, "sleep", waits.append)
        with pytest.raises(ConfigError, match="running already"), sole_agent(tmp_path):
            pass
    assert len(waits) < 100


def test_a_run_that_goes_on_from_another_is_asked_for_until_that_has_ended() -> None:
    client, told = object.__new__(OperatorClient), list[str]()
    answers = iter((refused(EarlierRunOpen()), refused(EarlierRunOpen()), {"run": "ab", "state": "reading"}))
    client.call = lambda *_: next(answers)  # type: ignore[method-assign]
    assert client.start("/evaluations", {}, told.append)["run"] == "ab"
    assert len(told) == 1
    client.call = lambda *_: refused(ConfigError("train first"))  # type: ignore[method-assign]
    assert client.start("/evaluations", {}, told.append)["message"] == "train first"
