"""A client of the operator's port."""

from __future__ import annotations

import http.client
import json
import re
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from blindbayes.errors import ConfigError
from blindbayes.io.files import read_private
from blindbayes.io.untrusted import read_json


def substance(text: str) -> str:
    """Return a line of progress without its clock."""
    return re.sub(r", \d+ (s|min) to deadline", "", text)


_OPEN = ("reading", "running", "unknown")


class OperatorClient:
    """A client of the agent of a site's folder."""

    def __init__(self, folder: Path) -> None:
        if not (folder / "operator.token").exists():
            raise ConfigError(f"the agent of this site is not running: start it with `blindbayes site serve --config {folder}`")
        self.address, _, self._token = read_private(folder / "operator.token").decode().partition(" ")

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Call the site's API and return the decoded answer. A refused run has the `state` refused."""
        payload = None if body is None else json.dumps(body)
        status, text = self._exchange(method, f"/api{path}", payload, {"Authorization": f"Bearer {self._token}"})
        answer = read_json(text, "the agent's answer")
        if status != 200 and (not isinstance(answer, dict) or answer.get("state") != "refused"):
            raise ConfigError(f"the agent refused: {answer.get('message', status)}")
        return answer

    def ready(self) -> str | None:
        """Return None, or why the agent is not ready. For probes, which wait five seconds."""
        status, text = self._exchange("GET", "/readyz", None, {}, timeout=5)
        return None if status == 200 else text

    def _exchange(
        self, method: str, path: str, payload: str | None, headers: dict[str, str], timeout: float = 60
    ) -> tuple[int, str]:
        host, _, port = self.address.rpartition(":")
        connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=timeout)
        try:
            connection.request(method, path, payload, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except TimeoutError:
            raise ConfigError(f"the agent of this site did not answer within {timeout:.0f} seconds: ask again") from None
        except OSError:
            raise ConfigError("the agent of this site does not answer: start it again with `blindbayes site serve`") from None
        finally:
            connection.close()

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
