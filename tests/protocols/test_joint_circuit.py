"""joint_circuit: right for any number of parties, at the stated cost, and nothing is seen by all but one."""

import functools
import itertools
from collections import Counter

import numpy as np
import pytest

from blindbayes.crypto.garbling import circuits
from blindbayes.crypto.garbling.recording import Recorder
from blindbayes.errors import LocalProtocolError
from blindbayes.protocols.joint_circuit import CircuitParty, Mesh, connect, roles
from blindbayes.protocols.joint_circuit.messages import GatesMasked
from blindbayes.protocols.joint_circuit.roles import Triples
from blindbayes.protocols.memory import Replace, local_runs, run_in_memory
from blindbayes.report.spec import read_spec
from blindbayes.wire.transcript import Keep
from support.two_party import anew, coins

SPEC = read_spec("joint_circuit").table
NAMES = ("a", "b", "c", "d", "e")


@functools.cache
def meshes(names):
    runs = local_runs(names, coins=coins("run"))
    return run_in_memory({name: connect(runs[name], coins(f"mesh {name}")) for name in names}).outputs


def party_of(name, names):
    ready = meshes(names)[name]
    mesh = Mesh(
        {other: anew(sender) for other, sender in ready.ot_senders.items()},
        {other: anew(receiver) for other, receiver in ready.ot_receivers.items()},
    )
    sessions = {other: "-".join(sorted((name, other))).encode() for other in names if other != name}
    return CircuitParty(local_runs(names, coins=coins("run"))[name], sessions, mesh)


def product_circuit(names, bits, lanes):
    recorder = Recorder()
    numbers = [recorder.inputs(bits, lanes) for _ in names]
    product = numbers[0]
    for number in numbers[1:]:
        product = circuits.multiply(recorder, product, number)[:bits]
    return recorder.finish([circuits.add(recorder, product, circuits.public(recorder, 5, bits, lanes), bits=bits)])


def evaluated(names, circuit, entered, learners):
    def role(name):
        party = party_of(name, names)
        triples = yield from party.triples(circuit.and_count, coins(f"triples {name}"))
        (share,) = yield from party.evaluate(circuit, {names.index(name): entered[name]}, triples)
        return share, (yield from party.open(share, learners))

    return run_in_memory({name: role(name) for name in names})


@pytest.mark.parametrize("n", [2, 3, 5])
def test_every_number_of_parties_computes_the_circuit_at_the_stated_cost(n, monkeypatch):
    names, bits, lanes = NAMES[:n], 6, 40
    values = {name: np.random.default_rng(at).integers(0, 1 << bits, lanes) for at, name in enumerate(names)}
    circuit = product_circuit(names, bits, lanes)
    entered = {name: circuits.to_bits(own.tolist(), bits) for name, own in values.items()}
    meshes(names)
    monkeypatch.setattr(roles, "TRIPLES_AT_ONCE", 1 + circuit.and_count // 2)
    for learners in (names, names[-1:], ()):
        outcome = evaluated(names, circuit, entered, learners)
        shares, opened = zip(*(outcome.outputs[name] for name in names), strict=True)
        expected = ((np.prod(list(values.values()), axis=0) + 5) % (1 << bits)).tolist()
        assert circuits.from_bits(functools.reduce(np.bitwise_xor, shares)) == expected
        for name, bits_read in zip(names, opened, strict=True):
            assert (bits_read is None) == (name not in learners)
            assert bits_read is None or circuits.from_bits(bits_read) == expected
        known = {"n": n, "layers": circuit.depth, "batches": 2, "learners": len(learners)}
        assert outcome.cost.rounds == eval(SPEC["rounds"], {}, known)
        assert outcome.cost.messages == eval(SPEC["messages"], {}, known)
        assert all(labels == () for labels in outcome.opened.values())


@pytest.mark.parametrize("n", [2, 3])
def test_bytes_per_gate_and_ordered_pair_are_those_of_the_page(n):
    names, lanes = NAMES[:n], 2000
    circuit = product_circuit(names, 8, lanes)
    entered = {name: np.zeros((8, lanes), dtype=np.uint8) for name in names}
    meshes(names)
    sent = evaluated(names, circuit, entered, ()).cost.bytes
    per_gate = sent / (circuit.and_count * n * (n - 1))
    assert 4.37 < per_gate < 4.6  # 4 bytes and 3 bits, and the heads of messages


def masked_sum_circuit(names, bits):
    """Step of shared training: the sum of everybody's shares, under masks of all but the last."""
    recorder = Recorder()
    shares = [recorder.inputs(bits, 1) for _ in names]
    masks = [recorder.inputs(bits, 1) for _ in names[:-1]]
    return recorder.finish([circuits.add_many(recorder, [(0, number) for number in (*shares, *masks)], bits)])


@pytest.mark.parametrize("learner_is_honest", [False, True])
def test_an_output_under_a_mask_shows_nothing_of_an_honest_share(learner_is_honest):
    """Exact law, 3 parties, 2-bit numbers, ideal triples: the honest party's messages have one law for all its shares.

    A mutant that draws one coin for both bits of its mask, or one for both of a triple, is caught.
    """
    bits, names = 2, ("a", "b", "honest") if learner_is_honest else ("a", "honest", "last")
    circuit = masked_sum_circuit(names, bits)
    gates, at = circuit.and_count, names.index("honest")
    masks_of = {names.index(name): len(names) + place for place, name in enumerate(names[:-1])}
    others = [name for name in names if name != "honest"]
    fixed = {name: np.frombuffer(coins(name).bytes(3 * gates), dtype=np.uint8).reshape(3, gates) & 1 for name in others}
    runs = local_runs(names, coins=coins("run"))
    assert gates <= 5

    def views(secret, reused=None, flipped=None, liars=("a",)):
        seen = Counter()
        own_masks = range(1 << bits) if at in masks_of else [0]
        for pattern, mask in itertools.product(itertools.product((0, 1), repeat=2 * gates), own_masks):
            a, b = np.array(pattern[:gates], dtype=np.uint8), np.array(pattern[gates:], dtype=np.uint8)
            if reused == "triple":
                b = a
            if reused == "mask":
                mask = 3 * (mask & 1)
            everyone = [fixed[others[0]][side] ^ fixed[others[1]][side] ^ own for side, own in enumerate((a, b))]
            product = (everyone[0] & everyone[1]) ^ fixed[others[0]][2] ^ fixed[others[1]][2]
            own = {"honest": np.stack([a, b, product]), **fixed}

            def role(name, own=own, mask=mask):
                number = names.index(name)
                entered = {number: circuits.to_bits([secret if name == "honest" else 1], bits)}
                if number in masks_of:
                    entered[masks_of[number]] = circuits.to_bits([mask if name == "honest" else 2], bits)
                party = CircuitParty(runs[name], {}, Mesh())
                (share,) = yield from party.evaluate(circuit, entered, Triples(*own[name]))
                return (yield from party.open(share, names[-1:]))

            faults = [Replace(lambda e: e.kind is GatesMasked and e.sender in liars, flipped)] if flipped else []
            outcome = run_in_memory({name: role(name) for name in names}, keep=Keep.FRAMES, faults=faults)
            seen[tuple(entry.frame for entry in outcome.transcript.entries if entry.sender == "honest")] += 1
        return seen

    laws = [views(secret) for secret in range(4)]
    assert all(law == laws[0] for law in laws)
    # Nor do wrong shares of a gate's inputs show anything: they move the output, which stays under the mask.
    for liars, pattern in itertools.product((("a",), tuple(others)), (1, 3)):
        wrong = [
            views(secret, flipped=lambda m, bits=pattern: GatesMasked(m.mark, m.bits ^ np.uint64(bits)), liars=liars)
            for secret in range(4)
        ]
        assert all(law == wrong[0] for law in wrong)
    for reused in ("triple", "mask") if at in masks_of else ("triple",):
        mutants = [views(secret, reused) for secret in range(4)]
        assert any(law != mutants[0] for law in mutants)


def test_a_triple_serves_one_gate_and_inputs_have_their_shape():
    names = ("a", "b")
    circuit = product_circuit(names, 2, 1)
    runs = local_runs(names, coins=coins("run"))
    short = Triples(*np.zeros((3, 1), dtype=np.uint8))
    for bits, match in ((2, "more AND gates"), (1, "shape")):
        with pytest.raises(LocalProtocolError, match=match):
            next(CircuitParty(runs["a"], {}, Mesh()).evaluate(circuit, {0: np.zeros((bits, 1), dtype=np.uint8)}, short))
