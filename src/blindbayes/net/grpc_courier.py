"""The built-in courier: gRPC over mutual TLS, one bidirectional stream per pair of sites.

Each side accepts exactly the certificates it has pinned; any other peer fails in the TLS handshake. There is no .proto:
frames are bytes. Of two sites that both listen, the one whose name sorts first dials; a site without an address
only dials; two such sites meet at a relay, which sees envelopes and forwards them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from grpc import aio

from blindbayes.errors import ConfigError, PeerLost, PeerProtocolError
from blindbayes.net.authority import Authority, key_digest, key_names
from blindbayes.net.courier import Connection, Latency, Listener
from blindbayes.net.envelope import MAX_ENVELOPE_BYTES
from blindbayes.net.events import Event, log_event
from blindbayes.net.identity import Card, Identity

METHOD = "/blindbayes.Courier/Frames"
_ADDRESS_BYTES = 41
_BACKOFF = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_WATCH = "/blindbayes.Courier/Watch"  # no site serves it: the answer shows that TLS went well
_WATCH_SECONDS = 30.0
_LOG_SECONDS = 3600.0  # a refusal that goes on is logged once in this time
_CLOSED = 5  # attempts in a row that end in the handshake; one may be a site that stops
_WRONG_CERTIFICATE = ("CERTIFICATE_VERIFY_FAILED", "is not in peer certificate")
MAX_CARRIED_BYTES = MAX_ENVELOPE_BYTES + _ADDRESS_BYTES

_OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MAX_CARRIED_BYTES),
    ("grpc.max_send_message_length", MAX_CARRIED_BYTES),
    ("grpc.max_metadata_size", 4096),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.so_reuseport", 0),
    ("grpc.max_concurrent_streams", 4),
]


def addressed(name: str, frame: bytes) -> bytes:
    """Prefix a frame with the site it goes to or comes from, for a relay."""
    raw = name.encode()
    return bytes([len(raw)]) + raw + frame


def parse_addressed(raw: bytes) -> tuple[str, bytes]:
    """Return name and frame. Raise `PeerProtocolError`."""
    size = raw[0] if raw else 0
    if not 0 < size < _ADDRESS_BYTES or len(raw) < 1 + size:
        raise PeerProtocolError("a relayed frame has no address")
    try:
        return raw[1 : 1 + size].decode("ascii"), raw[1 + size :]
    except UnicodeDecodeError as cause:
        raise PeerProtocolError("a relayed frame has no address") from cause


def caller(context: Any, names: Mapping[bytes, str]) -> str | None:
    """Return the site whose pinned certificate (under an authority, pinned key) the connection shows, or None."""
    shown = context.auth_context().get("x509_pem_cert") or [b""]
    try:
        certificate = x509.load_pem_x509_certificate(bytes(shown[0]))
        return names.get(certificate.fingerprint(hashes.SHA256())) or names.get(key_digest(certificate))
    except ValueError:
        return None


def certificate_names(cards: Mapping[str, Card]) -> dict[bytes, str]:
    return {card.certificate_digest: name for name, card in cards.items()}


async def open_port(
    identity: Identity,
    cards: Mapping[str, Card],
    listen: str,
    serve: Callable[[Any, Any], Awaitable[None]],
    authority: Authority | None = None,
) -> tuple[aio.Server, int]:
    """Start a server that only the owners of `cards` can connect to; return it and its port."""
    if not cards:
        raise ConfigError("no site is pinned: nobody could connect")
    server = aio.server(options=_OPTIONS, maximum_concurrent_rpcs=4 * len(cards) + 16)
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(
                METHOD.split("/")[1], {METHOD.split("/")[2]: grpc.stream_stream_rpc_method_handler(serve)}
            ),
        )
    )
    credentials = grpc.ssl_server_credentials(
        [(identity.tls_key, authority.chain if authority else identity.card.certificate)],
        root_certificates=authority.roots if authority else b"".join(card.certificate for card in cards.values()),
        require_client_auth=True,
    )
    try:
        port = server.add_secure_port(listen, credentials)
    except RuntimeError as cause:
        advice = "stop what uses the port, or change listen in site.toml"
        raise ConfigError(f"cannot listen on {listen}: in use, or not an address of this machine; {advice}") from cause
    await server.start()
    return server, port


def open_channel(identity: Identity, card: Card, authority: Authority | None = None, proxy: str | None = None) -> aio.Channel:
    """Open a channel to exactly the site of `card`, or through an HTTP proxy, which sees TLS and the address."""
    options: list[tuple[str, int | str]] = [*_OPTIONS, ("grpc.ssl_target_name_override", card.tls_name)]
    if proxy is not None:
        options = [each for each in options if each[0] != "grpc.enable_http_proxy"]
        options += [("grpc.enable_http_proxy", 1), ("grpc.http_proxy", f"http://{proxy.removeprefix('http://')}")]
    credentials = grpc.ssl_channel_credentials(
        root_certificates=authority.roots if authority else card.certificate,
        private_key=identity.tls_key,
        certificate_chain=authority.chain if authority else identity.card.certificate,
    )
    return aio.secure_channel(card.address, credentials, options=options)


class GrpcCourier:
    """A courier over gRPC. `relay` is the card of a relay; the sites in `via_relay` are reached through it."""

    latency = Latency.MILLISECONDS

    def __init__(
        self,
        identity: Identity,
        peers: Mapping[str, Card],
        *,
        listen: str | None = None,
        relay: Card | None = None,
        via_relay: frozenset[str] = frozenset(),
        authority: Authority | None = None,
        proxy: str | None = None,
    ) -> None:
        self._proxy = proxy
        if not via_relay <= set(peers) or (via_relay and relay is None):
            raise ConfigError("a site reached through a relay is pinned, and the relay is named")
        self._identity = identity
        self._peers = dict(peers)
        self._relay = relay
        self._via_relay = via_relay
        self._listen = listen
        self._authority = authority  # for sites; a relay is known by its card alone
        self._names = self._names_of(peers)
        self._streams: dict[str, Connection] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._server: aio.Server | None = None
        self._listener: Listener | None = None
        self._closed: dict[str, int] = {}  # by site: attempts in a row that the site ended in the handshake
        self._logged: dict[tuple[Event, str], float] = {}
        self.port = 0
        self.bytes_in = 0
        self.bytes_out = 0

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self, listener: Listener) -> None:
        self._listener = listener
        if self._listen is not None and self._names:
            direct = {name: self._peers[name] for name in self._names.values()}
            self._server, self.port = await open_port(self._identity, direct, self._listen, self._serve, self._authority)
        for name, card in self._peers.items():
            dials = self._listen is None or self._identity.name < name  # of two that could, one does
            if dials and card.address and name not in self._via_relay:
                self._tasks.append(asyncio.create_task(self._dial(name, card, self._authority)))
            elif card.address and name not in self._via_relay:
                self._tasks.append(asyncio.create_task(self._watch(name, card)))
        if self._relay is not None:
            self._tasks.append(asyncio.create_task(self._dial(self._relay.name, self._relay)))

    def _names_of(self, peers: Mapping[str, Card]) -> dict[bytes, str]:
        direct = {name: card for name, card in peers.items() if name not in self._via_relay}
        return key_names(direct) if self._authority else certificate_names(direct)

    async def repin(self, peers: Mapping[str, Card]) -> bool:
        """Know exactly these sites from now on; return True if that is new. Connections break and come again."""
        if dict(peers) == self._peers or not self._via_relay <= set(peers):
            return False
        if self._listener is not None:
            await self.stop()
            if self.port and self._listen is not None:
                self._listen = f"{self._listen.rpartition(':')[0]}:{self.port}"
        self._peers, self._names = dict(peers), self._names_of(peers)
        if self._listener is not None:
            await self.start(self._listener)
        return True

    async def stop(self) -> None:
        for stream in list(self._streams.values()):
            stream.closed.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.stop(0.2)
        self._tasks, self._server = [], None

    # -- frames ------------------------------------------------------------------------------------------------------

    async def send(self, to: str, frame: bytes) -> None:
        relayed = to in self._via_relay and self._relay is not None
        stream = self._streams.get(self._relay.name if relayed and self._relay is not None else to)
        if stream is None:
            raise PeerLost("not connected", party=to)
        self.bytes_out += len(frame)
        await stream.put(addressed(to, frame) if relayed else frame)

    def is_up(self, peer: str) -> bool:
        name = self._relay.name if peer in self._via_relay and self._relay is not None else peer
        return name in self._streams

    def vouches(self, peer: str) -> bool:
        return peer not in self._via_relay

    def _arrived(self, name: str, raw: bytes) -> None:
        if self._listener is None:
            return
        self.bytes_in += len(raw)
        if self._relay is not None and name == self._relay.name:
            try:
                sender, frame = parse_addressed(raw)
            except PeerProtocolError:
                return  # the relay is not trusted: what makes no sense is dropped
            if sender in self._via_relay:
                self._listener.frame_arrived(sender, frame)
        else:
            self._listener.frame_arrived(name, raw)

    def _peers_behind(self, name: str) -> list[str]:
        return sorted(self._via_relay) if self._relay is not None and name == self._relay.name else [name]

    def _up(self, name: str) -> Connection:
        old = self._streams.get(name)
        if old is not None:
            old.closed.set()  # the newer connection wins: the older one may be half open
        stream = self._streams[name] = Connection(name)
        self._closed.pop(name, None)
        self._logged = {key: time for key, time in self._logged.items() if key[1] != name}
        if self._listener is not None:
            for peer in self._peers_behind(name):
                self._listener.peer_up(peer)
        return stream

    def _down(self, stream: Connection) -> None:
        stream.closed.set()
        if self._streams.get(stream.name) is stream:
            del self._streams[stream.name]
            if self._listener is not None:
                for peer in self._peers_behind(stream.name):
                    self._listener.peer_down(peer)

    # -- connections -------------------------------------------------------------------------------------------------

    async def _serve(self, _requests: Any, context: Any) -> None:
        name = caller(context, self._names)
        if name is None:
            await context.abort(grpc.StatusCode.UNAUTHENTICATED)
            return
        await context.send_initial_metadata(())
        await self._carry(name, context)

    async def _carry(self, name: str, call: Any) -> None:
        stream = self._up(name)
        try:
            await stream.serve(call.read, call.write, lambda frame: self._arrived(name, frame))
        finally:
            self._down(stream)

    async def _dial(self, name: str, card: Card, authority: Authority | None = None) -> None:
        tries = 0
        while True:
            channel = open_channel(self._identity, card, authority, self._proxy)
            try:
                call: Any = channel.stream_stream(METHOD)(wait_for_ready=False)
                await call.initial_metadata()  # the other side has accepted us, unless the call is over already
                if call.done():
                    self._note_refusal(name, await call.details() or "")
                    raise PeerLost("refused the connection", party=name)
                tries = 0
                try:
                    await self._carry(name, call)
                finally:
                    call.cancel()
            except (grpc.RpcError, asyncio.InvalidStateError, OSError, aio.UsageError, PeerLost) as error:
                log_event("dialling_failed", level=logging.DEBUG, site=name, error=error, tries=tries)
            finally:
                await channel.close()
            await asyncio.sleep(_BACKOFF[min(tries, len(_BACKOFF) - 1)])
            tries += 1

    async def _watch(self, name: str, card: Card) -> None:
        """Look at the certificate of a site that dials this one while it is not connected.

        The listening side of TLS refuses a wrong certificate without learning who showed it; this side can name the site.
        """
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            if name in self._streams:
                continue
            channel = open_channel(self._identity, card, self._authority, self._proxy)
            with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError, OSError, aio.UsageError):
                self._note_refusal(name, await channel.stream_stream(_WATCH)(wait_for_ready=False).details() or "")
            await channel.close()

    def _note_refusal(self, name: str, details: str) -> None:
        """Log that one side refused the other's certificate: once until they connect, or once an hour."""
        event: Event | None = "wrong_certificate" if any(text in details for text in _WRONG_CERTIFICATE) else None
        self._closed[name] = self._closed.get(name, 0) + 1 if details.endswith("Socket closed") else 0
        if self._closed[name] >= _CLOSED:
            event = "certificate_refused"
        now = asyncio.get_running_loop().time()
        if event is not None and now - self._logged.get((event, name), -math.inf) >= _LOG_SECONDS:
            self._logged[event, name] = now
            log_event(event, level=logging.WARNING, site=name)
