"""Runs of masked_sum in one process, as its tests begin and judge them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import numpy as np

from blindbayes.crypto.coins import Coins
from blindbayes.protocols import registry
from blindbayes.protocols.memory import Fault, Outcome, local_runs
from blindbayes.protocols.secure_sum import graph, keys
from support.sums import SEED, names, pooled, random_vectors, run_sum

SENDS_VECTOR = 4  # the effect of a contributor that sends its masked vector
SENDS_SHARES = 8  # and the one that sends its shares


def sparse(parties: int, quorum: int, corrupt: float, neighbours: int) -> graph.MaskGraph:
    """The graph with so many neighbours for each, at the lowest threshold that its bound allows."""
    return graph.best_threshold(parties, neighbours, math.ceil(corrupt * parties), parties - quorum)[1]


@contextmanager
def degree(neighbours: int | None) -> Iterator[None]:
    """Runs on graphs of this degree in place of the planned ones; None: as planned."""
    fixed = graph.plan if neighbours is None else partial(sparse, neighbours=neighbours)
    with mock.patch.object(graph, "plan", fixed):
        yield


def masked(parties: int, quorum: int | None, faults: list[Fault], **how: Any) -> tuple[dict[str, np.ndarray], Outcome]:
    vectors = random_vectors(names(parties), 3)
    return vectors, run_sum("masked_sum", vectors, quorum=quorum, faults=faults, check=False, **how)


def require_sum(vectors: dict[str, np.ndarray], outcome: Outcome, included: set[str]) -> None:
    """Everybody that is left has the sum over the included."""
    assert outcome.error is None
    assert outcome.outputs["server"].included == tuple(name for name in vectors if name in included)
    expected = pooled(vectors, outcome.outputs["server"].included)
    for total in outcome.outputs.values():
        assert np.array_equal(total.words, expected)
        assert total.included == outcome.outputs["server"].included


def start(parties: int, quorum: int, **how: Any) -> tuple[dict[str, Any], keys.MaskedSumSetup, dict[str, np.ndarray]]:
    """The roles of a run, and the server's terms, with which a test can sign as the server."""
    vectors = random_vectors(names(parties), 3)
    setting = registry.SumSetup(tuple(vectors), 3, quorum, **how)
    protocol = registry.load("masked_sum")
    coins = Coins.seeded(SEED)
    runs = local_runs(protocol.roster(setting), coins=coins)
    return (
        registry.simulate_roles(protocol, runs, setting, vectors, coins),
        keys.MaskedSumSetup(runs["server"], setting),
        vectors,
    )
