"""Base transfers, their extension, and pads."""

import numpy as np
import pytest

from blindbayes.crypto import ristretto
from blindbayes.crypto.ot import base as ot
from blindbayes.crypto.ot import softspoken
from blindbayes.crypto.ot.softspoken import CORRECTION_BYTES, OtSenderSetup, correction_words, plant
from blindbayes.crypto.tweaks import Domain, TweakedHash
from blindbayes.errors import IntegrityError, LocalProtocolError, PeerProtocolError
from support.two_party import RecordingHash, anew, coins, transfer_pair


def test_base_transfer_gives_the_chosen_key_and_not_the_other():
    bits = np.array([0, 1, 1, 0, 1], dtype=np.uint8)
    choice = ot.choose_base(bits, b"s", coins("a"))
    point, keys = ot.answer_base(choice.points, 5, b"s", coins("b"))
    got = choice.finish(point)
    for bit, key, both in zip(bits, got, keys, strict=True):
        assert key == both[bit]
        assert key != both[1 - bit]
    assert len({key for both in keys for key in both}) == 10


def test_base_keys_are_bound_to_the_session():
    bits = np.array([0, 1], dtype=np.uint8)
    choice = ot.choose_base(bits, b"s", coins("a"))
    point, keys = ot.answer_base(choice.points, 2, b"another", coins("b"))
    assert not set(choice.finish(point)) & {key for both in keys for key in both}


def test_points_do_not_show_the_choice():
    """Either half of the pair may be the one with a known logarithm: both are distinct points, whatever the bit."""
    points = {}
    for bit in (0, 1):
        choice = ot.choose_base(np.full(64, bit, dtype=np.uint8), b"s", coins("a"))
        points[bit] = [choice.points[32 * i : 32 * i + 32] for i in range(128)]
        assert len(set(points[bit])) == 128
    # With the same coins the two bits swap halves in distribution; a parity bit of the encoding must not tell them apart.
    means = [np.mean([p[1] & 1 for p in points[bit][::2]]) for bit in (0, 1)]
    assert abs(means[0] - means[1]) < 0.45


@pytest.mark.parametrize("position", [0, 1, 255])
def test_a_bad_base_point_is_refused(position):
    setup = OtSenderSetup.begin(b"s", coins("a"))
    points = bytearray(setup.choice.points)
    points[32 * position : 32 * position + 32] = bytes(32)
    with pytest.raises(PeerProtocolError, match="mallory"):
        plant(bytes(points), b"s", coins("b"), "mallory")


def test_wrong_lengths_and_a_bad_answer_are_refused():
    setup = OtSenderSetup.begin(b"s", coins("a"))
    with pytest.raises(PeerProtocolError):
        plant(setup.choice.points[:-1], b"s", coins("b"))
    _, point, corrections = plant(setup.choice.points, b"s", coins("b"))
    assert len(corrections) == CORRECTION_BYTES
    with pytest.raises(PeerProtocolError):
        setup.finish(point, corrections[:-1])
    with pytest.raises(PeerProtocolError):
        setup.finish(ristretto.IDENTITY, corrections)


@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 70_001])
def test_extension_correlates(count):
    ot_sender, ot_receiver = transfer_pair()
    chooser, sender = ot_receiver.session(b"x"), ot_sender.session(b"x")
    bits = np.frombuffer(coins("bits").bytes(count), dtype=np.uint8) & 1
    for _ in range(2):  # the streams go on
        corrections, t = chooser.extend(bits)
        assert len(corrections) == correction_words(count)
        q = sender.extend(corrections, count)
        assert np.array_equal(t, q ^ (ot_sender.delta * bits[:, None].astype(np.uint64)))
    assert ot_sender.delta[0] & np.uint64(1)


def test_extension_correlates_on_both_sides_of_the_streams_head():
    ot_sender, ot_receiver = transfer_pair()
    chooser, sender = ot_receiver.session(b"x"), ot_sender.session(b"x")
    seen = []
    for count in (128, 3000, 900, 2000, 100, 1):  # the head serves 4,096 transfers, the ciphers the rest
        bits = np.frombuffer(coins(f"bits {count}").bytes(count), dtype=np.uint8) & 1
        corrections, t = chooser.extend(bits)
        q = sender.extend(corrections, count)
        assert np.array_equal(t, q ^ (ot_sender.delta * bits[:, None].astype(np.uint64)))
        seen.append(t)
    joined = np.concatenate(seen)
    assert len(np.unique(joined, axis=0)) == len(joined)  # no stretch of a stream comes twice


def test_the_head_of_every_leaf_has_tweaks_of_its_own(monkeypatch):
    ot_sender, ot_receiver = transfer_pair()
    made = []

    def recording(session):
        made.append(RecordingHash(session))
        return made[-1]

    monkeypatch.setattr(softspoken, "TweakedHash", recording)
    chosen, sent = ot_receiver.session(b"x"), ot_sender.session(b"x")
    for _ in range(16):  # two blocks of every leaf at a time
        sent.extend(chosen.extend(np.zeros(128, dtype=np.uint8))[0], 128)
    chooser, sender = (each.seen for each in made)
    assert set(chooser.values()) == {1}
    assert len(chooser) == softspoken.TREES * softspoken.LEAVES * 32
    assert chooser == sender  # the missing leaves are hashed too, of zeros, and thrown away


def test_sessions_give_unrelated_streams_and_corrections_hide_the_bits():
    ot_sender, ot_receiver = transfer_pair()
    bits = np.zeros(4096, dtype=np.uint8)
    first, _ = ot_receiver.session(b"1").extend(bits)
    second, _ = ot_receiver.session(b"2").extend(bits)
    again, _ = anew(ot_receiver).session(b"1").extend(bits)
    assert np.array_equal(first, again)  # which is why a session's name is taken once
    for side in (ot_receiver, ot_sender):
        side.session(b"3")
        with pytest.raises(LocalProtocolError, match="name of an earlier one"):
            side.session(b"3")
    assert not set(first.tolist()) & set(second.tolist())
    ones, size = int(np.unpackbits(first.view(np.uint8)).sum()), 64 * len(first)
    assert abs(ones - size / 2) < 6 * np.sqrt(size) / 2  # six standard deviations: alpha = 2e-9
    with pytest.raises(IntegrityError, match="bob"):  # corrections of another session do not correlate
        ot_sender.session(b"2").extend(first, 4096, "bob")


def test_corrections_of_a_wrong_length_are_refused():
    ot_sender, ot_receiver = transfer_pair()
    corrections, _ = ot_receiver.session(b"x").extend(np.zeros(256, dtype=np.uint8))
    with pytest.raises(PeerProtocolError, match="bob"):
        ot_sender.session(b"x").extend(corrections[:-1], 256, "bob")


@pytest.mark.parametrize(("entries", "width"), [(2, 1), (2, 2), (3, 2), (5, 3), (16, 4), (17, 5)])
def test_the_chooser_computes_one_pad_and_every_hash_has_its_own_tweak(entries, width):
    ot_sender, ot_receiver = transfer_pair()
    rows = 300
    choices = coins("choices").words(rows) % np.uint64(entries)
    bits = ot.choice_bits(choices, entries)
    corrections, t = ot_receiver.session(b"x").extend(bits)
    q = ot_sender.session(b"x").extend(corrections, bits.size)
    shape = (rows, ot.bits_for(entries), 2)
    sender_hash, chooser_hash = RecordingHash(b"x"), RecordingHash(b"x")
    pads = ot.sender_pads(sender_hash, q.reshape(shape), ot_sender.delta, entries, width)
    got = ot.chooser_pads(chooser_hash, t.reshape(shape), choices, entries, width)
    assert np.array_equal(got, pads[choices.astype(int), np.arange(rows)])
    assert len(np.unique(pads)) == pads.size  # no pad repeats, so no unchosen pad equals a chosen one
    assert set(sender_hash.seen.values()) == {1}
    assert chooser_hash.seen.keys() <= sender_hash.seen.keys()
    assert sender_hash.reserve(Domain.TRANSFER, 1) == chooser_hash.reserve(Domain.TRANSFER, 1)


def test_the_hash_is_tmmo_of_the_session():
    """H(x, i) = P(P(x) ^ i) ^ P(x), and another session has another P."""
    hash_ = TweakedHash(b"s")
    x = coins("x").words(8).reshape(4, 2)
    tweak = np.array([[7, int(Domain.GATE)]] * 4, dtype=np.uint64)
    inner = hash_.permute(x)
    assert np.array_equal(
        hash_.at(x, Domain.GATE, np.full(4, 7, dtype=np.uint64)), hash_.permute(np.ascontiguousarray(inner ^ tweak)) ^ inner
    )
    assert not np.array_equal(inner, TweakedHash(b"t").permute(x))
    # The trap that TMMO avoids: with H(x, i) = P(x ^ i) ^ x ^ i equal x ^ i would give equal hashes.
    shifted = x.copy()
    shifted[:, 0] ^= np.uint64(1)
    assert not np.array_equal(hash_.run(x, Domain.GATE, 0)[0], hash_.run(shifted, Domain.GATE, 1)[0])
