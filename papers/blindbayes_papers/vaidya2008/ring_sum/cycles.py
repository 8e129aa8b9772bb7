"""Edge-disjoint rings through all parties, so that nobody has the same neighbour twice (Walecki's construction).

Vertices are 0 .. n-1; every ring starts at vertex n-1. There are (n-1)//2 of them, which is all that fit: they use up every
pair of parties for odd n, all but a perfect matching for even n.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np

from blindbayes.crypto.prg import expand


def max_rings(parties: int) -> int:
    """Return how many edge-disjoint rings exist."""
    return (parties - 1) // 2


def ring(parties: int, number: int) -> tuple[int, ...]:
    """Ring `number` (from 0), as the order in which it visits the vertices."""
    if not 0 <= number < max_rings(parties):
        raise ValueError("there is no such ring")
    hub = parties - 1
    if parties % 2:  # zigzag over the residues modulo n-1: the edges a-b with a+b = 2*number or 2*number+1
        turns = [number]
        for step in range(1, hub // 2):
            turns += [number + step, number - step]
        return (hub, *(turn % hub for turn in (*turns, number + hub // 2)))
    half = pow(2, -1, hub)  # union of two perfect matchings: a-b with a+b = s (modulo n-1), and hub - s/2
    order = [hub]
    for step in range(parties - 1):
        matching, last = 2 * number + step % 2, order[-1]
        if last == hub:
            order.append(matching * half % hub)
        else:
            other = (matching - last) % hub
            order.append(hub if other == last else other)
    return tuple(order)


@lru_cache(maxsize=16)
def seating(study: str, run_id: str, parties: int) -> tuple[int, ...]:
    """Return which party sits at which vertex: a random order from what is public and fixed before the run."""
    seed = hashlib.sha256(f"blindbayes ring_sum seats v1 {study} {len(run_id)} {run_id} {parties}".encode()).digest()
    return tuple(np.argsort(expand(seed, parties), kind="stable").tolist())
