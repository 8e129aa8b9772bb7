"""The comparison by one-of-n transfers: the same classes as the garbled one, in fewer bytes."""

import tomllib
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

import blindbayes.protocol.shared_argmax as package
from blindbayes.codebook import Categorical, Numeric
from blindbayes.errors import IntegrityError, LocalProtocolError, PeerProtocolError, ProtocolError
from blindbayes.protocol.core import Send, mark, receive
from blindbayes.protocol.digits import pack
from blindbayes.protocol.shared_argmax import query as argmax_query
from blindbayes.protocol.shared_argmax.by_transfers import _Shares
from blindbayes.protocol.shared_argmax.compare_all import UNREADABLE
from blindbayes.protocol.shared_argmax.levels import levels
from blindbayes.protocol.shared_argmax.messages import LevelCompared, OutputsShared
from blindbayes.protocol.shared_model import score
from blindbayes.protocol.transfer.messages import SessionOffered
from blindbayes.protocol.transfer.roles import agree
from blindbayes.transport.memory import Drop, Duplicate, Replace, Tamper
from blindbayes.wire import decode
from blindbayes.wire.transcript import Keep
from support.argmax import Setup, with_classes
from support.columns import MIXED, book, to_scores
from support.two_party import coins, let_proofs_hold

WIDE = book([Numeric("x", -1e6, 1e6, 0.001), Categorical("v", ("0", "1", "2"))], floor=1e-9)


def narrow(book, rows, **options):
    return Setup(book, rows, by_transfers=True, **options)


@pytest.mark.parametrize("classes", [2, 3, 4, 5, 6, 9, 18])
def test_the_class_is_that_of_the_plain_scores(classes):
    setup = narrow(with_classes(classes), 60)
    outcome, expected = setup.run(), setup.expected()
    assert len(set(expected.tolist())) > 1
    for party in setup.parties:
        assert np.array_equal(outcome.outputs[party], expected)
        assert outcome.opened[party] == ("class",)


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_ties_go_to_the_class_listed_first(classes):
    setup = narrow(with_classes(classes), 120, small=True)
    setup.local = lambda: np.zeros((120, classes - 1, setup.plan.limbs), dtype=np.uint64)
    total = to_scores(score(setup.plain, setup.block.columns, setup.plan, 120), setup.plan)
    best = np.maximum(total.max(axis=1), 0)
    assert sum((np.append(row, 0) == top).sum() > 1 for row, top in zip(total, best, strict=True)) > 5  # ties do occur
    assert np.array_equal(setup.run().outputs["class"], setup.expected())


@pytest.mark.parametrize("rows", [1, 33])
def test_scores_wider_than_64_bits(rows):
    setup = narrow(WIDE, rows)
    assert setup.plan.limbs == 2
    assert np.array_equal(setup.run().outputs["attributes"], setup.expected())


def test_every_kind_of_feature_several_holders_and_chunks(monkeypatch):
    setup = narrow(MIXED, 50, holders=("attributes", "more"))
    whole = setup.run()
    assert np.array_equal(whole.outputs["more"], setup.expected())
    monkeypatch.setattr(argmax_query, "_MAX_CHUNK", 7)
    cut = setup.run()
    assert np.array_equal(cut.outputs["class"], setup.expected())
    assert cut.cost.rounds == whole.cost.rounds


SPEC = tomllib.loads((Path(package.__file__).parent / "SPEC.md").read_text().split("```toml\n", 1)[1].split("```", 1)[0])


@pytest.mark.parametrize(("holders", "cut"), [(1, 50), (1, 7), (2, 50), (3, 50)])
def test_what_it_costs_is_as_the_spec_says(holders, cut, monkeypatch):
    monkeypatch.setattr(argmax_query, "_MAX_CHUNK", cut)
    many = book([Categorical(f"v{at}", ("0", "1")) for at in range(holders)])
    setup = narrow(many, 50, holders=("attributes", "more", "last")[:holders])
    cost, steps = setup.run().cost, levels(setup.plan.bits, setup.plan.classes)
    facts = {"holders": holders, "chunks": -(-50 // cut), "levels": len(steps)}
    assert cost.rounds == eval(SPEC["by_transfers"]["rounds"], {}, facts)
    assert cost.messages == eval(SPEC["by_transfers"]["messages"], {}, facts)


@pytest.mark.parametrize(("bits", "classes", "size"), [(35, 3, 853), (53, 3, 1255)])
def test_an_instance_takes_a_quarter_of_the_bytes_of_a_garbled_one(bits, classes, size):
    each = sum(step.rows * (4 * step.bits + (step.entries - 1) * step.width / 8) for step in levels(bits, classes))
    pairs = classes * (classes - 1) // 2
    assert each == pytest.approx(size, abs=1)
    assert each < 0.27 * 36 * pairs * bits


def test_every_number_of_digits_and_classes_ends_in_one():
    for bits in range(2, 128):
        for classes in (2, 3, 5, 8, 33):
            steps = levels(bits, classes)
            assert len(steps) <= 1 + 4 + 3
            assert all(step.bits <= 5 for step in steps)


@pytest.mark.parametrize("learner", ["class", "attributes"])
def test_only_the_named_party_learns_and_nobody_else_gets_a_share(learner):
    setup = narrow(with_classes(3), 40)
    outcome, other = setup.run((learner,)), "attributes" if learner == "class" else "class"
    assert np.array_equal(outcome.outputs[learner], setup.expected())
    assert outcome.outputs[other] is None
    shared = [entry for entry in outcome.transcript.entries if entry.kind is OutputsShared]
    assert [entry.to for entry in shared] == [learner]


def test_broken_messages_end_in_a_typed_error_and_nothing_is_opened():
    setup = narrow(with_classes(3), 5)
    count = setup.run().cost.messages
    for index in range(count):
        for fault in (Drop(index), Tamper(index, lambda frame: frame[:-9]), Tamper(index, lambda frame: b"")):
            outcome = setup.run(faults=[fault], check=False)
            assert isinstance(outcome.error, ProtocolError) or outcome.lost
            if index < count - 2:  # the last two are shares of the class, each for one party
                assert outcome.opened == {"class": (), "attributes": ()}
    replayed = setup.run(faults=[Duplicate(count - 4)], check=False)
    assert isinstance(replayed.error, ProtocolError) or replayed.unread


def changed(kind, sender, change, **options):
    return narrow(with_classes(3), 60, **options).run(
        faults=[Replace(lambda entry: entry.kind is kind and entry.sender == sender, change)]
    )


@pytest.mark.parametrize("sender", ["class", "attributes"])
@pytest.mark.parametrize(
    ("kind", "field"), [(LevelCompared, "masked"), (LevelCompared, "corrections"), (OutputsShared, "bits")]
)
def test_wrong_lengths_name_the_party(kind, field, sender):
    def longer(message):
        return msgspec.structs.replace(message, **{field: np.append(getattr(message, field), np.uint64(0))})

    with pytest.raises(PeerProtocolError) as caught:
        changed(kind, sender, longer)
    assert caught.value.party == sender


@pytest.mark.parametrize("sender", ["class", "attributes"])
def test_a_position_that_is_no_class_stays_unread_and_nobody_is_told(sender):
    """Who deviates flips its shares of all bits: an instance of the first of three classes has position 3 then."""
    expected = narrow(with_classes(3), 60).expected()
    outcome = changed(OutputsShared, sender, lambda m: OutputsShared(m.mark, m.bits ^ ~np.uint64(0)))
    found = outcome.outputs["attributes" if sender == "class" else "class"]
    assert 0 in expected
    assert np.array_equal(found == UNREADABLE, expected == 0)


@pytest.mark.parametrize("sender", ["class", "attributes"])
def test_flipped_choices_are_caught_before_an_answer(sender):
    def flip(message):
        corrections = message.corrections.copy()
        corrections[: len(corrections) // 2] ^= np.uint64(1)
        return msgspec.structs.replace(message, corrections=corrections)

    with pytest.raises(IntegrityError) as caught:
        changed(LevelCompared, sender, flip)
    assert caught.value.party == sender


@pytest.mark.parametrize("small", [False, True])
def test_what_the_levels_send_is_uniform_whatever_the_scores_are(small):
    received = []

    def look(message):
        received.append(message.masked)
        return message

    for party in ("class", "attributes"):
        changed(LevelCompared, party, look, small=small)
    bits = np.unpackbits(np.concatenate([words[:-1] for words in received]).view(np.uint8))  # the last word is padded
    assert len(bits) > 50_000
    assert abs(int(bits.sum()) - len(bits) / 2) < 3 * len(bits) ** 0.5  # six standard deviations


def test_with_audits_or_all_parties_it_is_refused():
    query = narrow(with_classes(3), 5).query()
    for option in ({"audit_rate": 0.1}, {"compare_all": True}):
        with pytest.raises(LocalProtocolError, match="not audited"):
            replace(query, **option)


def test_without_transfers_in_both_directions_nothing_is_sent():
    setup = narrow(with_classes(3), 5)
    setup.back = (None, None)
    with pytest.raises(LocalProtocolError, match="both directions"):
        setup.run()


@pytest.mark.parametrize("party", ["class", "attributes"])
@pytest.mark.parametrize("given", ["learned", "other"])
def test_either_party_sees_the_class_and_nothing_else(party, given, monkeypatch):
    """A simulator that has the class, or any other, makes all that the party receives: lengths are public, contents uniform."""
    let_proofs_hold(monkeypatch)
    setup = narrow(with_classes(3), 40)
    real = setup.run(keep=Keep.FRAMES)
    classes = real.outputs[party] if given == "learned" else (real.outputs[party] + 1) % 3
    position = np.stack([classes & 1, classes >> 1]).astype(np.uint8)
    source, other, seen = coins("simulator"), next(name for name in setup.parties if name != party), []
    outputs = _Shares.outputs.fget
    monkeypatch.setattr(_Shares, "outputs", property(lambda self: seen.append(outputs(self)) or seen[-1]))

    def simulator(run, shares):
        session = yield from agree(run, party, "shared_argmax", setup.query().facts(), coins("sim"))
        for sent in (entry for entry in real.transcript.entries if entry.kind is not SessionOffered):
            if sent.to != party:
                yield from receive(party, sent.kind)
                continue
            shown = decode(sent.frame, sent.kind)
            places[sent.kind] = places.get(sent.kind, -1) + 1
            at = places[sent.kind] * 2 + (party == "attributes") if sent.kind is LevelCompared else 0
            at = int(party == "class") if sent.kind is OutputsShared else at
            fields = {name: made(name, getattr(shown, name)) for name in sent.kind.__struct_fields__ if name != "mark"}
            if sent.kind is OutputsShared and shares is not None:
                fields["bits"] = pack(position ^ shares)
            yield Send(party, sent.kind(mark(session, sent.kind, at), **fields))

    def made(name, words):
        return source.derive(name).words(len(words))

    def against(shares):
        places.clear()
        setup.other_role = lambda run: simulator(run, shares)
        return setup.run(replaced=other, keep=Keep.FRAMES, check=False)

    places = {}
    against(None)
    simulated = against(seen[-1])
    assert simulated.error is None
    assert np.array_equal(simulated.outputs[party], classes)
    sizes = [[(entry.kind, entry.size) for entry in each.transcript.entries if entry.to == party] for each in (real, simulated)]
    assert [kind for kind, _ in sizes[0]] == [kind for kind, _ in sizes[1]]
    assert all(abs(a - b) <= 8 for (_, a), (_, b) in zip(*sizes, strict=True))
