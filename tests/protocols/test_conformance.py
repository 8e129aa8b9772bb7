"""One suite over every registered rows protocol: equal to `reference`, and to its own SPEC."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from blindbayes.codebook import Codebook
from blindbayes.crypto.coins import Coins
from blindbayes.data import encode
from blindbayes.errors import ConfigError
from blindbayes.protocols import registry
from blindbayes.protocols.core import Done
from blindbayes.protocols.memory import local_runs
from blindbayes.statistics import CodedRows, Layout, Statistics, count_block
from blindbayes.wire.transcript import Keep
from support.protocols import READY, SMALL, small_vectors
from support.replay import replay
from support.sums import costs, names, pooled, run_sum


@pytest.mark.parametrize("parties", [2, 3, 5, 20])
@pytest.mark.parametrize("protocol", READY)
def test_it_equals_the_reference(protocol: str, parties: int) -> None:
    spec = registry.spec(protocol)
    sites = names(parties)
    vectors = small_vectors(sites, 6)
    if parties < spec["minimum"]:
        with pytest.raises(ConfigError):
            run_sum(protocol, vectors, bound=SMALL)
        return
    expected = run_sum("reference", vectors).outputs[sites[0]]
    outcome = run_sum(protocol, vectors, bound=SMALL)
    setting = registry.SumSetup(sites, 6, bound=SMALL)
    learners = registry.load(protocol).learners(setting)
    assert learners
    for name in learners:
        total = outcome.outputs[name]
        assert total.included == sites
        assert np.array_equal(total.words, expected.words)
    for name in set(outcome.outputs) - set(learners):
        assert outcome.outputs[name] is None
    assert np.array_equal(expected.words, pooled(vectors, sites))


@pytest.mark.parametrize(
    ("protocol", "parties"),
    [
        pytest.param(protocol, parties, marks=[pytest.mark.slow] if protocol == "oblivious_sum" and parties == 20 else [])
        for protocol in READY
        for parties in (3, 5, 20)
    ],
)
def test_cost_and_openings_are_what_the_spec_says(protocol: str, parties: int) -> None:
    spec = registry.spec(protocol)
    outcome = run_sum(protocol, small_vectors(names(parties), 6), bound=SMALL)
    assert (outcome.cost.rounds, outcome.cost.messages) == costs(spec, parties, 6)
    assert {label for labels in outcome.opened.values() for label in labels} == set(spec["opened"])
    learners = registry.load(protocol).learners(registry.SumSetup(names(parties), 6, bound=SMALL))
    assert {name for name, labels in outcome.opened.items() if "sum" in labels} == set(learners)
    assert outcome.unread == 0
    assert outcome.lost == {}


@pytest.mark.parametrize("protocol", READY)
def test_noise_changes_the_label(protocol: str) -> None:
    outcome = run_sum(protocol, small_vectors(names(5), 6), bound=SMALL, noisy=True)
    expected = {"noisy_sum" if label == "sum" else label for label in registry.spec(protocol)["opened"]}
    assert {label for labels in outcome.opened.values() for label in labels} == expected


@pytest.mark.parametrize("protocol", READY)
def test_a_role_fed_the_same_messages_sends_the_same(protocol: str) -> None:
    vectors = small_vectors(names(5), 4)
    seed = bytes(31) + b"r"
    first = run_sum(protocol, vectors, bound=SMALL, seed=seed, keep=Keep.FRAMES)
    found = registry.load(protocol)
    setting = registry.SumSetup(tuple(vectors), 4, bound=SMALL)
    coins = Coins.seeded(seed)
    runs = local_runs(found.roster(setting), run_id="run", coins=coins.derive("identities"))
    for name, role in registry.simulate_roles(found, runs, setting, vectors, coins).items():
        again = replay(role, first.transcript.deliveries[name])
        assert isinstance(again.now, Done)
        assert again.sends == [(entry.to, entry.frame) for entry in first.transcript.entries if entry.sender == name]
        assert tuple(again.opened) == first.opened[name]


Tables = Callable[[str], tuple[Layout, CodedRows]]


@pytest.fixture(scope="module")
def tables(dataset: Callable[[str], Path]) -> Tables:
    cache: dict[str, tuple[Layout, CodedRows]] = {}

    def load(name: str) -> tuple[Layout, CodedRows]:
        if name not in cache:
            frame = pd.read_csv(dataset(name), keep_default_na=False, skipinitialspace=True)
            target = frame.columns[-1]
            codebook = Codebook.from_frame(frame, target=target, max_rows=10**6)
            block = encode({column: frame[column] for column in codebook.names}, codebook, training=True, labels=frame[target])
            cache[name] = (Layout(codebook), block)
        return cache[name]

    return load


def part_of(block: CodedRows, rows: slice) -> CodedRows:
    assert block.labels is not None
    labels = block.labels[rows]
    return CodedRows(labels, {name: column[rows] for name, column in block.columns.items()}, len(labels))


def splits() -> list[Any]:
    """Every protocol, table and number of parties; seconds of big-integer work go to the long form."""
    return [
        pytest.param(protocol, table, parties, marks=[pytest.mark.slow] if heavy else [])
        for protocol in READY
        for table in ("iris", "car", "adult")
        for parties in (3, 5, 20)
        for heavy in [protocol in ("chain_sum", "oblivious_sum") and (parties == 20 or (table, parties) != ("car", 3))]
    ]


@pytest.mark.parametrize(("protocol", "name", "parties"), splits())
def test_split_tables_give_the_pooled_statistics(protocol: str, name: str, parties: int, tables: Tables) -> None:
    """Whatever the split, with one empty and one one-row party."""
    layout, block = tables(name)
    edges = [0, 0, 1, *np.linspace(1, block.rows, parties - 1).astype(int)[1:].tolist()]
    parts = [part_of(block, slice(low, high)) for low, high in itertools.pairwise(edges)]
    assert [part.rows for part in parts][:2] == [0, 1]
    vectors = {site: count_block(layout, part).words for site, part in zip(names(parties), parts, strict=True)}
    bound = max(layout.bounds)
    options = {"scheme": "joye_libert"} if protocol == "oblivious_sum" and bound > 2**36 else {}
    outcome = run_sum(protocol, vectors, bound=bound, options=options)
    learner = registry.load(protocol).learners(registry.SumSetup(names(parties), layout.word_count, bound=bound))[0]
    assert Statistics.from_words(layout, outcome.outputs[learner].words) == count_block(layout, block)
