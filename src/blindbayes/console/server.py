"""One listening socket with an application behind it, in the event loop that runs already."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from blindbayes.errors import ConfigError

_MOST_CONNECTIONS = 256


class _Server(uvicorn.Server):
    """Signals belong to the agent."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(frozen=True, slots=True)
class Listening:
    """An application that is served."""

    address: str
    server: _Server
    task: asyncio.Task[None]

    async def close(self) -> None:
        """No more; whoever is being answered gets a second."""
        self.server.should_exit = True
        await asyncio.gather(self.task, return_exceptions=True)


async def listen(app: ASGIApp, where: str) -> Listening:
    """Serve at host:port; with port 0 at a free one."""
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
    while not server.started:
        await asyncio.sleep(0.01)
        if task.done():
            raise ConfigError(f"cannot listen on {where} for this site's own people")
    return Listening(address, server, task)
