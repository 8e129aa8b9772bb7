"""Whoever would choose the bins of a join: their name is a fresh choice of all parties together."""

import msgspec
import numpy as np
import pytest

from blindbayes.crypto.psi import cuckoo, okvs
from blindbayes.errors import IntegrityError, PeerProtocolError
from blindbayes.protocols.memory import Replace, local_runs, run_in_memory
from blindbayes.protocols.private_join import matching
from blindbayes.protocols.private_join.scores.messages import BinsCommitted, BinsFixed, BinsOffered
from blindbayes.protocols.private_join.sums import roles as joined_sums
from blindbayes.protocols.private_join.sums.inputs import Entries
from blindbayes.protocols.two_party.transfer import roles as transfer
from blindbayes.protocols.two_party.transfer.messages import CoinsAnswered, CoinsOpened
from support.hidden import Case
from support.two_party import coins


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


# -- joined_sums and matching: two parties ----------------------------------------------------------------------------------


def both_parties(protocol, faults=()):
    """A small run of either protocol between "a", who commits, and "b"."""
    runs, items = local_runs(["a", "b"], coins=coins("run")), coins("items").words(60).reshape(-1, 2)

    def first():
        ot_sender = yield from transfer.ot_sender(runs["a"], "b", coins("s"))
        if protocol is matching:
            return (yield from matching.asker(runs["a"], "b", SIZES[matching], items[:20], ot_sender, coins("a")))
        entries = Entries(items[:20], np.ones((20, 1), dtype=np.uint64))
        both = ot_sender, (yield from transfer.ot_receiver(runs["a"], "b", coins("back")))
        return (yield from joined_sums.row_holder(runs["a"], "b", SIZES[joined_sums], entries, both, coins("a")))

    def second():
        ot_receiver = yield from transfer.ot_receiver(runs["b"], "a", coins("r"))
        if protocol is matching:
            return (yield from matching.owner(runs["b"], "a", SIZES[matching], items[10:], ot_receiver, coins("b")))
        entries = Entries(items[10:], np.ones((20, 1), dtype=np.uint64))
        both = (yield from transfer.ot_sender(runs["b"], "a", coins("back"))), ot_receiver
        return (yield from joined_sums.label_holder(runs["b"], "a", SIZES[joined_sums], entries, both, coins("b")))

    return run_in_memory({"a": first(), "b": second()}, faults=faults, check=False)


SIZES = {
    matching: matching.MatchingSetup(joined_sums.MIN_BOUND, joined_sums.MIN_BOUND),
    joined_sums: joined_sums.JoinedSumsSetup(joined_sums.MIN_BOUND, joined_sums.MIN_BOUND, 1, 1),
}


@pytest.mark.parametrize("protocol", SIZES, ids=["matching", "joined_sums"])
def test_whoever_would_fix_its_part_of_the_name_last_is_refused(protocol):
    """The party that spoke last in `agree` could try nonces until bins or cells suited it."""
    assert both_parties(protocol).error is None
    fault = replaced(CoinsOpened, part=lambda old: bytes(32))
    error = both_parties(protocol, [fault]).error
    assert isinstance(error, IntegrityError)
    assert error.party == "a"
    error = both_parties(protocol, [replaced(CoinsAnswered, part=lambda old: old[:-1])]).error
    assert isinstance(error, PeerProtocolError)
    assert error.party == "b"


@pytest.mark.parametrize("protocol", SIZES, ids=["matching", "joined_sums"])
def test_the_session_alone_says_nothing_of_bins_and_cells(protocol, monkeypatch):
    """They follow from both parts, of which the second answers a commitment, and the first is fixed by it."""
    names, sessions = [], []
    for module, function in ((cuckoo, "bins_of"), (okvs, "places")):
        genuine = getattr(module, function)
        monkeypatch.setattr(
            module, function, lambda name, *given, _genuine=genuine: names.append(name) or _genuine(name, *given)
        )
    genuine_agree = transfer.agree

    def agree(*given):
        sessions.append((yield from genuine_agree(*given)))
        return sessions[-1]

    for module in ("matching", "sums"):
        monkeypatch.setattr(f"blindbayes.protocols.private_join.{module}.roles.agree", agree)
    assert both_parties(protocol).error is None
    assert len(set(names)) == 1
    assert not set(names) & set(sessions)
