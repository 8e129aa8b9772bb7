"""What other sites, relays and engines send: messages, envelopes, confirmations, heads of logs, notices, receipts, records."""

from __future__ import annotations

import asyncio
import atexit
import importlib
import pkgutil
import types
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args, get_origin, get_type_hints

import msgspec
import numpy as np

import blindbayes.protocols
from blindbayes.agent.agent import Agent
from blindbayes.agent.rollback import PeerLogHeads
from blindbayes.crypto.coins import Coins
from blindbayes.net import carrier
from blindbayes.net.control import Confirm, read_confirm, require_short
from blindbayes.net.envelope import EnvelopePair, Session, fresh_key, pack, unpack
from blindbayes.net.grpc_courier import addressed, parse_addressed
from blindbayes.net.identity import Identity
from blindbayes.net.notices import Heard, Invitation, Standing, open_notice, seal_notice
from blindbayes.net.versions import VERSIONS
from blindbayes.report.receipts import Receipt, read_receipts, receipts_text
from blindbayes.report.receipts import pack as pack_receipt
from blindbayes.wire import Big, Message, U64Array, decode, encode
from fuzz.targets import Target
from support.clock import LeapingLoop
from support.sites import BOOK, Office

STUDY, RUN = "ab" * 32, "cd" * 16


def message_kinds() -> list[type[Message]]:
    """Every kind of message of every protocol, in the order of their names."""
    for module in pkgutil.walk_packages(blindbayes.protocols.__path__, "blindbayes.protocols."):
        importlib.import_module(module.name)
    found, waiting = set(), [Message]
    while waiting:
        for kind in waiting.pop().__subclasses__():
            waiting.append(kind)
            if kind.__module__.startswith("blindbayes.protocols.") and hasattr(kind, "trust"):
                found.add(kind)
    return sorted(found, key=lambda kind: (kind.__module__, kind.__name__))


def _sample(kind: Any) -> Any:
    """Some value of a field's type."""
    if kind is U64Array or get_origin(kind) is np.ndarray:
        return np.array([1, 2**63], dtype=np.uint64)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is tuple:
        return (_sample(inner[0]),) if inner[-1] is Ellipsis else tuple(map(_sample, inner))
    if origin is dict:
        return {_sample(inner[0]): _sample(inner[1])}
    if origin in (types.UnionType,):
        return _sample(inner[0])
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind(**{name: _sample(each) for name, each in get_type_hints(kind).items() if name in kind.__struct_fields__})
    return {bool: True, int: 3, str: "north", bytes: b"\x01" * 32, Big: Big(2**70)}[kind]


def _message_targets() -> Iterable[Target]:
    kinds = message_kinds()
    frames = [bytes([number]) + encode(_sample(kind)) for number, kind in enumerate(kinds)]

    def read(raw: bytes) -> None:
        """The first byte names the kind that the receiver waits for."""
        kind = kinds[raw[0] % len(kinds)] if raw else kinds[0]
        encode(decode(raw[1:], kind, sender="south"))

    yield Target("message", tuple(frames), read)


def _pair(identities: dict[str, Identity], me: str, peer: str) -> EnvelopePair:
    return EnvelopePair(STUDY, RUN, me, peer, identities[peer].card.identity, identities[me].signing)


def _session_targets(identities: dict[str, Identity]) -> Iterable[Target]:
    coins = Coins.seeded(bytes(32))
    south, north = _pair(identities, "south", "north"), _pair(identities, "north", "south")
    mine, theirs = fresh_key(coins), fresh_key(coins)
    offers = (north.offer(mine), south.offer(theirs))
    sender = south.agree(theirs, offers[0])
    frames = [pack(offers[1]), pack(south.ended(8)), pack(south.refused("not ours")), sender.seal("confirm", b"c" * 90)]
    notice = seal_notice(identities["south"], identities["north"].card, Heard(STUDY, 2), coins)

    def envelope(raw: bytes) -> None:
        frame = unpack(raw, sender="south")
        receiver = Session(north, mine, offers[1].ephemeral)
        match type(frame).__name__:
            case "Offer":
                north.agree(mine, frame)  # type: ignore[arg-type]
            case "Sealed":
                receiver.open(frame)  # type: ignore[arg-type]
            case "Ended" | "Refused":
                north.require_word(frame)  # type: ignore[arg-type]
            case _:
                open_notice(identities["north"], identities["south"].card, frame)  # type: ignore[arg-type]

    yield Target("envelope", (*frames, notice), envelope)
    contents = (Invitation("title = 1"), Standing(STUDY, STUDY, "waiting", "why", 3), Heard(STUDY, 3))

    def signed_notice(raw: bytes) -> None:
        """A pinned site sends what it likes, sealed and signed as it must be."""
        frame = seal_notice(identities["south"], identities["north"].card, cast(Any, msgspec.Raw(raw)), coins)
        open_notice(identities["north"], identities["south"].card, unpack(frame))  # type: ignore[arg-type]

    yield Target("notice", tuple(map(msgspec.msgpack.encode, contents)), signed_notice)
    session = cast(Session, SimpleNamespace(pair=SimpleNamespace(peer="south"), require_proof=lambda *_: None))
    confirm = Confirm(b"p" * 64, 3, b"d" * 32, 2, b"{}", b"seen", dict(VERSIONS))

    def confirmed(raw: bytes) -> None:
        require_short(read_confirm(session, raw), "south")

    yield Target("confirm", (msgspec.msgpack.encode(confirm),), confirmed)
    yield Target("relay address", (addressed("south", b"frame"),), parse_addressed)
    receipt = Receipt(("west",)).sign(STUDY, RUN, "south", identities["south"].signing)
    names = {name: each.card.identity for name, each in identities.items()}
    yield Target("receipt", (pack_receipt(receipt),), lambda raw: receipts_text(STUDY, RUN, names, {"south": raw}))
    stored = receipts_text(STUDY, RUN, names, {"south": pack_receipt(receipt)})
    yield Target("receipts.json", (stored,), lambda raw: read_receipts(raw, STUDY, RUN, names))

    def record(raw: bytes) -> None:
        async def inner() -> None:
            reader = asyncio.StreamReader()
            reader.feed_data(raw)
            reader.feed_eof()
            try:
                while True:
                    await carrier.read_record(reader)
            except asyncio.IncompleteReadError:
                pass

        asyncio.run(inner())

    seeds = (carrier.record(carrier.Kind.FRAME, b"south", b"frame"), carrier.record(carrier.Kind.TURN))
    yield Target("engine record", seeds, record)


class _Waiting:
    """A real agent whose loop stands still between frames."""

    def __init__(self, folder: Path) -> None:
        self.loop = LeapingLoop()
        self.office = Office(folder, ("north", "south", "west"))
        self.agent: Agent = self.loop.run_until_complete(self.office.start("north"))
        atexit.register(lambda: self.loop.run_until_complete(self.office.stop("north")))
        self.south, self.north = (self.office.net.sites[name].identity for name in ("south", "north"))
        self.study = self.office.net.make_study(BOOK)
        self.heads = PeerLogHeads(self.office.net.sites["north"].home, self.north)

    def arrived(self, raw: bytes) -> None:
        """A frame comes to the agent's router, which must neither raise nor take up what it does not know."""
        self.loop.call_soon(self.agent.router.frame_arrived, "south", raw)
        problems: list[Any] = []
        self.loop.set_exception_handler(lambda _, context: problems.append(context.get("exception") or context["message"]))
        self.loop.run_until_complete(asyncio.sleep(0.001))
        for problem in problems:
            raise problem if isinstance(problem, Exception) else RuntimeError(problem)
        assert self.agent.runs == {}

    def invitation(self, raw: bytes) -> None:
        frame = seal_notice(self.south, self.north.card, Invitation(raw.decode(errors="replace")), Coins.seeded(bytes(32)))
        self.arrived(frame)

    def witnessed(self, raw: bytes) -> None:
        self.heads.store_heads("south", "south", RUN, raw, b"e" * 32, b"p" * 64)

    def recalled(self, raw: bytes) -> None:
        self.heads.check_own_heads("south", raw)

    def targets(self) -> Iterable[Target]:
        pair = EnvelopePair(self.study.sha256, RUN, "south", "north", self.north.card.identity, self.south.signing)
        offer = pack(pair.offer(fresh_key(Coins.seeded(bytes(32)))))
        yield Target("frame at an agent", (offer, pack(pair.ended(3)), pack(pair.refused("no"))), self.arrived)
        yield Target("invitation", (self.study.to_toml().encode(),), self.invitation)
        shown = self.heads.heads()
        yield Target("heads", (shown,), self.witnessed)
        seen = msgspec.msgpack.encode(["south", shown, b"e" * 32, b"p" * 64])
        yield Target("heads of our own", (seen,), self.recalled)


def targets(folder: Path) -> Iterable[Target]:
    identities = {name: Identity.generate(name) for name in ("north", "south", "west")}
    yield from _message_targets()
    yield from _session_targets(identities)
    yield from _Waiting(folder / "office").targets()
