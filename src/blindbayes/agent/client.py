"""A client of the operator's port."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from blindbayes.agent.runs.run import EarlierRunOpen
from blindbayes.agent.store.folder import running_agent
from blindbayes.errors import ConfigError
from blindbayes.io.files import read_private
from blindbayes.io.untrusted import read_json


def substance(text: str) -> str:
    """Return a line of progress without its clock."""
    return re.sub(r", \d+ (s|min) to deadline", "", text)


_OPEN = ("reading", "running", "unknown")


_SECONDS = 600.0  # a busy agent on a loaded machine answers late; one that ended is noticed at once


class AgentRefused(ConfigError):
    """The agent answered, and refused. Other errors of a client say that it gave no answer."""


class OperatorClient:
    """A client of the agent of a site's folder."""

    def __init__(self, folder: Path, *, timeout: float = _SECONDS, exit_code: Callable[[], int | None] = lambda: None) -> None:
        """Read the agent's address. A caller that started the process passes its `exit_code`, for messages."""
        self._folder, self._timeout, self._exit_code = folder, timeout, exit_code
        if not (folder / "operator.token").exists():
            raise ConfigError(self._not_listening(None))
        self.address, _, self._token = read_private(folder / "operator.token").decode().partition(" ")

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Call the site's API and return the decoded answer. A refused run has the `state` refused."""
        payload = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {self._token}"}
        status, text = self._exchange(method, f"/api{path}", payload, headers, self._timeout)
        answer = read_json(text, "the agent's answer")
        if status != 200 and (not isinstance(answer, dict) or answer.get("state") != "refused"):
            raise AgentRefused(f"the agent refused: {answer.get('message', status)}")
        return answer

    def start(self, path: str, body: dict[str, Any], tell: Callable[[str], object] = lambda text: None) -> dict[str, Any]:
        """Start a run, once the earlier run that it goes on from has ended; `tell` is called before waiting for that."""
        started: dict[str, Any] = self.call("POST", path, body)
        if started.get("error") == EarlierRunOpen.__name__:
            tell("waiting for the end of the run that this one goes on from")
        while started.get("error") == EarlierRunOpen.__name__:  # the agent waits some seconds before it answers so
            started = self.call("POST", path, body)
        return started

    def ready(self) -> str | None:
        """Return None, or why the agent is not ready. For probes, which wait five seconds."""
        status, text = self._exchange("GET", "/readyz", None, {}, 5)
        return None if status == 200 else text

    def _exchange(
        self, method: str, path: str, payload: str | None, headers: dict[str, str], timeout: float
    ) -> tuple[int, str]:
        host, _, port = self.address.rpartition(":")
        connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout)
        try:
            connection.request(method, path, payload, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except TimeoutError:
            raise ConfigError(self._not_listening(timeout)) from None
        except (OSError, http.client.HTTPException):
            raise ConfigError(self._not_listening(None)) from None
        finally:
            connection.close()

    def _not_listening(self, waited: float | None) -> str:
        """Return why there was no answer: the agent is busy, starts or stops, ended, or was never started."""
        again = f"`blindbayes site serve --config {self._folder}`"
        if (process := running_agent(self._folder)) is not None:
            if waited is None:
                return f"the agent of this site (process {process}) is starting or stopping: ask again in a moment"
            return (
                f"the agent of this site (process {process}) runs, but did not answer within {waited:.0f} seconds. It may "
                "still do what was asked: look at `blindbayes site runs` before you ask again"
            )
        if not (self._folder / "operator.token").exists():
            return f"the agent of this site is not running: start it with {again}"
        code = self._exit_code()
        ended = "ended" if code is None else f"ended with exit code {code}"
        return (
            f"the agent of this site {ended} without closing its port; the last lines of its output say where. Start it again "
            f"with {again}: runs under way go on"
        )

    def follow(self, run: dict[str, Any], tell: Any = None) -> dict[str, Any]:
        """Wait for the end of a run. Every new line of progress is passed to `tell`."""
        text = ""
        while run["state"] in _OPEN:  # any other is an end: a run that was burned or stopped before a restart, too
            if substance(run["text"]) != substance(text):
                text = run["text"]
                if tell is not None:
                    tell(text)
            try:
                run = self.call("GET", f"/runs/{run['run']}?after={quote(text)}")
                time.sleep(0.02)
            except KeyboardInterrupt:
                if tell is not None:
                    tell(
                        "\nThe agent goes on without you: `blindbayes site status` says how the run ends, and what it leaves is"
                    )
                    tell(f"releases/{run['run']} in the site's folder.")
                raise
        return run
