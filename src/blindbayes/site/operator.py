"""The operator's port: a few HTTP calls on loopback, for this site's own people and their monitoring.

    GET  /status            the state of the site           GET /runs/<id>?after=<text>   one run; waits for news
    POST /runs              {"study": hash}: begin a run    GET /metrics                  OpenMetrics
                            and "base": run, to add to the result of that run
    POST /predictions       {"study": hash, "model": run, "batch": name, "rows": path, ...}: classify with a model over columns

Every call carries the token that the agent writes to `operator.token` (mode 0600). The Host header must be a loopback name,
so that a page in a browser cannot be made to call it under another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.foreign import read_json
from blindbayes.primitives.coins import Coins
from blindbayes.site.agent import Agent
from blindbayes.site.agent_run import AgentRun
from blindbayes.site.client import substance
from blindbayes.storage.files import write_whole

_MAX_HEAD = 16 * 1024
_MAX_BODY = 64 * 1024
_NEWS_SECONDS = 20.0
_HOSTS = frozenset(("127.0.0.1", "localhost", "[::1]"))


class Refused(Exception):
    """An HTTP answer that is no success."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class OperatorPort:
    """Serves an agent to its own machine."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._token = Coins.system().bytes(24).hex()
        self._server: asyncio.Server | None = None
        self.address = ""

    async def start(self) -> None:
        """Listen, and write the token and the address where only the owner of the folder can read them."""
        host, _, port = self._agent.home.config.operator.rpartition(":")
        try:
            self._server = await asyncio.start_server(self._serve, host.strip("[]"), int(port), limit=_MAX_HEAD)
        except (OSError, ValueError) as cause:
            raise ConfigError(f"cannot listen on {self._agent.home.config.operator} for the operator") from cause
        bound = self._server.sockets[0].getsockname()
        self.address = f"{host}:{bound[1]}"
        write_whole(self._agent.home.folder / "operator.token", f"{self.address} {self._token}".encode())

    async def stop(self) -> None:
        """Close the port; the token is void."""
        if self._server is not None:
            self._server.close()
            (self._agent.home.folder / "operator.token").unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_NEWS_SECONDS + 10):
                status, kind, body = await self._answer(reader)
        except Refused as refused:
            status, kind, body = refused.status, "application/json", json.dumps({"message": str(refused)}).encode()
        except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            status, kind, body = 400, "application/json", b'{"message": "not understood"}'
        head = (
            f"HTTP/1.1 {status} {'OK' if status == 200 else 'Refused'}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\nCache-Control: no-store\r\n"
            "X-Content-Type-Options: nosniff\r\n\r\n"
        )
        with contextlib.suppress(OSError):
            writer.write(head.encode() + body)
            await writer.drain()
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, str, bytes]:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = lines[0].split(" ", 2)
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)
        }
        if headers.get("host", "").rsplit(":", 1)[0] not in _HOSTS:
            raise Refused(403, "this port is for this machine only")
        given = headers.get("authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self._token}".encode()):
            raise Refused(401, "the token is missing or wrong")
        size = int(headers.get("content-length", "0"))
        if not 0 <= size <= _MAX_BODY:
            raise Refused(413, "too large")
        body = await reader.readexactly(size)
        url = urlsplit(target)
        if (method, url.path) == ("GET", "/metrics"):
            kind = "application/openmetrics-text; version=1.0.0; charset=utf-8"
            return 200, kind, metrics(self._agent).encode()
        return 200, "application/json", json.dumps(await self._call(method, url.path, url.query, body)).encode()

    def _begin(self, study: str, base: Any = None, **unknown: Any) -> AgentRun:
        if unknown or not isinstance(base, str | None):
            raise Refused(400, "a run has a study and may have a base, by its id")
        return self._agent.begin(study, base)

    async def _call(self, method: str, path: str, query: str, body: bytes) -> dict[str, Any]:
        if (method, path) == ("GET", "/status"):
            return self._agent.show()
        if (method, path) in (("POST", "/runs"), ("POST", "/predictions")):
            try:
                asked = read_json(body, "the request")
            except ConfigError as error:
                raise Refused(400, str(error)) from None
            study = asked.pop("study", None) if isinstance(asked, dict) else None
            if not isinstance(study, str):
                raise Refused(400, "which study?")
            try:
                return (self._begin(study, **asked) if path == "/runs" else self._agent.predict(study, asked)).show()
            except BlindbayesError as error:
                return {"state": "refused", "error": type(error).__name__, "message": str(error), "exit_code": error.code}
        if method == "GET" and path.startswith("/runs/"):
            run = self._agent.runs.get(path.removeprefix("/runs/"))
            if run is None:
                raise Refused(404, "no such run")
            known = substance(parse_qs(query).get("after", [""])[0])
            loop = asyncio.get_running_loop()
            until = loop.time() + _NEWS_SECONDS
            while not run.done.is_set() and substance(run.text()) == known and loop.time() < until:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(run.done.wait(), 0.1)
            return run.show()
        raise Refused(404, "no such call")


def metrics(agent: Agent) -> str:
    """OpenMetrics: counts of runs, frames and bytes, and who is connected. Labels are names of sites."""
    courier = agent.board.courier
    running = sum(1 for run in agent.runs.values() if not run.done.is_set())
    lines = [
        "# TYPE blindbayes_runs counter",
        f'blindbayes_runs_total{{state="done"}} {agent.counters["runs_done"]}',
        f'blindbayes_runs_total{{state="failed"}} {agent.counters["runs_failed"]}',
        "# TYPE blindbayes_runs_under_way gauge",
        f"blindbayes_runs_under_way {running}",
        "# TYPE blindbayes_offers_refused counter",
        f"blindbayes_offers_refused_total {agent.counters['offers_refused']}",
        "# TYPE blindbayes_site_connected gauge",
        *(f'blindbayes_site_connected{{site="{name}"}} {int(courier.is_up(name))}' for name in sorted(agent.home.peers())),
        "# TYPE blindbayes_frames_refused counter",
        *(f'blindbayes_frames_refused_total{{site="{name}"}} {count}' for name, count in agent.board.refused_frames.items()),
        "# TYPE blindbayes_courier_bytes counter",
        f'blindbayes_courier_bytes_total{{direction="in"}} {getattr(courier, "bytes_in", 0)}',
        f'blindbayes_courier_bytes_total{{direction="out"}} {getattr(courier, "bytes_out", 0)}',
        "# EOF",
    ]
    return "\n".join(lines) + "\n"
