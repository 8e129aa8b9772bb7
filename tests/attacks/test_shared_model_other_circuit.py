"""A party that garbles another circuit in training, which the evaluator of a single execution cannot notice."""

import numpy as np
import pytest

from blindbayes.codebook import Categorical, Numeric
from blindbayes.errors import IntegrityError
from blindbayes.protocols.memory import Replace, local_runs, run_in_memory
from blindbayes.protocols.private_join.sums import counts
from blindbayes.protocols.shared_training.shared_model import ScoreLayout
from blindbayes.protocols.two_party import garbled
from blindbayes.protocols.two_party.garbled import EqualityAnswered, EqualityAsked, EqualityProved
from support.columns import Case, book, connect, draw_block
from support.two_party import coins

SMALL = book([Categorical("v", ("0", "1", "2")), Numeric("x", 0, 20)], classes=("a", "b"))


def case():
    return Case(SMALL, draw_block(SMALL, 30))


def garbling_otherwise(monkeypatch, by, change):
    """The garbler of one execution computes something else; its evaluator goes through the same gates."""
    genuine = garbled.Garbler

    class Other(genuine):
        def and_(self, left, right):
            out = super().and_(left, right)
            self.gates = getattr(self, "gates", 0) + 1
            return change(self, out) if self.is_mine and self.gates == 3 else out

    def made(hash_, delta):
        garbler = Other(hash_, delta)
        made.count += 1
        garbler.is_mine = made.count == (1 if by == "class" else 2)
        return garbler

    made.count = 0
    monkeypatch.setattr(garbled, "Garbler", made)


CHANGES = {
    "negated": lambda garbler, out: out ^ garbler._delta,
    "constant": lambda garbler, out: np.zeros_like(out),
    "one lane": lambda garbler, out: np.concatenate([out[:1] ^ garbler._delta, out[1:]]),
}


@pytest.mark.parametrize("by", ["class", "attributes"])
@pytest.mark.parametrize("change", CHANGES)
def test_whoever_garbles_another_circuit_is_caught(by, change, monkeypatch):
    garbling_otherwise(monkeypatch, by, CHANGES[change])
    outcome = run_in_memory(case().model_roles(), check=False)
    assert isinstance(outcome.error, IntegrityError)
    assert outcome.error.party != outcome.failed
    kinds = [entry.kind for entry in outcome.transcript.entries]
    assert EqualityAsked in kinds  # not before the end: where it failed would tell more than one bit
    assert EqualityProved not in kinds


def test_one_execution_alone_would_have_gone_on_with_a_wrong_model(monkeypatch):
    """The mutant: the comparison always holds. The attribute holder is left with shares of another model, unnoticed."""
    made = case()
    plain = made.plain()
    garbling_otherwise(monkeypatch, "class", CHANGES["negated"])
    monkeypatch.setattr(garbled, "_proofs", lambda *given: (bytes(32), bytes(32)))
    outputs = run_in_memory(made.model_roles()).outputs
    shares = [np.concatenate([table.reshape(-1) for table in outputs[name].values()]) for name in ("class", "attributes")]
    whole = np.concatenate([table.reshape(-1) for table in plain.values()])
    assert not np.array_equal((shares[0] + shares[1]) % np.uint64(1 << made.plan.bits), whole % np.uint64(1 << made.plan.bits))


@pytest.mark.parametrize("who", ["class", "attributes"])
def test_another_input_in_one_of_the_two_executions_is_caught(who, monkeypatch):
    genuine, calls = garbled.Garbler.own, []

    def other(self, bits):
        if bits.ndim == 1 and bits.size > 64:
            calls.append(1)
            if len(calls) == (1 if who == "class" else 2):
                bits = bits.copy()
                bits[0] ^= 1  # the lowest bit of a packed counter's share
        return genuine(self, bits)

    monkeypatch.setattr(garbled.Garbler, "own", other)
    outcome = run_in_memory(case().model_roles(), check=False)
    assert isinstance(outcome.error, IntegrityError)


@pytest.mark.parametrize("kind", [EqualityAsked, EqualityAnswered, EqualityProved])
def test_a_changed_comparison_names_who_sent_it(kind):
    import msgspec

    field = "proof" if kind is not EqualityAsked else "point"
    base = garbled.ristretto.base_multiply(garbled.ristretto.random_scalar(coins("other")))

    def change(message):
        return msgspec.structs.replace(message, **{field: base})

    fault = Replace(lambda entry: entry.kind is kind, change)
    outcome = run_in_memory(case().model_roles(), faults=[fault], check=False)
    assert isinstance(outcome.error, IntegrityError)
    if kind is not EqualityAsked:  # a point that was changed on the way makes both keys differ, whoever looks first
        assert outcome.error.party == ("class" if kind is EqualityAnswered else "attributes")


def prior_roles(plan):
    runs = local_runs(["class", "attributes"], coins=coins("run"))
    shares = np.array([5, 2**64 - 9], dtype=np.uint64), np.array([7, 20], dtype=np.uint64)

    def first():
        both = yield from connect(runs["class"], "attributes", coins("k"))
        return (yield from counts.prior_class_holder(runs["class"], "attributes", shares[0], plan, both, coins("c")))

    def second():
        both = yield from connect(runs["attributes"], "class", coins("p"))
        return (yield from counts.prior_attribute_holder(runs["attributes"], "class", shares[1], plan, both, coins("a")))

    return {"class": first(), "attributes": second()}


@pytest.mark.parametrize("by", ["class", "attributes"])
def test_priors_are_garbled_twice_too(by, monkeypatch):
    plan = ScoreLayout(SMALL, 100)
    run_in_memory(prior_roles(plan))
    garbling_otherwise(monkeypatch, by, CHANGES["negated"])
    outcome = run_in_memory(prior_roles(plan), check=False)
    assert isinstance(outcome.error, IntegrityError)
