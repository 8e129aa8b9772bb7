"""Start an agent from its folder, and run it until SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import gc
import inspect
import signal
from collections.abc import Callable
from typing import Protocol

from blindbayes import _extensions as extensions
from blindbayes.agent.agent import Agent
from blindbayes.agent.approvals.people import account
from blindbayes.agent.store.folder import SiteFolder, sole_agent
from blindbayes.errors import BlindbayesError, ConfigError
from blindbayes.net.authority import Authority
from blindbayes.net.carrier import CarrierCourier
from blindbayes.net.courier import Courier, Latency, Listening
from blindbayes.net.grpc_courier import GrpcCourier
from blindbayes.net.identity import Identity

_MALLOPT = {-3: 32 << 20, -1: 256 << 20}  # glibc's M_MMAP_THRESHOLD and M_TRIM_THRESHOLD


def _reuse_memory() -> None:
    """Let the allocator reuse the pages of messages. Clearing new ones took a third of a transfer."""
    with contextlib.suppress(AttributeError, OSError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        for option, size in _MALLOPT.items():
            mallopt(option, size)


class Port(Protocol):
    """The port for this site's own staff: `console.port.ConsolePort`."""

    address: str

    async def start(self) -> None: ...
    async def stop(self) -> None: ...


async def _reload(agent: Agent) -> None:
    with contextlib.suppress(BlindbayesError):  # a file that cannot be read changes nothing; `site reload` says why
        await agent.reload(account())


def make_courier(home: SiteFolder, identity: Identity) -> Courier:
    """Return the courier that site.toml asks for."""
    if (named := home.config.courier) is not None:
        make = extensions.load(extensions.COURIERS, named.name).courier
        known = list(inspect.signature(make).parameters)[3:]
        if wrong := ", ".join(map(repr, sorted(set(named.options) - set(known)))):
            raise ConfigError(f"[courier] options: {wrong}: the courier {named.name!r} takes {', '.join(known) or 'none'}")
        made: Courier = make(home.folder, identity, home.peers(), **named.options)
        return made
    carrier = home.config.carrier
    if carrier is not None:
        return CarrierCourier(home.folder / carrier.socket, home.peers(), Latency(carrier.latency), carrier.sites)
    use = home.config.relay
    via = frozenset(use.sites) if use is not None else frozenset()
    tls, authority = home.config.tls, None
    if tls is not None:
        authority = Authority.load(identity, home.folder / tls.authority, home.folder / tls.certificate)
    ways = {name: getattr(home.config, name) for name in ("listen", "proxy")}
    return GrpcCourier(identity, home.peers(), relay=home.relay(), via_relay=via, authority=authority, **ways)


async def serve(
    home: SiteFolder,
    identity: Identity,
    make_port: Callable[[Agent], Port],
    *,
    ready: Callable[[str, int], None] = lambda operator, port: None,
) -> None:
    """Run the agent until SIGTERM or SIGINT. Open runs remain in their journals and are resumed at the next start."""
    _reuse_memory()
    if not faulthandler.is_enabled():
        with contextlib.suppress(OSError, ValueError):  # standard error is no file
            faulthandler.enable()  # a crash of a library leaves the names of the functions it was in
    stop, reloading = asyncio.Event(), set[asyncio.Task[None]]()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    with sole_agent(home.folder):
        courier = make_courier(home, identity)
        agent = Agent(home, identity, courier)
        port = make_port(agent)
        loop.add_signal_handler(signal.SIGHUP, lambda: reloading.add(asyncio.create_task(_reload(agent))))
        await agent.start()
        try:
            await port.start()
            gc.freeze()  # what is loaded now stays loaded: the collector need not scan it
            ready(port.address, courier.port if isinstance(courier, Listening) else 0)
            await stop.wait()
        finally:
            await port.stop()
            await agent.stop()
