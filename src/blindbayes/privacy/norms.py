"""The exact sampler of K-norm noise on integer vectors, for norms of the form max over blocks of the L1 norm of the block."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np

from blindbayes.errors import ConfigError
from blindbayes.primitives.coins import Coins
from blindbayes.privacy.exact_events import Integers, Number, below, positive
from blindbayes.privacy.samplers import geometric

HARD = 32
CELLS = 1 << 18
"""Coordinates drawn at a time."""


def knorm(coins: Coins, blocks: Sequence[int], rate: Number) -> Integers:
    """One vector x with P(x) proportional to e**-(rate ||x||), ||x|| = max over blocks of the block's L1 norm.  [knorm]"""
    return np.asarray(knorms(coins, blocks, rate, 1)[0])


def knorms(coins: Coins, blocks: Sequence[int], rate: Number, count: int) -> Integers:
    """`count` independent such vectors, one in each row.

    `blocks` holds the number of coordinates of each block, in order. Blocks of one coordinate give the L-infinity norm, one
    single block gives independent discrete Laplace noise.

    The radius k has weight (lattice points of the ball) e^-(rate k), then x is uniform in the ball. Both are drawn by one
    rejection: k from the sum of D + 1 geometrics, whose weight is (k+1)...(k+D) / D!, thinned to the product over blocks of
    (k+1)...(k+d); then, in each block, absolute values of sum <= k and free signs, all redrawn if a zero got a minus sign.
    The share accepted is about e^-(D rate): a caller with a large D rate refines its grid first.
    """
    exact = positive(rate, "rate")
    if not blocks or min(blocks) < 1:
        raise ConfigError("a norm needs blocks of at least one coordinate")
    dimension = sum(blocks)
    if exact * dimension > HARD:
        raise ConfigError("rate times dimension is too large for rejection: refine the grid")
    if dimension / exact * 4 > 1 << 60:
        raise ConfigError("noise beyond 64 bits: coarsen the grid")
    sizes = np.asarray(blocks, dtype=np.int64)
    owner = np.repeat(np.arange(sizes.size), sizes)  # the block of each coordinate
    starts = np.cumsum(sizes) - sizes
    index = np.arange(1, dimension + 1)
    place = index - starts[owner]  # 1..d within the block
    out = np.empty((count, dimension), dtype=np.int64)
    filled = 0
    while filled < count:
        tries = min(count - filled, max(1, CELLS // dimension))
        radius = geometric(coins, exact, tries * (dimension + 1)).reshape(tries, -1).sum(axis=1)
        kept = (below(coins, (radius[:, None] + index).ravel()).reshape(tries, -1) < radius[:, None] + place).all(axis=1)
        radius = radius[kept]
        rows = radius.size
        x = _simplex(
            coins,
            np.repeat(radius, sizes.size),
            np.tile(sizes, rows),
            (owner + sizes.size * np.arange(rows)[:, None]).ravel(),
            (starts + dimension * np.arange(rows)[:, None]).ravel(),
        ).reshape(rows, dimension)
        bits = np.frombuffer(coins.bytes((x.size + 7) // 8), dtype=np.uint8)
        negative = np.unpackbits(bits, count=x.size).astype(np.bool_).reshape(x.shape)
        kept = ~np.any(negative & (x == 0), axis=1)
        np.negative(x, out=x, where=negative)
        x = x[kept]
        out[filled : filled + len(x)] = x
        filled += len(x)
    return out


def _simplex(coins: Coins, radius: int | Integers, sizes: Integers, owner: Integers, starts: Integers) -> Integers:
    """In each block, uniform integers >= 0 of sum <= radius: the gaps of a uniform d-subset of {0, ..., radius + d - 1}.

    `radius` is that of each block, or one for all.
    """
    bounds = (radius + sizes)[owner]
    marks = below(coins, bounds)
    apart = int(bounds.max(initial=0))
    shift = owner * apart if sizes.size * apart < 1 << 62 else None  # then one sort of one number does
    while True:  # blocks stay in order, marks rise within each
        marks = marks[np.lexsort((marks, owner))] if shift is None else np.sort(marks + shift) - shift
        same = np.flatnonzero((marks[1:] == marks[:-1]) & (owner[1:] == owner[:-1]))
        if not same.size:
            break
        again = np.isin(owner, owner[same])  # a block with two equal marks is drawn afresh
        marks[again] = below(coins, bounds[again])
    before = np.empty_like(marks)
    before[1:] = marks[:-1]
    before[starts] = -1
    return marks - before - 1


def ball_points(dimension: int, radius: int) -> int:
    """The number of integer points of L1 norm at most `radius`: the weight that `knorm` gives a block (used to check it)."""
    return sum(2**j * comb(dimension, j) * comb(radius, j) for j in range(min(dimension, radius) + 1))
