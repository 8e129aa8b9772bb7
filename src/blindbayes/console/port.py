"""Serve the console of an agent on loopback, in the agent's own event loop, with its health probes and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from blindbayes import __version__
from blindbayes.agent.agent import Agent
from blindbayes.agent.status import numbers
from blindbayes.console.auth import Authenticator, AuthMiddleware, closed, is_api
from blindbayes.console.call_table import CALLS
from blindbayes.console.calls import View, api_route, describe, refused, unexpected
from blindbayes.console.pages import Pages
from blindbayes.crypto.coins import Coins
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.io.files import read_private, write_whole
from blindbayes.io.untrusted import convert, read_json_table
from blindbayes.net.courier import Metered

if TYPE_CHECKING:
    from blindbayes.console.first_run import FirstRun

_MAX_CONNECTIONS = 256
_OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:  # signals belong to the agent
        yield


@dataclass(frozen=True, slots=True)
class Listening:
    """An application that is being served."""

    address: str
    server: _Server
    task: asyncio.Task[None]

    async def close(self) -> None:
        """Stop listening; requests in progress have one second to finish."""
        self.server.should_exit = True
        await asyncio.gather(self.task, return_exceptions=True)


async def listen(app: ASGIApp, where: str) -> Listening:
    """Serve an application at host:port; port 0 takes a free one."""
    host, _, port = where.rpartition(":")
    try:
        family = socket.AF_INET6 if host.startswith("[") or host == "::1" else socket.AF_INET
        listening = socket.create_server((host.strip("[]"), int(port)), family=family, backlog=128)
    except (OSError, ValueError) as cause:
        reason = (cause.strerror or "").partition(" (")[0] if isinstance(cause, OSError) else "the port is not a number"
        raise ConfigError(
            f"cannot listen on {where} for the console ({reason}); stop what uses the port, or name another: "
            'operator = "127.0.0.1:7442" in site.toml, --operator 127.0.0.1:7442 where a site is made'
        ) from cause
    address = f"{host}:{listening.getsockname()[1]}"
    options = uvicorn.Config(
        app,
        access_log=False,
        date_header=False,
        h11_max_incomplete_event_size=16 * 1024,
        http="h11",
        lifespan="off",
        limit_concurrency=_MAX_CONNECTIONS,
        log_config=None,
        loop="none",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        ws="none",
    )
    server = _Server(options)
    task = asyncio.create_task(server.serve(sockets=[listening]), name=f"console on {address}")
    while not server.started:
        await asyncio.sleep(0.01)
        if task.done():
            raise ConfigError(f"cannot serve the console on {where}")
    return Listening(address, server, task)


class ConsolePort:
    """The console of one agent; if site.toml sets `metrics`, also its probes on a port of their own."""

    def __init__(self, agent: Agent, first: FirstRun | None = None) -> None:
        self._agent, self._first = agent, first  # after a first run its port and its sessions stay in use
        self.auth = Authenticator() if first is None else first.auth
        self.auth.people = agent.home.people
        self.auth.organisation = lambda: agent.home.config.sign_in
        self.auth.metrics_token = _metrics_token(agent.home.folder)
        self._pages = Pages(agent, self.auth)
        self._listening: list[Listening] = []
        self.address = ""

    async def start(self) -> None:
        """Listen, and write address and token to a file that only the owner of the site's folder can read."""
        config = self._agent.home.config
        app = console(self._agent, self.auth, self._pages)
        if self._first is None:
            self._listening.append(await listen(AuthMiddleware(app, self.auth), config.operator))
        else:
            self._first.middleware.app = app
            self._listening.append(self._first.listening)
        self.address = self._pages.organisation.address = self._listening[0].address
        if config.metrics is not None:
            watched = Starlette(routes=probes(self._agent, self.auth.may_read_metrics))
            self._listening.append(await listen(watched, config.metrics))
        write_whole(self._token_path, f"{self.address} {self.auth.token}".encode())

    async def stop(self) -> None:
        """Close the ports and delete the token."""
        await self._pages.live.close()
        await asyncio.gather(*(each.close() for each in self._listening))
        if self._listening:
            self._token_path.unlink(missing_ok=True)
        self._listening.clear()

    @property
    def _token_path(self) -> Path:
        return self._agent.home.folder / "operator.token"


class _CodeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str


def console(agent: Agent, auth: Authenticator, pages: Pages) -> Starlette:
    """Return the application, without the middleware that authenticates its requests."""
    calls = [call for call in CALLS if isinstance(call, View) or call.has_api]
    described = describe(calls, __version__)

    async def description(_: Request) -> Response:
        return JSONResponse(described)

    async def new_code(request: Request) -> Response:
        if request.scope["user"].csrf:  # a person in a browser may not let others in
            return JSONResponse({"message": "codes are made with the token of the site's folder"}, 403)
        try:
            given = convert(read_json_table(await request.body(), "the request"), _CodeRequest, "the request")
            return JSONResponse({"code": auth.new_code(given.name)})
        except ConfigError as error:
            return JSONResponse(refused(error), 400)

    async def not_found(request: Request, _: Exception) -> Response:
        if is_api(request):
            return JSONResponse({"message": "no such call"}, 404)
        return PlainTextResponse("no such page", 404)

    inner = [
        Route("/api/openapi.json", description),
        Route("/api/codes", new_code, methods=["POST"]),
        *(api_route(agent, call) for call in calls),
        *pages.routes(),
    ]
    routes = [*probes(agent, auth.may_read_metrics), *pages.open_routes(), *closed(inner)]
    return Starlette(routes=routes, exception_handlers={404: not_found, Exception: unexpected})


def probes(agent: Agent, may_read_metrics: Callable[[Request], bool]) -> list[Route]:
    """Return `/healthz` and `/readyz`, which are open, and `/metrics`, which needs a token."""

    async def health(_: Request) -> Response:
        return JSONResponse({"alive": True})

    async def ready(_: Request) -> Response:
        try:
            agent.home.ledger.head, agent.home.audit.head  # noqa: B018 - raises if a chain does not verify
            problem = "" if agent.home.history.behind() is None else "restored, not acknowledged"
        except (BlindbayesError, OSError) as error:
            problem = type(error).__name__
        return JSONResponse({"ready": not problem, **({"problem": problem} if problem else {})}, 503 if problem else 200)

    async def measure(request: Request) -> Response:
        if not may_read_metrics(request):
            return JSONResponse({"message": "the token is missing or wrong"}, 401)
        return PlainTextResponse(metrics(agent), media_type=_OPENMETRICS)

    return [Route("/healthz", health), Route("/readyz", ready), Route("/metrics", measure)]


def metrics(agent: Agent) -> str:
    """Return the counts of runs, frames and bytes as OpenMetrics. Labels are names of sites."""
    courier = agent.router.courier
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
        *(f'blindbayes_frames_refused_total{{site="{name}"}} {count}' for name, count in agent.router.refused_frames.items()),
        "# TYPE blindbayes_courier_bytes counter",
        f'blindbayes_courier_bytes_total{{direction="in"}} {courier.bytes_in if isinstance(courier, Metered) else 0}',
        f'blindbayes_courier_bytes_total{{direction="out"}} {courier.bytes_out if isinstance(courier, Metered) else 0}',
        *(f"# TYPE blindbayes_{name} gauge\nblindbayes_{name} {value:.15g}" for name, value in numbers(agent).items()),
        "# EOF",
    ]
    return "\n".join(lines) + "\n"


def _metrics_token(folder: Path) -> str:
    """Return the token that only reads the metrics; it is made once, so that a scraper can be configured with it."""
    path = folder / "metrics.token"
    if path.exists():
        try:
            return read_private(path).decode("ascii").strip()
        except UnicodeDecodeError:
            raise ConfigError(f"{path.name} is damaged: delete it, a new one is made") from None
    token = Coins.system().bytes(24).hex()
    write_whole(path, f"{token}\n".encode())
    return token
