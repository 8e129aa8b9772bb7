"""Totals in place of classes: what the shares give, the cost formula of SPEC.md, and each party's view by simulators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from blindbayes.crypto.ot.base import bits_for
from blindbayes.crypto.ot.softspoken import correction_words
from blindbayes.errors import LocalProtocolError, PeerProtocolError
from blindbayes.protocols.core import Send, mark, receive
from blindbayes.protocols.formula import value_of
from blindbayes.protocols.memory import Outcome, Replace, run_in_memory
from blindbayes.protocols.shared_inference import tally
from blindbayes.protocols.shared_inference.messages import (
    ArgmaxGarbled,
    EntriesChosen,
    EntriesMasked,
    ScoresChosen,
    TotalsShared,
)
from blindbayes.protocols.shared_inference.roles import TALLY
from blindbayes.protocols.two_party.transfer.roles import agree
from blindbayes.report.spec import read_spec
from blindbayes.wire import decode
from blindbayes.wire.transcript import Keep
from support.tally import ROWS, Tally
from support.two_party import coins, let_proofs_hold

KINDS = (EntriesChosen, EntriesMasked, TotalsShared)


@pytest.mark.parametrize("holders", [("attributes",), ("first", "second")], ids=len)
@pytest.mark.parametrize("classes", [2, 3, 7])
def test_totals_cost_and_what_is_opened_are_those_of_the_specification(
    classes: int, holders: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, spec = Tally(classes, holders), read_spec("shared_argmax").table
    plain = made.setup.run(keep=Keep.FRAMES)
    outcome = made.run(keep=Keep.FRAMES)
    for name in made.setup.parties:
        assert outcome.outputs[name].tolist() == made.totals().tolist()
        assert outcome.opened[name] == (TALLY,) == tuple(spec["opened_with_tally"])
    chunks, places = len(made.query.chunks()), 1 << bits_for(classes)
    corrections = 8 * correction_words(ROWS * bits_for(classes))
    facts = {"holders": len(holders), "chunks": chunks, "K": classes, "places": places, "n": ROWS, "corrections": corrections}
    assert outcome.cost.rounds == value_of(spec["tally"]["rounds"], facts)
    assert outcome.cost.messages == value_of(spec["tally"]["messages"], facts)
    tallied = [e for e in outcome.transcript.entries if {e.sender, e.to} == {"class", holders[0]} and e.kind in KINDS]
    words = [decode(e.frame, e.kind) for e in tallied][-2 * chunks - 2 :]
    sizes = [8 * sum(np.size(getattr(each, f)) for f in each.__struct_fields__ if f != "mark") for each in words]
    assert sum(sizes) == value_of(spec["tally"]["bytes"], facts)
    assert plain.cost.rounds <= outcome.cost.rounds

    monkeypatch.setattr("blindbayes.protocols.shared_inference.query._MAX_CHUNK", 16)
    facts["chunks"] = len(made.query.chunks())
    assert facts["chunks"] == 3
    chunked = made.run()
    assert chunked.outputs["class"].tolist() == made.totals().tolist()
    assert chunked.cost.messages == value_of(spec["tally"]["messages"], facts)
    assert chunked.cost.rounds == outcome.cost.rounds


# -- views -----------------------------------------------------------------------------------------------------------------


def uniform(name: str, size: int) -> Any:
    return coins(f"simulator {name}").words(size)


def view(outcome: Outcome, party: str) -> tuple[list[Any], Any]:
    """(kind, size) of every message that the party got, and all their content bits but the first 64 bytes of each."""
    got = [entry for entry in outcome.transcript.entries if entry.to == party]
    bits = np.unpackbits(np.frombuffer(b"".join(entry.frame[64:] for entry in got), dtype=np.uint8))
    return [(entry.kind, entry.size) for entry in got], bits


def require_alike(real: Outcome, simulated: Outcome, party: str) -> None:
    """Same messages, and mean bits within six standard deviations (alpha = 2e-9)."""
    (shape, bits), (other, made) = view(real, party), view(simulated, party)
    assert [kind for kind, _ in shape] == [kind for kind, _ in other]
    assert all(abs(a - b) <= 8 for (_, a), (_, b) in zip(shape, other, strict=True))  # a mark takes 1 to 9 bytes
    for found in (bits, made):
        assert abs(found.mean() - 0.5) * 2 * np.sqrt(found.size) < 6


def given_totals(made: Tally, given: str) -> Any:
    totals = made.totals()
    if given == "other":  # any totals of as many instances
        totals = np.roll(totals, 1)
        assert (totals != made.totals()).any()
    return totals.astype(np.uint64)


@pytest.mark.parametrize("given", ["learned", "other"])
def test_the_evaluator_sees_the_totals_and_nothing_else(given: str) -> None:
    """Without tables, prior or a single true class, and with any totals, the simulator makes its whole view."""
    made = Tally(3)
    real, plan, totals = made.run(keep=Keep.FRAMES), made.setup.plan, given_totals(made, given)
    selectors = [(own.entries, own.selectors) for own in plan.features.values()]
    looked = sum(ROWS * count * (entries - 1) for entries, count in selectors) * (plan.classes - 1) * plan.limbs
    garbled = next(decode(e.frame, ArgmaxGarbled) for e in real.transcript.entries if e.kind is ArgmaxGarbled)
    assert not len(garbled.tags)

    def simulator() -> Any:
        session = yield from agree(made.runs["class"], "attributes", "shared_argmax", made.query.facts(), coins("sim"))
        yield from receive("attributes", EntriesChosen)
        yield Send("attributes", EntriesMasked(mark(session, EntriesMasked, 0), uniform("entries", looked)))
        yield from receive("attributes", ScoresChosen)
        tables = uniform("tables", len(garbled.tables))
        yield Send("attributes", ArgmaxGarbled(mark(session, ArgmaxGarbled, 0), tables, garbled.tags))
        yield from receive("attributes", EntriesChosen)
        entries = uniform("unit vectors", 3 * ROWS * 9)
        yield Send("attributes", EntriesMasked(mark(session, EntriesMasked, tally._AFTER), entries))
        share = (yield from receive("attributes", TotalsShared)).shares
        yield Send("attributes", TotalsShared(mark(session, TotalsShared, 0), totals - share))

    simulated = run_in_memory({"class": simulator(), "attributes": made.role("attributes")}, keep=Keep.FRAMES)
    assert simulated.outputs["attributes"].tolist() == totals.tolist()
    require_alike(real, simulated, "attributes")


@pytest.mark.parametrize("given", ["learned", "other"])
def test_the_garbler_sees_the_totals_and_nothing_else(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    let_proofs_hold(monkeypatch)
    made = Tally(3)
    real, plan, totals = made.run(keep=Keep.FRAMES), made.setup.plan, given_totals(made, given)
    transfers = sum(ROWS * own.selectors * bits_for(own.entries) for own in plan.features.values())

    def simulator() -> Any:
        session = yield from agree(made.runs["attributes"], "class", "shared_argmax", made.query.facts(), coins("sim"))
        chosen = uniform("choices", correction_words(transfers))
        yield Send("class", EntriesChosen(mark(session, EntriesChosen, 0), chosen))
        yield from receive("class", EntriesMasked)
        scores = uniform("scores", correction_words(plan.bits * 3 * ROWS))
        yield Send("class", ScoresChosen(mark(session, ScoresChosen, 0), scores))
        yield from receive("class", ArgmaxGarbled)
        places = uniform("places", correction_words(2 * ROWS))
        yield Send("class", EntriesChosen(mark(session, EntriesChosen, tally._AFTER), places))
        yield from receive("class", EntriesMasked)
        share = (yield from receive("class", TotalsShared)).shares
        yield Send("class", TotalsShared(mark(session, TotalsShared, 0), totals - share))

    simulated = run_in_memory({"attributes": simulator(), "class": made.role("class")}, keep=Keep.FRAMES)
    assert simulated.outputs["class"].tolist() == totals.tolist()
    require_alike(real, simulated, "class")


def test_the_shares_of_an_instance_are_masked_and_a_missing_pad_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Power: without pads, unit vectors in T2 are words of 0, 1 and -1."""

    def mean_bits() -> float:
        outcome = Tally(3).run(keep=Keep.FRAMES)
        sent = [e for e in outcome.transcript.entries if e.kind is EntriesMasked and e.sender == "class"][-1]
        bits = np.unpackbits(decode(sent.frame, EntriesMasked).entries.view(np.uint8))
        return float(abs(bits.mean() - 0.5) * 2 * np.sqrt(bits.size))

    assert mean_bits() < 6
    plain = tally.lookups.offer

    def bare(hash_: Any, q: Any, delta: Any, offered: Any, total: Any, *out: Any) -> Any:
        sent = plain(hash_, q, delta, offered, total, *out)
        if offered.flips is None:
            return sent
        return np.stack([offered.entry(at) - offered.entry(0) for at in range(1, offered.entries)]).reshape(-1)

    monkeypatch.setattr(tally.lookups, "offer", bare)
    monkeypatch.setattr(tally, "require_totals", lambda totals, *_: totals)
    assert mean_bits() > 6


# -- deviations ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("party", ["class", "attributes"])
def test_totals_of_another_number_of_instances_are_refused(party: str) -> None:
    other = "attributes" if party == "class" else "class"

    def add(message: Any) -> Any:
        return TotalsShared(message.mark, message.shares + np.uint64(1))

    def is_meant(sent: Any) -> bool:
        return sent.kind is TotalsShared and sent.sender == party

    outcome = Tally(3).run(faults=(Replace(is_meant, add),), check=False)
    assert isinstance(outcome.error, PeerProtocolError)
    assert outcome.error.party == party
    assert not outcome.opened[other]


def test_a_party_that_does_not_learn_gets_no_share() -> None:
    outcome = Tally(3, learners=("attributes",)).run()
    assert {(e.sender, e.to) for e in outcome.transcript.entries if e.kind is TotalsShared} == {("class", "attributes")}
    assert outcome.outputs["class"] is None


def test_without_a_class_for_every_instance_nothing_is_offered() -> None:
    made = Tally(2)
    made.labels = made.labels[:-1]
    assert isinstance(made.run(check=False).error, LocalProtocolError)
