"""Garbled gates against plain bits, for any inputs of either party."""

import numpy as np
import pytest

from blindbayes.crypto.garbling import circuits
from blindbayes.crypto.garbling.garbling import Evaluator, Garbler, Plain
from blindbayes.crypto.tweaks import Domain, TweakedHash
from blindbayes.errors import IntegrityError, LocalProtocolError, PeerProtocolError
from support.two_party import RecordingHash, coins


def offset():
    delta = coins("delta").words(2)
    delta[0] |= np.uint64(1)
    return delta


def random_bits(name, *shape):
    size = int(np.prod(shape))
    return (np.frombuffer(coins(name).bytes(size), dtype=np.uint8) & 1).reshape(shape)


def garbled_run(circuit, mine, theirs, make=TweakedHash, change=lambda tables: tables):
    """Run `circuit(gates, garbler's wires, evaluator's wires)` garbled; returns (garbler, its wires, evaluator, its wires)."""
    delta = offset()
    garbler, evaluator = Garbler(make(b"run"), delta), Evaluator(make(b"run"), "gina")
    labels = coins("labels").words(2 * theirs.size).reshape(*theirs.shape, 2)
    out = circuit(garbler, garbler.own(mine), labels)
    active = labels ^ ((np.uint64(0) - theirs.astype(np.uint64))[..., None] & delta)
    evaluator.give_tables(change(garbler.take_tables()))
    got = circuit(evaluator, evaluator.own(mine.shape), active)
    evaluator.require_finished()
    return garbler, out, evaluator, got


@pytest.mark.parametrize("lanes", [1, 5, 5000])
def test_and_xor_not_and_constants(lanes):
    mine, theirs = random_bits("mine", 3, lanes), random_bits("theirs", 3, lanes)

    def circuit(g, a, b):
        one, zero = circuits.public(g, 1, 2, lanes)
        return np.stack(
            [
                g.and_(a[0], b[0]),
                g.and_(g.not_(a[1]), b[1] ^ b[2]),
                g.not_(g.and_(a[0] ^ b[0], a[2] ^ b[2])),
                g.and_(one, b[0]),
                g.and_(zero, b[0]),
                g.and_(a[0], a[1]),
                g.and_(b[0], b[0]),
            ]
        )

    plain = circuit(Plain(), mine, theirs)
    garbler, out, evaluator, got = garbled_run(circuit, mine, theirs)
    assert np.array_equal(evaluator.read(got, garbler.tags(out)), plain)
    assert np.array_equal(garbler.read(out, evaluator.skip_read(got)), plain)
    assert garbler.and_count == evaluator.and_count == 7 * lanes


def test_every_gate_half_and_lane_has_its_own_tweak():
    hashes = []

    def make(session):
        hashes.append(RecordingHash(session))
        return hashes[-1]

    mine, theirs = random_bits("mine", 8, 33), random_bits("theirs", 8, 33)
    garbler, out, evaluator, got = garbled_run(lambda g, a, b: circuits.multiply(g, a, b), mine, theirs, make)
    evaluator.read(got, garbler.tags(out))
    garble, evaluate = hashes
    gates = garbler.and_count
    outputs = out.shape[0] * out.shape[1]
    # The garbler hashes both labels of a wire under the wire's tweak, the evaluator the active one.
    assert len(garble.seen) == len(evaluate.seen) == 2 * gates + outputs
    assert set(garble.seen.values()) == {2}
    assert set(evaluate.seen.values()) == {1}
    assert {domain for domain, _ in garble.seen} == {Domain.GATE, Domain.OUTPUT}


def test_a_changed_table_is_noticed_and_nothing_is_read():
    mine, theirs = random_bits("mine", 8, 4), random_bits("theirs", 8, 4)
    failures = 0
    for word in range(64):

        def change(tables, word=word):
            tables = tables.copy()
            tables[word] ^= np.uint64(1 << 17)
            return tables

        garbler, out, evaluator, got = garbled_run(lambda g, a, b: circuits.add(g, a, b), mine, theirs, change=change)
        tags = garbler.tags(out)
        try:
            bits = evaluator.read(got, tags)
        except IntegrityError:
            failures += 1
        else:  # the evaluator's colours did not select that ciphertext: then the result is right
            assert circuits.from_bits(bits) == [
                a + b for a, b in zip(circuits.from_bits(mine), circuits.from_bits(theirs), strict=True)
            ]
    assert failures > 16


def test_wrong_lengths_are_refused():
    mine, theirs = random_bits("mine", 4, 4), random_bits("theirs", 4, 4)
    with pytest.raises(PeerProtocolError, match="fewer"):
        garbled_run(circuits.multiply, mine, theirs, change=lambda tables: tables[:-4])
    with pytest.raises(PeerProtocolError, match="more"):
        garbled_run(circuits.multiply, mine, theirs, change=lambda tables: np.concatenate([tables, tables[:4]]))
    garbler, out, evaluator, got = garbled_run(circuits.multiply, mine, theirs)
    with pytest.raises(PeerProtocolError):
        evaluator.read(got, garbler.tags(out)[:-1])
    with pytest.raises(PeerProtocolError):
        garbler.read(out, evaluator.skip_read(got)[:-1])
    with pytest.raises(IntegrityError):
        garbler.read(out, evaluator.skip_read(got) ^ np.uint64(2))


def test_an_offset_without_colour_is_refused():
    with pytest.raises(LocalProtocolError):
        Garbler(TweakedHash(b"x"), np.zeros(2, dtype=np.uint64))
