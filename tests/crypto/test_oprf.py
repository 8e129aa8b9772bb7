"""The batched function: both sides agree on the asker's items and on nothing else."""

import numpy as np
import pytest
from scipy.stats import binom

from blindbayes.crypto.psi.oprf import WIDTH, Asker, Owner, codewords, hashed
from blindbayes.errors import LocalProtocolError, PeerProtocolError
from support.two_party import coins


def pair(session=b"session of the test", name="pair"):
    source = coins(name)
    bits = np.unpackbits(np.frombuffer(source.bytes(WIDTH // 8), dtype=np.uint8))
    seeds = source.words(4 * WIDTH).reshape(2, WIDTH, 2)
    return Asker(session, seeds), Owner(session, bits, seeds[bits, np.arange(WIDTH)]), session


def test_the_owner_computes_what_the_asker_learned_and_other_items_differ():
    asker, owner, session = pair()
    items = coins("items").words(2 * 320).reshape(320, 2)
    learned, rows = [], []
    for low, high in ((0, 64), (64, 320)):  # streams go on from block to block
        sent, own = asker.ask(items[low:high])
        rows.append(owner.answer(sent, high - low))
        learned.append(hashed(session, own, np.arange(low, high), 3))
    learned, rows = np.concatenate(learned), np.concatenate(rows)
    bins = np.arange(320)
    assert np.array_equal(owner.evaluate(rows, codewords(items), bins, 3), learned)
    assert not (owner.evaluate(rows, codewords(items[::-1]), bins, 3) == learned).any()
    assert not (owner.evaluate(rows, codewords(items), bins[::-1].copy(), 3) == learned).any()
    assert not (owner.evaluate(rows[::-1], codewords(items), bins, 3) == learned).any()


def test_what_is_sent_does_not_repeat_and_does_not_show_the_item():
    first, _, _ = pair()
    second, _, _ = pair(name="other")
    items = np.repeat(coins("item").words(2)[None], 64, axis=0)
    assert not np.intersect1d(first.ask(items)[0], second.ask(items)[0]).size
    sent = first.ask(items)[0]
    assert len(np.unique(sent)) == len(sent)


def test_codewords_are_far_apart():
    """The tail that the docstring states, and a sample of pairs."""
    assert np.log2(binom.cdf(127, WIDTH, 0.5)) < -96
    code = codewords(coins("far").words(2 * 400).reshape(400, 2))
    bits = np.unpackbits(code.view(np.uint8).reshape(400, 64), axis=1).astype(np.int16)
    distance = np.array([(bits[at] != bits[at + 1 :]).sum(axis=1).min() for at in range(399)])
    assert distance.min() >= 128


def test_wrong_lengths_are_refused():
    asker, owner, session = pair()
    with pytest.raises(PeerProtocolError, match="bank"):
        owner.answer(np.zeros(8 * 63, dtype=np.uint64), 64, "bank")
    with pytest.raises(LocalProtocolError):
        asker.ask(np.zeros((65, 2), dtype=np.uint64))
    with pytest.raises(LocalProtocolError):
        hashed(session, np.zeros((1, 8), dtype=np.uint64), np.zeros(1, dtype=np.int64), 1)
