"""The attack on a garbling that shares one tweak over all lanes: it reads the offset and the garbler's inputs.

Wires of the garbler's own bits have active label 0 on every lane. Under one tweak the hash pair H(0), H(delta) is the same on
every lane, so the first ciphertexts of a gate differ between lanes by 0 or by the offset itself.
"""

import numpy as np
import pytest

from blindbayes.crypto.garbling import circuits
from blindbayes.crypto.garbling.garbling import Garbler
from blindbayes.crypto.tweaks import Domain, TweakedHash
from support.two_party import coins

LANES = 64
BITS = 24


class SharedTweak(TweakedHash):
    """The mutant: one tweak per half gate, shared by all lanes."""

    kernel = None

    def outer(self, inner, domain, indices):
        if domain == Domain.GATE:
            indices = indices // np.uint64(LANES) * np.uint64(LANES)
        return super().outer(inner, domain, indices)


def attack(make):
    """(offset read, garbler's bits read) by an evaluator that follows the protocol and looks at what it received."""
    delta = coins("delta").words(2)
    delta[0] |= np.uint64(1)
    mine = circuits.to_bits(coins("mine").words(LANES), BITS)
    theirs = circuits.to_bits(coins("theirs").words(LANES), BITS)
    labels = coins("labels").words(2 * BITS * LANES).reshape(BITS, LANES, 2)
    garbler = Garbler(make(b"run"), delta)
    circuits.sign_of_sum(garbler, garbler.own(mine), labels)

    # What the evaluator has: the tables of the first gate, and its own active labels.
    tables = garbler.take_tables()[: 4 * LANES].reshape(LANES, 2, 2)
    active = labels[0] ^ ((np.uint64(0) - theirs[0].astype(np.uint64))[:, None] & delta)
    candidates = [row for row in np.unique(tables[:, 0] ^ tables[0, 0], axis=0) if row.any()]
    guess = min(candidates, key=lambda row: sum(not np.array_equal(row, other) for other in candidates))
    hash_ = make(b"run")
    tweaks = np.arange(LANES, 2 * LANES, dtype=np.uint64)
    both = hash_.at(active, Domain.GATE, tweaks) ^ hash_.at(active ^ guess, Domain.GATE, tweaks)
    zero_labels = tables[:, 1] ^ both  # label of 0 of the garbler's bit: 0 if the bit is 0, the offset if it is 1
    read = np.where((zero_labels == guess).all(axis=1), 1, np.where((zero_labels == 0).all(axis=1), 0, -1))
    return any(np.array_equal(row, delta) for row in candidates), int((read == mine[0]).sum())


def test_the_attack_opens_a_garbling_with_a_shared_tweak():
    offset_read, bits_read = attack(SharedTweak)
    assert offset_read
    assert bits_read == LANES


def test_the_attack_learns_nothing_from_ours():
    offset_read, bits_read = attack(TweakedHash)
    assert not offset_read
    assert bits_read == 0


@pytest.mark.parametrize("make", [TweakedHash, SharedTweak])
def test_both_garblings_compute_the_same_function(make):
    """The mutant is a working garbling: only its secrecy is gone, so no functional test could notice."""
    from blindbayes.crypto.garbling.garbling import Evaluator

    delta = coins("delta").words(2)
    delta[0] |= np.uint64(1)
    mine, theirs = circuits.to_bits(coins("m").words(LANES), 8), circuits.to_bits(coins("t").words(LANES), 8)
    labels = coins("labels").words(2 * 8 * LANES).reshape(8, LANES, 2)
    garbler, evaluator = Garbler(make(b"r"), delta), Evaluator(make(b"r"))
    out = circuits.sign_of_sum(garbler, garbler.own(mine), labels)
    evaluator.give_tables(garbler.take_tables())
    active = labels ^ ((np.uint64(0) - theirs.astype(np.uint64))[..., None] & delta)
    got = circuits.sign_of_sum(evaluator, evaluator.own(mine.shape), active)
    a, b = np.array(circuits.from_bits(mine)), np.array(circuits.from_bits(theirs))
    assert np.array_equal(garbler.read(out, evaluator.skip_read(got)), ((a + b) % 256 >= 128).astype(np.uint8))
