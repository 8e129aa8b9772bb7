"""A relay passes envelopes between sites that can only dial out. It sees who sends to whom, when and how much; no content.

A relay is no party of a study. Its users pin its card, and it pins theirs. It stores nothing: what it cannot pass on at once
is held back at the sender and dropped after a while; the links at both ends repeat it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc

from blindbayes.errors import PeerLost, PeerProtocolError
from blindbayes.net.courier import Connection
from blindbayes.net.events import log_event
from blindbayes.net.grpc_courier import addressed, caller, certificate_names, open_port, parse_addressed
from blindbayes.net.identity import Card, Identity

_PATIENCE = 5.0


class Relay:
    """A relay that serves until it is stopped."""

    def __init__(self, identity: Identity, users: Mapping[str, Card], listen: str) -> None:
        self._identity = identity
        self._users = dict(users)
        self._names = certificate_names(users)
        self._listen = listen
        self._streams: dict[str, Connection] = {}
        self._server: Any = None
        self.port = 0
        self.passed = 0
        self.dropped = 0

    async def start(self) -> None:
        self._server, self.port = await open_port(self._identity, self._users, self._listen, self._serve)
        log_event("relay_started", site=self._identity.name, users=len(self._users))

    async def stop(self) -> None:
        for stream in list(self._streams.values()):
            stream.closed.set()
        if self._server is not None:
            await self._server.stop(0.2)
            log_event("relay_stopped", site=self._identity.name, passed=self.passed, dropped=self.dropped)

    async def _serve(self, _requests: Any, context: Any) -> None:
        name = caller(context, self._names)
        if name is None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED)
            return
        await context.send_initial_metadata(())
        old = self._streams.get(name)
        if old is not None:
            old.closed.set()
        stream = self._streams[name] = Connection(name)
        try:
            await stream.serve(context.read, context.write, lambda raw: self._pass_on(name, raw))
        finally:
            if self._streams.get(name) is stream:
                del self._streams[name]

    async def _pass_on(self, sender: str, raw: bytes) -> None:
        try:
            to, frame = parse_addressed(raw)
        except PeerProtocolError:
            self.dropped += 1
            return
        stream = self._streams.get(to)
        if stream is None:
            self.dropped += 1
            return
        try:
            async with asyncio.timeout(_PATIENCE):
                await stream.put(addressed(sender, frame))
            self.passed += 1
        except (PeerLost, TimeoutError):
            self.dropped += 1
