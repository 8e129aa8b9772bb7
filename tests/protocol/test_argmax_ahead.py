"""Material made before the instances come: the same classes with fewer bytes, whatever is left of it."""

import functools
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import blindbayes.protocol.shared_argmax as package
from blindbayes.codebook import Categorical, Numeric
from blindbayes.errors import IntegrityError, PeerProtocolError
from blindbayes.primitives.tweaks import TweakedHash
from blindbayes.protocol.shared_argmax import ahead
from blindbayes.protocol.shared_argmax import query as argmax_query
from blindbayes.protocol.shared_argmax.comparing import and_gates
from blindbayes.protocol.shared_argmax.messages import (
    AheadChosen,
    AheadGarbled,
    AheadOffered,
    ArgmaxGarbled,
    EntriesChosen,
    ScoresChosen,
)
from blindbayes.protocol.shared_argmax.ready import Material, ReadyReceiver, ReadySender, Shape
from blindbayes.protocol.shared_argmax.roles import attribute_holder, class_holder
from blindbayes.protocol.shared_model import score
from blindbayes.transport.memory import Replace, local_runs, run_in_memory
from support.argmax import Setup, with_classes
from support.columns import book
from support.two_party import coins

SPEC = tomllib.loads((Path(package.__file__).parent / "SPEC.md").read_text().split("## Before the data")[1].split("```")[1][5:])
WIDE = book([Numeric("x", -1e6, 1e6, 0.001), Categorical("v", ("0", "1", "2"))], floor=1e-9)


def at(kind, change):
    return Replace(lambda entry: entry.kind is kind, change)


class Kept(list):
    """Records in memory."""

    def read(self, index):
        return self[index]


def make(setup, size=None, **options):
    """Both parties' records, and the run that made them."""
    query, size = setup.query(), size or setup.rows
    shape = Shape.of([replace(query, count=size)], "attributes")
    runs = local_runs(setup.parties, coins=coins("run"), run_id="ahead")
    kept = {name: Kept() for name in setup.parties}
    outcome = run_in_memory(
        {
            "class": ahead.make_as_sender(runs["class"], "attributes", shape, kept["class"].append, coins("ahead c")),
            "attributes": ahead.make_as_chooser(
                runs["attributes"], "class", shape, kept["attributes"].append, coins("ahead a"), and_gates(query)
            ),
        },
        **options,
    )
    return shape, kept, outcome


def use(setup, shape, kept, learners=None, **options):
    """A classification that draws on it."""
    sender = ReadySender(Material(shape, kept["class"], "class", has_choices=False))
    receiver = ReadyReceiver(Material(shape, kept["attributes"], "attributes", has_choices=True))
    query, runs = setup.query(learners), local_runs(setup.parties, coins=coins("run"))
    tables, columns = {"attributes": setup.mine}, setup.block.columns
    share = score(setup.theirs, columns, setup.plan, setup.rows)
    return run_in_memory(
        {
            "class": class_holder(runs["class"], query, setup.local(), tables, {"attributes": sender}, coins("c")),
            "attributes": attribute_holder(runs["attributes"], query, share, columns, receiver, coins("a")),
        },
        **options,
    )


@pytest.mark.parametrize("book", [with_classes(2), with_classes(3), with_classes(5), with_classes(7), WIDE])
def test_the_classes_are_the_same_with_less_to_send(book):
    setup = Setup(book, 60)
    shape, kept, made = make(setup)
    assert made.outputs["class"] == made.outputs["attributes"]  # one name for it
    assert made.opened == {"class": (), "attributes": ()}
    assert made.cost.messages == eval(SPEC["messages"], {}, {"pieces": len(shape.pieces), "blocks": len(shape.blocks)})
    outcome, plain = use(setup, shape, kept), setup.run()
    for party in setup.parties:
        assert np.array_equal(outcome.outputs[party], setup.expected())
        assert outcome.opened[party] == ("class",)
    assert outcome.cost.bytes < 0.7 * plain.cost.bytes
    assert (outcome.cost.rounds, outcome.cost.messages) == (plain.cost.rounds, plain.cost.messages)


@pytest.mark.parametrize("learner", ["class", "attributes"])
def test_only_the_named_party_learns(learner):
    setup = Setup(with_classes(3), 40)
    shape, kept, _ = make(setup)
    outcome = use(setup, shape, kept, (learner,))
    other = "attributes" if learner == "class" else "class"
    assert np.array_equal(outcome.outputs[learner], setup.expected())
    assert outcome.outputs[other] is None


@pytest.mark.parametrize(("rows", "size"), [(1, 50), (7, 50), (20, 50), (50, 20), (15, 14)])
def test_a_batch_may_have_fewer_instances_or_more(rows, size, monkeypatch):
    monkeypatch.setattr(argmax_query, "_MAX_CHUNK", 7)
    setup = Setup(with_classes(3), rows)
    shape, kept, _ = make(setup, size)
    assert np.array_equal(use(setup, shape, kept).outputs["class"], setup.expected())


def test_what_the_garbler_hears_of_shares_is_uniform():
    setup = Setup(with_classes(3), 30, small=True)
    shape, kept, _ = make(setup)
    seen = []
    use(setup, shape, kept, faults=[at(ScoresChosen, lambda message: seen.append(message.corrections.copy()) or message)])
    top = seen[0] >> np.uint64(setup.plan.bits - 8)
    assert len(set(top.tolist())) > 50  # of 90 numbers


def test_flipped_choices_end_where_the_material_is_made():
    setup = Setup(with_classes(3), 30)

    def flip(message):
        corrections = message.corrections.copy()
        corrections[0] ^= np.uint64(1)
        return type(message)(message.mark, corrections)

    with pytest.raises(IntegrityError) as caught:
        make(setup, faults=[at(AheadChosen, flip)])
    assert caught.value.party == "attributes"


@pytest.mark.parametrize("kind", [EntriesChosen, ScoresChosen, ArgmaxGarbled, AheadGarbled])
def test_a_message_of_another_length_is_refused(kind):
    setup = Setup(with_classes(3), 30)
    name = next(field for field in ("corrections", "tables") if hasattr(kind, field))

    def cut(message):
        return type(message)(
            **{**{n: getattr(message, n) for n in message.__struct_fields__}, name: getattr(message, name)[:-1]}
        )

    fault = [at(kind, cut)]
    both = functools.partial(make, setup, faults=fault)
    if kind is not AheadGarbled:
        both = functools.partial(use, setup, *make(setup)[:2], faults=fault)
    with pytest.raises(PeerProtocolError):
        both()


def test_wrong_labels_of_the_garbler_are_noticed():
    setup = Setup(with_classes(3), 30)
    shape, kept, _ = make(setup)

    def other(message):
        tables = message.tables.copy()
        tables[0] ^= np.uint64(2)
        return type(message)(message.mark, tables, message.tags)

    with pytest.raises(IntegrityError) as caught:
        use(setup, shape, kept, faults=[at(ArgmaxGarbled, other)])
    assert caught.value.party == "class"


def test_tables_of_another_material_are_noticed():
    setup = Setup(with_classes(3), 30)
    shape, kept, _ = make(setup)
    kept["attributes"][-1] = bytes(len(kept["attributes"][-1]))
    with pytest.raises(IntegrityError):
        use(setup, shape, kept)


def test_the_work_that_is_left_is_less_than_half(monkeypatch):
    """Blocks that are hashed, in numpy, which counts them."""
    monkeypatch.setattr(TweakedHash, "kernel", None)
    hashed, real = [], TweakedHash.outer

    def counted(self, inner, *given, **named):
        hashed.append(len(inner))
        return real(self, inner, *given, **named)

    setup = Setup(with_classes(3), 60)
    shape, kept, _ = make(setup)
    monkeypatch.setattr(TweakedHash, "outer", counted)
    setup.run()
    online, hashed[:] = sum(hashed), []
    assert np.array_equal(use(setup, shape, kept).outputs["class"], setup.expected())
    assert 0 < sum(hashed) < 0.5 * online


@pytest.mark.parametrize("told", [b"x", bytes(33), bytes(32 * 9)])
def test_names_of_another_length_or_too_many_are_refused(told):
    role = ahead.choose({"attributes": [b"n" * 32]})
    next(role)
    with pytest.raises(PeerProtocolError):
        role.send(AheadOffered(told))


def test_both_take_the_first_of_their_own_that_the_other_has():
    mine, theirs = [b"c" * 32, b"a" * 32, b"b" * 32], [b"c" * 31 + b"!", b"b" * 32, b"a" * 32]
    for own, other, first in ((mine, theirs, b"a" * 32), (mine, [b"d" * 32], None), ([], theirs, None)):
        role = ahead.choose({"attributes": own})
        next(role)
        with pytest.raises(StopIteration) as stop:
            role.send(AheadOffered(b"".join(other)))
        assert stop.value.value == ({} if first is None else {"attributes": first})
