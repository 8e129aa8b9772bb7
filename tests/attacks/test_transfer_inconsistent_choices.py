"""A chooser that corrects its trees to different choices, in every protocol that extends transfers.

Without a check, 32 flipped bits gave the other's whole offset away, and with it every label, table and row under it (the attack
runs below, on a sender that lets every proof hold). Now they end in an `IntegrityError` before the sender answers.
"""

import numpy as np
import pandas as pd
import pytest

from blindbayes import ColumnStudy, JoinStudy
from blindbayes.codebook import Categorical, Codebook, Numeric
from blindbayes.crypto.garbling.garbling import Evaluator
from blindbayes.crypto.ot import softspoken
from blindbayes.crypto.ot.softspoken import KEY_BYTES, TREES, OtSenderSetup, plant
from blindbayes.crypto.psi import oprf
from blindbayes.crypto.psi.cuckoo import MIN_ITEMS
from blindbayes.crypto.psi.oprf import WIDTH, Asker, Owner, codewords, hashed
from blindbayes.crypto.tweaks import Domain, TweakedHash
from blindbayes.errors import IntegrityError, PeerProtocolError
from blindbayes.protocols.core import Send, mark, receive
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.protocols.private_join.matching import MatchingSetup, asker, owner
from blindbayes.protocols.shared_inference import comparing
from blindbayes.protocols.shared_inference import roles as argmax
from blindbayes.protocols.shared_inference.messages import ArgmaxGarbled, ScoresChosen
from blindbayes.protocols.shared_training.shared_model import score
from blindbayes.protocols.shared_training.shared_model.messages import ModelGarbled, SumsChosen
from blindbayes.protocols.two_party.transfer.roles import agree
from blindbayes.statistics import CodedRows, Layout, count_block
from blindbayes_papers.vaidya2008.opened_ratio import roles as opened_ratio
from support.argmax import Setup, with_classes
from support.columns import MIXED, Case, draw_block
from support.two_party import anew, coins, let_proofs_hold, transfer_pair

# -- the checks themselves ---------------------------------------------------------------------------------------------------


def nibble(delta, tree):
    return (int(delta.view(np.uint8)[tree // 2]) >> (4 * (tree % 2))) & 15


def flipping(*trees, at=3):
    """The corrections of some trees are to other choices; the proof is made from them, as a clever cheat would."""
    genuine = softspoken._correct

    def corrected(rest, packed):
        genuine(rest, packed)
        rest[list(trees), at] ^= np.uint8(4)

    return corrected


class Cheat:
    """Corrects all trees to different choices in one call of the extension; counts the calls."""

    def __init__(self, monkeypatch, number):
        self.calls = 0
        genuine = softspoken._correct

        def corrected(rest, packed):
            genuine(rest, packed)
            if self.calls == number:
                for tree in range(TREES):
                    rest[tree, tree % 8] ^= np.uint8(1 << (tree // 8))
            self.calls += 1

        monkeypatch.setattr(softspoken, "_correct", corrected)


@pytest.mark.parametrize("name", ["one", "two", "three"])
def test_a_flipped_bit_passes_only_if_the_offset_has_zeros_there(name, monkeypatch):
    """That is all that a failure tells: whether the four bits were what the chooser guessed (zeros, here)."""
    bits = np.frombuffer(coins("bits").bytes(500), dtype=np.uint8) & 1
    caught = 0
    for tree in range(TREES):
        ot_sender, ot_receiver = transfer_pair(name)
        with monkeypatch.context() as patch:
            patch.setattr(softspoken, "_correct", flipping(tree))
            corrections, t = ot_receiver.session(b"x").extend(bits)
        sender = ot_sender.session(b"x")
        if nibble(ot_sender.delta, tree) == 0:
            assert np.array_equal(sender.extend(corrections, 500), t ^ (ot_sender.delta * bits[:, None].astype(np.uint64)))
            continue
        caught += 1
        with pytest.raises(IntegrityError, match="mallory"):
            sender.extend(corrections, 500, "mallory")
        with pytest.raises(PeerProtocolError, match=r"mallory.*anew"):  # the offset is given up, in this session
            sender.extend(ot_receiver.session(b"y").extend(bits)[0], 500, "mallory")
        with pytest.raises(PeerProtocolError, match="anew"):  # and in every other
            ot_sender.session(b"y")
    assert caught > TREES // 2


def test_any_changed_byte_of_a_proof_or_a_correction_is_noticed():
    bits = np.frombuffer(coins("bits").bytes(300), dtype=np.uint8) & 1
    ot_sender, ot_receiver = transfer_pair()
    corrections, _ = ot_receiver.session(b"x").extend(bits)
    for at in [0, 8 * len(corrections) // 2, *range(8 * len(corrections) - 52, 8 * len(corrections), 5)]:
        changed = corrections.copy()
        changed.view(np.uint8)[at] ^= 1
        with pytest.raises(IntegrityError):
            anew(ot_sender).session(b"x").extend(changed, 300)
    anew(ot_sender).session(b"x").extend(corrections, 300)


def test_every_piece_of_a_long_extension_is_checked(monkeypatch):
    monkeypatch.setattr(softspoken, "_AT_ONCE", 256)
    bits = np.frombuffer(coins("bits").bytes(700), dtype=np.uint8) & 1
    for wrong in range(3):
        ot_sender, ot_receiver = transfer_pair()
        with monkeypatch.context() as patch:
            cheat = Cheat(patch, wrong)
            corrections, _ = ot_receiver.session(b"x").extend(bits)
        assert cheat.calls == 3
        with pytest.raises(IntegrityError):
            ot_sender.session(b"x").extend(corrections, 700)


def test_trees_that_differ_with_the_offset_are_noticed():
    """A wrong level sum reaches those keepers whose path takes the other side: they must not go on as if nothing were."""
    caught = passed = 0
    for index in range(0, 128, 9):
        for side in (0, 1):
            setup = OtSenderSetup.begin(b"s", coins("keeper"))
            _, point, corrections = plant(setup.choice.points, b"s", coins("planter"))
            changed = bytearray(corrections)
            changed[(2 * index + side) * KEY_BYTES] ^= 1
            if setup.choice.bits[index] == side:
                caught += 1
                with pytest.raises(IntegrityError, match="mallory"):
                    setup.finish(point, bytes(changed), "mallory")
            else:
                passed += 1
                setup.finish(point, bytes(changed), "mallory")
    assert caught == passed


# -- questions of the oblivious function -----------------------------------------------------------------------------------


def function_pair():
    source = coins("function")
    bits = np.unpackbits(np.frombuffer(source.bytes(WIDTH // 8), dtype=np.uint8))
    seeds = source.words(4 * WIDTH).reshape(2, WIDTH, 2)
    return Asker(b"session of the test", seeds), Owner(b"session of the test", bits, seeds[bits, np.arange(WIDTH)]), bits


def off_by_one_code(items):
    """Codewords, but for one bit: bin j has bit j flipped."""
    code = codewords(items)
    count = min(len(items), WIDTH)
    where = np.arange(count)
    code[where, where // 64] ^= np.uint64(1) << (where % 64).astype(np.uint64)
    return code


def test_bins_that_are_one_bit_off_a_codeword_open_the_owners_secret_unless_checked(monkeypatch):
    """The attack: F_j of a known item is H(t_j) or H(t_j with one bit flipped), as the owner's bit of that place says."""
    items = coins("items").words(2 * WIDTH).reshape(WIDTH, 2)
    bins = np.arange(WIDTH)

    def read(owner):
        attacker, _, _ = function_pair()
        with monkeypatch.context() as patch:
            patch.setattr(oprf, "codewords", off_by_one_code)
            sent, own = attacker.ask(items)
        values = owner.evaluate(owner.answer(sent, WIDTH, "mallory"), codewords(items), bins, 2)
        return (values != hashed(b"session of the test", own, bins, 2)).any(axis=1)

    _, victim, bits = function_pair()
    with monkeypatch.context() as patch:
        let_proofs_hold(patch)
        assert np.array_equal(read(victim), bits == 1)
    with pytest.raises(IntegrityError, match="mallory"):
        read(function_pair()[1])


@pytest.mark.parametrize("plane", range(0, WIDTH, 37))
def test_one_wrong_plane_of_questions_passes_only_if_the_owners_bit_is_zero(plane, monkeypatch):
    attacker, victim, bits = function_pair()
    items = coins("items").words(2 * 128).reshape(128, 2)

    def one_wrong(given):
        code = codewords(given)
        if len(code) > 128:
            code[5, plane // 64] ^= np.uint64(1) << np.uint64(plane % 64)
        return code

    with monkeypatch.context() as patch:
        patch.setattr(oprf, "codewords", one_wrong)
        sent, _ = attacker.ask(items)
    if bits[plane]:
        with pytest.raises(IntegrityError):
            victim.answer(sent, 128)
    else:
        victim.answer(sent, 128)


def test_the_code_has_the_distance_that_is_stated():
    """BCH: 110 consecutive powers of a primitive element are roots of the generator, found here by plain field arithmetic."""

    def times(left, right):
        found = 0
        for bit in range(9):
            found ^= (left << bit) if (right >> bit) & 1 else 0
        for bit in range(17, 8, -1):
            found ^= (0b1000010001 << (bit - 9)) if (found >> bit) & 1 else 0
        return found

    powers = [1]
    for _ in range(510):
        powers.append(times(powers[-1], 2))
    assert sorted(powers) == list(range(1, 512))  # 2 is primitive
    generator = oprf.code_generator()
    assert generator.bit_length() - 1 == 511 - 130
    exponents = [at for at in range(generator.bit_length()) if (generator >> at) & 1]
    for root in range(1, 111):
        value = 0
        for exponent in exponents:
            value ^= powers[root * exponent % 511]
        assert value == 0
    items = coins("code").words(2 * 64).reshape(64, 2)
    assert np.array_equal(codewords(items) ^ codewords(items[::-1]), codewords(items ^ items[::-1]))  # linear
    single = np.zeros((128, 2), dtype=np.uint64)
    single[np.arange(128), np.arange(128) // 64] = np.uint64(1) << (np.arange(128) % 64).astype(np.uint64)
    weights = np.unpackbits(codewords(single).view(np.uint8).reshape(128, 64), axis=1).sum(axis=1)
    assert weights.min() >= 112
    assert not (weights % 2).any()


# -- the attack on joint classification ------------------------------------------------------------------------------------


def stealing_evaluator(setup, query, run, ot_receiver, loot):
    """Follows shared_argmax, but enters one wrong bit per tree, each in another instance; guesses 16 values per tree."""
    plan, source = setup.plan, coins("thief")
    session = yield from agree(run, "class", "shared_argmax", query.facts(), source)
    stream, hash_ = ot_receiver.session(session), TweakedHash(session)
    asked = yield from argmax.ask(query, setup.block.columns, run.me, hash_, stream)
    local = score(setup.theirs, setup.block.columns, plan, query.count)
    shares = argmax.lm.add(local, (yield from argmax.hear(query, run.me, asked[0], hash_)))
    bits = argmax.lm.to_bits(comparing.differences(shares, query), plan.bits)
    genuine = softspoken._correct

    def one_per_tree(rest, packed):
        genuine(rest, packed)
        for tree in range(TREES):
            rest[tree, tree // 8] ^= np.uint8(1 << (tree % 8))

    softspoken._correct = one_per_tree
    try:
        corrections, t = stream.extend(bits)
    finally:
        softspoken._correct = genuine
    yield Send("class", ScoresChosen(mark(session, ScoresChosen, 0), corrections))
    garbled = yield from receive("class", ArgmaxGarbled)
    loot["answered"] = True
    labels, before = t.reshape(plan.bits, -1, 2), dict(hash_._next)
    for guess in range(16):
        hash_._next = dict(before)
        tried = labels.copy()
        for tree in range(TREES):
            raw = np.zeros(16, dtype=np.uint8)
            raw[tree // 2] = guess << (4 * (tree % 2))
            tried[0, tree] ^= raw.view(np.uint64)
        for_block = TweakedHash.for_block(hash_.session, comparing._COMPARED)
        evaluator = Evaluator(for_block, "class")
        evaluator.give_tables(garbled.tables)
        out = comparing.circuit(evaluator, evaluator.own(tried.shape[:-1]), tried, query).reshape(-1, 2)
        own = for_block.run(out, Domain.OUTPUT, for_block.reserve(Domain.OUTPUT, len(out)))[:, 0]
        fits = (own == garbled.tags[len(out) :]) | (own == garbled.tags[: len(out)])
        for tree in range(TREES):
            if fits[tree]:
                loot.setdefault("offset", {})[tree] = guess


def steal(setup):
    query, loot = setup.query(), {}
    runs = local_runs(setup.parties, coins=coins("run"))
    ot_sender, ot_receiver = (anew(link) for link in setup.links["attributes"])
    ours = argmax.class_holder(
        runs["class"], query, setup.local(), {"attributes": setup.mine}, {"attributes": ot_sender}, coins("c")
    )
    thief = stealing_evaluator(setup, query, runs["attributes"], ot_receiver, loot)
    outcome = run_in_memory({"class": ours, "attributes": thief}, check=False)
    return outcome, loot, ot_sender.delta


def test_32_flipped_bits_open_the_class_holders_offset_unless_checked(monkeypatch):
    setup = Setup(with_classes(2), 64)
    with monkeypatch.context() as patch:
        let_proofs_hold(patch)
        _, loot, delta = steal(setup)
        assert loot["offset"] == {tree: nibble(delta, tree) for tree in range(TREES)}
    outcome, loot, _ = steal(setup)
    assert isinstance(outcome.error, IntegrityError)
    assert (outcome.failed, outcome.error.party) == ("class", "attributes")
    assert loot == {}  # no answer came


# -- every protocol that extends transfers ---------------------------------------------------------------------------------


PEOPLE = [f"p{at}" for at in range(40)]
BOOK = Codebook(
    "y",
    ("k0", "k1", "k2"),
    (Categorical("a", ("0", "1")), Categorical("b", ("0", "1", "2")), Numeric("x", 0, 9)),
    variance_floor=0.1,
)
TABLE = pd.DataFrame(
    {
        "id": PEOPLE,
        "a": ["0", "1"] * 20,
        "b": ["0", "1", "1", "2"] * 10,
        "x": [float(at % 10) for at in range(40)],
        "y": ["k0", "k1", "k2", "k1"] * 10,
    }
)


def aligned(class_first):
    parts = {"bank": TABLE[["a", "y"]], "clinic": TABLE[["b", "x"]]}
    frames = parts if class_first else dict(reversed(parts.items()))
    model = ColumnStudy(BOOK).simulate(frames, coins=coins("train")).model
    model.predict(
        {party: frame[[name for name in frame if name != "y"]][:3] for party, frame in frames.items()}, coins=coins("q")
    )


def three_together():
    frames = {"bank": TABLE[["a", "y"]], "clinic": TABLE[["b"]], "gym": TABLE[["x"]]}
    model = ColumnStudy(BOOK, options={"compare_all": True}).simulate(frames, coins=coins("train")).model
    model.predict(
        {party: frame[[name for name in frame if name != "y"]][:2] for party, frame in frames.items()}, coins=coins("q")
    )


def joined(to):
    frames = {"bank": TABLE[["id", "a", "y"]][:30], "telecom": TABLE[["id", "b"]][10:]}
    book = Codebook("y", ("k0", "k1", "k2"), (Categorical("a", ("0", "1")), Categorical("b", ("0", "1", "2"))))
    options = {"min_overlap": 3, "overlap_epsilon": 1.0}
    study = JoinStudy(book, key="id", duplicates="first", options=options)
    model = study.simulate(frames, coins=coins("train")).model
    model.score(frames, to=to, scope="shared", coins=coins("q"))


def matched():
    runs, items = local_runs(["alice", "bob"], coins=coins("run")), coins("items").words(80).reshape(40, 2)
    ot_sender, ot_receiver = transfer_pair("matched")
    sizes = MatchingSetup(MIN_ITEMS, MIN_ITEMS)
    run_in_memory(
        {
            "alice": asker(runs["alice"], "bob", sizes, items[:30], ot_sender, coins("a")),
            "bob": owner(runs["bob"], "alice", sizes, items[10:], ot_receiver, coins("b")),
        }
    )


def ratio():
    book = Codebook("y", ("a", "b"), (Categorical("v", ("0", "1")),))
    words = count_block(Layout(book), CodedRows(np.arange(20) % 2, {"v": np.arange(20) % 2}, 20)).words
    runs, ratios = local_runs(["first", "last"], coins=coins("run")), opened_ratio.PrivateRatioSetup(book, "fine")
    first = opened_ratio.first_party(runs["first"], ratios, words, "last", coins("f"))
    last = opened_ratio.second_party(runs["last"], ratios, words, "first", coins("l"))
    run_in_memory({"first": first, "last": last})


SCENES = {
    "aligned": lambda: aligned(True),
    "aligned, class holder last": lambda: aligned(False),
    "three together": three_together,
    "joined, to the class holder": lambda: joined("bank"),
    "joined, to the other": lambda: joined("telecom"),
    "matching": matched,
    "ratio": ratio,
}


@pytest.mark.parametrize("scene", SCENES)
def test_wherever_a_chooser_deviates_the_run_ends_in_an_integrity_error(scene, monkeypatch):
    """Every call of the extension in training and classification, one run for each."""
    with monkeypatch.context() as patch:
        honest = Cheat(patch, -1)
        SCENES[scene]()
    calls = honest.calls
    assert calls >= 1
    chosen = range(calls) if calls <= 8 else sorted({*range(0, calls, -(-calls // 6)), calls - 1})
    for number in chosen:
        with monkeypatch.context() as patch:
            cheat = Cheat(patch, number)
            with pytest.raises(IntegrityError) as caught:
                SCENES[scene]()
            assert caught.value.party is not None
            assert cheat.calls > number


def test_an_attribute_holder_that_flips_bits_in_training_gets_no_answer(monkeypatch):
    """The one message by which the inner join's class holder gave its whole table away: the choices of shared_model."""
    case = Case(MIXED, draw_block(MIXED, 40))
    monkeypatch.setattr(softspoken, "_correct", flipping(*range(TREES)))
    outcome = run_in_memory(case.model_roles(), check=False)
    assert isinstance(outcome.error, IntegrityError)
    assert (outcome.failed, outcome.error.party) == ("class", "attributes")
    kinds = [entry.kind for entry in outcome.transcript.entries]
    assert SumsChosen in kinds
    assert ModelGarbled not in kinds
