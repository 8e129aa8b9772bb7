"""Exact distributions of views, by running the shipped roles on every input and every coin at a toy modulus."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from blindbayes.wire.transcript import Delivery


class OutOfCoins(Exception):
    """The tape is shorter than what the role draws."""


class Tape:
    """Coins with chosen values: every word drawn takes the next one."""

    def __init__(self, values: Sequence[int]) -> None:
        self.values = values
        self.at = 0

    def words(self, count: int) -> np.ndarray:
        if self.at + count > len(self.values):
            raise OutOfCoins
        drawn = np.array(self.values[self.at : self.at + count], np.uint64)
        self.at += count
        return drawn


class Meter:
    """Coins that count how many words a role draws."""

    def __init__(self) -> None:
        self.drawn = 0

    def words(self, count: int) -> np.ndarray:
        self.drawn += count
        return np.zeros(count, np.uint64)


Views = dict[tuple[int, ...], dict[str, list[Any]]]


def coalitions(parties: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Every proper, non-empty set of parties."""
    for size in range(1, len(parties)):
        yield from itertools.combinations(parties, size)


def every_view(
    parties: Sequence[str],
    modulus: int,
    draws: dict[str, int],
    run: Callable[[dict[str, int], dict[str, Tape]], dict[str, list[Delivery]]],
) -> Iterator[tuple[dict[str, int], dict[str, tuple[Any, ...]]]]:
    """For every input and every coin: the input, and each party's view (its coins and all frames it was handed)."""
    for inputs in itertools.product(range(modulus), repeat=len(parties)):
        for coins in itertools.product(range(modulus), repeat=sum(draws.values())):
            tapes, at = {}, 0
            for name in parties:
                tapes[name] = Tape(coins[at : at + draws[name]])
                at += draws[name]
            given = dict(zip(parties, inputs, strict=True))
            deliveries = run(given, tapes)
            yield given, {name: (tapes[name].values, tuple(deliveries[name])) for name in parties}


def distinguished(
    samples: Iterable[tuple[dict[str, int], dict[str, Any]]],
    coalition: Sequence[str],
    allowed: Callable[[dict[str, int]], Any],
) -> list[tuple[Any, Any]]:
    """Pairs of inputs that the coalition may not tell apart (same inputs of its own, same allowed leak) and can."""
    by_input: dict[tuple[int, ...], Counter[Any]] = defaultdict(Counter)
    leak: dict[tuple[int, ...], Any] = {}
    for inputs, views in samples:
        key = tuple(inputs.values())
        by_input[key][tuple(views[name] for name in coalition)] += 1
        leak[key] = (tuple(inputs[name] for name in coalition), allowed(inputs))
    first: dict[Any, tuple[int, ...]] = {}
    found = []
    for key, views in by_input.items():
        reference = first.setdefault(leak[key], key)
        if by_input[reference] != views:
            found.append((reference, key))
    return found
