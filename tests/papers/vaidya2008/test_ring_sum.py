"""ring_sum: the rings, the exact law of what a coalition learns, and its errors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from blindbayes.errors import ConfigError, PeerLost, PeerProtocolError
from blindbayes.protocols import registry
from blindbayes.protocols.core import Role, Run
from blindbayes.protocols.memory import Drop, Replace, Vanish, local_runs, run_in_memory
from blindbayes.wire.transcript import Delivery, Keep
from blindbayes_papers.vaidya2008.ring_sum import cycles, roles
from blindbayes_papers.vaidya2008.ring_sum.messages import PartialPassed
from support.sums import names, pooled, random_vectors, run_sum
from support.views import Meter, Tape, coalitions, distinguished, every_view


def edges_of(parties: int, rings: int) -> list[frozenset[int]]:
    found = []
    for number in range(rings):
        order = cycles.ring(parties, number)
        found += [frozenset(pair) for pair in zip(order, order[1:] + order[:1], strict=True)]
    return found


@pytest.mark.parametrize("parties", range(3, 60))
def test_rings_visit_everybody_and_share_no_edge(parties: int) -> None:
    most = cycles.max_rings(parties)
    for number in range(most):
        order = cycles.ring(parties, number)
        assert sorted(order) == list(range(parties))
        assert order[0] == parties - 1
    edges = edges_of(parties, most)
    assert len(set(edges)) == len(edges) == parties * most
    with pytest.raises(ValueError):
        cycles.ring(parties, most)


def connectivity(parties: int, edges: Sequence[frozenset[int]]) -> int:
    """Vertex connectivity by maximum flow between all pairs that are not adjacent (Menger)."""
    adjacent = set(edges)
    source, target, capacity = [], [], []
    for vertex in range(parties):
        source.append(vertex)
        target.append(parties + vertex)  # passing through a vertex costs 1
        capacity.append(1)
    for edge in edges:
        one, other = sorted(edge)
        source += [parties + one, parties + other]
        target += [other, one]
        capacity += [parties, parties]
    network = csr_array((np.array(capacity, np.int32), (source, target)), shape=(2 * parties, 2 * parties))
    best = parties - 1
    for one, other in itertools.combinations(range(parties), 2):
        if frozenset((one, other)) not in adjacent:
            best = min(best, int(maximum_flow(network, parties + one, other).flow_value))
    return best


@pytest.mark.parametrize("parties", range(3, 13))
def test_it_takes_twice_the_rings_to_cut_the_parties(parties: int) -> None:
    for rings in range(1, cycles.max_rings(parties) + 1):
        assert connectivity(parties, edges_of(parties, rings)) == min(2 * rings, parties - 1)


@pytest.mark.slow
@pytest.mark.parametrize("parties", range(13, 25))
def test_it_takes_twice_the_rings_to_cut_more_parties(parties: int) -> None:
    for rings in range(1, cycles.max_rings(parties) + 1):
        assert connectivity(parties, edges_of(parties, rings)) == min(2 * rings, parties - 1)


@pytest.mark.parametrize("parties", [3, 4, 5, 8, 9])
def test_every_number_of_rings_gives_the_sum(parties: int) -> None:
    vectors = random_vectors(names(parties), 5)
    for rings in range(1, cycles.max_rings(parties) + 1):
        outcome = run_sum("ring_sum", vectors, options={"rings": rings})
        assert (outcome.cost.rounds, outcome.cost.messages) == (parties + 1, rings * parties + parties - 1)
        for name in vectors:
            assert np.array_equal(outcome.outputs[name].words, pooled(vectors, tuple(vectors)))


def test_nobody_has_the_same_neighbour_twice() -> None:
    sites = names(9)
    setting = registry.SumSetup(sites, 1)
    for name in sites:
        run = Run("s", "r", sites, name)
        around = [party for place in roles.places(run, setting, 4) for party in (place.before, place.after)]
        assert len(set(around)) == len(around) == 8


# -- the exact law --------------------------------------------------------------------------------------------------------


def components(parties: Sequence[str], run_id: str, rings: int, coalition: Sequence[str]) -> list[list[str]]:
    """Connected parts of the honest parties on the rings."""
    seats = cycles.seating("0" * 64, run_id, len(parties))
    honest = [name for name in parties if name not in coalition]
    pairs = [[parties[seats[vertex]] for vertex in edge] for edge in edges_of(len(parties), rings)]
    group = {name: {name} for name in honest}
    for one, other in pairs:
        if one in group and other in group and group[one] is not group[other]:
            merged = group[one] | group[other]
            for name in merged:
                group[name] = merged
    return [sorted(part) for part in {frozenset(part) for part in group.values()}]


def sample(parties: int, rings: int, bits: int, role: Any = roles.party) -> list[tuple[dict[str, int], dict[str, Any]]]:
    sites = names(parties)
    setting = registry.SumSetup(sites, 1, options={"rings": rings, "modulus_bits": bits})
    runs = {name: Run("0" * 64, "run", sites, name) for name in sites}

    def start(inputs: dict[str, int], coins: dict[str, Any]) -> dict[str, Role[Any]]:
        return {name: role(runs[name], setting, np.array([inputs[name]], np.uint64), coins[name]) for name in sites}

    def run(inputs: dict[str, int], tapes: dict[str, Tape]) -> dict[str, list[Delivery]]:
        outcome = run_in_memory(start(inputs, tapes), keep=Keep.FRAMES)
        assert all(total.words[0] == sum(inputs.values()) % 2**bits for total in outcome.outputs.values())
        return outcome.transcript.deliveries

    meters = {name: Meter() for name in sites}
    run_in_memory(start(dict.fromkeys(sites, 0), meters))
    return list(every_view(sites, 2**bits, {name: meter.drawn for name, meter in meters.items()}, run))


def check_law(parties: int, rings: int, bits: int) -> int:
    """The views tell a coalition the sums over its components, no less and no more. How many coalitions learn something."""
    sites = names(parties)
    samples = sample(parties, rings, bits)
    learned = 0
    for coalition in coalitions(sites):
        parts = components(sites, "run", rings, coalition)

        def sums(inputs: dict[str, int], parts: list[list[str]] = parts) -> tuple[int, ...]:
            return tuple(sum(inputs[name] for name in part) % 2**bits for part in parts)

        assert distinguished(samples, coalition, sums) == []
        total_only = distinguished(samples, coalition, lambda inputs: sum(inputs.values()) % 2**bits)
        assert bool(total_only) == (len(parts) > 1)
        if total_only:
            learned += 1
            assert len(coalition) >= 2 * rings
    return learned


@pytest.mark.parametrize(
    ("parties", "rings", "bits"), [(3, 1, 2), (4, 1, 1), (5, 1, 1), pytest.param(5, 2, 1, marks=pytest.mark.slow)]
)
def test_a_coalition_learns_the_sums_over_its_components_and_nothing_else(parties: int, rings: int, bits: int) -> None:
    learned = check_law(parties, rings, bits)
    assert (learned > 0) == (parties - 2 >= 2 * rings)


@pytest.mark.slow
@pytest.mark.parametrize(("parties", "rings", "bits"), [(4, 1, 2), (6, 1, 1), (6, 2, 1)])
def test_the_law_holds_for_more_parties(parties: int, rings: int, bits: int) -> None:
    check_law(parties, rings, bits)


def test_a_coin_used_twice_is_caught() -> None:
    """Mutants: the starter masks every ring alike; a party's shares repeat one coin; the starter forgets its mask."""

    class Repeating:
        def __init__(self, tape: Any) -> None:
            self.tape, self.first = tape, None

        def words(self, count: int) -> np.ndarray:
            drawn = self.tape.words(count)
            if self.first is None:
                self.first = drawn
            return self.first

    class Forgetful:
        def __init__(self, tape: Any) -> None:
            self.tape = tape

        def words(self, count: int) -> np.ndarray:
            return self.tape.words(count) * np.uint64(0)

    def repeats(run: Run, setting: registry.SumSetup, vector: np.ndarray, coins: Any) -> Role[Any]:
        return roles.party(run, setting, vector, Repeating(coins))

    def forgets(run: Run, setting: registry.SumSetup, vector: np.ndarray, coins: Any) -> Role[Any]:
        return roles.party(run, setting, vector, Forgetful(coins))

    def total(inputs: dict[str, int]) -> int:
        return sum(inputs.values()) % 2

    for mutant, rings, parties in ((repeats, 2, 5), (forgets, 1, 3)):
        samples = sample(parties, rings, 1, mutant)
        singles = [coalition for coalition in coalitions(names(parties)) if len(coalition) < 2 * rings]
        assert any(distinguished(samples, coalition, total) for coalition in singles)


# -- errors -----------------------------------------------------------------------------------------------------------------


def test_settings_that_cannot_work_are_refused() -> None:
    for vectors, how in (
        (random_vectors(names(2), 1), {}),
        (random_vectors(names(5), 1), {"options": {"rings": 3}}),
        (random_vectors(names(5), 1), {"options": {"rings": 0}}),
        (random_vectors(names(5), 1), {"quorum": 4}),
        (random_vectors(names(5), 1), {"options": {"modulus_bits": 65}}),
    ):
        with pytest.raises(ConfigError):
            run_sum("ring_sum", vectors, **how)


def _longer(message: Any) -> Any:
    return PartialPassed(message.ring, np.zeros(9, np.uint64))


def _other_ring(message: Any) -> Any:
    return PartialPassed(message.ring + 1, message.partial_masked)


@pytest.mark.parametrize("index", range(10))
@pytest.mark.parametrize("change", [_longer, _other_ring])
def test_a_bad_partial_sum_names_its_sender(index: int, change: Any) -> None:
    vectors = random_vectors(names(5), 2)
    clean = run_sum("ring_sum", vectors)
    outcome = run_sum("ring_sum", vectors, faults=[Replace(index, change)], check=False)
    assert isinstance(outcome.error, PeerProtocolError)
    assert outcome.error.party == clean.transcript.entries[index].sender
    assert set(outcome.opened.values()) == {()}


def test_a_value_outside_the_ring_of_integers_is_refused() -> None:
    vectors = {name: words % 4 for name, words in random_vectors(names(3), 2).items()}
    bad = Replace(1, lambda message: PartialPassed(0, message.partial_masked + np.uint64(4)))
    outcome = run_sum("ring_sum", vectors, options={"modulus_bits": 2}, faults=[bad], check=False)
    assert isinstance(outcome.error, PeerProtocolError)


@pytest.mark.parametrize("party", names(4))
def test_whoever_vanishes_is_named(party: str) -> None:
    vectors = random_vectors(names(4), 2)
    effects = run_sum("ring_sum", vectors).cost.parties[party].effects
    for before in range(effects):
        outcome = run_sum("ring_sum", vectors, faults=[Vanish(party, before)], check=False)
        if outcome.error is None:  # it vanished after its last send: everybody else has the total
            assert len(outcome.outputs) == 3
        else:
            assert isinstance(outcome.error, PeerLost)
            assert outcome.error.party == party


def test_a_dropped_message_names_its_sender() -> None:
    vectors = random_vectors(names(4), 2)
    clean = run_sum("ring_sum", vectors)
    for entry in clean.transcript.entries:
        outcome = run_sum("ring_sum", vectors, faults=[Drop(entry.index)], check=False)
        assert isinstance(outcome.error, PeerLost)
        assert outcome.error.party == entry.sender


def test_local_runs_need_no_signatures_here() -> None:
    from blindbayes.crypto.coins import Coins

    runs = local_runs(names(3), coins=Coins.seeded(bytes(32)), signed=False)
    assert runs["site0"].signer is None
