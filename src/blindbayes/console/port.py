"""The console's port: the agent's own event loop serves its own people."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from blindbayes import __version__
from blindbayes.console.calls import api_route, describe, unexpected
from blindbayes.console.door import Door, Guard, is_api
from blindbayes.console.pages import Pages
from blindbayes.console.probes import probes
from blindbayes.console.table import CALLS
from blindbayes.errors import ConfigError
from blindbayes.primitives.coins import Coins
from blindbayes.site.agent import Agent
from blindbayes.storage.files import read_private, write_whole

_MOST_CONNECTIONS = 256


class _Server(uvicorn.Server):
    """Signals belong to the agent."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ConsolePort:
    """Serves an agent to its own machine; and, where site.toml says so, its probes on a port of their own."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.door = Door(_metrics_token(agent.home.folder))
        self._pages = Pages(agent, self.door)
        self._servers: list[tuple[_Server, asyncio.Task[None]]] = []
        self.address = ""

    async def start(self) -> None:
        """Listen, and write the token and the address where only the owner of the folder can read them."""
        config = self._agent.home.config
        self.address = await self._serve(Guard(console(self._agent, self.door, self._pages), self.door), config.operator)
        if config.metrics is not None:
            await self._serve(Starlette(routes=probes(self._agent, self.door.may_measure)), config.metrics)
        write_whole(self._token_path, f"{self.address} {self.door.token}".encode())

    async def stop(self) -> None:
        """Close the ports; the token is void."""
        await self._pages.live.close()
        for server, _ in self._servers:
            server.should_exit = True
        await asyncio.gather(*(task for _, task in self._servers), return_exceptions=True)
        if self._servers:
            self._token_path.unlink(missing_ok=True)
        self._servers.clear()

    @property
    def _token_path(self) -> Path:
        return self._agent.home.folder / "operator.token"

    async def _serve(self, app: ASGIApp, where: str) -> str:
        """Listen there; the address with its port."""
        host, _, port = where.rpartition(":")
        try:
            family = socket.AF_INET6 if host.startswith("[") or host == "::1" else socket.AF_INET
            listening = socket.create_server((host.strip("[]"), int(port)), family=family, backlog=128)
        except (OSError, ValueError) as cause:
            raise ConfigError(f"cannot listen on {where} for this site's own people") from cause
        address = f"{host}:{listening.getsockname()[1]}"
        options = uvicorn.Config(
            app,
            access_log=False,
            date_header=False,
            h11_max_incomplete_event_size=16 * 1024,
            http="h11",
            lifespan="off",
            limit_concurrency=_MOST_CONNECTIONS,
            log_config=None,
            loop="none",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=1,
            ws="none",
        )
        server = _Server(options)
        task = asyncio.create_task(server.serve(sockets=[listening]), name=f"console on {address}")
        self._servers.append((server, task))
        while not server.started:
            await asyncio.sleep(0.01)
            if task.done():
                raise ConfigError(f"cannot listen on {where} for this site's own people")
        return address


def console(agent: Agent, door: Door, pages: Pages) -> Starlette:
    """The application, without its guard."""
    described = describe(CALLS, __version__)

    async def description(_: Request) -> Response:
        return JSONResponse(described)

    async def new_code(request: Request) -> Response:
        if request.scope["visitor"].csrf:  # a browser: who is in lets nobody else in
            return JSONResponse({"message": "codes are for whoever may read the site's folder"}, 403)
        return JSONResponse({"code": door.new_code()})

    async def no_such_call(request: Request, _: Exception) -> Response:
        if is_api(request):
            return JSONResponse({"message": "no such call"}, 404)
        return PlainTextResponse("no such page", 404)

    routes = [
        *probes(agent, door.may_measure),
        Route("/api/openapi.json", description),
        Route("/api/codes", new_code, methods=["POST"]),
        *(api_route(agent, call) for call in CALLS),
        *pages.routes(),
    ]
    return Starlette(routes=routes, exception_handlers={404: no_such_call, Exception: unexpected})


def _metrics_token(folder: Path) -> str:
    """Reads the metrics and nothing else; made once, and kept, so that a scraper can be told it."""
    path = folder / "metrics.token"
    if path.exists():
        return read_private(path).decode().strip()
    token = Coins.system().bytes(24).hex()
    write_whole(path, f"{token}\n".encode())
    return token
