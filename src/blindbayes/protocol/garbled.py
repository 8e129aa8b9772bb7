"""Garbled tables on the wire: one step of a circuit in pieces, with the tags of its outputs behind the last."""

from __future__ import annotations

from typing import ClassVar, TypeVar

import numpy as np

from blindbayes.errors import PeerProtocolError
from blindbayes.primitives.garbling import Evaluator, Garbler, Wires
from blindbayes.protocol.core import Role, Send, receive
from blindbayes.wire import Message, Trust, Words

PIECE_WORDS = 1 << 21
"""Of tables per message: 16 MB."""


class TablesGarbled(Message, frozen=True):
    """Tables of one step, in pieces; the last piece has the tags of the step's outputs. Each protocol has its own kind."""

    trust: ClassVar[Trust] = Trust.ENCRYPTED
    tables: Words
    tags: Words
    last: bool


P = TypeVar("P", bound=TablesGarbled)


def send_step(other: str, garbler: Garbler, outputs: Wires, kind: type[P]) -> Role[None]:
    """The garbler: the tables since the last step, and the outputs' tags."""
    tables, tags, none = garbler.take_tables(), garbler.tags(outputs), np.zeros(0, dtype=np.uint64)
    while len(tables) > PIECE_WORDS:
        yield Send(other, kind(tables[:PIECE_WORDS], none, False))
        tables = tables[PIECE_WORDS:]
    yield Send(other, kind(tables, tags, True))


def receive_step(other: str, evaluator: Evaluator, kind: type[P]) -> Role[Words]:
    """The evaluator: hands the tables on, returns the tags."""
    while True:
        piece = yield from receive(other, kind)
        if len(piece.tables) > PIECE_WORDS or (not piece.last and (len(piece.tags) or len(piece.tables) != PIECE_WORDS)):
            raise PeerProtocolError("a piece of garbled tables has the wrong length", party=other)
        evaluator.give_tables(piece.tables)
        if piece.last:
            return piece.tags
