"""Roles that make material before the instances come, and by which two parties agree what they use. See SPEC.md."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from blindbayes.errors import PeerProtocolError
from blindbayes.primitives import limbs as lm
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.garbling import Garbler
from blindbayes.primitives.tweaks import TweakedHash
from blindbayes.protocol.core import Role, Run, Send, mark, receive, receive_marked
from blindbayes.protocol.shared_argmax.comparing import circuit
from blindbayes.protocol.shared_argmax.messages import AheadChosen, AheadGarbled, AheadOffered
from blindbayes.protocol.shared_argmax.ready import Shape, head_of_receiver, head_of_sender, own_labels
from blindbayes.protocol.transfer.roles import agree, ot_receiver, ot_sender
from blindbayes.wire import U64Array

NAME_BYTES = 32
MOST_OFFERED = 8
Keep = Callable[[bytes], None]
"""Takes one record after the other."""
_STEP = "shared_argmax ahead"


def make_as_sender(run: Run, other: str, shape: Shape, keep: Keep, coins: Coins) -> Role[bytes]:
    """The class holder's half; the name of what was made."""
    session = yield from agree(run, other, _STEP, shape.facts(), coins)
    keeper = yield from ot_sender(run, other, coins)
    stream, name, plan = keeper.session(session), hashlib.sha256(b"blindbayes ahead" + session), shape.query.plan
    keep(head_of_sender(session, keeper))

    def next_transfers(index: int, count: int) -> Role[U64Array]:
        chosen = yield from receive_marked(other, AheadChosen, session, index)
        q = stream.extend(chosen.corrections, count, other)
        name.update(chosen.corrections.astype("<u8", copy=False).data)
        return q

    for index, count in enumerate(shape.pieces):
        keep((yield from next_transfers(index, count)).astype("<u8", copy=False).tobytes())
    for index, size in enumerate(shape.blocks):
        lanes, seed = shape.groups * size, coins.bytes(32)
        labels = yield from next_transfers(len(shape.pieces) + index, plan.bits * lanes)
        garbler = Garbler(TweakedHash.of_block(session, index), keeper.delta)
        out = circuit(garbler, own_labels(seed, shape, size), labels.reshape(plan.bits, lanes, 2), shape.query)
        tables = garbler.take_tables()
        name.update(tables.astype("<u8", copy=False).data)
        yield Send(other, AheadGarbled(mark(session, AheadGarbled, index), tables))
        keep(seed + out.astype("<u8", copy=False).tobytes())
    return name.digest()


def make_as_chooser(run: Run, other: str, shape: Shape, keep: Keep, coins: Coins, gates: int) -> Role[bytes]:
    """The attribute holder's half; the name of what was made. `gates`: AND gates of one instance."""
    session = yield from agree(run, other, _STEP, shape.facts(), coins)
    planted = yield from ot_receiver(run, other, coins)
    stream, name, plan = planted.session(session), hashlib.sha256(b"blindbayes ahead" + session), shape.query.plan
    keep(head_of_receiver(session, planted))
    for index, count in enumerate(shape.pieces):
        packed = np.frombuffer(coins.bytes(-(-count // 8)), dtype=np.uint8)
        corrections, t = stream.extend(np.unpackbits(packed, bitorder="little")[:count])
        yield Send(other, AheadChosen(mark(session, AheadChosen, index), corrections))
        name.update(corrections.astype("<u8", copy=False).data)
        keep(t.astype("<u8", copy=False).tobytes() + packed.tobytes())
    told = []
    for index, size in enumerate(shape.blocks):
        masks = lm.cut(coins.words(shape.groups * size * plan.limbs).reshape(-1, plan.limbs), plan.bits)
        corrections, t = stream.extend(lm.to_bits(masks, plan.bits))
        yield Send(other, AheadChosen(mark(session, AheadChosen, len(shape.pieces) + index), corrections))
        told.append(corrections)
        keep(masks.astype("<u8", copy=False).tobytes() + t.astype("<u8", copy=False).tobytes())
    for index, size in enumerate(shape.blocks):
        garbled = yield from receive_marked(other, AheadGarbled, session, index)
        if garbled.tables.size != 4 * gates * size:
            raise PeerProtocolError("the garbled tables have the wrong length", party=other)
        for part in (told[index], garbled.tables):
            name.update(part.astype("<u8", copy=False).data)
        keep(garbled.tables.astype("<u8", copy=False).tobytes())
    return name.digest()


def offers(names: Mapping[str, Sequence[bytes]]) -> dict[str, AheadOffered]:
    """What this party has for a classification, by other party: sent as they agree on it."""
    return {other: AheadOffered(b"".join(own[:MOST_OFFERED])) for other, own in names.items()}


def choose(names: Mapping[str, Sequence[bytes]]) -> Role[dict[str, bytes]]:
    """What both have, by other party: the best, in the order that both put their own in."""
    found = {}
    for other, own in names.items():
        told = (yield from receive(other, AheadOffered)).names
        if len(told) % NAME_BYTES or len(told) > MOST_OFFERED * NAME_BYTES:
            raise PeerProtocolError("names of material have the wrong length", party=other)
        theirs = {told[at : at + NAME_BYTES] for at in range(0, len(told), NAME_BYTES)}
        if both := [name for name in own[:MOST_OFFERED] if name in theirs]:
            found[other] = both[0]
    return found
