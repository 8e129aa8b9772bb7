"""The console's port: the agent's own event loop serves its own people."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from blindbayes import __version__
from blindbayes.agent.agent import Agent
from blindbayes.console.auth import Door, Guard, closed, is_api
from blindbayes.console.call_table import CALLS
from blindbayes.console.calls import api_route, describe, refused, unexpected
from blindbayes.console.first_run import FirstRun
from blindbayes.console.pages import Pages
from blindbayes.console.probes import probes
from blindbayes.console.server import Listening, listen
from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError
from blindbayes.io.files import read_private, write_whole
from blindbayes.io.untrusted import convert, read_json_table


class _For(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whom a code is to sign in."""

    name: str


class ConsolePort:
    """Serves an agent to its own machine; and, where site.toml says so, its probes on a port of their own."""

    def __init__(self, agent: Agent, first: FirstRun | None = None) -> None:
        """After a first run its port and its sessions go on."""
        self._agent, self._first = agent, first
        self.door = Door() if first is None else first.door
        self.door.people = agent.home.people
        self.door.metrics_token = _metrics_token(agent.home.folder)
        self._pages = Pages(agent, self.door)
        self._listening: list[Listening] = []
        self.address = ""

    async def start(self) -> None:
        """Listen, and write the token and the address where only the owner of the folder can read them."""
        config = self._agent.home.config
        app = console(self._agent, self.door, self._pages)
        if self._first is None:
            self._listening.append(await listen(Guard(app, self.door), config.operator))
        else:
            self._first.guard.app = app
            self._listening.append(self._first.listening)
        self.address = self._listening[0].address
        if config.metrics is not None:
            watched = Starlette(routes=probes(self._agent, self.door.may_measure))
            self._listening.append(await listen(watched, config.metrics))
        write_whole(self._token_path, f"{self.address} {self.door.token}".encode())

    async def stop(self) -> None:
        """Close the ports; the token is void."""
        await self._pages.live.close()
        await asyncio.gather(*(each.close() for each in self._listening))
        if self._listening:
            self._token_path.unlink(missing_ok=True)
        self._listening.clear()

    @property
    def _token_path(self) -> Path:
        return self._agent.home.folder / "operator.token"


def console(agent: Agent, door: Door, pages: Pages) -> Starlette:
    """The application, without its guard."""
    described = describe(CALLS, __version__)

    async def description(_: Request) -> Response:
        return JSONResponse(described)

    async def new_code(request: Request) -> Response:
        if request.scope["visitor"].csrf:  # a person with a browser lets nobody else in
            return JSONResponse({"message": "codes are made with the token of the site's folder"}, 403)
        try:
            given = convert(read_json_table(await request.body(), "the request"), _For, "the request")
            return JSONResponse({"code": door.new_code(given.name)})
        except ConfigError as error:
            return JSONResponse(refused(error), 400)

    async def no_such_call(request: Request, _: Exception) -> Response:
        if is_api(request):
            return JSONResponse({"message": "no such call"}, 404)
        return PlainTextResponse("no such page", 404)

    inner = [
        Route("/api/openapi.json", description),
        Route("/api/codes", new_code, methods=["POST"]),
        *(api_route(agent, call) for call in CALLS),
        *pages.routes(),
    ]
    routes = [*probes(agent, door.may_measure), *pages.open_routes(), *closed(inner)]
    return Starlette(routes=routes, exception_handlers={404: no_such_call, Exception: unexpected})


def _metrics_token(folder: Path) -> str:
    """Return the token that reads the metrics and nothing else; made once, so that a scraper can be configured with it."""
    path = folder / "metrics.token"
    if path.exists():
        try:
            return read_private(path).decode("ascii").strip()
        except UnicodeDecodeError:
            raise ConfigError(f"{path.name} is damaged: delete it, a new one is made") from None
    token = Coins.system().bytes(24).hex()
    write_whole(path, f"{token}\n".encode())
    return token
