"""A contributor's vector in parts: keys of masks for all computing parties but the last, the masked vector for that one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.prg import KEY_BYTES, expand
from blindbayes.errors import PeerProtocolError
from blindbayes.protocols.core import Role, Run, Send, receive
from blindbayes.protocols.shared_rows.messages import MaskSent, VectorMasked
from blindbayes.wire import U64Array


def deal(vector: U64Array, computing: Sequence[str], coins: Coins) -> Role[None]:
    """Step 1 of a party that does not compute."""
    rest = vector
    for name in computing[:-1]:
        key = coins.bytes(KEY_BYTES)
        yield Send(name, MaskSent(key))
        rest = rest - expand(key, len(vector))
    yield Send(computing[-1], VectorMasked(rest))


def collect(run: Run, vector: U64Array, computing: Sequence[str]) -> Role[U64Array]:
    """Step 1 of a computing party; return its share of the total."""
    share = vector.astype(np.uint64, copy=True)
    for name in others(run, computing):
        if run.me == computing[-1]:
            masked = yield from receive(name, VectorMasked)
            if masked.vector.shape != share.shape:
                raise PeerProtocolError("a masked vector has the wrong length", party=name)
            share += masked.vector
        else:
            sent = yield from receive(name, MaskSent)
            if len(sent.key) != KEY_BYTES:
                raise PeerProtocolError("a mask key has the wrong length", party=name)
            share += expand(sent.key, len(share))
    return share


def others(run: Run, computing: Sequence[str]) -> list[str]:
    """Return the parties that do not compute."""
    return [name for name in run.others if name not in computing]
