"""How many identifiers joined: the minimum is checked before anything is opened or used, the estimate is noisy and paid for,
and nothing else about the overlap shows, neither in messages nor in the work that they take."""

from __future__ import annotations

import gc
import statistics
import time
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

import blindbayes.protocols.private_join.joined as protocol
import blindbayes.study.tasks.joined as joined
from blindbayes import JoinStudy
from blindbayes.codebook import Categorical, Codebook
from blindbayes.crypto.garbling.garbling import Evaluator, Garbler
from blindbayes.crypto.kernels import Kernels, active
from blindbayes.crypto.ot import base as ot
from blindbayes.crypto.psi import cuckoo, okvs, oprf
from blindbayes.crypto.tweaks import Domain, TweakedHash
from blindbayes.dp.accounting.ledger import Ledger
from blindbayes.errors import ConfigError, PrivacyError
from blindbayes.protocols.memory import local_runs, run_in_memory
from blindbayes.protocols.private_join.joined import connect
from blindbayes.protocols.private_join.sums import counts as on_counts
from blindbayes.protocols.private_join.sums import roles
from blindbayes.protocols.private_join.sums.inputs import Entries
from blindbayes.protocols.private_join.sums.roles import MIN_BOUND, JoinedSumsSetup, label_holder, row_holder
from blindbayes.study.tasks.joined import overlap_charge, overlap_noise
from support.drivers import run_by
from support.two_party import coins, opened_count

BOOK = Codebook("y", ("no", "yes"), (Categorical("a", ("0", "1")), Categorical("b", ("0", "1")), Categorical("c", ("0", "1"))))


def tables(bob, alice, carol=()):
    """Identifiers of the class holder and of one or two attribute holders."""
    made = {
        "bob": pa.table({"id": bob, "b": ["0"] * len(bob), "y": ["yes" if at % 3 else "no" for at in range(len(bob))]}),
        "alice": pa.table({"id": alice, "a": ["1"] * len(alice)}),
    }
    return made | ({"carol": pa.table({"id": carol, "c": ["1"] * len(carol)})} if carol else {})


def names(first, last):
    return [f"customer {at}" for at in range(first, last)]


def study(policy="join", three=False, **options):
    book = BOOK if three else BOOK.with_features(BOOK.features[:2])
    return JoinStudy(book, key="id", duplicates=policy, options=options)


# -- the minimum -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["join", "first"])
@pytest.mark.parametrize("kind", ["inner", "left"])
def test_identifiers_count_and_not_their_rows(policy, kind):
    """Three people with four rows each at both parties: 48 joined rows, and still three people."""
    made = tables(names(0, 3) * 4 + names(10, 20), names(0, 3) * 4 + names(30, 40))
    study(policy, join=kind, min_overlap=3).simulate(made)
    with pytest.raises(PrivacyError, match="fewer than 4 identifiers"):
        study(policy, join=kind, min_overlap=4).simulate(made)


@pytest.mark.parametrize("policy", ["join", "reject"])
@pytest.mark.parametrize("small", ["alice", "carol"])
def test_every_join_of_three_parties_is_checked_before_any_is_used(policy, small, monkeypatch):
    """One large and one small join: no model is made of the large one, no estimate opened, whichever comes first."""
    monkeypatch.setattr(protocol.shared_model, "class_holder", lambda *given: pytest.fail("a join was used"))
    monkeypatch.setattr(protocol.shared_model, "attribute_holder", lambda *given: pytest.fail("a join was used"))
    opened = []
    tell = on_counts.open_value
    monkeypatch.setattr(on_counts, "open_value", lambda label, value: opened.append(label) or tell(label, value))
    large, few = names(0, 40), names(35, 60)
    made = tables(names(0, 40), few if small == "alice" else large, few if small == "carol" else large)
    with pytest.raises(PrivacyError, match="fewer than 6"):
        study(policy, three=True, min_overlap=6, overlap_epsilon=1.0).simulate(made)
    assert set(opened) == {"enough_overlap"}


def test_three_parties_go_on_if_every_join_is_large_enough():
    made = tables(names(0, 40), names(20, 60), names(0, 30))
    result = study("reject", three=True, min_overlap=20, overlap_epsilon=50.0).simulate(made)
    assert result.leakage["bob"].opened == ("enough_overlap",) * 2 + ("noisy_overlap",) * 2
    assert result.leakage["carol"].opened == ("enough_overlap", "noisy_overlap")
    # At this epsilon noise is 0 but for a chance of e^-50.
    assert result.overlaps == {"alice": 20, "carol": 30}


def test_a_minimum_that_cannot_be_reached_is_refused_early(monkeypatch):
    run_by(monkeypatch, lambda roles: pytest.fail("something was sent"))
    with pytest.raises(ConfigError, match="never be reached"):
        study(min_overlap=MIN_BOUND + 1).simulate(tables(names(0, 9), names(0, 9)))


# -- the estimate ------------------------------------------------------------------------------------------------------------


def test_the_estimate_counts_identifiers_and_the_statement_says_what_it_costs():
    made = tables(names(0, 30) * 2, names(10, 50))
    result = study(overlap_epsilon=50.0).simulate(made)
    assert result.overlaps == {"alice": 20}
    assert {leak.opened for leak in result.leakage.values()} == {("noisy_overlap",)}
    assert "noisy_overlap: with alice 20)" in result.statement
    assert "50-differentially private" in result.statement
    assert "epsilon = 50 to the ledger of bob, 50 to that of each other party" in result.statement
    assert result.leakage["alice"].received["OverlapNoised"] == ("noisy", 1)  # each reads what the other garbled
    assert result.leakage["bob"].received["OverlapNoised"] == ("noisy", 1)
    assert any("estimate of how many" in line for view in result.report.views for line in view.plain)


def test_every_run_draws_noise_of_its_own_at_both_parties(monkeypatch):
    """Noise of two runs and of two parties differs: four draws at scale 1,000 that are all different (chance of a
    coincidence below 1%, and the coins of this test are fixed)."""
    made, seen = tables(names(0, 5), names(0, 5)), []
    bits = on_counts.noise_bits
    monkeypatch.setattr(on_counts, "noise_bits", lambda noise, width: seen.append(noise) or bits(noise, width))
    source = coins("runs")
    for _ in range(2):
        study(overlap_epsilon=0.001).simulate(made, coins=source)
    assert len(seen) == 4
    assert len(set(seen)) == 4


def ledger(path, epsilon="1", unit="one record"):
    Ledger.create(path, epsilon=epsilon, unit=unit, owner="test")
    return path


def test_the_ledgers_of_both_pay_before_anything_is_sent(tmp_path, monkeypatch):
    made = tables(names(0, 30), names(10, 50))
    ledgers = {name: ledger(tmp_path / name) for name in ("alice", "bob")}
    agreed = study(overlap_epsilon=0.4)
    for spent in (0.4, 0.8):
        agreed.simulate(made, ledgers=ledgers)
        assert [Ledger(path).balance().spent_epsilon for path in ledgers.values()] == [spent, spent]
    entry = Ledger(ledgers["bob"]).entries()[-1]
    assert entry.fields["study"] == agreed.sha256
    run_by(monkeypatch, lambda roles: pytest.fail("something was sent"))
    with pytest.raises(PrivacyError, match="budget exceeded"):
        agreed.simulate(made, ledgers=ledgers)
    assert [Ledger(path).balance().spent_epsilon for path in ledgers.values()] == [0.8, 0.8]


def test_the_class_holder_pays_for_every_join(tmp_path):
    made = tables(names(0, 40), names(20, 60), names(0, 30))
    ledgers = {name: ledger(tmp_path / name, "2") for name in made}
    study("first", three=True, overlap_epsilon=0.5).simulate(made, ledgers=ledgers)
    spent = {name: Ledger(path).balance().spent_epsilon for name, path in ledgers.items()}
    assert spent == {"bob": 1.0, "alice": 0.5, "carol": 0.5}


def test_one_ledger_that_refuses_stops_all(tmp_path, monkeypatch):
    run_by(monkeypatch, lambda roles: pytest.fail("something was sent"))
    made = tables(names(0, 30), names(10, 50))
    for epsilon, unit, match in (
        ("0.1", "one record", "budget exceeded"),
        ("9", "one party with at most 9 records", "protects"),
    ):
        path = ledger(tmp_path / f"{epsilon} {unit}", epsilon, unit)
        with pytest.raises(PrivacyError, match=match):
            study(overlap_epsilon=0.4).simulate(made, ledgers={"alice": path})
        assert Ledger(path).balance().spent_epsilon == 0
    with pytest.raises(ConfigError, match="no party"):
        study(overlap_epsilon=0.4).simulate(made, ledgers={"eve": tmp_path / "eve"})


def test_without_an_estimate_nothing_is_charged(tmp_path):
    path = ledger(tmp_path / "l", unit="one person with at most 4 records")
    made = tables(names(0, 30), names(10, 50))
    result = study().simulate(made, ledgers={"alice": path})
    assert result.overlaps == {}
    assert Ledger(path).balance().spent_epsilon == 0
    assert "noisy_overlap" not in result.statement
    join = result.model.join
    assert overlap_noise(join, "alice") is None
    assert overlap_charge(join, "alice") is None


@pytest.mark.parametrize("bad", [0, -1.0, float("nan"), float("inf"), "1", True])
def test_an_epsilon_that_is_none_is_refused(bad):
    with pytest.raises(PrivacyError, match="overlap_epsilon"):
        study(overlap_epsilon=bad).simulate(tables(names(0, 9), names(0, 9)))


def test_parties_with_another_epsilon_do_not_start():
    """The facts that every pair compares before anything else name it."""
    owners, bounds = {"bob": ("b",), "alice": ("a",)}, {"bob": MIN_BOUND, "alice": MIN_BOUND}
    found = {joined.join_of(study(overlap_epsilon=value), owners, "bob", bounds).facts() for value in (None, 0.5, 0.6)}
    assert len(found) == 3


def test_the_matching_takes_no_estimate():
    with pytest.raises(ConfigError, match="overlap_epsilon"):
        study("first", reveal="matching", overlap_epsilon=1.0).simulate(tables(names(0, 9), names(0, 9)))


# -- the same work whatever the overlap ----------------------------------------------------------------------------------------


def run_once(overlap, words=3, count=MIN_BOUND):
    """One run of the protocol on two sets of `count`, of which `overlap` are common; the transcript's outline."""
    source = coins(f"sets of {count}")
    ids = source.words(4 * count).reshape(-1, 2)
    rows = Entries(ids[:count], source.words(count * words).reshape(count, words))
    hot = np.zeros((count, 2), dtype=np.uint64)
    hot[np.arange(count), np.arange(count) % 2] = 1
    labels = Entries(ids[count - overlap : 2 * count - overlap], hot)
    shape = JoinedSumsSetup(MIN_BOUND, MIN_BOUND, words, 2, counted=True)
    runs = local_runs(["rows", "labels"], coins=coins("run"))

    def first():
        links = yield from connect(runs["rows"], "labels", coins("keeper"))
        return (yield from row_holder(runs["rows"], "labels", shape, rows, links.both, coins("r")))

    def second():
        links = yield from connect(runs["labels"], "rows", coins("planter"))
        return (yield from label_holder(runs["labels"], "rows", shape, labels, links.both, coins("l")))

    outcome = run_in_memory({"rows": first(), "labels": second()})
    assert opened_count(outcome.outputs["rows"].matches, outcome.outputs["labels"].matches) == overlap
    return [(entry.sender, entry.kind, entry.size) for entry in outcome.transcript.entries]


KERNELS = [(Kernels, name) for name in vars(Kernels) if not name.startswith("_")]  # which of them are called is their affair
COUNTED = [
    *([(TweakedHash, "permute")] if active() is None else KERNELS),
    (TweakedHash, "expand"),
    (TweakedHash, "at"),
    (Garbler, "and_"),
    (Evaluator, "and_"),
    (ot, "sender_pads"),
    (ot, "chooser_pads"),
    (oprf, "hashed"),
    (oprf, "codewords"),
    (okvs, "encode"),
    (okvs, "decode"),
    (cuckoo, "bins_of"),
]


def operations(overlap, monkeypatch, count=MIN_BOUND):
    """How often each primitive is called, with arrays of which shapes."""
    seen = Counter()

    def watch(owner, name):
        real = getattr(owner, name)

        def counting(*given, **more):
            shapes = tuple(value.shape for value in given if isinstance(value, np.ndarray))
            seen[f"{owner.__name__}.{name}", shapes] += 1
            return real(*given, **more)

        return real, counting

    with monkeypatch.context() as patch:
        for owner, name in COUNTED:
            real, counting = watch(owner, name)
            patch.setattr(owner, name, counting)
            for attribute, value in list(vars(roles).items()):  # names that the roles imported
                if value is real:
                    patch.setattr(roles, attribute, counting)
        outline = run_once(overlap, count=count)
    return seen, outline


def test_messages_and_operations_are_the_same_for_every_overlap(monkeypatch):
    """Number, order and lengths of messages, and calls of every primitive with their shapes: equal at no, one, half and full
    overlap, and for sets far below their bounds. (How the placement in bins and the peeling of the store go depends on the
    session, for as many identifiers as the bounds say.)"""
    cases = [(MIN_BOUND, 0), (MIN_BOUND, 1), (MIN_BOUND, MIN_BOUND // 2), (MIN_BOUND, MIN_BOUND), (7, 3), (0, 0)]
    found = [operations(overlap, monkeypatch, count) for count, overlap in cases]
    assert all(other == found[0] for other in found[1:])
    seen = {name for name, _ in found[0][0]}
    assert seen >= {f"{owner.__name__}.{name}" for owner, name in COUNTED if owner is not Kernels}  # every one of them
    assert active() is None or "Kernels.expand" in seen


def test_the_count_of_operations_would_notice_work_that_depends_on_a_match(monkeypatch):
    """A planted fault: whoever opens pads does one hash more if there is a match."""
    take, matches = roles._take, []

    def busy(hash_, outcomes, masked, share):
        if matches[-1]:
            TweakedHash(b"more work").run(np.zeros((1, 2), dtype=np.uint64), Domain.GATE, 0)
        return take(hash_, outcomes, masked, share)

    monkeypatch.setattr(roles, "_take", busy)
    found = []
    for overlap in (0, MIN_BOUND):
        matches.append(overlap > 0)
        found.append(operations(overlap, monkeypatch)[0])
    assert found[0] != found[1]


@pytest.mark.slow
def test_runs_take_the_same_time_whatever_the_sets():
    """CPU time, interleaved: the medians of nine runs each differ by less than 15%, for full sets without and with overlap and
    for sets of ten. A run that worked on matches, or on identifiers that are there, alone would differ by far more."""
    run_once(0)
    seconds = {(MIN_BOUND, 0): [], (MIN_BOUND, MIN_BOUND): [], (10, 5): []}
    gc.disable()
    try:
        for _ in range(9):
            for (count, overlap), times in seconds.items():
                begun = time.process_time()
                run_once(overlap, count=count)
                times.append(time.process_time() - begun)
    finally:
        gc.enable()
    medians = [statistics.median(times) for times in seconds.values()]
    assert max(medians) - min(medians) < 0.15 * max(medians)
