"""Look-ups at places that nobody knows, or that the chooser alone knows.

Of each place both parties have an XOR share: the sender `flips`, the chooser `choices`. The sender's table, read from its
flip, has at the chooser's choice the entry that is meant:  T'[v] = T[v ^ flip].  So it is a one-of-n transfer, and the sender
need not know more. With pads p_v, of which the chooser can compute the one of its choice, the sender keeps T'[0] + p_0 and
sends T'[v] - T'[0] - p_0 - p_v for v > 0; the chooser is left with T'[choice] - T'[0] - p_0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from blindbayes.primitives import limbs as lm
from blindbayes.primitives.limbs import Limbs
from blindbayes.primitives.ot import chooser_pads, sender_pads
from blindbayes.primitives.tweaks import Block128, TweakedHash
from blindbayes.wire import U64Array

Pick = Callable[[int], Limbs]
"""T'[v] of all places, (count, selectors, K - 1, limbs)."""


def from_table(table: Limbs, flips: U64Array) -> Pick:
    """One table (selectors, entries, K - 1, limbs) for all instances; `flips`: (count, selectors)."""
    selectors = np.arange(len(table))[None]
    turned = flips.astype(np.int64)
    return lambda value: table[selectors, turned ^ value]


def gated(scores: Limbs, flips: U64Array) -> Pick:
    """Two entries, 0 and the instance's own scores (count, K - 1, limbs); `flips`: (count,)."""
    return lambda value: np.where((flips == np.uint64(1 - value))[:, None, None], scores, np.uint64(0))[:, None]


def offer(
    hash_: TweakedHash, q: Block128, delta: Block128, entries: int, pick: Pick, plan_shape: tuple[int, int], count: int
) -> tuple[Limbs, U64Array]:
    """The sender: its shares (count, K - 1, limbs), added over the selectors, and the words to send.

    `q`: (count * selectors, bits, 2), what leads to the pad where the chooser's bit is 0. `plan_shape`: (K - 1, limbs).
    """
    width = plan_shape[0] * plan_shape[1]
    pads = sender_pads(hash_, q, delta, entries, width).reshape(entries, count, -1, *plan_shape)
    kept = lm.add(pick(0), pads[0])
    sent = np.empty((entries - 1, *kept.shape), dtype=np.uint64)
    for value in range(1, entries):
        sent[value - 1] = lm.subtract(lm.subtract(pick(value), kept), pads[value])
    return lm.total(kept, axis=1), sent.reshape(-1)


def take(
    hash_: TweakedHash, t: Block128, choices: U64Array, entries: int, sent: U64Array, plan_shape: tuple[int, int], count: int
) -> Limbs:
    """The chooser: its shares (count, K - 1, limbs), added over the selectors. `choices`: (count * selectors,)."""
    width, rows = plan_shape[0] * plan_shape[1], len(choices)
    pads = chooser_pads(hash_, t, choices, entries, width).reshape(rows, *plan_shape)
    table = sent.reshape(entries - 1, rows, *plan_shape)
    index = choices.astype(np.int64)
    picked = table[np.maximum(index - 1, 0), np.arange(rows)]
    zero = (index == 0)[:, None, None]
    share = np.where(zero, lm.subtract(np.zeros_like(pads), pads), lm.add(picked, pads))
    return lm.total(share.reshape(count, -1, *plan_shape), axis=1)
