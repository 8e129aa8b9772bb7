"""Look-ups at places that nobody knows, or that the chooser alone knows.

Of each place both parties have an XOR share: the sender `flips`, the chooser `choices`. The sender's table, read from its
flip, has at the chooser's choice the entry that is meant:  T'[v] = T[v ^ flip].  So it is a one-of-n transfer, and the sender
need not know more. With pads p_v, of which the chooser can compute the one of its choice, the sender keeps T'[0] + p_0 and
sends T'[v] - T'[0] - p_0 - p_v for v > 0; the chooser is left with T'[choice] - T'[0] - p_0.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from blindbayes.crypto import limbs as lm
from blindbayes.crypto.limbs import Limbs
from blindbayes.crypto.ot.base import Bits, chooser_pads, sender_pads
from blindbayes.crypto.tweaks import Block128, Domain, TweakedHash
from blindbayes.wire import U64Array


@dataclass(frozen=True, slots=True)
class Offered:
    """The tables of a sender: common to all instances or one per instance. Without flips, entry 0 is 0."""

    table: Limbs = field(repr=False)  # (1 or count, selectors, entries, K - 1, limbs)
    flips: U64Array | None = field(default=None, repr=False)  # (count, selectors)

    @classmethod
    def gate(cls, scores: Limbs, flips: U64Array | None = None) -> Offered:
        """Make tables of two entries, 0 and the instance's own scores (count, K - 1, limbs); `flips` has shape (count,)."""
        table = np.zeros((len(scores), 1, 2, *scores.shape[1:]), dtype=np.uint64)
        table[:, 0, 1] = scores
        return cls(table, None if flips is None else flips[:, None])

    @property
    def entries(self) -> int:
        return int(self.table.shape[2])

    def entry(self, value: int) -> Limbs:
        """Return T'[value] of all places, (count or 1, selectors, K - 1, limbs)."""
        if self.flips is None:
            return self.table[:, :, value]
        instances, selectors, entries, *shape = self.table.shape
        lines = np.arange(0, instances * selectors * entries, entries).reshape(instances, selectors)
        chosen: Limbs = self.table.reshape(-1, *shape).take(lines + (self.flips.astype(np.int64) ^ value), axis=0)
        return chosen


def offer(
    hash_: TweakedHash, q: Block128, delta: Block128, offered: Offered, total: Limbs, out: U64Array | None = None
) -> U64Array:
    """Add the sender's shares, summed over the selectors, to `total` (count, K - 1, limbs); return the words to send.

    `q` (count * selectors, bits, 2) leads to the pads where the chooser's bit is 0. `out` is memory for the words.
    """
    (_, selectors, entries, *plan_shape), count, kernel = offered.table.shape, len(total), hash_.kernel
    width = plan_shape[0] * plan_shape[1]
    sent = np.empty((entries - 1) * len(q) * width, dtype=np.uint64) if out is None else out
    sent = sent.reshape(entries - 1, len(q), width)
    if kernel is not None and kernel.looks_up(width, 0 if offered.flips is None else entries):
        first = hash_.reserve(Domain.TRANSFER, len(q) * entries * -(-width // 2))
        q, tweaks = np.ascontiguousarray(q), hash_.tweaks(Domain.TRANSFER, first)
        kernel.offer(tweaks, q, delta, offered.table, offered.flips, total=total, sent=sent)
        return sent.reshape(-1)
    pads = sender_pads(hash_, q, delta, entries, width).reshape(entries, count, selectors, *plan_shape)
    base = pads[0] if offered.flips is None else lm.add(offered.entry(0), pads[0])
    rows = sent.reshape(entries - 1, *base.shape)
    for value in range(1, entries):
        rows[value - 1] = lm.subtract(offered.entry(value), lm.add(base, pads[value]))
    total[:] = lm.add(total, lm.total(base, axis=1))
    return sent.reshape(-1)


def take(hash_: TweakedHash, t: Block128, choices: U64Array | Bits, sent: U64Array, total: Limbs) -> None:
    """Add the chooser's shares, summed over the selectors, to `total` (count, K - 1, limbs).

    `choices` has shape (count * selectors,); `sent` are the words that the sender sent.
    """
    plan_shape, rows, kernel = total.shape[1:], len(choices), hash_.kernel
    width = plan_shape[0] * plan_shape[1]
    table = sent.reshape(-1, rows, width)
    entries, choices = len(table) + 1, np.ascontiguousarray(choices, dtype=np.uint64)
    if kernel is not None and kernel.looks_up(width):
        first = hash_.reserve(Domain.TRANSFER, rows * entries * -(-width // 2))
        kernel.take(hash_.tweaks(Domain.TRANSFER, first), np.ascontiguousarray(t), choices, table, total=total)
        return
    pads = chooser_pads(hash_, t, choices, entries, width).reshape(rows, *plan_shape)
    index = choices.astype(np.int64)
    picked = table[np.maximum(index - 1, 0), np.arange(rows)].reshape(pads.shape)
    zero = (index == 0)[:, None, None]
    share = np.where(zero, lm.subtract(np.zeros_like(pads), pads), lm.add(picked, pads))
    total[:] = lm.add(total, lm.total(share.reshape(len(total), -1, *plan_shape), axis=1))
