"""masked_sum: dropouts anywhere, lies at every step, what the server can tell apart, the entropy of masks."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from nacl import bindings

from adversary import planted
from blindbayes import kernels
from blindbayes.errors import ConfigError, IntegrityError, PeerLost, PeerProtocolError, ProtocolError
from blindbayes.primitives.agreement import AgreementKey
from blindbayes.primitives.coins import Coins
from blindbayes.primitives.prg import derive_key, expand
from blindbayes.protocol import pair_keys, registry
from blindbayes.protocol.masked_sum import contributor as contributor_module
from blindbayes.protocol.masked_sum import graph, keys, messages
from blindbayes.protocol.masked_sum import server as server_module
from blindbayes.transport.memory import (
    Drop,
    Duplicate,
    Fault,
    Outcome,
    Replace,
    Swap,
    Tamper,
    Vanish,
    local_runs,
    run_in_memory,
)
from blindbayes.wire.transcript import Keep, SentMessage
from support.sums import SEED, cost, names, pooled, random_vectors, run_sum
from support.views import distinguished

SENDS_VECTOR = 4  # the effect of a contributor that sends its masked vector
SENDS_SHARES = 8  # and the one that sends its shares


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
    vectors, outcome = masked(parties, quorum, faults, options={"neighbours": neighbours}, run_id=f"run {seed}")
    require_sum(vectors, outcome, set(vectors) - {name for name, moment in lost.items() if moment <= SENDS_VECTOR})


@pytest.mark.parametrize("seed", range(2))
def test_sparse_graphs_lose_random_parties(seed: int) -> None:
    layout = graph.plan(120, 112, 0.1, None, True)
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
    layout = graph.plan(40, 30, 0.0, 8, True)
    victims = graph.neighbours_of("0" * 64, "run", 40, layout, 7)
    assert len(victims) == 8
    faults: list[Fault] = [Vanish(sites[index], 0) for index in victims]
    _, outcome = masked(40, 30, faults, options={"neighbours": 8, "corrupt": 0.0})
    assert isinstance(outcome.error, PeerLost)
    assert outcome.error.party in {sites[index] for index in victims}
    assert set(outcome.opened.values()) == {()}


@pytest.mark.usefixtures("small_graphs")
def test_the_last_holder_of_a_starved_neighbourhood_is_named() -> None:
    """A neighbourhood just at its threshold loses its own centre after the vector: within the global quorum, past the local."""
    sites = names(40)
    layout = graph.plan(40, 30, 0.0, 8, True)
    near = graph.neighbours_of("0" * 64, "run", 40, layout, 7)
    early = near[: 9 - layout.threshold]
    faults: list[Fault] = [Vanish(sites[index], 0) for index in early]
    _, fine = masked(40, 30, faults, options={"neighbours": 8, "corrupt": 0.0})
    assert fine.error is None
    _, outcome = masked(40, 30, [*faults, Vanish("site7", SENDS_VECTOR + 1)], options={"neighbours": 8, "corrupt": 0.0})
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
    for layout in (graph.plan(10, 8, 0.1, None, True), graph.plan(100, 90, 0.1, None, True), graph.plan(30, 20, 0.1, 6, True)):
        parties = 10 if layout.complete else (100 if layout.neighbours > 6 else 30)
        around = [graph.neighbours_of("study", "run", parties, layout, index) for index in range(parties)]
        for index, near in enumerate(around):
            assert len(near) == layout.neighbours
            assert index not in near
            assert list(near) == sorted(set(near))
            assert all(index in around[other] for other in near)
    layout = graph.plan(100, 90, 0.1, None, True)
    assert graph.neighbours_of("study", "run", 100, layout, 0) != graph.neighbours_of("study", "other", 100, layout, 0)


def test_tails_are_those_of_the_hypergeometric_law() -> None:
    from scipy.stats import hypergeom

    for population, marked, draws, least in [(99, 10, 28, 5), (999, 100, 66, 31), (9, 9, 3, 2), (9, 0, 3, 1), (50, 25, 10, 0)]:
        expected = hypergeom.sf(least - 1, population, marked, draws)
        assert np.exp(graph._log_tail(population, marked, draws, least)) == pytest.approx(expected, rel=1e-9)


def test_the_planned_sizes_are_those_of_the_spec() -> None:
    sizes = [
        graph.plan(*size, 0.1, None, True).neighbours for size in [(1000, 950), (10_000, 9500), (1000, 900), (10_000, 9000)]
    ]
    assert sizes == [66, 80, 100, 122]


def test_settings_that_cannot_work_are_refused() -> None:
    vectors = random_vectors(names(4), 1)
    for how in ({"quorum": 2}, {"options": {"neighbours": 1}}, {"options": {"corrupt": 1.0}}, {"options": {"neighbours": 0}}):
        with pytest.raises(ConfigError):
            run_sum("masked_sum", vectors, **how)
    with pytest.raises(ConfigError):
        graph.plan(70_000, 60_000, 0.1, None, True)
    with pytest.raises(ConfigError, match="too many neighbours"):
        graph.plan(10_000, 6000, 0.2, None, True)
    with pytest.raises(ConfigError, match="too few"):
        graph.plan(1000, 950, 0.1, 20, True)
    assert graph.plan(1000, 950, 0.1, 40, False).neighbours == 40
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
    with kernels.using("off"):  # they agree with many at once
        _, outcome = masked(parties, None, [], options={"neighbours": neighbours, "corrupt": 0.0})
    spec, k = registry.spec("masked_sum"), neighbours or parties - 1
    sent = outcome.cost.parties["site0"].sent_bytes
    assert 0 < sent - cost(spec, "payload_up", parties, 3, k=k) < 290  # framing: five kinds, their field names and lengths
    assert done["agreements"] == parties * cost(spec, "agreements", parties, 3, k=k)
    assert done["verifications"] == parties * cost(spec, "verifications", parties, 3, k=k) + parties  # the server's n
    assert done["signatures"] == parties * cost(spec, "signatures", parties, 3, k=k) + 1  # the server's one


# -- lies -----------------------------------------------------------------------------------------------------------------

CLEAN_VECTORS, CLEAN = masked(3, 2, [], keep=Keep.FRAMES)
UNSEEN = (messages.MaskedVectorSent, messages.TotalPublished)  # any content is possible: see SPEC, lying contributor and server


def require_clean_end(outcome: Outcome, *parties: str) -> None:
    assert isinstance(outcome.error, ProtocolError)
    assert set(outcome.error.suspects) & set(parties)
    assert set(outcome.opened.values()) == {()}


@pytest.mark.parametrize("entry", CLEAN.transcript.entries, ids=lambda entry: f"{entry.index}-{entry.kind.__name__}")
def test_a_frame_that_is_cut_long_or_of_another_kind_names_its_sender(entry: SentMessage) -> None:
    other = next(each.frame for each in CLEAN.transcript.entries if each.kind is not entry.kind)
    assert other is not None
    for change in (lambda frame: frame[:-1], lambda frame: frame + b"\0", lambda frame: other, lambda frame: b"\1\xc1"):
        _, outcome = masked(3, 2, [Tamper(entry.index, change)])
        assert isinstance(outcome.error, PeerProtocolError)
        assert outcome.error.party == entry.sender
        if entry.kind is not messages.TotalPublished:
            assert set(outcome.opened.values()) == {()}


@pytest.mark.parametrize("entry", CLEAN.transcript.entries, ids=lambda entry: f"{entry.index}-{entry.kind.__name__}")
def test_a_flipped_bit_is_caught(entry: SentMessage) -> None:
    """In every message whose content the protocol itself can check. (On the wire the envelope catches all of them.)"""
    if entry.kind in UNSEEN:
        return
    for place in range(0, 8 * entry.size, 97):

        def flip(frame: bytes, place: int = place) -> bytes:
            changed = bytearray(frame)
            changed[place // 8] ^= 1 << place % 8
            return bytes(changed)

        vectors, outcome = masked(3, 2, [Tamper(entry.index, flip)])
        if outcome.error is None:  # a share that was not needed, or the secret of a mask with somebody who was not lost
            assert entry.kind in (messages.SharesGiven, messages.SharesDealt)
            require_sum(vectors, outcome, set(vectors))
        else:
            require_clean_end(outcome, *vectors, "server")


@pytest.mark.parametrize("entry", CLEAN.transcript.entries, ids=lambda entry: f"{entry.index}-{entry.kind.__name__}")
def test_a_message_from_another_run_is_caught(entry: SentMessage) -> None:
    if entry.kind in UNSEEN:
        return
    old = masked(3, 2, [], run_id="an earlier run", seed=bytes(32), keep=Keep.FRAMES)[1].transcript.entries[entry.index]
    assert old.kind is entry.kind
    assert old.frame is not None
    vectors, outcome = masked(3, 2, [Tamper(entry.index, lambda frame: old.frame or b"")])
    if outcome.error is None:
        assert entry.kind is messages.SharesGiven
        require_sum(vectors, outcome, set(vectors))
    else:
        require_clean_end(outcome, *vectors, "server")


@pytest.mark.parametrize("kind", [Drop, Duplicate, Swap])
def test_a_message_lost_doubled_or_late(kind: Any) -> None:
    for entry in CLEAN.transcript.entries:
        vectors, outcome = masked(3, 2, [kind(entry.index)])
        if outcome.error is None:
            included = set(outcome.outputs["server"].included)
            require_sum(vectors, outcome, included)
            assert len(included) >= 2
        else:
            assert isinstance(outcome.error, PeerLost | PeerProtocolError)
            assert outcome.error.party in (entry.sender, entry.to)


def changed(**fields: Any) -> Callable[[Any], Any]:
    return lambda message: msgspec.structs.replace(
        message, **{name: make(getattr(message, name)) for name, make in fields.items()}
    )


WORDS = np.zeros(4, np.uint64)
BY_CONTRIBUTOR = [
    (messages.KeysAdvertised, changed(public=lambda old: old[:-1]), PeerProtocolError),
    (messages.KeysAdvertised, changed(public=lambda old: bytes(32)), PeerProtocolError),
    (messages.KeysAdvertised, changed(signature=lambda old: bytes(64)), IntegrityError),
    (messages.KeysAdvertised, changed(signature=lambda old: b""), IntegrityError),
    (messages.SharesDealt, changed(boxes=lambda old: old[:-1]), PeerProtocolError),
    (messages.SharesDealt, changed(boxes=lambda old: bytes(len(old))), IntegrityError),
    (messages.SharesDealt, changed(boxes=lambda old: old[88:] + old[:88]), IntegrityError),
    (messages.MaskedVectorSent, changed(vector_masked=lambda old: WORDS), PeerProtocolError),
    (messages.MaskedVectorSent, changed(vector_masked=lambda old: old[:-1]), PeerProtocolError),
    (messages.SurvivorsEchoed, changed(tags=lambda old: old + b"x"), PeerProtocolError),
    (messages.SharesGiven, changed(shares=lambda old: old[36:]), PeerProtocolError),
]


@pytest.mark.parametrize(("kind", "lie", "error"), BY_CONTRIBUTOR)
def test_a_lying_contributor_is_named(kind: Any, lie: Any, error: type[ProtocolError]) -> None:
    _, outcome = masked(3, 2, [Replace(lambda entry: entry.kind is kind and entry.sender == "site1", lie)])
    assert isinstance(outcome.error, error)
    require_clean_end(outcome, "site1")


@pytest.mark.parametrize("liar", [0, 1, 2])
def test_whoever_gives_a_wrong_share_is_a_suspect_beside_its_owner_only_if_there_is_a_spare_one(liar: int) -> None:
    """The owner may have dealt it wrong: naming the giver alone would let an owner accuse an honest holder."""

    def spoil(message: Any) -> Any:
        shares = bytearray(message.shares)
        for at in range(0, len(shares), keys.SHARE_BYTES):
            shares[at] ^= 1
        return msgspec.structs.replace(message, shares=bytes(shares))

    fault = Replace(lambda entry: entry.kind is messages.SharesGiven and entry.sender == f"site{liar}", spoil)
    for lost in ([], [Vanish("site4", SENDS_VECTOR)]):
        _, outcome = masked(5, 3, [fault, *lost])
        assert isinstance(outcome.error, IntegrityError)
        assert len(outcome.error.suspects) <= 2
        require_clean_end(outcome, f"site{liar}")


BY_SERVER = [
    (messages.KeysListed, changed(neighbours=lambda old: (0, 0)), PeerProtocolError),
    (messages.KeysListed, changed(neighbours=lambda old: (1, 0)), PeerProtocolError),
    (messages.KeysListed, changed(neighbours=lambda old: (0, 9)), PeerProtocolError),
    (messages.KeysListed, changed(advertised=lambda old: old[:1]), PeerProtocolError),
    (messages.KeysListed, changed(advertised=lambda old: old[::-1]), IntegrityError),
    (messages.SharesPassedOn, changed(boxes=lambda old: old[:-1]), PeerProtocolError),
    (messages.SharesPassedOn, changed(neighbours=lambda old: old[:1]), PeerProtocolError),
    (messages.SurvivorsNamed, changed(survivors=lambda old: b"\3"), IntegrityError),
    (messages.SurvivorsNamed, changed(signature=lambda old: bytes(64)), IntegrityError),
    (messages.EchoesPassedOn, changed(tags=lambda old: bytes(len(old))), IntegrityError),
    (messages.EchoesPassedOn, changed(neighbours=lambda old: (), tags=lambda old: b""), PeerProtocolError),
    (messages.SurvivorsNamed, changed(roster=lambda old: bytes(32)), PeerProtocolError),
    (messages.EchoesPassedOn, changed(neighbours=lambda old: (2, 7)), PeerProtocolError),
]


@pytest.mark.parametrize(("kind", "lie", "error"), BY_SERVER)
def test_a_lying_server_is_caught(kind: Any, lie: Any, error: type[ProtocolError]) -> None:
    _, outcome = masked(3, 2, [Replace(lambda entry: entry.kind is kind and entry.to == "site2", lie)])
    assert outcome.failed == "site2" or kind is messages.KeysListed  # whoever opens a box first that was sealed with other keys
    assert isinstance(outcome.error, error)
    require_clean_end(outcome, "server")


def start(parties: int, quorum: int) -> tuple[dict[str, Any], keys.MaskedSumSetup, dict[str, np.ndarray]]:
    """The roles of a run, and the server's terms, with which a test can sign as the server."""
    vectors = random_vectors(names(parties), 3)
    setting = registry.SumSetup(tuple(vectors), 3, quorum)
    protocol = registry.load("masked_sum")
    coins = Coins.seeded(SEED)
    runs = local_runs(protocol.roster(setting), coins=coins)
    return (
        registry.simulate_roles(protocol, runs, setting, vectors, coins),
        keys.MaskedSumSetup(runs["server"], setting),
        vectors,
    )


def renamed(message: Any, terms: keys.MaskedSumSetup, flags: bytes) -> messages.SurvivorsNamed:
    """Other survivors, rightly signed by the server."""
    return messages.SurvivorsNamed(flags, message.roster, terms.sign(b"survivors", message.roster + flags))


@pytest.mark.parametrize("dropped", [{2}, {3}, {2, 3}, {0, 3}])
def test_a_server_that_names_different_survivors_to_different_parties_is_caught(dropped: set[int]) -> None:
    """Rightly signed, so only the echoes can tell."""
    for told in range(5):
        if told in dropped:
            continue
        roles, terms, _ = start(5, 3)
        flags = graph.pack_bits([index not in dropped for index in range(5)])
        here = f"site{told}"
        fault = Replace(
            lambda entry, here=here: entry.kind is messages.SurvivorsNamed and entry.to == here,
            lambda message, terms=terms, flags=flags: renamed(message, terms, flags),
        )
        outcome = run_in_memory(roles, faults=[fault], check=False)
        assert isinstance(outcome.error, IntegrityError | PeerProtocolError)
        assert set(outcome.opened.values()) == {()}
        assert not any(
            entry.kind is messages.SharesGiven and entry.sender == f"site{told}" for entry in outcome.transcript.entries
        )


@pytest.mark.parametrize(
    "flags", [b"\x03", b"\x1e", b"\xff", b"\x1f\x00", b""], ids=["few", "not me", "padding", "long", "empty"]
)
def test_survivors_that_do_not_fit_are_refused(flags: bytes) -> None:
    roles, terms, _ = start(5, 3)
    fault = Replace(
        lambda entry: entry.kind is messages.SurvivorsNamed and entry.to == "site0",
        lambda message: renamed(message, terms, flags),
    )
    outcome = run_in_memory(roles, faults=[fault], check=False)
    assert isinstance(outcome.error, PeerProtocolError)
    assert (outcome.failed, outcome.error.party) == ("site0", "server")
    assert set(outcome.opened.values()) == {()}


def test_keys_that_the_server_made_up_are_refused() -> None:
    mine = AgreementKey.generate(Coins.seeded(bytes(32))).public

    def swap(message: Any) -> Any:
        forged = msgspec.structs.replace(message.advertised[0], public=mine)
        return msgspec.structs.replace(message, advertised=(forged, *message.advertised[1:]))

    _, outcome = masked(3, 2, [Replace(lambda entry: entry.kind is messages.KeysListed and entry.to == "site1", swap)])
    assert isinstance(outcome.error, IntegrityError)
    require_clean_end(outcome, "server")


def test_keys_are_fresh_in_every_run() -> None:
    def advertised(seed: bytes) -> set[bytes]:
        _, outcome = masked(3, 2, [], seed=seed, keep=Keep.FRAMES)
        return {entry.frame or b"" for entry in outcome.transcript.entries if entry.kind is messages.KeysAdvertised}

    assert not advertised(bytes(32)) & advertised(bytes(31) + b"1")


def test_a_share_of_only_one_secret_per_dealer_is_ever_given() -> None:
    """Whatever vanishes, nobody's answer holds more than one share per dealer: counted in bytes."""
    for moment in range(11):
        _, outcome = masked(4, 3, [Vanish("site1", moment)], keep=Keep.FRAMES)
        for entry in outcome.transcript.entries:
            if entry.kind is messages.SharesGiven:
                dealers = 3 if moment <= 2 else 4
                assert entry.size - keys.SHARE_BYTES * dealers < 40


# -- views ------------------------------------------------------------------------------------------------------------------


class IdealMasks:
    """Every mask a uniform bit of its own, chosen by the test; everything else is the shipped code. Vectors modulo 2.

    The stream cipher, key agreement and sealing are idealised: a party's view holds the masks whose keys it used, and the
    frames it was handed.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.table: dict[bytes, int] = {}
        self.used: dict[str, list[bytes]] = {}
        self.calls = 0
        self.sent: dict[str, int] = {}
        patch.setattr(contributor_module, "add_masks", self.by_contributor)
        patch.setattr(server_module, "add_masks", self.by_server)

    def begin(self, bits: tuple[int, ...] | None) -> None:
        if bits is not None:
            self.table = dict(zip(self.table, bits, strict=True))
        self.used, self.calls = {}, 0

    def total(self, party: str, vector: np.ndarray, found: list[bytes]) -> np.ndarray:
        self.used[party] = found
        for key in found:
            self.table.setdefault(key, 0)
        result = (vector + np.uint64(sum(self.table[key] for key in found))) & np.uint64(1)
        self.sent[party] = int(result[0])
        return result

    def by_contributor(self, vector: np.ndarray, plus: list[bytes], minus: list[bytes]) -> np.ndarray:
        party = self.order[self.calls]
        self.calls += 1
        return self.total(party, vector, plus[1 - self.own :] + minus)  # its own mask comes first

    def by_server(self, vector: np.ndarray, plus: list[bytes], minus: list[bytes]) -> np.ndarray:
        return self.total("server", vector, [key for key in plus + minus if self.own or key in self.table])

    order: list[str]
    own = 1


def ideal_samples(
    patch: pytest.MonkeyPatch, faults: list[Fault], order: list[str], seen_late: str | None = None
) -> list[tuple[dict[str, int], dict[str, Any]]]:
    masks = IdealMasks(patch)
    masks.order = order
    sites = names(3)

    def run(inputs: dict[str, int], bits: tuple[int, ...] | None) -> dict[str, tuple[Any, ...]]:
        masks.begin(bits)
        vectors = {name: np.array([inputs[name]], np.uint64) for name in sites}
        outcome = run_sum("masked_sum", vectors, quorum=2, faults=faults, keep=Keep.FRAMES)
        included = outcome.outputs["server"].included
        assert int(outcome.outputs["server"].words[0]) == sum(inputs[name] for name in included) % 2
        views: dict[str, tuple[Any, ...]] = {
            name: (tuple(masks.table[key] for key in masks.used.get(name, [])), tuple(outcome.transcript.deliveries[name]))
            for name in (*sites, "server")
        }
        if seen_late:
            views["server"] = (*views["server"], masks.sent[seen_late])
        return views

    run(dict.fromkeys(sites, 0), None)
    samples = []
    for values in itertools.product((0, 1), repeat=3):
        inputs = dict(zip(sites, values, strict=True))
        for bits in itertools.product((0, 1), repeat=len(masks.table)):
            samples.append((inputs, run(inputs, bits)))
    return samples


SITES = list(names(3))
PATTERNS: dict[str, tuple[list[Fault], list[str], set[str]]] = {
    "nobody lost": ([], SITES, set(SITES)),
    "lost before its vector": ([Vanish("site1", SENDS_VECTOR)], SITES, {"site0", "site2"}),
    "lost after its vector": ([Vanish("site1", SENDS_VECTOR + 1)], SITES, set(SITES)),
}


@pytest.mark.parametrize(
    "pattern", ["nobody lost", "lost before its vector", pytest.param("lost after its vector", marks=pytest.mark.slow)]
)
def test_the_server_and_a_colluder_learn_the_sum_of_the_others_only(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every input, every mask: exact equality of the views' distributions for equal sums over the honest included."""
    faults, order, included = PATTERNS[pattern]
    samples = ideal_samples(monkeypatch, faults, order)
    for coalition in (("server",), *((name, "server") for name in SITES)):
        members = [name for name in coalition if name != "server"]

        def honest_sum(inputs: dict[str, int], members: list[str] = members) -> tuple[int, ...]:
            return (sum(inputs[name] for name in included if name not in members) % 2, *(inputs[name] for name in members))

        known = [({**inputs, "server": 0}, views) for inputs, views in samples]
        assert distinguished(known, coalition, honest_sum) == []


def test_one_mask_for_all_pairs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.one_seed_for_all(monkeypatch)
    samples = ideal_samples(monkeypatch, [], SITES)
    known = [({**inputs, "server": 0}, views) for inputs, views in samples]
    assert distinguished(known, ("server",), lambda inputs: sum(inputs.values()) % 2)


@pytest.mark.parametrize("own_mask", [True, False])
def test_a_vector_that_comes_late_stays_hidden_by_its_own_mask(own_mask: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """site1's vector arrives after its pair masks were recovered. Without a mask of its own the server reads it."""
    if not own_mask:
        monkeypatch.setattr(IdealMasks, "own", 0)
    late = Drop(lambda entry: entry.kind is messages.MaskedVectorSent and entry.sender == "site1")
    samples = ideal_samples(monkeypatch, [late], SITES, seen_late="site1")
    known = [({**inputs, "server": 0}, views) for inputs, views in samples]
    found = distinguished(known, ("server",), lambda inputs: (inputs["site0"] + inputs["site2"]) % 2)
    assert bool(found) != own_mask


@pytest.mark.parametrize("lost", [None, "site1"])
def test_a_simulator_that_knows_only_the_sum_makes_the_same_messages(lost: str | None) -> None:
    """With the same coins, other inputs of the same sum change the masked vectors and nothing else, byte for byte."""
    vectors = random_vectors(names(5), 4)
    faults: list[Fault] = [] if lost is None else [Vanish(lost, SENDS_VECTOR)]
    honest = [name for name in vectors if name != lost]
    faked = {name: np.zeros(4, np.uint64) for name in vectors}
    faked[honest[-1]] = pooled(vectors, honest)
    real, simulated = (
        run_sum("masked_sum", each, quorum=3, faults=faults, keep=Keep.FRAMES).transcript.entries for each in (vectors, faked)
    )
    assert len(real) == len(simulated)
    for one, other in zip(real, simulated, strict=True):
        assert (one.sender, one.to, one.kind, one.size) == (other.sender, other.to, other.kind, other.size)
        assert (one.frame == other.frame) == (one.kind is not messages.MaskedVectorSent)


def test_no_vector_stands_in_any_message() -> None:
    canary = np.array([0x1122334455667788, 0x99AABBCCDDEEFF00], np.uint64)
    vectors = {name: canary + np.uint64(index) for index, name in enumerate(names(4))}
    outcome = run_sum("masked_sum", vectors, keep=Keep.FRAMES)
    for vector in vectors.values():
        for word in vector:
            assert not any(word.tobytes() in (entry.frame or b"") for entry in outcome.transcript.entries)


# -- entropy of masks -------------------------------------------------------------------------------------------------------


def weak_bits(mask_of: Callable[[bytes], bytes]) -> list[int]:
    """Bits of the agreed secret that do not enter the mask."""
    secret = bytes(range(100, 132))
    base = mask_of(secret)
    weak = []
    for place in range(256):
        flipped = bytearray(secret)
        flipped[place // 8] ^= 1 << place % 8
        if mask_of(bytes(flipped)) == base:
            weak.append(place)
    return weak


def collisions(masks_of: Callable[[list[bytes]], list[bytes]], draws: int) -> int:
    """Equal masks among many random secrets: with b-bit seeds about draws^2 / 2^(b+1)."""
    secrets = Coins.seeded(SEED).derive("collisions").bytes(32 * draws)
    return draws - len(set(masks_of([secrets[at : at + 32] for at in range(0, len(secrets), 32)])))


def test_masks_carry_the_full_entropy_of_their_secrets() -> None:
    _, terms, _ = start(3, 2)

    class Agreed(AgreementKey):
        """A key whose agreed secret the test chooses."""

        def agree_many(self, publics: Any, parties: Any) -> list[bytes]:
            return list(publics)

    mine = Agreed(bytes(32))

    def mask_keys(secrets: list[bytes]) -> list[bytes]:
        how = {"me": "site0", "other": "site1", "scope": terms.context, "purpose": "masked_sum pair"}
        pairs = b"".join([pair_keys.pair_key(mine, secret, **how) for secret in secrets])
        return terms.mask_keys(terms.run_keys(pairs, 0, [1] * len(secrets), bytes(32))[0])[0]

    def shipped(secret: bytes) -> bytes:
        return expand(mask_keys([secret])[0], 1).tobytes()

    def short(secret: bytes) -> bytes:  # Flower's SecAgg+ seeds its masks with 32 bits
        return derive_key(secret[:4] + bytes(28), "pair mask")[:8]

    assert weak_bits(shipped) == []
    assert len(weak_bits(short)) == 224
    assert collisions(lambda secrets: [key[:8] for key in mask_keys(secrets)], 300_000) == 0  # chance of any: 3e-9
    assert collisions(lambda secrets: list(map(short, secrets)), 300_000) > 0  # chance of none: e^-10.5


def test_short_keys_are_refused() -> None:
    for key in (b"", bytes(4), bytes(31), bytes(33)):
        with pytest.raises(ValueError):
            expand(key, 1)
        with pytest.raises(ValueError):
            derive_key(key, "x")
