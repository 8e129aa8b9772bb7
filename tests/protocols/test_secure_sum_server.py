"""masked_sum against a server that lies about survivors: every lie on a small complete graph, sampled ones on a sparse graph.

The server of these tests names to each contributor whatever set it likes, rightly signed, passes on just the echoes that help
it, and goes on with whoever answers. Colluders give it all shares they hold and echo any set.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from blindbayes.crypto.aead import TAG_BYTES
from blindbayes.crypto.coins import Coins
from blindbayes.errors import ProtocolError
from blindbayes.protocols import registry
from blindbayes.protocols.core import Role, Send, receive_all
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.protocols.secure_sum import graph, keys, messages, server
from blindbayes.wire.transcript import Keep
from support.masked import sparse
from support.sums import SEED, names, random_vectors

Sets = Sequence[frozenset[int]]  # what each contributor is told


def quiet(role: Role[Any]) -> Role[Any]:
    """A contributor whose refusal does not stop the others."""
    try:
        return (yield from role)
    except ProtocolError:
        return None


ANY_TAG = b"any tag of 16 by"


def item(packed: bytes, size: int, order: Sequence[int], index: int) -> bytes:
    """The item for `index`, or whatever has its size where there is none."""
    return packed[size * order.index(index) :][:size] if index in order else ANY_TAG


def lying_server(
    terms: keys.MaskedSumSetup, told: Sets, colluders: frozenset[int], dealers: Sequence[tuple[int, ...]] = ()
) -> Role[frozenset[int]]:
    """Returns who gave shares. `dealers`: whose boxes each is shown, if not all its neighbours'."""
    sites = terms.setting.contributors
    count = len(sites)
    around = [terms.neighbours(index) for index in range(count)]
    dealers = dealers or around
    advertised = yield from receive_all(sites, messages.KeysAdvertised)
    listed = {index: advertised[name] for index, name in enumerate(sites)}
    roster, passing = terms.roster(listed), server.Encapsulated(terms, listed)
    for index, name in enumerate(sites):
        theirs = tuple(advertised[sites[other]] for other in around[index])
        yield Send(name, messages.KeysListed(around[index], theirs, passing.to(index, around[index])))
    dealt = yield from receive_all(sites, messages.SharesDealt)
    for index, name in enumerate(sites):
        boxes = [item(dealt[sites[other]].boxes, keys.BOX_BYTES, around[other], index) for other in dealers[index]]
        yield Send(name, messages.SharesPassedOn(dealers[index], b"".join(boxes)))
    vectors = yield from receive_all(sites, messages.MaskedVectorSent)
    for index, name in enumerate(sites):
        survivors = graph.pack_bits([other in told[index] for other in range(count)])
        yield Send(name, messages.SurvivorsNamed(survivors, roster, terms.sign(b"survivors", roster + survivors)))
    echoed = yield from receive_all(sites, messages.SurvivorsEchoed, quorum=0)
    shown = [[other for other in dealers[index] if other in told[index]] for index in range(count)]
    for name in echoed:
        index = sites.index(name)
        helpful = [other for other in shown[index] if sites[other] in echoed]
        helpful = [other for other in helpful if other in colluders or told[other] == told[index]]
        tags = [item(echoed[sites[other]].tags, TAG_BYTES, shown[other], index) for other in helpful]
        sparse = () if terms.plan.complete else shown[index]
        masked = [item(vectors[sites[other]].tags, TAG_BYTES, dealers[other], index) for other in sparse]
        yield Send(name, messages.EchoesPassedOn(tuple(helpful), b"".join(tags), b"".join(masked)))
    given = yield from receive_all(tuple(echoed), messages.SharesGiven, quorum=0)
    return frozenset(sites.index(name) for name in given)


def attack(
    parties: int,
    quorum: int,
    told: Sets | Callable[[keys.MaskedSumSetup], tuple[Sets, Sequence[tuple[int, ...]]]],
    colluders: frozenset[int],
    monkeypatch: pytest.MonkeyPatch,
    corrupt: float = 0.1,
    neighbours: int | None = None,
) -> tuple[frozenset[int], keys.MaskedSumSetup]:
    """Who gave shares, if the server names `told`; or what `told` says of a graph: sets, and whose boxes each is shown."""
    sites = names(parties)
    vectors = random_vectors(sites, 1)
    setting = registry.SumSetup(sites, 1, quorum, options={"publish": False}, corrupt=corrupt)
    if neighbours is not None:
        monkeypatch.setattr(graph, "plan", partial(sparse, neighbours=neighbours))
    protocol = registry.load("masked_sum")
    coins = Coins.seeded(SEED)
    runs = local_runs(protocol.roster(setting), coins=coins)
    terms = keys.MaskedSumSetup(runs["server"], setting)
    said, dealers = told(terms) if callable(told) else (told, ())
    honest_echoes = keys.MaskedSumSetup.echoes

    def echoes(self: keys.MaskedSumSetup, pairs: bytes, senders: Sequence[int], shown: bytes) -> np.ndarray:
        found = honest_echoes(self, pairs, senders, shown).copy()
        for at, sender in enumerate(senders):
            if sender in colluders:  # a colluder vouches for whatever its neighbour was told
                found[at] = np.frombuffer(ANY_TAG, np.uint8)
        return found

    monkeypatch.setattr(keys.MaskedSumSetup, "echoes", echoes)
    roles = {name: quiet(role) for name, role in registry.simulate_roles(protocol, runs, setting, vectors, coins).items()}
    roles["server"] = lying_server(terms, said, colluders, dealers)
    outcome = run_in_memory(roles, keep=Keep.COUNTS)
    monkeypatch.undo()
    return outcome.outputs["server"], terms


def shares_won(
    terms: keys.MaskedSumSetup, told: Sets, givers: frozenset[int], colluders: frozenset[int], owner: int
) -> tuple[int, int]:
    """How many shares of `owner`'s seed and of its mask key the server and the colluders hold."""
    holders = {*terms.neighbours(owner), owner}
    honest = (givers & holders) - colluders
    seed = sum(owner in told[giver] for giver in honest)
    return seed + len(holders & colluders), len(honest) - seed + len(holders & colluders)


def allowed(parties: int, quorum: int, index: int) -> list[frozenset[int]]:
    """Every set that a contributor would not refuse at once."""
    others = [other for other in range(parties) if other != index]
    return [frozenset({index, *some}) for size in range(quorum - 1, parties) for some in itertools.combinations(others, size)]


def broken(terms: keys.MaskedSumSetup, told: Sets, givers: frozenset[int], colluders: frozenset[int]) -> Iterator[str]:
    """Which of the SPEC's promises to the honest do not hold."""
    threshold = terms.plan.threshold
    for owner in range(len(told)):
        if owner in colluders:
            continue
        seed, mask = shares_won(terms, told, givers, colluders, owner)
        if seed >= threshold and mask >= threshold:
            yield "both secrets of one party"
        if owner in givers and mask >= threshold:
            yield "the mask key of a party that answered"
    if terms.plan.complete and len({told[giver] for giver in givers - colluders}) > 1:
        yield "two sets"


@pytest.mark.parametrize("colluders", [frozenset(), frozenset({3})])
def test_no_lie_about_survivors_works_on_the_complete_graph(colluders: frozenset[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Four contributors, quorum 3: every choice of sets for every honest one; fewer than 2q - n = 2 colluders."""
    answered = 0
    honest = [index for index in range(4) if index not in colluders]
    for choice in itertools.product(*(allowed(4, 3, index) for index in honest)):
        told = list(choice) + [frozenset(range(4))] * len(colluders)
        givers, terms = attack(4, 3, told, colluders, monkeypatch)
        assert list(broken(terms, told, givers, colluders)) == []
        answered += bool(givers - colluders)
    assert answered > 0  # the honest run is among them


def test_one_colluder_more_breaks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is tight: with 2q - n = 2 colluders a lie wins both secrets of one party."""
    colluders = frozenset({2, 3})
    told = [frozenset({0, 2, 3}), frozenset({1, 2, 3}), frozenset(range(4)), frozenset(range(4))]
    givers, terms = attack(4, 3, told, colluders, monkeypatch)
    assert set(broken(terms, told, givers, colluders)) >= {"both secrets of one party", "two sets"}


def test_sampled_lies_do_not_work_on_a_sparse_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen contributors with 6 neighbours: two stories told to two arcs of the roster, up to two declared lost in each."""
    graph.plan.cache_clear()
    parties, quorum = 16, 14
    coins = Coins.seeded(SEED).derive("lies")
    answered = 0
    for trial in range(25):
        colluders = frozenset({coins.below(parties)})
        stories = []
        for _ in range(2):
            gone = set()
            while len(gone) < coins.below(parties - quorum + 1):
                gone.add(coins.below(parties))
            stories.append(frozenset(range(parties)) - gone)
        cut = coins.below(parties)
        told = [stories[(index - cut) % parties < parties // 2] | {index} for index in range(parties)]
        monkeypatch.setattr(graph, "PRIVACY_BITS", 2)  # no bound would allow so small a graph
        givers, terms = attack(parties, quorum, told, colluders, monkeypatch, neighbours=6)
        assert not terms.plan.complete
        assert 2 * terms.plan.threshold > terms.plan.neighbours + 1 + len(colluders), trial
        assert list(broken(terms, told, givers, colluders)) == []
        answered += bool(givers - colluders)
    assert answered > 0
    graph.plan.cache_clear()


@pytest.mark.parametrize("planted", [False, True])
def test_a_party_that_was_shown_half_of_its_neighbours_is_not_opened_alone(
    planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server passes on to one party the boxes of half its neighbours, names it and them a set without the other half, and
    everybody else a set without the first half: these recover the masks that are on its vector, those give its seed. Planted:
    nobody looks whether its own mask is on the vector."""
    parties, victim = 200, 7

    def halves(terms: keys.MaskedSumSetup) -> tuple[Sets, list[tuple[int, ...]]]:
        around = [terms.neighbours(index) for index in range(parties)]
        order, place = graph._ring(terms.run.study, terms.run.run_id, parties)
        half = terms.plan.neighbours // 2
        offsets = [-half, half, *[at for at in range(1 - half, half) if at][: half - 2]]
        shown = frozenset(order[(place[victim] + at) % parties] for at in offsets)
        everybody, hidden = frozenset(range(parties)), frozenset(around[victim]) - shown
        told = [everybody - hidden if index == victim or index in shown else everybody - shown for index in range(parties)]
        return told, [tuple(other for other in each if index != victim or other in shown) for index, each in enumerate(around)]

    if planted:
        anything = lambda terms, given: np.tile(np.frombuffer(ANY_TAG, np.uint8), (len(given) // 32, 1))  # noqa: E731
        monkeypatch.setattr(keys.MaskedSumSetup, "masked", anything)
    givers, terms = attack(parties, 180, halves, frozenset(), monkeypatch, corrupt=0.0)
    seed, _ = shares_won(terms, halves(terms)[0], givers, frozenset(), victim)
    assert (seed >= terms.plan.threshold) == planted
