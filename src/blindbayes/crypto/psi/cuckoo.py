"""Cuckoo hashing without a stash: every item has three distinct bins and is alone in one of them.

With `bin_count(size)` bins for at most `size` items, size >= `MIN_ITEMS`, a placement exists except with probability below
2^-48: by Hall's theorem it fails to exist only if some k items have k - 1 bins together, and a smallest such set uses each of
these bins at least twice. The expected number of such sets is at most

    sum over k of C(n, k) C(m, k-1) (3k)! min_z (e^z - 1 - z)^(k-1) z^(-3k) / (m (m-1) (m-2))^k,

which is 2^-49 for n = 4,096 and m = 1.32 n, and falls with n (tests compute it). `place` finds a placement if there is one, by
random moves for most items, then augmenting paths. Bins depend only on item and session, so a failed run is repeated under a
fresh session, independently of any party's view.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from blindbayes.crypto.coins import Coins
from blindbayes.crypto.tweaks import Block128, Domain, TweakedHash
from blindbayes.errors import LocalProtocolError

MIN_ITEMS = 4096
_EXPANSION = 132  # per cent
_ROUNDS = 64  # of random moves, before augmenting paths
Positions = npt.NDArray[np.int64]


def bin_count(size: int) -> int:
    """Return the number of bins for at most `size` items: 1.32 per item, in units of 64."""
    if not MIN_ITEMS <= size <= 2**26:
        raise LocalProtocolError(f"cuckoo hashing needs {MIN_ITEMS} to 2^26 items; pad smaller sets")
    return -(-_EXPANSION * size // 6400) * 64


def fixed_words(hash_: TweakedHash, items: Block128, words: int) -> npt.NDArray[np.uint64]:
    """Return (n, words) pseudo-random words that depend only on item and session: TMMO with tweaks 1, 2, .."""
    return hash_.expand_at(items, Domain.ITEM, np.ones(len(items), dtype=np.uint64), words)


def distinct_triples(words: npt.NDArray[np.uint64], size: int) -> Positions:
    """Return (n, 3) distinct positions below `size` from (n, 3) uniform words, with bias below size / 2^64."""
    first = (words[:, 0] % np.uint64(size)).astype(np.int64)
    second = (words[:, 1] % np.uint64(size - 1)).astype(np.int64)
    second += second >= first
    third = (words[:, 2] % np.uint64(size - 2)).astype(np.int64)
    third += third >= np.minimum(first, second)
    third += third >= np.maximum(first, second)
    return np.stack([first, second, third], axis=1)


def bins_of(session: bytes, items: Block128, bins: int) -> Positions:
    """Return the three bins of each item, (n, 3), the same at both parties."""
    return distinct_triples(fixed_words(TweakedHash(session + b" bins"), items, 3), bins)


def place(bins: Positions, size: int, coins: Coins) -> Positions:
    """Return the item in each bin, (size,), -1 for an empty one. The coins only choose among the possible placements."""
    table = np.full(size, -1, dtype=np.int64)
    waiting = np.arange(len(bins))
    for _ in range(_ROUNDS):
        for choice in range(3):  # into free bins first; of several items that want one, the last gets it
            wanted = bins[waiting, choice]
            free = table[wanted] < 0
            table[wanted[free]] = waiting[free]
            waiting = waiting[table[wanted] != waiting]
        if not len(waiting):
            return table
        moves = np.frombuffer(coins.bytes(len(waiting)), dtype=np.uint8) % 3
        wanted = bins[waiting, moves]
        before = table[wanted]
        table[wanted] = waiting
        won = table[wanted] == waiting
        waiting = np.concatenate([waiting[~won], before[won]])
    for item in waiting.tolist():
        _augment(bins, table, item)
    return table


def _augment(bins: Positions, table: Positions, item: int) -> None:
    """Place one item along a shortest path of moves."""
    came: dict[int, tuple[int, int]] = {}  # bin -> (the item that would move there, the bin it comes from)
    queue: deque[tuple[int, int]] = deque([(item, -1)])
    while queue:
        mover, origin = queue.popleft()
        for target in bins[mover].tolist():
            if target in came:
                continue
            came[target] = (mover, origin)
            if table[target] >= 0:
                queue.append((int(table[target]), target))
                continue
            while target >= 0:
                mover, origin = came[target]
                table[target] = mover
                target = origin
            return
    raise LocalProtocolError("the identifiers have no placement in their bins (chance below 2^-48); start a new run")
