"""masked_sum: dropouts anywhere, graphs of neighbours, settings, costs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from nacl import bindings

from blindbayes.crypto import kernels
from blindbayes.crypto.coins import Coins
from blindbayes.errors import ConfigError, PeerLost
from blindbayes.protocols import registry
from blindbayes.protocols.memory import Fault, Vanish
from blindbayes.protocols.secure_sum import graph
from support.masked import SENDS_SHARES, SENDS_VECTOR, degree, masked, require_sum, sparse
from support.sums import cost, names, random_vectors, run_sum


@pytest.fixture
def small_graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sparse graphs of a few parties, which no bound would allow."""
    monkeypatch.setattr(graph, "PRIVACY_BITS", 0)
    graph.plan.cache_clear()
    yield
    graph.plan.cache_clear()


# -- dropouts -------------------------------------------------------------------------------------------------------------


def test_where_a_contributor_can_vanish() -> None:
    _, outcome = masked(3, 2, [])
    assert {cost.effects for name, cost in outcome.cost.parties.items() if name != "server"} == {11}


@pytest.mark.parametrize(
    ("parties", "quorum", "pairs"),
    [(3, 2, None), (4, 3, None), (5, 4, None), (5, 3, 2), pytest.param(5, 3, None, marks=pytest.mark.slow)],
)
def test_within_tolerance_any_party_may_vanish_anywhere(parties: int, quorum: int, pairs: int | None) -> None:
    """Exhaustive on the complete graph: every set of tolerated size, every combination of moments."""
    sites = names(parties)
    for lost in list(itertools.combinations(sites, parties - quorum))[:pairs]:
        for moments in itertools.product(range(11), repeat=len(lost)):
            vectors, outcome = masked(parties, quorum, [Vanish(*pair) for pair in zip(lost, moments, strict=True)])
            early = {name for name, moment in zip(lost, moments, strict=True) if moment <= SENDS_VECTOR}
            require_sum(vectors, outcome, set(sites) - early)
            assert set(outcome.outputs) == {*sites, "server"} - set(lost)


@pytest.mark.parametrize(("parties", "quorum"), [(3, 3), (3, 2), pytest.param(4, 3, marks=pytest.mark.slow)])
def test_past_tolerance_the_run_ends_cleanly(parties: int, quorum: int) -> None:
    """One more than tolerated, each before its shares are given: an error that names one of them, nothing opened."""
    for lost in itertools.combinations(names(parties), parties - quorum + 1):
        for moments in itertools.product(range(SENDS_SHARES + 1), repeat=len(lost)):
            _, outcome = masked(parties, quorum, [Vanish(*pair) for pair in zip(lost, moments, strict=True)])
            assert isinstance(outcome.error, PeerLost)
            assert outcome.error.party in lost
            assert set(outcome.opened.values()) == {()}


def test_a_lost_server_is_named() -> None:
    effects = masked(3, 2, [])[1].cost.parties["server"].effects
    for before in range(effects):
        _, outcome = masked(3, 2, [Vanish("server", before)])
        if outcome.error is None:
            assert "server" not in outcome.outputs
        else:
            assert isinstance(outcome.error, PeerLost)
            assert outcome.error.party == "server"
        opened = [name for name, labels in outcome.opened.items() if labels]
        assert before > effects - 4 or opened == []


@pytest.mark.parametrize("seed", range(3))
def test_larger_groups_lose_random_parties_at_random_moments(seed: int) -> None:
    check_sampled(24, 17, None, seed)


def check_sampled(parties: int, quorum: int, neighbours: int | None, seed: int) -> None:
    coins = Coins.seeded(bytes(31) + bytes([seed]))
    sites = list(names(parties))
    coins.shuffle(sites)
    lost = {name: coins.below(11) for name in sites[: parties - quorum]}
    faults: list[Fault] = [Vanish(name, moment) for name, moment in lost.items()]
    with degree(neighbours):
        vectors, outcome = masked(parties, quorum, faults, run_id=f"run {seed}")
    require_sum(vectors, outcome, set(vectors) - {name for name, moment in lost.items() if moment <= SENDS_VECTOR})


@pytest.mark.parametrize("seed", range(2))
def test_sparse_graphs_lose_random_parties(seed: int) -> None:
    layout = graph.plan(120, 112, 0.1)
    assert not layout.complete
    assert layout.neighbours < 60
    assert layout.completion_failure < 2**-20
    assert layout.privacy_failure < 2**-40
    check_sampled(120, 112, None, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
def test_sparse_graphs_lose_random_parties_often(seed: int) -> None:
    check_sampled(300, 280, None, seed)


@pytest.mark.usefixtures("small_graphs")
def test_a_sparse_graph_does_not_tolerate_every_set() -> None:
    """A whole neighbourhood gone, within the global quorum: a clean end, nothing opened."""
    sites = names(40)
    layout = sparse(40, 30, 0.0, 8)
    victims = graph.neighbours_of("0" * 64, "run", 40, layout, 7)
    assert len(victims) == 8
    faults: list[Fault] = [Vanish(sites[index], 0) for index in victims]
    with degree(8):
        _, outcome = masked(40, 30, faults, corrupt=0.0)
    assert isinstance(outcome.error, PeerLost)
    assert outcome.error.party in {sites[index] for index in victims}
    assert set(outcome.opened.values()) == {()}


@pytest.mark.usefixtures("small_graphs")
def test_the_last_holder_of_a_starved_neighbourhood_is_named() -> None:
    """A neighbourhood just at its threshold loses its own centre after the vector: within the global quorum, past the local."""
    sites = names(40)
    layout = sparse(40, 30, 0.0, 8)
    near = graph.neighbours_of("0" * 64, "run", 40, layout, 7)
    early = near[: 9 - layout.threshold]
    faults: list[Fault] = [Vanish(sites[index], 0) for index in early]
    with degree(8):
        _, fine = masked(40, 30, faults, corrupt=0.0)
        _, outcome = masked(40, 30, [*faults, Vanish("site7", SENDS_VECTOR + 1)], corrupt=0.0)
    assert fine.error is None
    assert isinstance(outcome.error, PeerLost)
    assert "site7" in str(outcome.error)
    assert set(outcome.opened.values()) == {()}


def test_the_failure_bounds_hold_in_simulation() -> None:
    """Bounds large enough to measure: the observed frequencies stay below them (alpha 1e-6) and the bound is not idle."""
    parties, neighbours, threshold, lost = 60, 10, 6, 8
    bound = graph.failures(parties, neighbours, threshold, 0, lost, malicious=True)[1]
    assert 0.05 < bound < 1
    layout = graph.MaskGraph(neighbours, threshold, False, 0, 0)
    rng = np.random.default_rng(11)
    trials, starved = 2000, 0
    for trial in range(trials):
        gone = set(rng.choice(parties, lost, replace=False).tolist())
        around = (graph.neighbours_of("s", str(trial % 40), parties, layout, index) for index in range(parties))
        starved += any(neighbours + 1 - len(gone & set(near)) < threshold for near in around)
    assert starved / trials <= bound + 4.75 * np.sqrt(bound * (1 - bound) / trials)
    assert starved > 0


# -- the graph -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_graphs")
def test_neighbours_are_mutual_and_as_many_as_planned() -> None:
    for layout in (graph.plan(10, 8, 0.1), graph.plan(100, 90, 0.1), sparse(30, 20, 0.1, 6)):
        parties = 10 if layout.complete else (100 if layout.neighbours > 6 else 30)
        around = [graph.neighbours_of("study", "run", parties, layout, index) for index in range(parties)]
        for index, near in enumerate(around):
            assert len(near) == layout.neighbours
            assert index not in near
            assert list(near) == sorted(set(near))
            assert all(index in around[other] for other in near)
    layout = graph.plan(100, 90, 0.1)
    assert graph.neighbours_of("study", "run", 100, layout, 0) != graph.neighbours_of("study", "other", 100, layout, 0)


def test_tails_are_those_of_the_hypergeometric_law() -> None:
    from scipy.stats import hypergeom

    for population, marked, draws, least in [(99, 10, 28, 5), (999, 100, 66, 31), (9, 9, 3, 2), (9, 0, 3, 1), (50, 25, 10, 0)]:
        expected = hypergeom.sf(least - 1, population, marked, draws)
        assert np.exp(graph._log_tail(population, marked, draws, least)) == pytest.approx(expected, rel=1e-9)


def test_the_planned_sizes_are_those_of_the_spec() -> None:
    sizes = [graph.plan(*size, 0.1).neighbours for size in [(1000, 950), (10_000, 9500), (1000, 900), (10_000, 9000)]]
    assert sizes == [66, 80, 100, 122]


def test_settings_that_cannot_work_are_refused() -> None:
    vectors = random_vectors(names(4), 1)
    for how in ({"quorum": 2}, {"options": {"neighbours": 8}}, {"corrupt": 1.0}):
        with pytest.raises(ConfigError):
            run_sum("masked_sum", vectors, **how)
    with pytest.raises(ConfigError):
        graph.plan(70_000, 60_000, 0.1)
    with pytest.raises(ConfigError, match="too many neighbours"):
        graph.plan(10_000, 6000, 0.2)
    with pytest.raises(ConfigError):
        run_sum("masked_sum", random_vectors(names(1), 1))


def test_without_publication_only_the_server_learns() -> None:
    _, outcome = masked(4, 3, [], options={"publish": False})
    assert outcome.opened == {"server": ("sum",), **dict.fromkeys(names(4), ())}
    assert (outcome.cost.rounds, outcome.cost.messages) == (9, 36)
    assert [outcome.outputs[name] for name in names(4)] == [None] * 4


@pytest.mark.parametrize(("parties", "neighbours"), [(5, None), (12, None), (14, 6)])
@pytest.mark.usefixtures("small_graphs")
def test_bytes_and_public_key_operations_are_those_of_the_spec(
    parties: int, neighbours: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: Counter[str] = Counter()

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            done[name] += 1
            return real(*args, **named)

        return call

    monkeypatch.setattr(bindings, "crypto_scalarmult", counted("agreements", bindings.crypto_scalarmult))
    monkeypatch.setattr(bindings, "crypto_sign_open", counted("verifications", bindings.crypto_sign_open))
    monkeypatch.setattr(bindings, "crypto_sign", counted("signatures", bindings.crypto_sign))
    with kernels.using("off"), degree(neighbours):  # kernels agree with many at once
        _, outcome = masked(parties, None, [], corrupt=0.0)
    spec, k = registry.spec("masked_sum"), neighbours or parties - 1
    sent = outcome.cost.parties["site0"].sent_bytes
    assert 0 < sent - cost(spec, "payload_up", parties, 3, k=k) < 290  # framing: five kinds, their field names and lengths
    assert done["agreements"] == parties * cost(spec, "agreements", parties, 3, k=k)
    assert done["verifications"] == parties * cost(spec, "verifications", parties, 3, k=k) + parties  # the server's n
    assert done["signatures"] == parties * cost(spec, "signatures", parties, 3, k=k) + 1  # the server's one
