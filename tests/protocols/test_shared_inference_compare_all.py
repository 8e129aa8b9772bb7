"""All parties compare together: right for any number of parties, and a coalition of all but one sees only the class."""

import functools
import itertools
from collections import Counter

import msgspec
import numpy as np
import pytest

from blindbayes.crypto import limbs
from blindbayes.crypto.garbling import circuits
from blindbayes.crypto.garbling.garbling import Plain
from blindbayes.crypto.garbling.recording import Recorder
from blindbayes.errors import PeerProtocolError, ProtocolError
from blindbayes.protocols.joint_circuit import CircuitParty, Mesh, connect, roles
from blindbayes.protocols.joint_circuit.messages import GatesMasked, OutputsShared, TriplesChosen, TriplesMasked
from blindbayes.protocols.joint_circuit.roles import Triples
from blindbayes.protocols.memory import Drop, Replace, Tamper, local_runs, run_in_memory
from blindbayes.protocols.shared_inference import compare_all as t
from blindbayes.protocols.shared_inference.compare_all import UNREADABLE
from blindbayes.protocols.two_party.transfer.roles import agree
from blindbayes.wire import decode
from blindbayes.wire.transcript import Keep
from support.oracles import layer_count
from support.two_party import anew, coins


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("bits", [1, 2, 7, 35])
def test_sign_of_many_shares(count, bits):
    source = coins("shares")
    numbers = [[source.bits(bits) for _ in range(100)] for _ in range(count)]
    got = circuits.sign_of_many(Plain(), [circuits.to_bits(row, bits) for row in numbers])
    assert got.tolist() == [(sum(column) >> (bits - 1)) & 1 for column in zip(*numbers, strict=True)]


@functools.cache
def meshes(names):
    runs = local_runs(names, coins=coins("run"))
    return run_in_memory({name: connect(runs[name], coins(f"mesh {name}")) for name in names}).outputs


def compare_roles(names, shares, bits, learners, seed="x"):
    runs = local_runs(names, coins=coins("run"))

    def role(name):
        run = runs[name]
        ready = meshes(names)[name]
        mesh = Mesh(
            {other: anew(ot_sender) for other, ot_sender in ready.ot_senders.items()},
            {other: anew(ot_receiver) for other, ot_receiver in ready.ot_receivers.items()},
        )
        sessions = {}
        for first, second in itertools.combinations(names, 2):
            if name in (first, second):
                other = second if name == first else first
                sessions[other] = yield from agree(run, other, "test", b"", coins(f"{seed} nonce {name} {other}"))
        return (yield from t.compare(run, shares[name], bits, sessions, mesh, learners, coins(f"{seed} {name}")))

    return {name: role(name) for name in names}


def shared(scores, bits, names):
    """Additive shares of (count, K - 1) integers."""
    source, count = coins("split"), scores.size
    rest = limbs.from_integers(scores.reshape(-1).tolist(), 1).reshape(*scores.shape, 1)
    found = {}
    for name in names[1:]:
        found[name] = limbs.cut(source.words(count).reshape(*scores.shape, 1), bits)
        rest = limbs.subtract(rest, found[name])
    return {names[0]: limbs.cut(rest, bits), **found}


@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c"), ("a", "b", "c", "d", "e")])
def test_the_class_comes_out_for_any_number_of_parties(names, classes):
    rng = np.random.default_rng(3)
    scores = rng.integers(-3, 4, (30, classes - 1))
    expected = np.concatenate([np.zeros((30, 1), dtype=int), scores], axis=1).argmax(axis=1)
    outcome = run_in_memory(compare_roles(names, shared(scores, 9, names), 9, names))
    for name in names:
        assert np.array_equal(outcome.outputs[name], expected)
    alone = run_in_memory(compare_roles(names, shared(scores, 9, names), 9, (names[-1],)))
    assert np.array_equal(alone.outputs[names[-1]], expected)
    assert all(alone.outputs[name] is None for name in names[:-1])


@pytest.mark.parametrize("kind", [OutputsShared, TriplesMasked])
def test_an_answer_that_is_no_class_stays_unread_and_nobody_is_told(kind):
    """Wrong shares or triples of one party: before, any pattern of bits was taken for a class."""
    names, scores = ("a", "b", "c"), np.random.default_rng(3).integers(-3, 4, (30, 2))
    change = Replace(
        lambda entry: entry.kind is kind and (entry.sender, entry.to) == ("b", "a"),
        lambda message: msgspec.structs.replace(message, bits=message.bits ^ np.uint64(2**60 - 1)),
    )
    outcome = run_in_memory(compare_roles(names, shared(scores, 9, names), 9, ("a",)), faults=[change], check=False)
    assert outcome.error is None
    assert UNREADABLE in outcome.outputs["a"]


def test_every_batch_of_triples_has_a_hash_key_of_its_own(monkeypatch):
    keys, genuine = [], roles.TweakedHash.for_block
    monkeypatch.setattr(
        roles.TweakedHash, "for_block", lambda session, index: keys.append((session, index)) or genuine(session, index)
    )
    monkeypatch.setattr(t, "TRIPLES_AT_ONCE", 1)  # one instance at a time
    scores = np.zeros((3, 2), dtype=int)
    run_in_memory(compare_roles(("a", "b"), shared(scores, 9, ("a", "b")), 9, ("a",)))
    assert len(set(keys)) == 2 * 3  # per direction and batch
    assert all(keys.count(key) == 2 for key in keys)  # one object of either party


def test_rounds_are_few_and_stated(monkeypatch):
    names = ("a", "b", "c")
    scores = np.zeros((4, 2), dtype=int)
    outcome = run_in_memory(compare_roles(names, shared(scores, 35, names), 35, names))
    layers = sum(
        1 for entry in outcome.transcript.entries if entry.kind is GatesMasked and (entry.sender, entry.to) == ("a", "b")
    )
    assert layers == layer_count(3, 35, 3) == 1 + 1 + 6 + 1  # carry-save, generate, carry tree, winner
    per_instance = t.triples_needed(3, 35, 3, 1)
    assert per_instance <= 4 * 35 * 3 + 2
    monkeypatch.setattr(t, "TRIPLES_AT_ONCE", 2 * per_instance)
    cut = run_in_memory(compare_roles(names, shared(scores, 35, names), 35, names))
    assert np.array_equal(cut.outputs["a"], outcome.outputs["a"])


def test_every_view_of_a_coalition_of_all_but_one_depends_on_the_class_alone():
    """Exact law, 3 parties, 2-bit shares, ideal triples: over all coins of the honest party, its messages and the result have
    the same distribution for any two of its inputs that give the same class; not for inputs that give different classes."""
    names, bits = ("a", "b", "honest"), 2
    recorder = Recorder()
    circuit = recorder.finish([circuits.sign_of_many(recorder, [recorder.inputs(bits, 1) for _ in names])])
    gates = circuit.and_count
    runs = local_runs(names, coins=coins("run"))
    others = {"a": 1, "b": 2}
    fixed = {name: np.frombuffer(coins(name).bytes(3 * gates), dtype=np.uint8).reshape(3, gates) & 1 for name in others}

    def views(secret, bare=False):
        seen = Counter()
        total = sum(others.values()) + secret
        for pattern in itertools.product((0, 1), repeat=2 * gates):
            a, b = np.array(pattern[:gates], dtype=np.uint8), np.array(pattern[gates:], dtype=np.uint8)
            if bare:
                b = b * 0
            everyone_a = fixed["a"][0] ^ fixed["b"][0] ^ a
            everyone_b = fixed["a"][1] ^ fixed["b"][1] ^ b
            product = (everyone_a & everyone_b) ^ fixed["a"][2] ^ fixed["b"][2]
            own = {"honest": np.stack([a, b, product]), **fixed}

            def role(name, own=own, secret=secret):
                party = CircuitParty(runs[name], {}, Mesh())
                entered = {names.index(name): circuits.to_bits([others.get(name, secret)], bits)}
                (share,) = yield from party.evaluate(circuit, entered, Triples(*own[name]))
                return (yield from party.open(share, names))

            outcome = run_in_memory({name: role(name) for name in names}, keep=Keep.FRAMES)
            assert int(outcome.outputs["a"][0]) == (total % 4) >> 1
            sent = [e.frame for e in outcome.transcript.entries if e.sender == "honest"]
            seen[tuple(sent)] += 1
        return seen

    laws = {secret: views(secret) for secret in range(4)}
    result = {secret: ((3 + secret) % 4) >> 1 for secret in range(4)}
    for first, second in itertools.combinations(range(4), 2):
        assert (laws[first] == laws[second]) == (result[first] == result[second])
    # The mutant that leaves one of the two masks out is caught.
    same = [pair for pair in itertools.combinations(range(4), 2) if result[pair[0]] == result[pair[1]]]
    assert any(views(first, bare=True) != views(second, bare=True) for first, second in same)


def test_triples_multiply_and_look_uniform():
    names = ("a", "b", "c")
    runs = local_runs(names, coins=coins("run"))

    def role(name):
        mesh = yield from connect(runs[name], coins(f"mesh {name}"))
        sessions = {other: "-".join(sorted((name, other))).encode() for other in names if other != name}
        party = CircuitParty(runs[name], sessions, mesh)
        triples = yield from party.triples(3000, coins(name))
        return triples.take(3000)

    outcome = run_in_memory({name: role(name) for name in names})
    a, b, product = outcome.outputs["a"] ^ outcome.outputs["b"] ^ outcome.outputs["c"]
    assert np.array_equal(a & b, product)
    for name in names:
        for part in outcome.outputs[name]:  # alpha = 2e-9
            assert abs(part.mean() - 0.5) * 2 * np.sqrt(3000) < 6


def test_broken_messages_end_in_a_typed_error():
    names = ("a", "b", "c")
    scores = np.array([[1], [-1]])
    shares = shared(scores, 5, names)
    for kind in (TriplesChosen, TriplesMasked, GatesMasked, OutputsShared):
        field = "corrections" if kind is TriplesChosen else "bits"
        longer = Replace(
            lambda e, kind=kind: e.kind is kind,
            lambda m, field=field: msgspec.structs.replace(m, **{field: np.concatenate([getattr(m, field)] * 2)}),
        )
        with pytest.raises(PeerProtocolError):
            run_in_memory(compare_roles(names, shares, 5, names), faults=[longer])
        for fault in (Drop(lambda e, kind=kind: e.kind is kind), Tamper(lambda e, kind=kind: e.kind is kind, lambda f: f[:-3])):
            outcome = run_in_memory(compare_roles(names, shares, 5, names), faults=[fault], check=False)
            assert isinstance(outcome.error, ProtocolError) or outcome.lost


@pytest.mark.parametrize("kind", [TriplesChosen, TriplesMasked, GatesMasked, OutputsShared])
def test_a_message_of_an_earlier_batch_is_refused(kind):
    names = ("a", "b", "c")
    shares = shared(np.array([[1], [-1]]), 5, names)
    earlier = run_in_memory(compare_roles(names, shares, 5, names, seed="earlier"), keep=Keep.FRAMES).transcript.entries
    old = next(entry for entry in earlier if entry.kind is kind)
    same = Replace(
        lambda e: e.kind is kind and (e.sender, e.to) == (old.sender, old.to),
        lambda _: decode(old.frame, kind, sender=old.sender),
    )
    outcome = run_in_memory(compare_roles(names, shares, 5, names, seed="later"), faults=[same], check=False)
    assert isinstance(outcome.error, PeerProtocolError)
    assert outcome.error.party == old.sender
    assert old.to not in outcome.outputs


def test_no_share_stands_in_the_transcript():
    names = ("a", "b", "c")
    shares = shared(np.full((3, 1), 12345), 40, names)
    outcome = run_in_memory(compare_roles(names, shares, 40, names), keep=Keep.FRAMES)
    for entry in outcome.transcript.entries:
        for share in shares.values():
            assert all(int(word).to_bytes(8, "little")[:5] not in entry.frame for word in share.reshape(-1))
        if entry.kind is OutputsShared:
            assert len(decode(entry.frame, OutputsShared).bits) == 1
