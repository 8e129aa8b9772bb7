"""shared_argmax: the class of the plain scores comes out, to those who are to learn it, and nothing else."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

import blindbayes.protocols.shared_inference as package
from blindbayes.codebook import Categorical, Numeric
from blindbayes.crypto import limbs as lm
from blindbayes.crypto.tweaks import TweakedHash
from blindbayes.errors import IntegrityError, LocalProtocolError, PeerProtocolError, ProtocolError
from blindbayes.protocols.memory import Drop, Duplicate, Replace, Tamper, local_runs, run_in_memory
from blindbayes.protocols.shared_inference import query as argmax_query
from blindbayes.protocols.shared_inference import references
from blindbayes.protocols.shared_inference.messages import (
    ArgmaxGarbled,
    ClassesTold,
    EntriesChosen,
    EntriesMasked,
    LabelsReturned,
    ScoresChosen,
    ScoresHanded,
)
from blindbayes.protocols.shared_inference.query import SharedArgmaxSetup
from blindbayes.protocols.shared_inference.roles import attribute_holder, class_holder
from blindbayes.protocols.shared_training.shared_model import score
from blindbayes.statistics import CodedRows
from blindbayes.wire import decode
from blindbayes.wire.transcript import Keep
from support.argmax import Setup, with_classes
from support.columns import MIXED, book, to_scores
from support.two_party import coins

SPEC = tomllib.loads((Path(package.__file__).parent / "SPEC.md").read_text().split("```toml\n", 1)[1].split("```", 1)[0])
WIDE = book([Numeric("x", -1e6, 1e6, 0.001), Categorical("v", ("0", "1", "2"))], floor=1e-9)


@pytest.mark.parametrize("classes", [2, 3, 4, 5, 6, 9])
def test_the_class_is_that_of_the_plain_scores(classes):
    setup = Setup(with_classes(classes), 60)
    outcome = setup.run()
    expected = setup.expected()
    assert len(set(expected.tolist())) > 1
    for party in setup.parties:
        assert np.array_equal(outcome.outputs[party], expected)
        assert outcome.opened[party] == ("class",)
    assert SPEC["opened"] == ["class"]


@pytest.mark.parametrize("classes", [2, 3, 5, 7])
def test_ties_go_to_the_class_listed_first(classes):
    setup = Setup(with_classes(classes), 120, small=True)
    setup.local = lambda: np.zeros((120, classes - 1, setup.plan.limbs), dtype=np.uint64)
    total = to_scores(score(setup.plain, setup.block.columns, setup.plan, 120), setup.plan)
    best = np.maximum(total.max(axis=1), 0)
    assert sum((np.append(row, 0) == top).sum() > 1 for row, top in zip(total, best, strict=True)) > 5  # ties do occur
    assert np.array_equal(setup.run().outputs["class"], setup.expected())


@pytest.mark.parametrize("rows", [1, 2, 33])
def test_scores_wider_than_64_bits(rows):
    setup = Setup(WIDE, rows)
    assert setup.plan.limbs == 2
    assert np.array_equal(setup.run().outputs["attributes"], setup.expected())


def test_missing_values_and_every_kind_of_feature():
    setup = Setup(MIXED, 300)
    assert np.array_equal(setup.run().outputs["class"], setup.expected())
    gone = {
        name: np.full(300, -1 if own.entries > 2 or name in ("size", "height") else np.iinfo(np.int64).min)
        for name, own in setup.plan.features.items()
    }
    outcome = setup.run(columns=gone)
    setup.block = CodedRows(None, gone, 300)
    assert np.array_equal(outcome.outputs["class"], setup.expected())  # only the local part is left


def test_a_batch_in_chunks_gives_the_same_classes_in_the_same_rounds(monkeypatch):
    setup = Setup(with_classes(3), 50)
    whole = setup.run()
    monkeypatch.setattr(argmax_query, "_MAX_CHUNK", 7)
    cut = setup.run()
    assert np.array_equal(whole.outputs["class"], cut.outputs["class"])
    assert whole.cost.rounds == cut.cost.rounds == SPEC_NUMBER("rounds", 8)
    assert whole.cost.messages == SPEC_NUMBER("messages", 1)
    assert cut.cost.messages == SPEC_NUMBER("messages", 8)


def SPEC_NUMBER(name, chunks, holders=1):
    return eval(SPEC[name], {}, {"chunks": chunks, "holders": holders})


def test_five_round_trips_are_enough_with_the_transfers_of_a_first_query_included():
    assert SPEC_NUMBER("rounds", 1) + 3 <= 2 * 5  # `transfer` takes 3 rounds, once
    assert SPEC_NUMBER("rounds", 1, 7) <= 2 * 5  # whatever the number of holders


@pytest.mark.parametrize("learner", ["class", "attributes"])
def test_only_the_named_party_learns(learner):
    setup = Setup(with_classes(3), 40)
    outcome = setup.run((learner,))
    other = "attributes" if learner == "class" else "class"
    assert np.array_equal(outcome.outputs[learner], setup.expected())
    assert outcome.outputs[other] is None
    assert outcome.opened == {learner: ("class",), other: ()}
    if learner == "attributes":
        assert outcome.cost.rounds == 5
        assert not any(entry.kind is LabelsReturned for entry in outcome.transcript.entries)


def test_the_other_party_gets_no_tags():
    setup = Setup(with_classes(3), 40)
    seen = []

    def look(message):
        seen.append(len(message.tags))
        return message

    setup.run(("class",), faults=[Replace(lambda entry: entry.kind is ArgmaxGarbled, look)])
    setup.run(("attributes",), faults=[Replace(lambda entry: entry.kind is ArgmaxGarbled, look)])
    assert seen == [0, 2 * 2 * 40]


def test_more_holders_hand_their_shares_to_the_first():
    setup = Setup(MIXED, 80, holders=("first", "second", "third"))
    outcome = setup.run()
    for party in setup.parties:
        assert np.array_equal(outcome.outputs[party], setup.expected())
    assert (outcome.cost.rounds, outcome.cost.messages) == (SPEC_NUMBER("rounds", 1, 3), SPEC_NUMBER("messages", 1, 3))
    handed = [entry for entry in outcome.transcript.entries if entry.kind is ScoresHanded]
    assert {(entry.sender, entry.to) for entry in handed} == {("second", "first"), ("third", "first")}
    only = setup.run(("first",))
    assert only.outputs["class"] is None
    assert only.outputs["second"] is None
    assert np.array_equal(only.outputs["first"], setup.expected())


def test_what_a_coalition_learns_of_another_holder(monkeypatch):
    """SPEC: the class holder and the first holder together get another holder's part of the scores; either alone, noise."""
    setup = Setup(MIXED, 40, holders=("first", "second"))
    served, genuine = {}, references.serve

    def watched(query, holder, *rest):
        served[holder] = yield from genuine(query, holder, *rest)
        return served[holder]

    monkeypatch.setattr(references, "serve", watched)
    outcome = setup.run(keep=Keep.FRAMES)
    frame = next(e.frame for e in outcome.transcript.entries if e.kind is ScoresHanded)
    handed = decode(frame, ScoresHanded).shares.reshape(40, -1, setup.plan.limbs)
    part = score({name: setup.plain[name] for name in setup.shared["second"]}, setup.block.columns, setup.plan, 40)
    bits = setup.plan.bits
    assert np.array_equal(lm.cut(lm.add(served["second"], handed), bits), lm.cut(part, bits))  # the two together
    for alone in (handed, lm.cut(served["second"], bits)):  # alpha = 2e-9
        found = lm.to_bits(alone.reshape(-1, setup.plan.limbs), bits)
        assert abs(found.mean() - 0.5) * 2 * np.sqrt(found.size) < 6


def test_messages_do_not_depend_on_the_values_in_size_and_look_uniform():
    setup = Setup(with_classes(3), 200)
    sizes, bits = [], []
    for value in (0, 4):
        columns = {"v": np.full(200, value), "x": np.full(200, value - 2)}
        outcome = setup.run(columns=columns, keep=Keep.FRAMES)
        sizes.append([(entry.kind, entry.size) for entry in outcome.transcript.entries])
        chosen = b"".join(e.frame[40:] for e in outcome.transcript.entries if e.kind in (EntriesChosen, ScoresChosen))
        bits.append(np.unpackbits(np.frombuffer(chosen, dtype=np.uint8)))
    assert sizes[0] == sizes[1]
    for found in bits:  # alpha = 2e-9
        assert abs(found.mean() - 0.5) * 2 * np.sqrt(found.size) < 6


def test_a_second_query_with_the_same_transfers_repeats_no_message():
    """The same instances, the same setup, other nonces: masks are fresh, so no difference of two runs shows anything."""
    setup = Setup(with_classes(3), 30)
    query = setup.query()
    frames = []
    for number in range(2):
        runs = local_runs(setup.parties, coins=coins("run"))
        tables = {"attributes": setup.mine}
        ot_senders = {"attributes": setup.links["attributes"][0]}
        share = score(setup.theirs, setup.block.columns, setup.plan, 30)
        outcome = run_in_memory(
            {
                "class": class_holder(runs["class"], query, setup.local(), tables, ot_senders, coins(f"c{number}")),
                "attributes": attribute_holder(
                    runs["attributes"], query, share, setup.block.columns, setup.links["attributes"][1], coins(f"a{number}")
                ),
            },
            keep=Keep.FRAMES,
        )
        frames.append({e.frame for e in outcome.transcript.entries if e.kind is not LabelsReturned})
        assert np.array_equal(outcome.outputs["class"], setup.expected())
    assert not frames[0] & frames[1]


def test_broken_messages_end_in_a_typed_error_and_nothing_is_opened():
    setup = Setup(with_classes(3), 5)
    count = setup.run().cost.messages
    for index in range(count):
        for fault in (
            Drop(index),
            Tamper(index, lambda frame: frame[:-9]),
            Tamper(index, lambda frame: frame + b"\0"),
            Tamper(index, lambda frame: b""),
        ):
            outcome = setup.run(faults=[fault], check=False)
            assert isinstance(outcome.error, ProtocolError) or outcome.lost
            if index < count - 1:  # the last message goes to the class holder, after the other has learned
                assert outcome.opened == {"class": (), "attributes": ()}
            else:
                assert outcome.opened["class"] == ()
    replayed = setup.run(faults=[Duplicate(2)], check=False)
    assert isinstance(replayed.error, ProtocolError) or replayed.unread


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (EntriesChosen, lambda m: EntriesChosen(m.mark, m.corrections[:-1])),
        (EntriesMasked, lambda m: EntriesMasked(m.mark, m.entries[:-1])),
        (ScoresChosen, lambda m: ScoresChosen(m.mark, np.concatenate([m.corrections, m.corrections]))),
        (ArgmaxGarbled, lambda m: ArgmaxGarbled(m.mark, m.tables[:-4], m.tags)),
        (ArgmaxGarbled, lambda m: ArgmaxGarbled(m.mark, m.tables, m.tags[:-1])),
        (LabelsReturned, lambda m: LabelsReturned(m.mark, m.labels[:-1])),
    ],
)
def test_wrong_lengths_name_the_party(kind, change):
    with pytest.raises(PeerProtocolError) as caught:
        Setup(with_classes(3), 5).run(faults=[Replace(lambda entry: entry.kind is kind, change)])
    assert caught.value.party in ("class", "attributes")


@pytest.mark.parametrize("kind", [EntriesChosen, EntriesMasked, ScoresChosen, ArgmaxGarbled, LabelsReturned])
def test_a_message_that_comes_twice_is_refused(kind, monkeypatch):
    monkeypatch.setattr(argmax_query, "_MAX_CHUNK", 5)
    setup = Setup(with_classes(3), 15)
    sent = [entry for entry in setup.run().transcript.entries if entry.kind is kind]
    assert len(sent) == 3
    with pytest.raises(ProtocolError) as caught:
        setup.run(faults=[Duplicate(sent[0].index)])
    assert caught.value.party == sent[0].sender


@pytest.mark.parametrize(
    "kind", [EntriesChosen, EntriesMasked, ScoresHanded, ScoresChosen, ArgmaxGarbled, LabelsReturned, ClassesTold]
)
def test_a_message_of_an_earlier_batch_is_refused_and_its_reader_learns_nothing(kind):
    """The same parties, the same transfers, the same number of instances: only the session tells the two batches apart."""
    setup = Setup(with_classes(3), 6, holders=("first", "second"))
    earlier = setup.run(run_id="earlier", keep=Keep.FRAMES).transcript.entries
    old = next(entry for entry in earlier if entry.kind is kind)
    same = Replace(
        lambda e: e.kind is kind and (e.sender, e.to) == (old.sender, old.to),
        lambda _: decode(old.frame, kind, sender=old.sender),
    )
    outcome = setup.run(run_id="later", faults=[same], check=False)
    assert isinstance(outcome.error, ProtocolError)
    assert outcome.error.party == old.sender
    assert outcome.opened[old.to] == ()


def test_changed_tables_or_labels_are_noticed():
    setup = Setup(with_classes(3), 5)

    def spoil(message):
        return ArgmaxGarbled(message.mark, message.tables ^ np.uint64(1), message.tags)

    with pytest.raises(IntegrityError):
        setup.run(faults=[Replace(lambda entry: entry.kind is ArgmaxGarbled, spoil)])
    with pytest.raises(IntegrityError):
        setup.run(
            faults=[
                Replace(lambda entry: entry.kind is LabelsReturned, lambda m: LabelsReturned(m.mark, m.labels ^ np.uint64(4)))
            ]
        )


def test_tags_that_were_not_asked_for_are_refused():
    setup = Setup(with_classes(3), 5)
    extra = Replace(lambda e: e.kind is ArgmaxGarbled, lambda m: ArgmaxGarbled(m.mark, m.tables, np.zeros(20, dtype=np.uint64)))
    with pytest.raises(PeerProtocolError):
        setup.run(("class",), faults=[extra])


def test_own_mistakes_are_local_errors():
    setup = Setup(with_classes(3), 5)
    plan = setup.plan
    for count, holders, learners in (
        (0, ("a",), ("a",)),
        (1, (), ("c",)),
        (1, ("c",), ("c",)),
        (1, ("a",), ()),
        (1, ("a",), ("stranger",)),
        (1, ("a", "b"), ("b",)),
    ):
        with pytest.raises(LocalProtocolError):
            SharedArgmaxSetup(plan, count, "c", holders, {}, learners)
    setup.local = lambda: np.zeros((4, 2, 1), dtype=np.uint64)
    with pytest.raises(LocalProtocolError):
        setup.run()


def test_every_chunk_has_hash_keys_of_its_own(monkeypatch):
    """Security falls with the number of hashes under one key: look-ups and comparisons of a chunk have one each."""
    keys, genuine = [], TweakedHash.for_block
    monkeypatch.setattr(
        TweakedHash, "for_block", lambda session, index: keys.append((session, index)) or genuine(session, index)
    )
    monkeypatch.setattr(argmax_query, "_MAX_CHUNK", 8)
    setup = Setup(with_classes(3), 30)
    assert np.array_equal(setup.run().outputs["class"], setup.expected())
    assert len(set(keys)) == 2 * 4
    assert all(keys.count(key) == 2 for key in keys)
