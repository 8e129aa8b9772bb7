"""A contributor's vector in two parts: the key of a mask for one computing party, the masked vector for the other."""

from __future__ import annotations

import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.prg import KEY_BYTES, expand
from blindbayes.errors import PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, receive
from blindbayes.protocols.shared_rows.messages import MaskSent, VectorMasked
from blindbayes.wire import U64Array


def deal(vector: U64Array, first: str, second: str, coins: Coins) -> Role[None]:
    """Step 1 of a party that does not compute."""
    key = coins.bytes(KEY_BYTES)
    yield Send(first, MaskSent(key))
    yield Send(second, VectorMasked(vector - expand(key, len(vector))))


def collect_masks(run: Run, vector: U64Array, second: str) -> Role[U64Array]:
    """Step 1 of the first computing party; return its share of the total."""
    share = vector.astype(np.uint64, copy=True)
    for name in others(run, second):
        sent = yield from receive(name, MaskSent)
        if len(sent.key) != KEY_BYTES:
            raise PeerProtocolError("a mask key has the wrong length", party=name)
        share += expand(sent.key, len(share))
    return share


def collect_masked(run: Run, vector: U64Array, first: str) -> Role[U64Array]:
    """Step 1 of the second computing party; return its share of the total."""
    share = vector.astype(np.uint64, copy=True)
    for name in others(run, first):
        sent = yield from receive(name, VectorMasked)
        if sent.vector.shape != share.shape:
            raise PeerProtocolError("a masked vector has the wrong length", party=name)
        share += sent.vector
    return share


def others(run: Run, computing: str) -> list[str]:
    return [name for name in run.others if name != computing]
