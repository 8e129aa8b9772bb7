"""Whoever would choose the bins of joined_scores: their name is a fresh choice of all parties together."""

import msgspec
import numpy as np
import pytest

from blindbayes.errors import IntegrityError, PeerProtocolError
from blindbayes.primitives import cuckoo
from blindbayes.protocol.joined_scores.messages import BinsCommitted, BinsFixed, BinsOffered
from blindbayes.transport.memory import Replace, run_in_memory
from support.hidden import Case


def replaced(kind, **changes):
    def change(message):
        return msgspec.structs.replace(message, **{name: make(getattr(message, name)) for name, make in changes.items()})

    return Replace(lambda entry: entry.kind is kind, change)


CASES = {
    "another seed than the one committed to": (replaced(BinsFixed, seed=lambda old: bytes(32)), IntegrityError, "bank"),
    "another part of the helper": (replaced(BinsFixed, offered=lambda old: bytes(32)), IntegrityError, "bank"),
    "another commitment": (replaced(BinsCommitted, commitment=lambda old: bytes(32)), IntegrityError, "bank"),
    "too many parts": (replaced(BinsFixed, offered=lambda old: old + old), PeerProtocolError, "bank"),
    "a short part": (replaced(BinsOffered, seed=lambda old: old[:-1]), PeerProtocolError, "telecom"),
    "a commitment of another run": (replaced(BinsCommitted, mark=lambda old: old ^ 1), PeerProtocolError, "bank"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_party_that_would_choose_the_bins_is_refused(name):
    fault, error, party = CASES[name]
    outcome = run_in_memory(Case("bank", sizes=(20, 20), overlap=5).roles(), faults=[fault], check=False)
    assert isinstance(outcome.error, error)
    assert outcome.error.party == party


def test_the_same_run_has_other_bins_each_time(monkeypatch):
    seen, genuine = [], cuckoo.bins_of
    monkeypatch.setattr(cuckoo, "bins_of", lambda name, *given: seen.append(name) or genuine(name, *given))
    for seed in ("one", "two"):
        case = Case("bank", sizes=(20, 20), overlap=5)
        outcome = run_in_memory(case.roles(keys=(f"s {seed}", f"h {seed}")))
        assert np.array_equal(outcome.outputs["bank"], case.expected())
    assert seen[0] == seen[1]
    assert seen[2] == seen[3]
    assert seen[0] != seen[2]
