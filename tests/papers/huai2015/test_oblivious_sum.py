"""The oblivious sum: exactness, cost, who may vanish, what a dishonest miner can make of it, the maximum."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import gmpy2
import numpy as np
import pytest
from msgspec.structs import replace

from blindbayes import RowStudy
from blindbayes.crypto import signatures
from blindbayes.crypto.coins import Coins
from blindbayes.dp.distributed.noise_shares import DistributedNoise, PrivacyUnit
from blindbayes.errors import BlindbayesError, ConfigError, IntegrityError, LocalProtocolError, PeerLost, PeerProtocolError
from blindbayes.protocols import registry
from blindbayes.protocols.core import Role, Run, Send, receive_all
from blindbayes.protocols.memory import Drop, Duplicate, Outcome, Replace, Tamper, Vanish, local_runs, run_in_memory
from blindbayes.report.spec import read_spec
from blindbayes.study.file import Party, StudyFile
from blindbayes.wire import Big, Message, decode
from blindbayes.wire.transcript import Keep
from blindbayes_papers.huai2015 import private_maximum as maximum
from blindbayes_papers.huai2015.oblivious_sum import PROTOCOL, Groups, session
from blindbayes_papers.huai2015.oblivious_sum.contributor import survivors_payload
from blindbayes_papers.huai2015.oblivious_sum.messages import (
    CiphertextsSent,
    CorrectionsSent,
    KeyAnnounced,
    ModulusDealt,
    RosterNamed,
    SharesSealed,
    SurvivorsNamed,
    SurvivorsSigned,
)
from blindbayes_papers.huai2015.oblivious_sum.miner import collect_corrections, enrol_all
from blindbayes_papers.huai2015.oblivious_sum.session import max_holders
from blindbayes_papers.huai2015.oblivious_sum.terms import DEALER, MINER, ObliviousSumSetup
from blindbayes_papers.huai2015.primitives.joye_libert import JoyeLibert, deal_modulus
from blindbayes_papers.huai2015.primitives.ristretto_sum import RistrettoSum
from support.sites import BOOK
from support.sums import costs, error_of, formula, names, pooled, run_sum

BOUND = 10**6


@lru_cache
def toy() -> dict[str, Any]:
    coins = Coins.seeded(bytes(32)).derive("modulus")
    return {"scheme": "joye_libert", "modulus": hex(deal_modulus(512, coins, toy_keys=True)), "toy_keys": True}


RISTRETTO = {"scheme": "ristretto"}
FORMS: dict[str, Callable[[], dict[str, Any]]] = {
    "joye_libert": toy,
    "ristretto": lambda: RISTRETTO,
    "dealt modulus": lambda: {"scheme": "joye_libert", "modulus_bits": 512, "toy_keys": True},
    "dealt keys": lambda: {"scheme": "joye_libert", "modulus_bits": 512, "toy_keys": True, "keys": "dealer"},
    "dealt keys, ristretto": lambda: {"keys": "dealer", **RISTRETTO},
    "standing keys": lambda: {"keys": "standing", **RISTRETTO},
    "standing keys, dealt modulus": lambda: {
        "scheme": "joye_libert",
        "modulus_bits": 512,
        "toy_keys": True,
        "keys": "standing",
    },
}
form = pytest.mark.parametrize("form", FORMS)


def vectors(n: int, length: int = 12) -> dict[str, np.ndarray]:
    coins = Coins.seeded(bytes(32)).derive(f"vectors {n}")
    return {name: np.array([coins.below(2001) - 1000 for _ in range(length)], np.int64).view(np.uint64) for name in names(n)}


def go(n: int, options: dict[str, Any], **more: Any) -> Outcome:
    return run_sum("oblivious_sum", vectors(n), bound=BOUND, options=options, **more)


def require_sum(outcome: Outcome, n: int) -> tuple[str, ...]:
    total = outcome.outputs[MINER]
    assert np.array_equal(total.words, pooled(vectors(n), total.included))
    return total.included


@form
@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_miner_opens_the_pooled_sum_and_nobody_else_opens_anything(form: str, n: int) -> None:
    outcome = go(n, FORMS[form]())
    assert require_sum(outcome, n) == names(n)
    assert {name: labels for name, labels in outcome.opened.items() if labels} == {MINER: ("sum",)}
    assert all(value is None for name, value in outcome.outputs.items() if name != MINER)
    assert outcome.unread == 0


def test_default_options_at_full_key_size() -> None:
    for options in ({}, {"scheme": "joye_libert"}):
        outcome = go(3, options)
        assert require_sum(outcome, 3) == names(3)
        assert (DEALER in outcome.outputs) == bool(options)
    assert go(3, toy(), noisy=True).opened[MINER] == ("noisy_sum",)


def test_words_without_a_declared_bound_add_up_modulo_two_to_the_64() -> None:
    coins = Coins.seeded(bytes(32))
    given = {name: coins.words(50) for name in names(4)}
    outcome = run_sum("oblivious_sum", given, options=toy())
    assert np.array_equal(outcome.outputs[MINER].words, pooled(given, names(4)))


@form
@pytest.mark.parametrize("quorum", [None, 4])
def test_measured_cost_equals_the_formula(form: str, quorum: int | None) -> None:
    if quorum and form.startswith("dealt keys"):
        with pytest.raises(ConfigError):
            go(5, FORMS[form](), quorum=quorum)
        return
    outcome = go(5, FORMS[form](), quorum=quorum)
    given = {
        "tolerant": int(quorum is not None),
        "modulus_dealt": int("modulus_bits" in FORMS[form]()),
        "keys_dealt": int(form.startswith("dealt keys")),
        "silent": int(form.startswith("standing") and quorum is None),
    }
    assert (outcome.cost.rounds, outcome.cost.messages) == costs(registry.spec("oblivious_sum"), 5, 12, **given)
    assert set(outcome.opened[MINER]) == set(registry.spec("oblivious_sum")["opened"])


def test_the_defaults_of_the_formula_are_those_of_the_protocol() -> None:
    outcome = go(3, {})
    assert (outcome.cost.rounds, outcome.cost.messages) == costs(registry.spec("oblivious_sum"), 3, 12)


@pytest.mark.parametrize(
    ("scheme", "n", "quorum", "width"), [("toy", 4, None, 16), ("toy", 4, 3, 16), ("toy", 14, 12, 2), ("r", 4, 3, 16)]
)
def test_ciphertexts_and_exponentiations_are_as_the_spec_says(
    scheme: str, n: int, quorum: int | None, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    real = {kind: kind.masks for kind in (JoyeLibert, RistrettoSum)}
    encrypt = JoyeLibert.encrypt
    monkeypatch.setattr(JoyeLibert, "encrypt", lambda *a: calls.append(len(a[1])) or encrypt(*a))
    for kind, masks in real.items():
        monkeypatch.setattr(kind, "masks", lambda *a, masks=masks: calls.append(a[3]) or masks(*a))
    options = {**(toy() if scheme == "toy" else RISTRETTO), "width": width}
    words = 60
    outcome = run_sum("oblivious_sum", vectors(n, words), bound=BOUND, options=options, quorum=quorum)
    spec = registry.spec("oblivious_sum")
    values = {
        "words": words,
        "ristretto": int(scheme == "r"),
        "bits": 512,
        "field": (2 * BOUND).bit_length(),
        "tolerant": int(quorum is not None),
        "segments": len(Groups(names(n), width).segments),
    }
    values["ciphertexts"] = formula(spec["ciphertexts"], values)
    expected = values["ciphertexts"] * (768 // 6 if scheme == "toy" else 32)  # an element of N^2 at 512 bits has 128 bytes
    sizes = [entry.size for entry in outcome.transcript.entries if entry.kind is CiphertextsSent]
    assert all(expected < size < expected + 40 + 4 * values["ciphertexts"] for size in sizes)
    assert sum(calls) == n * formula(spec["exponentiations"], values) + values["ciphertexts"]  # and the miner's own mask


# -- parties that vanish -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [toy, lambda: RISTRETTO], ids=["joye_libert", "ristretto"])
def test_any_party_may_vanish_at_any_step_and_the_others_keep_the_round(options: Callable[[], dict[str, Any]]) -> None:
    """Exhaustive for n = 4, q = 3: every party at every effect. Included is exactly who sent its ciphertexts."""
    effects = go(4, options(), quorum=3).cost.parties["site0"].effects
    seen = set()
    for party, before in itertools.product(names(4), range(effects)):
        outcome = go(4, options(), quorum=3, faults=[Vanish(party, before)])
        included = require_sum(outcome, 4)
        assert set(included) >= set(names(4)) - {party}
        sent = {entry.sender for entry in outcome.transcript.entries if entry.kind is CiphertextsSent}
        assert set(included) == sent
        seen.add(len(included))
    assert seen == {3, 4}


def test_two_of_five_may_vanish_at_different_steps() -> None:
    effects = go(5, toy(), quorum=3).cost.parties["site0"].effects
    for first, second in itertools.product(range(0, effects, 2), range(1, effects, 2)):
        require_sum(go(5, toy(), quorum=3, faults=[Vanish("site1", first), Vanish("site3", second)]), 5)


def test_past_the_quorum_the_run_ends_cleanly_and_opens_nothing() -> None:
    effects = go(4, toy(), quorum=3).cost.parties["site0"].effects
    for first, second in itertools.product(range(effects), repeat=2):
        outcome = go(4, toy(), quorum=3, faults=[Vanish("site0", first), Vanish("site2", second)], check=False)
        if outcome.error is None:
            require_sum(outcome, 4)
            continue
        assert isinstance(outcome.error, PeerLost)
        assert outcome.error.party in ("site0", "site2")
        assert not any(outcome.opened.values())


def test_without_a_quorum_everybody_must_answer() -> None:
    outcome = go(3, toy(), faults=[Vanish("site1", 1)], check=False)
    assert isinstance(outcome.error, PeerLost)
    assert outcome.error.party == "site1"
    assert not any(outcome.opened.values())


def test_a_sparse_key_graph_loses_parties_too() -> None:
    for options in (toy(), RISTRETTO):
        faults = [Vanish("site2", 3), Vanish("site11", 3), Vanish("site7", 5)]
        outcome = go(14, {**options, "width": 2}, quorum=11, faults=faults)
        assert len(Groups(names(14), 2).segments) > 3
        assert set(require_sum(outcome, 14)) == set(names(14)) - {"site2", "site11"}


def test_a_segment_that_vanishes_ends_the_run() -> None:
    setting = registry.SumSetup(names(14), 12, 9, bound=BOUND, options={**toy(), "width": 2})
    segment = ObliviousSumSetup(Run("0" * 64, "run", ("*",), "*"), setting).groups(names(14)).segments[1]
    outcome = go(14, {**toy(), "width": 2}, quorum=9, faults=[Vanish(name, 3) for name in segment], check=False)
    assert isinstance(outcome.error, PeerLost)
    assert not any(outcome.opened.values())


# -- dishonest parties --------------------------------------------------------------------------------------------------


def wrong(kind: type[Message], change: Callable[[Any], Message], sender: str = "site1") -> Replace:
    return Replace(lambda entry: entry.kind is kind and entry.sender == sender, change)


def flip(signature: bytes) -> bytes:
    return bytes([signature[0] ^ 1]) + signature[1:]


BAD: dict[str, tuple[Replace, type[BlindbayesError]]] = {
    "short ciphertext": (wrong(CiphertextsSent, lambda m: CiphertextsSent((m.elements[0][:-1],))), PeerProtocolError),
    "no ciphertext": (wrong(CiphertextsSent, lambda m: CiphertextsSent(())), PeerProtocolError),
    "zero ciphertext": (wrong(CiphertextsSent, lambda m: CiphertextsSent((bytes(len(m.elements[0])),))), PeerProtocolError),
    "foreign ciphertext": (
        wrong(CiphertextsSent, lambda m: CiphertextsSent((b"\xff" * len(m.elements[0]),))),
        PeerProtocolError,
    ),
    "other plaintext's mask": (wrong(CiphertextsSent, lambda m: CiphertextsSent((flip(m.elements[0]),))), BlindbayesError),
    "forged key": (wrong(KeyAnnounced, lambda m: KeyAnnounced(m.public, flip(m.signature))), IntegrityError),
    "small-order key": (wrong(KeyAnnounced, lambda m: KeyAnnounced(bytes(32), m.signature)), PeerProtocolError),
    "bad shares": (wrong(SharesSealed, lambda m: SharesSealed((*map(bytes, m.sealed[:-1]), b"x" * 99))), IntegrityError),
    "too few shares": (wrong(SharesSealed, lambda m: SharesSealed(m.sealed[1:])), PeerProtocolError),
    "forged vote": (wrong(SurvivorsSigned, lambda m: SurvivorsSigned(flip(m.signature))), IntegrityError),
    "no correction": (wrong(CorrectionsSent, lambda m: CorrectionsSent(())), PeerProtocolError),
    "wrong correction": (wrong(CorrectionsSent, lambda m: CorrectionsSent((m.elements[0][:0],))), PeerProtocolError),
    "roster with a stranger": (
        wrong(RosterNamed, lambda m: replace(m, names=("x", *m.names[1:])), MINER),
        PeerProtocolError,
    ),
    "roster below the quorum": (
        wrong(RosterNamed, lambda m: replace(m, names=m.names[:2]), MINER),
        PeerProtocolError,
    ),
    "another's key in the roster": (
        wrong(RosterNamed, lambda m: replace(m, publics=m.publics[::-1]), MINER),
        IntegrityError,
    ),
    "survivors below the quorum": (wrong(SurvivorsNamed, lambda m: SurvivorsNamed(m.names[:2]), MINER), PeerProtocolError),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_ends_the_run_with_a_typed_error_and_opens_nothing(case: str) -> None:
    fault, error = BAD[case]
    outcome = run_sum("oblivious_sum", vectors(4, 4), bound=BOUND, options=toy(), quorum=3, faults=[fault], check=False)
    assert isinstance(error_of(outcome), error), outcome.error
    assert not any(outcome.opened.values())


def test_an_altered_duplicated_or_lost_frame_never_gives_a_wrong_sum() -> None:
    count = go(3, toy()).cost.messages
    for index in range(count):
        for fault in (Drop(index), Duplicate(index), Tamper(index, lambda frame: frame[:-1] + bytes([frame[-1] ^ 1]))):
            outcome = go(3, toy(), faults=[fault], check=False)
            if error_of(outcome) is None:
                require_sum(outcome, 3)
            else:
                assert not any(outcome.opened.values())


@pytest.mark.parametrize("kind", [KeyAnnounced, CiphertextsSent, SurvivorsSigned, CorrectionsSent])
def test_a_message_replayed_from_another_run_ends_the_run(kind: type[Message]) -> None:
    old = go(4, toy(), quorum=3, run_id="earlier", seed=bytes(31) + b"o", keep=Keep.FRAMES)
    frame = next(e.frame for e in old.transcript.entries if e.kind is kind and e.sender == "site1")
    assert frame is not None
    fault = Replace(lambda entry: entry.kind is kind and entry.sender == "site1", lambda m: decode(frame, kind))
    outcome = go(4, toy(), quorum=3, faults=[fault], check=False)
    assert isinstance(error_of(outcome), IntegrityError)
    assert not any(outcome.opened.values())


@pytest.mark.parametrize("bad", [97 * 89, 2**511 + 1, (1 << 511) | 1])
def test_a_bad_modulus_is_refused(bad: int) -> None:
    fault = Replace(lambda entry: entry.kind is ModulusDealt and entry.to == "site0", lambda m: ModulusDealt(Big(bad)))
    outcome = go(3, FORMS["dealt modulus"](), faults=[fault], check=False)
    assert isinstance(outcome.error, PeerProtocolError)
    assert outcome.error.party == DEALER


def test_different_moduli_or_rosters_do_not_fit_together() -> None:
    """A dealer that gives one party another modulus, made by itself, only ruins the sum."""
    other = deal_modulus(512, Coins.seeded(bytes(32)).derive("other"), toy_keys=True)
    fault = Replace(lambda entry: entry.kind is ModulusDealt and entry.to == "site0", lambda m: ModulusDealt(Big(other)))
    outcome = go(3, FORMS["dealt modulus"](), faults=[fault], check=False)
    assert isinstance(outcome.error, BlindbayesError)
    assert not any(outcome.opened.values())


def two_faced_miner(
    terms: ObliviousSumSetup, coins: Coins, first: tuple[str, ...], second: tuple[str, ...]
) -> Role[dict[str, Any]]:
    """Names one survivor set to some and another to the rest, hoping for two sums. Returns what it was given."""
    scheme = terms.scheme(None)
    names_, _, roster = yield from enrol_all(terms, scheme, coins)
    yield from receive_all(names_, CiphertextsSent)
    for name in names_:
        yield Send(name, SurvivorsNamed(first if name in first else second))
    votes = yield from receive_all(names_, SurvivorsSigned)
    return {"votes": dict(votes), "label": terms.label(roster, "sum")}


def test_a_miner_cannot_have_two_survivor_sets_confirmed() -> None:
    """n = 5, q = 3: two sets of three share a member; it signs once, so one of the sets lacks a quorum of honest votes."""
    setting = registry.SumSetup(names(5), 12, 3, bound=BOUND, options=toy())
    coins = Coins.seeded(bytes(32))
    runs = local_runs(PROTOCOL.roster(setting), coins=coins)
    roles: dict[str, Role[Any]] = {
        name: PROTOCOL.role(runs[name], setting, vectors(5)[name], coins.derive(name)) for name in names(5)
    }
    first, second = names(5)[:3], names(5)[2:]
    roles[MINER] = two_faced_miner(ObliviousSumSetup(runs[MINER], setting), coins.derive("miner"), first, second)
    outcome = run_in_memory(roles, check=False)
    votes, label = outcome.outputs[MINER]["votes"], outcome.outputs[MINER]["label"]
    assert set(votes) == set(names(5))
    terms = ObliviousSumSetup(runs[MINER], setting)

    def count(survivors: tuple[str, ...]) -> int:
        valid = 0
        for name, vote in votes.items():
            try:
                signatures.verify(runs[MINER].identities[name], survivors_payload(terms, label, survivors), vote.signature)
            except IntegrityError:
                continue
            valid += 1
        return valid

    assert count(first) == 3
    assert count(second) == 2 < setting.quorum_size


@pytest.mark.parametrize("blinded", [True, False])
def test_a_late_ciphertext_stays_hidden_by_its_blind(blinded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The miner has site0's ciphertext, says it was lost, and gets honest corrections: they open the others' sum, and leave
    site0's own blind on its ciphertext. Without blinds (planted) the same miner reads site0."""
    if not blinded:
        monkeypatch.setattr(JoyeLibert, "random_key", lambda self, coins: 0)
    setting = registry.SumSetup(names(4), 12, 3, bound=BOUND, options=toy())
    coins = Coins.seeded(bytes(32))
    runs = local_runs(PROTOCOL.roster(setting), coins=coins)
    kept: dict[str, Any] = {}

    def greedy(terms: ObliviousSumSetup) -> Role[None]:
        scheme = terms.scheme(None)
        packing = scheme.packing(12, BOUND)
        names_, key, roster = yield from enrol_all(terms, scheme, coins.derive("miner"))
        sent = yield from receive_all(names_, CiphertextsSent)
        label = terms.label(roster, "sum")
        groups = terms.groups(names_)
        scale = scheme.scale(max_holders(groups))
        left = yield from collect_corrections(terms, scheme, groups, names_, names_[1:], label, packing.chunks)
        others = scheme.multiply([sent[name].elements for name in names_[1:]])
        mine = scheme.masks(key * scale, label, packing.chunks)
        product = scheme.multiply([scheme.power(others, scale), scheme.power(left, -1), mine])
        kept["others"] = packing.unpack(scheme.open(product, scale))
        kept["scheme"], kept["label"], kept["left"], kept["late"] = scheme, label, left, sent[names_[0]].elements
        kept["scale"], kept["chunks"] = scale, packing.chunks

    roles: dict[str, Role[Any]] = {
        name: PROTOCOL.role(runs[name], setting, vectors(4)[name], coins.derive(name)) for name in names(4)
    }
    roles[MINER] = greedy(ObliviousSumSetup(runs[MINER], setting))
    run_in_memory(roles, check=False)
    expected = sum(vectors(4)[name].view(np.int64) for name in names(4)[1:])
    assert kept["others"] == expected.tolist()
    scheme = kept["scheme"]
    late = scheme.power(kept["late"], kept["scale"])
    if not blinded:
        read = scheme.open(scheme.multiply([late, kept["left"]]), kept["scale"])
        assert scheme.packing(12, BOUND).unpack(read) == vectors(4)["site0"].view(np.int64).tolist()
        return
    for attempt in ([late], [late, kept["left"]], [late, scheme.power(kept["left"], -1)]):
        with pytest.raises(IntegrityError):
            scheme.open(scheme.multiply(attempt), kept["scale"])


def test_whoever_keeps_the_factors_reads_every_ciphertext() -> None:
    """Why the dealer is not the miner and forgets: with p and q, two ciphertexts of one party give both plaintexts."""
    coins = Coins.seeded(bytes(32)).derive("factors")
    p, q = (gmpy2.next_prime(coins.bits(256) | 3 << 254) for _ in range(2))
    n, order = p * q, (p - 1) * (q - 1)
    scheme = JoyeLibert(int(n), toy_keys=True)

    def log(element: int) -> int:
        return int((gmpy2.powmod(element, order, n * n) - 1) // n * gmpy2.invert(order, n) % n)

    key, secret = scheme.random_key(coins), [123, 456]
    seen = [int.from_bytes(c, "big") for c in scheme.encrypt(secret, key, b"label")]
    bases = [log(scheme.base(b"label", at)) for at in range(2)]
    found = None
    for guess in range(1000):
        k = (log(seen[0]) - guess) * gmpy2.invert(bases[0], n) % n
        other = int((log(seen[1]) - k * bases[1]) % n)
        if other < 1000:
            found = [guess, other]
            break
    assert found == secret


def test_settings_that_cannot_be_kept_are_refused() -> None:
    for n, options, quorum in (
        (1, toy(), None),
        (4, toy(), 2),
        (3, {"scheme": "other"}, None),
        (3, {"keys": "other"}, None),
        (3, {"unknown": 1}, None),
        (3, {**RISTRETTO, "keys": "dealer"}, 2),
    ):
        with pytest.raises(ConfigError):
            go(n, options, quorum=quorum)
    with pytest.raises(ConfigError, match="joye_libert"):
        run_sum("oblivious_sum", vectors(3), options=RISTRETTO)  # no bound
    with pytest.raises(ConfigError):
        PROTOCOL.roster(registry.SumSetup(("a", "miner"), 1))


def test_a_run_without_identities_is_refused() -> None:
    setting = registry.SumSetup(names(3), 12, bound=BOUND, options=toy())
    coins = Coins.seeded(bytes(32))
    runs = local_runs(PROTOCOL.roster(setting), coins=coins, signed=False)
    roles = registry.simulate_roles(PROTOCOL, runs, setting, vectors(3), coins)
    with pytest.raises(ConfigError, match="identities"):
        run_in_memory(roles)


@pytest.mark.parametrize("options", [toy, lambda: RISTRETTO], ids=["joye_libert", "ristretto"])
@pytest.mark.parametrize("n", [33, 50])
def test_two_and_three_segments_are_one_complete_graph(n: int, options: Callable[[], dict[str, Any]]) -> None:
    assert len(Groups(names(n)).segments) in (2, 3)
    faults = [Vanish("site3", 3), Vanish("site30", 5)]
    outcome = run_sum("oblivious_sum", vectors(n, 2), bound=BOUND, options=options(), quorum=n - 3, faults=faults)
    total = outcome.outputs[MINER]
    assert set(total.included) == set(names(n)) - {"site3"}
    assert np.array_equal(total.words, pooled(vectors(n, 2), total.included))


def test_no_site_hosts_the_miner_and_the_dealer() -> None:
    parties = tuple(Party(name, f"{at:064x}") for at, name in enumerate(("north", "south", "west")))
    options = {"scheme": "joye_libert"}
    hosts = StudyFile.make(RowStudy(BOOK, protocol="oblivious_sum", options=options), "hosts", parties).hosts
    assert set(hosts) == {MINER, DEALER}
    assert hosts[MINER] != hosts[DEALER]


# -- what a coalition sees of the keys -----------------------------------------------------------------------------------


class ToyKeys(RistrettoSum):
    """Keys modulo 3, so that every coin can be tried."""

    def total(self, keys: Iterable[int]) -> int:
        return sum(keys) % 3


Seen = Callable[[Groups, set[str], set[str]], Counter[tuple[int, ...]]]


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The exact distribution of the honest parties' keys, over all coins of edges that the coalition does not know."""
    edges: dict[frozenset[str], int] = {}
    monkeypatch.setattr(session, "channel", lambda mine, public, *, me, other, **_: frozenset((me, other)))
    monkeypatch.setattr(session, "edge_key", lambda scheme, pair: edges[pair])

    def count(groups: Groups, corrupt: set[str], shown: set[str]) -> Counter[tuple[int, ...]]:
        monkeypatch.setattr(ObliviousSumSetup, "groups", lambda self, names: groups)
        setting = registry.SumSetup(groups.parties, 1, bound=1, options={"keys": "standing", **RISTRETTO})
        runs = local_runs((*groups.parties, MINER), coins=Coins.seeded(bytes(32)))
        sessions = [
            session.KeySession(ObliviousSumSetup(runs[name], setting), ToyKeys(1), Coins.seeded(bytes(32)))
            for name in sorted(shown)
        ]
        pairs = {frozenset((a, b)) for a in groups.parties for b in groups.neighbours(a)}
        hidden = sorted((pair for pair in pairs if not pair & corrupt), key=sorted)
        edges.update({frozenset((name, MINER)): 1 for name in groups.parties} | dict.fromkeys(pairs, 2))
        seen: Counter[tuple[int, ...]] = Counter()
        for values in itertools.product(range(3), repeat=len(hidden)):
            edges.update(zip(hidden, values, strict=True))
            for each in sessions:
                each.stand()
            seen[tuple(each.zero_key for each in sessions)] += 1
        return seen

    return count


@pytest.mark.parametrize("corrupt", [(), ("site0",), ("site3",), ("site0", "site2")])
def test_the_miner_and_any_coalition_see_uniform_keys_but_for_their_sum(corrupt: tuple[str, ...], views: Seen) -> None:
    """Exhaustive at modulus 3, four parties, the miner always in the coalition: every vector of honest keys with the right sum
    is equally likely, whatever the coins of the coalition."""
    groups = Groups(names(4))
    honest = set(names(4)) - set(corrupt)
    seen = views(groups, set(corrupt), honest)
    assert len(seen) == 3 ** (len(honest) - 1)
    assert len(set(seen.values())) == 1
    assert len({sum(keys) % 3 for keys in seen}) == 1


def test_a_key_graph_that_falls_apart_is_caught(views: Seen) -> None:
    """Power: with the only bridge corrupt, the two sides' sums are fixed one by one, and the same test sees it."""

    class Path(Groups):
        def neighbours(self, name: str) -> tuple[str, ...]:
            at = self.parties.index(name)
            return tuple(self.parties[other] for other in (at - 1, at + 1) if 0 <= other < len(self.parties))

    seen = views(Path(names(5)), {"site2"}, set(names(5)) - {"site2"})
    assert len(seen) == 3**2 < 3**3


# -- the maximum --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("numbers", [(0, 0), (5, 3, 5), (1, 2, 4, 8), (1000, 1023, 7), (0, 1)])
def test_the_maximum_is_found_and_nothing_else_opened(numbers: tuple[int, ...]) -> None:
    bits = 10
    parties = names(len(numbers))
    coins = Coins.seeded(bytes(32)).derive("maximum")
    runs = local_runs((*parties, MINER), coins=coins)
    roles: dict[str, Role[Any]] = {
        name: maximum.contributor(runs[name], parties, number, bits, coins.derive(name))
        for name, number in zip(parties, numbers, strict=True)
    }
    roles[MINER] = maximum.miner(runs[MINER], parties, bits, coins.derive("miner"))
    outcome = run_in_memory(roles)
    assert set(outcome.outputs.values()) == {max(numbers)}
    if max(numbers):  # what it is for: noise that protects a whole party
        noise = DistributedNoise.plan(touched=3, bounds=[1] * 9, epsilon=1.0, honest=2, unit=PrivacyUnit("party", max(numbers)))
        assert noise.rate() == Fraction(1, 3 * max(numbers))
    spec = read_spec("private_maximum").table
    assert all(list(labels) == spec["opened"] for labels in outcome.opened.values())
    assert outcome.cost.rounds == eval(spec["rounds"], {"bits": bits})
    assert outcome.cost.messages == eval(spec["messages"], {"bits": bits, "n": len(numbers)})


def test_a_number_too_large_for_the_maximum_is_refused() -> None:
    runs = local_runs(("a", "b", MINER), coins=Coins.seeded(bytes(32)))
    with pytest.raises(LocalProtocolError):
        next(maximum.contributor(runs["a"], ("a", "b"), 1 << 10, 10, Coins.seeded(bytes(32))))
    with pytest.raises(ConfigError):
        next(maximum.miner(runs[MINER], ("a", "b"), 64, Coins.seeded(bytes(32))))
