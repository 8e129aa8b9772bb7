"""Simulators for the two-party protocols over columns: each party's view is made from its own input and what it learns.

A simulator plays the other party without that party's input: corrections, masked rows and garbled tables are uniform strings.
The party under test runs its real role to the end and cannot tell: the same kinds and sizes of messages, mean bits within six
standard deviations (alpha = 2e-9). Where the party learns the class, the simulator is given the class, and rewinds: it lets
the party run on uniform tables, sees the labels that come out, and chooses tags (or labels) that say the given class. Wrong
simulators are noticed.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from blindbayes.crypto import ristretto
from blindbayes.crypto.garbling.garbling import Evaluator, Garbler
from blindbayes.crypto.ot.base import bits_for
from blindbayes.crypto.ot.softspoken import correction_words
from blindbayes.crypto.tweaks import Domain
from blindbayes.errors import IntegrityError
from blindbayes.protocols.core import Send, mark, receive
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.protocols.shared_inference import comparing
from blindbayes.protocols.shared_inference.compare_all import classes_of
from blindbayes.protocols.shared_inference.messages import (
    ArgmaxGarbled,
    EntriesChosen,
    EntriesMasked,
    LabelsReturned,
    ScoresChosen,
)
from blindbayes.protocols.shared_inference.roles import attribute_holder, class_holder
from blindbayes.protocols.shared_training import class_sums
from blindbayes.protocols.shared_training.class_sums import roles as sums_steps
from blindbayes.protocols.shared_training.class_sums.messages import ClassesChosen, RowsCounted, RowsMasked
from blindbayes.protocols.shared_training.shared_model import roles as model_roles
from blindbayes.protocols.shared_training.shared_model import score
from blindbayes.protocols.shared_training.shared_model.messages import ModelGarbled, SumsChosen
from blindbayes.protocols.two_party import garbled as garbled_twice
from blindbayes.protocols.two_party.transfer.roles import agree
from blindbayes.wire import decode
from blindbayes.wire.transcript import Keep
from support.argmax import Setup, with_classes
from support.columns import MIXED, Case, book, connect, draw_block, linked
from support.two_party import anew, coins, let_proofs_hold

MIXED_SMALL = book([MIXED.feature("colour"), MIXED.feature("age")])


def uniform(name, size):
    return coins(f"simulator {name}").words(size)


def view(outcome, party):
    """(kind, size) of every message that the party got, and all their content bits but the first 64 bytes of each."""
    got = [entry for entry in outcome.transcript.entries if entry.to == party]
    bits = np.unpackbits(np.frombuffer(b"".join(entry.frame[64:] for entry in got), dtype=np.uint8))
    return [(entry.kind, entry.size) for entry in got], bits


def require_alike(real, simulated, party):
    shape, bits = view(real, party)
    other, made = view(simulated, party)
    assert [kind for kind, _ in shape] == [kind for kind, _ in other]
    assert all(abs(a - b) <= 8 for (_, a), (_, b) in zip(shape, other, strict=True))  # a mark takes 1 to 9 bytes on the wire
    for found in (bits, made):
        assert abs(found.mean() - 0.5) * 2 * np.sqrt(found.size) < 6


# -- class_sums --------------------------------------------------------------------------------------------------------

SHAPE = class_sums.ClassSumsSetup(300, 3, 3)


def sums_roles(runs, links, labels, rows):
    ot_sender, ot_receiver = (anew(link) for link in links)
    return {
        "class": class_sums.class_holder(runs["class"], "attributes", SHAPE, [labels], ot_receiver, coins("c")),
        "attributes": class_sums.attribute_holder(runs["attributes"], "class", SHAPE, [rows], ot_sender, coins("a")),
    }


def simulated_rows(run, counted):
    """The attribute holder without rows. `counted`: its share of the rows per class."""
    session = yield from agree(run, "class", "class_sums", SHAPE.agreed(), coins("sim"))
    for index, (count, _) in enumerate(SHAPE.blocks()):
        yield from receive("class", ClassesChosen)
        levels = uniform("levels", 2 * count * SHAPE.level_sums)
        yield Send("class", RowsMasked(mark(session, RowsMasked, index), levels, uniform("rows", count * (SHAPE.words + 1))))
    yield Send("class", RowsCounted(mark(session, RowsCounted, 0), counted))


def simulated_classes(run):
    """The class holder without classes."""
    session = yield from agree(run, "attributes", "class_sums", SHAPE.agreed(), coins("sim"))
    for index, (count, _) in enumerate(SHAPE.blocks()):
        words = uniform("classes", correction_words(count * SHAPE.levels))
        yield Send("attributes", ClassesChosen(mark(session, ClassesChosen, index), words))
        yield from receive("attributes", RowsMasked)
    yield from receive("attributes", RowsCounted)


@pytest.mark.parametrize("party", ["class", "attributes"])
def test_class_sums_shows_neither_party_anything_of_the_others_input(party, monkeypatch):
    let_proofs_hold(monkeypatch)
    real_check = sums_steps._require_counts
    ot_sender, ot_receiver = linked("attributes", "class", ("class", "attributes"))
    runs = local_runs(("class", "attributes"), coins=coins("run"))
    labels, rows = np.full(300, 2), np.full((300, 3), 2**40, dtype=np.uint64)
    made = sums_roles(runs, (ot_sender, ot_receiver), labels, rows)
    real = run_in_memory(made, keep=Keep.FRAMES)
    made = sums_roles(runs, (ot_sender, ot_receiver), labels, rows)
    other = "attributes" if party == "class" else "class"
    if party == "class":  # rewind: it knows the rows of each class, and sees that a share says another number
        counted, found = uniform("counted", 3), []
        with monkeypatch.context() as watched:
            watched.setattr(sums_steps, "_require_counts", lambda *given: (found.append(given), real_check(*given)))
            outcome = run_in_memory({**made, other: simulated_rows(runs[other], counted)}, check=False)
        assert isinstance(outcome.error, IntegrityError)
        made = sums_roles(runs, (ot_sender, ot_receiver), labels, rows)
        said, own, _ = found[0]
        made[other] = simulated_rows(runs[other], counted + (own - said))
    else:
        made[other] = simulated_classes(runs[other])
    simulated = run_in_memory(made, keep=Keep.FRAMES)
    require_alike(real, simulated, party)
    assert simulated.outputs[party].shape == real.outputs[party].shape
    share = np.unpackbits(simulated.outputs[party].view(np.uint8))
    assert abs(share.mean() - 0.5) * 2 * np.sqrt(share.size) < 6


# -- shared_model ------------------------------------------------------------------------------------------------------


def test_shared_model_shows_the_evaluator_masked_outputs_and_nothing_else(monkeypatch):
    case = Case(MIXED_SMALL, draw_block(MIXED_SMALL, 60))
    real = run_in_memory(case.model_roles(), keep=Keep.FRAMES)
    seen = []

    class Watched(Evaluator):
        def try_read(self, wires, tags):
            flat = wires.reshape(-1, 2)
            first = self.hash_.reserve(Domain.OUTPUT, 0)
            seen.append(self.hash_.run(flat, Domain.OUTPUT, first)[:, 0])
            return super().try_read(wires, tags)

    monkeypatch.setattr(garbled_twice, "Evaluator", Watched)
    let_proofs_hold(monkeypatch)
    mine = [entry for entry in real.transcript.entries if entry.kind is ModelGarbled and entry.sender == "class"]
    sizes = [tables_and_tags(entry.frame) for entry in mine]

    def garbler(known):
        roles = case.model_roles()
        run = local_runs(["class", "attributes"], coins=coins("run"))["class"]

        def role():
            yield from connect(run, "attributes", coins("keeper"))
            facts = case.plan.facts() + case.layout.facts()
            session = yield from agree(run, "attributes", "shared_model", facts, coins("sim"))
            words = uniform("back", correction_words(model_roles.transfers(case.layout, case.plan)[0]))
            yield Send("attributes", SumsChosen(mark(session, SumsChosen, 1), words))
            yield from receive("attributes", SumsChosen)
            for at, (tables, tags) in enumerate(sizes):
                content, place = uniform(f"tables {at}", tables), mark(session, ModelGarbled, at)
                yield Send("attributes", ModelGarbled(place, content, chosen_tags(known, at, tags), True))
            for _ in sizes:
                yield from receive("attributes", ModelGarbled)
            yield from receive("attributes", garbled_twice.EqualityAsked)
            point, place = ristretto.random_point(coins("point")), mark(session, garbled_twice.EqualityAnswered, 0)
            yield Send("attributes", garbled_twice.EqualityAnswered(place, point, bytes(32)))
            yield from receive("attributes", garbled_twice.EqualityProved)

        return {"class": role(), "attributes": roles["attributes"]}

    known = []
    for at in range(len(sizes)):  # rewind: one more step's labels are known each time
        seen.clear()
        outcome = run_in_memory(garbler(known), check=False)
        assert isinstance(outcome.error, IntegrityError)
        known.append(seen[at])
    monkeypatch.setattr(garbled_twice, "_proofs", lambda *given: (bytes(32), bytes(32)))  # the one bit: they are equal
    simulated = run_in_memory(garbler(known), keep=Keep.FRAMES)
    require_alike(real, simulated, "attributes")
    assert {name: table.shape for name, table in simulated.outputs["attributes"].items()} == {
        name: table.shape for name, table in real.outputs["attributes"].items()
    }


def tables_and_tags(frame):
    piece = decode(frame, ModelGarbled)
    assert piece.last
    return len(piece.tables), len(piece.tags)


def chosen_tags(known, at, size, bits=None):
    """Tags that make the labels read as `bits` (random ones if not given); plain noise where the labels are not known yet."""
    noise = uniform(f"tags {at}", size)
    if at >= len(known):
        return noise
    rows = size // 2
    bits = uniform(f"bits {at}", rows) & np.uint64(1) if bits is None else bits
    zero, one = noise[:rows].copy(), noise[rows:].copy()
    zero[bits == 0], one[bits == 1] = known[at][bits == 0], known[at][bits == 1]
    return np.concatenate([zero, one])


# -- shared_argmax -----------------------------------------------------------------------------------------------------


def argmax_setup():
    setup = Setup(with_classes(3), 40)
    query = setup.query()
    ot_sender, ot_receiver = setup.links["attributes"]
    runs = local_runs(setup.parties, coins=coins("run"))
    share = score(setup.theirs, setup.block.columns, setup.plan, 40)
    tables = {"attributes": setup.mine}
    roles = {
        "class": lambda: class_holder(runs["class"], query, setup.local(), tables, {"attributes": anew(ot_sender)}, coins("c")),
        "attributes": lambda: attribute_holder(
            runs["attributes"], query, share, setup.block.columns, anew(ot_receiver), coins("attributes")
        ),
    }
    return setup, query, runs, roles


def positions(classes, count):
    """Output bits of the comparison: those of the class's position."""
    bits = np.stack([(classes >> at) & 1 for at in range(bits_for(count))])
    assert np.array_equal(classes_of(bits.astype(np.uint8), count), classes)
    return bits.astype(np.uint64).reshape(-1)


@pytest.mark.parametrize("given", ["learned", "other"])
def test_the_evaluator_sees_the_class_and_nothing_else(monkeypatch, given):
    """With the class it learns, or any other class, the simulator makes its whole view, without tables, prior or offset."""
    setup, query, runs, roles = argmax_setup()
    real = run_in_memory({name: make() for name, make in roles.items()}, keep=Keep.FRAMES)
    classes = real.outputs["attributes"] if given == "learned" else (real.outputs["attributes"] + 1) % 3
    seen = []

    class Watched(Evaluator):
        def try_read(self, wires, tags):
            first = self.hash_.reserve(Domain.OUTPUT, 0)
            seen.append(self.hash_.run(wires.reshape(-1, 2), Domain.OUTPUT, first)[:, 0])
            return super().try_read(wires, tags)

    monkeypatch.setattr(comparing, "Evaluator", Watched)
    plan = setup.plan
    selectors = [(own.entries, own.selectors) for own in plan.features.values()]
    width = (plan.classes - 1) * plan.limbs
    lookups = sum(40 * count * (entries - 1) for entries, count in selectors) * width
    garbled = next(entry for entry in real.transcript.entries if entry.kind is ArgmaxGarbled)
    shown = decode(garbled.frame, ArgmaxGarbled)

    def simulator(known):
        session = yield from agree(runs["class"], "attributes", "shared_argmax", query.facts(), coins("sim"))
        yield from receive("attributes", EntriesChosen)
        yield Send("attributes", EntriesMasked(mark(session, EntriesMasked, 0), uniform("entries", lookups)))
        yield from receive("attributes", ScoresChosen)
        tags = chosen_tags(known, 0, len(shown.tags), positions(classes, 3))
        yield Send("attributes", ArgmaxGarbled(mark(session, ArgmaxGarbled, 0), uniform("tables", len(shown.tables)), tags))
        yield from receive("attributes", LabelsReturned)

    outcome = run_in_memory({"class": simulator([]), "attributes": roles["attributes"]()}, check=False)
    assert isinstance(outcome.error, IntegrityError)  # tags that know nothing of the labels are noticed
    simulated = run_in_memory({"class": simulator([seen[0]]), "attributes": roles["attributes"]()}, keep=Keep.FRAMES)
    assert np.array_equal(simulated.outputs["attributes"], classes)
    require_alike(real, simulated, "attributes")


@pytest.mark.parametrize("given", ["learned", "other"])
def test_the_garbler_sees_the_class_and_nothing_else(monkeypatch, given):
    let_proofs_hold(monkeypatch)
    setup, query, runs, roles = argmax_setup()
    real = run_in_memory({name: make() for name, make in roles.items()}, keep=Keep.FRAMES)
    classes = real.outputs["class"] if given == "learned" else (real.outputs["class"] + 1) % 3
    seen = defaultdict(list)

    class Watched(Garbler):
        def read(self, wires, returned, party=None):
            seen["zero"].append(wires.reshape(-1, 2)[:, 0].copy())
            seen["delta"].append(self._delta[0])
            return super().read(wires, returned, party)

    monkeypatch.setattr(comparing, "Garbler", Watched)
    plan = setup.plan
    transfers = sum(40 * own.selectors * bits_for(own.entries) for own in plan.features.values())

    def simulator(known):
        session = yield from agree(runs["attributes"], "class", "shared_argmax", query.facts(), coins("sim"))
        entries = uniform("choices", correction_words(transfers))
        yield Send("class", EntriesChosen(mark(session, EntriesChosen, 0), entries))
        yield from receive("class", EntriesMasked)
        scores = uniform("scores", correction_words(plan.bits * 3 * 40))
        yield Send("class", ScoresChosen(mark(session, ScoresChosen, 0), scores))
        yield from receive("class", ArgmaxGarbled)
        labels = uniform("labels", 80) if known is None else known
        yield Send("class", LabelsReturned(mark(session, LabelsReturned, 0), labels))

    outcome = run_in_memory({"attributes": simulator(None), "class": roles["class"]()}, check=False)
    assert isinstance(outcome.error, IntegrityError)
    labels = seen["zero"][0] ^ (positions(classes, 3) * seen["delta"][0])
    simulated = run_in_memory({"attributes": simulator(labels), "class": roles["class"]()}, keep=Keep.FRAMES)
    assert np.array_equal(simulated.outputs["class"], classes)
    require_alike(real, simulated, "class")


def test_a_leaky_other_party_would_be_noticed():
    """The power of the mean-bit test: rows sent under a mask of 63 bits instead of 64 fail it."""
    words = uniform("leaky", 6000) & np.uint64(2**63 - 1)
    found = np.unpackbits(words.view(np.uint8))
    assert abs(found.mean() - 0.5) * 2 * np.sqrt(found.size) > 6
